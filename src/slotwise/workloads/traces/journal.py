"""The journal of `slotwise serve`: a day of operation as a trace, to be compared under any policy.

Read from the SQLite file of the service, while it runs or not, or from a file of `slotwise backup`, of either database.
The oldest situation that is kept tells the types, the waiting jobs and the running jobs; the rows behind it tell what
happened. A job runs from the moment that its engine told, or from its placement, until its end. A job that was stopped
by its user, or still runs, is censored. A job that never started is left out. A job that lost its server and was
executed again counts from its last start. Each attempt of a retried job is a job of its own. A job that ran when the
oldest situation was kept counts from its placement.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.schema import DEMAND, Servers, TraceMeta

SQLITE = b"SQLite format 3\0"
SHORTEST = 1e-6  # seconds: a duration is above 0
COLUMNS = {"journal": "seq, time, event, placements, note", "checkpoint": "seq, time, epoch, body"}


@dataclass(slots=True)
class Known:
    """A job, as far as the journal has told of it."""

    arrival: float
    demand: tuple[float, ...]
    server: str = ""
    started: float | None = None
    ended: float | None = None
    stopped: bool = False


class Tale:
    """What happened, row by row."""

    def __init__(self, situation: dict[str, Any]) -> None:
        self.resources: list[str] = situation["resources"]
        self._order = self.resources
        self.jobs: dict[int, Known] = {}
        self.retried: list[tuple[int, Known]] = []
        """attempts of jobs that were submitted again"""
        self.last = float(situation["now"])
        self._sizes: dict[str, tuple[float, ...]] = {}
        self._classes: dict[str, tuple[float, ...]] = {}
        self._present: dict[str, str] = {}
        self.most: Counter[str] = Counter()
        """the most servers of each class at one time"""
        self._take(situation)
        names = [one["name"] for one in situation["types"]]
        servers = situation["servers"]
        for name, kind, status in zip(servers["name"], servers["server_class"], servers["status"], strict=True):
            if status != "absent":
                self._join(name, situation["classes"][kind]["name"])
        for table in (situation["waiting"], situation["running"]):
            own = table.get("demand") or [None] * len(table["job"])
            for at, job in enumerate(table["job"]):
                size = self._sizes[names[table["type"][at]]]
                if own[at] is not None:
                    size = tuple(amount / 10**d for amount, d in zip(own[at], situation["digits"], strict=True))
                self.jobs[job] = Known(float(table["submitted"][at]), size)
        running = situation["running"]
        for job, server, started in zip(running["job"], running["server"], running["started"], strict=True):
            self.jobs[job].server, self.jobs[job].started = servers["name"][server], float(started)

    def servers(self) -> tuple[Servers, ...]:
        """Return the classes, each with the most servers that it ever had at once."""
        return tuple(
            Servers(name, self.most[name], size) for name, size in self._classes.items() if self.most[name]
        )

    def _take(self, row: dict[str, Any]) -> None:
        """Take the types and classes that a situation or a change brings."""
        self._order = row.get("resources", self._order)
        for one in row.get("types", ()):
            self._sizes[one["name"]] = self._in_order(one["demand"])
        for one in row.get("classes", ()):
            self._classes[one["name"]] = self._in_order(one["capacity"])

    def _in_order(self, sizes: Sequence[Any]) -> tuple[float, ...]:
        """Put sizes into the order of the resources of the first situation, whatever resources came later."""
        found = dict(zip(self._order, map(float, sizes), strict=True))
        return tuple(found.get(name, 0.0) for name in self.resources)

    def _join(self, name: str, kind: str) -> None:
        self._present[name] = kind
        self.most[kind] = max(self.most[kind], sum(one == kind for one in self._present.values()))

    def _server(self, row: dict[str, Any]) -> None:
        """Note a server that joins or leaves."""
        if row["event"] == "remove":
            self._present.pop(row["server"], None)
        elif row["event"] == "join":
            self._join(row["server"], row["server_class"])

    def happen(self, time: float, row: dict[str, Any], placements: list[list[Any]], note: dict[str, Any]) -> None:
        """Follow one row. Its note has the time of an end that the service heard of later."""
        self.last = max(self.last, time)
        kind = row["event"]
        if kind == "submit":
            size = dict(zip(self.resources, self._sizes[row["type"]], strict=True))
            size |= {name: float(amount) for name, amount in row.get("demand", {}).items()}
            if row["job"] in self.jobs:
                self.retried.append((row["job"], self.jobs.pop(row["job"])))
            self.jobs[row["job"]] = Known(float(row["now"]), tuple(size[name] for name in self.resources))
        elif kind in ("complete", "stop"):
            one = self.jobs[row["job"]]
            one.ended, one.stopped = float(note.get("ended", time)), kind == "stop"
        elif kind == "started":
            self.jobs[row["job"]].started = time
        elif kind == "cancel" and "held" in note:  # it is submitted once more
            del self.jobs[row["job"]]
        elif kind in ("requeue", "cancel"):
            self.jobs[row["job"]].started = None
        elif kind == "change":
            for event in row.get("before", ()):
                self._server(event)
            self._take(row)
            for event in row.get("after", ()):
                self._server(event)
        elif kind == "fail":
            for one in self.jobs.values():
                if one.server == row["server"] and one.ended is None:
                    one.started = None
            self._present.pop(row["server"], None)
        else:
            self._server(row)
        for job, server, _ in placements:
            self.jobs[job].server, self.jobs[job].started = server, time


def _table(path: Path, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one table of a store or a backup."""
    try:
        with open(path, "rb") as file:
            is_store = file.read(len(SQLITE)) == SQLITE
        if is_store:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base:
                yield from base.execute(f"SELECT {COLUMNS[table]} FROM {table} ORDER BY seq")
            return
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                if isinstance(row, list) and row[0] == table:
                    yield tuple(row[1])
    except (sqlite3.Error, gzip.BadGzipFile, EOFError, zlib.error, ValueError, IndexError) as problem:
        raise InputError(
            f"is no store and no backup of slotwise ({problem})",
            where=str(path),
            remedy="give the SQLite file of `slotwise serve`, or a file of `slotwise backup`",
        ) from None


def _tale(intake: Intake, path: Path) -> Tale:
    from slotwise.scheduling.compact import unpacked  # with the compiler: no other format needs it

    kept = min(_table(path, "checkpoint"), default=None, key=lambda row: row[0])
    if kept is None:
        raise InputError("has no situation", where=str(path), remedy="give a store that `slotwise serve` has used")
    try:
        tale = Tale(unpacked(kept[3])["situation"])
    except (ValueError, KeyError, TypeError, IndexError) as problem:
        raise InputError(f"has a damaged situation ({problem!r})", where=str(path), remedy="use a backup") from None
    for seq, time, event, placements, note in _table(path, "journal"):
        if seq <= kept[0]:
            continue
        intake.rows += 1
        try:
            tale.happen(float(time), json.loads(event), json.loads(placements), json.loads(note or "{}"))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            intake.bad.found("damaged row of the journal", path, seq, repr(problem))
    return tale


def _frame(intake: Intake, tale: Tale) -> Iterator[pl.DataFrame]:
    told = [*tale.retried, *tale.jobs.items()]
    began = [(number, one) for number, one in told if one.started is not None]
    if len(began) < len(told):
        intake.left_out["jobs that never started"] += len(told) - len(began)
    if not intake.keep:
        ended = [(number, one) for number, one in began if one.ended is not None and not one.stopped]
        if len(ended) < len(began):
            intake.left_out["jobs that did not come to their end"] += len(began) - len(ended)
        began = ended
    jobs = [one for _, one in began]
    ends = [tale.last if one.ended is None else one.ended for one in jobs]
    yield pl.DataFrame(
        {
            "arrival": pl.Series([one.arrival for one in jobs], dtype=pl.Float64),
            "duration": pl.Series(
                [max(SHORTEST, end - (one.started or 0.0)) for one, end in zip(jobs, ends, strict=True)],
                dtype=pl.Float64,
            ),
            **{
                DEMAND + name: pl.Series([one.demand[r] for one in jobs], dtype=pl.Float64)
                for r, name in enumerate(tale.resources)
            },
            "censored": pl.Series([one.ended is None or one.stopped for one in jobs], dtype=pl.Boolean),
            "id": pl.Series([number for number, _ in began], dtype=pl.Int64),
        }
    )


def read(intake: Intake) -> Reading:
    if len(intake.paths) != 1:
        raise InputError("give one store or backup; the jobs of two have nothing to do with each other")
    path = intake.paths[0]
    if path.is_dir():
        raise InputError("is a directory", where=str(path), remedy="give the SQLite file or the backup in it")
    tale = _tale(intake, path)
    intake.advance(path.stat().st_size)
    meta = TraceMeta(
        source="journal",
        resources=tuple(tale.resources),
        servers=tale.servers(),
        clock="seconds since 1970",
    )
    return Reading(meta, _frame(intake, tale))


FORMAT = Format("journal", "the journal of `slotwise serve`: its SQLite file, or a file of `slotwise backup`", read)

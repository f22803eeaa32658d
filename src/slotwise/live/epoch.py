"""When a new version decides otherwise than the journal recorded: what was recorded has happened, so it holds.

The situation before the first row that differs is changed by the recorded rows, as plain bookkeeping without any policy; then the policy takes
over, as another policy would, from what it finds. The journal says where this happened: a row `epoch`, with a situation kept behind it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import Any

from slotwise.live.changes.reshape import reshape
from slotwise.live.replay import WRONG, Difference, core_of, damaged, rows, step
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Checkpoint, Entry
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Placement
from slotwise.scheduling.situation import Situation

# Policy that is set for a moment, so that the real policy takes over instead of going on with its old memory.
BRIDGE = "best-fit"


def go_on_from_facts(
    store: Store, checkpoint: Checkpoint, diverged: Difference
) -> tuple[Scheduler, int, tuple[Placement, ...]]:
    """A core in which all recorded rows have happened, the last of them, and what is decided at once."""
    core = core_of(checkpoint)
    seq = checkpoint.seq
    books: Books | None = None
    for entry in rows(store, checkpoint.seq):
        if entry.seq == diverged.seq:
            books = Books(json.loads(core.situation().to_json()))
        if books is None:
            core, _ = step(core, entry)
        else:
            try:
                books.happen(entry)
            except WRONG as error:
                raise damaged(entry.seq, error) from None
        seq = entry.seq
    assert books is not None
    try:
        situation = books.situation()
    except WRONG as error:
        raise damaged(seq, error) from None
    policy, options = situation.policy.name, situation.policy.options
    bridge = Scheduler.from_situation(replace(situation, shares=None, use=None, used_until=None), policy=BRIDGE)
    between = replace(
        bridge.situation(), shares=situation.shares, use=situation.use, used_until=situation.used_until
    )
    after = Scheduler.from_situation(between, policy=policy, **options)
    return after, seq, (*bridge.opening.placements, *after.opening.placements)


class Books:
    """A situation as rows that recorded events change, by plain bookkeeping."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._types = [one["name"] for one in values["types"]]
        self._waiting: list[dict[str, Any]] = _rows_of(values["waiting"])
        self._running: dict[Any, dict[str, Any]] = {row["job"]: row for row in _rows_of(values["running"])}
        self._servers: list[dict[str, Any]] = _rows_of(values["servers"])
        for row in (*self._waiting, *self._running.values()):
            row["type"] = self._types[row["type"]]
        for row in self._running.values():
            row["server"] = self._servers[row["server"]]["name"]

    def happen(self, entry: Entry) -> None:
        """One recorded row: what happened, then what was decided."""
        row = json.loads(entry.event)
        self._values["now"] = max(self._values["now"], entry.time)
        kind = row["event"]
        if kind == "submit":
            self._submit(row)
        elif kind in ("complete", "stop"):
            del self._running[row["job"]]
        elif kind == "cancel":
            self._waiting = [one for one in self._waiting if one["job"] != row["job"]]
        elif kind == "requeue":
            self._put_back([row["job"]])
        elif kind == "change":
            self._change(row)
        elif kind in ("join", "resume", "drain", "remove", "fail"):
            self._server(kind, row)
        for job, server, attempt in json.loads(entry.placements):
            at = next(i for i, one in enumerate(self._waiting) if one["job"] == job)
            one = self._waiting.pop(at)
            one.pop("queue", None)
            self._running[job] = {**one, "server": server, "attempts": attempt, "started": entry.time}

    def _submit(self, row: dict[str, Any]) -> None:
        new = {
            "job": row["job"],
            "type": row["type"],
            "sequence": self._values["last_sequence"],
            "submitted": row["now"],
        }
        self._values["last_sequence"] += 1
        if "demand" in row:
            size = next(one for one in self._values["types"] if one["name"] == row["type"])["demand"]
            asked = dict(zip(self._values["resources"], size, strict=True)) | row["demand"]
            new["demand"] = [
                int((Decimal(str(asked[name])) * 10**digits).to_integral_value(ROUND_CEILING))
                for name, digits in zip(self._values["resources"], self._values["digits"], strict=True)
            ]
        if "duration" in row:
            new["duration"] = row["duration"]
        if "attempts" in row:
            new["attempts"] = row["attempts"]
        self._waiting.append(new)

    def _change(self, row: dict[str, Any]) -> None:
        for event in row.get("before", ()):
            self._server(event["event"], event)
        changed = json.loads(reshape(self.situation(), row).to_json())
        self.__init__(changed)  # type: ignore[misc]
        for event in row.get("after", ()):
            self._server(event["event"], event)

    def _put_back(self, jobs: Sequence[Any]) -> None:
        back = [self._running.pop(job) for job in jobs]
        for one in sorted(back, key=lambda one: -one["sequence"]):
            del one["server"], one["started"]
            self._waiting.insert(0, one)

    def _server(self, kind: str, row: dict[str, Any]) -> None:
        name = row["server"]
        known = next((one for one in self._servers if one["name"] == name), None)
        if known is None:
            classes = [one["name"] for one in self._values["classes"]]
            number = min(set(range(self._values["places"] + 1)) - {one["number"] for one in self._servers})
            self._values["places"] = max(self._values["places"], number + 1)
            known = {"name": name, "server_class": classes.index(row["server_class"]), "number": number}
            self._servers.append(known)
        elif kind == "remove":
            self._servers.remove(known)
        if kind == "fail":
            self._put_back([job for job, one in self._running.items() if one["server"] == name])
        known["status"] = {"join": "present", "resume": "present", "drain": "draining"}.get(kind, "absent")

    def situation(self) -> Situation:
        """What it has come to; the policy knows nothing of the servers' configurations any more."""
        servers = sorted(self._servers, key=lambda one: one["number"])
        at = {one["name"]: i for i, one in enumerate(servers)}
        waiting = sorted(self._waiting, key=lambda one: self._types.index(one["type"]))
        running = list(self._running.values())
        policy = self._values["policy"] | {
            "mode": [0] * len(servers),
            "slots": [[0] * len(self._types) for _ in servers],
            "filed": [],
            "learnt": {},
        }
        sizes = {one["name"]: one["demand"] for one in self._values["types"]}
        digits = self._values["digits"]
        whole = {
            name: [int(Decimal(str(amount)) * 10**d) for amount, d in zip(size, digits, strict=True)]
            for name, size in sizes.items()
        }
        values = self._values | {
            "servers": _columns(servers, ("name", "server_class", "status", "number")),
            "waiting": self._jobs(waiting, ("job", "type", "sequence", "submitted"), whole),
            "running": self._jobs(running, ("job", "type", "sequence", "submitted", "server", "started"), whole),
            "policy": policy,
        }
        values["running"]["server"] = [at[name] for name in values["running"]["server"]]
        return Situation.from_dict(values)

    def _jobs(
        self, rows: list[dict[str, Any]], names: Sequence[str], whole: dict[str, list[int]]
    ) -> dict[str, Any]:
        table = _columns(rows, names)
        table["attempts"] = [one.get("attempts", 0) for one in rows]
        table["demand"] = [one.get("demand", whole[one["type"]]) for one in rows]
        table["duration"] = [one.get("duration") for one in rows]
        table["type"] = [self._types.index(one["type"]) for one in rows]
        return table


def _rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [name for name, column in table.items() if column is not None]
    return [dict(zip(names, row, strict=True)) for row in zip(*(table[name] for name in names), strict=True)]


def _columns(rows: list[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in names}

"""Google ClusterData2011_2: `task_events` parts (13 columns, no header, gzip or not) and `machine_events`.

Give the parts, a directory of them, or the directory that holds `task_events` and `machine_events`. Times are
microseconds; 0 stands for "before the trace" and 2^63 - 1 for "after it". CPU and memory are parts of the largest
machine. As in section 7.3 of the paper, a job is one life cycle without interruption. With `interrupted = keep`, life
cycles cut short by an eviction, a failure, a kill or the trace's end are jobs too, marked as censored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.lifecycle import FINISH, SCHEDULE, STOP, SUBMIT, UPDATE, LifeCycles
from slotwise.workloads.traces.schema import Servers, TraceMeta
from slotwise.workloads.traces.tables import BadRows, ColumnRule, blocks, fields_of, parse

AFTER_THE_TRACE = 2**63 - 1

LAYOUT = [
    "time",
    "missing",
    "job",
    "task",
    "machine",
    "event",
    "tenant",
    "class",
    "priority",
    "cpu",
    "memory",
    "disk",
    "constraint",
]
EVENTS = [
    ColumnRule("time", int, low=0),
    ColumnRule("job", int, low=0),
    ColumnRule("task", int, low=0),
    ColumnRule("event", int, low=0),
    ColumnRule("tenant", str, required=False, few=True),
    ColumnRule("priority", int, required=False),
    ColumnRule("cpu", float, required=False, low=0),
    ColumnRule("memory", float, required=False, low=0),
    ColumnRule("constraint", int, required=False),  # the last one: where it is there, the line is whole
]
# SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST; 7 and 8 update a task and end nothing.
CODES = np.array([SUBMIT, SCHEDULE, STOP, STOP, FINISH, STOP, STOP, UPDATE, UPDATE], dtype=np.int8)

MACHINES = [
    ColumnRule("time", int, low=0),
    ColumnRule("machine", int),
    ColumnRule("event", int),
    ColumnRule("platform", str),
    ColumnRule("cpu", float, required=False, low=0),
    ColumnRule("memory", float, required=False, low=0),
]


def parts_in(path: Path, table: str) -> list[Path]:
    """Return the parts of one table in a path: the file itself, or a directory's parts in order."""
    if path.is_file():
        return [path]
    folder = path / table if (path / table).is_dir() else path
    files = (p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    return sorted(p for p in files if p.name.endswith((".csv", ".csv.gz")))


PART = re.compile(r"part-(\d+)-of-(\d+)")
TABLES = {13: "task_events", 6: "machine_events"}


def _kind(path: Path) -> str:
    """Return which table a file holds: by its name or its folder's, else by its number of columns."""
    for table in TABLES.values():
        if table in path.name or table == path.parent.name:
            return table
    block = next(blocks(path, BadRows(True, 1 << 16), size=1 << 16), None)
    columns = len(fields_of(block[1].split(b"\n", 1)[0].decode("utf-8", "replace"), ",")) if block else 13
    # A line torn or filled up is a bad row of task_events, told as such; the other tables are much narrower or wider.
    if columns in TABLES or 10 <= columns <= 16 or columns < 3:
        return TABLES.get(columns, "task_events")
    raise InputError(
        f"has {columns} columns in its first line",
        where=f"{path}:1",
        remedy="task_events has 13, machine_events 6; other tables are not needed",
    )


def _in_order(paths: list[Path]) -> list[Path]:
    """Return the parts in the order of time: by their numbers where all have one, else by their first events."""
    numbers = [PART.search(path.name) for path in paths]
    if all(numbers):
        return sorted(paths, key=lambda path: int(PART.search(path.name)[1]))  # type: ignore[index]
    return sorted(paths, key=_first_time)


def _first_time(path: Path) -> int:
    block = next(blocks(path, BadRows(True, 1 << 16), size=1 << 16), None)
    text = block[1].split(b",", 1)[0].strip() if block else b""
    return int(text) if text.isdigit() else 0


def _note_gaps(intake: Intake, paths: list[Path]) -> None:
    """Say which parts are missing: they leave tasks without a beginning or an end."""
    numbers = [int(found[1]) for path in paths if (found := PART.search(path.name))]
    gaps = [(low + 1, high - 1) for low, high in pairwise(numbers) if high > low + 1]
    if gaps:
        missing = ", ".join(f"{low}" if low == high else f"{low} to {high}" for low, high in gaps[:3])
        intake.notes.append(
            f"parts {missing}{', ...' if len(gaps) > 3 else ''} are not there: tasks that began or ended in them are"
            " lost, and nothing arrives in the time between; give parts that adjoin"
        )


def _events(intake: Intake, paths: list[Path]) -> Iterator[pl.DataFrame]:
    lives = LifeCycles(intake, paths)
    before = 0
    for number, path in enumerate(paths):
        for line, block in blocks(path, intake.bad, intake.advance):
            bad = intake.bad.total
            events = parse(block, line, EVENTS, path, intake.bad, layout=LAYOUT)
            intake.rows += events.height + intake.bad.total - bad
            if not events.height:
                continue
            if _is_odd(events, before):
                events = _screened(intake, events, before, path)
            before = int(events["time"][-1]) if events.height else before
            event = pl.Series("event", CODES[events["event"].to_numpy()])
            yield lives.feed(events.with_columns(event, pl.lit(number, pl.Int16).alias("file")))
    yield from lives.close()


def _is_odd(events: pl.DataFrame, before: int) -> bool:
    """Return whether any row needs a second look; on a good block this is all the checking there is."""
    time = events["time"].to_numpy()
    return bool(
        events["event"].to_numpy().max() >= len(CODES)
        or time[0] < before
        or time[-1] == AFTER_THE_TRACE
        or (time[1:] < time[:-1]).any()
    )


def _screened(intake: Intake, events: pl.DataFrame, before: int, path: Path) -> pl.DataFrame:
    events = intake.bad.screen(events, pl.col("event") >= len(CODES), "unknown event type", path)
    events = intake.leave_out(events, pl.col("time") == AFTER_THE_TRACE, "events after the trace ended")
    back = pl.col("time") < pl.col("time").shift(1, fill_value=before).cum_max()
    return intake.bad.screen(events, back, "time runs backwards", path)


def read_machines(intake: Intake, path: Path) -> tuple[Servers, ...]:
    """Return the cluster as the trace begins: the machines added at time 0, by platform and capacity."""
    table = intake.table(path, MACHINES).filter((pl.col("time") == 0) & (pl.col("event") == 0))
    table = intake.leave_out(
        table, pl.col("cpu").is_null() | pl.col("memory").is_null(), "machines of unknown size"
    )
    table = table.unique("machine", keep="first", maintain_order=True)
    groups = (
        table.group_by("platform", "cpu", "memory").len("count").sort("count", "cpu", "memory", descending=True)
    )
    return tuple(
        Servers(
            f"{row['platform'][:6]}-{row['cpu']:g}-{row['memory']:g}", row["count"], (row["cpu"], row["memory"])
        )
        for row in groups.iter_rows(named=True)
    )


def read(intake: Intake) -> Reading:
    folders = [path for path in intake.paths if path.is_dir()]
    machines = [path / "machine_events" for path in folders if (path / "machine_events").is_dir()]
    machines += [path for path in folders if path.name == "machine_events"]
    tasks = [part for path in folders if path not in machines for part in parts_in(path, "task_events")]
    for path in intake.paths:
        if path.is_file():
            (machines if _kind(path) == "machine_events" else tasks).append(path)
    if not tasks:
        raise InputError(
            "holds no task_events part", where=str(intake.paths[0]), remedy="parts end in .csv or .csv.gz"
        )
    tasks = _in_order(tasks)
    _note_gaps(intake, tasks)
    tables = [part for path in machines for part in parts_in(path, "machine_events")]
    servers = tuple(group for part in tables for group in read_machines(intake, part))
    intake.rows = 0
    meta = TraceMeta(
        source="google2011",
        resources=("cpu", "memory"),
        units={"cpu": "largest machine", "memory": "largest machine"},
        capacity={"cpu": 1.0, "memory": 1.0},
        servers=servers,
        clock="seconds of the Google 2011 trace, whose window begins at 600",
    )
    return Reading(meta, _events(intake, tasks))


FORMAT = Format(
    "google2011", "Google ClusterData2011_2: task_events parts (and machine_events)", read, interrupted="drop"
)

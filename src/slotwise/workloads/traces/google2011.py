"""Google ClusterData2011_2: `task_events` parts (13 columns, no header, gzip or not) and `machine_events`.

Give the parts, a directory of them, or the directory that holds `task_events` and `machine_events`. Times are
microseconds; 0 stands for "before the trace" and 2^63 - 1 for "after it". CPU and memory are parts of the largest
machine. As in section 7.3 of the paper, a job is one life cycle without interruption; with `interrupted = keep`,
life cycles cut short by an eviction, a failure, a kill or the trace's end are jobs too, marked as censored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.lifecycle import FINISH, SCHEDULE, STOP, SUBMIT, UPDATE, LifeCycles
from slotwise.workloads.traces.schema import Servers, TraceMeta
from slotwise.workloads.traces.tables import Column, blocks, parse

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
    Column("time", int, low=0),
    Column("job", int, low=0),
    Column("task", int, low=0),
    Column("event", int, low=0),
    Column("tenant", str, required=False, few=True),
    Column("priority", int, required=False),
    Column("cpu", float, required=False, low=0),
    Column("memory", float, required=False, low=0),
    Column("constraint", int, required=False),  # the last one: where it is there, the line is whole
]
# SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST; 7 and 8 update a task and end nothing.
CODES = np.array([SUBMIT, SCHEDULE, STOP, STOP, FINISH, STOP, STOP, UPDATE, UPDATE], dtype=np.int8)

MACHINES = [
    Column("time", int, low=0),
    Column("machine", int),
    Column("event", int),
    Column("platform", str),
    Column("cpu", float, required=False, low=0),
    Column("memory", float, required=False, low=0),
]


def parts_in(path: Path, table: str) -> list[Path]:
    """The parts of one table in a path: the file itself, or a directory's parts in order."""
    if path.is_file():
        return [path]
    folder = path / table if (path / table).is_dir() else path
    files = (p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    return sorted(p for p in files if p.name.endswith((".csv", ".csv.gz")))


def _is_machines(path: Path) -> bool:
    return "machine_events" in (path.name, path.parent.name)


def _events(intake: Intake, paths: list[Path]) -> Iterator[pl.DataFrame]:
    lives = LifeCycles(intake, paths)
    before = 0
    for number, path in enumerate(paths):
        for line, block in blocks(path, intake.bad, intake.advance):
            events = parse(block, line, EVENTS, path, intake.bad, layout=LAYOUT)
            intake.rows += events.height
            if not events.height:
                continue
            if _is_odd(events, before):
                events = _screened(intake, events, before, path)
            before = int(events["time"][-1]) if events.height else before
            event = pl.Series("event", CODES[events["event"].to_numpy()])
            yield lives.feed(events.with_columns(event, pl.lit(number, pl.Int16).alias("file")))
    yield from lives.close()


def _is_odd(events: pl.DataFrame, before: int) -> bool:
    """Whether any row needs a second look; on a good block this is all the checking there is."""
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
    """The cluster as the trace begins: the machines added at time 0, by platform and capacity."""
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
    machines = [path for path in intake.paths if _is_machines(path)]
    tasks = [part for path in intake.paths if not _is_machines(path) for part in parts_in(path, "task_events")]
    machines += [path / "machine_events" for path in intake.paths if (path / "machine_events").is_dir()]
    if not tasks:
        raise InputError(
            "holds no task_events part", where=str(intake.paths[0]), remedy="parts end in .csv or .csv.gz"
        )
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

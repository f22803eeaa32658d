"""Google cluster data 2019 (v3): `instance_events`, and beside it `collection_events` and `machine_events`.

The tables as BigQuery exports them: JSON lines, CSV with a header, or Parquet, plain or gzip, the kind of table
told by the file's name. An export comes in shards of no order, so all events are sorted by time in memory (some 80
bytes each). Times are microseconds, CPU and memory parts of the largest machine, as in `google2011`; a job is one
life cycle SUBMIT, (QUEUE, ENABLE,) SCHEDULE, FINISH of an instance. Instances of alloc sets are no jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.google2011 import AFTER_THE_TRACE
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.lifecycle import FINISH, SCHEDULE, STOP, SUBMIT, UPDATE, LifeCycles
from slotwise.workloads.traces.records import RecordField, read_records
from slotwise.workloads.traces.schema import Servers, TraceMeta
from slotwise.workloads.traces.tables import ColumnRule

NAMES = [
    "SUBMIT",
    "QUEUE",
    "ENABLE",
    "SCHEDULE",
    "EVICT",
    "FAIL",
    "FINISH",
    "KILL",
    "LOST",
    "UPDATE_PENDING",
    "UPDATE_RUNNING",
]
MEANING = [SUBMIT, UPDATE, UPDATE, SCHEDULE, STOP, STOP, FINISH, STOP, STOP, UPDATE, UPDATE]
CODES = {**dict(zip(NAMES, MEANING, strict=True)), **{str(i): code for i, code in enumerate(MEANING)}}

INSTANCES = [
    RecordField(ColumnRule("time", int, low=0), ("time",)),
    RecordField(ColumnRule("type", str), ("type",)),
    RecordField(ColumnRule("job", int, low=0), ("collection_id",)),
    RecordField(ColumnRule("task", int, low=0), ("instance_index",)),
    RecordField(ColumnRule("collection_type", str, required=False), ("collection_type",), present=False),
    RecordField(ColumnRule("priority", int, required=False), ("priority",), present=False),
    RecordField(ColumnRule("cpu", float, required=False, low=0), ("resource_request.cpus", "cpus")),
    RecordField(ColumnRule("memory", float, required=False, low=0), ("resource_request.memory", "memory")),
]
COLLECTIONS = [
    RecordField(ColumnRule("job", int), ("collection_id",)),
    RecordField(ColumnRule("tenant", str), ("user",)),
]
MACHINES = [
    RecordField(ColumnRule("time", int, low=0), ("time",)),
    RecordField(ColumnRule("machine", int), ("machine_id",)),
    RecordField(ColumnRule("type", str), ("type",)),
    RecordField(ColumnRule("cpu", float, required=False, low=0), ("capacity.cpus", "cpus")),
    RecordField(ColumnRule("memory", float, required=False, low=0), ("capacity.memory", "memory")),
]


def _files(intake: Intake) -> dict[str, list[Path]]:
    """Return the files by table."""
    tables: dict[str, list[Path]] = {"instance": [], "collection": [], "machine": []}
    for path in intake.paths:
        inside = path.rglob("*") if path.is_dir() else [path]
        for file in sorted(p for p in inside if p.is_file() and not p.name.startswith(".")):
            folder = file.parent.name if path.is_dir() else ""
            kind = next(
                (k for k in ("collection", "machine") if f"{k}_" in file.name or f"{k}_" in folder), "instance"
            )
            tables[kind].append(file)
    return tables


def _servers(intake: Intake, paths: list[Path]) -> tuple[Servers, ...]:
    if not paths:
        return ()
    table = pl.concat([read_records(intake, path, MACHINES) for path in paths])
    added = table.filter(pl.col("type").is_in(["1", "ADD"]), pl.col("cpu").is_not_null())
    first = added.sort("time", maintain_order=True).unique("machine", keep="first")
    groups = first.group_by("cpu", "memory").len("count").sort("count", "cpu", descending=True)
    return tuple(
        Servers(f"machine-{row['cpu']:g}-{row['memory']:g}", row["count"], (row["cpu"], row["memory"]))
        for row in groups.iter_rows(named=True)
    )


def _jobs(intake: Intake, instances: list[Path], collections: list[Path]) -> Iterator[pl.DataFrame]:
    frames = []
    for number, path in enumerate(instances):
        events = read_records(intake, path, INSTANCES)
        events = intake.bad.screen(events, ~pl.col("type").is_in(list(CODES)), "unknown event type", path)
        events = intake.leave_out(
            events, pl.col("collection_type").is_in(["1", "ALLOC_SET"]), "events of alloc sets"
        )
        events = intake.leave_out(events, pl.col("time") == AFTER_THE_TRACE, "events after the trace ended")
        frames.append(
            events.with_columns(
                pl.col("type").replace_strict(CODES, return_dtype=pl.Int8).alias("event"),
                pl.lit(number, pl.Int16).alias("file"),
            ).drop("type", "collection_type")
        )
    events = pl.concat(frames)
    if collections:
        owners = pl.concat([read_records(intake, path, COLLECTIONS) for path in collections])
        owners = owners.unique("job", keep="first", maintain_order=True).select("job", "tenant")
        events = events.join(owners, on="job", how="left", maintain_order="left")
    else:
        events = events.with_columns(pl.lit(None, pl.String).alias("tenant"))
    # Shards come in no order, and events of one moment in the order of a life cycle.
    events = events.sort("time", "event", maintain_order=True)
    lives = LifeCycles(intake, instances)
    yield lives.feed(events)
    yield from lives.close()


def read(intake: Intake) -> Reading:
    tables = _files(intake)
    if not tables["instance"]:
        raise InputError("holds no instance_events", where=str(intake.paths[0]))
    meta = TraceMeta(
        source="google2019",
        resources=("cpu", "memory"),
        units={"cpu": "largest machine", "memory": "largest machine"},
        capacity={"cpu": 1.0, "memory": 1.0},
        servers=_servers(intake, tables["machine"]),
        clock="seconds of the Google 2019 trace, whose window begins at 600",
    )
    intake.rows = 0
    return Reading(meta, _jobs(intake, tables["instance"], tables["collection"]))


FORMAT = Format(
    "google2019",
    "Google cluster data 2019 (v3): instance_events as JSON lines, CSV or Parquet (and collection, machine events)",
    read,
    interrupted="drop",
)

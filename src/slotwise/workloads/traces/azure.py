"""Azure's public VM traces: `vmtable.csv` of 2017 (V1) and 2019 (V2), and the packing trace of 2020 (SQLite).

In `vmtable.csv` a VM is created and deleted at multiples of 300 seconds; one that was deleted in the interval it
was created in is taken to have lived half of one. VMs that are there from the first moment, or still there at the
last, lived longer than is seen: they are censored, and left out with `interrupted = drop`. The 2019 table gives
buckets: above 24 cores is read as 30 and above 64 GB as 70, as in the data set's own analysis.

`azure2017` also reads the table of that trace that Bergsma et al. (SOSP 2021) made of it, as Parquet: arrivals in
batches of one tenant, durations in bins.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.records import RecordField, plain_suffix, read_records
from slotwise.workloads.traces.schema import DEMAND, TraceMeta
from slotwise.workloads.traces.tables import ColumnRule

TICK = 300.0  # seconds: the resolution of the trace
DAY = 86_400.0  # seconds
BUCKETS = {">24": 30.0, ">64": 70.0}

LAYOUT = [
    "vm",
    "subscription",
    "deployment",
    "created",
    "deleted",
    "max_cpu",
    "average_cpu",
    "p95_cpu",
    "category",
    "cores",
    "memory",
]
VMS = [
    ColumnRule("vm", str),
    ColumnRule("subscription", str),
    ColumnRule("deployment", str),
    ColumnRule("created", float, low=0),
    ColumnRule("deleted", float, low=0),
    ColumnRule("cores", str),
    ColumnRule("memory", str),
]
BINNED = [
    RecordField(ColumnRule("arrival", float, low=0), ("arrival_s",)),
    RecordField(ColumnRule("batch", int), ("batch",)),
    RecordField(ColumnRule("cores", float, low=0), ("vcpu",)),
    RecordField(ColumnRule("memory", float, low=0), ("mem_gb",)),
    RecordField(ColumnRule("censored", str), ("censored",)),
    RecordField(ColumnRule("duration", float, low=0), ("duration_s",)),
]


def _lived(seconds: pl.Expr) -> pl.Expr:
    return pl.max_horizontal(seconds, pl.lit(TICK / 2))


def _number(intake: Intake, frame: pl.DataFrame, name: str, path: Path) -> pl.DataFrame:
    value = pl.col(name).replace(list(BUCKETS), [str(v) for v in BUCKETS.values()]).cast(pl.Float64, strict=False)
    bad = value.is_null() | (value < 0) | ~value.is_finite()
    return intake.bad.screen(frame, bad, f"text in a number (column {name!r})", path).with_columns(
        value.alias(name)
    )


def _vmtable(intake: Intake, paths: list[Path]) -> Iterator[pl.DataFrame]:
    for path in paths:
        vms = intake.table(path, VMS, layout=LAYOUT, header=None)
        for name in ("cores", "memory"):
            vms = _number(intake, vms, name, path)
        vms = intake.bad.screen(vms, pl.col("deleted") < pl.col("created"), "finish before start", path)
        vms = intake.without_duplicates(vms, "vm", path)
        vms = vms.with_columns(
            censored=(pl.col("deleted") >= pl.col("deleted").max()) | (pl.col("created") == pl.lit(0.0))
        )
        if not intake.keep:
            vms = intake.leave_out(vms, pl.col("censored"), "VMs not seen from their first to their last moment")
        yield vms.select(
            pl.col("created").alias("arrival"),
            _lived(pl.col("deleted") - pl.col("created")).alias("duration"),
            pl.col("cores").alias("demand.cpu"),
            pl.col("memory").alias("demand.memory"),
            # A deployment's VMs that come at one moment were asked for together.
            pl.struct("deployment", "created").rank("dense").cast(pl.Int64).alias("batch"),
            pl.col("subscription").alias("tenant"),
            "censored",
            pl.col("vm").alias("id"),
        )


def _binned(intake: Intake, paths: list[Path]) -> Iterator[pl.DataFrame]:
    for path in paths:
        vms = read_records(intake, path, BINNED).with_columns(pl.col("censored").str.to_lowercase() == "true")
        if not intake.keep:
            vms = intake.leave_out(vms, pl.col("censored"), "VMs not seen from their first to their last moment")
        yield vms.select(
            "arrival",
            _lived(pl.col("duration")).alias("duration"),
            pl.col("cores").alias("demand.cpu"),
            pl.col("memory").alias("demand.memory"),
            "batch",
            "censored",
        )


def _reader(source: str) -> Any:
    def read(intake: Intake) -> Reading:
        binned = [plain_suffix(path) == ".parquet" for path in intake.paths]
        if any(binned) and (source != "azure2017" or not all(binned)):
            raise InputError("is Parquet", where=str(intake.paths[0]), remedy=f"{source} reads vmtable.csv")
        meta = TraceMeta(
            source=source,
            resources=("cpu", "memory"),
            units={"cpu": "core", "memory": "GB"},
            clock="seconds of the Azure trace",
            notes=(f"arrivals and durations come in steps of {TICK:g} s",),
        )
        return Reading(meta, (_binned if all(binned) else _vmtable)(intake, intake.paths))

    return read


PACKING = ("core", "memory", "hdd", "ssd", "nic")


def _rows(path: Path, query: str, schema: dict[str, Any]) -> pl.DataFrame:
    try:
        base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            rows = base.execute(query).fetchall()
        finally:
            base.close()
    except sqlite3.Error as problem:
        raise InputError(
            f"is not the packing trace ({problem})", where=str(path), remedy="give the .sqlite file of the data set"
        ) from problem
    try:
        return pl.DataFrame(rows, schema=schema, orient="row", infer_schema_length=None)
    except (pl.exceptions.PolarsError, TypeError) as problem:
        raise InputError(f"holds text in a number ({str(problem).splitlines()[0]})", where=str(path)) from problem


def _packing_machine(intake: Intake, vms: pl.DataFrame, kinds: pl.DataFrame, path: Path) -> str:
    """Return the machine whose fractions are the demands: the one asked for, or the one that can host the most VMs."""
    hosts = vms.join(kinds, on="kind").group_by("machine").len().sort(["len", "machine"], descending=[True, False])
    if not hosts.height:
        raise InputError("has no VM whose type is in vmType", where=str(path))
    asked = intake.options.get("machine")
    if asked is None:
        return str(hosts["machine"][0])
    if str(asked) not in hosts["machine"]:
        known = ", ".join(sorted(hosts["machine"].to_list()))
        raise InputError(f"has no machine {asked!r} that hosts a VM", where=str(path), remedy=f"it has {known}")
    return str(asked)


def _read_packing(intake: Intake) -> Reading:
    """Read one machine generation of the packing trace (option `machine`). A VM type has one demand vector per
    generation, as fractions of it; a trace has one per job. VMs that the generation cannot host are left out and
    counted."""
    if len(intake.paths) > 1:
        raise InputError("give one SQLite file; the ids of two files have nothing to do with each other")
    path = intake.paths[0]
    vms = _rows(
        path,
        "select rowid, cast(vmId as text), cast(tenantId as text), cast(vmTypeId as text), priority, starttime,"
        " endtime from vm order by starttime, rowid",
        {
            "line": pl.Int64,
            "vm": pl.String,
            "tenant": pl.String,
            "kind": pl.String,
            "priority": pl.Int32,
            "start": pl.Float64,
            "end": pl.Float64,
        },
    )
    kinds = _rows(
        path,
        f"select cast(vmTypeId as text), cast(machineId as text), {', '.join(PACKING)} from vmType",
        {"kind": pl.String, "machine": pl.String, **dict.fromkeys(PACKING, pl.Float64)},
    )
    intake.rows = vms.height
    intake.advance(path.stat().st_size)
    row = f"{path} (row of table vm)"
    vms = intake.bad.screen(vms, pl.col("start").is_null(), "missing value (column 'starttime')", row)
    vms = intake.bad.screen(vms, pl.col("end") < pl.col("start"), "finish before start", row)
    vms = intake.without_duplicates(vms, "vm", Path(row))
    machine = _packing_machine(intake, vms, kinds, path)
    here = kinds.filter(pl.col("machine") == machine).fill_null(0.0)
    resources = tuple(name for name in PACKING if here[name].max() != 0)
    last = max(float(vms["end"].max() or 0), float(vms["start"].max() or 0))  # type: ignore[arg-type]
    vms = vms.join(here.unique("kind", keep="first"), on="kind", how="left", maintain_order="left")
    vms = intake.leave_out(vms, pl.col("machine").is_null(), f"VMs that machine {machine} cannot host")
    vms = vms.with_columns(censored=pl.col("end").is_null() | (pl.col("start") < 0))
    if not intake.keep:
        vms = intake.leave_out(vms, pl.col("censored"), "VMs not seen from their first to their last moment")
    jobs = vms.select(
        pl.col("start").mul(DAY).alias("arrival"),
        pl.max_horizontal((pl.col("end").fill_null(last) - pl.col("start")) * DAY, pl.lit(0.5)).alias("duration"),
        *(pl.col(name).alias(DEMAND + name) for name in resources),
        "tenant",
        # In the source 0 is high and 1 is low; here larger is more urgent.
        (1 - pl.col("priority")).cast(pl.Int32).alias("priority"),
        "censored",
        pl.col("vm").alias("id"),
    )
    meta = TraceMeta(
        source="azure-packing",
        resources=resources,
        units=dict.fromkeys(resources, f"machine {machine}"),
        capacity=dict.fromkeys(resources, 1.0),
        clock="seconds of the Azure packing trace",
    )
    return Reading(meta, iter([jobs]))


FORMATS = [
    Format("azure2017", "Azure Public Dataset V1: vmtable.csv", _reader("azure2017")),
    Format("azure2019", "Azure Public Dataset V2: vmtable.csv", _reader("azure2019")),
    Format("azure-packing", "Azure Trace for Packing 2020: its SQLite file", _read_packing, options=("machine",)),
]

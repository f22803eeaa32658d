"""Slurm's accounting: `sacct --allusers --parsable2 --format=JobID,User,Submit,Start,End,State,ReqCPUS,ReqMem,...`.

Needed: JobID, Submit, Start, End, State, and CPUs and memory from AllocTRES or ReqTRES (which also have the GPUs),
or from ReqCPUS, AllocCPUS or NCPUS and ReqMem. Steps (`123.batch`) are parts of their job and no jobs. A run that
failed or was cancelled has ended; one that was cut short (TIMEOUT, NODE_FAIL, PREEMPTED, ...) or goes on is censored;
a job that never started is left out. What becomes of jobs of several nodes: `multinode`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces import multinode
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.records import RecordField, read_records
from slotwise.workloads.traces.schema import TraceMeta
from slotwise.workloads.traces.tables import ColumnRule

SCALE = {"": 2.0**20, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50}
GIB = 2.0**30
SIZE = re.compile(r"^([0-9]*\.?[0-9]+)([KMGTP]?)([cn]?)$")
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY")
UNKNOWN = ["Unknown", "None", "N/A", "None assigned", ""]


DEMANDS = ("demand.cpu", "demand.memory", "demand.gpu")


def _text(name: str, *aliases: str, present: bool = False) -> RecordField:
    return RecordField(ColumnRule(name, str, required=present), (name, *aliases), present)


FIELDS = [
    _text("JobID", "JobIDRaw", present=True),
    _text("Submit", present=True),
    _text("Start"),
    _text("End"),
    _text("State", present=True),
    _text("User"),
    _text("Account"),
    _text("Priority"),
    _text("cpus", "ReqCPUS", "AllocCPUS", "NCPUS"),
    _text("nodes", "ReqNodes", "NNodes", "AllocNodes"),
    _text("ReqMem"),
    _text("AllocTRES"),
    _text("ReqTRES"),
]


def _bytes(text: str, cpus: float, nodes: float) -> float:
    """Return the bytes of `4G`, `4000Mc` (for a CPU) or `16Gn` (for a node) for the whole job."""
    found = SIZE.match(text)
    if not found:
        raise ValueError(text)
    number, scale, per = found.groups()
    return float(number) * SCALE[scale] * {"c": cpus, "n": max(nodes, 1.0), "": 1.0}[per]


def demand_of(row: dict[str, str | None]) -> tuple[float, float, float, float]:
    """(CPUs, GiB, GPUs, nodes) of one sacct record; ValueError says what is wrong with it."""
    tres: dict[str, str] = {}
    for item in (row["AllocTRES"] or row["ReqTRES"] or "").split(","):
        key, _, value = item.partition("=")
        tres[key] = value
    cpus = float(tres.get("cpu") or row["cpus"] or "")
    nodes = float(tres.get("node") or row["nodes"] or 1)
    if "mem" in tres:
        memory = _bytes(tres["mem"], 1.0, 1.0)
    elif row["ReqMem"]:
        memory = _bytes(row["ReqMem"], cpus, nodes)
    else:
        memory = 0.0
    demand = cpus, memory / GIB, float(tres.get("gres/gpu", 0)), nodes
    if not all(0 <= amount < math.inf for amount in demand):
        raise ValueError(f"it asks for {demand}")
    return demand


def _time(name: str) -> pl.Expr:
    text = pl.when(~pl.col(name).is_in(UNKNOWN)).then(pl.col(name))
    return (text.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False).dt.epoch("us") / 1e6).alias(name)


def _jobs(intake: Intake, path: Path) -> pl.DataFrame:
    jobs = read_records(intake, path, FIELDS, separator="|")
    jobs = intake.leave_out(jobs, pl.col("JobID").str.contains(".", literal=True), "job steps")
    jobs = intake.without_duplicates(jobs, "JobID", path)
    for name in ("Submit", "Start", "End"):
        bad = ~pl.col(name).is_in(UNKNOWN) & _time(name).is_null()
        jobs = intake.bad.screen(jobs, bad, f"text in a time (column {name!r})", path)
    jobs = jobs.with_columns(_time(name) for name in ("Submit", "Start", "End"))
    jobs = intake.bad.screen(jobs, pl.col("Submit").is_null(), "missing value (column 'Submit')", path)
    jobs = intake.leave_out(jobs, pl.col("Start").is_null(), "jobs that never started")
    jobs = intake.bad.screen(jobs, pl.col("End") < pl.col("Start"), "finish before start", path)
    last = jobs.select(pl.max_horizontal(pl.col("End").max(), pl.col("Start").max())).item() or 0.0
    if not intake.keep:
        completed = pl.col("State").str.starts_with("COMPLETED") & pl.col("End").is_not_null()
        jobs = intake.leave_out(jobs, ~completed, "jobs that did not complete")
    state = pl.col("State").str.extract(r"^([A-Z_]+)")
    jobs = jobs.with_columns(
        censored=~state.is_in(ENDED) | pl.col("End").is_null(),
        End=pl.col("End").fill_null(last),
    )
    return _with_demands(intake, jobs, path)


def _with_demands(intake: Intake, jobs: pl.DataFrame, path: Path) -> pl.DataFrame:
    demands: list[tuple[float, float, float, float] | None] = []
    for row in jobs.iter_rows(named=True):
        try:
            demands.append(demand_of(row))
        except ValueError as problem:
            intake.bad.found("text in a number", path, row["line"], f"demand: {problem}")
            demands.append(None)
    columns = {
        name: pl.Series(name, [d[i] if d else None for d in demands], dtype=pl.Float64)
        for i, name in enumerate((*DEMANDS, "nodes"))
    }
    return jobs.with_columns(**columns).filter(pl.col("demand.cpu").is_not_null())


def _chunks(frames: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    for jobs in frames:
        yield jobs.select(
            pl.col("Submit").alias("arrival"),
            pl.max_horizontal(pl.col("End") - pl.col("Start"), pl.lit(0.5)).alias("duration"),
            pl.col("^demand\\..*$"),
            pl.coalesce("User", "Account").alias("tenant"),
            pl.col("Priority")
            .cast(pl.Int64, strict=False)
            .clip(-(2**31), 2**31 - 1)
            .cast(pl.Int32)
            .alias("priority"),
            *([pl.col("batch")] if "batch" in jobs.columns else []),
            "censored",
            "id",
        )


def read(intake: Intake) -> Reading:
    frames = [_jobs(intake, path) for path in intake.paths if not path.is_dir()]
    if len(frames) < len(intake.paths):
        raise InputError("give files that sacct wrote", where=str(next(p for p in intake.paths if p.is_dir())))
    jobs = pl.concat(frames, how="vertical_relaxed").rename({"JobID": "id"})
    frames = [multinode.treat(intake, jobs, DEMANDS)]
    with_gpu = any(frame["demand.gpu"].sum() > 0 for frame in frames)
    meta = TraceMeta(
        source="slurm",
        resources=("cpu", "memory", "gpu") if with_gpu else ("cpu", "memory"),
        units={"cpu": "CPU", "memory": "GiB", **({"gpu": "GPU"} if with_gpu else {})},
        clock="Unix time, as if the log's local time were UTC",
    )
    return Reading(meta, _chunks(frames))


FORMAT = Format("slurm", "Slurm accounting: sacct --parsable2 output with its header", read, options=("nodes",))

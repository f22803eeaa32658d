"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, `;` before comments.

A job asks for processors and, where the log says, for memory (field 10, or what it used, field 7). Processors are those
requested (field 8) or, with the option `processors = allocated`, those it got (field 5); where the one is not told, the
other. A run that failed or was cancelled (status 0, 5) has ended: its duration is whole. Lines of status 2 to 4 are
parts of a job that has a line of its own, and are left out. A part without such a line is a job; if it was to be
continued (status 2), the job is censored. The standard has memory in kB per processor; some logs have bytes or kB for
the whole job, which the option `memory` says: `kb-per-cpu` (default), `kb` or `bytes`. The time that was asked for
(field 9) is the estimate. Fields beyond 18, as some logs have, are not read.

Servers: a file `LOG.machines` beside the log (number, name, count, processors, speed, memory in kB), or one server
of the header's MaxProcs, since a parallel job may span the machine. With `nodes = parts` a job that asks for more
than one node has (MaxProcs / MaxNodes, or the option `node_cpus`) becomes one job for each node, see `multinode`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces import multinode
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.schema import Servers, TraceMeta
from slotwise.workloads.traces.tables import ColumnRule, blocks

FIELDS = 18  # of a line, by the standard
GIB = float(2**30)
MEMORY = {"kb-per-cpu": 1024.0, "kb": 1024.0, "bytes": 1.0}
COMPLETED = [1.0, -1.0]  # or not told
PARTS = [2.0, 3.0, 4.0]
TO_BE_CONTINUED = 2.0  # a status of the standard
PROCESSORS = {"requested": ("asked_cpu", "got_cpu"), "allocated": ("got_cpu", "asked_cpu")}

PLACES = {
    "id": 0,
    "submit": 1,
    "run": 3,
    "got_cpu": 4,
    "used_memory": 6,
    "asked_cpu": 7,
    "asked_time": 8,
    "memory": 9,
    "status": 10,
    "user": 11,
}
COLUMNS = [ColumnRule(name, int if name in ("id", "status", "user") else float, low=-1) for name in PLACES]


def _parse(intake: Intake, path: Path, header: dict[str, str]) -> pl.DataFrame:
    lines: list[int] = []
    values: list[list[float]] = [[] for _ in PLACES]
    for first, block in blocks(path, intake.bad, intake.advance):
        for number, text in enumerate(block.decode("utf-8", "replace").split("\n"), start=first):
            text = text.strip()
            if not text:
                continue
            if text.startswith(";"):
                key, colon, value = text.lstrip("; ").partition(":")
                if colon:
                    header.setdefault(key.strip(), value.strip())
                continue
            intake.rows += 1
            fields = text.split()
            if len(fields) < FIELDS:
                intake.bad.found("wrong column count", path, number, f"{len(fields)} fields, not {FIELDS}")
                continue
            texts = [fields[place] for place in PLACES.values()]
            faults = (column.fault(item) for column, item in zip(COLUMNS, texts, strict=True))
            if fault := next((f for f in faults if f), None):
                kind = "negative duration" if "'run'" in fault[1] and "small" in fault[0] else fault[0]
                intake.bad.found(kind, path, number, fault[1])
                continue
            lines.append(number)
            for store, item in zip(values, texts, strict=True):
                store.append(float(item))
    data = {name: pl.Series(name, store, dtype=pl.Float64) for name, store in zip(PLACES, values, strict=True)}
    return pl.DataFrame({"line": pl.Series("line", lines, dtype=pl.get_index_type()), **data})


def _machines(
    log: Path, header: dict[str, str], with_memory: bool, node_cpus: float | None = None
) -> tuple[Servers, ...]:
    beside = log.with_name(log.name.removesuffix(".gz") + ".machines")
    if beside.is_file():
        groups = []
        for number, line in enumerate(beside.read_text().splitlines(), start=1):
            if not line.strip():
                continue
            try:
                _, name, count, cpus, _, memory = line.split()
                capacity = (float(cpus), float(memory) * 1024 / GIB)
                groups.append(Servers(name, int(count), capacity if with_memory else capacity[:1]))
            except ValueError as problem:
                raise InputError(
                    f"is no machine ({problem})",
                    where=f"{beside}:{number}",
                    remedy="number, name, count, processors, speed, memory in kB",
                ) from problem
        return tuple(groups)
    size = header.get("MaxProcs", header.get("MaxNodes", "")).split()
    if node_cpus and size and size[0].isdigit() and not with_memory:
        return (Servers("node", int(int(size[0]) // node_cpus), (node_cpus,)),)
    if not size or not size[0].isdigit() or with_memory:
        return ()
    return (Servers("machine", 1, (float(size[0]),)),)


def _prepared(intake: Intake, path: Path, unit: str, header: dict[str, str]) -> pl.DataFrame:
    jobs = _parse(intake, path, header)
    whole = (~pl.col("status").is_in(PARTS)).any().over("id")
    jobs = intake.leave_out(jobs, pl.col("status").is_in(PARTS) & whole, "parts of jobs (status 2 to 4)")
    jobs = intake.without_duplicates(jobs, "id", path)
    jobs = _with_processors(intake, jobs).with_columns(
        pl.when(pl.col("memory") > 0).then(pl.col("memory")).otherwise(pl.col("used_memory")).alias("memory"),
    )
    jobs = intake.leave_out(jobs, pl.col("submit") < 0, "jobs with no submit time")
    jobs = intake.leave_out(jobs, pl.col("run") < 0, "jobs with no run time")
    never = (pl.col("run") == 0) & ~pl.col("status").is_in(COMPLETED)
    jobs = intake.leave_out(jobs, never, "jobs cancelled or failed before they ran")
    jobs = intake.leave_out(jobs, pl.col("cpu") <= 0, "jobs with no processors recorded")
    if not intake.keep:
        jobs = intake.leave_out(jobs, ~pl.col("status").is_in(COMPLETED), "jobs that failed or were cancelled")
    jobs = jobs.with_columns(censored=pl.col("status") == TO_BE_CONTINUED)
    scale = MEMORY[unit] / GIB * (pl.col("cpu") if unit == "kb-per-cpu" else 1.0)
    return jobs.with_columns(pl.when(pl.col("memory") > 0).then(pl.col("memory") * scale).alias("memory"))


def _with_processors(intake: Intake, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the processors of each job, with a word where the log says two things."""
    choice = str(intake.options.get("processors", "requested"))
    if choice not in PROCESSORS:
        raise InputError(f"{choice!r} is no kind of processors", remedy=f"use one of {', '.join(PROCESSORS)}")
    first, second = PROCESSORS[choice]
    both = jobs.filter((pl.col("asked_cpu") > 0) & (pl.col("got_cpu") > 0))
    asked, got = both["asked_cpu"].to_numpy(), both["got_cpu"].to_numpy()
    ratio = np.maximum(asked, got) / np.minimum(asked, got)
    if differ := int((ratio > 1).sum()):
        other = next(name for name in PROCESSORS if name != choice)
        intake.notes.append(
            f"{differ:,} of {jobs.height:,} jobs got another number of processors than they asked for"
            f" (up to {ratio.max():g} times): those {choice} are used; --option processors={other} uses the other numbers"
        )
    return jobs.with_columns(
        pl.when(pl.col(first) > 0).then(pl.col(first)).otherwise(pl.col(second)).alias("cpu"),
    )


def _node_cpus(intake: Intake, header: dict[str, str]) -> float | None:
    """Return the processors of one node: as told, or as the header has it."""
    if (given := intake.options.get("node_cpus")) is not None:
        try:
            cpus = float(given)
        except ValueError:
            cpus = 0.0
        if not 0 < cpus < float("inf"):
            raise InputError(
                f"{given!r} is no number of processors", where="node_cpus", remedy="use a number above 0"
            )
        return cpus
    size = [(header.get(key, "").split() or [""])[0] for key in ("MaxProcs", "MaxNodes")]
    if not all(text.isdigit() and int(text) for text in size):
        return None
    return int(size[0]) / int(size[1])


def _chunks(frames: list[pl.DataFrame], with_memory: bool) -> Iterator[pl.DataFrame]:
    for jobs in frames:
        yield jobs.select(
            pl.col("submit").alias("arrival"),
            # The clock's tick is a second; what began and ended within one took half of it.
            pl.max_horizontal("run", pl.lit(0.5)).alias("duration"),
            pl.col("cpu").alias("demand.cpu"),
            *([pl.col("memory").fill_null(0.0).alias("demand.memory")] if with_memory else []),
            pl.when(pl.col("user") >= 0).then(pl.col("user").cast(pl.Int64).cast(pl.String)).alias("tenant"),
            *([pl.col("batch")] if "batch" in jobs.columns else []),
            "censored",
            pl.when(pl.col("asked_time") > 0).then(pl.col("asked_time")).alias("estimate"),
            pl.col("id") if jobs["id"].dtype == pl.String else pl.col("id").cast(pl.Int64),
        )


def read(intake: Intake) -> Reading:
    unit = str(intake.options.get("memory", "kb-per-cpu"))
    if unit not in MEMORY:
        raise InputError(f"{unit!r} is no unit of SWF memory", remedy=f"use one of {', '.join(MEMORY)}")
    header: dict[str, str] = {}
    logs = [path for path in intake.paths if path.suffix != ".machines"]
    if len(logs) != 1 or logs[0].is_dir():
        raise InputError("give one SWF log", where=str(intake.paths[0]), remedy="join traces with `trace concat`")
    jobs = _prepared(intake, logs[0], unit, header)
    with_memory = jobs.height > 0 and jobs["memory"].null_count() < jobs.height
    node_cpus = _node_cpus(intake, header)
    way = multinode.way_of(intake)
    if way == "parts" and node_cpus is None:
        raise InputError(
            "does not say how many processors a node has",
            where=str(logs[0]),
            remedy="give --option node_cpus=NUMBER beside nodes=parts",
        )
    if node_cpus is not None:
        jobs = jobs.with_columns(nodes=(pl.col("cpu") / node_cpus).ceil())
        jobs = multinode.treat(intake, jobs, ["cpu", "memory"], whole_node={"cpu": node_cpus})
    servers = _machines(logs[0], header, with_memory, node_cpus if way == "parts" else None)
    most = max((s.capacity[1] for s in servers), default=0.0) if with_memory else 0.0
    if most and (jobs["memory"].drop_nulls() > most).mean() > 0.5:  # type: ignore[operator]
        raise InputError(
            f"asks for more memory than any machine has in most jobs (read as {unit})",
            where=str(logs[0]),
            remedy=f"say what its memory is: --option memory=({'|'.join(MEMORY)})",
        )
    start = (header.get("UnixStartTime", "").split() or ["0"])[0]
    meta = TraceMeta(
        source="swf",
        resources=("cpu", "memory") if with_memory else ("cpu",),
        units={"cpu": "processor", "memory": "GiB"} if with_memory else {"cpu": "processor"},
        capacity={"cpu": max(s.capacity[0] for s in servers)} if servers else {},
        servers=servers,
        origin=float(start) if start.lstrip("-").isdigit() else 0.0,
        clock="Unix time" if start not in ("0", "-1") else "the log's own seconds",
    )
    return Reading(meta, _chunks([jobs], with_memory))


FORMAT = Format(
    "swf",
    "Standard Workload Format (Parallel Workloads Archive), .gz or not",
    read,
    options=("memory", "processors", "nodes", "node_cpus"),
)

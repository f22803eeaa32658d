"""Alibaba's cluster traces: batch tasks of 2017 and 2018, and the GPU pods ("openb") of 2023.

A batch task is some number of equal instances; the table knows the task's times and one instance's demand. By
default a task is one job with the demand of one instance. With the option `instances = all` it is as many jobs as
it has instances, of one batch, each as long as the task. A task with the end 0 has not ended: it is censored at the
last moment of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.schema import Servers, TraceMeta
from slotwise.workloads.traces.tables import ColumnRule

LAYOUT_2017 = ["start", "end", "job", "task", "instances", "status", "cpu", "memory"]
LAYOUT_2018 = ["task", "instances", "job", "type", "status", "start", "end", "cpu", "memory"]
TASKS = [
    ColumnRule("start", int),
    ColumnRule("end", int),
    ColumnRule("job", str),
    ColumnRule("task", str),
    ColumnRule("instances", int, required=False, low=0),
    ColumnRule("status", str),
    ColumnRule("cpu", float, required=False, low=0),
    ColumnRule("memory", float, required=False, low=0),
]
SERVERS_2017 = ["time", "machine", "event", "detail", "cpu", "memory", "disk"]
SERVERS_2018 = ["machine", "time", "domain1", "domain2", "cpu", "memory", "status"]
SERVERS = [
    ColumnRule("machine", str),
    ColumnRule("cpu", float, required=False, low=0),
    ColumnRule("memory", float, required=False, low=0),
]
CENTI = 100.0  # the trace counts hundredths of a core
MOST_INSTANCES = 100_000_000  # jobs of one trace: more do not fit into memory


def _instances(intake: Intake) -> bool:
    choice = intake.options.get("instances", "one")
    if choice not in ("one", "all"):
        raise InputError(f"{choice!r} instances of a task", remedy="use instances=one or instances=all")
    return bool(choice == "all")


def _tasks(intake: Intake, paths: list[Path], layout: list[str], memory_scale: float) -> Iterator[pl.DataFrame]:
    everyone = _instances(intake)
    for path in paths:
        tasks = intake.table(path, TASKS, layout=layout, header=None)
        tasks = intake.without_duplicates(tasks, ["job", "task"], path)
        last = tasks.select(pl.max_horizontal(pl.col("end").max(), pl.col("start").max())).item() or 0
        tasks = intake.leave_out(
            tasks, pl.col("status").is_in(["Waiting", "Ready"]), "tasks that were still waiting at the end"
        )
        tasks = intake.leave_out(
            tasks, pl.col("cpu").is_null() | pl.col("memory").is_null(), "tasks with no demand recorded"
        )
        unfinished = pl.col("end") == 0
        tasks = intake.bad.screen(
            tasks, ~unfinished & (pl.col("end") < pl.col("start")), "finish before start", path
        )
        tasks = tasks.with_columns(
            pl.when(unfinished).then(last).otherwise(pl.col("end")).alias("end"),
            (unfinished | (pl.col("status") != "Terminated")).alias("censored"),
        )
        if not intake.keep:
            tasks = intake.leave_out(tasks, pl.col("censored"), "tasks that were interrupted or had not ended")
        jobs = tasks.select(
            pl.col("start").cast(pl.Float64).alias("arrival"),
            # The clock's tick is a second; what began and ended within one took half of it.
            pl.max_horizontal((pl.col("end") - pl.col("start")).cast(pl.Float64), pl.lit(0.5)).alias("duration"),
            (pl.col("cpu") / CENTI).alias("demand.cpu"),
            (pl.col("memory") / memory_scale).alias("demand.memory"),
            pl.struct("job", "task").rank("ordinal").cast(pl.Int64).alias("batch"),
            pl.col("job").alias("tenant"),
            "censored",
            (pl.col("job") + "/" + pl.col("task")).alias("id"),
            pl.col("instances").fill_null(1).clip(1).alias("times"),
        )
        if everyone:
            if (count := int(jobs["times"].sum())) > MOST_INSTANCES:
                raise InputError(
                    f"has {count:,} instances; at most {MOST_INSTANCES:,} are made into jobs",
                    where=str(path),
                    remedy="take a part of the table, or one job a task",
                )
            jobs = jobs.select(pl.exclude("times").repeat_by("times")).explode(pl.selectors.all())
        yield jobs.drop("times", strict=False)


def _servers(intake: Intake, paths: list[Path], layout: list[str], memory_scale: float) -> tuple[Servers, ...]:
    groups: list[Servers] = []
    for path in paths:
        table = intake.table(path, SERVERS, layout=layout, header=None)
        table = intake.leave_out(
            table, pl.col("cpu").is_null() | pl.col("memory").is_null(), "machines of unknown size"
        )
        table = table.unique("machine", keep="first")
        counts = table.group_by("cpu", "memory").len("count").sort("count", "cpu", "memory", descending=True)
        for row in counts.iter_rows(named=True):
            capacity = (row["cpu"], row["memory"] / memory_scale)
            groups.append(Servers(f"machine-{capacity[0]:g}-{capacity[1]:g}", row["count"], capacity))
    return tuple(groups)


def _split(intake: Intake, task_word: str, server_word: str) -> tuple[list[Path], list[Path]]:
    """Return the files of tasks and of servers among what was given."""
    tasks: list[Path] = []
    servers: list[Path] = []
    for path in intake.paths:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if server_word in file.name:
                servers.append(file)
            elif task_word in file.name or not path.is_dir():
                tasks.append(file)
    if not tasks:
        raise InputError(f"holds no {task_word}", where=str(intake.paths[0]))
    return tasks, servers


def _batch_reader(intake: Intake, year: int) -> Reading:
    layout, server_layout = (LAYOUT_2017, SERVERS_2017) if year == 2017 else (LAYOUT_2018, SERVERS_2018)
    server_word, cores, scale = ("server_event", 64.0, 1.0) if year == 2017 else ("machine_meta", 96.0, 100.0)
    tasks, servers = _split(intake, "batch_task", server_word)
    groups = _servers(intake, servers, server_layout, scale)
    intake.rows = 0
    meta = TraceMeta(
        source=f"alibaba{year}",
        resources=("cpu", "memory"),
        units={"cpu": "core", "memory": "machine"},
        capacity={"cpu": cores, "memory": 1.0},
        servers=groups,
        clock=f"seconds of the Alibaba {year} trace",
        notes=(f"{intake.options.get('instances', 'one')} job(s) per instance of a task",),
    )
    return Reading(meta, _tasks(intake, tasks, layout, scale))


PODS = [
    ColumnRule("name", str),
    ColumnRule("cpu_milli", float, low=0),
    ColumnRule("memory_mib", float, low=0),
    ColumnRule("num_gpu", float, low=0),
    ColumnRule("gpu_milli", float, low=0),
    ColumnRule("qos", str, required=False),
    ColumnRule("pod_phase", str),
    ColumnRule("creation_time", float, low=0),
    ColumnRule("deletion_time", float, required=False, low=0),
    ColumnRule("scheduled_time", float, required=False, low=0),
]
NODES = [
    ColumnRule("sn", str),
    ColumnRule("cpu_milli", float, low=0),
    ColumnRule("memory_mib", float, low=0),
    ColumnRule("gpu", float, low=0),
    ColumnRule("model", str, required=False),
]


def _pods(intake: Intake, paths: list[Path]) -> Iterator[pl.DataFrame]:
    for path in paths:
        pods = intake.table(path, PODS, header=True)
        pods = intake.without_duplicates(pods, "name", path)
        pods = intake.leave_out(pods, pl.col("scheduled_time").is_null(), "pods that were never scheduled")
        pods = intake.bad.screen(
            pods, pl.col("deletion_time") < pl.col("scheduled_time"), "finish before start", path
        )
        last = float(pods["deletion_time"].max() or 0)  # type: ignore[arg-type]
        pods = pods.with_columns(
            censored=pl.col("deletion_time").is_null() | (pl.col("pod_phase") == "Failed"),
            deletion_time=pl.col("deletion_time").fill_null(last),
        )
        if not intake.keep:
            pods = intake.leave_out(pods, pl.col("censored"), "pods that failed or had not ended")
        yield pods.select(
            pl.col("creation_time").alias("arrival"),
            pl.max_horizontal(pl.col("deletion_time") - pl.col("scheduled_time"), pl.lit(0.5)).alias("duration"),
            (pl.col("cpu_milli") / 1000).alias("demand.cpu"),
            (pl.col("memory_mib") / 1024).alias("demand.memory"),
            (pl.col("num_gpu") * pl.col("gpu_milli") / 1000).alias("demand.gpu"),
            pl.col("qos").alias("tenant"),
            "censored",
            pl.col("name").alias("id"),
        )


def _read_gpu(intake: Intake) -> Reading:
    pods, nodes = _split(intake, "openb_pod_list", "node_list")
    if len(pods) > 1:  # all lists but the default one are samples of it
        default = [path for path in pods if "default" in path.name]
        if len(default) != 1 or all(path.is_file() for path in intake.paths):
            raise InputError(
                "several pod lists",
                where=str(pods[0].parent),
                remedy="name one; all other lists are samples of the default",
            )
        pods = default
    groups: list[Servers] = []
    for path in nodes:
        table = intake.table(path, NODES, header=True)
        table = intake.bad.screen(table, ~pl.col("sn").is_first_distinct(), "duplicate id in sn", path)
        keys = ["cpu_milli", "memory_mib", "gpu", "model"]
        counts = table.group_by(keys).len("count").sort("count", *keys, descending=True, nulls_last=True)
        for row in counts.iter_rows(named=True):
            capacity = (row["cpu_milli"] / 1000, row["memory_mib"] / 1024, row["gpu"])
            name = f"{row['model'] or 'cpu'}-{capacity[0]:g}c-{capacity[1]:g}g-{capacity[2]:g}x"
            groups.append(Servers(name, row["count"], capacity))
    intake.rows = 0
    meta = TraceMeta(
        source="alibaba-gpu2023",
        resources=("cpu", "memory", "gpu"),
        units={"cpu": "core", "memory": "GiB", "gpu": "GPU"},
        servers=tuple(groups),
        clock="seconds of the Alibaba openb trace",
    )
    return Reading(meta, _pods(intake, pods))


FORMATS = [
    Format(
        "alibaba2017",
        "Alibaba cluster-trace-v2017: batch_task.csv (and server_event.csv)",
        lambda intake: _batch_reader(intake, 2017),
        options=("instances",),
    ),
    Format(
        "alibaba2018",
        "Alibaba cluster-trace-v2018: batch_task.csv (and machine_meta.csv)",
        lambda intake: _batch_reader(intake, 2018),
        options=("instances",),
    ),
    Format("alibaba-gpu2023", "Alibaba openb (GPU, 2023): pod and node lists", _read_gpu),
]

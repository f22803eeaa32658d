"""Section 7.3: a window of the Google trace, or one that is generated in its likeness."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slotwise.display.drawing import bars_over_time
from slotwise.errors import InputError
from slotwise.experiments import statements
from slotwise.experiments.experiment import Experiment, Order
from slotwise.experiments.points import Point, Points
from slotwise.experiments.readings import reading_blocks, reading_cells
from slotwise.experiments.settings import SHOWN
from slotwise.experiments.showing import lines_figure, points_table, wait_figure
from slotwise.experiments.sweep import SweepCell, sweep
from slotwise.model import Cluster, Scenario, ServerClass, TypeMaking, Workload
from slotwise.report.blocks import Block, ClaimTable, Figure, Panel, Prose, Section
from slotwise.simulation.result import Result
from slotwise.theory.bounds import Bound
from slotwise.theory.srpt import srpt_mean_queue
from slotwise.workloads.jobs import Jobs
from slotwise.workloads.tracejobs import jobs_of_trace, open_trace
from slotwise.workloads.traces import Trace, import_trace, read_trace, tools
from slotwise.workloads.traces.summary import TWENTY_MINUTES, burstiness, counts_in_windows, dispersion

FACTORS = [0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5]  # servers over the offered load
OPTIONS = {"algorithm1": {"z": 0.002, "stall_cap": 0.015}}
FORMAT = "google2011"
HOUR = 3600.0  # seconds


def window_of(order: Order) -> tuple[Trace, str]:
    """The window of arrivals that both experiments use, and what it is, in words."""
    jobs = order.scale.trace_jobs
    if FORMAT in order.traces:
        trace = _imported(order.traces[FORMAT])
        if len(trace) > jobs:
            trace = tools.window(trace, jobs=jobs)
        return trace, f"{len(trace):,} uninterrupted tasks of Google's ClusterData2011_2, as given"
    unknown = [name for name in order.traces if name != FORMAT]
    if unknown:
        raise InputError(f"no experiment uses a trace {unknown[0]!r}", where="--trace", remedy=f"use {FORMAT}=DIR")
    trace = open_trace("google-like", jobs, order.scale.seed)
    return trace, (
        f"{len(trace):,} jobs generated in the likeness of Google's ClusterData2011_2 (give --trace google2011=DIR for"
        " the real one)"
    )


@lru_cache(maxsize=1)
def _imported(path: Path) -> Trace:
    if path.suffix == ".parquet":
        return read_trace(path, columns=[])
    return import_trace(FORMAT, [path])[0]


def _arrivals(order: Order) -> Section:
    order.progress("arrivals", 0.1)
    trace, words = window_of(order)
    counts = counts_in_windows(trace.arrival, TWENTY_MINUTES)
    edges = np.arange(len(counts) + 1) * TWENTY_MINUTES / HOUR
    idc = dispersion(trace.arrival, TWENTY_MINUTES)
    tied = burstiness(trace.arrival)["lag1_correlation"]
    data = _counts_frame(counts)
    # what a Poisson process of the same rate would look like, so that the eye has something to compare with
    even = np.random.default_rng(order.scale.seed).poisson(counts.mean(), len(counts))
    blocks: list[Block] = [
        Prose(f"Workload: {words}. They span {trace.span / HOUR:.1f} hours."),
        ClaimTable(statements.arrivals(idc, tied)),
        Figure(
            "arrivals-counts",
            "Arrivals per 20 minutes",
            "The dashed line is the mean. Second: counts of a Poisson process of the same rate.",
            [
                Panel(
                    "the trace",
                    bars_over_time(
                        edges, counts, "arr-trace", x="hours", y="arrivals per 20 minutes", mean=counts.mean()
                    ),
                    f"Arrivals per 20 minutes vary between {counts.min():,} and {counts.max():,}, mean {counts.mean():,.0f}.",
                ),
                Panel(
                    "Poisson, for comparison",
                    bars_over_time(
                        edges,
                        even,
                        "arr-even",
                        x="hours",
                        y="arrivals per 20 minutes",
                        mean=counts.mean(),
                        top=float(counts.max()),
                    ),
                    f"A Poisson process of the same rate varies between {even.min():,} and {even.max():,} only.",
                ),
            ],
            data,
        ),
    ]
    return Section("arrivals", "How the trace's jobs arrive", blocks)


def _counts_frame(counts: NDArray[np.int64]) -> pl.DataFrame:
    hours = np.arange(len(counts)) * TWENTY_MINUTES / HOUR
    return pl.DataFrame({"start_hours": hours, "arrivals": counts})


def scenario_of(servers: int, trace: Trace, order: Order, policy: str = "") -> Scenario:
    """Unit servers, one resource: the larger of CPU and memory, rounded up to a power of two."""
    return Scenario(
        name="google",
        cluster=Cluster(resources=("size",), servers=(ServerClass(name="unit", count=servers, capacity=(1,)),)),
        workload=Workload(trace=trace.name, typing=TypeMaking(method="power-of-two")),
        run=order.scale.run(policy, jobs=len(trace), replications=order.scale.trace_replications),
    )


def srpt_bound(trace: Trace, servers: int, warmup: float) -> Bound:
    """Bound (c) over the measured part, by what jobs really ask for: the larger of CPU and memory."""
    arrival = trace.arrival - trace.arrival[0]
    start = float(arrival[int(warmup * len(arrival))])
    size = trace.demands().max(axis=1)
    mean = srpt_mean_queue(arrival, trace.duration, size, float(servers), start=start, end=float(arrival[-1]))
    return Bound(mean, "srpt", ("every policy, clairvoyant or not, that packs by the larger of CPU and memory",))


def offered_load(jobs: Jobs) -> float:
    """Unit servers that the rounded sizes keep busy."""
    sizes = np.array([float(job_type.demand[0]) for job_type in jobs.types])
    return float((jobs.rates * jobs.mean_service) @ sizes)


def _google(order: Order) -> Section:
    order.progress("google", 0.0)
    trace, words = window_of(order)
    first = scenario_of(1, trace, order)
    jobs = jobs_of_trace(trace, first.cluster, first.workload.typing)
    load = offered_load(jobs)
    counts = [round(factor * load) for factor in order.scale.thinned(FACTORS)]
    cells = _cells(order, trace, jobs, counts)
    typed = [
        SweepCell(
            scenario_of(n, trace, order, "best-fit"), "best-fit", {"pack_by": "type"}, "", float(n), jobs=jobs
        )
        for n in (counts[0], counts[-1])
    ]
    others = reading_cells(counts, lambda n, policy: scenario_of(n, trace, order, policy), OPTIONS, jobs)
    results = sweep([*cells, *typed, *others], order.share("google", 0.03, 1.0), order.workers)
    cut = len(cells) + len(typed)
    points = _certain(Points.of(cells, results[: len(cells)]))
    blocks: list[Block] = [
        Prose(
            f"Workload: {words}. Sizes are the larger of CPU and memory, rounded up to a power of two; so rounded they keep"
            f" {load:,.0f} unit servers busy, and the cluster has {counts[0]:,} to {counts[-1]:,} of them."
            f" {order.scale.trace_replications} runs differ only in the policies' own random choices; where a policy made none, it is run once."
        ),
        Prose(
            "Best-fit packs what a job really asks for, as anything built today would, and not the rounded size of its"
            " type; the table below says how much of its lead that is.",
            note=True,
        ),
        ClaimTable(statements.google(points)),
        lines_figure(
            "google-queue",
            "Mean queue size on the trace",
            "Logarithmic scale. The lower bound (shortest remaining time first, by real sizes) "
            + ("is drawn where it is above 0." if points.has_bound else "is 0 for all these server counts."),
            points,
            x="number of servers",
        ),
        wait_figure(
            "google-wait",
            "Waits on the trace",
            "Zero waits are drawn at 0.01.",
            points,
            x="number of servers",
            unit="seconds",
        ),
        points_table(
            "google-rounding",
            "What rounding up costs best-fit",
            _rounding(points, typed, results[len(cells) : cut]),
            "Waits are in seconds.",
        ),
        *reading_blocks(points, others, results[cut:]),
    ]
    return Section("google", "The Google trace", blocks)


def _cells(order: Order, trace: Trace, jobs: Jobs, counts: list[int]) -> list[SweepCell]:
    """Return a cell for each number of servers and policy, with the lower bound."""
    cells: list[SweepCell] = []
    bound = None
    for servers in counts:
        scenario = scenario_of(servers, trace, order)
        if bound is None or bound.mean_queue > 0:  # with more servers it can only be less
            bound = srpt_bound(trace, servers, float(scenario.run.warmup))
        cells += [
            SweepCell(
                scenario_of(servers, trace, order, policy),
                policy,
                OPTIONS.get(policy, {}),
                "",
                float(servers),
                jobs=jobs,
                bound=bound,
            )
            for policy in SHOWN
        ]
    return cells


def _certain(points: Points) -> Points:
    """Without intervals where one run says all."""
    return Points(tuple(replace(p, low=None, high=None) if len(p.runs) == 1 else p for p in points.all))


def _rounding(points: Points, typed: list[SweepCell], results: list[Result]) -> Points:
    shown = []
    for cell, result in zip(typed, results, strict=True):
        real = next(point for point in points.line("best-fit") if point.x == cell.x)
        shown += [
            replace(real, label=f"best-fit, real sizes, {cell.x:g} servers"),
            replace(
                Point.of(cell, result), low=None, high=None, label=f"best-fit, rounded sizes, {cell.x:g} servers"
            ),
        ]
    return Points(tuple(shown))


ARRIVALS = Experiment("arrivals", "Arrivals of the trace", _arrivals, simulates=False)
GOOGLE = Experiment("google", "The Google trace", _google)

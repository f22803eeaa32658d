"""Examples 1 and 2 of section 7.1: where M14 is unstable, and where G16 is far too slow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slotwise.display.drawing import curves, dots
from slotwise.display.palette import label_of
from slotwise.experiments import statements
from slotwise.experiments.experiment import Experiment, Order
from slotwise.experiments.points import Point, Points
from slotwise.experiments.settings import SHOWN, changed
from slotwise.experiments.showing import points_table
from slotwise.experiments.sweep import SweepCell, sweep
from slotwise.model import load_scenario
from slotwise.report.blocks import Block, ClaimTable, Figure, Panel, Prose, Section
from slotwise.report.stepthrough import walk_of
from slotwise.simulation.result import Result

POLICIES = (*SHOWN, "g16-retention")
NEAR = 480.0  # how long the stretch is in which the sawtooth is shown tooth by tooth, in mean service times


def _run(name: str, order: Order) -> tuple[Points, dict[str, Result]]:
    base = load_scenario(name)
    cells = [SweepCell(changed(base, run=order.scale.run(policy)), policy) for policy in POLICIES]
    results = sweep(cells, order.share(name), order.workers)
    return Points.of(cells, results), dict(zip(POLICIES, results, strict=True))


def swings(queue: NDArray[np.float64]) -> int:
    """How often a series falls below half of its mean after having been above one and a half of it."""
    mean = float(queue.mean())
    count, high = 0, False
    for value in queue:
        if value > 1.5 * mean:
            high = True
        elif high and value < 0.5 * mean:
            count, high = count + 1, False
    return count


def _with_swings(point: Point, result: Result) -> Point:
    found = [swings(run.queue_series) for run in result.runs]
    return replace(point, more=point.more | {"swings": float(np.mean(found))})


def series_frame(results: dict[str, Result]) -> pl.DataFrame:
    """The sampled queue of the first replication of each policy."""
    return pl.concat(
        [
            pl.DataFrame(
                {"policy": [name] * len(run.series), "time": run.series[:, 0], "waiting": run.series[:, 1]}
                | {"stalled": run.series[:, 3]}
            )
            for name, result in results.items()
            for run in result.runs[:1]
        ]
    )


def _example1(order: Order) -> Section:
    points, results = _run("example1", order)
    points = Points(tuple(_with_swings(p, r) for p, r in zip(points.all, results.values(), strict=True)))
    near = _near(order)
    m14, ours = results["m14"].runs[0].series, results["algorithm1"].runs[0].series
    panels = [
        Panel(
            "M14 grows, Algorithm 1 does not",
            curves([("m14", m14[:, 0], m14[:, 1]), ("algorithm1", ours[:, 0], ours[:, 1])], "ex1-all", x="time"),
            f"Waiting jobs over time: M14 rises steadily to {m14[-1, 1]:,.0f}, Algorithm 1 stays near the axis.",
        ),
        Panel(
            "the sawtooth of Algorithm 1, nearer",
            curves([("algorithm1", near[:, 0], near[:, 1])], "ex1-saw", x="time", marks=_stalls(near)),
            f"Waiting jobs under Algorithm 1 rise and fall like a sawtooth around {ours[:, 1].mean():.0f};"
            " the queue falls after each stall.",
        ),
    ]
    blocks: list[Block] = [
        Prose(
            "One server of capacity 6, large jobs of 4 units and small ones of 1, eight small ones for each large one, at"
            " 0.89 of what can be carried. A server that holds one large and two small slots serves small jobs too slowly;"
            " under M14 it keeps these slots until it is empty, which with a growing queue may never happen again."
            " Algorithm 1 stalls such a server: it finishes its jobs, takes no new ones, and starts anew."
        ),
        ClaimTable(statements.example1(points)),
        Figure(
            "example1-series",
            "Example 1: total queue over time",
            "First: one of the runs, sampled at about 1,000 moments. Second: a short run from empty queues, sampled at every"
            " arrival or so; a vertical line is a stall, after which the server starts anew with other slots.",
            panels,
            series_frame(results),
            ["algorithm1", "m14"],
        ),
        points_table("example1-results", "Example 1: all policies", points),
        walk_of(order.scale.seed),
    ]
    return Section("example1", "Example 1: where waiting for an empty server is fatal", blocks)


def _near(order: Order) -> NDArray[np.float64]:
    """A short run, sampled finely enough that single teeth can be seen."""
    base = load_scenario("example1")
    cell = SweepCell(
        changed(base, run=order.scale.run("algorithm1", until=NEAR, warmup=0.0, replications=1)), "algorithm1"
    )
    series = sweep([cell], workers=1)[0].runs[0].series
    return series[series[:, 0] <= NEAR]


def _stalls(series: NDArray[np.float64]) -> list[float]:
    """When the server was first seen stalled, each time."""
    stalled = series[:, 3] > 0
    return [float(t) for t in series[1:, 0][stalled[1:] & ~stalled[:-1]]]


def _example2(order: Order) -> Section:
    points, results = _run("example2", order)
    rows = [(label_of(p.policy), p.policy, p.mean, p.low, p.high) for p in points.all]
    bound = points.all[0].bound
    rows.append((label_of("lower-bound"), "lower-bound", bound, None, None))
    chosen = {name: results[name] for name in ("algorithm1", "m14", "g16", "best-fit")}
    parts = [(name, r.runs[0].series[:, 0], r.runs[0].series[:, 1]) for name, r in chosen.items()]
    end = min(time[-1] for _, time, _ in parts)
    parts = [(name, time[time <= end], value[time <= end]) for name, time, value in parts]
    blocks: list[Block] = [
        Prose(
            "Four servers of 1, 2, 4 and 8 units, and four types of jobs that each fill one of them, at 0.89 of what can be"
            " carried. Random sampling finds the one good assignment rarely and keeps undoing it."
        ),
        ClaimTable(statements.example2(points)),
        Figure(
            "example2-series",
            "Example 2: total queue over time, and its mean",
            "First: one of the runs over the same span of time. Second: the mean over the runs with its 95 % interval, on a logarithmic scale.",
            [
                Panel(
                    "over time",
                    curves(parts, "ex2-series", x="time"),
                    "Waiting jobs over time of " + ", ".join(label_of(name) for name, _, _ in parts) + ".",
                ),
                Panel(
                    "mean queue size",
                    dots(rows, "ex2-means"),
                    "Mean queue sizes: " + ", ".join(f"{label} {mean:.3g}" for label, _, mean, _, _ in rows) + ".",
                ),
            ],
            series_frame(results),
            list(chosen),
        ),
        points_table("example2-results", "Example 2: all policies", points),
    ]
    return Section("example2", "Example 2: where random sampling is too slow", blocks)


EXAMPLE1 = Experiment("example1", "Example 1", _example1)
EXAMPLE2 = Experiment("example2", "Example 2", _example2)

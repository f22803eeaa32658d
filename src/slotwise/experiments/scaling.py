"""Section 7.2: Table 1 with more servers, and with more load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from slotwise.display.numbers import with_band
from slotwise.display.palette import label_of
from slotwise.experiments import statements
from slotwise.experiments.experiment import Experiment, Order
from slotwise.experiments.points import Points
from slotwise.experiments.settings import LAWS, SHOWN, changed, table1
from slotwise.experiments.showing import lines_figure, wait_figure
from slotwise.experiments.sweep import SweepCell, sweep
from slotwise.model import Scenario
from slotwise.report.blocks import Block, ClaimTable, Prose, Section, Table
from slotwise.simulation.run.workload import jobs_of

COUNTS = [20, 40, 60, 80, 100, 120, 140, 160, 180, 200]
INTENSITIES = [0.80, 0.82, 0.84, 0.86, 0.88, 0.90, 0.92, 0.94, 0.95]
ZETA = 0.89  # intensity: just below the 0.9 up to which Algorithm 1 is proven
BANDS = (
    "Logarithmic scale. Bands are 95 % intervals, cut at the smallest run; means below 0.0005 are not drawn. The bound is on the"
    " long-run mean: runs of this length may lie below it where queues are rare."
)
LOAD_B = 0.98  # of Algorithm 1 in the intensity experiment: above all intensities tested


def _cells(
    values: list[Any], setting: Callable[[Any, str], Scenario], order: Order, options: dict[str, dict[str, Any]]
) -> list[SweepCell]:
    cells = []
    for law, key in LAWS.items():
        for value in order.scale.thinned(values):
            base = setting(value, key)
            jobs = jobs_of(base)
            for policy in SHOWN:
                scenario = changed(base, run=order.scale.run(policy))
                cells.append(SweepCell(scenario, policy, options.get(policy, {}), law, float(value), jobs=jobs))
    return cells


def _equal_time(cells: list[SweepCell], points: Points, order: Order, name: str) -> Table:
    """Return G16's figures over the time that 200,000 events of another policy take, because G16's ticks count as
    events."""
    ends = [cell for cell in cells if cell.policy == "g16" and cell.law == points.laws[0]]
    ends = [ends[0], ends[-1]]
    again = []
    for cell in ends:
        assert cell.jobs is not None
        until = order.scale.events / 2 / cell.jobs.rate
        scenario = changed(cell.scenario, run=order.scale.run("g16", until=until))
        again.append(SweepCell(scenario, "g16", cell.options, cell.law, cell.x, jobs=cell.jobs))
    timed = Points.of(again, sweep(again, order.share(name, 0.97, 1.0), order.workers))
    events = order.scale.events
    twice = 2 * events
    rows = []
    for point in timed.all:
        other = next(p for p in points.line("g16", point.law) if p.x == point.x)
        rows.append(
            (
                f"{point.x:g}",
                with_band(other.mean, other.low, other.high),
                with_band(point.mean, point.low, point.high),
            )
        )
    frame = pl.DataFrame(
        {
            "x": [p.x for p in timed.all],
            "equal_time": [p.mean for p in timed.all],
            "equal_events": [next(q.mean for q in points.line("g16", p.law) if q.x == p.x) for p in timed.all],
        }
    )
    return Table(
        f"{name}-equal-time",
        f"{label_of('g16')}: equal events and equal time",
        f"Sampling ticks count as events, so {twice:,} events of G16 are not the time that {events:,} events of another policy"
        " are."
        " Mean queue under Poisson arrivals.",
        frame,
        [
            "servers" if name == "servers" else "intensity",
            f"{twice:,} events",
            f"the time of {events:,} events of another policy",
        ],
        rows,
    )


def _servers(order: Order) -> Section:
    cells = _cells(COUNTS, lambda count, law: table1(count, ZETA, law), order, {})
    points = Points.of(cells, sweep(cells, order.share("servers", 0.0, 0.97), order.workers))
    blocks: list[Block] = [
        Prose(
            "The three VM types of Table 1 on 20 to 200 alike servers, arrivals growing with them, always at 0.89 of what"
            " can be carried."
        ),
        ClaimTable(statements.servers(points)),
        lines_figure(
            "servers-queue",
            "Mean queue size as the cluster grows",
            BANDS,
            points,
            x="number of servers",
            ticks=[20, 60, 100, 140, 200],
        ),
        wait_figure(
            "servers-wait",
            "Waits as the cluster grows",
            "Poisson arrivals; zero waits are drawn at 0.01.",
            points,
            x="number of servers",
        ),
        _equal_time(cells, points, order, "servers"),
    ]
    return Section("servers", "More servers", blocks)


def _intensity(order: Order) -> Section:
    options = {"algorithm1": {"b": LOAD_B}}
    cells = _cells(INTENSITIES, lambda zeta, law: table1(20, zeta, law), order, options)
    points = Points.of(cells, sweep(cells, order.share("intensity", 0.0, 0.97), order.workers))
    blocks: list[Block] = [
        Prose(
            "Table 1 on 20 servers, from 0.80 to 0.95 of what can be carried. Algorithm 1 has b = 0.98 here, above every"
            " load, so that its guarantee covers the whole range."
        ),
        ClaimTable(statements.intensity(points)),
        lines_figure(
            "intensity-queue",
            "Mean queue size as the load grows",
            BANDS,
            points,
            x="traffic intensity",
        ),
        wait_figure(
            "intensity-wait",
            "Waits as the load grows",
            "Poisson arrivals; zero waits are drawn at 0.01.",
            points,
            x="traffic intensity",
        ),
        _equal_time(cells, points, order, "intensity"),
    ]
    return Section("intensity", "More load", blocks)


SERVERS = Experiment("servers", "More servers", _servers)
INTENSITY = Experiment("intensity", "More load", _intensity)

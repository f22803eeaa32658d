"""Points as tables and figures of the report."""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.display.drawing import lines
from slotwise.display.numbers import brief, with_band
from slotwise.display.palette import label_of
from slotwise.experiments.points import Point, Points
from slotwise.report.blocks import Cell, Figure, Panel, Table
from slotwise.simulation.showing import KINDS

STANDING = "95 % intervals over the replications. Waits are in the scenario's unit of time."


def points_table(name: str, title: str, points: Points, caption: str = STANDING) -> Table:
    """A row for each policy: queue, waits, stalls, verdict."""
    columns = ["policy", "mean queue", "mean wait", "median", "p95", "p99", "stalled servers", "verdict"]
    rows = [
        (
            point.label or label_of(point.policy),
            with_band(point.mean, point.low, point.high),
            *(brief(point.more[f"wait_{key}"]) for key in ("mean", "p50", "p95", "p99")),
            f"{point.more['stalled_fraction']:.1%}",
            Cell(str(point.verdict), KINDS[point.verdict]),
        )
        for point in points.all
    ]
    bounds = {point.bound for point in points.all}
    if points.has_bound and len(bounds) == 1:  # one setting, so one bound for all its rows
        bound = bounds.pop()
        caption = (
            f"No policy that does not know service times can have a mean queue below {brief(bound)}. {caption}"
        )
    return Table(name, title, caption, points.frame(), columns, rows)


def lines_figure(
    name: str,
    title: str,
    caption: str,
    points: Points,
    *,
    x: str,
    ticks: Sequence[float] | None = None,
    y: str = "mean queue size (jobs)",
) -> Figure:
    """A panel for each law: mean queue over x for every policy, with bands and the lower bound."""
    several = len(points.laws) > 1
    panels = [
        Panel(
            f"{law} arrivals" if several else "",
            lines(points.series(law), f"{name}-{n}", x=x, y=y, ticks=ticks),
            f"{y} against {x}" + (f" under {law} arrivals. " if several else ". ") + in_words(points, law),
        )
        for n, law in enumerate(points.laws)
    ]
    return Figure(name, title, caption, panels, points.frame(), points.legend(), points.any_grows)


def in_words(points: Points, law: str) -> str:
    """Say what a chart shows, for readers who cannot see it."""
    parts = []
    for policy in points.policies:
        line = points.line(policy, law)
        if line:
            first, last = line[0], line[-1]
            parts.append(
                f"{label_of(policy)}: {brief(first.mean)} at {first.x:g}, {brief(last.mean)} at {last.x:g}"
            )
    return "; ".join(parts) + "."


def wait_figure(
    name: str, title: str, caption: str, points: Points, *, x: str, unit: str = "mean service times"
) -> Figure:
    """The 95th and 99th percentile of the wait over x, under the first law."""
    law = points.laws[0]
    panels = []
    for key, words in (("wait_p95", "95 % of the jobs wait less"), ("wait_p99", "99 % of the jobs wait less")):
        other = Points(tuple(_by(point, key) for point in points.where(law=law).all))
        panels.append(
            Panel(
                words,
                lines(other.series(law, bound=False), f"{name}-{key}", x=x, y=f"wait ({unit})"),
                f"The time below which {words.split()[0]} {words.split()[1]} of the jobs wait, against {x}. "
                + in_words(other, law),
            )
        )
    return Figure(name, title, caption, panels, points.where(law=law).frame(), points.policies, points.any_grows)


def _by(point: Point, key: str) -> Point:
    """The point with another figure in place of the mean queue; zero waits are shown as a hundredth."""
    return Point(point.policy, point.x, max(point.more[key] or 0.0, 0.01), verdict=point.verdict, law=point.law)

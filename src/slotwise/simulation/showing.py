"""Results for people in notebooks: short lines, small tables, pictures. What `Result` and `Comparison` call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slotwise.display import notebook
from slotwise.display.numbers import measured, with_band
from slotwise.display.palette import label_of
from slotwise.model import labelled
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.measure.histogram import EDGES, with_waiting
from slotwise.simulation.measure.meter import LARGEST

if TYPE_CHECKING:
    import polars as pl

    from slotwise.display.drawing import Picture
    from slotwise.simulation.result import Comparison, Result

KINDS = {
    Stability.STABLE: "good",
    Stability.GROWS: "bad",
    Stability.NEVER_STARTS: "bad",
    Stability.TOO_SHORT: "unsure",
}
NEAREST = 1e-4  # of the longest wait: where the time axis of the tail begins
WAITS = ("mean wait", "p95 wait", "p99 wait")


def kind_of(result: Result) -> str:
    """Return good, bad or unsure: the colour of a verdict."""
    return KINDS[result.verdict]


def _row(result: Result) -> list[Any]:
    waits = [measured(result.wait[key], 3) for key in ("mean", "p95", "p99")]
    used = f"{max(result.utilisation.values()):.0%}"
    return [
        label_of(result.policy),
        with_band(*result.mean_queue),
        *waits,
        used,
        (str(result.verdict), kind_of(result)),
    ]


def runs_of(result: Result) -> str:
    """Write the runs, as "5 runs of 20,000 events"."""
    n = len(result.runs)
    return f"{n} run{'s' if n > 1 else ''} of {result.runs[0].events:,} events"


def html(results: Sequence[Result]) -> str:
    """Return a table with a row for each policy."""
    first = results[0]
    waits = (labelled(name, first.scenario.time_unit) for name in WAITS)
    columns = ["policy", "mean queue", *waits, "in use", "verdict"]
    return notebook.table(f"{first.scenario.name}: {runs_of(first)}", columns, [_row(one) for one in results])


def by_type(results: Sequence[Result]) -> pl.DataFrame:
    """Return a row for each policy and type: mean queue with its interval, and waits."""
    import polars as pl

    rows = []
    for result in results:
        for name in result.type_names:
            queue = result.mean_queue_by_type[name]
            row: dict[str, Any] = {"policy": result.policy, "type": name, "mean_queue": queue.mean}
            row |= {"ci95_low": queue.low, "ci95_high": queue.high}
            rows.append(row | {f"wait_{key}": value for key, value in result.wait_by_type[name].items()})
    return pl.DataFrame(rows, infer_schema_length=None)


def tail(result: Result) -> tuple[list[float], list[float]]:
    """(t, P(wait > t)) from the histograms of all replications, out to the longest wait; who still waits counts as in the figures."""
    ended = np.sum([run.wait_bins.sum(axis=0) for run in result.runs], axis=0)
    unended = np.sum([run.waiting_bins.sum(axis=0) for run in result.runs], axis=0)
    total = float(ended.sum() + unended.sum())
    longest = float(max(run.wait_sums[:, LARGEST].max() for run in result.runs))
    if total == 0 or not longest > 0:
        return [], []
    above = 1.0 - with_waiting(ended, unended).cumsum() / total
    inside = (EDGES[1:] > NEAREST * longest) & (EDGES[1:] < longest) & (above > 0.5 / total)
    times, shares = EDGES[1:][inside].tolist(), above[inside].tolist()
    return [*times, longest], [*shares, shares[-1] if shares else 1.0 / total]


def plot_result(result: Result) -> Picture:
    """Draw the queue over time, and how many jobs wait how long."""
    from slotwise.display.drawing import DrawnSeries, draw_curves, draw_lines, panels  # Matplotlib is slow to load

    with panels(2) as (figure, (left, right)):
        run, unit = result.runs[0], result.scenario.time_unit
        draw_curves(left, [(result.policy, run.series[:, 0], run.series[:, 1])], x=labelled("time", unit))
        times, shares = tail(result)
        series = [DrawnSeries(result.policy, times, shares)] if times else []
        x, y = labelled("wait", unit), "share that waits longer"
        draw_lines(right, series, x=x, y=y, log_x=bool(times), markers=False, floor=0.0)
        figure.suptitle(f"{label_of(result.policy)} on {result.scenario.name}", fontsize=10.5)
        return figure


def plot_comparison(comparison: Comparison) -> Picture:
    """Draw mean queues with their intervals, and the tails of the waits."""
    from slotwise.display.drawing import DrawnSeries, Row, draw_dots, draw_lines, panels

    results = comparison.results
    with panels(2, max(3.15, 0.75 + 0.4 * len(results))) as (figure, (left, right)):
        rows: list[Row] = [(label_of(r.policy), r.policy, *r.mean_queue) for r in results]
        draw_dots(left, rows)
        tails = [(result.policy, *tail(result)) for result in results]
        series = [DrawnSeries(policy, times, shares) for policy, times, shares in tails if times]
        x, y = labelled("wait", results[0].scenario.time_unit), "share that waits longer"
        draw_lines(right, series, x=x, y=y, log_x=bool(series), markers=False, floor=0.0)
        return figure

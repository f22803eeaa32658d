"""The page of `slotwise compare`: several policies on one workload."""

from __future__ import annotations

import polars as pl

from slotwise.looks.drawing import Series, curves, dots, lines
from slotwise.looks.numbers import brief, with_band
from slotwise.looks.palette import label_of
from slotwise.report.blocks import Block, Figure, Page, Panel, Section, Table
from slotwise.simulation.histogram import EDGES
from slotwise.simulation.meter import LARGEST
from slotwise.simulation.result import Comparison, Result

LEAST_TAIL = 1e-4
NEAREST = 1e-4
"""of the longest wait: where the time axis of the tail begins"""


def comparison_page(comparison: Comparison) -> Page:
    """Means with intervals, time series, the tail of the waits, tables by policy and by type."""
    results = comparison.results
    scenario = results[0].scenario
    names = [result.policy for result in results]
    best = comparison.best
    lead = [
        f"{len(results)} policies met the same jobs. {label_of(best.policy)} has the shortest mean queue,"
        f" {with_band(*best.mean_queue)}"
        + (", among those whose queue stays bounded." if best.stable else "; every queue was found to grow.")
    ]
    facts = [
        ("servers", f"{scenario.cluster.n_servers:,}"),
        ("types", str(len(results[0].type_names))),
        ("runs", str(len(results[0].runs))),
        ("events a run", f"{results[0].runs[0].events:,}"),
        ("seed", str(scenario.run.seed)),
    ]
    blocks: list[Block] = [_means(results, names), _table(results)]
    if len(results) > 1:
        blocks.append(_differences(comparison))
    sections = [
        Section("queues", "Queues", blocks),
        Section("waits", "Waits", [_tails(results, names), _by_type(results)]),
        Section("over-time", "Over time", [_series(results, names)]),
    ]
    return Page(f"{scenario.name}: {len(results)} policies compared", lead, sections, facts)


def _means(results: tuple[Result, ...], names: list[str]) -> Figure:
    rows = [(label_of(r.policy), r.policy, *r.mean_queue) for r in results]
    bound = results[0].bound
    if 0 < bound.mean_queue < float("inf"):
        rows.append((label_of("lower-bound"), "lower-bound", bound.mean_queue, None, None))
    told = ", ".join(f"{label} {brief(mean)}" for label, _, mean, _, _ in rows)
    data = pl.DataFrame([{"policy": p, "mean_queue": m, "ci95_low": a, "ci95_high": b} for _, p, m, a, b in rows])
    return Figure(
        "mean-queue",
        "Mean queue size",
        "Dots are means over the runs, bars 95 % intervals; logarithmic scale.",
        [Panel("", dots(rows, "means"), f"Mean queue sizes: {told}.")],
        data,
    )


def _table(results: tuple[Result, ...]) -> Table:
    columns = [
        "policy",
        "mean queue",
        "mean wait",
        "median",
        "p95",
        "p99",
        "longest",
        "busiest",
        "stalled",
        "verdict",
    ]
    rows = []
    for result in results:
        resource, share = max(result.utilisation.items(), key=lambda item: item[1])
        waits = [brief(result.wait[key]) for key in ("mean", "p50", "p95", "p99", "max")]
        stalled = f"{result.as_dict()['stalled_fraction']:.1%}"
        verdict = "stable" if result.stable else "grows"
        queue = with_band(*result.mean_queue)
        rows.append((label_of(result.policy), queue, *waits, f"{share:.0%} {resource}", stalled, verdict))
    frame = pl.concat([result.frame() for result in results], how="diagonal")
    return Table("results", "Results", "The data have a row for each replication.", frame, columns, rows)


def _differences(comparison: Comparison) -> Table:
    """Every policy against the first, paired by replication."""
    first = comparison.results[0].policy
    rows, data = [], []
    for other in comparison.results[1:]:
        found = comparison.difference(other.policy, first)
        clear = found.low is not None and found.high is not None and (found.low > 0 or found.high < 0)
        words = "unclear" if not clear else "longer" if found.mean > 0 else "shorter"
        rows.append((label_of(other.policy), with_band(*found), words))
        data.append({"policy": other.policy, "against": first, "difference": found.mean, "ci95_low": found.low})
        data[-1]["ci95_high"] = found.high
    return Table(
        "differences",
        f"Mean queue less that of {label_of(first)}",
        "Paired by replication: all policies meet the same jobs, which makes differences clearer than means.",
        pl.DataFrame(data),
        ["policy", "difference", "the queue is"],
        rows,
    )


def _tails(results: tuple[Result, ...], names: list[str]) -> Figure:
    """P(wait > t) from the histograms of all replications."""
    series, data = [], []
    for result in results:
        bins = sum(run.wait_bins.sum(axis=0) for run in result.runs)
        total = float(bins.sum())
        if total == 0:
            continue
        above = 1.0 - bins.cumsum() / total
        least = NEAREST * max(run.wait_sums[:, LARGEST].max() for run in result.runs)
        pairs = zip(EDGES[1:].tolist(), above.tolist(), strict=True)
        kept = [(t, p) for t, p in pairs if t > least and p >= LEAST_TAIL]
        if kept:
            series.append(Series(result.policy, [t for t, _ in kept], [p for _, p in kept]))
            data += [{"policy": result.policy, "wait": t, "share_above": p} for t, p in kept]
    frame = pl.DataFrame(data, schema={"policy": pl.String, "wait": pl.Float64, "share_above": pl.Float64})
    told = "; ".join(
        f"{label_of(r.policy)}: p95 {brief(r.wait['p95'])}, p99 {brief(r.wait['p99'])}" for r in results
    )
    svg = lines(series, "tails", x="wait", y="share of jobs that wait longer", log_x=True, markers=False)
    return Figure(
        "wait-tail",
        "How many wait how long",
        "Share of the jobs that wait longer than the time below; both scales are logarithmic.",
        [Panel("", svg, f"The tail of the waits. {told}.")],
        frame,
        names,
    )


def _by_type(results: tuple[Result, ...]) -> Table:
    types = results[0].type_names
    rows, data = [], []
    for result in results:
        for name in types:
            queue, wait = result.mean_queue_by_type[name], result.wait_by_type[name]
            shown = [brief(wait[key]) for key in ("mean", "p50", "p95", "p99")]
            rows.append((label_of(result.policy), name, with_band(*queue), *shown))
            data.append({"policy": result.policy, "type": name, "mean_queue": queue.mean} | wait)
    columns = ["policy", "type", "mean queue", "mean wait", "median", "p95", "p99"]
    frame = pl.DataFrame(data, infer_schema_length=None)
    return Table("by-type", "By type", "Over the jobs of all replications.", frame, columns, rows)


def _series(results: tuple[Result, ...], names: list[str]) -> Figure:
    panels = [
        Panel(
            label_of(result.policy),
            curves([(result.policy, run.series[:, 0], run.series[:, 1])], f"time-{n}", x="time", height=2.4),
            f"Waiting jobs over time under {label_of(result.policy)}, at most {run.series[:, 1].max():,.0f}.",
        )
        for n, result in enumerate(results)
        for run in result.runs[:1]
    ]
    frame = pl.concat([r.series().with_columns(policy=pl.lit(r.policy)) for r in results], how="diagonal")
    caption = "The first replication of each policy, each on its own scale. The data have all replications."
    return Figure("series", "Waiting jobs over time", caption, panels, frame, names)

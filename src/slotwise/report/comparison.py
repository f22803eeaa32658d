"""The page of `slotwise simulate --out` and `slotwise compare --out`: one or several policies on one workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from slotwise.display.drawing import MOST_SHOWN, DrawnSeries, Row, curves, dots, lines
from slotwise.display.numbers import brief, measured, with_band
from slotwise.display.palette import label_of
from slotwise.model import labelled, with_unit
from slotwise.report.blocks import Block, Cell, Figure, Panel, ReportPage, Section, Table
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.judge.statistics import Interval
from slotwise.simulation.result import Comparison, Result
from slotwise.simulation.showing import kind_of, tail

Results = tuple[Result, ...]
WORTH_SHOWING = 0.01  # of the shortest queue: a lower bound far below it would only stretch the axis
REFERENCE = "guarded"  # every other policy is compared with it, if it was run


def comparison_page(comparison: Comparison) -> ReportPage:
    """Means with intervals, time series, the tail of the waits, tables by policy and by type."""
    results = comparison.results
    scenario = results[0].scenario
    names = [result.policy for result in results]
    facts = [
        ("servers", f"{scenario.cluster.n_servers:,}"),
        ("types", str(len(results[0].type_names))),
        ("runs", str(len(results[0].runs))),
        ("events a run", f"{results[0].runs[0].events:,}"),
        ("seed", str(scenario.run.seed)),
    ]
    if scenario.time_unit:
        facts.append(("times in", scenario.time_unit))
    blocks: list[Block] = [_table(results), _means(results)]
    if len(results) > 1:
        blocks.insert(1, _differences(comparison))
    sections = [
        Section("queues", "Queues", blocks),
        Section("waits", "Waits", [_tails(results, names), _by_type(results)]),
        Section("over-time", "Over time", [_series(results, names)]),
    ]
    title = f"{scenario.name}: {len(results)} policies compared"
    if len(results) == 1:
        title = f"{scenario.name}: {label_of(names[0])}"
    lead = _lead(comparison) + [
        f"{label_of(result.policy)}: {found.in_words(scenario.time_unit)}."
        for result in results
        if (found := result.queue_over_period)
    ]
    return ReportPage(title, lead, sections, facts)


WORDS = {
    Stability.STABLE: "the queue stays bounded",
    Stability.GROWS: "the queue grows without bound",
    Stability.TOO_SHORT: "the runs are too short to tell whether the queue stays bounded",
    Stability.NEVER_STARTS: "some jobs never start",
}


def _lead(comparison: Comparison) -> list[str]:
    """What was found, in a few sentences that say no more than the verdicts do."""
    results, best = comparison.results, comparison.best
    if len(results) == 1:
        return [f"{label_of(best.policy)}: mean queue {with_band(*best.mean_queue)}, {WORDS[best.verdict]}."]
    lead = [f"{len(results)} policies met the same jobs."]
    others = [result for result in results if not result.stable]
    if not best.grows:
        of_those = "" if not others else " of those whose queue stays bounded"
        if not best.stable:
            of_those = " of those whose queue was not found to grow" if any(r.grows for r in others) else ""
        lead[0] += f" {label_of(best.policy)} has the shortest mean queue{of_those}: {with_band(*best.mean_queue)}."
        alike = [label_of(result.policy) for result in results if _may_be_as_short(comparison, result)]
        if alike:
            lead[0] += f" That may be chance: beside {', '.join(alike)} the difference is not clear."
    by_verdict: dict[str, list[str]] = {}
    for result in others:
        by_verdict.setdefault(WORDS[result.verdict], []).append(label_of(result.policy))
    lead += [f"{', '.join(names)}: {words}." for words, names in by_verdict.items()]
    return lead


def _may_be_as_short(comparison: Comparison, other: Result) -> bool:
    """Whether the runs leave open that this policy's mean queue is as short as that of the best one."""
    best = comparison.best
    if other is best or other.grows or (best.stable and not other.stable):
        return False
    found = comparison.difference(other.policy, best.policy)
    return (found.low is None or found.low <= 0) and not _apart(other.mean_queue, best.mean_queue)


def _means(results: Results) -> Figure:
    rows: list[Row] = [(label_of(r.policy), r.policy, *r.mean_queue) for r in results]
    bound = results[0].bound
    least = min(result.mean_queue.mean for result in results)
    if WORTH_SHOWING * least <= bound.mean_queue < float("inf") and bound.mean_queue > 0:  # else it tells nothing
        rows.append((label_of("lower-bound"), "lower-bound", bound.mean_queue, None, None))
    told = ", ".join(f"{label} {brief(mean)}" for label, _, mean, _, _ in rows)
    data = pl.DataFrame([{"policy": p, "mean_queue": m, "ci95_low": a, "ci95_high": b} for _, p, m, a, b in rows])
    words = "Dots are means over the runs, bars 95 % intervals."
    if any(low is not None and low < mean / MOST_SHOWN for _, _, mean, low, _ in rows):
        words += " An arrow: the interval goes on to the left."
    return Figure(
        "mean-queue",
        "Mean queue size",
        words,
        [Panel("", dots(rows, "means"), f"Mean queue sizes: {told}.", dots(rows, "means-wide", wide=True))],
        data,
    )


def _table(results: Results) -> Table:
    waits = ["mean wait", "median", "p95", "p99", "longest"]
    unit = results[0].scenario.time_unit
    columns = ["policy", "verdict", "mean queue", *(labelled(one, unit) for one in waits), "busiest", "stalled"]
    rows = []
    for result in results:
        resource, share = max(result.utilisation.items(), key=lambda item: item[1])
        waits = [measured(result.wait[key], 3) for key in ("mean", "p50", "p95", "p99", "max")]
        stalled = f"{result.as_dict()['stalled_fraction']:.1%}"
        verdict = Cell(str(result.verdict), kind_of(result))
        queue = with_band(*result.mean_queue)
        rows.append((label_of(result.policy), verdict, queue, *waits, f"{share:.0%} {resource}", stalled))
    frame = pl.concat([result.frame() for result in results], how="diagonal")
    caption = "Queues are averages over time, waits over jobs. The data have a row for each replication."
    return Table("results", "Results", caption, frame, columns, rows)


def _differences(comparison: Comparison) -> Table:
    """Every policy against guarded, or else the first, paired by replication."""
    first = next((one for one in comparison.results if one.policy == REFERENCE), comparison.results[0])
    rows: list[Sequence[Any]] = []
    data = []
    for other in (one for one in comparison.results if one is not first):
        found = comparison.difference(other.policy, first.policy)
        words = difference_in_words(found, other.mean_queue, first.mean_queue)
        rows.append((label_of(other.policy), words, with_band(*found)))
        data.append({"policy": other.policy, "against": first.policy, "difference": found.mean})
        data[-1] |= {"ci95_low": found.low, "ci95_high": found.high}
    return Table(
        "differences",
        f"Queues beside that of {label_of(first.policy)}",
        "Paired by replication: all policies meet the same jobs, which makes differences clearer than means.",
        pl.DataFrame(data),
        ["policy", f"its queue, beside {label_of(first.policy)}'s", "difference in jobs"],
        rows,
    )


def difference_in_words(found: Interval, one: Interval, other: Interval) -> str:
    """How one mean queue compares with another. Where the pairs leave doubt, intervals that lie apart settle it: of queues
    that differ a lot from run to run they are the surer sign."""
    mean, reference = one.mean, other.mean
    if found.low is None or found.high is None:
        return "not known: one run shows no spread"
    if found.low == found.high == 0:
        return "the same"
    if found.low <= 0 <= found.high and not _apart(one, other):
        return "no clear difference: it may be chance"
    longer = found.mean > 0
    ratio = mean / reference if longer and reference > 0 else reference / mean if mean > 0 else float("inf")
    word = "longer" if longer else "shorter"
    if ratio == float("inf") or reference == 0:
        return word
    if ratio >= 2:
        return f"{brief(ratio)} times as {'long' if longer else 'short'}"
    change = abs(mean / reference - 1)
    return f"{change:.0%} {word}" if change >= 0.005 else f"{word} by less than 1%"


def _apart(one: Interval, other: Interval) -> bool:
    """Whether two intervals have nothing in common."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.low > other.high or other.low > one.high


def _tails(results: Results, names: list[str]) -> Figure:
    """P(wait > t), out to the longest wait."""
    series, data = [], []
    for result in results:
        times, shares = tail(result)
        if times:
            series.append(DrawnSeries(result.policy, times, shares))
            data += [
                {"policy": result.policy, "wait": t, "share_above": p} for t, p in zip(times, shares, strict=True)
            ]
    frame = pl.DataFrame(data, schema={"policy": pl.String, "wait": pl.Float64, "share_above": pl.Float64})
    unit = results[0].scenario.time_unit
    told = "; ".join(
        f"{label_of(r.policy)}: p95 {measured(r.wait['p95'], 3)}, p99 {measured(r.wait['p99'], 3)}, longest {with_unit(brief(r.wait['max']), unit)}"
        for r in results
    )

    def picture(identity: str, wide: bool) -> str:
        x, y = labelled("wait", unit), "share of jobs that wait longer"
        return lines(series, identity, x=x, y=y, log_x=bool(series), markers=False, wide=wide, floor=0.0)

    caption = (
        "Share of the jobs that wait longer than the time below, to the longest wait; both scales are logarithmic."
    )
    panel = Panel("", picture("tails", False), f"The tail of the waits. {told}.", picture("tails-wide", True))
    return Figure("wait-tail", "How many wait how long", caption, [panel], frame, names)


def _by_type(results: Results) -> Table:
    """Grouped by type, the policy under which it waits longest set apart."""
    rows: list[Sequence[Any]] = []
    data = []
    keys = ("mean", "p50", "p95", "p99", "max")
    for name in results[0].type_names:
        waits = [result.wait_by_type[name] for result in results]
        worst = {key: max((w[key] or 0.0 for w in waits), default=0.0) for key in keys}
        for n, (result, wait) in enumerate(zip(results, waits, strict=True)):
            queue = result.mean_queue_by_type[name]
            shown = []
            for key in keys:
                lead = len(results) > 1 and worst[key] > 0 and wait[key] == worst[key]
                shown.append(Cell(measured(wait[key], 3), "worst" if lead and key in ("mean", "p95") else ""))
            row = [label_of(result.policy), with_band(*queue), *shown]
            rows.append([Cell(name, rows=len(results)), *row] if n == 0 else row)
            data.append({"policy": result.policy, "type": name, "mean_queue": queue.mean} | wait)
    unit = results[0].scenario.time_unit
    columns = ["type", "policy", "mean queue"]
    columns += [labelled(one, unit) for one in ("mean wait", "median", "p95", "p99", "longest")]
    caption = "Over the jobs of all replications."
    if len(results) > 1:
        caption += " Marked: the policy under which a type waits longest, on average and at the 95th percentile."
    frame = pl.DataFrame(data, infer_schema_length=None)
    return Table("by-type", "By type", caption, frame, columns, rows)


def _series(results: Results, names: list[str]) -> Figure:
    top = max((float(r.runs[0].series[:, 1].max()) for r in results if len(r.runs[0].series)), default=1.0)
    panels, x = [], labelled("time", results[0].scenario.time_unit)
    for n, result in enumerate(results):
        run = result.runs[0]
        part = [(result.policy, run.series[:, 0], run.series[:, 1])]
        most = f"{run.series[:, 1].max():,.0f}" if len(run.series) else "0"
        panels.append(
            Panel(
                label_of(result.policy),
                curves(part, f"time-{n}", x=x, height=2.4, top=top),
                f"Waiting jobs over time under {label_of(result.policy)}, at most {most}.",
                curves(part, f"time-{n}-wide", x=x, height=2.6, top=top, wide=True) if len(results) == 1 else "",
            )
        )
    frame = pl.concat([r.series().with_columns(policy=pl.lit(r.policy)) for r in results], how="diagonal")
    same = " Each has the same scale." if len(results) > 1 else ""
    caption = f"The first replication of each policy.{same} The data have all replications."
    return Figure("series", "Waiting jobs over time", caption, panels, frame, names)

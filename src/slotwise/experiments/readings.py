"""The paper's claim about the Google trace, under several readings of the three algorithms, side by side.

The paper leaves open what decides which policy is best on the trace. Do M14's jobs wait in common queues or in one for
each server? How often does G16 sample (alpha)? What does an empty server of Algorithm 1 do? Each reading is run on the
same jobs, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from slotwise.display.numbers import brief
from slotwise.experiments.points import Point, Points
from slotwise.experiments.settings import Scale
from slotwise.experiments.sweep import SweepCell
from slotwise.model import Scenario
from slotwise.report.blocks import Block, Prose, Table
from slotwise.simulation.result import Result
from slotwise.workloads.jobs import Jobs

A1, M14, G16 = "algorithm1", "m14", "g16"
HOUR = 3600.0  # seconds
AT = 4  # server counts, about, at which the readings are run
# what the readings of the figures above are called
SHOWN_ABOVE = {A1: "as above", M14: "common queues", G16: "alpha = 1"}
OTHERS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    (A1, "never stalls", {"stall_cap": 0.0}),
    (A1, "the paper's words (faithful)", {"faithful": True}),
    (M14, "a queue for each server", {"queues": "own"}),
    (G16, "alpha = 0.1", {"alpha": 0.1}),
    (G16, "alpha = 10", {"alpha": 10.0}),
)


def reading_cells(
    counts: Sequence[int],
    scenario: Callable[[int, str], Scenario],
    options: Mapping[str, Mapping[str, Any]],
    jobs: Jobs,
) -> list[SweepCell]:
    """What must be run beside the figures above: the other readings at some of the server counts."""
    some = Scale(settings=AT).thinned(list(counts))
    cells = []
    for policy, label, changes in OTHERS:
        given = {**options.get(policy, {}), **changes}
        for servers in some:
            one = scenario(servers, policy)
            one = one.model_copy(update={"run": one.run.model_copy(update={"replications": 1})})
            cells.append(SweepCell(one, policy, given, "", float(servers), label, jobs))
    return cells


def reading_blocks(above: Points, cells: Sequence[SweepCell], results: Sequence[Result]) -> list[Block]:
    """The table of the readings, how far the claim holds under each pair of them, and what that says of the paper."""
    others = Points.of(cells, results)
    at = sorted({point.x for point in others.all})
    lines: dict[tuple[str, str], list[Point]] = {}
    for policy, name in SHOWN_ABOVE.items():
        lines[policy, name] = [point for point in above.line(policy) if point.x in at]
    for policy, name, _ in OTHERS:
        lines[policy, name] = list(others.where(policy=policy, label=name).all)
    kept = dict(sorted(lines.items(), key=lambda item: (A1, M14, G16).index(item[0][0])))
    rows = [
        (
            f"{_called(policy)}, {name}",
            *(brief(point.mean) for point in line),
            _range([_busy(point) for point in line], "{:.0%}"),
            _range([h for point in line if (h := stall_hours(point)) is not None], "{:.1f} h"),
        )
        for (policy, name), line in kept.items()
    ]
    data = pl.DataFrame(
        [
            {"policy": policy, "reading": name, "servers": p.x, "mean_queue": p.mean, "stall_hours": stall_hours(p)}
            for (policy, name), line in kept.items()
            for p in line
        ]
    )
    columns = ["reading", *(f"{x:g} servers" for x in at), "jobs in service, of all offered", "a stall lasts"]
    caption = "Mean queue. The first readings are those of the figures above."
    return [
        Table("google-readings", "The claim under other readings", caption, data, columns, rows),
        _verdicts(kept, at),
        Prose(_conclusion(kept, len(at))),
    ]


def wins(ours: Sequence[Point], others: Sequence[Sequence[Point]]) -> int:
    """At how many server counts our queue is no longer than all others."""
    return sum(mine.mean <= min(theirs) for mine, theirs in zip(ours, _means(others), strict=True))


def _means(lines: Sequence[Sequence[Point]]) -> list[list[float]]:
    return [[point.mean for point in at] for at in zip(*lines, strict=True)]


def _of(lines: Mapping[tuple[str, str], Sequence[Point]], policy: str) -> dict[str, Sequence[Point]]:
    return {name: line for (of, name), line in lines.items() if of == policy}


def _verdicts(lines: Mapping[tuple[str, str], Sequence[Point]], at: Sequence[float]) -> Table:
    """Compare Algorithm 1 of the figures above with each pair of readings of M14 and G16."""
    ours, m14, g16 = lines[A1, SHOWN_ABOVE[A1]], _of(lines, M14), _of(lines, G16)
    rows = [
        (f"M14, {name}", *(f"{wins(ours, [line, other])} of {len(at)}" for other in g16.values()))
        for name, line in m14.items()
    ]
    data = pl.DataFrame(
        [
            {"m14": name, "g16": other, "best_at": wins(ours, [line, more]), "of": len(at)}
            for name, line in m14.items()
            for other, more in g16.items()
        ]
    )
    title = "At how many server counts Algorithm 1 has the shortest queue of the three"
    return Table("google-pairs", title, "", data, ["", *(f"G16, {name}" for name in g16)], rows)


def _conclusion(lines: Mapping[tuple[str, str], Sequence[Point]], n: int) -> str:
    ours, m14, g16 = lines[A1, SHOWN_ABOVE[A1]], _of(lines, M14), _of(lines, G16)
    pairs = {(a, b): wins(ours, [m14[a], g16[b]]) for a in m14 for b in g16}
    best = max(pairs.values())
    named = "; ".join(f"M14 with {a} and G16 with {b}" for (a, b), won in pairs.items() if won == best)
    text = (
        f"The claim holds at most at {best} of these {n} server counts: {named}. "
        if best < n
        else f"The claim holds at all of these {n} server counts with: {named}. "
    )
    return text + (
        "M14's authors give every server queues of its own, so that is what the paper most likely ran. It does not tell G16's alpha; one that"
        " is not large is the likelier: a queue of G16 is never much below the jobs in service over alpha, so only then does it stay behind as servers are"
        " added, as the paper says. Algorithm 1 that never stalls does what M14 with common queues does."
    )


def stall_hours(point: Point) -> float | None:
    """How long a stall lasts on average; None where there was none."""
    if not point.more["stalls"]:
        return None
    return float(
        point.more["stalled_fraction"] * point.x * point.more["simulated_time"] / point.more["stalls"] / HOUR
    )


def _busy(point: Point) -> float:
    return float(point.more["in_service"] / point.more["offered"])


def _range(values: Sequence[float], form: str) -> str:
    if not values:
        return "–"
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _called(policy: str) -> str:
    return {A1: "Algorithm 1", M14: "M14", G16: "G16"}[policy]

"""What the suite found, as text for the screen and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.policies.running import Row

# whose ratios have a column of their own
SHOWN = (
    "algorithm1",
    "best-fit",
    "first-fit",
    "tetris",
    "myopic-maxweight",
    "quickswap",
    "nmsr",
    "easy-backfill",
    "guarded-durations",
)


class Wait(NamedTuple):
    """The p99 wait of a type under two policies."""

    ratio: float
    scenario: str
    type: str
    waits: int
    mine: float
    other: float


def number(x: float) -> str:
    """Four digits; a dash where there is none, or where it has no end."""
    return "-" if math.isnan(x) or math.isinf(x) else f"{x:.4g}"


def in_detail(row: Row) -> str:
    """One scenario: every policy."""
    how = "a trace, no verdict on drift" if row.trace else f"lower bound on the mean queue {number(row.bound)}"
    text = [f"\n{row.name}: {how}" + (f", {row.events:,} events" if row.events else "")]
    titles = ("queue", "/best", "/bound", "wait", "/best", "p99", "/best", "p99.9", "longest")
    widths = (10, 8, 10, 10, 8, 10, 8, 10, 10)
    text.append(f"  {'policy':28s}" + "".join(f"{t:>{w}s}" for t, w in zip(titles, widths, strict=True)))
    for policy, figures in row.figures.items():
        if figures is None:
            text.append(f"  {policy:28s} not for this one")
            continue
        to_bound = figures.mean_queue / row.bound if row.bound > 0 else math.nan
        cells = [figures.mean_queue, row.ratio(policy), to_bound, figures.mean_wait, row.ratio(policy, "mean_wait")]
        cells += [figures.p99_wait, row.ratio(policy, "p99_wait"), figures.p999_wait, figures.longest_wait]
        line = "".join(f"{number(x):>{w}s}" for x, w in zip(cells, widths, strict=True))
        mark = ("" if figures.stable else "  diverges") + ("  in doubt" if figures.doubtful else "")
        text.append(f"  {policy:28s}{line}{mark}")
    return "\n".join(text)


def excess(row: Row, policy: str) -> float:
    """The least factor for which `within` holds."""
    figures, best = row.figures[policy], row.best("mean_queue")
    if figures is None or not figures.stable:
        return math.inf
    return (figures.mean_queue - (2.0 if best < 5.0 else 0.0)) / best if best > 0 else 0.0


def compared(rows: Sequence[Row]) -> list[Row]:
    """Those where some policy is stable."""
    return [row for row in rows if not math.isnan(row.best("mean_queue"))]


def summary(rows: Sequence[Row], policies: Sequence[str]) -> list[list[str]]:
    """How close each policy is to the best: a table with a head."""
    table = [["policy", "<= 1.15", "<= 1.5", "<= 3", "diverges", "geometric mean", "worst", "on"]]
    for policy in policies:
        mine = [row for row in compared(rows) if row.figures[policy] is not None]
        if not mine:
            continue
        ratios = np.array([row.ratio(policy) for row in mine])
        finite = ratios[np.isfinite(ratios) & (ratios > 0)]
        middle = float(np.exp(np.log(finite).mean())) if len(finite) else math.nan
        # the worst by how far it is above what is allowed, so that tiny queues do not count
        worst = max(mine, key=lambda row: excess(row, policy))
        shares = [f"{np.mean([row.within(policy, x) for row in mine]):.0%}" for x in (1.15, 1.5, 3.0)]
        diverging = sum(not f.stable for row in mine if (f := row.figures[policy]) is not None)
        table.append([policy, *shares, str(diverging), f"{middle:.2f}", number(worst.ratio(policy)), worst.name])
    return table


def families(rows: Sequence[Row], policies: Sequence[str]) -> list[list[str]]:
    """For each family the geometric mean of each policy's ratio to the best, in brackets how often it diverges."""
    names = list(dict.fromkeys(row.family for row in rows))
    table = [["policy", *(f"{name} ({sum(row.family == name for row in rows)})" for name in names)]]
    for policy in policies:
        cells = []
        for name in names:
            mine = [row for row in compared(rows) if row.family == name and row.figures[policy] is not None]
            ratios = np.array([row.ratio(policy) for row in mine])
            finite = ratios[np.isfinite(ratios) & (ratios > 0)]
            lost = int(np.isinf(ratios).sum())
            middle = f"{np.exp(np.log(finite).mean()):.2f}" if len(finite) else "-"
            cells.append(middle + (f" [{lost}]" if lost else ""))
        table.append([policy, *cells])
    return table


def longest(rows: Sequence[Row], policies: Sequence[str], against: str = "easy-backfill") -> list[list[str]]:
    """Mean, p99.9 and longest waits on logs of parallel machines, as multiples of those under EASY."""
    table = [["scenario", *(f"{p}: mean, p99.9, longest" for p in policies)]]
    for row in rows:
        base = row.figures.get(against)
        if row.family not in ("hpc", "logs") or base is None:
            continue
        cells = []
        for policy in policies:
            mine = row.figures[policy]
            parts = (
                []
                if mine is None
                else [
                    _times(getattr(mine, f), getattr(base, f)) for f in ("mean_wait", "p999_wait", "longest_wait")
                ]
            )
            cells.append(" ".join(f"{x:.2f}" for x in parts) or "-")
        table.append([row.name, *cells])
    return table


def starvation(rows: Sequence[Row], policy: str, against: str) -> list[Wait]:
    """p99 waits of single types in p99 waits of the same type under another policy, the worst first."""
    worst = []
    for row in rows:
        mine, other = row.figures.get(policy), row.figures.get(against)
        if mine is None or other is None or not mine.stable:
            continue
        columns = zip(row.types, mine.waits_by_type, mine.p99_by_type, other.p99_by_type, strict=True)
        worst += [Wait(_times(a, b), row.name, name, n, a, b) for name, n, a, b in columns if n > 0]
    return sorted(worst, reverse=True)


def _times(a: float, b: float) -> float:
    """a / b; 0 where b has no end."""
    if math.isinf(b):
        return 0.0
    return a / b if b > 0 else (math.inf if a > 0 else 0.0)


def aligned(table: Sequence[Sequence[str]]) -> str:
    """A table for the screen; the first and the last column are text."""
    widths = [max(len(row[n]) for row in table) + 2 for n in range(len(table[0]))]
    return "\n".join(
        "  "
        + "".join(
            f"{cell:<{w}s}" if n == 0 else f"{cell:>{w}s}" if n < len(row) - 1 else "  " + cell
            for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    )


def markdown(table: Sequence[Sequence[str]]) -> list[str]:
    """A table as Markdown."""
    head, *rest = table
    return [_line(head), "|" + "---|" * len(head), *map(_line, rest)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def scenarios(rows: Sequence[Row], policy: str = "guarded", against: str = "algorithm1") -> list[list[str]]:
    """Scenario by scenario: the best policy, this one, and how others compare."""
    shown = [p for p in SHOWN if rows and p in rows[0].figures]
    table = [["scenario", "bound", "best", "its queue", policy, "ratio", *shown, f"type p99 / {against}'s"]]
    for row in rows:
        mine = row.figures[policy]
        best = row.best("mean_queue")
        who = next(
            (p for p, f in row.figures.items() if f is not None and f.stable and f.mean_queue == best), "none"
        )
        types = starvation([row], policy, against) if against in row.figures else []
        table.append(
            [
                row.name + (" (trace)" if row.trace else ""),
                number(row.bound),
                who,
                number(best),
                number(mine.mean_queue) + _mark(row, policy) if mine is not None else "-",
                _ratio(row, policy),
                *(_ratio(row, p) + _mark(row, p) for p in shown),
                f"{types[0].ratio:.2f}" if types else "-",
            ]
        )
    return table


def _ratio(row: Row, policy: str) -> str:
    figures = row.figures[policy]
    if figures is None:
        return "-"
    return f"{row.ratio(policy):.3g}" if figures.stable else "diverges"


def _mark(row: Row, policy: str) -> str:
    figures = row.figures[policy]
    return " ?" if figures is not None and figures.doubtful else ""

"""`python -m benchmarks.policies`: every policy on every scenario of the suite, and how far each is from the best.

For each scenario: the lower bound, the best stable policy's figure, and each policy's ratio to it, of mean queue, mean wait
and p99 wait; `diverges` where the queue grows. Then, for each policy, on how many scenarios it is how close to the best. With
`--search` it looks instead for seeds on which a common policy diverges or is far from the best.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.policies.running import POLICIES, Row, run_all
from benchmarks.policies.searching import search
from benchmarks.policies.suite import suite

FIGURES = {"mean_queue": "mean queue", "mean_wait": "mean wait", "p99_wait": "p99 wait"}


def show(row: Row) -> None:
    """One scenario."""
    print(f"\n{row.name}: lower bound on the mean queue {_number(row.bound)}")
    print(
        f"  {'policy':28s}{'queue':>10s}{'/best':>8s}{'/bound':>8s}{'wait':>10s}{'/best':>8s}{'p99':>10s}{'/best':>8s}"
    )
    for policy, figures in row.figures.items():
        if figures is None:
            print(f"  {policy:28s} not for this cluster")
            continue
        to_bound = figures.mean_queue / row.bound if row.bound > 0 else math.nan
        cells = [figures.mean_queue, row.ratio(policy), to_bound, figures.mean_wait, row.ratio(policy, "mean_wait")]
        cells += [figures.p99_wait, row.ratio(policy, "p99_wait")]
        widths = (10, 8, 8, 10, 8, 10, 8)
        text = "".join(f"{_number(x):>{w}s}" for x, w in zip(cells, widths, strict=True))
        print(f"  {policy:28s}{text}{'' if figures.stable else '  diverges'}")


def _number(x: float) -> str:
    return "-" if math.isnan(x) or math.isinf(x) else f"{x:.4g}"


def summary(rows: list[Row], policies: list[str]) -> None:
    """How close each policy is, over all scenarios where some policy is stable."""
    counted = [row for row in rows if not math.isnan(row.best("mean_queue"))]
    print(f"\n{len(counted)} scenarios; mean queue against the best policy's (under 5 jobs, 2 more are allowed)")
    print(
        f"  {'policy':28s}{'<= 1.15':>9s}{'<= 1.5':>9s}{'<= 3':>9s}{'diverges':>10s}{'geo mean':>10s}{'worst':>9s}  on"
    )
    for policy in policies:
        mine = [row for row in counted if row.figures[policy] is not None]
        if not mine:
            continue
        ratios = np.array([row.ratio(policy) for row in mine])
        finite = ratios[np.isfinite(ratios)]
        shares = "".join(f"{np.mean([row.within(policy, x) for row in mine]):9.0%}" for x in (1.15, 1.5, 3.0))
        # the worst by how far it is above what is allowed, so that tiny queues do not count
        worst = max(mine, key=lambda row: excess(row, policy))
        print(
            f"  {policy:28s}{shares}{int(np.isinf(ratios).sum()):10d}{np.exp(np.log(finite).mean()):10.2f}"
            f"{_number(worst.ratio(policy)):>9s}  {worst.name}"
        )


def excess(row: Row, policy: str) -> float:
    """The least factor for which `within` holds."""
    figures, best = row.figures[policy], row.best("mean_queue")
    if figures is None or not figures.stable:
        return math.inf
    return (figures.mean_queue - (2.0 if best < 5.0 else 0.0)) / best if best > 0 else 0.0


def starvation(rows: list[Row], policy: str, against: str, allowed: float = 3.0) -> None:
    """The types whose p99 wait is more than that many times the one under another policy."""
    print(f"\np99 wait of single types under {policy}, in p99 waits of the same type under {against}")
    worst = []
    for row in rows:
        mine, other = row.figures.get(policy), row.figures.get(against)
        if mine is None or other is None or not mine.stable:
            continue
        for name, a, b in zip(row.types, mine.p99_by_type, other.p99_by_type, strict=True):
            worst.append((a / b if b > 0 else (math.inf if a > 0 else 0.0), row.name, name, a, b))
    worst.sort(reverse=True)
    over = [w for w in worst if w[0] > allowed]
    print(f"  {len(over)} of {len(worst)} types above {allowed:g}")
    for ratio, scenario, name, a, b in worst[: max(5, len(over))]:
        print(f"  {ratio:8.2f}  {scenario} {name}: {a:.4g} against {b:.4g}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=__doc__)
    parser.add_argument("--held-out", action="store_true", help="the seeds that nobody tuned on")
    parser.add_argument("--policies", default=",".join(POLICIES), help="names, with commas between")
    parser.add_argument("--only", default="", help="only scenarios whose name contains this")
    parser.add_argument("--events", type=int, default=1_000_000, help="arrivals and completions of each run")
    parser.add_argument("--runs", type=int, default=2, help="independent runs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--search", type=int, metavar="N", help="look through N seeds for traps")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.search, arguments.events, arguments.runs)
        return
    policies = arguments.policies.split(",")
    entries = [e for e in suite(arguments.held_out) if arguments.only in e.name]
    if not entries:
        sys.exit(f"no scenario has {arguments.only!r} in its name")
    rows = []
    for row in run_all(entries, policies, arguments.events, arguments.runs):
        show(row)
        sys.stdout.flush()
        rows.append(row)
    summary(rows, policies)
    if {"guarded", "algorithm1"} <= set(policies):
        starvation(rows, "guarded", "algorithm1")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()

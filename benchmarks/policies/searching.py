"""Looks for random scenarios on which common policies diverge, or are far from the best of them."""

from __future__ import annotations

import math
from functools import partial

from benchmarks.policies.running import Runner
from benchmarks.policies.suite import Entry, random_scenario

COMMON = ("best-fit", "first-fit", "m14", "algorithm1")
FIRST_SEED = 20_000  # away from the suite's own seeds and from those held out


def search(seeds: int, events: int, runs: int) -> None:
    """Print each seed on which best-fit, first-fit or m14 diverges or has over 3 times the best queue."""
    runner = Runner(events, runs)
    for n in range(FIRST_SEED, FIRST_SEED + seeds):
        row = runner.row(Entry(f"random-{n}", partial(random_scenario, n), "random"), COMMON)
        bad = [p for p in COMMON if row.ratio(p) > 3.0 and not row.within(p, 3.0)]
        if bad and not math.isnan(row.best("mean_queue")):
            words = ", ".join(
                f"{p} {'diverges' if math.isinf(row.ratio(p)) else f'{row.ratio(p):.1f}'}" for p in bad
            )
            print(f"{row.name}: best {row.best('mean_queue'):.4g}; {words}", flush=True)

"""`python -m benchmarks.policies.wrong_estimates`: what wrong estimates cost `guarded`, beside the same policy without estimates.

Logs with users' estimates are run as they are, and with estimates that are absurd, missing or useless. One load a point.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

import slotwise
from benchmarks.policies import reality, tables
from slotwise.model import Scenario
from slotwise.workloads.traces import read_trace, write_trace

LOGS = ("kth", "blue", "curie")
LOADS = (0.86, 0.95)
ABSURD = 7e8  # seconds, 22 years
DAY, SECOND = 86_400.0, 1.0
SEED = 1


def in_some(rows: pl.DataFrame, share: float, value: float | None) -> pl.DataFrame:
    """Return the rows with this estimate in a share of them, chosen at random."""
    hit = pl.Series(np.random.default_rng(SEED).random(len(rows)) < share)
    return rows.with_columns(estimate=pl.when(hit).then(value).otherwise(pl.col("estimate")))


def of_others(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the estimates in random order."""
    order = np.random.default_rng(SEED).permutation(len(rows))
    return rows.with_columns(estimate=rows["estimate"][order.tolist()])


CHANGES: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "as users gave them": lambda rows: rows,
    "one in a hundred is 22 years": lambda rows: in_some(rows, 0.01, ABSURD),
    "three in ten are missing": lambda rows: in_some(rows, 0.3, None),
    "of another job, at random": of_others,
    "one day for every job": lambda rows: rows.with_columns(estimate=pl.lit(DAY)),
    "one second for every job": lambda rows: rows.with_columns(estimate=pl.lit(SECOND)),
}


def queue(made: Scenario, durations: str) -> float:
    """Return the mean queue of one run of `guarded`."""
    found = slotwise.simulate(made, "guarded", overrides={"run.replications": 1}, durations=durations)
    return found.mean_queue.mean


def changed(made: Scenario, change: Callable[[pl.DataFrame], pl.DataFrame], out: Path) -> Scenario:
    """Return the scenario with other estimates in its trace."""
    trace = read_trace(str(made.workload.trace))
    write_trace(trace.with_frame(change(trace.frame), "other estimates"), out)
    return made.model_copy(update={"workload": made.workload.model_copy(update={"trace": str(out)})})


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies.wrong_estimates", description=__doc__)
    parser.add_argument(
        "--traces", default=",".join(LOGS), help="names of logs with estimates, with commas between"
    )
    ratios: dict[str, list[float]] = {name: [] for name in CHANGES}
    with tempfile.TemporaryDirectory() as folder:
        for name in parser.parse_args().traces.split(","):
            for load in LOADS:
                made = reality.at_load(name, load)
                blind = queue(made, "none")
                for n, (label, change) in enumerate(CHANGES.items()):
                    out = Path(folder) / f"{name}-{load}-{n}.parquet"
                    ratios[label].append(queue(changed(made, change, out), "estimate") / blind)
    rows = [["estimates", "geometric mean", "worst"]]
    rows += [[label, f"{reality.geometric(found):.2f}", f"{max(found):.2f}"] for label, found in ratios.items()]
    print(tables.aligned(rows))


if __name__ == "__main__":
    main()

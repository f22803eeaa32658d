"""How good the service times of forecasts are, without any scheduler: each job starts when it arrives.

At 60 moments of a log, the durations of the jobs that run and of the next 20 are drawn as for a forecast. Their logarithms are scored by CRPS. The sum of what
is left of them, weighted with their share of a server, says whether the jobs err together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.logs import Log
from slotwise.foresee.history import History
from slotwise.foresee.services import ServiceTimes

F8 = NDArray[np.float64]
MOMENTS, NEXT, RUNS, WARM = 60, 20, 24, 0.3


def crps(drawn: F8, actual: F8) -> F8:
    """Return the continuous ranked probability score of draws (runs, jobs)."""
    ordered, n = np.sort(drawn, axis=0), len(drawn)
    weight = (2 * np.arange(1, n + 1) - n - 1)[:, None]
    return np.asarray(np.abs(ordered - actual).mean(axis=0) - (ordered * weight).sum(axis=0) / n**2)


def row_of(log: Log) -> list[str]:
    """Return a row of the table."""
    n = len(log.arrival)
    end = log.arrival + log.duration
    history = History(
        tuple(one.name for one in log.types), log.arrival, log.arrival, end, np.ones(n, np.bool_), log.type,
        log.owner, log.limit, log.demand,
    )  # fmt: skip
    share = (log.demand / log.demand.max(axis=0)).max(axis=1)
    rng = np.random.default_rng(3)
    scores, ranks, work, error = [], [], [], []
    for at, now in enumerate(np.sort(rng.uniform(log.arrival[int(WARM * n)], log.arrival[-1], MOMENTS))):
        known = int(np.searchsorted(log.arrival, now))
        running = np.flatnonzero(end[:known] > now)
        jobs = np.concatenate([running, np.arange(known, min(n, known + NEXT))])
        age = np.concatenate([now - log.arrival[running], np.zeros(len(jobs) - len(running))])
        services = ServiceTimes(history.until(float(now)), float(now))
        own = (log.owner[jobs], log.type[jobs], log.limit[jobs], log.arrival[jobs])
        pools, batch = services.pools_of(*own), services.batches_of(*own)
        left = [
            services.draw(pools, age, log.limit[jobs], np.random.default_rng([at, run]), batch) - age
            for run in range(RUNS)
        ]
        drawn, actual = np.array(left), log.duration[jobs] - age
        scores.append(crps(np.log(drawn + 1.0), np.log(actual + 1.0)))
        ranks.append(_rank(drawn, actual))
        total = drawn @ share[jobs]
        work.append(_rank(total[:, None], np.array([actual @ share[jobs]]))[0])
        error.append(abs(float(np.log(np.median(total) / (actual @ share[jobs])))))
    rank, sums = np.concatenate(ranks), np.array(work)
    return [
        log.name, f"{np.concatenate(scores).mean():.2f}", f"{np.mean((rank > 0.1) & (rank < 0.9)):.0%}",
        f"{np.mean((sums > 0.1) & (sums < 0.9)):.0%}", f"{sums.mean():.2f}", f"{np.mean(error):.2f}",
    ]  # fmt: skip


def _rank(drawn: F8, actual: F8) -> F8:
    return np.asarray(((drawn < actual).mean(axis=0) + (drawn <= actual).mean(axis=0)) / 2)


def report(logs: dict[str, Callable[[], Log]]) -> None:
    """Print the table."""
    print("| log | CRPS of log durations | 80 % intervals of a job hold | of all work | mean rank of all work (.5 is right) | mean error of log work |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- |")
    for name, make in logs.items():
        try:
            print(f"| {' | '.join(row_of(make()))} |", flush=True)
        except FileNotFoundError as missing:
            print(f"{name}: skipped, {missing.filename} is not beside the project", file=sys.stderr)

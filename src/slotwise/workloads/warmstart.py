"""The jobs that run when a trace begins: a trace starts where its recording began, not with an empty cluster.

The trace is taken to have gone on like this before, with jobs that started at once. By Little's law n = (sum of all
durations) / (length of the trace) jobs are in service at any moment. A job of duration d is met in proportion to d,
since long jobs are there more often, and a uniform share of it is still left.

So n jobs are drawn in proportion to their durations, evenly over the trace's jobs sorted by type and duration, and each with a uniform share left. They
arrive together at time 0, in random order, and the policy places them as it would any others. Each replication draws its own.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from slotwise.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST = 10_000_000  # jobs that run when a trace begins


def how_many(duration: Floats, length: float) -> int:
    """Return n as a whole number."""
    load = float(duration.sum()) / length if length > 0 else np.inf
    if not load <= MOST:
        raise InputError(
            f"a warm start would begin with {load:,.4g} jobs, more than {MOST:,}",
            where="workload.start",
            remedy='use "empty": jobs are far longer than the trace',
        )
    return round(load)


def drawn(duration: Floats, job_type: Ints, count: int, rng: Generator) -> tuple[Ints, Floats]:
    """Return which jobs run, and how much longer each of them does."""
    order = np.lexsort((duration, job_type))
    passed = np.cumsum(duration[order])
    points = (rng.random() + np.arange(count)) * (passed[-1] / max(count, 1))
    rows = order[np.minimum(np.searchsorted(passed, points, side="right"), len(order) - 1)]
    rows = rows[rng.permutation(count)]
    return rows, duration[rows] * (1.0 - rng.random(count))

"""Intervals for queues and waits, from independent replications. None reaches below zero.

- A mean of values that cannot be negative and are skewed to the right: Student's interval for its logarithm (the delta method),
  m exp(+- t s / (m sqrt(n))).
- A quantile q_p (Woodruff): the share of waits above x is a mean over replications with such an interval of its own.
  q_p lies between the least x at which the lower end of that interval is 1 - p or less, and the least x at which the
  upper end is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slotwise.simulation.judge.statistics import Interval
from slotwise.simulation.judge.student import half_width
from slotwise.simulation.measure.histogram import EDGES, with_waiting

Floats = NDArray[np.float64]
# of what did not happen in a time T, fewer than 3.7 / T a unit of time happen in the long run, with a confidence
# of 97.5 %
UNSEEN = 3.7

FEW = 100  # waits, from which nothing can be learnt about how they are spread


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean of values of 0 or more. A single value has no interval (None, None)."""
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean())
    if len(x) == 1 or not math.isfinite(mean):
        return Interval(mean, None, None) if math.isfinite(mean) else Interval(mean, mean, mean)
    if mean <= 0:
        return Interval(mean, mean, mean)
    factor = math.exp(min(700.0, half_width(level, len(x) - 1) * float(x.std(ddof=1)) / (mean * math.sqrt(len(x)))))
    return Interval(mean, mean / factor, mean * factor)


def quantile_interval(
    ended: Sequence[NDArray[np.int64]],
    unended: Sequence[NDArray[np.int64]],
    p: float,
    level: float = 0.95,
) -> tuple[float | None, float | None]:
    """(low, high) of the p-quantile, from a histogram of each replication; (None, None) for a single replication,
    or without jobs."""
    above = np.array(
        [
            1.0 - np.cumsum(with_waiting(a, b)) / (a.sum() + b.sum())
            for a, b in zip(ended, unended, strict=True)
            if a.any() or b.any()
        ]
    )
    if len(above) < 2:
        return None, None
    mean = np.maximum(above.mean(axis=0), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        spread = half_width(level, len(above) - 1) * above.std(axis=0, ddof=1) / (mean * math.sqrt(len(above)))
        factor = np.where(mean > 1e-12, np.exp(spread), 1.0)
    share = 1.0 - p
    return _first(mean / factor <= share), _first(mean * factor <= share)


def _first(below: NDArray[np.bool_]) -> float:
    """Return the upper end of the first bin at which it is so; infinite where it never is."""
    if not below.any():
        return math.inf
    i = int(np.argmax(below))
    return 0.0 if i == 0 else float(EDGES[i + 1])

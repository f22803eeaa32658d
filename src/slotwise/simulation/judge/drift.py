"""Does a queue stay bounded? A verdict on sampled queue sizes: stable, grows, or too short to tell.

Take the queue X(t) of all jobs, or of one type, after the warm-up, and how far it wanders within a time u,

    D(u) = mean of (X(t + u) - X(t))^2 over t and over the replications.

A stable queue forgets where it was: D levels off. Without a drift, and without stability, it wanders like a random walk, D(u) ~ u;
with a drift, D(u) ~ u^2. So with a long and a twelfth as long a time, L and h, D(L) / D(h) goes to 1, is about 12, or goes to 144.
L is chosen so that the replications hold at least 15 stretches of it.

- `wander` = D(L) / D(h). Of a walk without drift it is below 4 once in a hundred times (chi-squared with 15 degrees of freedom):
  STABLE needs less.
- `growth`: the last sixth of the run less the first one, in standard deviations of a walk whose steps are as large as
  those seen within h. A queue without drift rarely passes 2.5, one that fills up from empty neither; one that grows by
  a jobs a unit of time passes every limit, like a sqrt(t). GROWS needs 3.5 (4.5 of one type). Besides, the last third
  must be higher than the first by 0.3 of the mean or more, where linear growth from 0 has 0.7. Late in the run the
  queue must never have come back to its level of the middle.

What is neither is TOO_SHORT: a longer run will tell. Error rates are measured by `python -m benchmarks.verdicts`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STRETCHES = 15  # of the long time, in all replications together, at least
RATIO = 12  # of the long time to the short one
LEVEL = 4.0  # wander below this: the queue forgets
GROWTH = 3.5
GROWTH_OF_TYPE = 4.5  # there are several types, and one of them may be served in turns
LEAST_RISE = 0.3
LEAST_JOBS = 1.0  # jobs: a smaller change of a queue is none


class Stability(enum.StrEnum):
    """What can be said of the queue."""

    STABLE = "stable"
    GROWS = "grows"
    TOO_SHORT = "too short"
    NEVER_STARTS = "never starts"

    @property
    def unbounded(self) -> bool:
        """The queue was found to grow, of all jobs or of some that never start."""
        return self in (Stability.GROWS, Stability.NEVER_STARTS)


class Drift(NamedTuple):
    """How one queue moves."""

    wander: float
    growth: float
    rise: float
    """the last third less the first, relative to the mean"""
    slope: float
    """growth per sampling interval; in a result's `drift`: per unit of time"""
    returned: bool
    """late in the run it came back to its level of the middle"""

    def stability(self, growth: float = GROWTH) -> Stability:
        """Return the verdict. `growth` is the least growth that counts as growing."""
        if self.growth > growth and self.rise > LEAST_RISE and not self.returned:
            return Stability.GROWS
        calm = self.wander < LEVEL and self.growth < growth
        return Stability.STABLE if calm else Stability.TOO_SHORT


CALM = Drift(1.0, 0.0, 0.0, 0.0, True)
UNKNOWN = Drift(math.inf, 0.0, 0.0, 0.0, True)


def least_samples(replications: int) -> int:
    """Return how many samples of each replication a verdict needs."""
    return RATIO * _stretches(replications)


def _stretches(replications: int) -> int:
    """Return how many stretches of the long time one replication has."""
    return max(3, math.ceil(STRETCHES / replications))


def drift(series: Sequence[Floats]) -> Drift:
    """Measure how a queue moves, from samples of each replication at equal steps of time after the warm-up."""
    if not series:
        raise ValueError("needs the samples of one or more replications")
    n = min(len(x) for x in series)
    if n < least_samples(len(series)):
        return UNKNOWN
    x = np.array([one[len(one) - n :] for one in series], dtype=np.float64)
    if not (x != x[:, :1]).any():
        return CALM
    long = n // _stretches(len(x))
    short = long // RATIO
    steps, far = _mean_square(x, short), _mean_square(x, long)
    third, sixth = n // 3, n // 6
    gain = float((x[:, -sixth:].mean(axis=1) - x[:, :sixth].mean(axis=1)).mean())
    span = n - sixth
    # the means of two sixths of a walk are apart by its steps over the time between, less a third of each sixth
    spread = math.sqrt(steps / short * (span - sixth / 3) / len(x))
    mean = float(x.mean())
    rise = float(x[:, -third:].mean() - x[:, :third].mean())
    smooth = x.mean(axis=0)[n % 24 :].reshape(24, -1).mean(axis=1)
    return Drift(
        wander=far / steps if steps > 0 else (math.inf if far > 0 else 1.0),
        growth=0.0 if gain <= LEAST_JOBS / 2 else gain / spread if spread > 0 else math.inf,
        rise=rise / mean if mean > 0 else 0.0,
        slope=gain / span,
        returned=bool(smooth[-8:].min() <= smooth[8:16].mean()) or rise < LEAST_JOBS,
    )


def _mean_square(x: Floats, lag: int) -> float:
    """Return D(lag)."""
    return float(np.mean((x[:, lag:] - x[:, :-lag]) ** 2))

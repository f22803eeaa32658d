"""What finite runs say about the long run: intervals, truncation of the warm-up, merging of moments.

- Student: for independent x_1..x_n with mean m and standard deviation s, m +- t_{n-1} s / sqrt(n).
- MSER-5 (White 1997): of the means Y_1..Y_n of five successive values, drop the first d. d <= n / 2 minimises sum_{i>d}
  (Y_i - mean_d)^2 / (n - d)^2, the squared standard error of what is left.
- Batch means: the means of long stretches of one run are nearly independent, so Student's interval holds for them;
  where successive means are still correlated, the stretches are made longer.
- Moments (Chan, Golub and LeVeque): n = n_1 + n_2, d = m_2 - m_1, m = m_1 + d n_2 / n,
  M2 = M2_1 + M2_2 + d^2 n_1 n_2 / n.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.simulation.judge.student import half_width

Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """A mean with its confidence interval; `low` and `high` are None where a single value tells no spread."""

    mean: float
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Half the way from `low` to `high`, which need not be alike on both sides."""
        return None if self.high is None or self.low is None else (self.high - self.low) / 2


def student_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Return the mean of independent values with Student's interval. A single value has no interval (None, None)."""
    x = _series(values)
    mean = float(x.mean())
    if len(x) == 1:
        return Interval(mean, None, None)
    half = half_width(level, len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(mean, mean - half, mean + half)


def paired_difference(first: ArrayLike, second: ArrayLike, level: float = 0.95) -> Interval:
    """Return the mean of first[i] - second[i], where runs with the same i met the same jobs (common random numbers)."""
    x, y = _series(first), _series(second)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} and {len(y)} values are not pairs")
    return student_interval(x - y, level)


def mser5(series: ArrayLike) -> int:
    """Return how many of the first values to drop as warm-up: a multiple of 5, at most about half of the series."""
    x = _series(series)
    n = len(x) // 5
    if n < 2:
        return 0
    means = x[: 5 * n].reshape(n, 5).mean(axis=1)
    means -= means.mean()  # sums of squares of small numbers: no cancellation
    kept = n - np.arange(n // 2 + 1)
    total = np.cumsum(means[::-1])[::-1][: len(kept)]
    squares = np.cumsum(means[::-1] ** 2)[::-1][: len(kept)]
    spread = np.maximum(squares - total**2 / kept, 0.0)
    return 5 * int(np.argmin(spread / kept.astype(np.float64) ** 2))


class BatchMeans(NamedTuple):
    """The long-run mean from one run."""

    interval: Interval
    batches: int
    """how many stretches were found to be independent enough"""
    lag1: float
    """the correlation of successive batch means"""
    independent: bool
    """False: even the longest stretches are correlated, so the interval is too short; the run should be longer"""


def batch_means(series: ArrayLike, batches: int = 32, level: float = 0.95) -> BatchMeans:
    """Return the mean of a stationary series with an interval, from at most `batches` (4 or more) equal stretches.

    While the lag-1 correlation of the batch means is above its 95 % bound under independence, 1.645 / sqrt(n) for n
    stretches, and n is 16 or more, neighbours are joined. Values that do not fill the stretches are dropped from
    the start, which is closest to the warm-up.
    """
    x = _series(series)
    if batches < 4 or len(x) < batches:
        raise ValueError(f"{len(x)} values cannot be split into {batches} batches; give 4 or more, one value each")
    means = x[len(x) % batches :].reshape(batches, -1).mean(axis=1)
    while True:
        lag1 = _lag1(means)
        independent = lag1 <= NormalDist().inv_cdf(0.95) / math.sqrt(len(means))
        if independent or len(means) < 16:
            return BatchMeans(student_interval(means, level), len(means), lag1, independent)
        means = means[len(means) % 2 :].reshape(-1, 2).mean(axis=1)


def _lag1(x: Floats) -> float:
    y = x - x.mean()
    power = float(y @ y)
    return float(y[1:] @ y[:-1]) / power if power > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations from the mean."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0


def moments(values: ArrayLike) -> Moments:
    """Return the moments of the values."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) == 0:
        return Moments()
    mean = float(x.mean())
    return Moments(len(x), mean, float(np.sum((x - mean) ** 2)))


def merged(parts: Iterable[Moments]) -> Moments:
    """Return the moments of all values together. Merge in a fixed order for the same bits."""
    count, mean, m2 = 0, 0.0, 0.0
    for part in parts:
        if part.count == 0:
            continue
        total = count + part.count
        delta = part.mean - mean
        mean += delta * (part.count / total)
        m2 += part.m2 + delta * delta * (count * (part.count / total))
        count = total
    return Moments(count, mean, m2)


def _series(values: ArrayLike | Sequence[float]) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or len(x) == 0:
        raise ValueError("needs one or more values in one dimension")
    return x

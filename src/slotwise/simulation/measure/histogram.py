"""Streamed quantiles: a log-spaced histogram whose bins are read off the float itself.

Each octave 2^e <= x < 2^(e+1) has 128 bins of equal width, so a bin is no wider than 1/128 = 0.8 % of any value in it.
A quantile read from the histogram is that close to the order statistic that it stands for. The octaves from 2^-30
(below 1e-9) to 2^40 (above 1e12) have bins of their own. Exact zeros (jobs that did not wait) have the first bin;
values beyond the octaves have one bin on either side.

A double is a sign bit, 11 bits of e + 1023 and 52 bits of x / 2^e - 1, so the bits of a positive x above the lowest
45 count these bins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel

PER_OCTAVE = 128  # bins, each 0.8 % wide at most
LEAST_EXPONENT = -30
MOST_EXPONENT = 40  # of two: 10^12 units of time
LARGE = 2.0**MOST_EXPONENT
SMALL = 2.0**LEAST_EXPONENT
BELOW = (1023 + LEAST_EXPONENT) * PER_OCTAVE - 2
# 0: zero (and below); 1: up to 2^-30; then the octaves; the last: 2^40 and more
BINS = 3 + PER_OCTAVE * (MOST_EXPONENT - LEAST_EXPONENT)


@kernel
def bin_of(x: float) -> int:
    """Return the bin of x. Zero, and anything not above it, is in bin 0."""
    if not x > 0.0:
        return 0
    if x < SMALL:
        return 1
    if x >= LARGE:
        return BINS - 1
    return int(np.float64(x).view(np.int64) >> 45) - BELOW  # as math.frexp would, but several times as fast


def _edges() -> NDArray[np.float64]:
    octaves = 2.0 ** np.arange(LEAST_EXPONENT, MOST_EXPONENT)
    inner = np.outer(octaves, 1 + np.arange(PER_OCTAVE) / PER_OCTAVE).ravel()
    return np.concatenate(([0.0, 0.0], inner, [LARGE, math.inf]))


EDGES = _edges()  # bin i is EDGES[i] <= x < EDGES[i + 1]; bin 0 is just zero
EDGES.flags.writeable = False


def quantiles(
    counts: NDArray[np.int64],
    edges: NDArray[np.float64],
    probs: Sequence[float],
    largest: float | None = None,
) -> list[float | None]:
    """Return for each p the value of rank max(1, ceil(p n)) among the n that were counted, or None if n = 0.

    It lies in the same bin as that value, placed by its rank within the bin. `largest`, where it is known, bounds
    what is returned; in a bin without an upper edge, without it, the lower edge is returned.
    """
    upto = np.cumsum(counts)
    total = int(upto[-1])
    if total == 0:
        return [None for _ in probs]
    found: list[float | None] = []
    for p in probs:
        if not 0 <= p <= 1:
            raise ValueError(f"{p} is not a probability")
        rank = min(total, max(1, math.ceil(p * total)))
        i = int(np.searchsorted(upto, rank, side="left"))
        low, high = float(edges[i]), float(edges[i + 1])
        if largest is not None:
            high = max(low, min(high, largest))
        within = (rank - 0.5 - (int(upto[i]) - int(counts[i]))) / int(counts[i])
        found.append(low + within * (high - low) if math.isfinite(high) else low)
    return found


def with_waiting(ended: NDArray[np.int64], unended: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the counts as if all jobs had been observed to the end (Kaplan and Meier).

    `ended` counts what was seen whole, `unended` what was still going on. A job still waiting after time t is
    spread over the waits of the jobs that waited longer than t. What lies beyond the longest that was seen whole is in no bin: the counts then add up to
    less than all.
    """
    all_ = float(ended.sum() + unended.sum())
    at_risk = all_ - np.concatenate(([0], np.cumsum(ended + unended)[:-1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        stay = np.where(at_risk > 0, 1.0 - ended / at_risk, 1.0)
    left = np.cumprod(stay)
    return np.asarray(all_ * -np.diff(left, prepend=1.0))


def censored_quantiles(
    ended: NDArray[np.int64], unended: NDArray[np.int64], probs: Sequence[float], largest: float | None = None
) -> list[float | None]:
    """Return quantiles as `quantiles` does, but some waits were still going on. A quantile that is not known yet is
    infinite."""
    if not unended.any():
        return quantiles(ended, EDGES, probs, largest)
    all_ = int(ended.sum() + unended.sum())
    upto = np.cumsum(with_waiting(ended, unended))
    found: list[float | None] = []
    for p in probs:
        rank = max(1.0, p * all_)
        i = int(np.searchsorted(upto, rank * (1 - 1e-12), side="left"))
        if i >= len(upto):
            found.append(math.inf)
            continue
        high = float(EDGES[i + 1]) if largest is None else max(float(EDGES[i]), min(float(EDGES[i + 1]), largest))
        found.append((float(EDGES[i]) + high) / 2 if math.isfinite(high) else float(EDGES[i]))
    return found


def censored_mean(ended: NDArray[np.int64], unended: NDArray[np.int64], largest: float) -> float:
    """Return the mean as if all jobs had been observed to the end. Jobs beyond the longest complete wait count with
    that wait, so this is a lower bound. Bins count by their middle."""
    counts = with_waiting(ended, unended)
    middle = (EDGES[:-1] + np.minimum(EDGES[1:], max(largest, 0.0))) / 2
    middle[0] = 0.0
    middle = np.minimum(middle, largest)
    all_ = float(ended.sum() + unended.sum())
    beyond = max(0.0, all_ - float(counts.sum()))
    return float((counts @ middle + beyond * largest) / all_) if all_ else math.nan

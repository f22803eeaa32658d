"""Quantiles of runs ahead, mixed with recent waits, and corrected online so that they hold as often as they say.

Where the future depends on arrivals more than on the jobs that are there, recent waits are as good as the runs. The mean of both is better than each.
Its weights are fixed: weights that are learnt from the losses so far follow the last backlog into the next one, and fewer intervals hold (docs/research/forecasts.md).

Runs know nothing of what is wrong with their own assumptions. So each past forecast yields the level at which the job started
(the probability integral transform, here as a logit). If the forecasts were right, these levels would
be uniform. The corrected quantile at level tau is read at the tau-quantile of the past levels, which mends all
quantiles at the same time: runs that are too narrow, too wide, too early or too late.

Recent outcomes count more, and so do outcomes of the same type and of the same length of the forecast wait. A job that still waits is a censored level: it starts
later than at the level that its wait has reached so far. The quantile is that of the Kaplan-Meier estimate, so that long waits
are not forgotten because their outcome comes late. Forecasts enter by when they were made, never by when their outcome was known.
Before there are outcomes, a prior stands for them: uniform levels, as if the runs were right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slotwise.foresee.history import F8, I8

Flags = NDArray[np.bool_]
LEVELS = (0.1, 0.5, 0.9)
BANDS = (60.0, 600.0, 3600.0, 4 * 3600.0, 24 * 3600.0)  # seconds; lengths of the forecast wait, by its median
# Forecasts after which an outcome counts half, for each quantile: those of the tails need more outcomes than the median.
HALVES = (3000.0, 200.0, 3000.0)
UNLIKE = 0.5  # weight of an outcome of another type, and of another band
PRIOR_WEIGHT = 20.0  # outcomes that the prior stands for
PRIOR_POINTS = 60
SMALLEST = 1.0  # seconds; waits are compared as log(wait + SMALLEST)
REACH = 28 * 86_400.0  # seconds; where runs are mixed with recent waits, a later start counts as this one
# Of recent waits in the mean of log-waits. With 0.5 the loss on kth is 6 % higher, and on CERIT-SC 5 % lower (docs/research/forecasts.md).
WAITS_WEIGHT = 0.25
LARGEST = 1e9  # seconds; stands for a start that is later than the runs went
LEAST_SLOPE = 0.15  # of the tails beyond all runs, in log-seconds per logit
# Logits at which the runs of a forecast are kept. Levels beyond 12 are not told apart; runs a third as wide as they should be need 8.
GRID = np.array([-12.0, -8.0, -6.0, *np.arange(-5.0, 5.25, 0.5), 6.0, 8.0, 12.0])


def band_of(wait: float) -> int:
    """Return the number of the band in which a forecast wait lies."""
    return sum(wait >= edge for edge in BANDS)


def bands_of(waits: F8) -> I8:
    """Return the number of the band of each forecast wait."""
    return np.asarray(np.searchsorted(np.array(BANDS), waits, side="right"), np.int64)


def curves_of(starts: F8) -> F8:
    """Return log-waits at the levels of GRID, (jobs, levels), of runs (runs, jobs) in any order."""
    ordered = np.sort(starts, axis=0)
    found = np.stack([read(ordered, np.full(starts.shape[1], logit)) for logit in GRID], axis=1)
    return np.asarray(np.log(np.minimum(np.maximum.accumulate(found, axis=1), LARGEST) + SMALLEST))


def levels_of(curves: F8, waits: F8) -> F8:
    """Return at which level, as a logit, of its curve each wait lies; the middle of the levels where a curve is flat."""
    y = np.log(np.minimum(np.maximum(waits, 0.0), LARGEST) + SMALLEST)[:, None]
    last = len(GRID) - 1
    rows = np.arange(len(curves))
    below = np.sum(curves < y, axis=1)
    above = last - np.sum(curves > y, axis=1)
    low, high = np.clip(below - 1, 0, last - 1), np.clip(below, 1, last)
    gap = curves[rows, high] - curves[rows, low]
    part = np.where(gap > 0, (y[:, 0] - curves[rows, low]) / np.where(gap > 0, gap, 1.0), 0.0)
    between = GRID[low] + np.clip(part, 0.0, 1.0) * (GRID[high] - GRID[low])
    flat = 0.5 * (GRID[np.clip(below, 0, last)] + GRID[np.clip(above, 0, last)])
    return np.asarray(np.where(above > below, flat, between))


def mixed(runs: F8, waits: F8) -> F8:
    """Return the mean of the curves of runs and of recent waits, (jobs, levels); the runs alone where recent waits are not known (NaN)."""
    mean = (1.0 - WAITS_WEIGHT) * np.minimum(runs, math.log(REACH)) + WAITS_WEIGHT * np.minimum(
        waits, math.log(REACH)
    )
    return np.where(np.isnan(waits), runs, mean)


class Correction:
    """Levels at which curves are read, learnt from outcomes."""

    def __init__(self, levels: F8, censored: Flags, kind: Sequence[str], band: I8) -> None:
        """Outcomes in the order in which their forecasts were made. `levels`: logits; `censored`: the job still waits."""
        n = len(levels)
        prior = (np.arange(PRIOR_POINTS) + 0.5) / PRIOR_POINTS
        levels = np.concatenate([levels, np.log(prior / (1.0 - prior))])
        censored = np.concatenate([censored, np.zeros(PRIOR_POINTS, np.bool_)])
        self._order = np.lexsort((censored, levels))
        self._levels, self._censored = levels[self._order], censored[self._order]
        self._age = n - 1.0 - np.arange(n)
        self._kinds = {name: at for at, name in enumerate(dict.fromkeys(kind))}
        self._kind = np.array([self._kinds[name] for name in kind], np.int64)
        self._band = np.asarray(band, np.int64)
        self._found: dict[tuple[str, int], F8] = {}

    def quantiles(self, curves: F8, kinds: Sequence[str], medians: F8) -> F8:
        """Return the corrected quantiles, (levels, jobs), of curves. `medians` are those of the runs, which name the group."""
        groups: dict[tuple[str, int], list[int]] = {}
        for at, key in enumerate(zip(kinds, bands_of(medians).tolist(), strict=True)):
            groups.setdefault(key, []).append(at)
        found = np.empty((len(LEVELS), len(curves)))
        for key, rows in groups.items():
            found[:, rows] = _at(curves[rows], self.reading(*key)).T
        return np.asarray(np.maximum.accumulate(found, axis=0))

    def reading(self, kind: str, band: int) -> F8:
        """Return the logits at which to read each quantile of such forecasts."""
        key = (kind, band)
        if key not in self._found:
            unlike = (self._kind != self._kinds.get(kind, -1)).astype(int) + (self._band != band)
            prior = np.full(PRIOR_POINTS, PRIOR_WEIGHT / PRIOR_POINTS)
            logits = np.empty(len(LEVELS))
            for half in set(HALVES):
                share = np.concatenate([UNLIKE**unlike * 0.5 ** (self._age / half), prior])[self._order]
                mine = np.array(HALVES) == half
                logits[mine] = _quantiles(self._levels, self._censored, share)[mine]
            self._found[key] = np.maximum.accumulate(logits)
        return self._found[key]


def _at(curves: F8, logits: F8) -> F8:
    """Read curves at logits: seconds, (jobs, logits); infinite beside a level that the runs did not reach."""
    low = np.clip(np.searchsorted(GRID, logits, side="right") - 1, 0, len(GRID) - 2)
    part = np.clip((logits - GRID[low]) / (GRID[low + 1] - GRID[low]), 0.0, 1.0)
    value = curves[:, low] * (1.0 - part) + curves[:, low + 1] * part
    beyond = np.where(part > 0, curves[:, low + 1], curves[:, low]) >= math.log(LARGEST)
    return np.asarray(np.where(beyond, np.inf, np.maximum(np.exp(value) - SMALLEST, 0.0)))


def _quantiles(level: F8, censored: Flags, weight: F8) -> F8:
    """Return the quantiles at LEVELS of the Kaplan-Meier estimate of ordered, weighted levels."""
    at_risk = np.cumsum(weight[::-1])[::-1]
    stay = np.where(censored, 1.0, 1.0 - np.minimum(weight / np.maximum(at_risk, 1e-300), 1.0))
    reached = 1.0 - np.cumprod(stay)
    exact = ~censored
    reached = reached[exact]
    middle = reached - 0.5 * np.diff(reached, prepend=0.0)
    return np.asarray(np.interp(LEVELS, middle, level[exact]))


def read(ordered: F8, logit: F8) -> F8:
    """Read the distribution of each job (a column of ordered starts) at a level given as a logit.

    The k-th of M runs stands at level k / (M + 1). Between runs log(wait + SMALLEST) is interpolated; beyond them it goes on with the slope of the outer
    quarter."""
    M, n = ordered.shape
    columns = np.arange(n)
    finite = np.log(np.where(np.isinf(ordered), np.nan, ordered) + SMALLEST)
    place = (M + 1) / (1.0 + np.exp(-logit)) - 1.0
    low = np.clip(np.floor(place), 0, M - 1).astype(np.int64)
    high = np.minimum(low + 1, M - 1)
    part = np.clip(place - low, 0.0, 1.0)
    inner = finite[low, columns] * (1 - part) + np.where(part > 0, finite[high, columns], 0.0) * part
    first, last = _logit(1.0 / (M + 1)), _logit(M / (M + 1))
    quarter = max(1, M // 4)
    span = last - _logit((M - quarter) / (M + 1)) if M > 1 else 1.0
    below = np.minimum(logit - first, 0.0)
    above = np.maximum(logit - last, 0.0)
    rise_low = np.maximum((finite[min(quarter, M - 1)] - finite[0]) / span, LEAST_SLOPE)
    rise_high = np.maximum((finite[-1] - finite[M - 1 - quarter if quarter < M else 0]) / span, LEAST_SLOPE)
    value = np.exp(inner + np.where(below < 0, below * rise_low, 0.0) + np.where(above > 0, above * rise_high, 0.0))
    return np.where(np.isnan(value), np.inf, np.maximum(value - SMALLEST, 0.0))


def _logit(level: float) -> float:
    return math.log(level / (1.0 - level))

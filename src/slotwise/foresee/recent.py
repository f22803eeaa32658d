"""What recent waits say: quantiles of how much longer jobs waited that had waited as long as this one.

Runs ahead know the state and the policy, but not what their assumptions miss. Recent waits know neither, and miss nothing. Where the future of a queue depends
on arrivals more than on the jobs that are there, the quantiles of recent waits are the better ones (docs/research/forecasts.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.foresee.correction import GRID, LEAST_SLOPE, SMALLEST
from slotwise.foresee.history import F8, I8, History

KEPT = 200  # waits of a type, the newest
FEWEST = 10  # longer waits below which those of all types are taken, or nothing is said


class RecentWaits:
    """Waits of the jobs that started last, by type. Jobs that started at once are left out: forecasts are for jobs that wait."""

    def __init__(self, history: History) -> None:
        wait = history.started - history.submitted
        waited = np.flatnonzero(wait > 0.0)
        waited = waited[np.argsort(history.started[waited], kind="stable")]
        self._all = np.sort(wait[waited[-KEPT:]])
        kind = history.type[waited]
        self._own = [np.sort(wait[waited[kind == j][-KEPT:]]) for j in range(len(history.types))]

    def curves(self, job_type: I8, age: F8) -> F8:
        """Return log-waits from now on at the levels of GRID, (jobs, levels), of jobs of these types (positions in the history) and ages; NaN: not known."""
        out = np.full((len(age), len(GRID)), np.nan)
        for j in np.unique(job_type):
            mine = np.flatnonzero(job_type == j)
            if 0 <= j < len(self._own):
                out[mine] = _curves(self._own[j], age[mine])
        few = np.isnan(out[:, 0])
        out[few] = _curves(self._all, age[few])
        return out


def _curves(waits: F8, age: F8) -> NDArray[np.float64]:
    """Return the curves of waits, in order, that are longer than each age; NaN where there are too few."""
    first = np.searchsorted(waits, age, side="right")
    M = len(waits) - first
    out = np.full((len(age), len(GRID)), np.nan)
    known = np.flatnonzero(M >= FEWEST)
    if not len(known):
        return out
    M, first, begun = M[known, None], first[known, None], age[known, None]
    place = (M + 1) / (1.0 + np.exp(-GRID)) - 1.0
    low = np.clip(np.floor(place), 0, M - 1).astype(np.int64)
    high = np.minimum(low + 1, M - 1)
    part = np.clip(place - low, 0.0, 1.0)
    ordered = np.log(np.maximum(waits[first + low] - begun, 0.0) + SMALLEST)
    above = np.log(np.maximum(waits[first + high] - begun, 0.0) + SMALLEST)
    outermost = np.log(M)  # the logit of the last of M, at level M / (M + 1)
    beyond = np.maximum(GRID - outermost, 0.0) + np.minimum(GRID + outermost, 0.0)
    out[known] = np.maximum(ordered * (1 - part) + above * part + LEAST_SLOPE * beyond, np.log(SMALLEST))
    return out

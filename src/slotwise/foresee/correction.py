"""Quantiles of runs ahead, corrected online so that they hold as often as they say.

Runs know nothing of what is wrong with their own assumptions, so a quantile at level tau is read at another level, sigma(logit(tau) + d). The shift d is the sum of one
number for all forecasts, one for the type and one for the length of the forecast wait. After each outcome every one of the three moves by a step against the
error: up if the start came later than the quantile, down otherwise, in proportion to tau. The average error of each group then tends to 0, whatever the data
(adaptive conformal inference, Gibbs and Candes 2021, in the form of gradient equilibrium, for several groups at once): 80 % intervals hold about 80 %
overall, by type and by length of wait.

Whether a start comes later than a quantile is known as soon as that time has passed: a job that still waits teaches before it starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slotwise.foresee.history import F8

LEVELS = (0.1, 0.5, 0.9)
BANDS = (60.0, 600.0, 3600.0, 4 * 3600.0, 24 * 3600.0)  # seconds; lengths of the forecast wait, by its median
# In logits: a step is FIRST_STEP / sqrt(outcomes of the group), at least LEAST_STEP. Tuned on three logs (docs/research/forecasts.md).
FIRST_STEP, LEAST_STEP = 0.6, 0.3
FIRST_SHIFT = 0.35  # logits by which intervals are wider from the start: runs do not know how wrong the history is about the future
MOST_SHIFT = 6.0  # logits
SMALLEST = 1.0  # seconds; waits are compared as log(wait + SMALLEST)
LEAST_SLOPE = 0.15  # of the tails beyond all runs, in log-seconds per logit

Key = tuple[str, str]
ALL: Key = ("all", "")


def band_of(wait: float) -> int:
    """Return the number of the band in which a forecast wait lies."""
    return sum(wait >= edge for edge in BANDS)


def keys_of(job_type: str, wait: float) -> tuple[Key, Key, Key]:
    """Return the groups of a forecast: all, its type, the band of its median."""
    return ALL, ("type", job_type), ("wait", str(band_of(wait)))


class Correction:
    """What was learnt of the errors."""

    def __init__(self) -> None:
        self._shift: dict[Key, list[float]] = {
            ALL: [FIRST_SHIFT * (level > 0.5) - FIRST_SHIFT * (level < 0.5) for level in LEVELS]
        }
        self._seen: dict[Key, list[int]] = {}

    def quantiles(self, starts: F8, keys: Sequence[Sequence[Key]]) -> F8:
        """Return the corrected quantiles, (levels, jobs), of runs (runs, jobs) in any order; infinite starts are later than the runs went."""
        shifts = np.array(
            [[sum(self._shift[key][at] for key in own if key in self._shift) for own in keys] for at in range(len(LEVELS))]
        ).reshape(len(LEVELS), starts.shape[1])  # fmt: skip
        logits = np.array([_logit(level) for level in LEVELS])[:, None] + np.clip(shifts, -MOST_SHIFT, MOST_SHIFT)
        found = np.stack([read(np.sort(starts, axis=0), row) for row in logits])
        return np.maximum.accumulate(found, axis=0)

    def learn(self, level: int, keys: Sequence[Key], later: bool) -> None:
        """Take in whether a start came later than the quantile at LEVELS[level]."""
        error = (0.0 if later else 1.0) - LEVELS[level]
        for key in keys:
            seen = self._seen.setdefault(key, [0] * len(LEVELS))
            shift = self._shift.setdefault(key, [0.0] * len(LEVELS))
            seen[level] += 1
            shift[level] -= max(LEAST_STEP, FIRST_STEP / math.sqrt(seen[level])) * error / len(keys)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "shift": [[*key, *shift] for key, shift in self._shift.items()],
            "seen": [[*key, *seen] for key, seen in self._seen.items()],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Correction:
        """Read what `to_dict` made."""
        made = cls()
        made._shift = {(row[0], row[1]): list(map(float, row[2:])) for row in values.get("shift", ())}
        made._seen = {(row[0], row[1]): list(map(int, row[2:])) for row in values.get("seen", ())}
        return made


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

"""Forecasts that were made: what became of them, how often they held, and what the correction learns from it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from slotwise.foresee.correction import (
    BANDS,
    GRID,
    LEVELS,
    REACH,
    SMALLEST,
    WEIGHTS,
    Correction,
    band_of,
    levels_at,
    levels_of,
    losses_of,
)
from slotwise.foresee.features import F4
from slotwise.foresee.forest import FEWEST, Forest
from slotwise.foresee.history import F8

REMEMBERED = 2_000  # outcomes from which coverage is told, and forecasts from which the correction learns
GROWN = 1.1  # outcomes over those of the last time, from which the forest is grown anew


# Logits by which an end of the intervals moves for a miss, and how far in all. With 0.05, 72 instead of 70 % hold on ceritsc2013, at a loss that is 3 % higher.
STEP = 0.02
NARROWEST, WIDEST = -0.5, 1.5


class ForecastOutcome(NamedTuple):
    """A forecast whose job has started, or has been waiting past its 90 % quantile."""

    type: str
    band: int
    inside: bool
    """whether the start lay between the 10 % and the 90 % quantile"""


class Coverage(NamedTuple):
    """How often intervals held."""

    coverage: float | None
    of: int


@dataclass(slots=True, eq=False)
class _Made:
    job: Hashable
    made: float
    type: str
    band: int
    low: float = 0.0
    high: float = np.inf
    sources: F8 | None = None
    """curves (see `correction.sources_of`); None: no longer kept, because the levels are known"""
    features: F4 | None = None
    """what was known of the job (see `features`)"""
    wait: float | None = None
    """seconds until the job started; None: it still waits"""
    levels: F8 | None = None
    """at which the job started, as logits, for each weight of the correction; None: it still waits"""
    losses: F8 | None = None
    """of each weight"""
    told: bool = False
    """whether the outcome counts in the coverage"""
    done: bool = False


class Tracker:
    """Open forecasts and the outcomes of those that are not."""

    def __init__(self) -> None:
        self.outcomes: deque[ForecastOutcome] = deque(maxlen=REMEMBERED)
        self.at_once = self.unanswered = 0
        self.shifts = [0.0, 0.0]
        """logits by which intervals are made wider at their early and at their late end"""
        self._recent: deque[_Made] = deque(maxlen=REMEMBERED)
        self._open: dict[Hashable, list[_Made]] = {}
        self._due: list[tuple[float, int, _Made]] = []
        self._n = self._outcomes = self._grown = 0
        self._forest: Forest | None = None

    def add(
        self,
        job: Hashable,
        made: float,
        quantiles: Iterable[float],
        job_type: str,
        median: float,
        sources: F8,
        features: F4 | None = None,
    ) -> None:
        """A forecast was made: seconds from `made`. `median` is that of the runs before correction, which names the group. `sources` are its curves
        (see `correction.sources_of`), and `features` what the forest learns from."""
        low, _, high = map(float, quantiles)
        one = _Made(job, made, job_type, band_of(median), low, high, sources, features)
        self._open.setdefault(job, []).append(one)
        self._recent.append(one)
        if high < np.inf:
            self._n += 1
            heapq.heappush(self._due, (made + high, self._n, one))

    def remember(self, made: float, wait: float, job_type: str, median: float, sources: F8, features: F4) -> None:
        """A forecast of an earlier process has come to its end, and counts in the coverage already."""
        one = _Made(None, made, job_type, band_of(median), sources=sources, features=features, wait=wait, done=True)
        self._recent.append(one)
        self._outcomes += 1

    def correction(self, now: float) -> Correction:
        """Return the correction as it is at `now`: jobs that still wait teach that they start later than `now`."""
        self._place()
        known = [one for one in self._recent if one.levels is not None or not one.done]
        nothing = np.full(len(WEIGHTS), np.nan)
        levels, losses = (
            np.array([nothing if row is None else row for row in rows]).reshape(-1, len(WEIGHTS))
            for rows in ([one.levels for one in known], [one.losses for one in known])
        )
        censored = np.array([one.levels is None for one in known], np.bool_)
        if censored.any():
            still = [one for one in known if one.levels is None]
            levels[censored] = levels_at(
                np.array([one.sources for one in still]), np.array([now - one.made for one in still])
            )
        kinds, bands = [one.type for one in known], np.array([one.band for one in known], np.int64)
        return Correction(levels, losses, censored, kinds, bands, (self.shifts[0], self.shifts[1]))

    def _place(self) -> None:
        """Find the levels and losses of outcomes that have come since the last time, all at once."""
        new = [one for one in self._recent if one.wait is not None and one.sources is not None]
        if new:
            sources, waits = np.array([one.sources for one in new]), np.array([one.wait for one in new])
            for one, levels, losses in zip(new, levels_at(sources, waits), losses_of(sources, waits), strict=True):
                one.levels, one.losses, one.sources = levels, losses, None

    def forest(self, now: float) -> Forest | None:
        """Return the forest of all outcomes, grown anew where there are enough more; None while there are too few.

        A job that still waits counts with the middle of the waits that are longer than its own, as its forecast says."""
        told = [one for one in self._recent if one.features is not None and (one.wait is not None or not one.done)]
        outcomes = self._outcomes
        if sum(one.wait is not None for one in told) >= FEWEST and outcomes >= GROWN * self._grown:
            self._grown = outcomes
            rows = np.array([one.features for one in told])
            self._forest = Forest(rows, np.array([self._log_wait(one, now) for one in told]))
        return self._forest

    def _log_wait(self, one: _Made, now: float) -> float:
        if one.wait is not None:
            return float(np.log(max(one.wait, 0.0) + SMALLEST))
        assert one.sources is not None
        curve = one.sources[2] if not np.isnan(one.sources[2, 0]) else one.sources[0]
        level = 1.0 / (1.0 + np.exp(-levels_of(curve[None], np.array([now - one.made]))[0]))
        return float(
            min(
                max(
                    np.interp(np.log((1.0 + level) / (1.0 - level)), GRID, curve), np.log(now - one.made + SMALLEST)
                ),
                np.log(REACH),
            )
        )

    def advance(self, now: float) -> None:
        """Time has passed: intervals that end before `now` have not held for jobs that still wait."""
        while self._due and self._due[0][0] < now:
            one = heapq.heappop(self._due)[2]
            if not one.done and not one.told:
                one.told = True
                self._learn(one, late=True)

    def started(self, job: Hashable, when: float) -> None:
        """A job has started."""
        self.advance(when)
        for one in self._open.pop(job, []):
            one.done = True
            one.wait = when - one.made
            self._outcomes += 1
            if not one.told:
                self._learn(one, early=one.wait < one.low)

    def _learn(self, one: _Made, *, early: bool = False, late: bool = False) -> None:
        self.outcomes.append(ForecastOutcome(one.type, one.band, not (early or late)))
        for end, (missed, share) in enumerate(((early, LEVELS[0]), (late, 1.0 - LEVELS[-1]))):
            self.shifts[end] = min(WIDEST, max(NARROWEST, self.shifts[end] + STEP * (missed - share)))

    def dropped(self, job: Hashable) -> None:
        """A job will not start: its forecasts teach nothing."""
        for one in self._open.pop(job, []):
            one.done = True

    def open_jobs(self) -> list[Hashable]:
        """Return the jobs with forecasts whose outcome is not known."""
        return list(self._open)

    def coverage(self, job_type: str | None = None, band: int | None = None) -> Coverage:
        """Return how often intervals held, of all or of a group."""
        found = [
            one.inside
            for one in self.outcomes
            if (job_type is None or one.type == job_type) and (band is None or one.band == band)
        ]
        return Coverage(round(sum(found) / len(found), 3) if found else None, len(found))

    def summary(self) -> dict[str, Any]:
        """Return coverage overall, by type and by length of the forecast wait."""
        edges = (0.0, *BANDS)
        return {
            "all": self.coverage()._asdict(),
            "by_type": {
                name: self.coverage(job_type=name)._asdict() for name in sorted({one.type for one in self.outcomes})
            },
            "by_wait": [
                {
                    "from": edges[band],
                    "to": BANDS[band] if band < len(BANDS) else None,
                    **self.coverage(band=band)._asdict(),
                }
                for band in sorted({one.band for one in self.outcomes})
            ],
            "unanswered": self.unanswered,
            "at_once": self.at_once,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return outcomes and steps as plain data; forecasts are left out."""
        return {
            "outcomes": [list(one) for one in self.outcomes],
            "shifts": list(self.shifts),
            "at_once": self.at_once,
            "unanswered": self.unanswered,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Tracker:
        """Read what `to_dict` made."""
        made = cls()
        made.outcomes.extend(
            ForecastOutcome(row[0], int(row[1]), bool(row[2])) for row in values.get("outcomes", ())
        )
        made.shifts = [float(x) for x in values.get("shifts", made.shifts)]
        made.at_once, made.unanswered = int(values.get("at_once", 0)), int(values.get("unanswered", 0))
        return made

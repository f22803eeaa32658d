"""Forecasts that were made: what became of them, how often they held, and what the correction learns from it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from slotwise.foresee.correction import BANDS, GRID, Correction, band_of, levels_of
from slotwise.foresee.history import F8

REMEMBERED = 2_000  # outcomes from which coverage is told, and forecasts from which the correction learns


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
    curve: F8
    """the forecast before correction (`correction.mixed`)"""
    low: float = 0.0
    high: float = np.inf
    wait: float | None = None
    """seconds until the job started; None: it still waits"""
    told: bool = False
    """whether the outcome counts in the coverage"""
    done: bool = False


class Tracker:
    """Open forecasts and the outcomes of those that are not."""

    def __init__(self) -> None:
        self.outcomes: deque[ForecastOutcome] = deque(maxlen=REMEMBERED)
        self.at_once = self.unanswered = 0
        self._recent: deque[_Made] = deque(maxlen=REMEMBERED)
        self._open: dict[Hashable, list[_Made]] = {}
        self._due: list[tuple[float, int, _Made]] = []
        self._n = 0

    def add(
        self, job: Hashable, made: float, quantiles: Iterable[float], job_type: str, median: float, curve: F8
    ) -> None:
        """A forecast was made: seconds from `made`. `median` is that of the runs before correction, which names the group."""
        low, _, high = map(float, quantiles)
        one = _Made(job, made, job_type, band_of(median), curve, low, high)
        self._open.setdefault(job, []).append(one)
        self._recent.append(one)
        if high < np.inf:
            self._n += 1
            heapq.heappush(self._due, (made + high, self._n, one))

    def remember(self, made: float, wait: float, job_type: str, median: float, curve: F8) -> None:
        """A forecast of an earlier process has come to its end, and counts in the coverage already."""
        self._recent.append(_Made(None, made, job_type, band_of(median), curve=curve, wait=wait, done=True))

    def correction(self, now: float) -> Correction:
        """Return the correction as it is at `now`: jobs that still wait teach that they start later than `now`."""
        known = [one for one in self._recent if one.wait is not None or not one.done]
        waits = np.array([now - one.made if one.wait is None else one.wait for one in known])
        levels = levels_of(np.array([one.curve for one in known]).reshape(-1, len(GRID)), waits)
        censored = np.array([one.wait is None for one in known], np.bool_)
        kinds, bands = [one.type for one in known], np.array([one.band for one in known], np.int64)
        return Correction(levels, censored, kinds, bands)

    def advance(self, now: float) -> None:
        """Time has passed: intervals that end before `now` have not held for jobs that still wait."""
        while self._due and self._due[0][0] < now:
            one = heapq.heappop(self._due)[2]
            if not one.done and not one.told:
                one.told = True
                self._tell(one, inside=False)

    def started(self, job: Hashable, when: float) -> None:
        """A job has started."""
        self.advance(when)
        for one in self._open.pop(job, []):
            one.done = True
            one.wait = when - one.made
            if not one.told:
                self._tell(one, inside=one.wait >= one.low)

    def _tell(self, one: _Made, *, inside: bool) -> None:
        self.outcomes.append(ForecastOutcome(one.type, one.band, inside))

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
        """Return outcomes as plain data; forecasts are left out."""
        return {
            "outcomes": [list(one) for one in self.outcomes],
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
        made.at_once, made.unanswered = int(values.get("at_once", 0)), int(values.get("unanswered", 0))
        return made

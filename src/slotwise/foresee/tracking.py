"""Forecasts that were made: what became of them, how often they held, and what the correction learns from it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slotwise.foresee.correction import BANDS, LEVELS, Correction, Key, band_of, keys_of

REMEMBERED = 2_000  # outcomes from which coverage is told


class Outcome(NamedTuple):
    """A forecast whose job has started, or has been waiting past its 90 % quantile."""

    type: str
    band: int
    inside: bool
    """whether the start lay between the 10 % and the 90 % quantile"""


class Coverage(NamedTuple):
    """How often intervals held."""

    coverage: float | None
    of: int


@dataclass(slots=True)
class _Made:
    job: Hashable
    made: float
    quantiles: tuple[float, ...]
    keys: tuple[Key, ...]
    type: str
    band: int
    known: list[bool] = field(default_factory=lambda: [False] * len(LEVELS))
    done: bool = False


class Tracker:
    """Open forecasts and the outcomes of those that are not."""

    def __init__(self, correction: Correction | None = None) -> None:
        self.correction = correction or Correction()
        self.outcomes: deque[Outcome] = deque(maxlen=REMEMBERED)
        self.at_once = self.unanswered = 0
        self._open: dict[Hashable, list[_Made]] = {}
        self._due: list[tuple[float, int, int, _Made]] = []
        self._n = 0

    def add(self, job: Hashable, made: float, quantiles: Iterable[float], job_type: str, median: float) -> None:
        """A forecast was made: seconds from `made`. `median` is that of the runs before correction, which names the group."""
        one = _Made(job, made, tuple(map(float, quantiles)), keys_of(job_type, median), job_type, band_of(median))
        self._open.setdefault(job, []).append(one)
        for level, wait in enumerate(one.quantiles):
            if wait < float("inf"):
                self._n += 1
                heapq.heappush(self._due, (made + wait, self._n, level, one))

    def advance(self, now: float) -> None:
        """Time has passed: quantiles that lie before `now` were too early for jobs that still wait."""
        while self._due and self._due[0][0] < now:
            _, _, level, one = heapq.heappop(self._due)
            if one.done or one.known[level]:
                continue
            one.known[level] = True
            self.correction.learn(level, one.keys, later=True)
            if level == len(LEVELS) - 1:
                self.outcomes.append(Outcome(one.type, one.band, False))

    def started(self, job: Hashable, when: float) -> list[_Made]:
        """A job has started; return its forecasts."""
        self.advance(when)
        made = self._open.pop(job, [])
        for one in made:
            one.done = True
            for level in range(len(LEVELS)):
                if not one.known[level]:
                    self.correction.learn(level, one.keys, later=False)
            if not one.known[-1]:
                self.outcomes.append(
                    Outcome(one.type, one.band, one.known[0] or one.quantiles[0] <= when - one.made)
                )
        return made

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
        """Return what was learnt as plain data; open forecasts are left out."""
        return {
            "correction": self.correction.to_dict(),
            "outcomes": [list(one) for one in self.outcomes],
            "at_once": self.at_once,
            "unanswered": self.unanswered,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Tracker:
        """Read what `to_dict` made."""
        made = cls(Correction.from_dict(values.get("correction", {})))
        made.outcomes.extend(Outcome(row[0], int(row[1]), bool(row[2])) for row in values.get("outcomes", ()))
        made.at_once, made.unanswered = int(values.get("at_once", 0)), int(values.get("unanswered", 0))
        return made

"""What will arrive: stretches of the past, taken from the same time of the day and, more often, of the week.

A stretch keeps what belongs together: bursts, sessions of one submitter, which types come at which hour, how long their jobs run. The future is
composed of stretches of at most a day, each drawn anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from slotwise.foresee.history import F8, I8, History
from slotwise.foresee.services import ServiceTimes

DAY = 86_400.0  # seconds
OTHER_WEEKDAY = 0.4  # weight of a day that is not whole weeks ago, in comparison with one that is
MEMORY = 21.0  # days after which a day of the past counts 1/e
SHORT = (
    0.01  # days of history below which a time of the day means nothing, and many short stretches are drawn at once
)
BLOCK = 1024  # stretches drawn at once: one by one, 50,000 stretches of a second took as many milliseconds for each of the runs


class Arrivals(NamedTuple):
    """Jobs to come, in order; times count from now."""

    time: F8
    row: I8
    """of the history: the job that each is a copy of"""
    duration: F8
    until: float
    """how far they reach"""


class Past:
    """Arrivals as observed in a history; `day` is the length of a day in the history's unit of time."""

    def __init__(self, history: History, now: float, services: ServiceTimes, day: float = DAY) -> None:
        self._history, self._services, self._now, self._day = history, services, now, day
        self._since = float(history.submitted[0]) if len(history) else now
        self.span = now - self._since
        self._known = np.where(history.completed, history.ended - history.started, np.nan)
        began = ~np.isnan(history.started)
        until = np.where(np.isnan(history.ended), now, history.ended)
        self._age = np.where(began, until - history.started, 0.0)
        self._pools = (
            services.pools_of(history.owner, history.type, history.limit, history.submitted)
            if services.n_exact
            else np.zeros((len(history), 1), np.int64)
        )

    def draw(self, horizon: float, rng: Generator, rate: F8 | None = None, most: float = np.inf) -> Arrivals:
        """Draw the arrivals of the next `horizon` units of time, or of less once there are more than `most`. `rate`: a factor for each type of the history."""
        times: list[F8] = []
        rows: list[I8] = []
        at, drawn = 0.0, 0
        while at < horizon and len(self._history) and drawn <= most:
            length = self._length()
            steps = np.arange(self._at_once((horizon - at) / length, most - drawn), dtype=np.float64)
            begins: F8 = np.asarray(at + length * steps, np.float64)
            lengths: F8 = np.minimum(length, horizon - begins)
            shift = self._shifts(begins, lengths, rng)
            past = self._now + begins - shift
            first, last = np.searchsorted(self._history.submitted, [past, past + lengths])
            count = last - first
            row = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
            times.append(self._history.submitted[row] + np.repeat(shift, count) - self._now)
            rows.append(row)
            at = float(begins[-1] + lengths[-1])
            drawn += len(row)
        time = np.concatenate(times) if times else np.zeros(0)
        row = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        if rate is not None:
            time, row = _thinned(time, row, rate[self._history.type[row]], rng)
        return Arrivals(time, row, self._durations(row, rng), at if len(self._history) else horizon)

    def _length(self) -> float:
        """Return the length of a stretch: a day, or a third of what is known."""
        return min(self._day, max(self.span / 3.0, 1e-6 * self._day))

    def _at_once(self, stretches: float, jobs: float) -> int:
        """Return how many stretches to draw at once, of those that are left, for about so many jobs."""
        if self.span >= SHORT * self._day:
            return 1
        return int(np.ceil(max(1.0, min(BLOCK, stretches, 3.0 * jobs / len(self._history)))))

    def _shifts(self, at: F8, length: F8, rng: Generator) -> F8:
        """Return how far in the past the stretches lie that stand for the times from `at` on."""
        if self.span >= SHORT * self._day:
            return np.array([self._shift(float(at[0]), float(length[0]), rng)])
        least = at + length
        return rng.uniform(least, np.maximum(least, self.span + at))

    def _shift(self, at: float, length: float, rng: Generator) -> float:
        """Return how far in the past the stretch lies that stands for the time from `at` on."""
        least = at + length
        days = np.arange(np.ceil(least / self._day - 1e-9), np.floor((self.span + at) / self._day + 1e-9) + 1)
        days = days[days >= 1]
        if len(days) == 0:
            return float(rng.uniform(least, max(least, self.span + at)))
        weight = np.where(days % 7 == 0, 1.0, OTHER_WEEKDAY) * np.exp(-(days - days[0]) / MEMORY)
        return float(rng.choice(days, p=weight / weight.sum())) * self._day

    def _durations(self, row: I8, rng: Generator) -> F8:
        """Return the durations of copies: as observed, or drawn for jobs whose duration is not known."""
        duration = self._known[row]
        open_ = np.flatnonzero(np.isnan(duration))
        if len(open_):
            which = row[open_]
            duration[open_] = self._services.draw(
                self._pools[which], self._age[which], self._history.limit[which], rng
            )
        return duration


def _thinned(time: F8, row: I8, factor: F8, rng: Generator) -> tuple[F8, I8]:
    """Repeat or leave out arrivals so that each comes `factor` times on average."""
    whole = np.floor(factor)
    times = (whole + (rng.random(len(row)) < factor - whole)).astype(np.int64)
    return np.repeat(time, times), np.repeat(row, times)

"""Runs of a situation into possible futures: durations drawn given the age, arrivals drawn from the past, decisions of the policy itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import default_rng

from slotwise.foresee.arrivals import DAY, Past
from slotwise.foresee.history import F8, I8, History
from slotwise.foresee.services import ServiceTimes
from slotwise.scheduling.situation import Situation
from slotwise.simulation.run.forward import Coming, Course, Forward

RUNS = 32  # runs ahead; their quantiles move by about 1 / RUNS
FAR = 28 * DAY  # seconds; a start later than this is given as "later"
# A run ends once so many jobs have come: with a queue that only grows, the last job of now would be waited for without end.
ARRIVALS_PER_JOB, MORE_ARRIVALS = 4, 5_000
KEPT_JOBS = 50_000  # newest jobs of the history that are looked at


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Runs of one situation."""

    jobs: list[Any]
    """the waiting jobs"""
    type: I8
    starts: F8
    """(runs, waiting jobs): seconds from now; infinite: later than the horizon"""
    running: list[Any]
    ends: F8
    """(runs, running jobs): seconds from now"""
    seconds: float
    """that the runs took"""


class Outlook:
    """All that runs from one situation have in common."""

    def __init__(
        self,
        situation: Situation,
        history: History,
        *,
        owners: Mapping[Any, int] | None = None,
        limits: Mapping[Any, float] | None = None,
        day: float = DAY,
    ) -> None:
        """`owners` and `limits` are those of the situation's jobs, by name."""
        self.situation, self.day = situation, day
        self.history = history.until(situation.now).last(KEPT_JOBS)
        self.services = ServiceTimes(self.history, situation.now)
        self.past = Past(self.history, situation.now, self.services, day)
        self.forward = Forward(situation)
        waiting, running = situation.waiting, situation.running
        self.jobs = [*waiting.job, *running.job]
        self.n_waiting = len(waiting.job)
        names = [one.name for one in situation.types]
        place = {name: at for at, name in enumerate(self.history.types)}
        own_type = np.array([place.get(name, len(place) + at) for at, name in enumerate(names)], np.int64)
        self.type = np.array([*waiting.type, *running.type], np.int64)
        self.history_type = own_type[self.type]
        self.owner = np.array([(owners or {}).get(job, -1) for job in self.jobs], np.int64)
        told = [
            *(waiting.duration or [None] * self.n_waiting),
            *(running.duration or [None] * len(running.job)),
        ]
        known = limits or {}
        self.limit = np.array(
            [_or_nan(known.get(job, expected)) for job, expected in zip(self.jobs, told, strict=True)]
        )
        self.age = np.concatenate([np.zeros(self.n_waiting), situation.now - np.array(running.started)])
        own = (self.owner, self.history_type, self.limit, np.array([*waiting.submitted, *running.submitted]))
        self.pools, self.batch = self.services.pools_of(*own), self.services.batches_of(*own)
        self._type_of_row = self.history.types_as(names)
        self._demand = _units(self.history, situation)
        self._true: F8 | None = None

    def know(self, durations: Mapping[Any, float]) -> None:
        """Use the true durations of the situation's jobs from now on, as an oracle would."""
        self._true = np.array([durations[job] for job in self.jobs])

    def durations(self, rng: np.random.Generator) -> F8:
        """Draw how long each job of the situation takes in all."""
        if self._true is not None:
            return self._true
        return self.services.draw(self.pools, self.age, self.limit, rng, self.batch)

    def coming(
        self, horizon: float, rng: np.random.Generator, rate: F8 | None = None, most: float = np.inf
    ) -> tuple[Coming, float]:
        """Draw what arrives, and how far that reaches: to the horizon, or until there are more than `most` arrivals."""
        drawn = self.past.draw(horizon, rng, rate, most)
        kinds = self._type_of_row[drawn.row]
        kept = kinds >= 0
        row = drawn.row[kept]
        limit = self.history.limit[row]
        coming = Coming(
            drawn.time[kept],
            kinds[kept],
            drawn.duration[kept],
            None if self._demand is None else self._demand[row],
            np.where(np.isnan(limit), drawn.duration[kept], limit),
            row,
        )
        return coming, min(horizon, drawn.until)

    def horizon(self) -> float:
        """Return a time by which the jobs of now should have started: several times the work that is there, over the cluster's size."""
        mean = self.services.mean
        if not np.isfinite(mean):
            return self.day
        rounds = 1.0 + len(self.jobs) / max(1, len(self.jobs) - self.n_waiting)
        return float(min(FAR / DAY * self.day, max(4.0 * mean * rounds, 0.25 * self.day)))

    def run(self, horizon: float, seed: int, watched: I8 | None = None) -> Course:
        """Make one run until the watched jobs have started; the same seed gives the same future."""
        rng = default_rng([seed, 30])
        durations = self.durations(rng)
        most = ARRIVALS_PER_JOB * len(self.jobs) + MORE_ARRIVALS
        coming, until = self.coming(horizon, rng, most=most)
        return self.forward.run(durations, coming, until, watched=watched)


def ensemble(
    outlook: Outlook,
    runs: int = RUNS,
    seed: int = 1,
    *,
    budget: float = float("inf"),
    watched: I8 | None = None,
) -> Ensemble:
    """Make runs, fewer where they take longer than the budget of seconds. `watched`: positions of the waiting jobs that matter (default: all)."""
    W, began = outlook.n_waiting, time.monotonic()
    which = np.arange(W) if watched is None else watched
    starts: list[F8] = []
    ends: list[F8] = []
    horizon = outlook.horizon()
    for n in range(runs):
        course = outlook.run(horizon, seed * 10_007 + n, watched=which)
        while (
            np.isnan(course.start[which]).any()
            and course.until >= horizon
            and horizon < FAR / DAY * outlook.day
            and time.monotonic() - began < budget
        ):
            horizon *= 4.0
            course = outlook.run(horizon, seed * 10_007 + n, watched=which)
        start = course.start[:W]
        starts.append(np.where(np.isnan(start), np.inf, np.maximum(start, 0.0)))
        ends.append(np.maximum(course.duration[W : len(outlook.jobs)] - outlook.age[W:], 0.0))
        if n >= 7 and time.monotonic() - began > budget:
            break
    return Ensemble(
        outlook.jobs[:W],
        outlook.type[:W],
        np.array(starts).reshape(len(starts), W),
        outlook.jobs[W:],
        np.array(ends).reshape(len(ends), -1),
        time.monotonic() - began,
    )


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _units(history: History, situation: Situation) -> I8 | None:
    """Return the history's demands in whole units of the situation."""
    if history.demand is None:
        return None
    scale = 10.0 ** np.array(situation.digits)
    return np.ceil(np.round(history.demand * scale, 6)).astype(np.int64)

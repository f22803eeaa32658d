"""Rates that change, without thinning: a process of constant rate, seen on a clock that runs faster and slower.

A profile m(t) >= 0 of period P is constant in steps and 1 on average; M(t) = int_0^t m is its integral. A process of
constant rate with points u_k becomes one of m(t) times that rate by t_k = M^-1(u_k). A Poisson process becomes the
Poisson process of that rate, with independent counts of mean lambda (M(b) - M(a)); a renewal process becomes one whose
gaps are independent on the clock M. Every point stays, and none is drawn in vain, so the streams of two profiles are as
akin as those of two rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotwise.model.rateprofile import RateProfile
from slotwise.model.scenario import Scenario
from slotwise.workloads.processes import ArrivalProcess

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RateRhythm:
    """m: step i goes from start[i] to start[i + 1], has the rate rate[i], and begins when the clock shows clock[i]."""

    period: float
    start: Floats
    """one more than there are steps; the last is the period"""
    rate: Floats
    clock: Floats
    """M at each of the starts; the last is the period too"""

    @classmethod
    def of(cls, profile: RateProfile, time_unit: str | None) -> RateRhythm:
        """Return the rhythm in a scenario's words, scaled to a mean of 1."""
        period = profile.span(time_unit)
        lengths = np.array(profile.lengths or (1.0,) * len(profile.rates))
        ends = np.cumsum(lengths)
        start = np.concatenate(([0.0], ends / ends[-1] * period))
        rates = np.array(profile.rates) / max(profile.rates)
        passed = np.concatenate(([0.0], np.cumsum(rates * lengths)))
        rate = rates * (ends[-1] / passed[-1])
        return cls(period, start, rate, passed / passed[-1] * period)

    def at(self, time: Floats) -> Floats:
        """Return m, the rate at some times as a multiple of the mean."""
        within = np.mod(time, self.period)
        return np.asarray(self.rate[np.searchsorted(self.start[1:-1], within, side="right")])

    def passed(self, time: Floats) -> Floats:
        """Return M, what the clock shows."""
        whole = np.floor(time / self.period)
        within = np.interp(time - whole * self.period, self.start, self.clock)
        return np.asarray(whole * self.period + within)

    def when(self, clock: Floats) -> Floats:
        """Return M^-1: the first time at which the clock shows as much, but never within a step of rate 0."""
        moving = np.flatnonzero(self.rate > 0)
        whole = np.floor(clock / self.period)
        shown = np.clip(clock - whole * self.period, 0.0, self.period)
        step = moving[np.searchsorted(self.clock[moving], shown, side="right") - 1]
        within = self.start[step] + (shown - self.clock[step]) / self.rate[step]
        # rounding must lead neither into the next step nor into the next period
        times = whole * self.period + np.minimum(within, self.start[step + 1])
        return np.asarray(np.minimum(times, (whole + 1.0) * self.period))


class Changing:
    """A process whose clock follows a rhythm."""

    def __init__(self, inner: ArrivalProcess, rhythm: RateRhythm) -> None:
        self._inner, self._rhythm = inner, rhythm

    def next(self, n: int) -> Floats:
        """Return the next n arrival times."""
        return self._rhythm.when(self._inner.next(n))


def rhythms_of(scenario: Scenario) -> list[RateRhythm | None]:
    """Return the rhythm of each type: its own, or else the workload's, or None if its rate does not change."""
    unit, common = scenario.time_unit, scenario.workload.profile
    found = [job_type.profile or common for job_type in scenario.types]
    made = {id(one): RateRhythm.of(one, unit) for one in found if one is not None}
    return [None if one is None else made[id(one)] for one in found]


def changing(
    arrivals: Sequence[ArrivalProcess | None], rhythms: Sequence[RateRhythm | None]
) -> list[ArrivalProcess | None]:
    """Return the same processes, each by its rhythm."""
    return [
        process if process is None or rhythm is None else Changing(process, rhythm)
        for process, rhythm in zip(arrivals, rhythms, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class RateSteps:
    """The rates of all types over one period, in steps within which none of them changes."""

    start: Floats
    """one more than there are steps"""
    rate: Floats
    """of each step and type, as a multiple of the type's mean rate"""


def steps_of(scenario: Scenario) -> RateSteps | None:
    """Return the steps of all rates, or None if no rate changes."""
    period = scenario.period
    if period is None:
        return None
    rhythms = rhythms_of(scenario)
    starts = [np.array([0.0, period])]
    for rhythm in {id(one): one for one in rhythms if one is not None}.values():
        times = round(period / rhythm.period)
        starts.append((np.arange(times)[:, None] * rhythm.period + rhythm.start[None, :-1]).ravel())
    start = np.unique(np.concatenate(starts))
    start = start[np.concatenate(([True], np.diff(start) > 1e-12 * period))]  # the same moment, rounded twice
    middle = (start[1:] + start[:-1]) / 2
    rate = [np.ones(len(middle)) if rhythm is None else rhythm.at(middle) for rhythm in rhythms]
    return RateSteps(start, np.stack(rate, axis=1))


def in_service(rate: Floats, start: Floats, mean_service: float) -> Floats:
    """Return the mean number n of jobs in service at the start of each step, for one type that arrives at `rate` in the
    steps, period after period. Each job starts at once and has an exponential service time: n' = rate - n /
    mean_service, and n is the same after a period."""
    keep = np.exp(-np.diff(start) / mean_service)
    gain = rate * mean_service * (1.0 - keep)
    level = 0.0
    for one, more in zip(keep, gain, strict=True):
        level = level * one + more
    lost = -np.expm1(-(start[-1] - start[0]) / mean_service)
    found = np.empty(len(rate))
    now = level / lost
    for i, (one, more) in enumerate(zip(keep, gain, strict=True)):
        found[i] = now
        now = now * one + more
    return found

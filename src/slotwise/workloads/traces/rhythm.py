"""The daily or weekly profile of a trace: how its rate of arrivals changes over the period, in equal steps.

The rate of a step is the number of arrivals in it, over all periods, divided by how long the trace was there to see it; then all are scaled to a mean of
1. Where the trace is on Unix time a day begins at midnight UTC and a week on Monday; else both begin with the first arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.model.rateprofile import MOST_STEPS, PERIODS
from slotwise.workloads.traces.schema import Trace

Floats = NDArray[np.float64]

UNIX = "Unix time"
MONDAY = 4 * 86_400.0  # 1970-01-01 was a Thursday
STEPS = {"day": 24, "week": 168}
DIGITS = 4  # of a rate that is written


@dataclass(frozen=True, eq=False)
class MeasuredProfile:
    """What was counted."""

    period: str
    begins: str
    """when the first step does, in words"""
    jobs: NDArray[np.int64]
    """in each step, over all periods"""
    seconds: Floats
    """how long the trace was there to see each step"""

    @property
    def rates(self) -> Floats:
        """Of each step, relative to their mean."""
        rate = self.jobs / self.seconds
        return np.asarray(rate / rate.mean())

    @property
    def toml(self) -> str:
        """To be put under [workload], or beside a type."""
        rates = ", ".join(f"{rate:.{DIGITS}g}" for rate in self.rates)
        return f'profile = {{ period = "{self.period}", rates = [{rates}] }}'

    def dict(self) -> dict[str, Any]:
        """Return plain values for programs."""
        return {
            "period": self.period,
            "begins": self.begins,
            "rates": [float(f"{rate:.{DIGITS}g}") for rate in self.rates],
            "jobs": self.jobs.tolist(),
            "periods_seen": float(self.seconds.sum() / PERIODS[self.period]),
        }


def measured_profile(trace: Trace, period: str = "day", steps: int | None = None) -> MeasuredProfile:
    """Measure the profile in `steps` equal steps, by default one an hour."""
    if period not in PERIODS:
        raise InputError(f"{period!r} is no period", where="--period", remedy=f"use one of: {', '.join(PERIODS)}")
    count = STEPS[period] if steps is None else steps
    if not 1 <= count <= MOST_STEPS:
        raise InputError(f"is {count}", where="--steps", remedy=f"use 1 to {MOST_STEPS:,}")
    length = PERIODS[period]
    if trace.span < length:
        raise InputError(
            f"spans {trace.span / 3600:.3g} h, less than a {period}",
            where=trace.name,
            remedy=f"a profile needs a trace of one {period} or more",
        )
    on_unix = trace.meta.clock == UNIX
    begin = trace.meta.origin - (MONDAY if period == "week" else 0.0) if on_unix else -float(trace.arrival[0])
    moments = trace.arrival + begin
    width = length / count
    step = np.minimum((np.mod(moments, length) / width).astype(np.int64), count - 1)
    jobs = np.bincount(step, minlength=count)
    seconds = _covered(float(moments[-1]), width, count) - _covered(float(moments[0]), width, count)
    begins = ("Monday, midnight UTC" if period == "week" else "midnight UTC") if on_unix else "the first arrival"
    return MeasuredProfile(period, begins, jobs, seconds)


def _covered(until: float, width: float, count: int) -> Floats:
    """Return how long each step was there from 0 to `until`."""
    whole, rest = divmod(until, width * count)
    return np.asarray(whole * width + np.clip(rest - width * np.arange(count), 0.0, width))

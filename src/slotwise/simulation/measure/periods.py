"""Runs of a workload whose rates rise and fall, period after period: how long they are, what the queue does within a period, and how to
judge it.

A run whose length is left open is a whole number of periods, warm-up and measured part alike: part of one would count
the busy hours too often or too rarely. The queue follows the rates, so it has no single level. It is judged without its
rhythm: each sample has the mean of its phase, the part of the period it is from, replaced by the mean of all phases.
Means are over all replications. A queue that grows from period to period still grows then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.display.numbers import number
from slotwise.errors import InputError
from slotwise.model import with_unit
from slotwise.simulation.measure.measurements import Measurements

Floats = NDArray[np.float64]

LEAST_PERIODS = 8  # in a run, warm-up included
MOST_EVENTS = 100_000_000  # in a run of so many periods
PHASES = 24
# samples are taken at times of which no number makes whole periods, so that every phase is seen
ODD = 1.2360679


class Length(NamedTuple):
    """Of a run: when it ends, and how much of it is warm-up."""

    until: float
    warm: float


def whole_periods(period: float, rate: float, events: int, warmup: float) -> Length:
    """Return a length of at least so many events, and so many periods."""
    if 2 * rate * period * LEAST_PERIODS > MOST_EVENTS:
        raise InputError(
            f"{LEAST_PERIODS} periods are {2 * rate * period * LEAST_PERIODS:,.0f} events: too long to run unasked",
            where="run",
            remedy="set run.until, or scale rates and servers down",
        )
    periods = max(LEAST_PERIODS, math.ceil(events / (2 * rate * period)))
    return Length(periods * period, math.ceil(warmup * periods) * period)


def _phases(run: Measurements, period: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each sample its phase, and whether it is after the warm-up."""
    times = run.series[:, 0]
    phase = np.minimum((np.mod(times, period) / period * PHASES).astype(np.int64), PHASES - 1)
    return phase, times >= run.ended - run.measured


def _means(runs: Sequence[Measurements], period: float) -> tuple[Floats, NDArray[np.int64]]:
    """Return for each phase the mean of each column over the measured samples of all runs, and the number of
    samples."""
    columns = runs[0].series.shape[1]
    sums, counts = np.zeros((PHASES, columns)), np.zeros(PHASES, np.int64)
    for run in runs:
        phase, measured = _phases(run, period)
        np.add.at(sums, phase[measured], run.series[measured])
        counts += np.bincount(phase[measured], minlength=PHASES)
    return sums / np.maximum(counts, 1)[:, None], counts


def without_rhythm(runs: Sequence[Measurements], period: float | None) -> Sequence[Measurements]:
    """Return the runs with the rhythm taken out of their samples. If rates do not change, return the runs as they
    are."""
    if period is None:
        return runs
    means, counts = _means(runs, period)
    seen = counts > 0
    level = means[seen].mean(axis=0) if seen.any() else means.mean(axis=0)
    change = np.where(seen[:, None], level - means, 0.0)
    change[:, 0] = 0.0  # the times stay
    return [replace(run, series=run.series + change[_phases(run, period)[0]]) for run in runs]


@dataclass(frozen=True)
class QueueOverPeriod:
    """The mean queue of each phase of the period, from samples."""

    period: float
    mean: tuple[float, ...]
    """nan where there was no sample"""

    @property
    def peak(self) -> float:
        """The longest of them."""
        return float(np.nanmax(self.mean)) if not np.isnan(self.mean).all() else 0.0

    @property
    def when(self) -> tuple[float, float]:
        """From when to when, within the period, the queue is longest."""
        at = int(np.nanargmax(self.mean)) if not np.isnan(self.mean).all() else 0
        return at * self.period / len(self.mean), (at + 1) * self.period / len(self.mean)

    def in_words(self, time_unit: str | None) -> str:
        """Return how long the queue is when it is longest."""
        start, end = self.when
        between = f"from {start:.4g} to {end:.4g} of each {with_unit(f'{self.period:g}', time_unit)}"
        return f"the queue is longest {between}, {number(self.peak)} jobs on average"

    def as_dict(self) -> dict[str, object]:
        """Return plain values for programs."""
        return {
            "period": self.period,
            "peak": self.peak,
            "peak_between": list(self.when),
            "phases": list(self.mean),
        }


def queue_over_period(runs: Sequence[Measurements], period: float | None) -> QueueOverPeriod | None:
    """Return the queue over a period, or None if rates do not change."""
    if period is None or not runs:
        return None
    means, counts = _means(runs, period)
    return QueueOverPeriod(period, tuple(np.where(counts > 0, means[:, 1], np.nan).tolist()))

"""Where the load lies when it is highest, of rates that rise and fall.

The long run is decided by the mean: queues stay bounded if the mean load is inside the capacity region, whatever happens in the busy hours. How
long they grow before that is decided by the peak, of which there are two figures:

- of the rates: the intensity if the busiest step went on for ever;
- of the jobs in service: the intensity of the mean number in service if every job started at once, with exponential service times. Jobs that
  last longer than the steps smooth the rates out, so it is lower and later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slotwise.model import Scenario
from slotwise.region.pricing import Vector
from slotwise.region.ray import Columns
from slotwise.region.region import locate
from slotwise.workloads.timechange import in_service, steps_of


@dataclass(frozen=True)
class Peak:
    """Intensities at the worst of times."""

    period: float
    rates: float
    """of the busiest step"""
    start: float
    end: float
    """of that step, within the period"""
    in_service: float
    """of the jobs that would be in service when most are"""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for programs."""
        return {
            "period": self.period,
            "intensity": self.rates,
            "between": [self.start, self.end],
            "intensity_in_service": self.in_service,
        }


def peak_of(scenario: Scenario, rates: Vector, columns: Columns) -> Peak | None:
    """Return the peak, or None if rates do not change. `rates` are their means."""
    steps = steps_of(scenario)
    if steps is None or scenario.period is None:
        return None
    means = np.array([job_type.mean_service for job_type in scenario.types])
    by_step = steps.rate * (rates * means)
    within = np.stack(
        [in_service(by_step[:, j] / means[j], steps.start, means[j]) for j in range(len(means))], axis=1
    )
    found = _intensities(by_step, columns)
    busiest = int(np.argmax(found))
    return Peak(
        scenario.period,
        float(found[busiest]),
        float(steps.start[busiest]),
        float(steps.start[busiest + 1]),
        float(_intensities(within, columns).max()),
    )


def _intensities(loads: Vector, columns: Columns) -> Vector:
    """Return the intensity of each row. Rows that are multiples of one another need one linear program."""
    size = loads.sum(axis=1, keepdims=True)
    shape = np.round(loads / np.where(size > 0, size, 1.0), 12)
    kinds, which = np.unique(shape, axis=0, return_inverse=True)
    of_kind = np.array([locate(kind, columns).intensity if kind.any() else 0.0 for kind in kinds])
    return np.asarray(size[:, 0] * of_kind[which.reshape(-1)])

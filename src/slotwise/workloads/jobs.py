"""What arrives in a scenario, made ready for the simulator: types, sizes, rates, and a way to open the stream of jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from slotwise.model import Integers, JobType, Scenario, integers
from slotwise.workloads.source import Chunk, JobSource, open_source


@dataclass(frozen=True, eq=False)
class Jobs:
    """A workload. `open` gives the same jobs for the same seed, whatever the policy and the servers."""

    types: tuple[JobType, ...]
    sizes: Integers
    rates: NDArray[np.float64]
    """arrivals of each type per unit time (of a trace: on average)"""
    mean_service: NDArray[np.float64]
    open: Callable[[SeedSequence], JobSource]
    alike: bool = True
    """every job asks for just what its type does"""
    typed: str = ""
    """of a trace: how many types there are, and what they waste"""
    has_estimates: bool = False
    """users have said how long their jobs will run"""
    count: int | None = None
    """how many jobs there are; None where there is no end"""
    running: int = 0
    """how many of them, the first, run when a trace begins; they are drawn anew for each seed"""
    period: float | None = None
    """the time after which all rates are the same again; None if they do not change or the period is not known"""

    def listed(self) -> Chunk:
        """Return all jobs of a trace, without those that ran before it began."""
        whole = self.open(SeedSequence(0)).next(max(1, self.count or 1))
        demand = whole.demand if whole.demand is not None else self.sizes.demand[whole.job_type]
        own = slice(self.running, None)
        return Chunk(whole.time[own], whole.job_type[own], whole.duration[own], demand[own])

    @property
    def rate(self) -> float:
        """Arrivals per unit time."""
        return float(self.rates.sum())

    @property
    def mean_in_service(self) -> float:
        """sum rho_j: the mean number of jobs in service in a stable run (Little)."""
        return float(self.rates @ self.mean_service)

    @property
    def longest_service(self) -> float:
        """The longest mean service time of a type that arrives."""
        return float(self.mean_service[self.rates > 0].max(initial=0.0))

    @property
    def typical_service(self) -> float:
        """The mean service time over all jobs."""
        return self.mean_in_service / self.rate if self.rate > 0 else 1.0


@dataclass(frozen=True)
class _FromLaws:
    """Opens the stream of a scenario's laws; a class, so that it can be sent to other processes."""

    scenario: Scenario
    rates: NDArray[np.float64]

    def __call__(self, seed: SeedSequence) -> JobSource:
        return open_source(self.scenario, self.rates, seed)


def jobs_from_laws(scenario: Scenario, rates: NDArray[np.float64]) -> Jobs:
    """Return the workload of a scenario with rates and laws; `rates` after any scaling to an intensity."""
    return Jobs(
        types=scenario.types,
        sizes=integers(scenario.cluster, scenario.types),
        rates=rates,
        mean_service=np.array([job_type.mean_service for job_type in scenario.types]),
        open=_FromLaws(scenario, rates),
        period=scenario.period,
    )

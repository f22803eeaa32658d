"""Bound (c) for a run of a trace: SRPT on one fast server, by what the jobs really ask for.

With a price y_r >= 0 on each resource, a job is worth w_i = y.d_i. All servers together hold W = y.(total capacity) at
most, however any policy packs them. So N(t) >= N_srpt(t) for every policy (see `srpt`), and

    mean Q  =  mean N - mean in service  >=  mean N_srpt - mean in service,

with the mean number in service of the very run that is bounded (Little's law makes it much the same for all policies
that keep up). Each resource alone, and all together by their share of the load, are tried as prices.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from slotwise.model import Scenario
from slotwise.theory.bounds import Bound, changes_of
from slotwise.theory.srpt import srpt_area
from slotwise.workloads.jobs import Jobs

MOST_JOBS = 1_500_000  # Longer traces take more than about a second for each price, and go without.


class Measured(Protocol):
    """What is needed of a run."""

    @property
    def ended(self) -> float: ...
    @property
    def measured(self) -> float: ...
    @property
    def in_service(self) -> float: ...


class TraceBound:
    """Bounds for runs of one trace on one cluster; runs over the same stretch of time share the work."""

    def __init__(self, scenario: Scenario, jobs: Jobs) -> None:
        self.reason = _obstacle(scenario, jobs)
        self._in_system: dict[tuple[float, float], float] = {}
        if self.reason:
            return
        chunk = jobs.listed()
        counts = np.array([server.count for server in scenario.cluster.servers])
        capacity = (counts @ jobs.sizes.capacity).astype(np.float64)
        assert chunk.demand is not None
        there = capacity > 0
        share = chunk.demand[:, there] / capacity[there]  # of the whole cluster, so that W = 1 for each resource
        load = chunk.duration @ share
        prices = [share[:, r] for r in range(share.shape[1])]
        if len(prices) > 1 and load.sum() > 0:
            prices.append(share @ (load / load.sum()))
        self._arrival = chunk.time
        self._works = [price * chunk.duration for price in prices]

    def of(self, runs: list[Measured]) -> Bound:
        """Return a lower bound on the mean over these runs of their mean queues."""
        if self.reason:
            return Bound(0.0, "none", (self.reason,))
        bounds = [
            max(0.0, self._mean_in_system(run.ended - run.measured, run.ended) - run.in_service) for run in runs
        ]
        told = (
            "path by path on this very trace, for every policy, also one that knows service times",
            "with as many jobs in service as were measured here",
        )
        return Bound(float(np.mean(bounds)), "srpt", told)

    def _mean_in_system(self, start: float, end: float) -> float:
        if not end > start:
            return 0.0
        if (start, end) not in self._in_system:
            area = max(srpt_area(self._arrival, work, 1.0, start, end) for work in self._works)
            self._in_system[start, end] = area / (end - start)
        return self._in_system[start, end]


def _obstacle(scenario: Scenario, jobs: Jobs) -> str:
    """Return why there is no bound, or nothing."""
    if any(server.feasible is not None for server in scenario.cluster.servers):
        return "what fits is not a matter of adding up demands"
    if jobs.count is None or jobs.count > MOST_JOBS:
        return f"more than {MOST_JOBS:,} jobs: the bound would take longer than the run"
    if jobs.running:
        return "the jobs that run at the start differ from run to run"
    return changes_of(scenario)

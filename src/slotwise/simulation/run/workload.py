"""The jobs of a scenario, whichever way they are given: rates and laws, scaled to an intensity where asked, or a trace."""

from __future__ import annotations

import numpy as np

from slotwise.model import Scenario
from slotwise.region.ray import Columns
from slotwise.theory.load import scaled_rates
from slotwise.workloads.jobs import Jobs, jobs_from_laws
from slotwise.workloads.window import JobsAtStart, in_words, window_of


def jobs_of(scenario: Scenario, columns: Columns | None = None) -> Jobs:
    """Return the jobs that arrive. `columns` is the cluster as the linear program of its capacity region sees it;
    it learns from this."""
    if scenario.workload.trace is not None:
        from slotwise.workloads.tracejobs import jobs_from_trace  # with Polars, slow to import

        return jobs_from_trace(scenario)
    return jobs_from_laws(scenario, scaled_rates(scenario, columns))


def window_words(scenario: Scenario, source: Jobs | None = None) -> str:
    """Return what a trace offers, and what a run sees of it, as multiples of all servers. For other workloads
    return nothing.

    `source`: the jobs of the scenario where they are known; otherwise the trace is read."""
    if scenario.workload.trace is None:
        return ""
    jobs = source or jobs_of(scenario)
    chunk = jobs.listed()
    assert chunk.demand is not None
    first = jobs.open(np.random.SeedSequence(0)).next(jobs.running) if jobs.running else None
    running = (
        JobsAtStart(first.duration, first.demand.astype(np.float64)) if first and first.demand is not None else None
    )
    seen = window_of(chunk.time, chunk.duration, chunk.demand.astype(np.float64), running)
    counts = np.array([server.count for server in scenario.cluster.servers])
    rounded = jobs.rates * jobs.mean_service @ jobs.sizes.demand
    return "" if seen is None else in_words(seen, (counts @ jobs.sizes.capacity).astype(np.float64), rounded)

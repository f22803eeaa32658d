"""The jobs of a scenario, whichever way they are given: rates and laws, scaled to an intensity where asked, or a trace."""

from __future__ import annotations

from slotwise.model import Scenario
from slotwise.theory.load import scaled_rates
from slotwise.workloads.jobs import Jobs, jobs_from_laws


def jobs_of(scenario: Scenario) -> Jobs:
    """What arrives."""
    if scenario.workload.trace is not None:
        from slotwise.workloads.tracejobs import jobs_from_trace  # with Polars, slow to import

        return jobs_from_trace(scenario)
    return jobs_from_laws(scenario, scaled_rates(scenario))

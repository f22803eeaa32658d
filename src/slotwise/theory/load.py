"""The load of a scenario: rho_j = lambda_j / mu_j, the mean number of type-j jobs in service; its place in C."""

from __future__ import annotations

import numpy as np

from slotwise.errors import InputError
from slotwise.model import Scenario, integers
from slotwise.packing import spaces_of
from slotwise.region.pricing import Vector, pricing_of
from slotwise.region.ray import Columns
from slotwise.region.region import Region, locate
from slotwise.workloads.laws import effective_rates


def with_load(scenario: Scenario) -> Scenario:
    """Return the scenario. A trace's scenario gets the types that were made of it, with their rates and mean
    service times as measured."""
    if scenario.workload.trace is None or scenario.types:
        return scenario
    from slotwise.workloads.tracejobs import jobs_from_trace  # with Polars, slow to import

    return scenario.model_copy(update={"types": jobs_from_trace(scenario).types})


def actual_load(scenario: Scenario) -> dict[str, float]:
    """Return the mean demand of the jobs of a trace, as a share of the cluster's capacity of each resource."""
    from slotwise.workloads.tracejobs import jobs_from_trace

    jobs = jobs_from_trace(scenario)
    chunk = jobs.listed()
    assert chunk.demand is not None
    whole = np.array([server.count for server in scenario.cluster.servers]) @ jobs.sizes.capacity
    busy = (
        chunk.duration @ chunk.demand * (jobs.rate / len(chunk))
    )  # mean in use, in the integer units of the sizes
    return {
        name: float(busy[r] / whole[r]) if whole[r] else 0.0 if busy[r] == 0 else np.inf
        for r, name in enumerate(scenario.cluster.resources)
    }


def columns_of(scenario: Scenario) -> Columns:
    """Return the cluster as the linear program sees it: classes, how many servers each, and what they can hold."""
    if not scenario.types:
        raise InputError(
            "a trace has no rates to take its load from",
            where="workload.trace",
            remedy="give job types with rates, or measure the load of the trace first (with_load)",
        )
    servers = scenario.cluster.servers
    pricings = [pricing_of(space) for space in spaces_of(servers, integers(scenario.cluster, scenario.types))]
    return Columns(pricings, [server.count for server in servers])


def scaled_rates(scenario: Scenario, columns: Columns | None = None) -> Vector:
    """Return lambda_j, arrivals of type j per unit time: as given, or scaled to lie on the boundary of intensity * C."""
    rates = effective_rates(scenario)
    if scenario.workload.intensity is None:
        return rates
    relative = locate(rates * _means(scenario), columns or columns_of(scenario))
    if not np.isfinite(relative.intensity):
        j = int(np.argmax(relative.prices))
        raise InputError(
            "fits no server that is there"
            + (" and meets its requirements" if scenario.types[j].requires else "")
            + ", so no rate can be carried",
            where=f"types[{j}] ({scenario.types[j].name})",
            remedy="add servers that can hold it, or give it rate 0",
        )
    return rates * (scenario.workload.intensity / relative.intensity)


def load_of(scenario: Scenario, columns: Columns | None = None) -> Vector:
    """Return rho_j = lambda_j / mu_j, after any scaling to an intensity."""
    return scaled_rates(scenario, columns) * _means(scenario)


def region_of(scenario: Scenario) -> Region:
    """Return where the scenario's load lies in the capacity region of its cluster."""
    return rates_and_region(scenario)[1]


def rates_and_region(scenario: Scenario, columns: Columns | None = None) -> tuple[Vector, Region]:
    """Return lambda_j and the place of the load in the capacity region, from one linear program where `columns` are known."""
    known = columns_of(scenario) if columns is None else columns
    rates = scaled_rates(scenario, known)
    return rates, locate(rates * _means(scenario), known)


def _means(scenario: Scenario) -> Vector:
    return np.array([job_type.mean_service for job_type in scenario.types])

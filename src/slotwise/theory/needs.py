"""What proofs need of a cluster and its load, checked one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slotwise.core.contract.claims import Assumption, Need
from slotwise.model import Scenario
from slotwise.model.laws import BatchArrivals
from slotwise.region.pricing import Vector
from slotwise.region.region import Region
from slotwise.theory.bounds import changes_of
from slotwise.workloads.laws import arrival_law, is_exponential, is_hyperexponential, is_poisson, service_law


@dataclass(frozen=True)
class Case:
    """This load on this cluster; `rates` and `region` are those of the load (`scaled_rates`, `region_of`)."""

    scenario: Scenario
    rates: Vector
    region: Region

    @property
    def busy(self) -> list[int]:
        """The types that arrive."""
        return [int(j) for j in np.flatnonzero(self.rates > 0)]


def check(need: Need, case: Case) -> Assumption:
    """Check whether the case is as the proof needs it."""
    return CHECKS[need](case)


def _servers_stay(case: Case) -> Assumption:
    changing = changes_of(case.scenario)
    drains = any(event.action == "drain" for event in case.scenario.cluster.events)
    detail = changing or ("servers drain during the run" if drains else "")
    return Assumption("the servers stay the same", not detail, detail)


def _poisson(case: Case) -> Assumption:
    text = "Poisson arrivals, one by one or in bounded batches"
    if case.scenario.workload.trace is not None:
        return Assumption(text, False, "a trace is what it is; on average the load is inside the region")
    if case.scenario.period is not None:
        return Assumption(text, False, "rates change over time; on average the load is inside the region")
    if isinstance(case.scenario.workload.arrivals, BatchArrivals):
        return Assumption(text, True, "batches (corollary 2)")
    return _all_types(case, text, lambda j: is_poisson(arrival_law(case.scenario, j)), "arrives as", arrival_law)


def _hyperexponential(case: Case) -> Assumption:
    text = "exponential or hyper-exponential service times"
    if case.scenario.workload.trace is not None:
        return Assumption(text, False, "a trace is what it is")
    return _all_types(case, text, lambda j: is_hyperexponential(service_law(case.scenario, j)), "has", service_law)


def _all_types(
    case: Case, text: str, holds: Callable[[int], bool], verb: str, law: Callable[[Scenario, int], Any]
) -> Assumption:
    for j in case.busy:
        if not holds(j):
            return Assumption(text, False, f"type {case.scenario.types[j].name} {verb} {law(case.scenario, j).law}")
    return Assumption(text, True)


def _equal_exponential(case: Case) -> Assumption:
    laws = [(service_law(case.scenario, j), case.scenario.types[j].mean_service) for j in case.busy]
    equal = all(is_exponential(law) for law, _ in laws) and len({mean for _, mean in laws}) == 1
    return Assumption("equal exponential service times", equal)


def _one_resource(case: Case) -> Assumption:
    n = len(case.scenario.cluster.resources)
    return Assumption("one resource", n == 1, f"{n} here")


def _alike_servers(case: Case) -> Assumption:
    columns = case.region.columns
    held = {tuple(columns.pricings[c].space.fitting.tolist()) for c in columns.classes}
    capacities = {server.capacity for server in case.scenario.cluster.servers if server.count > 0}
    detail = "some hold other types than others" if len(held) > 1 else ""
    return Assumption("alike servers, demands add up", len(capacities) == len(held) == 1 and _adds_up(case), detail)


def _additive(case: Case) -> Assumption:
    return Assumption("demands add up", _adds_up(case), "the policy packs by free room")


def _adds_up(case: Case) -> bool:
    return all(server.feasible is None for server in case.scenario.cluster.servers if server.count > 0)


def _every_type_arrives(case: Case) -> Assumption:
    silent = [case.scenario.types[j].name for j in range(len(case.rates)) if case.rates[j] == 0]
    detail = f"no {', '.join(silent)}: an empty server set up for it is never looked at again" if silent else ""
    return Assumption("every type arrives", not silent, detail)


CHECKS: dict[Need, Callable[[Case], Assumption]] = {
    Need.SERVERS_STAY: _servers_stay,
    Need.POISSON: _poisson,
    Need.HYPEREXPONENTIAL: _hyperexponential,
    Need.EQUAL_EXPONENTIAL: _equal_exponential,
    Need.ONE_RESOURCE: _one_resource,
    Need.ALIKE_SERVERS: _alike_servers,
    Need.ADDITIVE: _additive,
    Need.EVERY_TYPE_ARRIVES: _every_type_arrives,
}

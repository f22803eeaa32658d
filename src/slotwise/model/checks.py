"""What must hold between the keys of a scenario: each mistake has its own message, place and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slotwise.display.numbers import counted
from slotwise.errors import InputError
from slotwise.model.integers import integers
from slotwise.model.labels import in_words, unmet
from slotwise.model.laws import SMALLEST, BatchArrivals, MarkovModulated
from slotwise.model.quotas import check_quotas
from slotwise.model.rateprofile import is_whole
from slotwise.model.shares import check_shares
from slotwise.model.units import with_unit

if TYPE_CHECKING:
    from slotwise.model.scenario import Cluster, JobType, Scenario, ServerClass, Workload


def check(scenario: Scenario) -> None:
    """Raise InputError for the first thing in the scenario that cannot be meant."""
    check_cluster(scenario.cluster)
    if scenario.shares is not None:
        check_shares(scenario.shares)
    check_quotas(scenario.quotas, scenario.cluster.resources)
    if scenario.workload.trace is not None:
        _check_trace(scenario)
        return
    for key in _changed(scenario.workload, "typing", "time_scale", "start"):
        raise InputError("is for traces only", where=f"workload.{key}", remedy="remove it, or give workload.trace")
    if not scenario.types:
        raise InputError(
            "there are no job types", where="types", remedy="add a [[types]] table, or give workload.trace"
        )
    check_types(scenario.cluster, scenario.types)
    _check_rates(scenario)
    _check_intensity(scenario.workload.intensity)
    _check_profiles(scenario)
    _check_run(scenario)


def check_cluster(cluster: Cluster, *, may_be_empty: bool = False) -> None:
    """Check that names are unique, capacities have the right length, and there is at least one server, or servers
    may come later."""
    from slotwise.model.scenario import MOST_SERVERS  # which needs this module

    _unique(cluster.resources, "cluster.resources", "resource")
    _unique([server.name for server in cluster.servers], "cluster.servers", "server class")
    for name in cluster.units:
        if name not in cluster.resources:
            raise InputError(
                f"no resource is called {name!r}",
                where=f"cluster.units.{name}",
                remedy=f"use some of: {', '.join(cluster.resources)}",
            )
    for i, server in enumerate(cluster.servers):
        where = f"cluster.servers[{i}] ({server.name})"
        _one_per_resource(server.capacity, cluster.resources, f"{where}.capacity")
        if server.feasible is None and not any(server.capacity):
            raise InputError("a server without any capacity", where=f"{where}.capacity", remedy="give it some")
    joining = sum(event.count for event in cluster.events if event.action == "join")
    if cluster.n_servers + joining > MOST_SERVERS:
        raise InputError(
            f"there are {cluster.n_servers + joining:,} servers",
            where="cluster.servers",
            remedy=f"use {MOST_SERVERS:,} at most, in all classes together",
        )
    if cluster.n_servers + joining == 0 and not may_be_empty:
        raise InputError(
            "there are no servers", where="cluster.servers", remedy="give a class a count of 1 or more"
        )
    names = [server.name for server in cluster.servers]
    for i, event in enumerate(cluster.events):
        if event.servers not in names:
            raise InputError(
                f"no server class is called {event.servers!r}",
                where=f"cluster.events[{i}].servers",
                remedy=f"use one of: {', '.join(names)}",
            )
    _check_departures(cluster)


def _check_departures(cluster: Cluster) -> None:
    """Check that no more servers leave than there are."""
    left = {server.name: server.count for server in cluster.servers}
    for i, event in sorted(enumerate(cluster.events), key=lambda item: item[1].at):
        if event.action == "join":
            left[event.servers] += event.count
        elif event.count > left[event.servers]:
            raise InputError(
                f"{event.count} servers of {event.servers!r} leave at {event.at:g}, but there are {left[event.servers]}",
                where=f"cluster.events[{i}].count",
                remedy="lower it",
            )
        else:
            left[event.servers] -= event.count


def check_types(cluster: Cluster, types: Sequence[JobType]) -> None:
    """Check that names are unique, demands have the right length, and every type fits some server that meets its
    requirements."""
    _unique([job_type.name for job_type in types], "types", "type")
    for i, job_type in enumerate(types):
        where = f"types[{i}] ({job_type.name}).demand"
        _one_per_resource(job_type.demand, cluster.resources, where)
        matching = _matching(cluster, job_type, f"types[{i}] ({job_type.name}).requires")
        if any(server.feasible is not None for server in cluster.servers):
            continue  # a predicate may have its own idea; the packing layer checks it
        if not any(job_type.demand):
            raise InputError(
                "demands nothing, so any number would fit", where=where, remedy="give at least one size above 0"
            )
        if not any(_fits(job_type, server.capacity) for server in matching):
            short = _largest_shortfall(cluster, matching, job_type)
            which = " that meets its requirements" if job_type.requires else ""
            raise InputError(
                f"fits no server{which}: {short}", where=where, remedy="lower it, or add a larger server"
            )
    integers(cluster, types)  # refuses what cannot be kept exactly


def _matching(cluster: Cluster, job_type: JobType, where: str) -> list[ServerClass]:
    """Return the server classes that meet the requirements. There is at least one."""
    labels = sorted({key for server in cluster.servers for key in server.labels})
    for key, values in job_type.requires.items():
        there = sorted({server.labels[key] for server in cluster.servers if key in server.labels})
        if not there:
            near = difflib.get_close_matches(key, labels, 1)
            known = f"did you mean {near[0]}?" if near else f"use one of: {', '.join(labels)}"
            raise InputError(
                f"no server class has a label {key!r}",
                where=f"{where}.{key}",
                remedy=known if labels else "give a server class labels = { ... }",
            )
        if not set(values) & set(there):
            raise InputError(
                f"no server class has {in_words({key: values})}",
                where=f"{where}.{key}",
                remedy=f"use one of: {', '.join(there)}",
            )
    lacks = {server.name: unmet(job_type.requires, server.labels) for server in cluster.servers}
    matching = [server for server in cluster.servers if not lacks[server.name]]
    if not matching:
        nearest = min(lacks, key=lambda name: len(lacks[name]))
        missing = in_words({key: job_type.requires[key] for key in lacks[nearest]})
        raise InputError(
            f"no server class has all of {in_words(job_type.requires)}",
            where=where,
            remedy=f"require less, or label a class so (all that {nearest} lacks is {missing})",
        )
    return matching


def _fits(job_type: JobType, capacity: Sequence[object]) -> bool:
    return all(need <= have for need, have in zip(job_type.demand, capacity, strict=True))  # type: ignore[operator]


def _largest_shortfall(cluster: Cluster, servers: Sequence[ServerClass], job_type: JobType) -> str:
    for r, resource in enumerate(cluster.resources):
        most = max(server.capacity[r] for server in servers)
        if job_type.demand[r] > most:
            which = "largest such server" if job_type.requires else "largest server"
            asked = with_unit(f"{job_type.demand[r]}", cluster.units.get(resource))
            return f"it asks for {asked} of {resource}, the {which} has {most}"
    return "each resource fits some server, but no server has enough of all"


def _not_too_small(value: float | None, where: str) -> None:
    if value is not None and 0 < value < SMALLEST:
        raise InputError(f"is {value:g}", where=where, remedy=f"use another unit of time: {SMALLEST:g} or more")


def _check_rates(scenario: Scenario) -> None:
    arrivals = scenario.workload.arrivals
    if isinstance(arrivals, BatchArrivals):
        _check_batches(scenario, arrivals)
        return
    for i, job_type in enumerate(scenario.types):
        where = f"types[{i}] ({job_type.name})"
        if isinstance(job_type.arrivals, BatchArrivals):
            raise InputError(
                "batches bring several types, so they cannot belong to one",
                where=f"{where}.arrivals",
                remedy="move the law to workload.arrivals",
            )
        _not_too_small(job_type.rate, f"{where}.rate")
        _not_too_small(job_type.mean_service, f"{where}.mean_service")
        if job_type.rate is None:
            raise InputError(
                "has no rate",
                where=f"{where}.rate",
                remedy="give arrivals per unit time for the whole cluster (or relative, with workload.intensity)",
            )
    if not any(job_type.rate for job_type in scenario.types):
        raise InputError("all rates are 0, so nothing arrives", where="types", remedy="give some type a rate")


def _check_batches(scenario: Scenario, arrivals: BatchArrivals) -> None:
    names = [job_type.name for job_type in scenario.types]
    _not_too_small(arrivals.rate, "workload.arrivals.rate")
    for i, job_type in enumerate(scenario.types):
        _not_too_small(job_type.mean_service, f"types[{i}] ({job_type.name}).mean_service")
    for i, batch in enumerate(arrivals.batches):
        for name in batch.jobs:
            if name not in names:
                raise InputError(
                    f"no type is called {name!r}",
                    where=f"workload.arrivals.batches[{i}].jobs",
                    remedy=f"use one of: {', '.join(names)}",
                )
    if not any(count for batch in arrivals.batches for count in batch.jobs.values()):
        raise InputError(
            "every batch is empty, so nothing arrives", where="workload.arrivals.batches", remedy="give some jobs"
        )
    for i, job_type in enumerate(scenario.types):
        if job_type.rate is not None:
            raise InputError(
                "a rate beside batch arrivals",
                where=f"types[{i}] ({job_type.name}).rate",
                remedy="remove it: the batches say how many jobs arrive",
            )


def _check_intensity(intensity: float | None) -> None:
    if intensity is not None and intensity < SMALLEST:
        raise InputError(f"is {intensity:g}", where="workload.intensity", remedy=f"use {SMALLEST:g} or more")


def _check_profiles(scenario: Scenario) -> None:
    common = scenario.workload.profile
    given = {"workload.profile": common} | {
        f"types[{i}] ({job_type.name}).profile": job_type.profile for i, job_type in enumerate(scenario.types)
    }
    profiles = {where: one for where, one in given.items() if one is not None}
    for where, one in profiles.items():
        if scenario.time_unit is None and not isinstance(one.period, float):
            raise InputError(
                f"is a {one.period}, and the scenario does not say its unit of time",
                where=f"{where}.period",
                remedy='give time_unit = "h", say, at the top of the scenario, or a number',
            )
        ratio = (scenario.period or 1.0) / one.span(scenario.time_unit)
        if not is_whole(ratio):
            raise InputError(
                f"the longest period is {ratio:.6g} times this one",
                where=f"{where}.period",
                remedy="choose periods of which the longest holds every other a whole number of times",
            )
    for i, job_type in enumerate(scenario.types):
        law = job_type.arrivals or scenario.workload.arrivals
        if isinstance(law, MarkovModulated) and (job_type.profile or common):
            raise InputError(
                "a profile beside mmpp arrivals, whose chain says how rates change",
                where=f"types[{i}] ({job_type.name}).profile" if job_type.profile else "workload.profile",
                remedy="keep one of them",
            )
        if job_type.profile and isinstance(law, BatchArrivals):
            raise InputError(
                "batches bring several types, so one type cannot have its own",
                where=f"types[{i}] ({job_type.name}).profile",
                remedy="move it to workload.profile",
            )


def _check_trace(scenario: Scenario) -> None:
    if scenario.types:
        raise InputError(
            "types beside a trace", where="types", remedy="remove them: workload.typing makes types from the trace"
        )
    for key in _changed(scenario.workload, "arrivals", "service"):
        raise InputError(
            "a law beside a trace", where=f"workload.{key}", remedy="remove it: the trace says when and how long"
        )
    if scenario.workload.profile is not None:
        raise InputError(
            "a profile beside a trace", where="workload.profile", remedy="remove it: the trace says when jobs come"
        )
    if scenario.workload.intensity is not None:
        raise InputError(
            "a trace has its own load, so it cannot be scaled to an intensity",
            where="workload.intensity",
            remedy="remove it; change workload.time_scale or the number of servers instead",
        )
    if scenario.time_unit is not None and _changed(scenario.workload, "time_scale"):
        raise InputError(
            "is given beside time_unit",
            where="workload.time_scale",
            remedy=f"remove it: traces are in seconds, and {scenario.time_unit} says how many",
        )
    _check_run(scenario)


def _changed(workload: Workload, *keys: str) -> list[str]:
    """Return the keys that do not have their default values (a scenario that was written out has all keys)."""
    return [key for key in keys if getattr(workload, key) != type(workload).model_fields[key].default]


def _check_run(scenario: Scenario) -> None:
    ways = [key for key in ("events", "jobs", "until") if getattr(scenario.run, key) is not None]
    if len(ways) > 1:
        raise InputError(
            f"{' and '.join(ways)} are both given", where="run", remedy="keep one of events, jobs, until"
        )


def _unique(names: Sequence[str], where: str, kind: str) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError(
                f"two are called {name!r}", where=f"{where}[{i}]", remedy=f"give each {kind} its own name"
            )


def _one_per_resource(sizes: Sequence[object], resources: Sequence[str], where: str) -> None:
    if len(sizes) != len(resources):
        raise InputError(
            f"has {counted(len(sizes), 'size')} for {counted(len(resources), 'resource')}",
            where=where,
            remedy=f"give one size for each of: {', '.join(resources)}",
        )

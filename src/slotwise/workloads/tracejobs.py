"""The jobs of a trace as a workload: sorted into queue types, with what each really asks for beside its type's demand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from slotwise.errors import InputError, SlotwiseWarning
from slotwise.model import Cluster, JobType, Scenario, TypeMaking, integers
from slotwise.model.checks import check_types
from slotwise.workloads.fitting import treat_too_large
from slotwise.workloads.generators import azure_like, google_like
from slotwise.workloads.hpc import hpc_like
from slotwise.workloads.jobs import Jobs
from slotwise.workloads.laws import generator
from slotwise.workloads.source import JobSource, TraceSource
from slotwise.workloads.traces import Trace, read_trace
from slotwise.workloads.traces.schema import UNKNOWN_UNIT
from slotwise.workloads.typemaking import Typing, make_types
from slotwise.workloads.typenames import names_by_size
from slotwise.workloads.warmstart import drawn, how_many

DIGITS = 6  # Actual demands are kept to this many digits behind the point, rounded up.
TOO_LARGE = 'workload.typing.too_large = "drop" leaves them out, "cap" cuts them down'
GENERATED = {"google-like": google_like, "azure-like": azure_like, "hpc-like": hpc_like}


@dataclass(frozen=True, eq=False)
class _FromTrace:
    """Opens the same jobs for every seed; those that run at the start, if any, come first and are drawn."""

    time: NDArray[np.float64]
    job_type: NDArray[np.int64]
    duration: NDArray[np.float64]
    demand: NDArray[np.int64]
    running: int
    estimate: NDArray[np.float64] | None = None

    def __call__(self, seed: SeedSequence) -> JobSource:
        if not self.running:
            return TraceSource(self.time, self.job_type, self.duration, self.demand, self.estimate)
        rows, left = drawn(self.duration, self.job_type, self.running, generator(seed, 0))
        return TraceSource(
            np.concatenate([np.zeros(self.running), self.time]),
            np.concatenate([self.job_type[rows], self.job_type]),
            np.concatenate([left, self.duration]),
            np.concatenate([self.demand[rows], self.demand]),
            self._estimates(rows, left),
        )

    def _estimates(self, rows: NDArray[np.int64], left: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return what is left of the estimates of these jobs, which have so much left to run; then those of all."""
        if self.estimate is None:
            return None
        rest = np.maximum(self.estimate[rows] - (self.duration[rows] - left), 0.0)
        return np.concatenate([rest, self.estimate])


def jobs_from_trace(scenario: Scenario) -> Jobs:
    """Return the workload of a scenario that names a trace."""
    trace = open_trace(scenario.workload.trace or "", scenario.run.jobs, scenario.run.seed)
    workload = scenario.workload
    return jobs_of_trace(trace, scenario.cluster, workload.typing, scenario.seconds, warm=workload.start == "warm")


@lru_cache(maxsize=4)
def open_trace(name: str, jobs: int | None, seed: int) -> Trace:
    """Return a trace from a file, or a generated one: "google-like", "azure-like" or "hpc-like"."""
    if name in GENERATED:
        return GENERATED[name](jobs or 1_000_000, seed)
    return read_trace(name, columns=["estimate"])


def jobs_of_trace(
    trace: Trace, cluster: Cluster, typing: TypeMaking, time_scale: float = 1.0, *, warm: bool = False
) -> Jobs:
    """Sort the jobs into types for this cluster; a type's demand covers what each of its jobs asks for."""
    trace, largest = _resources_of(trace, cluster)
    room = _capacities(trace, cluster)
    if room:
        trace = treat_too_large(trace, room, typing.too_large, remedy=TOO_LARGE)
    made = _types_of(trace, typing, largest)
    if room and made.resources == trace.resources:
        made = made.fitting(trace, room)
    demand = _covers(made, cluster, largest)
    duration = trace.duration / time_scale
    counts = made.counts
    busy = np.bincount(made.type_of, weights=duration, minlength=len(made.names))
    span = max(trace.span / time_scale, 1e-300)
    types = tuple(
        JobType(
            name=name,
            demand=tuple(demand[j]),
            rate=float(counts[j] / span),
            mean_service=float(busy[j] / counts[j]) if counts[j] else 1.0,
        )
        for j, name in enumerate(_names(made, demand, trace, cluster, largest))
    )
    used = [job_type for job_type in types if job_type.rate]
    if room and typing.method == "power-of-two":
        _check_rounding(dict(zip(made.names, types, strict=True)), cluster)
    check_types(cluster, used)
    sizes = integers(cluster, types, DIGITS)
    running = how_many(duration, span) if warm else 0
    as_types = sizes.demand[made.type_of]
    actual = _actual(trace, cluster, sizes.digits, as_types, largest)
    return Jobs(
        types=types,
        sizes=sizes,
        rates=np.array([job_type.rate for job_type in types]),
        mean_service=np.array([job_type.mean_service for job_type in types]),
        open=_FromTrace(
            (trace.arrival - trace.arrival[0]) / time_scale,
            made.type_of.astype(np.int64),
            duration,
            actual,
            running,
            None if trace.estimate is None else trace.estimate / time_scale,
        ),
        has_estimates=trace.estimate is not None,
        alike=bool((actual == as_types).all()),
        typed=made.told,
        count=len(trace) + running,
        running=running,
    )


def _resources_of(trace: Trace, cluster: Cluster) -> tuple[Trace, dict[str, float]]:
    """Return the trace with the resources that servers have, and the most that any server has of each."""
    largest = {
        name: float(max(server.capacity[r] for server in cluster.servers))
        for r, name in enumerate(cluster.resources)
    }
    if cluster.resources == ("size",):
        largest = dict.fromkeys(trace.resources, largest["size"])
    else:
        unknown = [name for name in cluster.resources if name not in trace.resources]
        if unknown:
            raise InputError(
                f"the trace has no resource {unknown[0]!r}",
                where="cluster.resources",
                remedy=f"use some of: {', '.join(trace.resources)}, or one resource called size",
            )
        trace = trace.only(cluster.resources)  # what servers do not have costs nothing
        _compare_units(trace, cluster)
    return trace, largest


def _types_of(trace: Trace, typing: TypeMaking, largest: dict[str, float]) -> Typing:
    """Return the types of the jobs, made as the scenario says."""
    options: dict[str, Any] = {}
    if typing.method == "waste-bounded":
        options = {"types": typing.types, "waste": typing.waste}
    elif typing.method == "grid" and typing.types is not None:
        options["levels"] = typing.types
    return make_types(trace, typing.method, capacity=largest, **options)


def _compare_units(trace: Trace, cluster: Cluster) -> None:
    """Refuse demands in one unit beside servers in another."""
    for name, unit in cluster.units.items():
        theirs = trace.meta.units.get(name, UNKNOWN_UNIT)
        if theirs not in (unit, UNKNOWN_UNIT):
            warnings.warn(
                f"{trace.name} counts {name} in {theirs!r}, and cluster.units in {unit!r}: they are taken to be the same",
                SlotwiseWarning,
                stacklevel=2,
            )


def _capacities(trace: Trace, cluster: Cluster) -> list[list[float]]:
    """Return what each class of servers holds, over the trace's resources; none where a class has a rule of its own."""
    if any(server.feasible is not None for server in cluster.servers):
        return []
    times = len(trace.resources) if cluster.resources == ("size",) else 1
    return [[float(c) for c in server.capacity] * times for server in cluster.servers]


def _names(
    made: Typing, demand: list[list[Decimal]], trace: Trace, cluster: Cluster, largest: dict[str, float]
) -> list[str]:
    """Name the types by size, over the cluster's resources. Shares of a server stay shares if sizes are given as
    shares."""
    if made.resources == ("size",) and set(largest.values()) == {1.0}:
        return made.names
    return names_by_size(demand, cluster.resources, {**trace.meta.units, **cluster.units})


def _check_rounding(types: dict[str, JobType], cluster: Cluster) -> None:
    """Refuse types of which rounding to shares of the largest server in every resource makes more than any one
    server has."""
    for share, job_type in types.items():
        if job_type.rate and not any(
            all(need <= have for need, have in zip(job_type.demand, server.capacity, strict=True))
            for server in cluster.servers
        ):
            raise InputError(
                f"jobs rounded up to {share} of the largest server in every resource fit no server",
                where="workload.typing.method",
                remedy='use "waste-bounded", which rounds each resource by itself',
            )


def _covers(made: Typing, cluster: Cluster, largest: dict[str, float]) -> list[list[Decimal]]:
    """Return the demand of each type over the cluster's resources, as exact decimals."""
    if made.resources == ("size",):
        names = cluster.resources if cluster.resources != ("size",) else tuple(largest)[:1]
        # the paper's rounding charges every resource the rounded size, as a share of the largest server
        return [[Decimal(row[0]) * Decimal(repr(largest[name])) for name in names] for row in made.demand_text]
    places: Sequence[int] = [made.resources.index(name) for name in cluster.resources]
    return [[_rounded(Decimal(row[r]), largest[made.resources[r]]) for r in places] for row in made.demand_text]


def _rounded(size: Decimal, largest: float) -> Decimal:
    """Round up to as many digits as actual demands have: a demand read from a float may have 17 of them."""
    return min(size.quantize(Decimal(1).scaleb(-DIGITS), ROUND_CEILING), max(size, Decimal(repr(largest))))


def _actual(
    trace: Trace, cluster: Cluster, digits: Sequence[int], cover: NDArray[np.int64], largest: dict[str, float]
) -> NDArray[np.int64]:
    """Return what each job really asks for, in integers, rounded up but never above its type's demand."""
    asked = trace.demands()
    if cluster.resources == ("size",):
        share = asked / np.array([largest[name] for name in trace.resources])
        asked = (share.max(axis=1) * next(iter(largest.values())))[:, None]
    else:
        asked = asked[:, [trace.resources.index(name) for name in cluster.resources]]
    scale = 10.0 ** np.array(digits)
    # a float such as 0.1 * 10^6 may lie a hair above the whole number it stands for
    return np.minimum(np.ceil(asked * scale - 1e-6).astype(np.int64), cover)

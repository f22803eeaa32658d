"""Demands of jobs that name no type: the amounts that the core charges, and the type that a job joins.

A job is charged exactly what it requests. Its type only tells the policy which jobs are alike, so a type may be larger
than a job, within a limit. A job joins a type only if the type covers the demand and is no larger than the type that
would be made for this demand alone. So the type of a job does not depend on what other jobs requested before. How many
types there may be, and when they go, is decided in `typebook`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.model import Cluster, JobType
from slotwise.model.labels import matches

Requires = Mapping[str, Sequence[str]]
Demand = tuple[Decimal, ...]
# Digits behind the point that amounts keep. A finer amount is rounded up, so that no job can make the core count in tiny units.
DIGITS = 3
QUANTUM = Decimal(1).scaleb(-DIGITS)
# The least that one job takes: 20 jobs on a CPU at the same time. Without a limit, 1,500 jobs of 0 CPUs would start at once.
LEAST_CPU = Decimal("0.05")
# Without a resource `cpu`: the share of the largest server that one job takes at least.
LEAST_SHARE = Decimal("0.001")
# An amount below this share of the job's dominant share is rounded up to it: it decides little, and types stay few.
MINOR_SHARE = Decimal(1) / 16


class FoundType(NamedTuple):
    """A type for a job; `made` says that the core does not have it yet."""

    type: JobType
    made: bool


def main_resource(cluster: Cluster) -> int:
    """Return the position of the resource that every job takes some of: `pods` (Kubernetes), `cpu`, or the first."""
    return next((cluster.resources.index(name) for name in ("pods", "cpu") if name in cluster.resources), 0)


def least_demand(cluster: Cluster) -> Decimal:
    """Return how much of the main resource a job takes at least."""
    main = main_resource(cluster)
    most = largest(cluster)[main]
    least = LEAST_CPU if cluster.resources[main] == "cpu" else most * LEAST_SHARE
    return min(quantised(least), most)


def largest(cluster: Cluster) -> list[Decimal]:
    """Return the largest capacity of each resource."""
    return [max(server.capacity[r] for server in cluster.servers) for r in range(len(cluster.resources))]


def quantised(amount: float | Decimal) -> Decimal:
    """Round an amount up to `DIGITS` digits behind the point.

    >>> [str(quantised(x)) for x in (2.0, 0.5, 1e-9)]
    ['2', '0.5', '0.001']
    """
    exact = amount if isinstance(amount, Decimal) else Decimal(repr(amount))
    return exact.quantize(QUANTUM, ROUND_CEILING).normalize() + 0


def checked(needs: Mapping[str, float], cluster: Cluster) -> dict[str, Decimal]:
    """Return the named amounts, rounded; refuse resources that are unknown and amounts that are too small."""
    for name in needs:
        if name not in cluster.resources:
            raise InputError(
                f"no resource is called {name!r}",
                where="needs",
                remedy=f"use one of: {', '.join(cluster.resources)}",
            )
    main = cluster.resources[main_resource(cluster)]
    least = least_demand(cluster)
    found = {name: quantised(amount) for name, amount in needs.items()}
    if main in found and found[main] < least:
        raise InputError(
            f"{needs[main]:g} of {main} is too little",
            where="needs",
            remedy=f"ask for at least {least:f}, or leave {main} out, which means 1",
        )
    return found


def exact(needs: Mapping[str, float], cluster: Cluster) -> Demand:
    """Return the demand in the cluster's order of resources. A job that names no amount of the main resource takes 1 of it."""
    found = checked(needs, cluster)
    main = main_resource(cluster)
    found.setdefault(cluster.resources[main], min(Decimal(1), largest(cluster)[main]))
    return tuple(found.get(name, Decimal(0)) for name in cluster.resources)


def find_type(
    needs: Mapping[str, float],
    requires: Requires,
    cluster: Cluster,
    types: Sequence[JobType],
    *,
    wasteful: bool = False,
) -> FoundType:
    """Return the type of least waste that covers a demand, or a new one.

    With `wasteful`, types of any size will do, and a new one is as large as a server, so that it covers later demands, too.
    """
    demand = exact(needs, cluster)
    wanted = {key: tuple(values) for key, values in requires.items()}
    holds = [
        server for server in cluster.servers if matches(wanted, server.labels) and covers(server.capacity, demand)
    ]
    if not holds:
        shown = ", ".join(f"{name}={amount:,.10g}" for name, amount in needs.items()) or "nothing special"
        raise InputError(
            f"no server can hold a job that needs {shown}" + (f" and requires {wanted}" if wanted else ""),
            where="needs",
            remedy="ask for less, or add servers that can",
        )
    scale = [most or Decimal(1) for most in largest(cluster)]
    best = min(holds, key=lambda server: waste(server.capacity, demand, scale)).capacity
    size = best if wasteful else size_for(demand, best)
    covering = [
        one
        for one in types
        if covers(one.demand, demand) and (wasteful or covers(size, one.demand)) and same(one.requires, wanted)
    ]
    if covering:
        return FoundType(min(covering, key=lambda one: waste(one.demand, demand, scale)), made=False)
    return FoundType(named(size, wanted, cluster), made=True)


def size_for(demand: Demand, capacity: Sequence[Decimal]) -> Demand:
    """Return the size of the type that is made for a demand: on a coarse grid, so that types are few, and within the capacity of a server.

    >>> [str(x) for x in size_for((Decimal(5), Decimal(1), Decimal(0)), (Decimal(64), Decimal(64000), Decimal(8)))]
    ['6', '384', '0']
    """
    dominant = max(round_up(amount) / most for amount, most in zip(demand, capacity, strict=True) if amount)
    return tuple(
        min(most, round_up(max(amount, dominant * MINOR_SHARE * most))) if amount else Decimal(0)
        for amount, most in zip(demand, capacity, strict=True)
    )


def named(size: Sequence[Decimal], requires: Requires, cluster: Cluster) -> JobType:
    """Return a type of this size; its name tells it."""
    name = name_of(cluster.resources, size, requires)
    return JobType.model_validate({"name": name, "demand": tuple(size), "requires": dict(requires)})


def sorted_requires(requires: Requires) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return requirements as a key that is equal where they mean the same."""
    return tuple(sorted((key, tuple(sorted(set(values)))) for key, values in requires.items()))


def covers(size: Sequence[Decimal], demand: Sequence[Decimal]) -> bool:
    """Return whether a size is enough for a demand."""
    return all(s >= d for s, d in zip(size, demand, strict=True))


def same(one: Any, other: Any) -> bool:
    """Return whether requirements are the same: a type with fewer could be placed where the job may not run."""
    return sorted_requires(one) == sorted_requires(other)


def waste(size: Sequence[Decimal], demand: Sequence[Decimal], scale: Sequence[Decimal]) -> Decimal:
    """Return the part of a size that a demand does not use, in shares of the largest server, summed over resources."""
    return sum(((s - d) / c for s, d, c in zip(size, demand, scale, strict=True)), Decimal(0))


def round_up(amount: Decimal) -> Decimal:
    """Round up to the next of ..., 1, 1.5, 2, 3, 4, 6, 8, ..., and to `DIGITS` digits.

    >>> [str(round_up(Decimal(x))) for x in ("0", "0.3", "1", "5", "6.1", "0.0011")]
    ['0', '0.375', '1', '6', '8', '0.002']
    """
    if amount <= 0:
        return Decimal(0)
    power = Decimal(1)
    while power < amount:
        power *= 2
    while power / 2 >= amount:
        power /= 2
    between = power * 3 / 4
    return quantised(between if between >= amount else power)


def name_of(resources: Sequence[str], size: Sequence[Decimal], requires: Requires) -> str:
    """Return a name such as cpu2-memory4000, with what it requires."""
    parts = [f"{name}{amount:f}" for name, amount in zip(resources, size, strict=True) if amount]
    parts += [f"{key}={'|'.join(sorted(values))}" for key, values in sorted(requires.items())]
    return "-".join(parts)

"""Which type a job joins that comes with a demand only: the one that covers it with the least waste, or a new one.

New types lie on a coarse grid (1, 1.5, 2, 3, 4, 6, 8, ...), so that there are few of them, and are cut down to the largest server that would
still hold the job. How many there may be, and which go again, is the business of `typebook`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.model import Cluster, JobType
from slotwise.model.labels import matches

Requires = Mapping[str, Sequence[str]]


class Fitting(NamedTuple):
    """A type for a job; `made` says that the core does not have it yet."""

    type: JobType
    made: bool


def exact(needs: Mapping[str, float], cluster: Cluster) -> tuple[Decimal, ...]:
    """The demand in the cluster's order of resources."""
    for name in needs:
        if name not in cluster.resources:
            raise InputError(
                f"no resource is called {name!r}",
                where="needs",
                remedy=f"use one of: {', '.join(cluster.resources)}",
            )
    return tuple(Decimal(repr(needs.get(name, 0))).normalize() for name in cluster.resources)


def find_type(
    needs: Mapping[str, float], requires: Requires, cluster: Cluster, types: Sequence[JobType]
) -> Fitting:
    """The type for a demand."""
    demand = exact(needs, cluster)
    wanted = {key: tuple(values) for key, values in requires.items()}
    holds = [
        server for server in cluster.servers if matches(wanted, server.labels) and covers(server.capacity, demand)
    ]
    if not holds:
        shown = ", ".join(f"{name}={amount}" for name, amount in needs.items()) or "nothing"
        raise InputError(
            f"no server can hold a job that needs {shown}" + (f" and requires {wanted}" if wanted else ""),
            where="needs",
            remedy="ask for less, or add servers that can",
        )
    scale = [max(server.capacity[r] for server in cluster.servers) or Decimal(1) for r in range(len(demand))]
    covering = [one for one in types if covers(one.demand, demand) and same(one.requires, wanted)]
    if covering:
        return Fitting(min(covering, key=lambda one: waste(one.demand, demand, scale)), made=False)
    largest = min(holds, key=lambda server: waste(server.capacity, demand, scale)).capacity
    size = tuple(min(round_up(amount), most) for amount, most in zip(demand, largest, strict=True))
    return Fitting(named(size, wanted, cluster), made=True)


def named(size: Sequence[Decimal], requires: Requires, cluster: Cluster) -> JobType:
    """A type of this size; its name tells it."""
    if not any(size):
        size = smallest(cluster, tuple(size))
    name = name_of(cluster.resources, size, requires)
    return JobType.model_validate({"name": name, "demand": tuple(size), "requires": dict(requires)})


def sorted_requires(requires: Requires) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Requirements as a key: equal where they mean the same."""
    return tuple(sorted((key, tuple(sorted(set(values)))) for key, values in requires.items()))


def covers(size: Sequence[Decimal], demand: Sequence[Decimal]) -> bool:
    """Whether a size is enough for a demand."""
    return all(s >= d for s, d in zip(size, demand, strict=True))


def same(one: Any, other: Any) -> bool:
    """Whether requirements are the same: a type with fewer could be placed where the job may not run."""
    return sorted_requires(one) == sorted_requires(other)


def waste(size: Sequence[Decimal], demand: Sequence[Decimal], scale: Sequence[Decimal]) -> Decimal:
    """How much of the largest server is kept and not used, summed over resources."""
    return sum(((s - d) / c for s, d, c in zip(size, demand, scale, strict=True)), Decimal(0))


def round_up(amount: Decimal) -> Decimal:
    """To the next of ..., 1, 1.5, 2, 3, 4, 6, 8, ...

    >>> [str(round_up(Decimal(x))) for x in ("0", "0.3", "1", "5", "6.1")]
    ['0', '0.375', '1', '6', '8']
    """
    if amount <= 0:
        return Decimal(0)
    power = Decimal(1)
    while power < amount:
        power *= 2
    while power / 2 >= amount:
        power /= 2
    between = power * 3 / 4
    return (between if between >= amount else power).normalize() + 0


def smallest(cluster: Cluster, size: tuple[Decimal, ...]) -> tuple[Decimal, ...]:
    """A job that needs nothing takes one thousandth of the largest amount of the first resource: types have some size."""
    most = max(server.capacity[0] for server in cluster.servers)
    return (most / 1000, *size[1:])


def name_of(resources: Sequence[str], size: Sequence[Decimal], requires: Requires) -> str:
    """cpu2-memory4000, and what it requires."""
    parts = [f"{name}{amount:f}" for name, amount in zip(resources, size, strict=True) if amount]
    parts += [f"{key}={'|'.join(sorted(values))}" for key, values in sorted(requires.items())]
    return "-".join(parts)

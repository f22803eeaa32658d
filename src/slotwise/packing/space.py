"""The feasible set of one server class, and of each class of a cluster (`spaces_of`).

A configuration k (so many jobs of each type) is feasible when it fits. Additive: sum_j k_j w_jn <= capacity_n for
every resource n, in exact integers. Monotone: a predicate says so; if k fits, so does every k' <= k. Either way k_j = 0 for
a type that the class may not hold, such as one that requires labels which the class does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.errors import InputError
from slotwise.model import Integers, ServerClass

Predicate = Callable[[tuple[int, ...]], bool]

LARGEST = 2**53  # Sizes are exact as integers and as floats up to here.


@dataclass(frozen=True, eq=False)
class Space:
    """One server class's feasible set. Made by `Space.additive` or `Space.monotone`."""

    n_types: int
    counts: NDArray[np.int64]
    """The largest count of each type alone; 0 where the type does not fit this server, or may not run on it."""
    demand: NDArray[np.int64] | None = None
    capacity: NDArray[np.int64] | None = None
    predicate: Predicate | None = field(default=None, repr=False)

    @staticmethod
    def additive(demand: ArrayLike, capacity: ArrayLike, allowed: ArrayLike | None = None) -> Space:
        """Return a space in which demands add up: `demand` of shape (types, resources) and `capacity` of shape
        (resources,), integers.

        `allowed` says for each type whether the class may hold it; by default it may hold all.
        """
        sizes = _integers(demand, "demand", 2)
        room = _integers(capacity, "capacity", 1)
        if sizes.shape[1] != room.shape[0]:
            raise InputError(
                f"has {sizes.shape[1]} resources, but the capacity has {room.shape[0]}",
                where="demand",
                remedy="give one size per resource",
            )
        if sizes.shape[0] == 0 or sizes.shape[1] == 0:
            raise InputError("is empty", where="demand", remedy="give at least one type and one resource")
        for j in range(sizes.shape[0]):
            if not sizes[j].any():
                raise InputError(
                    "needs nothing, so any number of such jobs would fit",
                    where=f"demand of type {j}",
                    remedy="give it a size above 0 in some resource",
                )
        with_room = np.where(sizes > 0, room // np.maximum(sizes, 1), LARGEST)
        counts = np.where(_allowed(allowed, len(sizes)), with_room.min(axis=1), 0)
        return Space(sizes.shape[0], counts.astype(np.int64), sizes, room)

    @staticmethod
    def monotone(
        predicate: Predicate, n_types: int, limit: int = 1_000_000, allowed: ArrayLike | None = None
    ) -> Space:
        """Return the space of the configurations that `predicate` accepts. A type of which `limit` jobs fit is
        taken for unbounded.

        `allowed` says for each type whether the class may hold it; the predicate is never asked about one that it may not.
        """
        if n_types < 1:
            raise InputError(f"is {n_types}", where="number of types", remedy="give at least one type")
        if not predicate((0,) * n_types):
            raise InputError("refuses the empty server", where="predicate", remedy="accept the zero configuration")
        may = _allowed(allowed, n_types)
        if not may.all():
            predicate = _without(predicate, np.flatnonzero(~may).tolist())
        counts = [_most(predicate, n_types, j, limit) for j in range(n_types)]
        return Space(n_types, np.array(counts, dtype=np.int64), predicate=predicate)

    def feasible(self, k: Sequence[int] | NDArray[np.int64]) -> bool:
        """Return whether configuration k fits."""
        if len(k) != self.n_types:
            raise InputError(
                f"has {len(k)} counts for {self.n_types} types",
                where="configuration",
                remedy="give one count per type",
            )
        counts = tuple(int(count) for count in k)
        if any(count < 0 or count > self.most(j) for j, count in enumerate(counts)):
            return False
        if self.predicate is not None:
            return bool(self.predicate(counts))
        assert self.demand is not None
        assert self.capacity is not None
        return all(
            sum(count * int(size) for count, size in zip(counts, self.demand[:, n], strict=True))
            <= self.capacity[n]
            for n in range(len(self.capacity))
        )

    def most(self, j: int) -> int:
        """Return the largest count of type j alone."""
        return int(self.counts[j])

    @property
    def fitting(self) -> NDArray[np.int64]:
        """The types that fit this server at all."""
        return np.flatnonzero(self.counts > 0)


def broken(smaller: tuple[int, ...], larger: tuple[int, ...]) -> InputError:
    """Return the error for a predicate that accepts `larger` but not `smaller` <= `larger`."""
    return InputError(
        f"accepts {larger} but refuses {smaller}, which is less",
        where="predicate",
        remedy="accept everything below a configuration that fits",
    )


def _without(predicate: Predicate, barred: list[int]) -> Predicate:
    """Return the predicate, with none of the barred types; still monotone."""
    return lambda k: not any(k[j] for j in barred) and predicate(k)


def _allowed(allowed: ArrayLike | None, n_types: int) -> NDArray[np.bool_]:
    may = np.ones(n_types, np.bool_) if allowed is None else np.asarray(allowed)
    if may.shape != (n_types,) or may.dtype != np.bool_:
        raise InputError(
            f"is not {n_types} truth values", where="allowed", remedy="say True or False for each type"
        )
    return may


def _most(predicate: Predicate, n_types: int, j: int, limit: int) -> int:
    def alone(count: int) -> tuple[int, ...]:
        return tuple(count if i == j else 0 for i in range(n_types))

    refused = 1
    while predicate(alone(refused)):
        if refused >= limit:
            raise InputError(
                f"accepts {refused} jobs of type {j}, so it seems never to say no",
                where="predicate",
                remedy="refuse what does not fit (or raise the limit)",
            )
        refused = min(2 * refused, limit)
    accepted = refused // 2
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if predicate(alone(middle)):
            accepted = middle
        else:
            refused = middle
    for beyond in (refused + 1, 2 * refused + 1):  # a look past the first refusal
        if predicate(alone(beyond)):
            raise broken(alone(refused), alone(beyond))
    return accepted


def _integers(values: ArrayLike, where: str, dimensions: int) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != dimensions:
        raise InputError(f"has {array.ndim} dimensions", where=where, remedy=f"give {dimensions}")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InputError("is not of integers", where=where, remedy="scale decimals to integers first")
    if array.size and (int(array.min()) < 0 or int(array.max()) > LARGEST):
        raise InputError(
            f"goes from {array.min()} to {array.max()}", where=where, remedy="use sizes from 0 to 2^53"
        )
    return np.ascontiguousarray(array, dtype=np.int64).copy()


def spaces_of(servers: Sequence[ServerClass], sizes: Integers) -> list[Space]:
    """Return the feasible set of each class, in order. Demands add up, or the class's own predicate says what fits.

    A class holds none of a type whose requirements its labels do not meet.
    """
    allowed = sizes.allowed if sizes.allowed is not None else [None] * len(servers)
    return [
        Space.additive(sizes.demand, sizes.capacity[c], allowed[c])
        if server.feasible is None
        else Space.monotone(server.feasible, len(sizes.demand), allowed=allowed[c])
        for c, server in enumerate(servers)
    ]

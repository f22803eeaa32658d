"""A state with the names that go with it: what explanations are made from, without changing anything."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.core import state as st
from slotwise.core.contract.reasons import Because, Reason
from slotwise.model import Cluster, JobType

if TYPE_CHECKING:
    from slotwise.core.store import Store


class View(NamedTuple):
    """The state behind the names, and the names of jobs and servers by their numbers."""

    store: Store
    cluster: Cluster
    types: Sequence[JobType]
    job_of: Mapping[int, Hashable]
    server_of: Mapping[int, Hashable]

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which servers take jobs."""
        return np.asarray(self.store.arrays["servers"][:, st.STATUS] == st.PRESENT)

    def type_of(self, i: int) -> int:
        """Return the type of job i."""
        return int(self.store.arrays["jobs"][i, st.TYPE])

    def demand(self, i: int) -> NDArray[np.int64]:
        """Return the demand of job i in whole units, as the policy counts it."""
        if self.store.state.actual:
            return np.asarray(self.store.arrays["job_demand"][i])
        return np.asarray(self.store.sizes.demand[self.type_of(i)])

    def ahead(self, i: int) -> int:
        """Return how many jobs wait before job i in its queue."""
        jobs = self.store.arrays["jobs"]
        ahead, before = 0, int(jobs[i, st.PREVIOUS])
        while before >= 0:
            ahead, before = ahead + 1, int(jobs[before, st.PREVIOUS])
        return ahead

    def first_in_line(self) -> int:
        """Return the waiting job that came first."""
        waiting = np.flatnonzero(self.store.arrays["jobs"][:, st.SERVER] == st.WAITING)
        return int(waiting[np.argmin(self.store.sequence[waiting])])

    def can_hold(self, i: int) -> NDArray[np.bool_]:
        """Return which servers that take jobs could hold job i if they were empty."""
        store, rows = self.store, self.store.arrays["servers"]
        classes = store.arrays["most"][:, self.type_of(i)] > 0
        if store.state.actual:  # smaller than its type, it may fit where its type does not
            classes = store.allowed[:, self.type_of(i)] & (store.sizes.capacity >= self.demand(i)).all(axis=1)
        return np.asarray(self.present & classes[rows[:, st.CLASS]])

    def with_room(self, i: int) -> NDArray[np.bool_]:
        """Return which servers have the free capacity for job i now."""
        return np.asarray(self.can_hold(i) & (self.store.arrays["free"] >= self.demand(i)).all(axis=1))

    def no_room(self, i: int) -> Because | None:
        """Return why job i waits if no server has enough free capacity, and which server lacks least, in shares of
        its capacity."""
        store = self.store
        if not store.state.keeps_free or self.with_room(i).any():
            return None
        numbers, demand = np.flatnonzero(self.can_hold(i)), self.demand(i)
        capacity = np.maximum(store.sizes.capacity[store.arrays["servers"][numbers, st.CLASS]], 1)
        lack = np.maximum(demand - store.arrays["free"][numbers], 0) / capacity
        nearest = int(numbers[np.argmin(lack.sum(axis=1))])
        figures: dict[str, Any] = {"demand": self.sizes(demand), "free": self.free(nearest)}
        return Because(Reason.NO_ROOM, figures | {"nearest": self.server_of[nearest]})

    def counts(self, row: NDArray[Any]) -> dict[str, int]:
        """Return numbers of each type, by name."""
        return {job_type.name: int(n) for job_type, n in zip(self.types, row, strict=True) if n}

    def holding(self, server: int) -> dict[str, int]:
        """Return the jobs on the server, by type."""
        return self.counts(self.store.running[server])

    def sizes(self, row: NDArray[np.int64]) -> dict[str, float]:
        """Return amounts of each resource, by name."""
        digits = self.store.sizes.digits
        return {
            name: float(size) / 10 ** digits[r]
            for r, (name, size) in enumerate(zip(self.cluster.resources, row, strict=True))
        }

    def free(self, server: int) -> dict[str, float]:
        """Return the free capacity of the server."""
        return self.sizes(self.store.arrays["free"][server])

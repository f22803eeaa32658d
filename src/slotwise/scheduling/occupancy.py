"""What each server holds, keeps back and has free at one moment, by resource: for dashboards.

Kept capacity is free capacity that the policy holds back: all free capacity of a server that turns or stalls, slots of
a configuration that no job has taken yet, and what `Policy.keeps_back` names.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.core import state as st
from slotwise.scheduling.scheduler import Scheduler


class Occupancy(NamedTuple):
    """A row for each server that the scheduler knows."""

    names: tuple[Hashable, ...]
    turning: NDArray[np.bool_]
    jobs: NDArray[np.int64]
    used: NDArray[np.float64]
    """(servers, resources): by actual demands where the scheduler keeps them, otherwise by the demands of types"""
    kept: NDArray[np.float64]
    running: dict[str, int]
    """running jobs of each type"""


class Snapshot(NamedTuple):
    """A copy of what the occupancy is made from. The scheduler may go on while `occupancy` works it out."""

    names: tuple[Hashable, ...]
    rows: NDArray[np.int32]
    free: NDArray[np.int64] | None
    demand: NDArray[np.int64]
    capacity: NDArray[np.int64]
    digits: tuple[int, ...]
    types: tuple[str, ...]
    extra: tuple[tuple[int, int], ...]
    """(row, type) of each slot that the policy keeps beside its configurations"""
    reserves: bool
    """the policy keeps the open slots of a configuration for their types"""

    @classmethod
    def of(cls, core: Scheduler) -> Snapshot:
        """Copy the state of a scheduler."""
        view = core._view()
        store = view.store
        numbers = sorted(view.server_of)
        place = {number: at for at, number in enumerate(numbers)}
        keeps = store.policy.keeps_back(view)
        return cls(
            tuple(view.server_of[number] for number in numbers),
            store.arrays["servers"][numbers, : st.SERVER_COLUMNS + 2 * len(view.types)],
            store.arrays["free"][numbers] if store.state.keeps_free else None,
            np.array(store.sizes.demand),
            np.array(store.sizes.capacity),
            tuple(store.sizes.digits),
            tuple(one.name for one in view.types),
            tuple((place[number], j) for number, j in keeps if number in place),
            store.policy.reserves,
        )

    def occupancy(self) -> Occupancy:
        """Work it out."""
        J = len(self.types)
        counts = self.rows[:, st.SERVER_COLUMNS : st.SERVER_COLUMNS + J].astype(np.int64)
        slots = self.rows[:, st.SERVER_COLUMNS + J :].astype(np.int64)
        capacity = self.capacity[self.rows[:, st.CLASS]]
        present = self.rows[:, st.STATUS] == st.PRESENT
        by_type = counts @ self.demand
        used = by_type if self.free is None else np.where(present[:, None], capacity - self.free, by_type)
        free = np.maximum(capacity - used, 0)
        turning = present & (self.rows[:, st.MODE] == st.STALLED)
        missing = np.maximum(slots - counts, 0) if self.reserves else np.zeros_like(slots)
        for at, j in self.extra:
            missing[at, j] += 1
        kept = np.where(turning[:, None], free, np.minimum(missing @ self.demand, free))
        kept[~present] = 0
        unit = np.array([10.0**-digits for digits in self.digits])
        return Occupancy(
            self.names,
            turning,
            self.rows[:, st.COUNT].astype(np.int64),
            used * unit,
            kept * unit,
            dict(zip(self.types, counts.sum(axis=0).tolist(), strict=True)),
        )


def oldest(core: Scheduler) -> dict[str, float]:
    """Return the time of submission of the oldest waiting job of each type that has one."""
    store, register = core._view().store, core._register
    found: dict[str, float] = {}
    heads = store.arrays["queues"][:, st.HEAD]
    for i in heads[heads >= 0].tolist():
        name = core.types[int(store.arrays["jobs"][i, st.TYPE])].name
        found[name] = min(found.get(name, np.inf), register.submitted[i])
    return found

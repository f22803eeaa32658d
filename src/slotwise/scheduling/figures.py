"""Figures of a scheduler at one moment, for dashboards: what runs, what is used, how much more would fit, how many servers turn.

Symbols: C[l, r], capacity of server l; F[l, r], its free capacity; W[j, r], demand of type j. Used is the sum over l of C[l, r] - F[l, r]. Of type j,
there would fit sum_l min_r floor(F[l, r] / W[j, r]) jobs more, over servers that take jobs and may hold the type. F counts what jobs request themselves
where the scheduler keeps that, and the demands of their types otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.core import state as st
from slotwise.scheduling.scheduler import Scheduler


class Figures(NamedTuple):
    """By type, by resource, and of all servers that are there."""

    running: dict[str, int]
    capacity: dict[str, float]
    used: dict[str, float]
    room: dict[str, int]
    """how many more jobs of each type alone would fit"""


class Moment(NamedTuple):
    """A copy of what figures are made from, so that they can be worked out while the scheduler goes on."""

    rows: NDArray[np.int32]
    free: NDArray[np.int64] | None
    """None: the scheduler keeps demands of types only"""
    most: NDArray[np.int64]
    """(C, J): the most jobs of each type on an empty server of each class; 0: it may not hold any"""
    demand: NDArray[np.int64]
    capacity: NDArray[np.int64]
    digits: tuple[int, ...]
    types: tuple[str, ...]
    resources: tuple[str, ...]
    turning: int
    """servers that turn to another configuration: they start no job, or only jobs of it"""

    @classmethod
    def of(cls, core: Scheduler) -> Moment:
        """Take the figures of the present moment."""
        view = core._view()
        store, state = view.store, view.store.state
        J = len(view.types)
        servers = store.arrays["servers"]
        there = servers[:, st.STATUS] > 0
        return cls(
            servers[there, : st.SERVER_COLUMNS + J],
            store.arrays["free"][there] if state.keeps_free else None,
            np.array(store.arrays["most"]),
            np.array(store.sizes.demand),
            np.array(store.sizes.capacity),
            tuple(store.sizes.digits),
            tuple(one.name for one in view.types),
            tuple(view.cluster.resources),
            int(state.n_stalled),
        )

    def figures(self) -> Figures:
        """Return the figures that follow from the moments."""
        counts = self.rows[:, st.SERVER_COLUMNS :].astype(np.int64)
        capacity = self.capacity[self.rows[:, st.CLASS]]
        used = counts @ self.demand if self.free is None else capacity - self.free
        unit = [10.0**-digits for digits in self.digits]
        free = (capacity - used)[self.rows[:, st.STATUS] == st.PRESENT]
        classes = self.rows[self.rows[:, st.STATUS] == st.PRESENT, st.CLASS]
        room = {}
        for j, name in enumerate(self.types):
            asked = self.demand[j] > 0
            fits = np.maximum(free[:, asked] // self.demand[j, asked], 0).min(axis=1) if asked.any() else 0
            room[name] = int((fits * (self.most[classes, j] > 0)).sum())
        return Figures(
            dict(zip(self.types, counts.sum(axis=0).tolist(), strict=True)),
            {name: float(capacity[:, r].sum() * unit[r]) for r, name in enumerate(self.resources)},
            {name: float(used[:, r].sum() * unit[r]) for r, name in enumerate(self.resources)},
            room,
        )

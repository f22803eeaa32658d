"""Why each server does not take a waiting job now: the first reason that holds, and what it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from slotwise.core import state as st
from slotwise.scheduling.scheduler import Scheduler


class Why(StrEnum):
    """In the order in which they are tried."""

    GONE = "is down"
    DRAINING = "is draining and takes no more jobs"
    LABELS = "does not have the labels that the job requires"
    TOO_SMALL = "is too small, even when it is empty"
    FULL = "has too little free"
    TURNING = "turns to another configuration"
    FITS = "has enough free: another job goes first, or the policy keeps the capacity for one"


class Refusal(NamedTuple):
    """One server."""

    server: Hashable
    why: Why
    free: dict[str, float]
    lacks: dict[str, float]
    """how much more the job needs of each resource that is short"""


class Refusals(NamedTuple):
    """All servers by reason, and those nearest to taking the job."""

    demand: dict[str, float]
    counts: dict[str, int]
    servers: list[Refusal]


def refusals(core: Scheduler, job: Hashable, *, limit: int = 50) -> Refusals:
    """Return why servers refuse a waiting job, at most `limit` of them, least lacking first."""
    view = core._view()
    store, i = view.store, core._lookup(core._jobs, job, "job")
    numbers = np.array(sorted(view.server_of), np.int64)
    rows = store.arrays["servers"][numbers]
    classes, demand = rows[:, st.CLASS], view.demand(i)
    capacity = store.sizes.capacity[classes]
    if store.state.keeps_free:
        free = np.array(store.arrays["free"][numbers])
    else:
        free = capacity - store.running[numbers].astype(np.int64) @ store.sizes.demand
    lack = np.maximum(demand - free, 0)
    found = np.select(
        [
            ~np.isin(rows[:, st.STATUS], (st.PRESENT, st.DRAINING)),
            rows[:, st.STATUS] == st.DRAINING,
            ~store.allowed[classes, view.type_of(i)],
            (capacity < demand).any(axis=1),
            (lack > 0).any(axis=1),
            rows[:, st.MODE] == st.STALLED,
        ],
        range(6),
        6,
    )
    reasons = list(Why)
    share = (lack / np.maximum(capacity, 1)).sum(axis=1)
    nearest = np.lexsort((numbers, share, np.where(found >= 4, 0, 6 - found)))[:limit]
    counted = Counter(reasons[which] for which in found.tolist())
    return Refusals(
        view.sizes(demand),
        {why.value: counted[why] for why in reasons if counted[why]},
        [
            Refusal(
                view.server_of[int(numbers[at])],
                reasons[int(found[at])],
                view.sizes(np.maximum(free[at], 0)),
                {name: amount for name, amount in view.sizes(lack[at]).items() if amount},
            )
            for at in nearest.tolist()
        ],
    )

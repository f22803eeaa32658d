"""Finding the reasons: a careful look at the state, from outside the policies and without changing anything."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.model import Cluster, JobType
from slotwise.scheduling.policies import backfill, floors
from slotwise.scheduling.policies.fillings import by_type
from slotwise.scheduling.policies.slots import beta
from slotwise.scheduling.reasons import Because, Explanation, Reason
from slotwise.scheduling.state import (
    ACTIVE,
    CLASS,
    COUNT,
    DRAINING,
    MODE,
    PRESENT,
    PREVIOUS,
    QUEUE,
    SERVER,
    STALLED,
    STATUS,
    TYPE,
    WAITING,
)
from slotwise.scheduling.store import Store
from slotwise.scheduling.weights import best_weight, weight_of


class View(NamedTuple):
    """A state with the names that go with it."""

    store: Store
    cluster: Cluster
    types: Sequence[JobType]
    job_of: Mapping[int, Hashable]
    server_of: Mapping[int, Hashable]


def explain_job(view: View, name: Hashable, i: int) -> Explanation:
    """Why job i runs or waits."""
    jobs, servers = view.store.arrays["jobs"], view.store.arrays["servers"]
    j, on = int(jobs[i, TYPE]), int(jobs[i, SERVER])
    if on != WAITING:
        return Explanation(name, (Because(Reason.RUNS, {"server": view.server_of[on]}),))
    ahead, before = 0, int(jobs[i, PREVIOUS])
    while before >= 0:
        ahead, before = ahead + 1, int(jobs[before, PREVIOUS])
    because = [Because(Reason.BEHIND, {"ahead": ahead}) if ahead else Because(Reason.FIRST)]
    present = servers[:, STATUS] == PRESENT
    demand = _demand(view, i, j)
    if not present.any():
        because.append(Because(Reason.NO_SERVERS))
    elif not _any_large_enough(view, j, demand, present):
        because.append(Because(Reason.FITS_NO_SERVER, {"demand": _sizes(view, demand)}))
    else:
        because.append(_why_not_started(view, i, j, demand, present))
    return Explanation(name, tuple(because))


def explain_server(view: View, name: Hashable, server: int) -> Explanation:
    """What the server does, and why."""
    store: Any = view.store
    row = store.arrays["servers"][server]
    holding = _counts(view, store.running[server])
    if row[STATUS] == DRAINING:
        because = Because(Reason.DRAINING, {"holding": holding}) if row[COUNT] else Because(Reason.DRAINED)
    elif row[MODE] == STALLED:
        weight, share, best = (float(x) for x in store.arrays["stall_reason"][server, :3])
        figures = {"weight": weight, "beta": share, "best": best, "holding": holding}
        if store.state.keeps_free:  # it packs as well, so it does not stand still
            because = Because(Reason.TURNS, figures | {"configuration": _counts(view, store.configuration[server])})
        else:
            because = Because(Reason.STALLED, figures)
    elif row[MODE] == ACTIVE and store.solvers:
        slots = _counts(view, store.configuration[server])
        figures = {"configuration": slots, "holding": holding, "beta": float(beta(store.state))}
        figures |= {
            "weight": float(weight_of(store.state, server)),
            "best": float(best_weight(store.state, server)),
        }
        because = Because(Reason.ACTIVE, figures)
    elif store.state.keeps_free:
        because = Because(Reason.PACKS, {"holding": holding, "free": _sizes(view, store.arrays["free"][server])})
        if store.policy.keeps_slots and (kept := _counts(view, floors.holders(store.state) == server + 1)):
            return Explanation(name, (because, Because(Reason.KEEPS_SLOTS, {"slots": kept})))
    else:
        because = Because(Reason.EMPTY)
    return Explanation(name, (because,))


def _why_not_started(view: View, i: int, j: int, demand: NDArray[np.int64], present: NDArray[np.bool_]) -> Because:
    store: Any = view.store
    state, policy = store.state, store.policy
    first = _first_in_line(view)
    if getattr(policy, "blocks", False) and first != i:
        return Because(Reason.BLOCKED, {"first": view.job_of[first]})
    if policy.holds_tokens:
        return Because(Reason.NOT_SAMPLED, {"rate": float(state.tick_rate)})
    if state.own_queues and (number := int(store.arrays["jobs"][i, QUEUE]) // state.n_types) in view.server_of:
        slots, taken = int(store.configuration[number, j]), int(store.running[number, j])
        return Because(Reason.OWN_QUEUE, {"server": view.server_of[number], "slots": slots, "taken": taken})
    if store.solvers and not state.keeps_free:
        active = present & (store.arrays["servers"][:, MODE] == ACTIVE)  # what a stalled one holds is not on offer
        taken = int(store.running[active, j].sum())
        return Because(
            Reason.NO_SLOT, {"taken": taken, "stalled": int(state.n_stalled), "servers": int(state.n_servers)}
        )
    if state.keeps_free:
        nearest = _nearest(store, demand, present)
        free = store.arrays["free"][nearest]
        if (free < demand).any():
            figures = {"demand": _sizes(view, demand), "free": _sizes(view, free)}
            return Because(Reason.NO_ROOM, figures | {"nearest": view.server_of[nearest]})
        if store.solvers and store.arrays["jobs"][i, PREVIOUS] < 0:
            room = present & (store.arrays["free"] >= demand).all(axis=1)
            turning = room & (store.arrays["servers"][:, MODE] == STALLED)
            if turning.any() and (turning == room).all():
                return Because(Reason.TURNED_AWAY, {"turning": int(turning.sum())})
            if state.actual and by_type(state):
                return Because(Reason.COUNTS_AS_TYPE, {"demand": _sizes(view, store.sizes.demand[j])})
    if policy.needs_durations and first != i:
        on = int(store.arrays["policy_ints"][backfill.ON])
        server = view.server_of.get(on, "none yet")
        return Because(Reason.RESERVED, {"first": view.job_of[first], "server": server})
    return Because(Reason.UNDECIDED)


def _first_in_line(view: View) -> int:
    waiting = np.flatnonzero(view.store.arrays["jobs"][:, SERVER] == WAITING)
    return int(waiting[np.argmin(view.store.sequence[waiting])])


def _nearest(store: Any, demand: NDArray[np.int64], present: NDArray[np.bool_]) -> int:
    """The server that lacks least, in shares of its class's capacity."""
    numbers = np.flatnonzero(present)
    capacity = np.maximum(store.sizes.capacity[store.arrays["servers"][numbers, CLASS]], 1)
    lack = np.maximum(demand - store.arrays["free"][numbers], 0) / capacity
    return int(numbers[np.argmin(lack.sum(axis=1))])


def _any_large_enough(view: View, j: int, demand: NDArray[np.int64], present: NDArray[np.bool_]) -> bool:
    present_classes = np.unique(view.store.arrays["servers"][present, CLASS])
    if view.store.state.actual:
        return bool((view.store.sizes.capacity[present_classes] >= demand).all(axis=1).any())
    return bool(view.store.arrays["most"][present_classes, j].max() > 0)


def _demand(view: View, i: int, j: int) -> NDArray[np.int64]:
    table = view.store.arrays["job_demand"] if view.store.state.actual else view.store.sizes.demand
    return np.asarray(table[i if view.store.state.actual else j])


def _counts(view: View, row: NDArray[Any]) -> dict[str, int]:
    return {job_type.name: int(n) for job_type, n in zip(view.types, row, strict=True) if n}


def _sizes(view: View, row: NDArray[np.int64]) -> dict[str, float]:
    digits = view.store.sizes.digits
    return {
        name: float(size) / 10 ** digits[r]
        for r, (name, size) in enumerate(zip(view.cluster.resources, row, strict=True))
    }

"""When a waiting job could start if one server took no other job from now on."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.core import state as st
from slotwise.scheduling.scheduler import Scheduler


class EarliestStart(NamedTuple):
    """The server on which a job could start first, and in how many seconds."""

    server: Hashable
    wait: float


def keeps_free(core: Scheduler) -> bool:
    """Return whether the policy goes by free capacity. Under policies with slots a server may have free capacity that no job may take."""
    return bool(core._view().store.state.keeps_free)


def has_room(core: Scheduler, job: Hashable, server: Hashable) -> bool:
    """Return whether a server has the free capacity that a waiting job needs, whether it takes jobs or not."""
    return bool((free_of(core, server) >= demand_of(core, job)).all())


def free_of(core: Scheduler, server: Hashable) -> NDArray[np.int64]:
    """Return the free capacity of a server, in whole units of each resource."""
    return np.array(core._view().store.arrays["free"][core._lookup(core._servers, server, "server")])


def demand_of(core: Scheduler, job: Hashable) -> NDArray[np.int64]:
    """Return what a job requests, in whole units of each resource."""
    return np.array(core._view().demand(core._lookup(core._jobs, job, "job")))


def earliest(core: Scheduler, job: Hashable, ends: Callable[[Hashable], float]) -> EarliestStart | None:
    """Return where a waiting job could start first. `ends` gives the seconds after which a running job is expected to have ended.

    None: no server that takes jobs could hold the job.
    """
    view, i = core._view(), core._lookup(core._jobs, job, "job")
    candidates, demand, free = view.can_hold(i), view.demand(i), view.store.arrays["free"]
    now = np.flatnonzero(candidates & (free >= demand).all(axis=1))
    if now.size:
        return EarliestStart(view.server_of[int(now[0])], 0.0)
    on = view.store.arrays["jobs"][:, st.SERVER]
    running: dict[int, list[tuple[float, int]]] = {}
    for name, number in core._jobs.items():
        server = int(on[number])
        if server >= 0 and candidates[server]:
            running.setdefault(server, []).append((ends(name), number))
    best: EarliestStart | None = None
    for server, jobs in running.items():
        room = np.array(free[server])
        for wait, number in sorted(jobs):
            if best is not None and wait >= best.wait:
                break
            room += view.demand(number)
            if (room >= demand).all():
                best = EarliestStart(view.server_of[server], wait)
                break
    return best

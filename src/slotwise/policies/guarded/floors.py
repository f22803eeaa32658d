"""Floors: `guarded` keeps no type out, however few of its jobs wait.

A job that waits alone has little weight beside types of which hundreds wait, so a type that comes seldom would wait longest of
all. Therefore a type of which few jobs come (fewer than `EVEN` times an even share of all) and few run, with one more still

    (running_j + 1) / slots_j  <=  floor / J,

slots_j what the cluster could hold of type j alone, goes first where room appears beside other jobs. And where already a single job takes no
more than standing / J of the cluster, room for one is kept open while others wait (its standing slot), so that the next to come starts at
once. All floors together are `floor` of the cluster, all standing slots `standing`, at most.

An empty server takes what weighs most: a small job that went first there would keep out one that needs all of it. With very
long queues weights alone decide, or nothing could be proven.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core.moves import hold_room, start
from slotwise.core.queues import next_waiting
from slotwise.core.state import (
    CLASS,
    COUNT,
    State,
    int_field,
    most,
    need,
    order,
    policy_floats,
    policy_ints,
    present_by_class,
    queue_length,
    running_by_type,
    servers,
)
from slotwise.policies.fit.fitting import fits, set_need, set_type_need
from slotwise.policies.guarded.gains import ended, is_cheap, is_seldom, queues_are_long, slots
from slotwise.policies.guarded.memory import CHEAP, FLOOR, HOLDERS
from slotwise.policies.guarded.usable import scarcity


@kernel
def holders(s: State) -> NDArray[np.int64]:
    """(J,): the number of the server that keeps a type's standing slot, plus 1; 0 where there is none."""
    return int_field(s, HOLDERS)


@kernel
def serve_floors(s: State, server: int) -> None:
    """Room has appeared: start jobs of types below their floors, then keep standing slots."""
    if servers(s)[server, COUNT] == 0 or queues_are_long(s):
        release_slots(s, server)
        return
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        while queue_length(s)[j] > 0 and _is_low(s, j):
            set_need(s, j)
            if not fits(s, server, need(s)):
                break
            start(s, j, server)
        n = next_waiting(s, n + 1)
    for n in range(s.n_types if policy_ints(s)[CHEAP] > 0 else 0):
        j = order(s)[0, n]
        if holders(s)[j] == 0 and _wants_slot(s, j) and not _has_quieter(s, server, j):
            set_type_need(s, j)
            if fits(s, server, need(s)):
                holders(s)[j] = server + 1
                hold_room(s, j, server, 1)


@kernel
def _is_low(s: State, j: int) -> bool:
    """Whether type j comes seldom, and one more job of it is within its floor."""
    within = (running_by_type(s)[j] + 1) * s.n_types <= policy_floats(s)[FLOOR] * slots(s)[j]
    return bool(within and is_seldom(s, j))


@kernel
def _wants_slot(s: State, j: int) -> bool:
    """Whether a slot of type j costs next to nothing, and jobs of it come, but none waits."""
    comes = ended(s)[j] + running_by_type(s)[j] > 0.0
    return bool(comes and queue_length(s)[j] == 0 and is_cheap(s, j) and _is_low(s, j))


@kernel
def _has_quieter(s: State, server: int, j: int) -> bool:
    """Whether somebody waits for this server who may run on fewer servers than type j, while there are others for type j of which that is not so."""
    if not _is_sought(s, servers(s)[server, CLASS], j):
        return False
    for c in range(s.n_classes):
        if present_by_class(s)[c] > 0 and most(s)[c, j] > 0 and not _is_sought(s, c, j):
            return True
    return False


@kernel
def _is_sought(s: State, c: int, j: int) -> bool:
    """Whether somebody waits for servers of class c who may run on fewer servers than type j."""
    n = next_waiting(s, 0)
    while n >= 0:
        k = order(s)[0, n]
        if scarcity(s)[k] > scarcity(s)[j] and most(s)[c, k] > 0:
            return True
        n = next_waiting(s, n + 1)
    return False


@kernel
def release_slots(s: State, server: int) -> None:
    """The server keeps no standing slots any more."""
    for j in range(s.n_types):
        if holders(s)[j] == server + 1:
            release_slot(s, j)


@kernel
def release_slot(s: State, j: int) -> bool:
    """The room of the standing slot of type j is free; False where there was none."""
    if holders(s)[j] == 0:
        return False
    hold_room(s, j, int(holders(s)[j]) - 1, -1)
    holders(s)[j] = 0
    return True

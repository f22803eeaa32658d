"""Where `guarded` puts a job that finds room on several servers.

On a server l of class c with free room F a job of type j costs others

    (V(F) - v_j - V(F - w_j))  +  p_j (WHOLE (f_l + o_j l / L) + SOUGHT (1 - h_j / H_c)),

with f_l the part of the server that is free, in prices of resources, l its number of L, o_j 1 where jobs of type j run far longer than some that fill a server (`gains.lasting`), else 0, h_j the room of all servers over that of those that can hold type j, and H_c the
largest h of the types that class c can hold. It goes where that is least.

- The first part is the usable room that it spoils (`usable`).
- The second keeps servers whole: one that is nearly empty will soon be empty, and a job that needs much room can have it then.
- Long jobs (o_j = 1) among short ones that fill servers go to low numbers: scattered, each of them would keep a server from becoming empty.
- The last keeps servers free for those who can go nowhere else.

While somebody waits who needs more room than j, and may run wherever j may, the first part is left out: no room that j could spoil is large enough for that one, but a
server that becomes empty is. And where the best fit costs others nothing but its free part, a job that is not long goes there at once.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.core.indexes import fitindex
from slotwise.core.queues import next_waiting
from slotwise.core.state import (
    CLASS,
    GROUP,
    GROUP_NEXT,
    State,
    chains,
    demand,
    free,
    need,
    order,
    policy_ints,
    servers,
)
from slotwise.policies.guarded.fillings import by_type, refresh_weights, set_room
from slotwise.policies.guarded.gains import lasting
from slotwise.policies.guarded.memory import SPOILS
from slotwise.policies.guarded.usable import (
    TINY,
    prices,
    resource_prices,
    scarcity,
    sought,
    spoilt,
    unit_prices,
)

WHOLE = 0.75
"""of its price: what it costs to put a job on an empty server"""
SOUGHT = 2.0
"""times its price: what it costs to put a job where others must go, at most"""
FEWEST_LOOKS, MOST_LOOKS, WORK = 16, 256, 2560
"""A job looks at WORK / J kinds of servers, J the number of types, within these limits: a look takes longer with more types."""
FEW = 32
"""servers of a group of which the one with the lowest number is looked for"""


@kernel
def find_server(s: State, j: int) -> int:
    """The packing server on which a job of type j, whose demand is in need(s), costs others least; -1 where it fits nowhere."""
    winner = fitindex.best(s, need(s))
    if winner < 0:
        return winner
    if s.actual and by_type(s):
        set_room(s, winner, need(s))
        for r in range(s.n_resources):
            if need(s)[r] < demand(s)[j, r]:
                return -1
        return winner
    if not policy_ints(s)[SPOILS] or s.n_places == 1:
        return winner
    refresh_weights(s)
    larger, c = _larger_waits(s, j), servers(s)[winner, CLASS]
    least = _sought_by_others(s, j, c) + (0.0 if larger else spoilt(s, c, free(s)[winner], j, need(s)))
    if least <= TINY and not lasting(s)[j]:
        return winner  # it costs nothing, and this is the best fit
    total = 0.0
    for r in range(s.n_resources):
        total += resource_prices(s)[r]
    each, rooms = WHOLE * prices(s)[j] / total, fitindex.group_free(s)
    later = WHOLE * prices(s)[j] * lasting(s)[j] / s.n_places
    winner = _lowest(s, chains(s)[winner, GROUP], later)
    least += later * winner
    for r in range(s.n_resources):
        least += each * unit_prices(s)[r] * free(s)[winner, r]
    looks = max(FEWEST_LOOKS, min(MOST_LOOKS, WORK // s.n_types))
    for c in range(s.n_classes):
        others, columns = _sought_by_others(s, j, c), fitindex.columns(s, c, need(s))
        g = (
            fitindex.group_from(s, c, fitindex.first_cell(s, c, need(s)), columns)
            if fitindex.may_hold(s, c)
            else -1
        )
        while g >= 0:
            covers, here = True, others
            for r in range(s.n_resources):
                covers = covers and rooms[g, r] >= need(s)[r]
                here += each * unit_prices(s)[r] * rooms[g, r]
            one = _lowest(s, g, later) if covers else 0
            here += later * one
            if covers and here < least - TINY:
                if looks == 0:
                    return winner
                looks -= 1
                if not larger:
                    here += spoilt(s, c, rooms[g], j, need(s))
                if here < least - TINY:
                    winner, least = one, here
            g = fitindex.group_after(s, g, columns)
    return winner


@kernel
def _lowest(s: State, g: int, later: float) -> int:
    """The server with the lowest number among the first few of the group g; the first, where numbers count nothing."""
    found = one = fitindex.groups(s)[g, fitindex.FIRST]
    for _ in range(FEW if later > 0.0 else 0):
        one = chains(s)[one, GROUP_NEXT]
        if one < 0:
            break
        found = min(found, one)
    return int(found)


@kernel
def _larger_waits(s: State, j: int) -> bool:
    """Whether somebody waits who needs more room than a job of type j, and may run wherever it may."""
    n = next_waiting(s, 0)
    while n >= 0:
        k = order(s)[0, n]
        if prices(s)[k] <= prices(s)[j]:
            return False  # from here on they are smaller
        if scarcity(s)[k] <= scarcity(s)[j]:
            return True
        n = next_waiting(s, n + 1)
    return False


@kernel
def _sought_by_others(s: State, j: int, c: int) -> float:
    """What it costs those who can go to few servers that a job of type j goes to class c."""
    return float(SOUGHT * prices(s)[j] * max(0.0, 1.0 - scarcity(s)[j] / sought(s)[c]))

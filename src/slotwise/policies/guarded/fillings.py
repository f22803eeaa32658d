"""Fillings: which waiting jobs a server takes into its free room, worked out before any is started.

A filling takes the types in some order, each as often as its next job in line fits. Its worth is

    W.k' + c V(F'),        W_j = g_j Q_j + c p_j h_j,

with k' what the server would hold and F' what would stay free: the weight of the queues, and beside it, as if c more jobs of
each type were waiting, the room that is put to use or stays usable. (h_j: how few servers can hold type j, `placing`.) With short queues the second part decides, so that
servers are packed tightly; with long ones the first, as in MaxWeight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call_at, natural
from slotwise.core.indexes.weights import FEW_COLUMNS
from slotwise.core.queues import next_waiting
from slotwise.core.state import (
    CLASS,
    COUNT,
    HEAD,
    NEXT,
    State,
    allowed,
    capacity,
    choice,
    demand,
    free,
    int_table,
    job_demand,
    jobs,
    need,
    order,
    policy_floats,
    policy_ints,
    queues,
    running,
    servers,
    weight,
)
from slotwise.policies.guarded.gains import queues_are_long
from slotwise.policies.guarded.memory import BASE, CANDIDATES, FILL, HELD, SPOILS, STALE
from slotwise.policies.guarded.usable import set_prices, usable

BY_SIZE, BY_WEIGHT, BY_DENSITY = 0, 1, 2


@kernel
def refresh_weights(s: State) -> None:
    """W_j follows every queue; only prices may be out of date."""
    if policy_ints(s)[STALE]:
        set_prices(s)


@kernel
def best_filling(s: State, server: int) -> float:
    """Leave the filling of most worth in choice(s)[1]; returns the weight of what the server would then hold."""
    call_at(policy_ints(s)[FILL], s, server, 0)
    return float(policy_floats(s)[HELD])


def find_filling(s: State, server: int, _: int) -> None:
    """The late part of `best_filling`: compiled once, not anew in all that ask for it."""
    counts, now = choice(s)[1], held_weight(s, server)
    for j in range(s.n_types):
        counts[j] = 0
    m = _find_candidates(s, server)
    rule, most, held = natural(BY_DENSITY), -1.0, now  # not a constant: for one, `fill` would be compiled apart
    for other in range(3 if m > 1 else m):  # with one candidate all orders are the same
        mine = now + fill(s, server, m, other)
        worth = mine
        if policy_ints(s)[SPOILS] and m > 1:
            worth += policy_floats(s)[BASE] * usable(s, servers(s)[server, CLASS], need(s))
        if worth > most:
            rule, most, held = other, worth, mine
    if rule != BY_DENSITY and m > 1:
        fill(s, server, m, rule)
    policy_floats(s)[HELD] = held


@kernel
def held_weight(s: State, server: int) -> float:
    """f(k, W) of what the server holds. Leaving out the types of which it has none changes no bit of the sum; with many types most are left out, and
    no addition waits for those of them."""
    on, w, total = running(s)[server], weight(s), 0.0
    if s.n_types <= FEW_COLUMNS:
        for j in range(s.n_types):
            total += w[j] * on[j]
        return total
    left, j = int(servers(s)[server, COUNT]), 0
    while left > 0:
        jobs_of_type = int(on[natural(j)])
        if jobs_of_type > 0:
            total += w[natural(j)] * jobs_of_type
            left -= jobs_of_type
        j += 1
    return total


@kernel
def _find_candidates(s: State, server: int) -> int:
    """Types whose head of line fits into the server's free room, from large to small; returns how many."""
    room, found, m = need(s), int_table(s, CANDIDATES), 0
    set_room(s, server, room)
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        if not s.restricted or allowed(s)[servers(s)[server, CLASS], j]:
            i, fits = queues(s)[j, HEAD], True
            for r in range(s.n_resources):
                fits = fits and room[r] >= size(s, i, j, r)
            if fits:
                found[m, 0] = j
                m += 1
        n = next_waiting(s, n + 1)
    return m


@kernel
def fill(s: State, server: int, m: int, rule: int) -> float:
    """How many jobs of each of the m candidates, into choice(s)[1], and what stays free, into need(s); returns the weight added."""
    rows, counts, rest, found = jobs(s), choice(s)[1], need(s), int_table(s, CANDIDATES)
    _set_order(s, server, m, rule)
    set_room(s, server, rest)
    added = 0.0
    for n in range(m):
        j = found[n, 1]
        i = queues(s)[j, HEAD]
        counts[j] = 0
        while i >= 0:
            fits = True
            for r in range(s.n_resources):
                fits = fits and rest[r] >= size(s, i, j, r)
            if not fits:
                break
            for r in range(s.n_resources):
                rest[r] -= size(s, i, j, r)
            counts[j] += 1
            added += weight(s)[j]
            i = rows[i, NEXT]
    return added


@kernel
def by_type(s: State) -> bool:
    """Whether jobs count with the demand of their type: where they are packed so, or queues are very long."""
    return not s.actual or queues_are_long(s)


@kernel
def size(s: State, i: int, j: int, r: int) -> int:
    """How much of resource r job i of type j counts for."""
    return int(demand(s)[j, r] if by_type(s) else job_demand(s)[i, r])


@kernel
def set_room(s: State, server: int, room: NDArray[np.int64]) -> None:
    """What is free on the server, in the same measure as `size`."""
    for r in range(s.n_resources):
        room[r] = free(s)[server, r]
        if s.actual and by_type(s):
            taken = 0
            for j in range(s.n_types):
                taken += running(s)[server, j] * demand(s)[j, r]
            room[r] = min(room[r], capacity(s)[servers(s)[server, CLASS], r] - taken)


@kernel
def _set_order(s: State, server: int, m: int, rule: int) -> None:
    """The candidates from large to small, or from high to low value."""
    found, whole = int_table(s, CANDIDATES), capacity(s)[servers(s)[server, CLASS]]
    for n in range(m):
        j, at = found[n, 0], n
        if rule != BY_SIZE:
            value = _value(s, j, whole, rule)
            while at > 0 and _value(s, found[at - 1, 1], whole, rule) < value:
                found[at, 1] = found[at - 1, 1]
                at -= 1
        found[at, 1] = j


@kernel
def _value(s: State, j: int, whole: NDArray[np.int64], rule: int) -> float:
    """W_j, or W_j for each share of the server."""
    if rule == BY_WEIGHT:
        return float(weight(s)[j])
    share = 0.0
    for r in range(s.n_resources):
        if whole[r] > 0:
            share = max(share, demand(s)[j, r] / whole[r])
    return float(weight(s)[j] / share) if share > 0.0 else float(weight(s)[j])

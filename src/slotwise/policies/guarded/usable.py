"""What a job is worth and what it spoils: prices of resources, and the room that a job would make useless.

Resources have prices pi_r, high where they are scarce: (use of r)^4, the scarcest at 1. A job costs
p_j = sum_r pi_r w_jr / capacity_r. The usable part of a free vector F is what jobs could still take of it,

    V(F) = max { v.x : x >= 0 whole, x of the types fits into F },        v_j = p_j, less where type j is rare (`gains`),

and a job of type j spoils V(F) - v_j - V(F - w_j) >= 0 of it: 5 units on a server of 10 that takes jobs of 5 and of 2 are all
usable, and of the 3 that a job of 2 leaves of them only 2 are. A hole that only rare jobs could use entirely may never be used so: it is no
reason to keep others out.

V is found by a depth-first search with a bound, and remembered by F. Where the search would be long, many small jobs share the room, and
next to nothing of it is ever useless: there the bound stands for V. (Measured: with the exact V such clusters have longer queues.)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core.indexes import fitindex
from slotwise.core.queues import weight_of_type
from slotwise.core.state import (
    State,
    allowed,
    capacity,
    demand,
    float_field,
    float_table,
    int_field,
    int_table,
    least,
    most,
    offset,
    order,
    policy_floats,
    policy_ints,
    present_by_class,
    queue_length,
    used,
    weight,
)
from slotwise.policies.guarded.gains import common, is_cheap, set_gains, slots
from slotwise.policies.guarded.memory import (
    BASE,
    BOUNDS,
    CHEAP,
    HOPED,
    HOSTS,
    KEYS,
    MEMO,
    POWER,
    PRICES,
    RESOURCE_PRICES,
    REST,
    SCARCITY,
    SEARCH_COUNTS,
    SEARCH_ROOM,
    SEARCH_TYPES,
    SEARCH_VALUES,
    SEEN,
    SOUGHT,
    STALE,
    UNIT_PRICES,
    USE,
    VALUES,
)

NODES = 100
"""steps of a search for V(F)"""
STEPS = 16.0
"""prices of resources are whole multiples of 1 / STEPS, so that they seldom change"""
TINY = 1e-9

I8 = NDArray[np.int64]
F8 = NDArray[np.float64]


@kernel
def use_sums(s: State) -> F8:
    """(R,): use, added up over the completions since prices were last set."""
    return float_field(s, USE)


@kernel
def resource_prices(s: State) -> F8:
    """(R,): pi_r."""
    return float_field(s, RESOURCE_PRICES)


@kernel
def prices(s: State) -> F8:
    """(J,): p_j."""
    return float_field(s, PRICES)


@kernel
def hoped(s: State) -> F8:
    """(J,): v_j, what a job of the type that may still come is worth."""
    return float_field(s, HOPED)


@kernel
def hosts(s: State) -> F8:
    """(J + 1,): the room of the servers that can hold a type, in shares of the largest; last that of all servers."""
    return float_field(s, HOSTS)


@kernel
def unit_prices(s: State) -> F8:
    """(R,): q_r, the price of one unit of a resource."""
    return float_field(s, UNIT_PRICES)


@kernel
def scarcity(s: State) -> F8:
    """(J,): h_j, the room of all servers over that of those that can hold the type."""
    return float_field(s, SCARCITY)


@kernel
def sought(s: State) -> F8:
    """(classes,): the most h_j of the types that servers of the class hold."""
    return float_field(s, SOUGHT)


@kernel
def _bounds(s: State) -> F8:
    """(J, R + 1): the most v per unit of a resource, and last how common, over the n-th of the types that fit and the smaller ones."""
    return float_table(s, BOUNDS)


@kernel
def _known(s: State) -> F8:
    """(MEMO,): V of the free vector that has this place, below 0 where none has."""
    return float_field(s, VALUES)


@kernel
def count_servers(s: State) -> None:
    """Servers have come or gone: how much room there is, and how many slots for each type alone."""
    rooms = hosts(s)
    for j in range(s.n_types):
        slots(s)[j] = 0
        rooms[j] = 0.0
    rooms[s.n_types] = 0.0
    for c in range(s.n_classes):
        n, room = present_by_class(s)[c], 0.0
        for r in range(s.n_resources):
            largest = _largest(s, r)
            room += capacity(s)[c, r] / largest if largest > 0 else 0.0
        rooms[s.n_types] += n * room
        for j in range(s.n_types):
            slots(s)[j] += n * most(s)[c, j]
            rooms[j] += n * room if most(s)[c, j] > 0 else 0.0
    policy_ints(s)[CHEAP] = 0
    for j in range(s.n_types):
        policy_ints(s)[CHEAP] += is_cheap(s, j)
    set_gains(s)
    policy_ints(s)[STALE] = 1


@kernel
def _largest(s: State, r: int) -> int:
    """The largest capacity of a server in resource r."""
    largest = 0
    for c in range(s.n_classes):
        largest = max(largest, capacity(s)[c, r])
    return largest


@kernel
def notice_use(s: State) -> None:
    """Add up what is in use; after ten completions for each running job, price the resources anew."""
    whole, sums = policy_ints(s), use_sums(s)
    whole[SEEN] += 1
    for r in range(s.n_resources):
        sums[r] += used(s)[r]
    if whole[SEEN] >= max(1000, 10 * s.n_running):
        _price_resources(s)
        whole[SEEN] = 0


@kernel
def _price_resources(s: State) -> None:
    sums, pi, top = use_sums(s), resource_prices(s), 0.0
    for r in range(s.n_resources):
        total = 0
        for c in range(s.n_classes):
            total += present_by_class(s)[c] * capacity(s)[c, r]
        share = sums[r] / policy_ints(s)[SEEN] / total if total > 0 else 0.0
        sums[r] = math.pow(share, policy_floats(s)[POWER])
        top = max(top, sums[r])
    changed = False
    for r in range(s.n_resources):
        price = max(1.0, math.floor(STEPS * sums[r] / top + 0.5)) / STEPS if top > 0.0 else 1.0
        changed = changed or price != pi[r]
        pi[r] = price
        sums[r] = 0.0
    if changed:
        policy_ints(s)[STALE] = 1


@kernel
def set_prices(s: State) -> None:
    """Prices of jobs from those of resources, and the weights that follow; what was known of V is void."""
    J, R, p, pi = s.n_types, s.n_resources, prices(s), resource_prices(s)
    for r in range(R):
        largest = _largest(s, r)
        unit_prices(s)[r] = pi[r] / largest if largest > 0 else 0.0
    for j in range(J):
        p[j] = 0.0
        for r in range(R):
            p[j] += unit_prices(s)[r] * demand(s)[j, r]
        scarcity(s)[j] = hosts(s)[J] / hosts(s)[j] if hosts(s)[j] > 0.0 else 1.0
        hoped(s)[j] = common(s)[j] * p[j]
        offset(s)[j] = policy_floats(s)[BASE] * p[j] * scarcity(s)[j]
        weight(s)[j] = weight_of_type(s, j, queue_length(s)[j])
    for c in range(s.n_classes):
        sought(s)[c] = 1.0
        for j in range(J):
            if most(s)[c, j] > 0:
                sought(s)[c] = max(sought(s)[c], scarcity(s)[j])
    for place in range(MEMO):
        _known(s)[place] = -1.0
    policy_ints(s)[STALE] = 0


@kernel
def spoilt(s: State, c: int, room: I8, j: int, size: I8) -> float:
    """V(room) - v_j - V(room - size): how much usable room on a server of class c a job of type j spoils."""
    rest = int_field(s, REST)
    for r in range(s.n_resources):
        rest[r] = room[r] - size[r]
    before = usable(s, c, room)
    return before - hoped(s)[j] - usable(s, c, rest)


@kernel
def usable(s: State, c: int, room: I8) -> float:
    """V(room) on a server of class c, from the memo or by search."""
    if policy_ints(s)[STALE]:
        set_prices(s)
    R, kind = s.n_resources, c if s.restricted else 0  # without requirements all classes take all types
    for r in range(R):
        if room[r] < least(s)[c, r]:
            return 0.0  # nothing fits
    place = fitindex.mixed(kind, room) & (MEMO - 1)
    key, values = int_table(s, KEYS)[place], _known(s)
    known = values[place] >= 0.0 and key[R] == kind
    for r in range(R):
        known = known and key[r] == room[r]
    if not known:
        for r in range(R):
            key[r] = room[r]
        key[R] = kind
        values[place] = _search(s, kind, room)
    return float(values[place])


@kernel
def _search(s: State, c: int, room: I8) -> float:
    """Depth first over the types that fit at all, the largest first, as many as fit, then fewer. What is not known after NODES steps is
    room for many small jobs, next to nothing of which is ever useless: then the bound counts.

    With prices q_r of a unit of resource r and v_j = a_j sum_r q_r w_jr (a_j: how common type j is), no filling of F by types
    from the n-th on is worth more than

        max_j a_j sum_r q_r F_r        or, for any r,        F_r max_j v_j / w_jr,        j from the n-th on.
    """
    R, v, w, chosen = s.n_resources, hoped(s), demand(s), int_field(s, SEARCH_TYPES)
    rest, counts, values = int_table(s, SEARCH_ROOM), int_field(s, SEARCH_COUNTS), float_field(s, SEARCH_VALUES)
    J, q = _those_that_fit(s, c, room), unit_prices(s)
    rate = _bounds(s)
    for r in range(R):
        rest[0, r] = room[r]
    values[0] = best = most_of_all = 0.0
    n = 0
    for step in range(NODES):
        more = 0.0
        if n < J:
            for r in range(R):
                more += q[r] * rest[n, r]
            more *= rate[n, R]
            for r in range(R):
                if rate[n, r] < math.inf:  # some type asks for nothing of the others
                    more = min(more, rate[n, r] * rest[n, r])
            if n == 0 and step == 0:
                most_of_all = more
        if values[n] + more > best + TINY:
            j = chosen[n]
            count = _how_often(w[j], rest[n], R)
            counts[n] = count
            for r in range(R):
                rest[n + 1, r] = rest[n, r] - count * w[j, r]
            n += 1
            values[n] = values[n - 1] + count * v[j]
            best = max(best, values[n])
            continue
        # back to the last type of which there is one to give up
        n -= 1
        while n >= 0 and counts[n] == 0:
            n -= 1
        if n < 0:
            return best
        counts[n] -= 1
        for r in range(R):
            rest[n + 1, r] += w[chosen[n], r]
        n += 1
        values[n] = values[n - 1] + counts[n - 1] * v[chosen[n - 1]]
    return most_of_all


@kernel
def _how_often(size: I8, room: I8, R: int) -> int:
    """How many jobs of this size fit into the room."""
    for r in range(R):
        if size[r] > room[r]:
            return 0  # most often; it spares the divisions
    count = np.int64(-1)
    for r in range(R):
        if size[r] > 0:
            fit = room[r] // size[r]
            count = fit if count < 0 else min(count, fit)
    return int(count)


@kernel
def _those_that_fit(s: State, c: int, room: I8) -> int:
    """Those types that fit into the room, the largest first, and the bounds on what they and smaller ones are worth; returns how many
    they are."""
    R, w, chosen, rate, J = s.n_resources, demand(s), int_field(s, SEARCH_TYPES), _bounds(s), 0
    for n in range(s.n_types):
        j = order(s)[0, n]
        fits = not s.restricted or allowed(s)[c, j] > 0
        for r in range(R):
            fits = fits and w[j, r] <= room[r]
        if fits:
            chosen[J] = j
            J += 1
    for n in range(J - 1, -1, -1):
        j = chosen[n]
        rate[n, R] = common(s)[j]
        for r in range(R):
            rate[n, r] = hoped(s)[j] / w[j, r] if w[j, r] > 0 else math.inf
        if n < J - 1:
            for r in range(R + 1):
                rate[n, r] = max(rate[n, r], rate[n + 1, r])
    return J

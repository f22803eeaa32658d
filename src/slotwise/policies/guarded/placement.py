"""Placement: where a job starts that fits several servers.

Free capacity F of a server is worth what jobs could still use of it:

    V(F) = max { sum_j v_j x_j : x jobs of the types fit F together }

| symbol | meaning |
|---|---|
| v_j | share of type j: the mean over the resources of its share of the largest server |
| V(F) - v_j - V(F - w_j) | spoilt capacity: what a job of type j with demand w_j makes useless |

A job goes where it spoils least, and of such servers where least is free (best fit). On a server of 10 that holds one job of 5, a job of 2 spoils 1 of the
other 5: what stays free, 3, holds one more job of 2 only. Placement decides nothing that the theorem needs.

V is found by a depth-first search and remembered by F. After NODES steps its bound counts instead: then many small jobs fit, and hardly any capacity is ever useless.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core.indexes import fitindex
from slotwise.core.state import (
    CLASS,
    State,
    allowed,
    demand,
    float_field,
    free,
    int_field,
    int_table,
    least,
    may_hold,
    need,
    order,
    servers,
)
from slotwise.policies.guarded.memory import (
    KEYS,
    MEMO,
    REST,
    SEARCH_COUNTS,
    SEARCH_ROOM,
    SEARCH_TYPES,
    SEARCH_VALUES,
    SHARES,
    UNITS,
    VALUES,
)

NODES = 100  # steps of a search for V(F), a few microseconds
KINDS = 64  # kinds of free servers that a job looks at, at most
WHOLE = 0.75  # of its size: what it counts against a server that all of it is free
TINY = 1e-9  # a difference of sums of shares that is rounding


@kernel
def find_server(s: State, j: int) -> int:
    """Return the server where a job of type j with the demand in need(s) spoils least; -1 if it fits nowhere."""
    winner = fitindex.best(s, need(s))
    if winner < 0 or s.n_places == 1:
        return winner
    units, rooms, size = float_field(s, UNITS), fitindex.group_free(s), float_field(s, SHARES)[j]
    cost = spoilt(s, servers(s)[winner, CLASS], free(s)[winner], j)
    if cost <= TINY:
        return winner  # the best fit, and it spoils nothing
    for r in range(s.n_resources):
        cost += WHOLE * size * units[r] * free(s)[winner, r]
    looks = KINDS
    for c in range(s.n_classes):
        if not may_hold(s, c):
            continue
        columns = fitindex.columns(s, c, need(s))
        g = fitindex.group_from(s, c, fitindex.first_cell(s, c, need(s)), columns)
        while g >= 0:
            covers, here = True, 0.0
            for r in range(s.n_resources):
                covers = covers and rooms[g, r] >= need(s)[r]
                here += WHOLE * size * units[r] * rooms[g, r]
            if covers and here < cost - TINY:
                if looks == 0:
                    return winner
                looks -= 1
                here += spoilt(s, c, rooms[g], j)
                if here < cost - TINY:
                    winner, cost = int(fitindex.groups(s)[g, fitindex.FIRST]), here
            g = fitindex.group_after(s, g, columns)
    return winner


@kernel
def spoilt(s: State, c: int, room: NDArray[np.int64], j: int) -> float:
    """Return V(F) - v_j - V(F - w) on a server of class c, for the demand w in need(s)."""
    rest = int_field(s, REST)
    for r in range(s.n_resources):
        rest[r] = room[r] - need(s)[r]
    before = usable(s, c, room)
    return before - float_field(s, SHARES)[j] - usable(s, c, rest)


@kernel
def usable(s: State, c: int, room: NDArray[np.int64]) -> float:
    """Return V(F) on a server of class c, remembered or by search."""
    R, kind = s.n_resources, c if s.restricted else 0  # without requirements all classes hold all types
    for r in range(R):
        if room[r] < least(s)[c, r]:
            return 0.0  # no job fits
    place = fitindex.mixed(kind, room) & (MEMO - 1)
    key, values = int_table(s, KEYS)[place], float_field(s, VALUES)
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
def _search(s: State, c: int, room: NDArray[np.int64]) -> float:
    """Depth first over the types that fit, the largest first: as many jobs as fit, then fewer. No filling is worth more than all of the free capacity."""
    R, v, w, chosen = s.n_resources, float_field(s, SHARES), demand(s), int_field(s, SEARCH_TYPES)
    rest, counts, values = int_table(s, SEARCH_ROOM), int_field(s, SEARCH_COUNTS), float_field(s, SEARCH_VALUES)
    J, units = _types_that_fit(s, c, room), float_field(s, UNITS)
    for r in range(R):
        rest[0, r] = room[r]
    values[0] = best = bound = 0.0
    n = 0
    for step in range(NODES):
        more = 0.0
        if n < J:
            for r in range(R):
                more += units[r] * rest[n, r]
            if step == 0:
                bound = more
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
        # back to the last type with a job to give up
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
    return bound


@kernel
def _how_often(size: NDArray[np.int64], room: NDArray[np.int64], R: int) -> int:
    """Return how many jobs of this demand fit together."""
    count = np.int64(-1)
    for r in range(R):
        if size[r] > room[r]:
            return 0
        if size[r] > 0:
            fit = room[r] // size[r]
            count = fit if count < 0 else min(count, fit)
    return max(int(count), 0)


@kernel
def _types_that_fit(s: State, c: int, room: NDArray[np.int64]) -> int:
    """List the types of which a job fits, largest first. Return their number."""
    chosen, found = int_field(s, SEARCH_TYPES), 0
    for n in range(s.n_types):
        j = order(s)[0, n]
        fits = not s.restricted or allowed(s)[c, j] > 0
        for r in range(s.n_resources):
            fits = fits and demand(s)[j, r] <= room[r]
        if fits:
            chosen[found] = j
            found += 1
    return found

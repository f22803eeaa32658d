"""The waiting jobs by what they ask for: the oldest that fits a room, or the largest, without looking at every one.

A binary tree over the demand vectors of the waiting jobs (`linetree` keeps it). Each node knows of the jobs below it

    low_r = min w_r,   high_r = max w_r,   the order of arrival of the oldest,   the shortest expected duration.

A node whose low does not fit the room is skipped whole; one whose high fits holds nothing but jobs that fit. A search goes
down to the more promising child first and skips what cannot beat the best job found so far. The promise for "oldest" is the oldest
below; for a score that grows with the demand (largest share, dot product with what is free) it is the score of min(high, room).

With one resource a search takes O(log n) steps for n distinct demands. With R resources it takes the time of a k-d
tree. That is O(log n) if many jobs fit, and at most O(n^(1 - 1/R)) if demands are spread evenly and nearly all must be
ruled out.

What is found depends on the jobs only, never on the layout of the tree: ties go to the older job, and no two are equally old.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core import state as st
from slotwise.core.indexes.linetree import (
    LEFT,
    LEVEL,
    OLDEST,
    RIGHT,
    YOUNGEST,
    file_last,
    high,
    low,
    nodes,
    promises,
    roots,
    shortest_time,
    stack,
    type_of_group,
)

NONE = -1
SHORTEST = 1e-12  # no job is taken to be shorter
BY_SHARE, BY_DOT = 0, 1  # scores of `largest`


@kernel
def covered(size: NDArray[np.int64], room: NDArray[np.int64]) -> bool:
    """Return whether `room` has that much of every resource."""
    for r in range(size.shape[0]):
        if size[r] > room[r]:
            return False
    return True


@kernel
def first_in_line(s: st.State) -> int:
    """Return the job that has waited longest, or -1 if no job waits."""
    file_last(s)
    best = NONE
    for g in range(s.n_line_groups):
        root = roots(s)[g]
        if root >= 0 and (best < 0 or nodes(s)[root, OLDEST] < nodes(s)[best, OLDEST]):
            best = root
    return _oldest_below(s, best) if best >= 0 else NONE


@kernel
def oldest(s: st.State, room: NDArray[np.int64], c: int) -> int:
    """Return the oldest waiting job that fits the room and may run on servers of class c, or -1."""
    file_last(s)
    rows, lows, highs, todo = nodes(s), low(s), high(s), stack(s)
    best, n = NONE, _roots_for(s, c)
    while n > 0:
        n -= 1
        node = todo[n]
        if (best >= 0 and rows[node, OLDEST] > rows[best, OLDEST]) or not covered(lows[node], room):
            continue
        if rows[node, LEVEL] < 0 or covered(highs[node], room):
            best = node
            continue
        n = _push(s, node, n)
    return _oldest_below(s, best) if best >= 0 else NONE


@kernel
def largest(s: st.State, room: NDArray[np.int64], c: int, rule: int) -> int:
    """Return the waiting job of the largest score that fits the room and may run on servers of class c, or -1.

    BY_SHARE: the largest share of any resource of the largest servers, then the sum of the shares. BY_DOT: the sum of the products of
    the shares of demand and room, of a server of class c. Of equal ones the oldest."""
    file_last(s)
    rows, lows, todo, promise = nodes(s), low(s), stack(s), promises(s)
    whole = st.capacity(s)[c] if rule == BY_DOT else st.largest_capacity(s)
    best, first, second = NONE, 0.0, 0.0
    for g in range(s.n_line_groups):
        node, n = roots(s)[g], 0
        if (
            node < 0
            or (s.restricted and not st.allowed(s)[c, type_of_group(s)[g]])
            or not covered(lows[node], room)
        ):
            continue
        a, b = _score(s, node, room, whole, rule)
        while True:
            # down to the more promising child; the other one, where any job in it may fit, is kept for later
            if best < 0 or _beats(a, b, rows[node, OLDEST], first, second, rows[best, OLDEST]):
                if rows[node, LEVEL] < 0:
                    best, first, second = node, a, b
                else:
                    node, other = rows[node, LEFT], rows[node, RIGHT]
                    fits, other_fits = covered(lows[node], room), covered(lows[other], room)
                    if fits:
                        a, b = _score(s, node, room, whole, rule)
                    if other_fits:
                        e, f = _score(s, other, room, whole, rule)
                        if fits:
                            if _beats(e, f, rows[other, OLDEST], a, b, rows[node, OLDEST]):
                                node, other = other, node
                                a, b, e, f = e, f, a, b
                            todo[n], promise[n, 0], promise[n, 1] = other, e, f
                            n += 1
                        else:
                            node, a, b = other, e, f
                    if fits or other_fits:
                        continue
            if n == 0:
                break
            n -= 1
            node, a, b = todo[n], promise[n, 0], promise[n, 1]
    return int(rows[best, LEFT]) if best >= 0 else NONE


@kernel
def oldest_harmless(
    s: st.State,
    after: int,
    elsewhere: NDArray[np.int64],
    room: NDArray[np.int64],
    spare: NDArray[np.int64],
    until: float,
) -> int:
    """Return the oldest job that came after `after` and fits either the free capacity `elsewhere` or `room`, or -1. A
    job takes `room` only if it is expected to end by `until` or takes no more than `spare`. Each job must be a leaf."""
    file_last(s)
    rows, lows, todo = nodes(s), low(s), stack(s)
    best, n = NONE, _roots_for(s, NONE)
    while n > 0:
        n -= 1
        node = todo[n]
        if rows[node, YOUNGEST] <= after or (best >= 0 and rows[node, OLDEST] > rows[best, OLDEST]):
            continue
        size = lows[node]
        if not covered(size, elsewhere):
            in_time = s.now + shortest_time(s)[node] <= until
            if not covered(size, room) or not (in_time or covered(size, spare)):
                continue
        if rows[node, LEVEL] < 0:
            best = node
            continue
        n = _push(s, node, n)
    return int(rows[best, LEFT]) if best >= 0 else NONE


@kernel
def most_urgent(
    s: st.State, room: NDArray[np.int64], c: int, spare: NDArray[np.int64], until: float, long: float
) -> int:
    """Return the job with the largest u = a (m + (a / long)^4) / d that fits `room` and may run on servers of class c
    (-1: any), or -1. Only jobs count that are expected to end by `until` or take no more than `spare`. Each job must be
    a leaf.

    a is the number of arrivals since the job's, m the largest share of any resource of the largest servers that it
    takes, d its expected duration. Of equal jobs the oldest is returned. The largest m and a and the least d below a
    node bound u there."""
    file_last(s)
    rows, todo, promise = nodes(s), stack(s), promises(s)
    best, most, n = NONE, 0.0, 0
    for k in range(_roots_for(s, c)):
        if _may_start(s, todo[k], room, spare, until):
            todo[n], promise[n, 0] = todo[k], _urgency(s, todo[k], room, long)
            n += 1
    while n > 0:
        n -= 1
        node, this = todo[n], promise[n, 0]
        if best >= 0 and not _beats(this, 0.0, rows[node, OLDEST], most, 0.0, rows[best, OLDEST]):
            continue
        if rows[node, LEVEL] < 0:
            best, most = node, this
            continue
        # compute urgencies, which take divisions, only for children with a job that may start
        a, b = rows[node, LEFT], rows[node, RIGHT]
        if _may_start(s, a, room, spare, until):
            todo[n], promise[n, 0] = a, _urgency(s, a, room, long)
            n += 1
        if _may_start(s, b, room, spare, until):
            todo[n], promise[n, 0] = b, _urgency(s, b, room, long)
            n += 1
            if n > 1 and todo[n - 2] == a and promise[n - 2, 0] > promise[n - 1, 0]:
                todo[n - 1], todo[n - 2] = a, b
                promise[n - 1, 0], promise[n - 2, 0] = promise[n - 2, 0], promise[n - 1, 0]
    return int(rows[best, LEFT]) if best >= 0 else NONE


@kernel
def _may_start(s: st.State, node: int, room: NDArray[np.int64], spare: NDArray[np.int64], until: float) -> bool:
    """Return whether some job below the node may fit the room, and end by `until` or take no more than the spare
    capacity. For a leaf, return whether its job does."""
    size = low(s)[node]
    return covered(size, room) and (s.now + shortest_time(s)[node] <= until or covered(size, spare))


@kernel
def _urgency(s: st.State, node: int, room: NDArray[np.int64], long: float) -> float:
    """Return an upper bound on u of the jobs below the node that fit the room. For a leaf that fits it is the job's
    own u."""
    share, whole = 0.0, st.largest_capacity(s)
    for r in range(s.n_resources):
        if whole[r] > 0:
            share = max(share, min(high(s)[node, r], room[r]) / whole[r])
    waited = float(s.last_sequence - nodes(s)[node, OLDEST])
    square = (waited / long) * (waited / long)
    return waited * (share + square * square) / max(shortest_time(s)[node], SHORTEST)


@kernel
def _roots_for(s: st.State, c: int) -> int:
    """Put the trees of types that may run on class c (-1: any class) on the stack; returns how many."""
    n = 0
    for g in range(s.n_line_groups):
        if roots(s)[g] >= 0 and (c < 0 or not s.restricted or st.allowed(s)[c, type_of_group(s)[g]] > 0):
            stack(s)[n] = roots(s)[g]
            n += 1
    return n


@kernel
def _push(s: st.State, node: int, n: int) -> int:
    """Put the children on the stack so that the one with the older job comes next."""
    rows, todo = nodes(s), stack(s)
    left, right = rows[node, LEFT], rows[node, RIGHT]
    swap = rows[right, OLDEST] < rows[left, OLDEST]
    todo[n] = left if swap else right
    todo[n + 1] = right if swap else left
    return n + 2


@kernel
def _oldest_below(s: st.State, node: int) -> int:
    rows = nodes(s)
    while rows[node, LEVEL] >= 0:
        left = rows[node, LEFT]
        node = left if rows[left, OLDEST] == rows[node, OLDEST] else rows[node, RIGHT]
    return int(rows[node, LEFT])


@kernel
def _score(
    s: st.State, node: int, room: NDArray[np.int64], whole: NDArray[np.int64], rule: int
) -> tuple[float, float]:
    """Return an upper bound on the score of the jobs below the node that fit the room. For a leaf that fits it is
    the job's own score."""
    highest, share, total = high(s)[node], 0.0, 0.0
    for r in range(s.n_resources):
        if whole[r] > 0:
            part = min(highest[r], room[r]) / whole[r]
            if rule == BY_DOT:
                total += part * (room[r] / whole[r])
            else:
                share = max(share, part)
                total += part
    return share, total


@kernel
def _beats(a: float, b: float, born: int, first: float, second: float, age: int) -> bool:
    """Return whether the score (a, b) of a job that came at `born` is better than the other score."""
    if a != first:
        return a > first
    if b != second:
        return b > second
    return born < age

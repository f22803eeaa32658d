"""Waiting jobs: doubly linked queues, in the order of arrival, through the rows of `jobs`, so that any job can leave in one step.

With `own_queues` (an option of M14) every server has queues of its own and a job joins the shortest of its type; a
tournament tree over the lengths finds it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call_at, int_rows, natural, trailing_zeros
from slotwise.core import state as st

LONGEST = 2**60


@kernel
def admit(s: st.State, j: int) -> int:
    """A new job of type j at the end of its queue; the caller has seen to it that a job number is free."""
    i, j = natural(s.free_job), natural(j)
    s.free_job = st.jobs(s)[i, st.NEXT]
    s.n_free_jobs -= 1
    st.jobs(s)[i, st.TYPE] = j
    st.sequence(s)[i] = s.last_sequence
    s.last_sequence += 1
    join_queue(s, i, queue_for(s, j))
    return i


@kernel
def release(s: st.State, i: int) -> None:
    """The job is gone; its number may be used again."""
    i = natural(i)
    st.jobs(s)[i, st.SERVER] = st.NOWHERE
    st.jobs(s)[i, st.NEXT] = s.free_job
    s.free_job = i
    s.n_free_jobs += 1


@kernel
def queue_for(s: st.State, j: int) -> int:
    """The queue that a job of type j joins."""
    if not s.own_queues:
        return j
    tree, half = shortest(s), s.n_tree
    if tree[j, 1] >= LONGEST:
        return s.max_servers * s.n_types + j
    node = 1
    while node < half:
        node = 2 * node if tree[j, 2 * node] <= tree[j, 2 * node + 1] else 2 * node + 1
    return (node - half) * s.n_types + j


@kernel
def join_queue(s: st.State, i: int, q: int) -> None:
    """Put job i at the end of queue q."""
    _put_between(s, natural(i), natural(q), st.queues(s)[natural(q), st.TAIL], -1)


@kernel
def rejoin_queue(s: st.State, i: int, q: int) -> None:
    """Put job i where its arrival puts it in queue q: before all who came after it."""
    rows = st.jobs(s)
    before, after = -1, int(st.queues(s)[q, st.HEAD])
    while after >= 0 and st.sequence(s)[after] < st.sequence(s)[i]:
        before, after = after, int(rows[after, st.NEXT])
    _put_between(s, i, q, before, after)


@kernel
def _put_between(s: st.State, i: int, q: int, before: int, after: int) -> None:
    """Link job i into queue q between these two; -1: it is the first, or the last."""
    rows, queue = st.jobs(s), st.queues(s)[q]
    job = rows[i]
    job[st.SERVER] = st.WAITING
    job[st.QUEUE] = q
    job[st.PREVIOUS] = before
    job[st.NEXT] = after
    if before >= 0:
        rows[natural(before), st.NEXT] = i
    else:
        queue[st.HEAD] = i
    if after >= 0:
        rows[natural(after), st.PREVIOUS] = i
    else:
        queue[st.TAIL] = i
    _resize(s, natural(st.jobs(s)[i, st.TYPE]), q, 1)
    if s.keeps_line:
        # filed when the next one comes, if it has not started by then
        if s.line_last >= 0:
            call_at(s.hook_line, s, s.line_last, 1)
        s.line_last = i


@kernel
def leave_queue(s: st.State, i: int) -> None:
    """Take job i out of its queue, wherever in it it stands."""
    i, rows = natural(i), st.jobs(s)
    job = rows[i]
    queue = st.queues(s)[natural(job[st.QUEUE])]
    if job[st.PREVIOUS] >= 0:
        rows[job[st.PREVIOUS], st.NEXT] = job[st.NEXT]
    else:
        queue[st.HEAD] = job[st.NEXT]
    if job[st.NEXT] >= 0:
        rows[job[st.NEXT], st.PREVIOUS] = job[st.PREVIOUS]
    else:
        queue[st.TAIL] = job[st.PREVIOUS]
    _resize(s, natural(st.jobs(s)[i, st.TYPE]), natural(job[st.QUEUE]), -1)
    if s.keeps_line:
        if s.line_last == i:
            s.line_last = -1
        else:
            call_at(s.hook_line, s, i, 0)


@kernel
def _resize(s: st.State, j: int, q: int, by: int) -> None:
    j, q = natural(j), natural(q)
    length = st.queue_length(s)[j] + by
    st.queue_length(s)[j] = length
    st.weight(s)[j] = weight_of_type(s, j, length)
    if s.keeps_ranks and (length == 0 or length == by):
        _mark(s, j, length > 0)
    st.queues(s)[q, st.LENGTH] += by
    s.n_waiting += by
    if s.own_queues and q < s.max_servers * s.n_types:
        refresh_shortest(s, j, q // s.n_types)


@kernel
def weight_of_type(s: st.State, j: int, length: int) -> float:
    """What a queue of this length weighs."""
    if s.gained:
        return float(st.gain(s)[j] * length + st.offset(s)[j])
    return math.log(1.0 + length) if s.log_weights else float(length)


@kernel
def _mark(s: st.State, j: int, waits: bool) -> None:
    """Note whether a job of type j waits."""
    place = st.rank(s)[j]
    if waits:
        st.waiting_ranks(s)[place >> 5] |= 1 << (place & 31)
    else:
        st.waiting_ranks(s)[place >> 5] &= ~(1 << (place & 31))


@kernel
def next_waiting(s: st.State, place: int) -> int:
    """Return the first rank from `start` on, from large types to small, with a waiting job, or -1."""
    if place >= s.n_types:
        return -1
    words, n = st.waiting_ranks(s), natural(place >> 5)
    word = words[n] >> (place & 31) << (place & 31)
    while word == 0:
        n += 1
        if n == len(words):
            return -1
        word = words[n]
    return (n << 5) + trailing_zeros(word)


@kernel
def shortest(s: st.State) -> NDArray[np.int64]:
    """(J, 2 leaves): for each type a tournament tree over the servers' queue lengths; only with `own_queues`."""
    return int_rows(s.at_shortest, s.n_types, 2 * s.n_tree)


@kernel
def refresh_shortest(s: st.State, j: int, server: int) -> None:
    """Bring server's leaf, and the nodes above it, up to date: its length, or LONGEST where it takes no type j."""
    row = st.servers(s)[server]
    takes = row[st.STATUS] == st.PRESENT and st.most(s)[row[st.CLASS], j] > 0
    tree = shortest(s)[j]
    node = s.n_tree + server
    tree[node] = st.queues(s)[server * s.n_types + j, st.LENGTH] if takes else LONGEST
    while node > 1:
        node //= 2
        tree[node] = min(tree[2 * node], tree[2 * node + 1])


@kernel
def oldest_head(s: st.State, servers_queue: int) -> int:
    """Return the type whose head of queue has waited longest, or -1 if no job waits (queues of all types)."""
    born, lines = st.sequence(s), st.queues(s)
    best, age = -1, 0
    for j in range(s.n_types):
        i = lines[servers_queue + j, st.HEAD]
        if i >= 0 and (best < 0 or born[natural(i)] < age):
            best, age = j, born[natural(i)]
    return best

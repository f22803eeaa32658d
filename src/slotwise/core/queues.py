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
from slotwise.core.state import (
    CLASS,
    HEAD,
    LENGTH,
    NEXT,
    NOWHERE,
    PRESENT,
    PREVIOUS,
    QUEUE,
    SERVER,
    STATUS,
    TAIL,
    TYPE,
    WAITING,
    State,
    gain,
    jobs,
    most,
    offset,
    queue_length,
    queues,
    rank,
    sequence,
    servers,
    waiting_ranks,
    weight,
)

LONGEST = 2**60


@kernel
def admit(s: State, j: int) -> int:
    """A new job of type j at the end of its queue; the caller has seen to it that a job number is free."""
    i, j = natural(s.free_job), natural(j)
    s.free_job = jobs(s)[i, NEXT]
    s.n_free_jobs -= 1
    jobs(s)[i, TYPE] = j
    sequence(s)[i] = s.last_sequence
    s.last_sequence += 1
    join_queue(s, i, queue_for(s, j))
    return i


@kernel
def release(s: State, i: int) -> None:
    """The job is gone; its number may be used again."""
    i = natural(i)
    jobs(s)[i, SERVER] = NOWHERE
    jobs(s)[i, NEXT] = s.free_job
    s.free_job = i
    s.n_free_jobs += 1


@kernel
def queue_for(s: State, j: int) -> int:
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
def join_queue(s: State, i: int, q: int) -> None:
    """Put job i at the end of queue q."""
    _put_between(s, natural(i), natural(q), queues(s)[natural(q), TAIL], -1)


@kernel
def rejoin_queue(s: State, i: int, q: int) -> None:
    """Put job i where its arrival puts it in queue q: before all who came after it."""
    rows = jobs(s)
    before, after = -1, int(queues(s)[q, HEAD])
    while after >= 0 and sequence(s)[after] < sequence(s)[i]:
        before, after = after, int(rows[after, NEXT])
    _put_between(s, i, q, before, after)


@kernel
def _put_between(s: State, i: int, q: int, before: int, after: int) -> None:
    """Link job i into queue q between these two; -1: it is the first, or the last."""
    rows, queue = jobs(s), queues(s)[q]
    job = rows[i]
    job[SERVER] = WAITING
    job[QUEUE] = q
    job[PREVIOUS] = before
    job[NEXT] = after
    if before >= 0:
        rows[natural(before), NEXT] = i
    else:
        queue[HEAD] = i
    if after >= 0:
        rows[natural(after), PREVIOUS] = i
    else:
        queue[TAIL] = i
    _resize(s, natural(jobs(s)[i, TYPE]), q, 1)
    if s.keeps_line:
        # filed when the next one comes, if it has not started by then
        if s.line_last >= 0:
            call_at(s.hook_line, s, s.line_last, 1)
        s.line_last = i


@kernel
def leave_queue(s: State, i: int) -> None:
    """Take job i out of its queue, wherever in it it stands."""
    i, rows = natural(i), jobs(s)
    job = rows[i]
    queue = queues(s)[natural(job[QUEUE])]
    if job[PREVIOUS] >= 0:
        rows[job[PREVIOUS], NEXT] = job[NEXT]
    else:
        queue[HEAD] = job[NEXT]
    if job[NEXT] >= 0:
        rows[job[NEXT], PREVIOUS] = job[PREVIOUS]
    else:
        queue[TAIL] = job[PREVIOUS]
    _resize(s, natural(jobs(s)[i, TYPE]), natural(job[QUEUE]), -1)
    if s.keeps_line:
        if s.line_last == i:
            s.line_last = -1
        else:
            call_at(s.hook_line, s, i, 0)


@kernel
def _resize(s: State, j: int, q: int, by: int) -> None:
    j, q = natural(j), natural(q)
    length = queue_length(s)[j] + by
    queue_length(s)[j] = length
    weight(s)[j] = weight_of_type(s, j, length)
    if s.keeps_ranks and (length == 0 or length == by):
        _mark(s, j, length > 0)
    queues(s)[q, LENGTH] += by
    s.n_waiting += by
    if s.own_queues and q < s.max_servers * s.n_types:
        refresh_shortest(s, j, q // s.n_types)


@kernel
def weight_of_type(s: State, j: int, length: int) -> float:
    """What a queue of this length weighs."""
    if s.gained:
        return float(gain(s)[j] * length + offset(s)[j])
    return math.log(1.0 + length) if s.log_weights else float(length)


@kernel
def _mark(s: State, j: int, waits: bool) -> None:
    """Note whether somebody of type j waits."""
    place = rank(s)[j]
    if waits:
        waiting_ranks(s)[place >> 5] |= 1 << (place & 31)
    else:
        waiting_ranks(s)[place >> 5] &= ~(1 << (place & 31))


@kernel
def next_waiting(s: State, place: int) -> int:
    """The first rank from this one on, from large types to small, of which somebody waits; -1 where there is none."""
    if place >= s.n_types:
        return -1
    words, n = waiting_ranks(s), natural(place >> 5)
    word = words[n] >> (place & 31) << (place & 31)
    while word == 0:
        n += 1
        if n == len(words):
            return -1
        word = words[n]
    return (n << 5) + trailing_zeros(word)


@kernel
def shortest(s: State) -> NDArray[np.int64]:
    """(J, 2 leaves): for each type a tournament tree over the servers' queue lengths; only with `own_queues`."""
    return int_rows(s.at_shortest, s.n_types, 2 * s.n_tree)


@kernel
def refresh_shortest(s: State, j: int, server: int) -> None:
    """Bring server's leaf, and the nodes above it, up to date: its length, or LONGEST where it takes no type j."""
    row = servers(s)[server]
    takes = row[STATUS] == PRESENT and most(s)[row[CLASS], j] > 0
    tree = shortest(s)[j]
    node = s.n_tree + server
    tree[node] = queues(s)[server * s.n_types + j, LENGTH] if takes else LONGEST
    while node > 1:
        node //= 2
        tree[node] = min(tree[2 * node], tree[2 * node + 1])


@kernel
def oldest_head(s: State, servers_queue: int) -> int:
    """The type whose head of line has waited longest, -1 where nobody waits (queues of all types)."""
    born, lines = sequence(s), queues(s)
    best, age = -1, 0
    for j in range(s.n_types):
        i = lines[servers_queue + j, HEAD]
        if i >= 0 and (best < 0 or born[natural(i)] < age):
            best, age = j, born[natural(i)]
    return best

"""Drains: a server lets jobs leave, on purpose, for one that would not find room otherwise.

Small jobs that keep on coming never leave room for one that needs a whole server. Say job i of type j has waited longest of all, and k jobs must leave server l
before it fits. They go one by one, after S H_k, H_k = 1 + 1/2 + ... + 1/k, with S their mean service time. Meanwhile the room for i stands
partly idle; in units of that room, with f the part of it that is free already, this costs

    c_l = S (H_k - (1 - f)).

The server drains for i in two cases, whichever comes first.

*It pays.* The drain costs c_l to each who waits: to i and to all waiting jobs of other types. i has waited `patience` times that sum, nobody of
type j runs, and nobody waits of the types that l holds. A job that has waited so long is likely to wait long again.

*It is overdue.* i has waited more than 2 `overdue` times as long as it should be in the system: as jobs are in the mean, with its own type's mean service time instead of that of all where
it is longer, since a wait that is long for a short job is none for a long one. Such a drain begins only while all drains so far
have taken less than `drain_share` of the time of all servers; what was not used may be saved up for a while only. From `overdue` times on a job already goes first where room appears and it fits.

A drain that takes more than `drain_limit` times what drains take is given up: with service times of a heavy tail it may wait for one job for ever.

And a server that is empty goes on with the type that it has just served, if the next job of that type has waited longest of all, and either nobody else of it runs, or the
others who would fill the server would gain less from it than a new drain costs those of the type. Where small jobs have piled up meanwhile, the drain would have to be paid again for every
large job otherwise.

The policy has no clock. By Little's law N running jobs see N arrivals in a mean service time, and N + Q in the mean time in the system; so a wait is counted in
arrivals. Service times with a heavy tail make drains longer than S H_k: how much longer they were is learnt. With very long queues nobody goes first and nothing
drains by these rules, or nothing could be proven.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core.moves import start
from slotwise.core.queues import next_waiting
from slotwise.core.state import (
    CLASS,
    COUNT,
    HEAD,
    MODE,
    PRESENT,
    STALLED,
    STATUS,
    State,
    capacity,
    choice,
    configuration,
    demand,
    float_field,
    free,
    int_field,
    most,
    need,
    order,
    policy_floats,
    policy_ints,
    queue_length,
    queues,
    running,
    running_by_type,
    sequence,
    servers,
)
from slotwise.policies.fit.fitting import fits, set_need
from slotwise.policies.guarded.fillings import best_filling, refresh_weights
from slotwise.policies.guarded.gains import EVERY, paces, queues_are_long
from slotwise.policies.guarded.memory import (
    ARRIVED,
    BEGAN,
    CLOCK,
    CREDIT,
    DRAIN_LIMIT,
    DRAIN_SHARE,
    DRAINS,
    EXPECTED,
    LENGTHS,
    MEAN_QUEUE,
    NEXT_DRAIN,
    NEXT_OVERDUE,
    OVERDUE,
    PATIENCE,
    STRETCH,
)
from slotwise.policies.paper.slots import is_capped

NOBODY = -1
TINY = 1e-9
EULER = 0.5772156649
WINDOW = 256
"""moments over which the mean queue is taken"""
LEARNS = 0.125
"""what one drain counts in how much longer drains are than thought"""
SHORTEST = 0.1
"""mean service times: no drain is thought to be shorter"""
SAVED = 2.0
"""mean service times of one server: so much may be saved up for drains"""


@kernel
def drains(s: State) -> NDArray[np.int64]:
    """(J,): the number of the server that drains for a type, plus 1; 0 where none does."""
    return int_field(s, DRAINS)


@kernel
def notice_queue(s: State) -> None:
    """At every EVERY-th arrival: the mean queue, and what may be spent on drains for jobs that are overdue."""
    numbers, seen = policy_floats(s), policy_ints(s)[ARRIVED] // EVERY
    numbers[MEAN_QUEUE] += (s.n_waiting - numbers[MEAN_QUEUE]) / min(WINDOW, seen)
    credit = numbers[CREDIT] + numbers[DRAIN_SHARE] * s.n_servers * EVERY
    numbers[CREDIT] = min(credit, SAVED * (s.n_running + 1))


@kernel
def oldest_type(s: State) -> int:
    """The type of the job that has waited longest, -1 where nobody waits."""
    found, born, n = NOBODY, 0, next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        came = sequence(s)[queues(s)[j, HEAD]]
        if found < 0 or came < born:
            found, born = j, came
        n = next_waiting(s, n + 1)
    return int(found)


@kernel
def age(s: State, j: int) -> int:
    """How long the head of line of type j has waited, in arrivals."""
    return int(s.last_sequence - sequence(s)[queues(s)[j, HEAD]])


@kernel
def mean_stay(s: State) -> float:
    """How long jobs are in the system in the mean, in arrivals."""
    return float(policy_floats(s)[MEAN_QUEUE] + s.n_running)


@kernel
def overdue_age(s: State, j: int) -> float:
    """From which age on a job of type j is overdue."""
    longer = max(1.0, 1.0 / (paces(s)[j] * paces(s)[j]))  # S_j / S
    return float(policy_floats(s)[OVERDUE] * (policy_floats(s)[MEAN_QUEUE] + longer * s.n_running))


@kernel
def most_overdue(s: State) -> tuple[int, float]:
    """The type whose head of line has waited longest beside what would make it overdue, and that ratio."""
    found, largest, n = NOBODY, -1.0, next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        ratio = age(s, j) / max(overdue_age(s, j), TINY)
        if ratio > largest:
            found, largest = j, ratio
        n = next_waiting(s, n + 1)
    return int(found), largest


@kernel
def serve_overdue(s: State, server: int) -> None:
    """Room has appeared: jobs that are overdue go first, those that are it most before the others.

    Nobody is looked for again before half the time has passed after which somebody can be."""
    if s.last_sequence < policy_ints(s)[NEXT_OVERDUE] or queues_are_long(s):
        return
    while s.n_waiting > 0:
        j, ratio = most_overdue(s)
        if ratio < 1.0:
            soonest = policy_floats(s)[OVERDUE] * mean_stay(s) * (1.0 - ratio)
            policy_ints(s)[NEXT_OVERDUE] = s.last_sequence + int(0.5 * soonest)
            return
        set_need(s, j)
        if not fits(s, server, need(s)):
            return
        start(s, j, server)


@kernel
def go_on_with(s: State, server: int, j: int) -> None:
    """A job of type j has left the server empty. The next of the type starts there, if it has waited longest of all, and no other of the type runs or the
    others would gain less from the room."""
    empty = servers(s)[server, COUNT] == 0 and queue_length(s)[j] > 0
    if not empty or queues_are_long(s) or oldest_type(s) != j:
        return
    if running_by_type(s)[j] == 0 or _others_gain_less(s, server, j):
        set_need(s, j)
        if fits(s, server, need(s)):
            start(s, j, server)


@kernel
def _others_gain_less(s: State, server: int, j: int) -> bool:
    """Whether n S_j max(1, S_j / S) <= Q_j S H_n. n others, with mean service time S, would fill the server; they, and those whom they would make room for, wait for S_j
    otherwise. Afterwards it would take S H_n until the server is empty again for the Q_j of type j."""
    refresh_weights(s)
    best_filling(s, server)
    n, time = 0, 0.0
    for k in range(s.n_types):
        if k != j:
            n += choice(s)[1, k]
            time += choice(s)[1, k] / (paces(s)[k] * paces(s)[k])
    if n == 0:
        return False
    mine = 1.0 / (paces(s)[j] * paces(s)[j])
    return bool(n * mine * max(1.0, mine * n / time) <= queue_length(s)[j] * time / n * harmonic(n))


@kernel
def drained_for(s: State, server: int) -> int:
    """The type for which the server drains, -1 where it does not."""
    for j in range(s.n_types):
        if drains(s)[j] == server + 1:
            return j
    return NOBODY


@kernel
def has_drained(s: State, server: int) -> bool:
    """Whether the server drained for somebody who is there now, or waits no more."""
    j = drained_for(s, server)
    return j >= 0 and bool(running(s)[server, j] >= configuration(s)[server, j] or queue_length(s)[j] == 0)


@kernel
def is_hopeless(s: State, server: int) -> bool:
    """Whether the drain of the server takes far longer than drains take."""
    took = float(s.last_sequence) - float_field(s, BEGAN)[server]
    usual = max(1.0, policy_floats(s)[STRETCH]) * float_field(s, EXPECTED)[server]
    return bool(took > policy_floats(s)[DRAIN_LIMIT] * usual)


@kernel
def end_drain(s: State, server: int) -> None:
    """The server drains no more: learn how long it took."""
    j = drained_for(s, server)
    if j >= 0:
        took, numbers = float(s.last_sequence) - float_field(s, BEGAN)[server], policy_floats(s)
        numbers[STRETCH] += LEARNS * (took / float_field(s, EXPECTED)[server] - numbers[STRETCH])
        numbers[CREDIT] -= took
        drains(s)[j] = 0


@kernel
def choose_drain(s: State) -> int:
    """A server that is to drain for the oldest job, -1 where none is; configuration(s) then has its slots.

    Looked at seldom enough that looking at all servers costs little."""
    whole = policy_ints(s)
    if whole[CLOCK] < whole[NEXT_DRAIN]:
        return NOBODY
    whole[NEXT_DRAIN] = whole[CLOCK] + 1 + s.n_running // 4
    if queues_are_long(s) or is_capped(s) or s.n_waiting == 0:
        return NOBODY
    goal = oldest_type(s)
    waited = float(age(s, goal))
    overdue = policy_floats(s)[CREDIT] > 0.0 and waited >= 2.0 * overdue_age(s, goal)
    if drains(s)[goal] != 0 or (running_by_type(s)[goal] > 0 and not overdue):
        return NOBODY
    found, least = NOBODY, math.inf
    for server in range(s.n_places):
        if _may_drain(s, server, goal, overdue):
            cost = drain_cost(s, server, goal)
            if cost < least:
                found, least = server, cost
    others = s.n_waiting - queue_length(s)[goal]
    if found < 0 or (not overdue and waited < policy_floats(s)[PATIENCE] * least * (1 + others) * s.n_running):
        return NOBODY
    expected = _plan(s, found, goal, True)
    drains(s)[goal] = found + 1
    float_field(s, BEGAN)[found] = float(s.last_sequence)
    float_field(s, EXPECTED)[found] = max(expected, SHORTEST) * max(s.n_running, 1)
    return int(found)


@kernel
def _may_drain(s: State, server: int, goal: int, overdue: bool) -> bool:
    """Whether the server packs and could hold the type; and, unless the job is overdue, nobody waits of the types that it holds."""
    row = servers(s)[server]
    if row[STATUS] != PRESENT or row[MODE] == STALLED or most(s)[row[CLASS], goal] == 0:
        return False
    n = NOBODY if overdue else next_waiting(s, 0)
    while n >= 0:
        if running(s)[server, order(s)[0, n]] > 0:
            return False
        n = next_waiting(s, n + 1)
    return True


@kernel
def drain_cost(s: State, server: int, goal: int) -> float:
    """c_l, in mean service times, for a job of type `goal`."""
    whole = capacity(s)[servers(s)[server, CLASS]]
    share, part = 0.0, 1.0
    for r in range(s.n_resources):
        if demand(s)[goal, r] > share * whole[r]:
            share = demand(s)[goal, r] / whole[r]
            part = min(1.0, free(s)[server, r] / demand(s)[goal, r])
    time = _plan(s, server, goal, False)
    return float(max(1.0, policy_floats(s)[STRETCH]) * (time - policy_floats(s)[LENGTHS] * (1.0 - part)))


@kernel
def _plan(s: State, server: int, goal: int, write: bool) -> float:
    """S H_k: one job of type `goal`, and beside it as many as fit of the jobs that the server holds, from large to small, may stay. S is left in
    policy_floats(s)[LENGTHS]; where it is asked for, what may stay is written as the server's configuration."""
    room, on, c = need(s), running(s)[server], servers(s)[server, CLASS]
    for r in range(s.n_resources):
        room[r] = capacity(s)[c, r] - demand(s)[goal, r]
    leave, time = 0, 0.0
    for n in range(s.n_types):
        j = order(s)[0, n]
        stay = on[j]
        if stay == 0 and not write:
            continue  # most, where there are many types
        for r in range(s.n_resources):
            if demand(s)[j, r] * stay > room[r]:
                stay = room[r] // demand(s)[j, r]
        for r in range(s.n_resources):
            room[r] -= stay * demand(s)[j, r]
        if write:
            configuration(s)[server, j] = stay + (j == goal)
        leave += on[j] - stay
        time += (on[j] - stay) / (paces(s)[j] * paces(s)[j])
    policy_floats(s)[LENGTHS] = time / leave if leave > 0 else 0.0
    return float(policy_floats(s)[LENGTHS] * harmonic(leave)) if leave > 0 else 0.0


@kernel
def harmonic(k: int) -> float:
    """H_k = 1 + 1/2 + ... + 1/k, to a hundredth."""
    return math.log(k) + EULER + 0.5 / k - 1.0 / (12.0 * k * k)

"""`guarded` where jobs say how long they will run: those whose wait is long beside it go first, and a reservation keeps room for one of them.

A job that has waited a, counted in arrivals, takes a share m of the largest server and is expected to run d, has the urgency

    u = a (m + (a / h)^4) / d.

It grows with the wait: faster for short jobs, to which a wait matters more, and for large ones, which seldom find room; and once the wait is longer than h, LONG times the one that
makes a job overdue without durations (`drains`), very fast and whatever the size. The most urgent job, once it has waited for STAYS times as long as jobs are in the system in the
mean, gets a reservation where it fits nowhere (`reservation`), and keeps it until it starts. If the oldest job is overdue the next reservation is for that one.

So it is on one server with users' estimates, which are mostly too long: room appears earlier than expected, and reservations that come soon and often keep too much of it idle. Where durations can be
relied on, or on several servers, where room appears all the time, STAYS is 1 and h infinite. On several servers nobody gets a reservation while more jobs wait than run: at such a load
the little that it leaves idle may be what is missing (labels-210 of the benchmarks: 58 waiting without any, 1,000 and growing with one at all times).

All others start where they do not delay the reserved job. An arriving one goes to the reserved server if it may, whose room would stand idle, else where it
spoils least. A server that has got room takes the filling of most worth (`fillings`), with the most urgent jobs of each type; on the reserved server, and where jobs of
a type differ, it takes the most urgent job that fits, and again. Nobody is drained for, no slots stand open and no server turns: reservations do what these are for. With very long queues
all is as without durations, or nothing could be proven.
"""

from __future__ import annotations

import numpy as np

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call_at
from slotwise.core.indexes import line, linetree
from slotwise.core.moves import reindex, start_job
from slotwise.core.queues import next_waiting
from slotwise.core.state import (
    CLASS,
    EMPTY,
    HEAD,
    MODE,
    PRESENT,
    SERVER,
    STALLED,
    STATUS,
    TYPE,
    WAITING,
    State,
    choice,
    free,
    jobs,
    largest_capacity,
    need,
    order,
    policy_floats,
    policy_ints,
    queues,
    sequence,
    servers,
)
from slotwise.policies.backfill.reservation import (
    NOBODY,
    drop,
    holder,
    is_harmless,
    put_off,
    reserve,
    reserved_at,
    reserved_server,
    spare,
    stands,
    take_spare,
    void,
)
from slotwise.policies.fit.fitting import fits, set_job_need
from slotwise.policies.guarded import turning
from slotwise.policies.guarded.drains import mean_stay, overdue_age
from slotwise.policies.guarded.fillings import best_filling, refresh_weights
from slotwise.policies.guarded.gains import notice_end, queues_are_long
from slotwise.policies.guarded.memory import CLOCK, GUESSED, MAKE_USE, OVERDUE, PLAN, RESERVATION, SPOILS
from slotwise.policies.guarded.placing import find_server
from slotwise.policies.guarded.usable import notice_use

STAYS = 2.0
"""mean times in the system that a job waits before it may get a reservation"""
LONG, OVERDUE_LATER = 0.5, 1.1
"""of the wait after which jobs are overdue without durations: when urgency begins to grow steeply, and when a job is overdue here"""


def arrive(s: State, j: int, i: int) -> None:
    """Nobody else can start now, as long as the reservation stands; but this one may."""
    turning.notice_job(s, j, i)
    if _does_without(s):
        turning.take_in(s, j, i)
    else:
        call_at(policy_ints(s)[PLAN], s, NOBODY, i)


def complete(s: State, j: int, server: int) -> None:
    """Room on the server."""
    notice_end(s, j)
    notice_use(s)
    _make_use(s, j, server)


def stop(s: State, j: int, server: int) -> None:
    """The same, but a job that was stopped says nothing about how long jobs run."""
    _make_use(s, j, server)


def join(s: State, server: int, _: int) -> None:
    """The first may start on a new server earlier than its reservation."""
    turning.notice_server(s, server)
    if _does_without(s):
        turning.begin_to_pack(s, server)
    else:
        void(s, RESERVATION)
        call_at(policy_ints(s)[PLAN], s, server, NOBODY)


def leave(s: State, server: int, _: int) -> None:
    """A reservation on a server that goes is void."""
    turning.forget_server(s, server)
    void(s, RESERVATION)
    if not _does_without(s):
        call_at(policy_ints(s)[PLAN], s, NOBODY, NOBODY)


def cancel(s: State, j: int, i: int) -> None:
    """Somebody else may be first now."""
    if not _does_without(s):
        call_at(policy_ints(s)[PLAN], s, NOBODY, NOBODY)
    elif s.n_waiting > 0:
        turning.place_heads(s, j)


@kernel
def _does_without(s: State) -> bool:
    """Whether queues are very long, or there is no server, so that all is as without durations: then nobody has a reservation, wherever it was."""
    long = queues_are_long(s)
    if long:
        drop(s, RESERVATION)
    return long


@kernel
def _make_use(s: State, j: int, server: int) -> None:
    if _does_without(s):
        call_at(policy_ints(s)[MAKE_USE], s, server, j)
    else:
        policy_ints(s)[CLOCK] += 1
        call_at(policy_ints(s)[PLAN], s, server, NOBODY)


def make_plan(s: State, server: int, i: int) -> None:
    """Room has appeared on the server (-1: on none), or job i has come (-1: nobody has). Compiled once, for all that ask for it."""
    if server >= 0 and servers(s)[server, MODE] == STALLED:
        turning.go_on_turning(s, server)
    if i >= 0:
        while turning.use_slot(s, jobs(s)[i, TYPE]) and jobs(s)[i, SERVER] == WAITING:
            pass
    was, first = reserved_server(s, RESERVATION), _serve_first(s)
    new = first < 0 or not stands(s, RESERVATION, first)
    nobody = s.n_places == 1 and s.n_waiting > 0 and line.nobody_fits(s, free(s)[0])
    if first >= 0 and new:
        if nobody:
            # nobody can start on the only server, whatever is reserved; when somebody can, the search finds the same as now, if all goes as expected until then
            put_off(s, RESERVATION, first)
        else:
            reserve(s, RESERVATION, first)
    fill(s, server)
    now = reserved_server(s, RESERVATION)
    if new:
        # a server that was filled just now is not filled again
        if was != now or was != server:
            fill(s, was)
        if now != was and now != server:
            fill(s, now)
    if i >= 0 and i != first and not nobody and jobs(s)[i, SERVER] == WAITING:
        start_harmless(s, i)
    if s.n_stalled > 0:
        turning.look_at_turns(s)


@kernel
def _serve_first(s: State) -> int:
    """Start the first, and the next, while it fits anywhere; returns the first that fits nowhere, whose demand is then in need(s), or -1."""
    while s.n_waiting > 0:
        i = holder(s, RESERVATION)
        if i < 0:
            i = choose_first(s)
        if i < 0:
            break
        set_job_need(s, i)
        server = find_server(s, jobs(s)[i, TYPE])
        if server < 0:
            return i
        drop(s, RESERVATION)
        start_job(s, i, server)
    drop(s, RESERVATION)
    return NOBODY


@kernel
def choose_first(s: State) -> int:
    """The oldest job if it is overdue, else the most urgent one, if it has waited for STAYS times as long as jobs are in the system; -1 where nobody has, or too many wait."""
    if s.n_servers > 1 and s.n_waiting > s.n_running:
        return NOBODY  # room is scarce, and a reservation leaves some of it idle
    longest = s.last_sequence - linetree.oldest_born(s, s.last_sequence)
    stays, later = (STAYS, OVERDUE_LATER) if _reserves_late(s) else (1.0, 1.0)
    # rounded as below, where no factor is less than here: what passes there passes here
    if longest < min(stays * mean_stay(s), later * (policy_floats(s)[OVERDUE] * mean_stay(s))):
        return NOBODY  # nobody has waited for so long: who has just come need not be filed to know that
    oldest = line.first_in_line(s)
    if s.last_sequence - sequence(s)[oldest] >= later * overdue_age(s, jobs(s)[oldest, TYPE]):
        return oldest
    i = line.most_urgent(s, largest_capacity(s), NOBODY, largest_capacity(s), np.inf, long_wait(s))
    return i if s.last_sequence - sequence(s)[i] >= stays * mean_stay(s) else NOBODY


@kernel
def long_wait(s: State) -> float:
    """h, in arrivals."""
    return max(1.0, LONG * policy_floats(s)[OVERDUE] * mean_stay(s)) if _reserves_late(s) else np.inf


@kernel
def _reserves_late(s: State) -> bool:
    """Whether there is one server, and what is known of durations are estimates, so that room mostly appears earlier than expected."""
    return bool(policy_ints(s)[GUESSED] and s.n_servers == 1)


@kernel
def fill(s: State, server: int) -> None:
    """Start the most urgent job that fits on the server and delays nobody there, and the next, until there is none."""
    if (
        s.n_waiting == 0
        or server < 0
        or servers(s)[server, STATUS] != PRESENT
        or servers(s)[server, MODE] == STALLED
        or line.nobody_fits(s, free(s)[server])
    ):
        return
    reserved = server == reserved_server(s, RESERVATION)
    if policy_ints(s)[SPOILS] and not reserved:
        _fill_tightly(s, server)
        return
    until, long = reserved_at(s, RESERVATION) if reserved else np.inf, long_wait(s)
    while s.n_waiting > 0:
        room, c = free(s)[server], servers(s)[server, CLASS]
        i = line.most_urgent(s, room, c, spare(s, RESERVATION), until, long)
        if i < 0:
            return
        if reserved:
            set_job_need(s, i)
            take_spare(s, RESERVATION, i)
        start_job(s, i, server)


@kernel
def _fill_tightly(s: State, server: int) -> None:
    """Start the filling of most worth, the most urgent jobs of each type first."""
    refresh_weights(s)
    best_filling(s, server)
    n, long = next_waiting(s, 0), long_wait(s)
    while n >= 0:
        j = order(s)[0, n]
        for _ in range(choice(s)[1, j]):
            start_job(s, line.most_urgent_of(s, j, long), server)
        n = next_waiting(s, n + 1)


@kernel
def start_harmless(s: State, i: int) -> bool:
    """Start job i where it delays nobody, on the reserved server if that may be; returns whether it has started."""
    reserved = reserved_server(s, RESERVATION)
    set_job_need(s, i)
    if reserved >= 0 and fits(s, reserved, need(s)) and is_harmless(s, RESERVATION, i):
        take_spare(s, RESERVATION, i)
        start_job(s, i, reserved)
        return True
    server = find_server(s, jobs(s)[i, TYPE])
    if server >= 0 and server == reserved:
        if s.n_places == 1:
            return False
        _show(s, reserved, STALLED)  # look for another one
        server = find_server(s, jobs(s)[i, TYPE])
        _show(s, reserved, EMPTY)
    if server >= 0:
        start_job(s, i, server)
    return server >= 0


@kernel
def _show(s: State, server: int, mode: int) -> None:
    servers(s)[server, MODE] = mode
    reindex(s, server)


def place(s: State, j: int, _: int) -> None:
    """What is `turning.place` without durations: the heads of line of type j start, while some server takes them."""
    while queues(s)[j, HEAD] >= 0:
        if not turning.use_slot(s, j) and not start_harmless(s, queues(s)[j, HEAD]):
            return

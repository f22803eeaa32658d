"""Rule R5, only with durations: the oldest waiting job gets a reservation once it is overdue.

A job is overdue if more jobs have arrived since than OVERDUE times those that wait or run. If it fits a server, it starts. If it fits none, it gets a reservation,
as in EASY (`backfill.reservation`): the server and the time at which it fits first, if all jobs end as expected. On that server another job starts only if it is
expected to end by then, or if it takes only capacity that the overdue job leaves.

Reservations leave capacity idle, more so if estimates are wrong: nothing can be started beside them. So they have a budget. No new one is made while

    IDLE > BUDGET trust^2 ELAPSED,        trust = sum of size x run x min(run / estimate, estimate / run) / sum of size x run, over completed jobs

| symbol | meaning | unit |
|---|---|---|
| size | g_j of the job's type | servers |
| run, estimate | how long the job ran, and how long it was expected to run | time |
| `ELAPSED` | time since the first event | time |
| `IDLE` | free capacity of reserved servers while jobs waited, summed over time; all servers together have the capacity 1 | time |
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core.indexes import fitindex, line
from slotwise.core.indexes.line import SHORTEST
from slotwise.core.state import (
    CLASS,
    SERVER,
    WAITING,
    State,
    capacity,
    free,
    job_times,
    jobs,
    need,
    policy_floats,
    present_by_class,
    sequence,
    servers,
    set_job_need,
)
from slotwise.core.steps import start_job
from slotwise.policies.backfill.reservation import (
    drop,
    ends_in_time,
    holder,
    reserve,
    reserved_at,
    reserved_server,
    spare,
    stands,
    take_spare,
)
from slotwise.policies.guarded.memory import (
    AS_ESTIMATED,
    ELAPSED,
    IDLE,
    IDLE_NOW,
    LAST_EVENT,
    NEVER,
    RESERVATION,
    WORK,
)
from slotwise.policies.guarded.services import sizes

# Arrivals per job that waits or runs. With 10 instead of 30, queues on logs are 7 to 26 % longer, and longest waits hardly shorter.
OVERDUE = 30.0
# Of all capacity. With 0.03, longest waits on logs are a tenth shorter, and one estimate for all jobs lengthens queues by 6 %. Without trust, 0.015 and useless
# estimates lengthen queues by 12 to 21 %.
BUDGET = 0.02


@kernel
def pass_time(s: State) -> None:
    """Count the time since the last event, and what reserved servers left idle in it."""
    numbers = policy_floats(s)
    passed = s.now - numbers[LAST_EVENT] if numbers[LAST_EVENT] > -NEVER / 2.0 else 0.0
    numbers[ELAPSED] += passed
    numbers[IDLE] += passed * numbers[IDLE_NOW]
    numbers[LAST_EVENT] = s.now


@kernel
def count_estimate(s: State, j: int) -> None:
    """Compare how long the job of type j ran that has just completed with its estimate."""
    estimate, end = job_times(s)[s.departed, 0], job_times(s)[s.departed, 1]
    run, numbers = s.now - (end - estimate), policy_floats(s)
    if run > 0.0:
        work = sizes(s)[j] * run
        numbers[WORK] += work
        numbers[AS_ESTIMATED] += work * min(run / max(estimate, SHORTEST), estimate / run)


@kernel
def trust(s: State) -> float:
    """Return the share of the completed work that was as estimated; 1 before the first completion."""
    numbers = policy_floats(s)
    return float(numbers[AS_ESTIMATED] / numbers[WORK]) if numbers[WORK] > 0.0 else 1.0


@kernel
def note_idle(s: State) -> None:
    """Note what the reserved server leaves idle from now on: its free capacity as a share of the cluster's, the mean over the resources."""
    server, idle = reserved_server(s, RESERVATION), 0.0
    if server >= 0 and s.n_waiting > 0:
        for r in range(s.n_resources):
            total = 0.0
            for c in range(s.n_classes):
                total += float(present_by_class(s)[c]) * capacity(s)[c, r]
            if total > 0.0:
                idle += free(s)[server, r] / total / s.n_resources
    policy_floats(s)[IDLE_NOW] = idle


@kernel
def is_overdue(s: State, i: int) -> bool:
    """Return whether job i is overdue."""
    return bool(float(s.last_sequence - sequence(s)[i]) > OVERDUE * float(s.n_waiting + s.n_running))


@kernel
def serve_overdue(s: State) -> None:
    """Start overdue jobs, oldest first. Reserve a server for the first that fits nowhere."""
    while s.n_waiting > 0:
        i = line.first_in_line(s)
        has_reservation = holder(s, RESERVATION) == i  # which stays its own, also if more jobs wait by now
        if not has_reservation and not is_overdue(s, i):
            drop(s, RESERVATION)
            return
        set_job_need(s, i)
        server = fitindex.best(s, need(s))
        if server < 0:
            if not has_reservation and policy_floats(s)[IDLE] > BUDGET * trust(s) ** 2 * policy_floats(s)[ELAPSED]:
                drop(s, RESERVATION)
            elif not stands(s, RESERVATION, i):
                reserve(s, RESERVATION, i)
            return
        start_job(s, i, server)
    drop(s, RESERVATION)


@kernel
def start_most_urgent(s: State, server: int) -> None:
    """Start the job with the most age x size / duration that fits the server and does not delay an overdue job, until none does."""
    room, c = free(s)[server], servers(s)[server, CLASS]
    while s.n_waiting > 0:
        if is_reserved(s, server):
            i = line.most_urgent(s, room, c, spare(s, RESERVATION), reserved_at(s, RESERVATION), math.inf)
        else:
            i = line.most_urgent(s, room, c, room, math.inf, math.inf)
        if i < 0:
            return
        start_beside(s, i, server)


@kernel
def start_beside(s: State, i: int, server: int) -> None:
    """Start job i. If the server is reserved, count what the job takes of the capacity to spare."""
    if is_reserved(s, server):
        set_job_need(s, i)
        take_spare(s, RESERVATION, i)
    start_job(s, i, server)


@kernel
def is_reserved(s: State, server: int) -> bool:
    """Return whether the server has a reservation."""
    return bool(reserved_server(s, RESERVATION) == server)


@kernel
def forget_reservation(s: State) -> None:
    """Drop the reservation, because a server came or went. The next event makes a new one."""
    drop(s, RESERVATION)


@kernel
def delays_overdue(s: State, i: int, size: NDArray[np.int64], server: int) -> bool:
    """Return whether job i, which requests `size`, would delay an overdue job on this server."""
    if not is_reserved(s, server) or ends_in_time(s, RESERVATION, i):
        return False
    return not line.covered(size, spare(s, RESERVATION))


@kernel
def is_waiting(s: State, i: int) -> bool:
    """Return whether job i waits."""
    return bool(jobs(s)[i, SERVER] == WAITING)

"""The event loop: arrivals, completions, server events and the policy's clock, in order of time.

One compiled function for every policy. It decides what happens next (`agenda`), has it happen (`core.steps`) and has it
measured (`measuring`). It consumes jobs in columns and comes back to Python only for more of them, for more
room, or when it is done. Between two stretches of it servers come and go (`churn`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural
from slotwise.core import server_steps, steps
from slotwise.core import state as st
from slotwise.simulation.measure.measuring import (
    add_up,
    advance,
    change_capacity,
    note_arrival,
    note_end,
    note_start,
    oldest_waiting,
    start_measuring,
)
from slotwise.simulation.measure.meter import Meter
from slotwise.simulation.run.agenda import (
    ARRIVAL,
    DURATION,
    LEAF,
    NONE,
    THROWN_BACK,
    Agenda,
    draw_tick,
    ends,
    expect_end,
    forget_end,
    look_ahead,
    stays,
)

DONE, MORE_JOBS, MORE_ROOM, SERVER_EVENT, MORE_SERVER_EVENTS, FAULT = 0, 1, 2, 3, 4, 5
# what is due next
AN_ARRIVAL, A_COMPLETION, A_SERVER_EVENT, A_TICK = 0, 1, 2, 3
NEAR = 20_000  # with more jobs the state is larger than a processor's own cache, and it pays to look ahead


@kernel
def run_jobs(
    s: st.State,
    a: Agenda,
    m: Meter,
    arrive: Any,
    complete: Any,
    tick: Any,
    time: NDArray[np.float64],
    job_type: NDArray[np.int64],
    service: NDArray[np.float64],
    demands: NDArray[np.int64],
    expected: NDArray[np.float64],
    next_event: float,
) -> int:
    """Run until the caller must act, and return why: one of DONE to FAULT."""
    tree, far = ends(a), s.max_jobs > NEAR
    while True:
        if a.at_job == a.n_jobs:
            return MORE_JOBS
        if a.events == a.limit_events or a.arrivals == a.limit_jobs:
            return DONE
        if not m.warm and a.events >= a.warm_events and a.arrivals >= a.warm_jobs and a.now >= a.warm_time:
            start_measuring(s, m, a.now)
        at = natural(a.at_job)
        now = time[at]
        due = AN_ARRIVAL
        root = natural(a.root)
        if tree[root, 0] <= now:
            now = tree[root, 0]
            due = A_COMPLETION
        if next_event < now:
            now = next_event
            due = A_SERVER_EVENT
        # without arrivals and waiting jobs, no tick can start a job
        if a.next_tick < now and (now < math.inf or s.n_waiting > 0):
            now = a.next_tick
            due = A_TICK
        if not m.warm and a.warm_time > a.now and now > a.warm_time:
            advance(s, a, m, a.warm_time)  # the measurement starts at this very time, between two events
            continue
        if now > a.limit_time:
            advance(s, a, m, a.limit_time)
            return DONE
        if due == A_SERVER_EVENT:
            return SERVER_EVENT
        if due == AN_ARRIVAL and (s.n_free_jobs == 0 or m.n_rows == m.max_rows):
            return MORE_ROOM
        advance(s, a, m, now)
        s.now = now
        leaf = server = NONE
        if due == A_COMPLETION:
            i = natural(int(tree[root, 1]))
            leaf, server = int(stays(a)[i, LEAF]), natural(st.jobs(s)[i, st.SERVER])
            note_end(m, i, natural(st.jobs(s)[i, st.TYPE]), now)
            steps.complete(s, i, complete)
            a.completions += 1
        elif due == AN_ARRIVAL:
            j = natural(job_type[at])
            write_arrival(s, a, m, now, j, at, service, demands, expected)
            steps.submit(s, j, arrive, False)
        else:
            a.ticks += 1
            steps.tick(s, tick)
        close_event(s, a, m, now, leaf, due == A_TICK)
        if leaf != NONE:
            if far:
                look_ahead(s, a, leaf)
            if st.servers(s)[server, st.STATUS] == st.DRAINING and st.servers(s)[server, st.COUNT] == 0:
                take_away(s, a, m, server)
        if s.failed:
            return FAULT


@kernel
def write_arrival(
    s: st.State,
    a: Agenda,
    m: Meter,
    now: float,
    j: int,
    at: int,
    service: NDArray[np.float64],
    demands: NDArray[np.int64],
    expected: NDArray[np.float64],
) -> None:
    """Write what the columns say of the arriving job, at `at`, into the row that it will have. Count it."""
    i, at = natural(s.free_job), natural(at)
    stay = stays(a)[i]
    stay[ARRIVAL] = now
    stay[DURATION] = service[at]
    stay[THROWN_BACK] = -math.inf
    note_arrival(m, i, j, now, service[at])
    if s.actual:
        for r in range(s.n_resources):
            st.job_demand(s)[i, r] = demands[at, r]
    if s.keeps_times:
        st.job_times(s)[i, 0] = expected[at]
    a.at_job += 1
    a.arrivals += 1


@kernel
def close_event(s: st.State, a: Agenda, m: Meter, now: float, leaf: int, ticked: bool) -> None:
    """Count the event, note and measure what it started, and draw when the policy's clock rings next. `leaf` is the
    leaf of the job that has ended, or NONE; the first job that starts takes it over."""
    a.events += 1
    if s.n_placed > 0:
        oldest = oldest_waiting(s, m)
        for n in range(s.n_placed):
            i = natural(st.placed(s)[n, 0])
            expect_end(a, i, now + stays(a)[i, DURATION], leaf)
            leaf = NONE
            note_start(s, a, m, i, now, oldest)
    elif leaf != NONE:
        forget_end(a, leaf)
    if (s.n_waiting > 0) != m.jobs_wait or s.n_stalled != m.stalled:
        add_up(s, m, now)
    draw_tick(a, s.tick_rate, now, ticked)


@kernel
def take_away(s: st.State, a: Agenda, m: Meter, server: int) -> None:
    """Let a drained server that is empty leave. Its jobs used it until now, so its capacity counts until now."""
    server_steps.remove(s, server)
    change_capacity(s, m, int(st.servers(s)[server, st.CLASS]), -1, a.now)

"""The event loop: arrivals, completions, server events and the policy's clock, in order of time.

One compiled function for every policy. It consumes jobs in columns and comes back to Python only for more of them, for more
room, for a server that comes or goes (`churn`), or when it is done.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling import chance, drive
from slotwise.scheduling.memory import natural, prefetch
from slotwise.scheduling.state import (
    CLASS,
    COUNT,
    DRAINING,
    HEAD,
    SERVER,
    STATUS,
    TYPE,
    WAITING,
    State,
    capacity,
    demand,
    job_demand,
    job_times,
    jobs,
    placed,
    queue_length,
    queues,
    running_by_type,
    sequence,
    servers,
    used,
)
from slotwise.simulation.ends import insert, put
from slotwise.simulation.histogram import bin_of
from slotwise.simulation.meter import (
    ARRIVAL,
    DURATION,
    FIRST_COLUMNS,
    LARGEST,
    LEAF,
    SAMPLES,
    SQUARES,
    STAY_COLUMNS,
    SUM,
    Meter,
    area_capacity,
    area_running,
    area_used,
    capacity_now,
    ends,
    queue_area,
    samples,
    shift,
    slowdown_bins,
    spare,
    stays,
    wait_bins,
    wait_sums,
)
from slotwise.simulation.meter import COUNT as WAITS

DONE, MORE_JOBS, MORE_ROOM, SERVER_EVENT, FAULT = 0, 1, 2, 3, 4
NEAR = 20_000
"""with more jobs the state is larger than a processor's own cache, and it pays to look ahead"""
NEVER = 2**62
NOBODY = -1
"""in place of a leaf of the tree of ends, or of a server: there is none"""


@kernel
def run(
    s: State,
    m: Meter,
    arrive: Any,
    complete: Any,
    tick: Any,
    time: NDArray[np.float64],
    job_type: NDArray[np.int64],
    service: NDArray[np.float64],
    demands: NDArray[np.int64],
    next_event: float,
) -> int:
    """Go on until something is wanted from Python; returns what."""
    tree, far = ends(m), s.max_jobs > NEAR
    while True:
        if m.at_job == m.n_jobs:
            return MORE_JOBS
        if m.events == m.limit_events or m.arrivals == m.limit_jobs:
            return DONE
        if not m.warm and m.events >= m.warm_events and m.arrivals >= m.warm_jobs and m.now >= m.warm_time:
            start_measuring(s, m)
        at = natural(m.at_job)
        now = time[at]
        what = 0
        root = natural(m.root)
        if tree[root, 0] <= now:
            now = tree[root, 0]
            what = 1
        if next_event < now:
            now = next_event
            what = 2
        # with nothing to come and nobody waiting, no tick can start anything any more
        if m.next_tick < now and (now < math.inf or s.n_waiting > 0):
            now = m.next_tick
            what = 3
        if not m.warm and m.warm_time > m.now and now > m.warm_time:
            advance(s, m, m.warm_time)  # the measurement starts at this very time, between two events
            continue
        if now > m.limit_time:
            advance(s, m, m.limit_time)
            return DONE
        if what == 2:
            return SERVER_EVENT
        if what == 0 and s.n_free_jobs == 0:
            return MORE_ROOM
        advance(s, m, now)
        s.now = now
        leaf = server = NOBODY
        if what == 1:
            i = natural(int(tree[root, 1]))
            leaf, server = int(stays(m)[i, LEAF]), natural(jobs(s)[i, SERVER])
            shift(m)[natural(jobs(s)[i, TYPE])] -= now - m.settled
            drive.complete(s, i, complete)
            m.completions += 1
        elif what == 0:
            i, j = natural(s.free_job), natural(job_type[at])
            stays(m)[i, ARRIVAL] = now
            stays(m)[i, DURATION] = service[at]
            if s.actual:
                for r in range(s.n_resources):
                    job_demand(s)[i, r] = demands[at, r]
            if s.keeps_lists:
                job_times(s)[i, 0] = service[at]
            m.at_job += 1
            m.arrivals += 1
            drive.submit(s, j, arrive)
        else:
            m.ticks += 1
            drive.tick(s, tick)
        close_event(s, m, now, leaf, what == 3)
        if leaf != NOBODY:
            if far:
                look_ahead(s, m, leaf)
            if servers(s)[server, STATUS] == DRAINING and servers(s)[server, COUNT] == 0:
                take_away(s, m, server)
        if s.failed:
            return FAULT


@kernel
def close_event(s: State, m: Meter, now: float, leaf: int, ticked: bool) -> None:
    """Count the event, note and measure what it started, and draw when the policy's clock rings next. `leaf` is that of the job
    that has ended (NOBODY: none has)."""
    m.events += 1
    if s.n_placed > 0:
        note_started(s, m, now, leaf)
    elif leaf != NOBODY:
        forget_end(m, leaf)
    if (s.n_waiting > 0) != m.somebody_waits or s.n_stalled != m.stalled:
        settle(s, m, now)
    if s.tick_rate > 0.0:
        # exponential clocks forget, so the next tick may be drawn anew after every event
        m.next_tick = now - math.log(1.0 - chance.uniform(s)) / s.tick_rate
    elif ticked:
        m.next_tick = math.inf  # the policy has stopped its clock


@kernel
def note_started(s: State, m: Meter, now: float, leaf: int) -> None:
    """When the jobs that started just now will end; their waits, slowdowns and overtakes. The first of them takes over `leaf`."""
    oldest, tree, since = oldest_waiting(s), ends(m), now - m.settled
    for n in range(s.n_placed):
        i = natural(placed(s)[n, 0])
        j, stay = natural(jobs(s)[i, TYPE]), stays(m)[i]
        end = now + stay[DURATION]
        if leaf != NOBODY:
            put(tree, m.root, m.leaves + leaf, i, end)
        else:
            leaf = free_leaf(m)
            insert(tree, m.root, m.leaves + leaf, i, end)
        stay[LEAF] = leaf
        leaf = NOBODY
        shift(m)[j] += since
        m.overtakes += sequence(s)[i] > oldest
        if m.warm:
            measure_wait(m, j, stay[ARRIVAL], stay[DURATION], now)


@kernel
def free_leaf(m: Meter) -> int:
    """A leaf of the tree of ends that is nobody's: one that was used before, or the next, for which the root may have to rise."""
    if m.n_spare > 0:
        m.n_spare -= 1
        return int(spare(m)[natural(m.n_spare)])
    leaf, tree = m.n_leaves, ends(m)
    m.n_leaves += 1
    while leaf * m.root >= m.leaves:  # below the root are leaves / root of them
        tree[m.root >> 1] = tree[m.root]
        m.root >>= 1
    return int(leaf)


@kernel
def forget_end(m: Meter, leaf: int) -> None:
    """The leaf is nobody's now."""
    put(ends(m), m.root, m.leaves + leaf, 0, math.inf)
    spare(m)[natural(m.n_spare)] = leaf
    m.n_spare += 1


@kernel
def look_ahead(s: State, m: Meter, leaf: int) -> None:
    """A job has left this leaf of the tree of ends. Bring near what is kept of those who end next, so that nobody waits for memory then.

    Who is now the first of the sixteenth of the tree around the leaf will end within some sixteen completions; who is the first
    of its quarter, sooner."""
    tree, node = ends(m), natural(m.leaves + leaf)
    while node >= 32 * m.root:
        node >>= 1
    first = natural(int(tree[node, 1]))
    drive.expect(s, first)
    prefetch(m.at_stays + 8 * STAY_COLUMNS * first)
    drive.expect_server(s, natural(int(tree[node >> 2, 1])))


@kernel
def oldest_waiting(s: State) -> int:
    """The sequence number of the job that has waited longest; NEVER where nobody waits, or queues belong to servers."""
    oldest = NEVER
    if s.n_waiting > 0 and not s.own_queues:
        for j in range(s.n_types):
            head = queues(s)[j, HEAD]
            born = sequence(s)[natural(max(head, 0))]  # read in any case: no branch that nobody can predict
            oldest = min(oldest, born if head >= 0 else NEVER)
    return oldest


@kernel
def measure_wait(m: Meter, j: int, since: float, service: float, now: float) -> None:
    """A job of type j starts that has waited since then; only those who came after the warm-up count as waits."""
    if since < m.measured_from:
        queue_area(m)[j] += now - max(
            -since, m.measured_from
        )  # since < 0: thrown back at -since by a failing server
        return
    j = natural(j)
    wait = now - since
    if wait <= 0.0:
        wait_bins(m)[j, 0] += 1  # `finish` adds what follows from it
        return
    sums = wait_sums(m)[j]
    sums[WAITS] += 1.0
    sums[SUM] += wait
    sums[SQUARES] += wait * wait
    sums[LARGEST] = max(sums[LARGEST], wait)
    wait_bins(m)[j, natural(bin_of(wait))] += 1
    queue_area(m)[j] += wait
    slowdown = 1.0 + wait / max(service, m.slowdown_floor)
    m.slowdown_sum += slowdown
    slowdown_bins(m)[natural(bin_of(slowdown))] += 1


@kernel
def advance(s: State, m: Meter, now: float) -> None:
    """Let time pass until `now`, with everything as it is."""
    while m.next_sample <= now:
        take_sample(s, m)
    if s.keeps_use:
        for r in range(s.n_resources):
            area_used(m)[m.somebody_waits, r] += used(s)[r] * (now - m.now)
    m.now = now


@kernel
def settle(s: State, m: Meter, now: float) -> None:
    """Add up the areas until now. With n(t) jobs of a type running at t, and t_0 when they were last added up,

        integral of n over [t_0, now] = n(now) (now - t_0) - sum of (t - t_0) over starts + the same over ends,

    so that nothing is added up at each event for each type. It must be done when the servers, or whether somebody waits, change.
    """
    passed, waits = now - m.settled, natural(m.somebody_waits)
    for j in range(s.n_types):
        area_running(m)[waits, j] += running_by_type(s)[j] * passed - shift(m)[j]
        shift(m)[j] = 0.0
    m.area_stalled += m.stalled * passed
    if waits:
        m.span_waiting += passed
    else:
        m.span_quiet += passed
    m.settled = now
    m.somebody_waits = s.n_waiting > 0
    m.stalled = s.n_stalled


@kernel
def take_sample(s: State, m: Meter) -> None:
    """One row of the time series; when the buffer is full every second row goes and the step doubles."""
    rows = samples(m)
    if m.n_samples == SAMPLES:
        for n in range(SAMPLES // 2):
            for column in range(FIRST_COLUMNS + s.n_types):
                rows[n, column] = rows[2 * n, column]
        m.n_samples = SAMPLES // 2
        m.sample_every *= 2.0
        m.next_sample = rows[m.n_samples - 1, 0] + m.sample_every
        return
    row = rows[m.n_samples]
    row[0], row[1], row[2], row[3] = m.next_sample, s.n_waiting, s.n_running, s.n_stalled
    for j in range(s.n_types):
        row[FIRST_COLUMNS + j] = queue_length(s)[j]
    m.n_samples += 1
    m.next_sample += m.sample_every


@kernel
def start_measuring(s: State, m: Meter) -> None:
    """The warm-up is over: forget what was added up."""
    settle(s, m, m.now)
    m.warm = 1
    m.measured_from = m.now
    m.area_stalled = 0.0
    m.span_quiet = m.span_waiting = m.area_servers = 0.0
    m.stalls_before = s.stalls
    m.resets_before = s.resets
    m.events_before = m.events
    m.overtakes = 0
    m.lost = 0
    m.lost_work = 0.0
    for r in range(s.n_resources):
        area_used(m)[0, r] = area_used(m)[1, r] = 0.0
        area_capacity(m)[0, r] = area_capacity(m)[1, r] = 0.0
    for j in range(s.n_types):
        queue_area(m)[j] = area_running(m)[0, j] = area_running(m)[1, j] = 0.0


@kernel
def take_away(s: State, m: Meter, server: int) -> None:
    """A drained server, empty, leaves; until now its jobs used it, so until now its capacity counts."""
    drive.remove(s, server)
    add_capacity(s, m, int(servers(s)[server, CLASS]), -1)


@kernel
def settle_capacity(s: State, m: Meter) -> None:
    """Add up the capacity, and the servers, of the time since they last changed."""
    settle(s, m, m.now)
    m.area_servers += m.servers_now * (m.span_quiet + m.span_waiting)
    for r in range(m.n_resources):
        area_capacity(m)[0, r] += capacity_now(m)[r] * m.span_quiet
        area_capacity(m)[1, r] += capacity_now(m)[r] * m.span_waiting
    m.span_quiet = m.span_waiting = 0.0


@kernel
def add_capacity(s: State, m: Meter, c: int, sign: int) -> None:
    settle_capacity(s, m)
    m.servers_now += sign
    for r in range(s.n_resources):
        capacity_now(m)[r] += sign * capacity(s)[c, r]


@kernel
def finish(s: State, m: Meter) -> None:
    """Bring the sums up to the last moment, those who started at once and those who still wait included."""
    if not m.warm:
        start_measuring(s, m)
    for j in range(s.n_types):
        at_once = wait_bins(m)[j, 0]
        wait_sums(m)[j, WAITS] += at_once
        m.slowdown_sum += at_once
        slowdown_bins(m)[bin_of(1.0)] += at_once
    settle_capacity(s, m)
    for i in range(s.max_jobs):
        if jobs(s)[i, SERVER] == WAITING:
            queue_area(m)[jobs(s)[i, TYPE]] += m.now - max(abs(stays(m)[i, ARRIVAL]), m.measured_from)
    if not s.keeps_use:
        for r in range(s.n_resources):
            for j in range(s.n_types):
                area_used(m)[0, r] += area_running(m)[0, j] * demand(s)[j, r]
                area_used(m)[1, r] += area_running(m)[1, j] * demand(s)[j, r]

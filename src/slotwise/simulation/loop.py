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
    job_demand,
    job_times,
    jobs,
    placed,
    queue_length,
    queues,
    sequence,
    servers,
    used,
)
from slotwise.simulation.ends import insert, remove
from slotwise.simulation.histogram import bin_of
from slotwise.simulation.meter import COUNT as WAITS
from slotwise.simulation.meter import (
    FIRST_COLUMNS,
    LARGEST,
    SAMPLES,
    SQUARES,
    SUM,
    Meter,
    area_capacity,
    area_used,
    arrival,
    capacity_now,
    duration,
    ends,
    queue_area,
    samples,
    slowdown_bins,
    wait_bins,
    wait_sums,
)

DONE, MORE_JOBS, MORE_ROOM, SERVER_EVENT, FAULT = 0, 1, 2, 3, 4
NEAR = 20_000
"""with more jobs the state is larger than a processor's own cache, and it pays to look ahead"""
NEVER = 2**62


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
        if tree[1, 0] <= now:
            now = tree[1, 0]
            what = 1
        if next_event < now:
            now = next_event
            what = 2
        if m.next_tick < now:
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
        if what == 1:
            i = natural(int(tree[1, 1]))
            server = natural(jobs(s)[i, SERVER])
            remove(tree, m.leaves, i)
            if far:
                look_ahead(s, m, i)
            drive.complete(s, i, complete)
            m.completions += 1
            note_ends(s, m, now)
            if servers(s)[server, STATUS] == DRAINING and servers(s)[server, COUNT] == 0:
                take_away(s, m, server)
        elif what == 0:
            i, j = natural(s.free_job), natural(job_type[at])
            arrival(m)[i] = now
            duration(m)[i] = service[at]
            if s.actual:
                for r in range(s.n_resources):
                    job_demand(s)[i, r] = demands[at, r]
            if s.keeps_lists:
                job_times(s)[i, 0] = service[at]
            m.at_job += 1
            m.arrivals += 1
            drive.submit(s, j, arrive)
            note_ends(s, m, now)
        else:
            m.ticks += 1
            drive.tick(s, tick)
            note_ends(s, m, now)
        close_event(s, m, now, what == 3)
        if s.failed:
            return FAULT


@kernel
def close_event(s: State, m: Meter, now: float, ticked: bool) -> None:
    """Count the event, measure what it started, and draw when the policy's clock rings next."""
    m.events += 1
    if s.n_placed > 0:
        measure_placed(s, m, now)
    if s.tick_rate > 0.0:
        # exponential clocks forget, so the next tick may be drawn anew after every event
        m.next_tick = now - math.log(1.0 - chance.uniform(s)) / s.tick_rate
    elif ticked:
        m.next_tick = math.inf  # the policy has stopped its clock


@kernel
def look_ahead(s: State, m: Meter, i: int) -> None:
    """Job i has left the tree of ends. Bring near what is kept of those who took its place, so that nobody waits for memory when they end.

    Who is now the first of the sixteenth of the tree where i was will end within some sixteen completions; who is the first of
    its quarter, sooner."""
    tree, node = ends(m), natural(m.leaves + i)
    while node >= 32:
        node >>= 1
    first = natural(int(tree[node, 1]))
    drive.expect(s, first)
    prefetch(m.at_arrival + 8 * first)
    prefetch(m.at_duration + 8 * first)
    leaf = m.leaves + first
    for _ in range(3):
        prefetch(m.at_ends + 16 * leaf)
        leaf >>= 1
    drive.expect_server(s, natural(int(tree[node >> 2, 1])))


@kernel
def note_ends(s: State, m: Meter, now: float) -> None:
    """Note when the jobs that started just now will end."""
    for n in range(s.n_placed):
        i = natural(placed(s)[n, 0])
        insert(ends(m), m.leaves, i, now + duration(m)[i])


@kernel
def measure_placed(s: State, m: Meter, now: float) -> None:
    """Waits, slowdowns and overtakes of the jobs that started just now."""
    oldest = oldest_waiting(s)
    for n in range(s.n_placed):
        i = natural(placed(s)[n, 0])
        j = natural(jobs(s)[i, TYPE])
        m.overtakes += sequence(s)[i] > oldest
        if m.warm:
            measure_wait(m, j, arrival(m)[i], duration(m)[i], now)


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
    passed = now - m.now
    m.area_running += s.n_running * passed
    m.area_stalled += s.n_stalled * passed
    waiting = 0
    if s.n_waiting > 0:
        waiting = 1
        m.span_waiting += passed
    else:
        m.span_quiet += passed
    for r in range(s.n_resources):
        area_used(m)[waiting, r] += used(s)[r] * passed
    m.now = now


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
    m.warm = 1
    m.measured_from = m.now
    m.area_running = m.area_stalled = 0.0
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
        queue_area(m)[j] = 0.0


@kernel
def take_away(s: State, m: Meter, server: int) -> None:
    """A drained server, empty, leaves; until now its jobs used it, so until now its capacity counts."""
    drive.remove(s, server)
    add_capacity(s, m, int(servers(s)[server, CLASS]), -1)


@kernel
def settle_capacity(m: Meter) -> None:
    """Add up the capacity, and the servers, of the time since they last changed."""
    m.area_servers += m.servers_now * (m.span_quiet + m.span_waiting)
    for r in range(m.n_resources):
        area_capacity(m)[0, r] += capacity_now(m)[r] * m.span_quiet
        area_capacity(m)[1, r] += capacity_now(m)[r] * m.span_waiting
    m.span_quiet = m.span_waiting = 0.0


@kernel
def add_capacity(s: State, m: Meter, c: int, sign: int) -> None:
    settle_capacity(m)
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
    settle_capacity(m)
    for i in range(s.max_jobs):
        if jobs(s)[i, SERVER] == WAITING:
            queue_area(m)[jobs(s)[i, TYPE]] += m.now - max(abs(arrival(m)[i]), m.measured_from)

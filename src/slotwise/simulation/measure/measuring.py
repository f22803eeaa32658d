"""What is measured at each step of the loop."""

from __future__ import annotations

import numpy as np

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural
from slotwise.core import state as st
from slotwise.core.indexes.linetree import oldest_born
from slotwise.core.steps import oldest_head
from slotwise.simulation.measure.histogram import BINS, bin_of
from slotwise.simulation.measure.meter import (
    COUNT,
    FIRST_COLUMNS,
    LARGEST,
    NEVER,
    NOTED,
    ROW_ARRIVAL,
    ROW_DURATION,
    ROW_END,
    ROW_SERVER,
    ROW_START,
    ROW_TYPE,
    SAMPLES,
    SQUARES,
    SUM,
    Meter,
    all_wait_bins,
    area_capacity,
    area_running,
    area_used,
    at_once,
    capacity_now,
    noted,
    queue_area,
    row_of,
    rows,
    samples,
    shift,
    slowdown_bins,
    still_waiting,
    wait_bins,
    wait_sums,
)
from slotwise.simulation.run.agenda import ARRIVAL, DURATION, THROWN_BACK, Agenda, stays


@kernel
def advance(s: st.State, a: Agenda, m: Meter, now: float) -> None:
    """Let time pass until `now`, with everything as it is."""
    while m.next_sample <= now:
        take_sample(s, m)
    if s.keeps_use:
        for r in range(s.n_resources):
            area_used(m)[m.jobs_wait, r] += st.used(s)[r] * (now - a.now)
    a.now = now


@kernel
def note_arrival(m: Meter, i: int, j: int, now: float, service: float) -> None:
    """Note that a job has come that takes the number i."""
    if m.recording:
        row = rows(m)[natural(m.n_rows)]
        row_of(m)[i] = m.n_rows
        row[ROW_ARRIVAL], row[ROW_TYPE], row[ROW_DURATION] = now, j, service
        m.n_rows += 1


@kernel
def note_end(m: Meter, i: int, j: int, now: float) -> None:
    """Note that job i of type j ends."""
    shift(m)[j] -= now - m.added_until
    if m.recording:
        rows(m)[natural(row_of(m)[i]), ROW_END] = now


@kernel
def note_start(s: st.State, a: Agenda, m: Meter, i: int, now: float, oldest: int) -> None:
    """Note that job i starts. `oldest` is the sequence number of the oldest job that still waits."""
    j, stay = natural(st.jobs(s)[i, st.TYPE]), stays(a)[i]
    shift(m)[j] += now - m.added_until
    m.overtakes += st.sequence(s)[i] > oldest
    if m.warm:
        measure_wait(m, j, stay[ARRIVAL], stay[THROWN_BACK], stay[DURATION], now)
    if m.recording:
        row = rows(m)[natural(row_of(m)[i])]
        row[ROW_START], row[ROW_SERVER] = now, st.jobs(s)[i, st.SERVER]


@kernel
def measure_wait(m: Meter, j: int, arrival: float, thrown_back: float, service: float, now: float) -> None:
    """Add the wait of a job of type j that starts. Only waits of jobs that came after the warm-up count. For a job
    requeued by a failing server the wait before its first start counts; later waiting counts in the queue."""
    if arrival < m.measured_from or thrown_back >= arrival:
        queue_area(m)[j] += now - max(arrival, thrown_back, m.measured_from)
        return
    wait = now - arrival
    if wait <= 0.0:
        at_once(m)[j] += 1  # `finish` adds what follows from it
        return
    sums = wait_sums(m)[j]
    sums[COUNT] += 1.0
    sums[SUM] += wait
    sums[SQUARES] += wait * wait
    sums[LARGEST] = max(sums[LARGEST], wait)
    note_wait(m, j, wait)
    queue_area(m)[j] += wait
    slower = wait / max(service, m.slowdown_floor)
    m.slowdown_sum += slower
    slowdown_bins(m)[natural(bin_of(slower))] += 1


@kernel
def note_wait(m: Meter, j: int, wait: float) -> None:
    """Keep the wait of a type-j job, to be counted in its histogram with many others. With many types the
    histograms are more than a cache holds, and the loop would stand still for nearly each wait. Counted
    together, no wait is delayed by the cache miss of another."""
    noted(m)[natural(m.n_noted)] = j * BINS + bin_of(wait)
    m.n_noted += 1
    if m.n_noted == NOTED:
        count_waits(m)


@kernel
def count_waits(m: Meter) -> None:
    """Count those that were noted."""
    bins, places = all_wait_bins(m), noted(m)
    for n in range(m.n_noted):
        bins[natural(places[n])] += 1
    m.n_noted = 0


@kernel
def note_lost(m: Meter, i: int, work: float) -> None:
    """Note that a failing server threw job i back, after so much `work`."""
    m.lost += 1
    m.lost_work += work
    m.oldest = -1  # it may be older than who was the oldest
    if m.recording:
        row = rows(m)[natural(row_of(m)[i])]
        row[ROW_START] = row[ROW_SERVER] = np.nan


@kernel
def oldest_waiting(s: st.State, m: Meter) -> int:
    """Return the sequence number of the job that has waited longest. Return NEVER if no job waits, or if queues
    belong to servers. A new job is younger than all waiting jobs, so the oldest stays the same until it starts."""
    if s.keeps_line:
        return oldest_born(s, NEVER)
    if s.n_waiting == 0 or s.own_queues:
        return NEVER
    known = m.oldest
    if (
        known < 0
        or st.jobs(s)[natural(known), st.SERVER] != st.WAITING
        or st.sequence(s)[natural(known)] != m.oldest_born
    ):
        m.oldest = st.queues(s)[natural(oldest_head(s, 0)), st.HEAD]
        m.oldest_born = st.sequence(s)[natural(m.oldest)]
    return m.oldest_born


@kernel
def add_up(s: st.State, m: Meter, now: float) -> None:
    """Add up the areas until now. With n(t) jobs of a type running at t, and t_0 when they were last added up,

        integral of n over [t_0, now] = n(now) (now - t_0) - sum of (t - t_0) over starts + the same over ends,

    so that nothing is added up at each event for each type. Call this when the servers change, and when the first
    job waits or the last one starts.
    """
    passed, waits = now - m.added_until, natural(m.jobs_wait)
    areas, on, shifts = area_running(m)[waits], st.running_by_type(s), shift(m)
    for j in range(s.n_types):
        areas[j] += on[j] * passed - shifts[j]
        shifts[j] = 0.0
    m.area_stalled += m.stalled * passed
    if waits:
        m.span_waiting += passed
    else:
        m.span_quiet += passed
    m.added_until = now
    m.jobs_wait = s.n_waiting > 0
    m.stalled = s.n_stalled


@kernel
def add_up_capacity(s: st.State, m: Meter, now: float) -> None:
    """Add up the capacity, and the servers, of the time since they last changed."""
    add_up(s, m, now)
    m.area_servers += m.servers_now * (m.span_quiet + m.span_waiting)
    for r in range(m.n_resources):
        area_capacity(m)[0, r] += capacity_now(m)[r] * m.span_quiet
        area_capacity(m)[1, r] += capacity_now(m)[r] * m.span_waiting
    m.span_quiet = m.span_waiting = 0.0


@kernel
def change_capacity(s: st.State, m: Meter, c: int, sign: int, now: float) -> None:
    """Count a server of class c that comes (+1) or goes (-1)."""
    add_up_capacity(s, m, now)
    m.servers_now += sign
    for r in range(s.n_resources):
        capacity_now(m)[r] += sign * st.capacity(s)[c, r]


@kernel
def take_sample(s: st.State, m: Meter) -> None:
    """Write one row of the time series. When the buffer is full, drop every second row and double the step."""
    table = samples(m)
    if m.n_samples == SAMPLES:
        for n in range(1, SAMPLES // 2):
            kept, row = table[natural(n)], table[natural(2 * n)]
            for column in range(natural(FIRST_COLUMNS + s.n_types)):
                kept[column] = row[column]
        m.n_samples = SAMPLES // 2
        m.sample_every *= 2.0
        m.next_sample = table[m.n_samples - 1, 0] + m.sample_every
        return
    row = table[m.n_samples]
    row[0], row[1], row[2], row[3] = m.next_sample, s.n_waiting, s.n_running, s.n_stalled
    waiting, lengths = row[FIRST_COLUMNS:], st.queue_length(s)  # looked up once, so that many are written at a time
    for j in range(natural(s.n_types)):
        waiting[j] = lengths[j]
    m.n_samples += 1
    m.next_sample += m.sample_every


@kernel
def start_measuring(s: st.State, m: Meter, now: float) -> None:
    """Forget what was added up: the warm-up is over."""
    add_up(s, m, now)
    m.warm = 1
    m.measured_from = now
    m.area_stalled = 0.0
    m.span_quiet = m.span_waiting = m.area_servers = 0.0
    m.stalls_before = s.stalls
    m.resets_before = s.resets
    m.overtakes = 0
    m.lost = 0
    m.lost_work = 0.0
    for r in range(s.n_resources):
        area_used(m)[0, r] = area_used(m)[1, r] = 0.0
        area_capacity(m)[0, r] = area_capacity(m)[1, r] = 0.0
    for j in range(s.n_types):
        queue_area(m)[j] = area_running(m)[0, j] = area_running(m)[1, j] = 0.0


@kernel
def finish(s: st.State, a: Agenda, m: Meter) -> None:
    """Bring the sums up to the last moment, including jobs that started at once and jobs that still wait."""
    if not m.warm:
        start_measuring(s, m, a.now)
    count_waits(m)
    for j in range(s.n_types):
        wait_bins(m)[j, 0] += at_once(m)[j]
        wait_sums(m)[j, COUNT] += at_once(m)[j]
        slowdown_bins(m)[0] += at_once(m)[j]
    add_up_capacity(s, m, a.now)
    for i in range(s.max_jobs):
        if st.jobs(s)[i, st.SERVER] == st.WAITING:
            j, arrival, thrown_back = st.jobs(s)[i, st.TYPE], stays(a)[i, ARRIVAL], stays(a)[i, THROWN_BACK]
            queue_area(m)[j] += a.now - max(arrival, thrown_back, m.measured_from)
            if arrival >= m.measured_from and thrown_back < arrival:
                still_waiting(m)[natural(m.n_still)] = j * BINS + bin_of(a.now - arrival)
                m.n_still += 1
                longest = wait_sums(m)[j, LARGEST]
                wait_sums(m)[j, LARGEST] = max(longest, a.now - arrival)
    if not s.keeps_use:
        for r in range(s.n_resources):
            for j in range(s.n_types):
                area_used(m)[0, r] += area_running(m)[0, j] * st.demand(s)[j, r]
                area_used(m)[1, r] += area_running(m)[1, j] * st.demand(s)[j, r]

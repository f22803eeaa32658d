"""What a driver does to the state, each with the policy's answer: submit, complete, requeue, cancel, join, resume, drain, fail, tick.

The simulator's loop and `slotwise.Scheduler` call these same kernels; what is simulated is what is run. Hooks are function values, or
addresses (`calls`). Placements of the
event are in placed(s)[:s.n_placed] afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call, natural, prefetch
from slotwise.core import state as st
from slotwise.core.moves import file_late, reindex, vacate
from slotwise.core.queues import (
    admit,
    join_queue,
    leave_queue,
    queue_for,
    refresh_shortest,
    rejoin_queue,
    release,
)


@kernel
def begin(s: st.State) -> None:
    """A new event: no placements yet."""
    s.n_placed = 0
    s.n_moved = 0


@kernel
def submit(s: st.State, j: int, arrive: Any) -> int:
    """A job of type j arrives; returns its number. Its demand and times, where kept, the driver has written at s.free_job."""
    i = enter(s, j)
    arrive(s, j, i)
    return i


@kernel
def enter(s: st.State, j: int) -> int:
    """A new job of type j waits; returns its number."""
    begin(s)
    return admit(s, j)


@kernel
def complete(s: st.State, i: int, policy_complete: Any) -> None:
    """Job i has ended."""
    i = natural(i)
    j, server = natural(st.jobs(s)[i, st.TYPE]), natural(st.jobs(s)[i, st.SERVER])
    if depart(s, i, s.files_late > 0):
        policy_complete(s, j, server)
    file_late(s)


@kernel
def depart(s: st.State, i: int, later: bool) -> bool:
    """Job i leaves its server and is forgotten; returns whether that server takes others. `later` as for `vacate`."""
    begin(s)
    server = natural(st.jobs(s)[natural(i), st.SERVER])
    vacate(s, i, later)
    release(s, i)
    return bool(st.servers(s)[server, st.STATUS] == st.PRESENT)


@kernel
def expect(s: st.State, i: int) -> None:
    """Job i, which runs, will probably end soon: bring near what is kept of it.

    With 100,000 servers the state is larger than the processor's caches, and a completion would wait twice for memory: for
    the job, and then for its server. A driver that looks some completions ahead hides both."""
    prefetch(s.at_jobs + 4 * st.JOB_COLUMNS * i)
    if s.actual:
        prefetch(s.at_job_demand + 8 * s.n_resources * i)


@kernel
def expect_server(s: st.State, i: int) -> None:
    """The second half of `expect`, some time later: bring near what is kept of the job's server."""
    server = st.jobs(s)[i, st.SERVER]
    if server >= 0:
        at = s.at_servers + 4 * s.n_server_columns * server
        prefetch(at)
        prefetch(at + 4 * (st.SERVER_COLUMNS + 2 * s.n_types) - 1)
        if s.keeps_free:
            prefetch(s.at_free + 8 * s.n_resources * server)
        if s.keeps_fit:
            prefetch(s.at_chains + 4 * st.CHAIN_COLUMNS * server)


@kernel
def requeue(s: st.State, i: int, policy_stop: Any, arrive: Any) -> None:
    """Job i, which was to run, could not be started: it waits again, in its old place in the line, and its room is free."""
    begin(s)
    j, server = st.jobs(s)[i, st.TYPE], st.jobs(s)[i, st.SERVER]
    vacate(s, i, False)
    rejoin_queue(s, i, queue_for(s, j))
    st.moved(s)[0] = i
    s.n_moved = 1
    if st.servers(s)[server, st.STATUS] == st.PRESENT:
        call(policy_stop, s, j, server)
    if st.jobs(s)[i, st.SERVER] == st.WAITING:
        call(arrive, s, j, i)


@kernel
def cancel(s: st.State, i: int, policy_cancel: Any) -> None:
    """Job i, which waits, will not be served."""
    begin(s)
    j = st.jobs(s)[i, st.TYPE]
    leave_queue(s, i)
    release(s, i)
    call(policy_cancel, s, j, i)


@kernel
def join(s: st.State, server: int, c: int, policy_join: Any) -> None:
    """A server of class c comes under a number that is not in use, or one that was there before comes back empty."""
    set_up(s, server, c)
    policy_join(s, server, 0)


@kernel
def join_all(s: st.State, numbers: NDArray[np.int64], classes: NDArray[np.int64], policy_join: Any) -> None:
    """Servers join one after the other: the same as so many calls of `join`, without the way from Python for each."""
    for n in range(len(numbers)):
        set_up(s, numbers[n], classes[n])
        policy_join(s, numbers[n], 0)


@kernel
def set_up(s: st.State, server: int, c: int) -> None:
    """The server is there, and empty."""
    begin(s)
    row = st.servers(s)[server]
    row[st.CLASS] = c
    row[st.MODE] = 0
    if s.keeps_lists:
        st.chains(s)[server, st.FIRST_JOB] = -1
    for j in range(s.n_types):
        st.running(s)[server, j] = 0
        st.configuration(s)[server, j] = 0
    if s.keeps_free:
        for r in range(s.n_resources):
            st.free(s)[server, r] = st.capacity(s)[c, r]
    alone = s.n_places == 1 and server > 0
    s.n_places = max(s.n_places, server + 1)
    if alone:
        reindex(s, 0)  # it was in no index
    open_up(s, server)


@kernel
def open_up(s: st.State, server: int) -> None:
    """The server takes jobs."""
    st.servers(s)[server, st.STATUS] = st.PRESENT
    s.n_servers += 1
    st.present_by_class(s)[st.servers(s)[server, st.CLASS]] += 1
    reindex(s, server)
    if s.own_queues:
        for j in range(s.n_types):
            refresh_shortest(s, j, server)
        share_out(s)


@kernel
def resume(s: st.State, server: int, policy_resume: Any) -> None:
    """A server that drains takes jobs again, whatever it holds."""
    begin(s)
    open_up(s, server)
    call(policy_resume, s, server, 0)


@kernel
def drain(s: st.State, server: int, leave: Any, arrive: Any) -> None:
    """The server takes no more jobs; those on it run to their end."""
    begin(s)
    _shut(s, server)
    call(leave, s, server, 0)
    _send_away(s, server, arrive)


@kernel
def fail(s: st.State, server: int, leave: Any, arrive: Any) -> None:
    """The server is gone; its jobs, in moved(s)[:s.n_moved], wait again, in their old places in the line."""
    begin(s)
    was_present = st.servers(s)[server, st.STATUS] == st.PRESENT
    st.servers(s)[server, st.STATUS] = st.DRAINING  # so that nothing is started on it meanwhile
    rows, lost = st.jobs(s), st.moved(s)
    i = st.chains(s)[server, st.FIRST_JOB] if s.keeps_lists else 0
    while s.n_moved < st.servers(s)[server, st.COUNT]:
        if rows[i, st.SERVER] == server:
            lost[s.n_moved] = i
            s.n_moved += 1
        i = rows[i, st.NEXT] if s.keeps_lists else i + 1
    # from young to old: each finds its place at the front of its queue
    for a in range(1, s.n_moved):
        i, b = lost[a], a
        while b > 0 and st.sequence(s)[lost[b - 1]] < st.sequence(s)[i]:
            lost[b] = lost[b - 1]
            b -= 1
        lost[b] = i
    for n in range(s.n_moved):
        vacate(s, lost[n], False)
    if was_present:
        _shut(s, server)
    # requeue all of them before any hook runs: a younger job must not start before them
    for n in range(s.n_moved):
        rejoin_queue(s, lost[n], queue_for(s, int(rows[lost[n], st.TYPE])))
    if was_present:
        call(leave, s, server, 0)
        _send_away(s, server, arrive)
    st.servers(s)[server, st.STATUS] = st.ABSENT
    for n in range(s.n_moved - 1, -1, -1):
        if rows[lost[n], st.SERVER] == st.WAITING:  # the one before may have brought it along
            call(arrive, s, rows[lost[n], st.TYPE], lost[n])


@kernel
def _shut(s: st.State, server: int) -> None:
    """No index offers the server any more."""
    st.servers(s)[server, st.STATUS] = st.DRAINING
    s.n_servers -= 1
    st.present_by_class(s)[st.servers(s)[server, st.CLASS]] -= 1
    reindex(s, server)
    if s.own_queues:
        for j in range(s.n_types):
            refresh_shortest(s, j, server)


@kernel
def _send_away(s: st.State, server: int, arrive: Any) -> None:
    """Move the jobs of this server's own queues to the shortest queues of other servers."""
    if s.own_queues:
        for j in range(s.n_types):
            while st.queues(s)[server * s.n_types + j, st.HEAD] >= 0:
                i = st.queues(s)[server * s.n_types + j, st.HEAD]
                leave_queue(s, i)
                join_queue(s, i, queue_for(s, j))
                call(arrive, s, j, i)


@kernel
def share_out(s: st.State) -> None:
    """Jobs that no server could take join the queues of those that now can."""
    for j in range(s.n_types):
        q = s.max_servers * s.n_types + j
        while st.queues(s)[q, st.HEAD] >= 0 and queue_for(s, j) != q:
            i = st.queues(s)[q, st.HEAD]
            leave_queue(s, i)
            join_queue(s, i, queue_for(s, j))


@kernel
def remove(s: st.State, server: int) -> None:
    """A drained server, empty, gives its number back."""
    st.servers(s)[server, st.STATUS] = st.ABSENT


@kernel
def tick(s: st.State, policy_tick: Any) -> None:
    """The policy's own clock has rung."""
    begin(s)
    call(policy_tick, s, 0, 0)

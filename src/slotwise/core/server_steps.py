"""What happens to a server: it joins, drains, resumes, fails or is removed. Each event returns what the events of `steps` return."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call
from slotwise.core import state as st
from slotwise.core.indexes.shortest import refresh_server
from slotwise.core.steps import begin, join_queue, leave_queue, outcome, queue_for, reindex, rejoin_queue, vacate


@kernel
def join(state: Any, server: int, c: int, policy_join: Any) -> int:
    """Join a server of class c: a new one, or one that comes back empty."""
    s = st.record(state)
    set_up(s, server, c)
    call(policy_join, s, server, 0)
    return outcome(s)


@kernel
def join_all(s: st.State, numbers: NDArray[np.int64], classes: NDArray[np.int64], policy_join: Any) -> None:
    """Join servers one after the other, as so many calls of `join`, without the way from Python for each."""
    for n in range(len(numbers)):
        set_up(s, numbers[n], classes[n])
        policy_join(s, numbers[n], 0)


@kernel
def set_up(s: st.State, server: int, c: int) -> None:
    """Write the rows of an empty server of class c, and let it take jobs."""
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
    """Let the server take jobs."""
    st.servers(s)[server, st.STATUS] = st.PRESENT
    s.n_servers += 1
    st.present_by_class(s)[st.servers(s)[server, st.CLASS]] += 1
    reindex(s, server)
    refresh_server(s, server)
    share_out(s)


@kernel
def resume(state: Any, server: int, policy_resume: Any) -> int:
    """Let a draining server take jobs again, whatever it holds."""
    s = st.record(state)
    begin(s)
    open_up(s, server)
    call(policy_resume, s, server, 0)
    return outcome(s)


@kernel
def drain(state: Any, server: int, leave: Any, arrive: Any) -> int:
    """Drain the server: it takes no more jobs, and its jobs run to their end."""
    s = st.record(state)
    begin(s)
    _shut(s, server)
    call(leave, s, server, 0)
    _send_away(s, server, arrive)
    return outcome(s)


@kernel
def fail(state: Any, server: int, leave: Any, arrive: Any) -> int:
    """Take a lost server away. Its jobs, in moved(s)[:s.n_moved], wait again, in their old places in the queues."""
    s = st.record(state)
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
    return outcome(s)


@kernel
def _shut(s: st.State, server: int) -> None:
    """Take the server out of all indexes."""
    st.servers(s)[server, st.STATUS] = st.DRAINING
    s.n_servers -= 1
    st.present_by_class(s)[st.servers(s)[server, st.CLASS]] -= 1
    reindex(s, server)
    refresh_server(s, server)


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
    """Move jobs that no server could take to the queues of servers that now can. Without queues of servers, do nothing."""
    for j in range(s.n_types if s.own_queues else 0):
        q = s.max_servers * s.n_types + j
        while st.queues(s)[q, st.HEAD] >= 0 and queue_for(s, j) != q:
            i = st.queues(s)[q, st.HEAD]
            leave_queue(s, i)
            join_queue(s, i, queue_for(s, j))


@kernel
def remove(state: Any, server: int) -> None:
    """Remove an empty server."""
    s = st.record(state)
    st.servers(s)[server, st.STATUS] = st.ABSENT

"""How jobs come to servers and leave them: `start` and `start_job`, which are all that a policy may do, and what the driver does besides.

A policy has no move that would end, stop or move a started job.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call_at, natural
from slotwise.core import state as st
from slotwise.core.queues import leave_queue

# Values of `failed`: what a policy asked for and did not get.
FINE, NOBODY_WAITS, NOT_THERE, NO_ROOM, RAISED = 0, 1, 2, 3, 4


@kernel
def start(s: st.State, j: int, server: int) -> int:
    """Start the head of line of type j on the server and note the placement; returns the job.

    If the job cannot start, return -1. The event then ends with an error, and no server's capacity is exceeded.
    """
    if not 0 <= server < s.max_servers or st.servers(s)[server, st.STATUS] != st.PRESENT:
        s.failed = NOT_THERE
        return -1
    if not 0 <= j < s.n_types:
        s.failed = NOBODY_WAITS
        return -1
    j, server = natural(j), natural(server)
    i = st.queues(s)[server * s.n_types + j if s.own_queues else j, st.HEAD]
    if i < 0:
        s.failed = NOBODY_WAITS
    elif not _has_room(s, i, j, server):
        s.failed = NO_ROOM
    else:
        _occupy(s, i, j, server)
        return int(i)
    return -1


@kernel
def start_job(s: st.State, i: int, server: int) -> int:
    """Start waiting job i, wherever in its queue it stands, on the server; for the rest as `start`."""
    if not 0 <= server < s.max_servers or st.servers(s)[server, st.STATUS] != st.PRESENT:
        s.failed = NOT_THERE
        return -1
    if not 0 <= i < s.max_jobs or st.jobs(s)[i, st.SERVER] != st.WAITING:
        s.failed = NOBODY_WAITS
        return -1
    i, server = natural(i), natural(server)
    j = natural(st.jobs(s)[i, st.TYPE])
    if not _has_room(s, i, j, server):
        s.failed = NO_ROOM
        return -1
    _occupy(s, i, j, server)
    return i


@kernel
def _has_room(s: st.State, i: int, j: int, server: int) -> bool:
    """By free resources where they are kept, else by the server's slots."""
    if not s.keeps_free:
        return bool(st.running(s)[server, j] < st.configuration(s)[server, j])
    if s.restricted and not st.allowed(s)[st.servers(s)[server, st.CLASS], j]:
        return False
    room = st.free(s)[server]
    for r in range(s.n_resources):
        if room[r] < (st.job_demand(s)[i, r] if s.actual else st.demand(s)[j, r]):
            return False
    return True


@kernel
def _occupy(s: st.State, i: int, j: int, server: int) -> None:
    i, j, server = natural(i), natural(j), natural(server)
    leave_queue(s, i)
    put_on(s, i, j, server, True)
    place = st.placed(s)[natural(s.n_placed)]
    place[0] = i
    place[1] = server
    s.n_placed += 1


@kernel
def put_on(s: st.State, i: int, j: int, server: int, starts: bool) -> None:
    """Job i of type j is on the server, and takes its room there. It starts now; or it has started before, and the indexes, which
    are filed later, are not told."""
    i, j, server = natural(i), natural(j), natural(server)
    st.jobs(s)[i, st.SERVER] = server
    st.running(s)[server, j] += 1
    st.running_by_type(s)[j] += 1
    s.n_running += 1
    row = st.servers(s)[server]
    row[st.COUNT] += 1
    if s.keeps_use:
        _count_used(s, i, j, 1)
    if s.keeps_free:
        _take(s, i, j, server, 1)
        if starts:
            reindex(s, server)
    if s.keeps_times and starts:
        st.job_times(s)[i, 1] = s.now + st.job_times(s)[i, 0]
    if s.keeps_lists:
        _link(s, i, server)


@kernel
def vacate(s: st.State, i: int, later: bool) -> None:
    """Job i leaves its server (it is finished, or the server failed); its number stays its own. The indexes are told at once, or `later`, by `file_late`."""
    i = natural(i)
    row = st.jobs(s)[i]
    j, server = natural(row[st.TYPE]), natural(row[st.SERVER])
    st.running(s)[server, j] -= 1
    st.running_by_type(s)[j] -= 1
    s.n_running -= 1
    st.servers(s)[server, st.COUNT] -= 1
    if s.keeps_use:
        _count_used(s, i, j, -1)
    if s.keeps_free:
        _take(s, i, j, server, -1)
        if later:
            s.unfiled = server + 1
        else:
            reindex(s, server)
    if s.keeps_times:
        s.off_schedule |= st.job_times(s)[i, 1] != s.now
    if s.keeps_lists:
        _unlink(s, i, server)


@kernel
def _count_used(s: st.State, i: int, j: int, sign: int) -> None:
    total = st.used(s)
    if s.actual:
        for r in range(s.n_resources):
            total[r] += sign * st.job_demand(s)[i, r]
    else:
        for r in range(s.n_resources):
            total[r] += sign * st.demand(s)[j, r]


@kernel
def _take(s: st.State, i: int, j: int, server: int, sign: int) -> None:
    """Take (sign 1) or give back (sign -1) the room of job i, by its actual demand or its type's."""
    room = st.free(s)[server]
    if s.actual:
        for r in range(s.n_resources):
            room[r] -= sign * st.job_demand(s)[i, r]
    else:
        for r in range(s.n_resources):
            room[r] -= sign * st.demand(s)[j, r]


@kernel
def hold_room(s: st.State, j: int, server: int, sign: int) -> None:
    """Hold (sign 1) or release (sign -1) the room of one job of type j that is not there: a token."""
    room = st.free(s)[server]
    for r in range(s.n_resources):
        room[r] -= sign * st.demand(s)[j, r]
    reindex(s, server)


@kernel
def reindex(s: st.State, server: int) -> None:
    """Tell the indexes that the server's free room, or whether it takes jobs, has changed. That of free room knows an only server without being told."""
    if s.hook_reindex != 0 and (s.n_places != 1 or s.keeps_tree):
        call_at(s.hook_reindex, s, server, 0)


@kernel
def file_late(s: st.State) -> None:
    """Tell the indexes of the server that a job has left, if a job that started there has not done so."""
    if s.unfiled > 0:
        reindex(s, s.unfiled - 1)
        s.unfiled = 0


@kernel
def _link(s: st.State, i: int, server: int) -> None:
    rows, row = st.jobs(s), st.chains(s)[server]
    rows[i, st.PREVIOUS] = -1
    rows[i, st.NEXT] = row[st.FIRST_JOB]
    if row[st.FIRST_JOB] >= 0:
        rows[row[st.FIRST_JOB], st.PREVIOUS] = i
    row[st.FIRST_JOB] = i


@kernel
def _unlink(s: st.State, i: int, server: int) -> None:
    rows = st.jobs(s)
    job = rows[i]
    if job[st.PREVIOUS] >= 0:
        rows[job[st.PREVIOUS], st.NEXT] = job[st.NEXT]
    else:
        st.chains(s)[server, st.FIRST_JOB] = job[st.NEXT]
    if job[st.NEXT] >= 0:
        rows[job[st.NEXT], st.PREVIOUS] = job[st.PREVIOUS]

"""How jobs come to servers and leave them: `start` and `start_job`, which are all that a policy may do, and what the driver does besides.

A policy has no move that would end, stop or move a started job.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call_at, natural
from slotwise.core.queues import leave_queue
from slotwise.core.state import (
    CLASS,
    COUNT,
    FIRST_JOB,
    HEAD,
    NEXT,
    PRESENT,
    PREVIOUS,
    SERVER,
    STATUS,
    TYPE,
    WAITING,
    State,
    allowed,
    chains,
    configuration,
    demand,
    free,
    job_demand,
    job_times,
    jobs,
    placed,
    queues,
    running,
    running_by_type,
    servers,
    used,
)

# Values of `failed`: what a policy asked for and did not get.
FINE, NOBODY_WAITS, NOT_THERE, NO_ROOM, RAISED = 0, 1, 2, 3, 4


@kernel
def start(s: State, j: int, server: int) -> int:
    """Start the head of line of type j on the server and note the placement; returns the job.

    A policy that asks for what cannot be gets -1, and the run ends with an error: nobody's capacity is exceeded.
    """
    if not 0 <= server < s.max_servers or servers(s)[server, STATUS] != PRESENT:
        s.failed = NOT_THERE
        return -1
    if not 0 <= j < s.n_types:
        s.failed = NOBODY_WAITS
        return -1
    j, server = natural(j), natural(server)
    i = queues(s)[server * s.n_types + j if s.own_queues else j, HEAD]
    if i < 0:
        s.failed = NOBODY_WAITS
    elif not _has_room(s, i, j, server):
        s.failed = NO_ROOM
    else:
        _occupy(s, i, j, server)
        return int(i)
    return -1


@kernel
def start_job(s: State, i: int, server: int) -> int:
    """Start waiting job i, wherever in its queue it stands, on the server; for the rest as `start`."""
    if not 0 <= server < s.max_servers or servers(s)[server, STATUS] != PRESENT:
        s.failed = NOT_THERE
        return -1
    if not 0 <= i < s.max_jobs or jobs(s)[i, SERVER] != WAITING:
        s.failed = NOBODY_WAITS
        return -1
    i, server = natural(i), natural(server)
    j = natural(jobs(s)[i, TYPE])
    if not _has_room(s, i, j, server):
        s.failed = NO_ROOM
        return -1
    _occupy(s, i, j, server)
    return i


@kernel
def _has_room(s: State, i: int, j: int, server: int) -> bool:
    """By free resources where they are kept, else by the server's slots."""
    if not s.keeps_free:
        return bool(running(s)[server, j] < configuration(s)[server, j])
    if s.restricted and not allowed(s)[servers(s)[server, CLASS], j]:
        return False
    room = free(s)[server]
    for r in range(s.n_resources):
        if room[r] < (job_demand(s)[i, r] if s.actual else demand(s)[j, r]):
            return False
    return True


@kernel
def _occupy(s: State, i: int, j: int, server: int) -> None:
    i, j, server = natural(i), natural(j), natural(server)
    leave_queue(s, i)
    put_on(s, i, j, server, True)
    place = placed(s)[natural(s.n_placed)]
    place[0] = i
    place[1] = server
    s.n_placed += 1


@kernel
def put_on(s: State, i: int, j: int, server: int, starts: bool) -> None:
    """Job i of type j is on the server, and takes its room there. It starts now; or it has started before, and the indexes, which
    are filed later, are not told."""
    i, j, server = natural(i), natural(j), natural(server)
    jobs(s)[i, SERVER] = server
    running(s)[server, j] += 1
    running_by_type(s)[j] += 1
    s.n_running += 1
    row = servers(s)[server]
    row[COUNT] += 1
    if s.keeps_use:
        _count_used(s, i, j, 1)
    if s.keeps_free:
        _take(s, i, j, server, 1)
        if starts:
            reindex(s, server)
    if s.keeps_times and starts:
        job_times(s)[i, 1] = s.now + job_times(s)[i, 0]
    if s.keeps_lists:
        _link(s, i, server)


@kernel
def vacate(s: State, i: int, later: bool) -> None:
    """Job i leaves its server (it is finished, or the server failed); its number stays its own. The indexes are told at once, or `later`, by `file_late`."""
    i = natural(i)
    row = jobs(s)[i]
    j, server = natural(row[TYPE]), natural(row[SERVER])
    running(s)[server, j] -= 1
    running_by_type(s)[j] -= 1
    s.n_running -= 1
    servers(s)[server, COUNT] -= 1
    if s.keeps_use:
        _count_used(s, i, j, -1)
    if s.keeps_free:
        _take(s, i, j, server, -1)
        if later:
            s.unfiled = server + 1
        else:
            reindex(s, server)
    if s.keeps_times:
        s.off_schedule |= job_times(s)[i, 1] != s.now
    if s.keeps_lists:
        _unlink(s, i, server)


@kernel
def _count_used(s: State, i: int, j: int, sign: int) -> None:
    total = used(s)
    if s.actual:
        for r in range(s.n_resources):
            total[r] += sign * job_demand(s)[i, r]
    else:
        for r in range(s.n_resources):
            total[r] += sign * demand(s)[j, r]


@kernel
def _take(s: State, i: int, j: int, server: int, sign: int) -> None:
    """Take (sign 1) or give back (sign -1) the room of job i, by its actual demand or its type's."""
    room = free(s)[server]
    if s.actual:
        for r in range(s.n_resources):
            room[r] -= sign * job_demand(s)[i, r]
    else:
        for r in range(s.n_resources):
            room[r] -= sign * demand(s)[j, r]


@kernel
def hold_room(s: State, j: int, server: int, sign: int) -> None:
    """Hold (sign 1) or release (sign -1) the room of one job of type j that is not there: a token."""
    room = free(s)[server]
    for r in range(s.n_resources):
        room[r] -= sign * demand(s)[j, r]
    reindex(s, server)


@kernel
def reindex(s: State, server: int) -> None:
    """Tell the indexes that the server's free room, or whether it takes jobs, has changed. That of free room knows an only server without being told."""
    if s.hook_reindex != 0 and (s.n_places != 1 or s.keeps_tree):
        call_at(s.hook_reindex, s, server, 0)


@kernel
def file_late(s: State) -> None:
    """Tell the indexes of the server that a job has left, if a job that started there has not done so."""
    if s.unfiled > 0:
        reindex(s, s.unfiled - 1)
        s.unfiled = 0


@kernel
def _link(s: State, i: int, server: int) -> None:
    rows, row = jobs(s), chains(s)[server]
    rows[i, PREVIOUS] = -1
    rows[i, NEXT] = row[FIRST_JOB]
    if row[FIRST_JOB] >= 0:
        rows[row[FIRST_JOB], PREVIOUS] = i
    row[FIRST_JOB] = i


@kernel
def _unlink(s: State, i: int, server: int) -> None:
    rows = jobs(s)
    job = rows[i]
    if job[PREVIOUS] >= 0:
        rows[job[PREVIOUS], NEXT] = job[NEXT]
    else:
        chains(s)[server, FIRST_JOB] = job[NEXT]
    if job[NEXT] >= 0:
        rows[job[NEXT], PREVIOUS] = job[PREVIOUS]

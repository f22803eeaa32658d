"""What happens to a job: it arrives and waits, starts, completes, is cancelled or waits again.

- Events, below: `submit`, `complete`, `requeue`, `cancel`, and `tick`, each with the policy's answer. The simulator's loop and `slotwise.Scheduler` call these
  same kernels: what is simulated is what is run. An event returns the number n of its placements, which are in placed(s)[:n]. If the policy
  asked for a start that is not possible, the event returns -1 - n.
- Servers: `start` and `start_job` are all that a policy may do. No move ends, stops or moves a started job.
- Queues: doubly linked through the rows of `jobs`, in the order of arrival, so that any job can leave in one step.

A caller passes the state and the policy's hooks as they are, or by their addresses: to pass a record or a function value from Python takes
tens of microseconds, a number takes none. `server_steps` has the events of servers.
"""

from __future__ import annotations

import math
from typing import Any

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call, call_at, natural, trailing_zeros
from slotwise.core import state as st
from slotwise.core.indexes.shortest import refresh_shortest, shortest_queue
from slotwise.core.sharing import advance, charge

# Values of `failed`: what a policy asked for and did not get.
FINE, NO_JOB_WAITS, NOT_THERE, NO_ROOM, RAISED = 0, 1, 2, 3, 4
NOT_RUNNING = -(2**62)  # returned for a completion of a job that waits: less than -1 - n for any n


# -- events --------------------------------------------------------------------------------------------------------


@kernel
def begin(s: st.State) -> None:
    """Begin an event, without placements. Bring the uses of tenants up to its time."""
    s.n_placed = 0
    s.n_moved = 0
    if s.n_tenants > 0:
        advance(s)


@kernel
def outcome(s: st.State) -> int:
    """Return the number n of placements, or -1 - n if the policy asked for a start that is not possible."""
    return s.n_placed if s.failed == FINE else -1 - s.n_placed


@kernel
def submit(state: Any, j: int, arrive: Any, by_type: bool) -> int:
    """Submit a job of type j.

    Its number is s.free_job. The caller has written its times there, and its demand unless that is the demand of its type (`by_type`).
    """
    s = st.record(state)
    begin(s)
    if by_type and s.actual:
        for r in range(s.n_resources):
            st.job_demand(s)[s.free_job, r] = st.demand(s)[j, r]
    call(arrive, s, j, admit(s, j))
    return outcome(s)


@kernel
def complete(state: Any, i: int, policy_complete: Any) -> int:
    """Complete job i. The hook is the policy's `complete`, or its `stop` if the job was stopped. If the job waits, return NOT_RUNNING and change nothing."""
    s = st.record(state)
    i = natural(i)
    if st.jobs(s)[i, st.SERVER] < 0:
        return NOT_RUNNING
    j, server = natural(st.jobs(s)[i, st.TYPE]), natural(st.jobs(s)[i, st.SERVER])
    if depart(s, i, s.files_late > 0):
        call(policy_complete, s, j, server)
    file_late(s)
    return outcome(s)


@kernel
def depart(s: st.State, i: int, later: bool) -> bool:
    """Take job i off its server and forget it. Return whether the server takes jobs. `later` as for `vacate`."""
    begin(s)
    server = natural(st.jobs(s)[natural(i), st.SERVER])
    vacate(s, i, later)
    release(s, i)
    return bool(st.servers(s)[server, st.STATUS] == st.PRESENT)


@kernel
def requeue(state: Any, i: int, policy_stop: Any, arrive: Any) -> int:
    """Put job i, which could not be started on its server, back into its old place in its queue."""
    s = st.record(state)
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
    return outcome(s)


@kernel
def cancel(state: Any, i: int, policy_cancel: Any) -> int:
    """Cancel waiting job i."""
    s = st.record(state)
    begin(s)
    j = st.jobs(s)[i, st.TYPE]
    leave_queue(s, i)
    release(s, i)
    call(policy_cancel, s, j, i)
    return outcome(s)


@kernel
def tick(state: Any, policy_tick: Any) -> int:
    """Tell the policy that its own clock has rung."""
    s = st.record(state)
    begin(s)
    call(policy_tick, s, 0, 0)
    return outcome(s)


# -- queues --------------------------------------------------------------------------------------------------------


@kernel
def admit(s: st.State, j: int) -> int:
    """Put a new job of type j at the end of its queue. Return its number; the caller makes sure that one is free."""
    i, j = natural(s.free_job), natural(j)
    s.free_job = st.jobs(s)[i, st.NEXT]
    s.n_free_jobs -= 1
    st.jobs(s)[i, st.TYPE] = j
    st.sequence(s)[i] = s.last_sequence
    s.last_sequence += 1
    join_queue(s, i, queue_for(s, j))
    return i


@kernel
def release(s: st.State, i: int) -> None:
    """Free the number of job i."""
    i = natural(i)
    st.jobs(s)[i, st.SERVER] = st.NOWHERE
    st.jobs(s)[i, st.NEXT] = s.free_job
    s.free_job = i
    s.n_free_jobs += 1


@kernel
def queue_for(s: st.State, j: int) -> int:
    """Return the queue that a job of type j joins."""
    return shortest_queue(s, j) if s.own_queues else j


@kernel
def queue_at(s: st.State, j: int, server: int) -> int:
    """Return the queue of type j from which the server takes jobs."""
    return server * s.n_types + j if s.own_queues else j


@kernel
def join_queue(s: st.State, i: int, q: int) -> None:
    """Put job i at the end of queue q."""
    _put_between(s, natural(i), natural(q), st.queues(s)[natural(q), st.TAIL], -1)


@kernel
def rejoin_queue(s: st.State, i: int, q: int) -> None:
    """Put job i into queue q by its arrival: before all younger jobs."""
    rows = st.jobs(s)
    before, after = -1, int(st.queues(s)[q, st.HEAD])
    while after >= 0 and st.sequence(s)[after] < st.sequence(s)[i]:
        before, after = after, int(rows[after, st.NEXT])
    _put_between(s, i, q, before, after)


@kernel
def _put_between(s: st.State, i: int, q: int, before: int, after: int) -> None:
    """Link job i into queue q between two jobs. If `before` is -1 it becomes the first, if `after` is -1 the last."""
    rows, queue = st.jobs(s), st.queues(s)[q]
    job = rows[i]
    job[st.SERVER] = st.WAITING
    job[st.QUEUE] = q
    job[st.PREVIOUS] = before
    job[st.NEXT] = after
    if before >= 0:
        rows[natural(before), st.NEXT] = i
    else:
        queue[st.HEAD] = i
    if after >= 0:
        rows[natural(after), st.PREVIOUS] = i
    else:
        queue[st.TAIL] = i
    _resize(s, natural(st.jobs(s)[i, st.TYPE]), q, 1)
    if s.keeps_line:
        # filed when the next one comes, if it has not started by then
        if s.line_last >= 0:
            call_at(s.hook_line, s, s.line_last, 1)
        s.line_last = i


@kernel
def leave_queue(s: st.State, i: int) -> None:
    """Take job i out of its queue, wherever it stands."""
    i, rows = natural(i), st.jobs(s)
    job = rows[i]
    queue = st.queues(s)[natural(job[st.QUEUE])]
    if job[st.PREVIOUS] >= 0:
        rows[job[st.PREVIOUS], st.NEXT] = job[st.NEXT]
    else:
        queue[st.HEAD] = job[st.NEXT]
    if job[st.NEXT] >= 0:
        rows[job[st.NEXT], st.PREVIOUS] = job[st.PREVIOUS]
    else:
        queue[st.TAIL] = job[st.PREVIOUS]
    _resize(s, natural(st.jobs(s)[i, st.TYPE]), natural(job[st.QUEUE]), -1)
    if s.keeps_line:
        if s.line_last == i:
            s.line_last = -1
        else:
            call_at(s.hook_line, s, i, 0)


@kernel
def _resize(s: st.State, j: int, q: int, by: int) -> None:
    """Count `by` jobs more in queue q of type j, and bring what follows from its length up to date."""
    j, q = natural(j), natural(q)
    length = st.queue_length(s)[j] + by
    st.queue_length(s)[j] = length
    st.weight(s)[j] = weight_of_type(s, j, length)
    if s.keeps_ranks and (length == 0 or length == by):
        _mark(s, j, length > 0)
    st.queues(s)[q, st.LENGTH] += by
    s.n_waiting += by
    if s.own_queues and q < s.max_servers * s.n_types:
        refresh_shortest(s, j, q // s.n_types)


@kernel
def weight_of_type(s: st.State, j: int, length: int) -> float:
    """Return the weight of type j with a queue of this length."""
    if s.gained:
        return float(st.gain(s)[j] * length + st.offset(s)[j])
    return math.log(1.0 + length) if s.log_weights else float(length)


@kernel
def _mark(s: st.State, j: int, waits: bool) -> None:
    """Note whether a job of type j waits."""
    place = st.rank(s)[j]
    if waits:
        st.waiting_ranks(s)[place >> 5] |= 1 << (place & 31)
    else:
        st.waiting_ranks(s)[place >> 5] &= ~(1 << (place & 31))


@kernel
def next_waiting(s: st.State, place: int) -> int:
    """Return the first rank from `place` on, from large types to small, with a waiting job, or -1."""
    if place >= s.n_types:
        return -1
    words, n = st.waiting_ranks(s), natural(place >> 5)
    word = words[n] >> (place & 31) << (place & 31)
    while word == 0:
        n += 1
        if n == len(words):
            return -1
        word = words[n]
    return (n << 5) + trailing_zeros(word)


@kernel
def oldest_head(s: st.State, servers_queue: int) -> int:
    """Return the type whose head of queue has waited longest, or -1 if no job waits (queues of all types)."""
    born, lines = st.sequence(s), st.queues(s)
    best, age = -1, 0
    for j in range(s.n_types):
        i = lines[servers_queue + j, st.HEAD]
        if i >= 0 and (best < 0 or born[natural(i)] < age):
            best, age = j, born[natural(i)]
    return best


# -- servers -------------------------------------------------------------------------------------------------------


@kernel
def start(s: st.State, j: int, server: int) -> int:
    """Start the head of queue j on the server and note the placement. Return the job.

    If the job cannot start, return -1. The event then ends with an error, and no server's capacity is exceeded.
    """
    if not 0 <= server < s.max_servers or st.servers(s)[server, st.STATUS] != st.PRESENT:
        s.failed = NOT_THERE
        return -1
    if not 0 <= j < s.n_types:
        s.failed = NO_JOB_WAITS
        return -1
    j, server = natural(j), natural(server)
    i = st.queues(s)[queue_at(s, j, server), st.HEAD]
    if i < 0:
        s.failed = NO_JOB_WAITS
    elif not _has_room(s, i, j, server):
        s.failed = NO_ROOM
    else:
        _occupy(s, i, j, server)
        return int(i)
    return -1


@kernel
def start_job(s: st.State, i: int, server: int) -> int:
    """Start waiting job i, wherever in its queue it stands, on the server. Otherwise as `start`."""
    if not 0 <= server < s.max_servers or st.servers(s)[server, st.STATUS] != st.PRESENT:
        s.failed = NOT_THERE
        return -1
    if not 0 <= i < s.max_jobs or st.jobs(s)[i, st.SERVER] != st.WAITING:
        s.failed = NO_JOB_WAITS
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
    """Return whether the server has free capacity for job i, or a free slot if free capacity is not kept."""
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
    """Move job i of type j from its queue to the server, and note the placement."""
    i, j, server = natural(i), natural(j), natural(server)
    leave_queue(s, i)
    put_on(s, i, j, server, True)
    place = st.placed(s)[natural(s.n_placed)]
    place[0] = i
    place[1] = server
    s.n_placed += 1


@kernel
def put_on(s: st.State, i: int, j: int, server: int, starts: bool) -> None:
    """Put job i of type j on the server. If it does not start now but has started before (a situation is read), do not tell the indexes, which are filed later."""
    i, j, server = natural(i), natural(j), natural(server)
    st.jobs(s)[i, st.SERVER] = server
    st.running(s)[server, j] += 1
    st.running_by_type(s)[j] += 1
    s.n_running += 1
    row = st.servers(s)[server]
    row[st.COUNT] += 1
    if s.keeps_use:
        _count_used(s, i, j, 1)
    if s.n_tenants > 0:
        charge(s, i, j, 1)
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
    """Take job i off its server; its number stays its own. Tell the indexes at once, or `later`, by `file_late`."""
    i = natural(i)
    row = st.jobs(s)[i]
    j, server = natural(row[st.TYPE]), natural(row[st.SERVER])
    st.running(s)[server, j] -= 1
    st.running_by_type(s)[j] -= 1
    s.n_running -= 1
    st.servers(s)[server, st.COUNT] -= 1
    if s.keeps_use:
        _count_used(s, i, j, -1)
    if s.n_tenants > 0:
        charge(s, i, j, -1)
    if s.keeps_free:
        _take(s, i, j, server, -1)
        if later:
            s.unfiled = server + 1
        else:
            reindex(s, server)
    if s.keeps_times:
        s.departed = i
        s.off_schedule |= st.job_times(s)[i, 1] != s.now
    if s.keeps_lists:
        _unlink(s, i, server)


@kernel
def _count_used(s: st.State, i: int, j: int, sign: int) -> None:
    """Add (sign 1) or subtract (sign -1) the demand of job i to what running jobs use."""
    total = st.used(s)
    if s.actual:
        for r in range(s.n_resources):
            total[r] += sign * st.job_demand(s)[i, r]
    else:
        for r in range(s.n_resources):
            total[r] += sign * st.demand(s)[j, r]


@kernel
def _take(s: st.State, i: int, j: int, server: int, sign: int) -> None:
    """Take (sign 1) or give back (sign -1) the capacity for job i, by its own demand or its type's."""
    room = st.free(s)[server]
    if s.actual:
        for r in range(s.n_resources):
            room[r] -= sign * st.job_demand(s)[i, r]
    else:
        for r in range(s.n_resources):
            room[r] -= sign * st.demand(s)[j, r]


@kernel
def hold_room(s: st.State, j: int, server: int, sign: int) -> None:
    """Hold (sign 1) or release (sign -1) capacity for one job of type j that is not there: a token."""
    room = st.free(s)[server]
    for r in range(s.n_resources):
        room[r] -= sign * st.demand(s)[j, r]
    reindex(s, server)


@kernel
def reindex(s: st.State, server: int) -> None:
    """Tell the indexes that the server's free capacity, or whether it takes jobs, has changed. A single server is in no index of free capacity."""
    if s.hook_reindex != 0 and (s.n_places != 1 or s.keeps_tree):
        call_at(s.hook_reindex, s, server, 0)


@kernel
def file_late(s: st.State) -> None:
    """Tell the indexes of the server that a job has left, unless a start on it has told them."""
    if s.unfiled > 0:
        reindex(s, s.unfiled - 1)
        s.unfiled = 0


@kernel
def _link(s: st.State, i: int, server: int) -> None:
    """Add job i to the list of jobs on the server."""
    rows, row = st.jobs(s), st.chains(s)[server]
    rows[i, st.PREVIOUS] = -1
    rows[i, st.NEXT] = row[st.FIRST_JOB]
    if row[st.FIRST_JOB] >= 0:
        rows[row[st.FIRST_JOB], st.PREVIOUS] = i
    row[st.FIRST_JOB] = i


@kernel
def _unlink(s: st.State, i: int, server: int) -> None:
    """Remove job i from the list of jobs on the server."""
    rows = st.jobs(s)
    job = rows[i]
    if job[st.PREVIOUS] >= 0:
        rows[job[st.PREVIOUS], st.NEXT] = job[st.NEXT]
    else:
        st.chains(s)[server, st.FIRST_JOB] = job[st.NEXT]
    if job[st.NEXT] >= 0:
        rows[job[st.NEXT], st.PREVIOUS] = job[st.PREVIOUS]

"""EASY backfilling: first come, first served, but a job may overtake if it does not delay the first in line.

Clairvoyant: it needs every job's duration. The oldest waiting job, when it fits nowhere, gets a reservation: the server l*
and time t* at which it can start first if all running jobs end as expected. Another head of line may start now on any
server but l*, and on l* if it ends by t* or leaves enough room for the reserved job at t*. The reservation is
searched over all servers once for each job that comes to be first in line and must wait.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling import firsttree
from slotwise.scheduling.moves import start
from slotwise.scheduling.policies.fitting import set_need
from slotwise.scheduling.queues import oldest_head
from slotwise.scheduling.state import (
    CLASS,
    FIRST_JOB,
    NEXT,
    PRESENT,
    STATUS,
    TYPE,
    State,
    capacity,
    chains,
    demand,
    free,
    head,
    job_demand,
    job_times,
    jobs,
    need,
    policy_floats,
    policy_ints,
    queue_length,
    sequence,
    servers,
)

# policy_ints: for whom the reservation is (by sequence number), on which server; then R numbers of what stays free
FOR, ON, SPARE = 0, 1, 2
# policy_floats
AT = 0
NOBODY = -1


def arrive(s: State, j: int, i: int) -> None:
    """Only a new head of line can change anything."""
    if head(s, j) == i:
        schedule(s)


def complete(s: State, j: int, server: int) -> None:
    """Room on a server."""
    schedule(s)


def join(s: State, server: int, _: int) -> None:
    """A new server may start the first in line earlier than its reservation."""
    policy_ints(s)[FOR] = NOBODY
    schedule(s)


def leave(s: State, server: int, _: int) -> None:
    """A reservation on a server that goes is void."""
    policy_ints(s)[FOR] = NOBODY
    schedule(s)


def cancel(s: State, j: int, i: int) -> None:
    """Somebody else may be first in line now."""
    schedule(s)


@kernel
def schedule(s: State) -> None:
    """Serve in order while the first in line fits, then reserve for it and let others overtake."""
    while s.n_waiting > 0:
        j = oldest_head(s, 0)
        set_need(s, j)
        server = firsttree.first_fit(s, need(s), 0)
        if server < 0:
            break
        start(s, j, server)
    if s.n_waiting > 0:
        reserve(s)
        while overtake(s):
            continue


@kernel
def reserve(s: State) -> None:
    """Find l* and t* for the first in line, unless it has them already and t* is still to come."""
    j = oldest_head(s, 0)
    first = sequence(s)[head(s, j)]
    plan, time = policy_ints(s), policy_floats(s)
    if plan[FOR] == first and time[AT] > s.now:
        return
    set_need(s, j)
    plan[FOR] = first
    plan[ON] = NOBODY
    time[AT] = np.inf
    for server in range(s.max_servers):
        if servers(s)[server, STATUS] == PRESENT and covers(capacity(s)[servers(s)[server, CLASS]], need(s)):
            when = earliest(s, server, time[AT])
            if when < time[AT]:
                time[AT] = when
                plan[ON] = server
    if plan[ON] >= 0:
        set_spare(s, plan[ON], time[AT])


@kernel
def covers(room: NDArray[np.int64], size: NDArray[np.int64]) -> bool:
    """Whether the room has that much of everything."""
    for r in range(size.shape[0]):
        if room[r] < size[r]:
            return False
    return True


@kernel
def expected_end(s: State, i: int) -> float:
    """When the job ends as far as we know; one that is overdue may end at any moment."""
    return max(float(job_times(s)[i, 1]), np.nextafter(s.now, np.inf))


@kernel
def free_at(s: State, server: int, when: float, r: int) -> int:
    """Free room of resource r on the server once every job that ends by then has gone."""
    rows, total = jobs(s), free(s)[server, r]
    i = chains(s)[server, FIRST_JOB]
    while i >= 0:
        if expected_end(s, i) <= when:
            total += job_demand(s)[i, r] if s.actual else demand(s)[rows[i, TYPE], r]
        i = jobs(s)[i, NEXT]
    return int(total)


@kernel
def earliest(s: State, server: int, limit: float) -> float:
    """The first end of a job on the server, before the limit, at which need(s) fits; infinity where none is."""
    best = np.inf
    i = chains(s)[server, FIRST_JOB]
    while i >= 0:
        when = expected_end(s, i)
        if when < limit and when < best:
            enough = True
            for r in range(s.n_resources):
                enough = enough and free_at(s, server, when, r) >= need(s)[r]
            if enough:
                best = when
        i = jobs(s)[i, NEXT]
    return best


@kernel
def set_spare(s: State, server: int, when: float) -> None:
    """What will be free beside the reserved job at the time of its start."""
    for r in range(s.n_resources):
        policy_ints(s)[SPARE + r] = free_at(s, server, when, r) - need(s)[r]


@kernel
def overtake(s: State) -> bool:
    """Start the oldest head of line that does not delay the reserved job; False where there is none."""
    last = -1
    for _ in range(s.n_types):
        # heads of line from old to young
        j, age = -1, 0
        for k in range(s.n_types):
            if queue_length(s)[k] > 0:
                born = sequence(s)[head(s, k)]
                if born > last and (j < 0 or born < age):
                    j, age = k, born
        if j < 0:
            return False
        last = age
        if age == policy_ints(s)[FOR]:
            continue
        set_need(s, j)
        server = harmless_server(s, head(s, j))
        if server >= 0:
            if server == policy_ints(s)[ON] and s.now + job_times(s)[head(s, j), 0] > policy_floats(s)[AT]:
                for r in range(s.n_resources):
                    policy_ints(s)[SPARE + r] -= need(s)[r]
            start(s, j, server)
            return True
    return False


@kernel
def harmless_server(s: State, i: int) -> int:
    """The lowest-numbered server that fits need(s) without delaying the reserved job, -1 where there is none."""
    server = firsttree.first_fit(s, need(s), 0)
    if server < 0 or server != policy_ints(s)[ON]:
        return server
    ends_in_time = s.now + job_times(s)[i, 0] <= policy_floats(s)[AT]
    if ends_in_time or covers(policy_ints(s)[SPARE : SPARE + s.n_resources], need(s)):
        return server
    return firsttree.first_fit(s, need(s), server + 1)

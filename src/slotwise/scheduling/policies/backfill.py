"""EASY backfilling: first come, first served, but a job may overtake if it does not delay the first in line.

Clairvoyant: it needs every job's duration. The oldest waiting job, when it fits nowhere, gets a reservation: the server l*
and time t* at which it can start first if all running jobs end as expected. Another head of line may start now on any
server but l*, and on l* if it ends by t* or leaves enough room for the reserved job at t*. The reservation is
searched over all servers once for each job that comes to be first in line and must wait.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling import firsttree, fitindex
from slotwise.scheduling.learnt import Names
from slotwise.scheduling.moves import start
from slotwise.scheduling.policies.fitting import set_need
from slotwise.scheduling.policy import FitOptions, Options, Policy
from slotwise.scheduling.policymemory import Memory
from slotwise.scheduling.queues import oldest_head
from slotwise.scheduling.reasons import Because, Reason
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
    int_field,
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
from slotwise.scheduling.store import Store
from slotwise.scheduling.view import View

NOBODY = -1
MEMORY = Memory()
FOR = MEMORY.count("for", kept=False, start=NOBODY)
"""for whom the reservation is, by sequence number"""
ON = MEMORY.count("on", kept=False, start=NOBODY)
AT = MEMORY.number("at", kept=False)
SPARE = MEMORY.counts("spare", per="resource", kept=False)
"""what stays free beside the reserved job"""


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
    for server in range(s.n_places):
        c = servers(s)[server, CLASS]
        if servers(s)[server, STATUS] == PRESENT and fitindex.may_hold(s, c) and covers(capacity(s)[c], need(s)):
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
        int_field(s, SPARE)[r] = free_at(s, server, when, r) - need(s)[r]


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
                    int_field(s, SPARE)[r] -= need(s)[r]
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
    if ends_in_time or covers(int_field(s, SPARE), need(s)):
        return server
    return firsttree.first_fit(s, need(s), server + 1)


class EasyBackfill(Policy):
    """EASY backfilling, clairvoyant."""

    name = "easy-backfill"
    summary = "clairvoyant: first come, first served, with backfilling that does not delay the first in line"
    Options: ClassVar[type[Options]] = FitOptions
    memory = MEMORY
    keeps = frozenset({"free", "tree", "lists"})
    needs_durations = True
    compiled = True
    arrive, complete = staticmethod(arrive), staticmethod(complete)
    join, leave, cancel = staticmethod(join), staticmethod(leave), staticmethod(cancel)

    def learnt(self, store: Store, names: Names) -> dict[str, Any]:
        """The reservation, where it is for the job that is first in line now: any other is void."""
        whole, first = store.arrays["policy_ints"], store.first_sequence()
        if first is None or whole[FOR] != first:
            return {}
        server = dict(zip(names.server_rows, names.servers, strict=True)).get(int(whole[ON]))
        at = float(store.arrays["policy_floats"][AT])
        spare = dict(zip(names.resources, store.values_of(SPARE).tolist(), strict=True))
        return {"server": server, "at": at if np.isfinite(at) else None, "spare": spare}

    def recall(self, store: Store, values: dict[str, Any], names: Names) -> None:
        """Reserve for the first in line what was reserved for it."""
        if not values or (first := store.first_sequence()) is None:
            return
        whole, rows = store.arrays["policy_ints"], dict(zip(names.servers, names.server_rows, strict=True))
        whole[FOR], whole[ON] = first, rows.get(values["server"], NOBODY)
        store.arrays["policy_floats"][AT] = np.inf if values["at"] is None else values["at"]
        store.values_of(SPARE)[:] = [values["spare"][name] for name in names.resources]

    def why_waits(self, view: View, i: int) -> Because:
        if (first := view.first_in_line()) != i and view.no_room(i) is None:
            on = view.server_of.get(int(view.store.arrays["policy_ints"][ON]), "none yet")
            return Because(Reason.RESERVED, {"first": view.job_of[first], "server": on})
        return super().why_waits(view, i)

"""EASY backfilling: first come, first served, but a job may overtake if it does not delay the first in line.

It needs to know how long each job is expected to run: exactly (clairvoyant), or by its user's estimate. The oldest waiting job, when it
fits nowhere, gets a reservation: the server l* and the time t* at which it can start first if all running jobs end as
expected. Any other waiting job, from old to young, may start now on any server but l*; and on l* if it is expected to end by t* or
takes only what is left over beside the reserved job at t*. It goes to the lowest-numbered server that it may start on.

With one server this is EASY (Lifka 1995). With several servers the reservation is on one of them, and jobs on others are free.

The reservation stands while everything goes as expected. A job that ends at another time than expected, a server that comes or
goes, or t* passing by make it void, and it is searched anew over all servers. A job that outlives its estimate is expected to end at
any moment.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from slotwise._kernel import kernel
from slotwise.scheduling import firsttree, fitindex, line
from slotwise.scheduling.learnt import Names
from slotwise.scheduling.moves import start_job
from slotwise.scheduling.policies.fitting import set_job_need
from slotwise.scheduling.policy import FitOptions, Options, Policy
from slotwise.scheduling.policymemory import Memory
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
    int_field,
    job_demand,
    job_times,
    jobs,
    need,
    policy_floats,
    policy_ints,
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
ELSEWHERE = MEMORY.counts("elsewhere", per="resource", kept=False)
"""the most that is free on any server but l*, resource by resource"""
ROOM = MEMORY.counts("room", per="resource", kept=False)
"""what is free on l*"""


def arrive(s: State, j: int, i: int) -> None:
    """Nobody else can start now, as long as the reservation stands; but this one may."""
    first = line.first_in_line(s)
    if first == i or not stands(s, first):
        schedule(s)
    else:
        overtake(s, sequence(s)[i] - 1)


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
        i = line.first_in_line(s)
        set_job_need(s, i)
        server = firsttree.first_fit(s, need(s), 0)
        if server < 0:
            if not stands(s, i):
                reserve(s, i)
            overtake(s, NOBODY)
            return
        start_job(s, i, server)


@kernel
def stands(s: State, first: int) -> bool:
    """Whether there is a reservation for the first in line, all has gone as expected since, and its time is still to come."""
    return bool(policy_ints(s)[FOR] == sequence(s)[first] and policy_floats(s)[AT] > s.now and not s.off_schedule)


@kernel
def reserve(s: State, i: int) -> None:
    """Find l* and t* for job i, which is first in line and whose demand is in need(s)."""
    plan, time = policy_ints(s), policy_floats(s)
    s.off_schedule = 0
    plan[FOR] = sequence(s)[i]
    plan[ON] = NOBODY
    time[AT] = np.inf
    for server in range(s.n_places):
        c = servers(s)[server, CLASS]
        if (
            servers(s)[server, STATUS] == PRESENT
            and fitindex.may_hold(s, c)
            and line.covered(need(s), capacity(s)[c])
        ):
            when = earliest(s, server, time[AT])
            if when < time[AT]:
                time[AT] = when
                plan[ON] = server
    for r in range(s.n_resources):
        int_field(s, SPARE)[r] = free_at(s, plan[ON], time[AT], r) - need(s)[r] if plan[ON] >= 0 else 0


@kernel
def expected_end(s: State, i: int) -> float:
    """When the job ends as far as we know; one that is overdue may end at any moment."""
    return max(float(job_times(s)[i, 1]), np.nextafter(s.now, np.inf))


@kernel
def takes(s: State, i: int, r: int) -> int:
    """What running job i takes of a resource."""
    return int(job_demand(s)[i, r] if s.actual else demand(s)[jobs(s)[i, TYPE], r])


@kernel
def free_at(s: State, server: int, when: float, r: int) -> int:
    """Free room of resource r on the server once every job that ends by then has gone."""
    total = free(s)[server, r]
    i = chains(s)[server, FIRST_JOB]
    while i >= 0:
        if expected_end(s, i) <= when:
            total += takes(s, i, r)
        i = jobs(s)[i, NEXT]
    return int(total)


@kernel
def earliest(s: State, server: int, limit: float) -> float:
    """The first end of a job on the server, before the limit, at which need(s) fits; infinity where none is."""
    when = -np.inf
    while True:
        # the next end
        following = limit
        i = chains(s)[server, FIRST_JOB]
        while i >= 0:
            end = expected_end(s, i)
            if when < end < following:
                following = end
            i = jobs(s)[i, NEXT]
        if following >= limit:
            return np.inf
        when = following
        enough = True
        for r in range(s.n_resources):
            enough = enough and free_at(s, server, when, r) >= need(s)[r]
        if enough:
            return when


@kernel
def overtake(s: State, after: int) -> None:
    """Start every job that came after `after` and does not delay the reserved one, from old to young."""
    on, spare = policy_ints(s)[ON], int_field(s, SPARE)
    elsewhere, room, until = int_field(s, ELSEWHERE), int_field(s, ROOM), policy_floats(s)[AT]
    while s.n_waiting > 0:
        firsttree.most_without(s, on, elsewhere)
        for r in range(s.n_resources):
            room[r] = free(s)[on, r] if on >= 0 else -1
        i = line.oldest_harmless(s, after, elsewhere, room, spare, until)
        if i < 0:
            return
        after = sequence(s)[i]
        set_job_need(s, i)
        server = harmless_server(s, i)
        if server >= 0 and after != policy_ints(s)[FOR]:
            if server == on and s.now + job_times(s)[i, 0] > until:
                for r in range(s.n_resources):
                    spare[r] -= need(s)[r]
            start_job(s, i, server)


@kernel
def harmless_server(s: State, i: int) -> int:
    """The lowest-numbered server that fits need(s) without delaying the reserved job, -1 where there is none."""
    server = firsttree.first_fit(s, need(s), 0)
    if server < 0 or server != policy_ints(s)[ON]:
        return server
    ends_in_time = s.now + job_times(s)[i, 0] <= policy_floats(s)[AT]
    if ends_in_time or line.covered(need(s), int_field(s, SPARE)):
        return server
    return firsttree.first_fit(s, need(s), server + 1)


class EasyOptions(FitOptions):
    """Options of EASY backfilling."""

    durations: Literal["exact", "estimate"] = Field(
        "exact",
        description="in simulations: the true duration of each job, or its user's estimate (column `estimate` of a trace)",
    )


class EasyBackfill(Policy):
    """EASY backfilling."""

    name = "easy-backfill"
    summary = "knows durations: first come, first served, with backfilling that does not delay the first in line"
    Options: ClassVar[type[Options]] = EasyOptions
    memory = MEMORY
    keeps = frozenset({"free", "tree", "lists", "line"})
    needs_durations = True
    compiled = True
    arrive, complete = staticmethod(arrive), staticmethod(complete)
    join, leave, cancel = staticmethod(join), staticmethod(leave), staticmethod(cancel)

    @property
    def uses_estimates(self) -> bool:
        return bool(self.options.durations == "estimate")

    def learnt(self, store: Store, names: Names) -> dict[str, Any]:
        """The reservation, where it is for the job that is first in line now: any other is void."""
        whole, first = store.arrays["policy_ints"], store.first_sequence()
        if first is None or whole[FOR] != first:
            return {}
        server = dict(zip(names.server_rows, names.servers, strict=True)).get(int(whole[ON]))
        at = float(store.arrays["policy_floats"][AT])
        spare = dict(zip(names.resources, store.values_of(SPARE).tolist(), strict=True))
        if store.state.off_schedule:
            return {}  # it is void already
        return {"server": server, "at": at if np.isfinite(at) else None, "spare": spare}

    def recall(self, store: Store, values: dict[str, Any], names: Names) -> None:
        """Reserve for the first in line what was reserved for it."""
        if not values or (first := store.first_sequence()) is None:
            return
        whole, rows = store.arrays["policy_ints"], dict(zip(names.servers, names.server_rows, strict=True))
        whole[FOR], whole[ON] = first, rows.get(values["server"], NOBODY)
        store.arrays["policy_floats"][AT] = np.inf if values["at"] is None else values["at"]
        store.values_of(SPARE)[:] = [values["spare"][name] for name in names.resources]

    def shifted(self, values: dict[str, Any], by: float) -> dict[str, Any]:
        return values if values.get("at") is None else values | {"at": values["at"] + by}

    def why_waits(self, view: View, i: int) -> Because:
        if (first := view.first_in_line()) != i and view.no_room(i) is None:
            on = view.server_of.get(int(view.store.arrays["policy_ints"][ON]), "none yet")
            return Because(Reason.RESERVED, {"first": view.job_of[first], "server": on})
        return super().why_waits(view, i)

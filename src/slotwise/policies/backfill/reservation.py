"""A reservation: the server and the time at which a waiting job that fits nowhere can start first, if all running jobs end as expected.

With F_l(t) what is free on server l once all jobs that are expected to end by t have gone, job i with demand w has

    t* = min over l of min { t : F_l(t) >= w },     l* where that is,     spare = F_l*(t*) - w.

Another job does not delay it on any server but l*; nor on l*, if it is expected to end by t* or takes no more than what is to spare.

The reservation stands while everything goes as expected. A job that ends at another time than expected, a server that
comes or goes, or t* passing by make it void, and it is searched anew over all servers. A job that outlives its estimate
is expected to end at any moment.

A policy has it in its memory (`declare`), and names it by its place there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core import state as st
from slotwise.core.contract.learnt import Names
from slotwise.core.contract.memory import Memory
from slotwise.core.contract.reasons import Because, Reason
from slotwise.core.contract.view import View
from slotwise.core.indexes import line
from slotwise.core.store import Store

NONE = -1
FOR, JOB, ON = 0, 1, 2  # for whom it is, by the order of arrival and by job number, and on which server
FEW = 64  # running jobs of a server that are sorted by their ends in one go; of more, ends are tried one by one


def declare(memory: Memory) -> int:
    """Declare the memory of a reservation. Return its place."""
    place = memory.counts("reservation", per=3, kept=False, start=NONE)
    memory.numbers("reserved_at", per=1, kept=False)
    memory.counts("spare", per="resource", kept=False)
    memory.numbers("ends", per=FEW, kept=False)
    memory.counts("ending", per=FEW, kept=False)
    memory.counts("room_then", per="resource", kept=False)
    return place


@kernel
def holder(s: st.State, place: int) -> int:
    """Return the job that has the reservation, while it waits, or -1."""
    i = st.int_field(s, place)[JOB]
    if i >= 0 and st.jobs(s)[i, st.SERVER] == st.WAITING and st.sequence(s)[i] == st.int_field(s, place)[FOR]:
        return int(i)
    return NONE


@kernel
def reserved_server(s: st.State, place: int) -> int:
    """Return l*, or -1."""
    return int(st.int_field(s, place)[ON])


@kernel
def reserved_at(s: st.State, place: int) -> float:
    """Return t*."""
    return float(st.float_field(s, place + 1)[0])


@kernel
def spare(s: st.State, place: int) -> NDArray[np.int64]:
    """(R,): what stays free on l* beside the reserved job at t*."""
    return st.int_field(s, place + 2)


@kernel
def _room_then(s: st.State, place: int) -> NDArray[np.int64]:
    """(R,): what is free on the server that was last looked at, at the time that was found for it."""
    return st.int_field(s, place + 5)


@kernel
def drop(s: st.State, place: int) -> None:
    """Remove the reservation."""
    st.int_field(s, place)[:] = NONE


@kernel
def void(s: st.State, place: int) -> None:
    """Make the reservation void, so that it is searched anew for the same job."""
    st.float_field(s, place + 1)[0] = -np.inf


@kernel
def stands(s: st.State, place: int, i: int) -> bool:
    """Return whether job i has a reservation, all jobs have ended as expected since, and its time is still to come."""
    return bool(
        st.int_field(s, place)[FOR] == st.sequence(s)[i] and reserved_at(s, place) > s.now and not s.off_schedule
    )


@kernel
def _could_hold(s: st.State, server: int) -> bool:
    """Return whether the server takes jobs, and could hold need(s) if it were empty."""
    row = st.servers(s)[server]
    takes_jobs = row[st.STATUS] == st.PRESENT and row[st.MODE] != st.STALLED
    return bool(
        takes_jobs and st.may_hold(s, row[st.CLASS]) and line.covered(st.need(s), st.capacity(s)[row[st.CLASS]])
    )


@kernel
def reserve(s: st.State, place: int, i: int) -> None:
    """Find l* and t* for job i, whose demand is in need(s)."""
    plan, at = st.int_field(s, place), st.float_field(s, place + 1)
    s.off_schedule = 0
    plan[FOR], plan[JOB], plan[ON] = st.sequence(s)[i], i, NONE
    at[0] = np.inf
    for server in range(s.n_places):
        if _could_hold(s, server):
            when = earliest(s, place, server, at[0])
            if when < at[0]:
                at[0] = when
                plan[ON] = server
                for r in range(s.n_resources):
                    spare(s, place)[r] = _room_then(s, place)[r] - st.need(s)[r]
    if plan[ON] < 0:
        for r in range(s.n_resources):
            spare(s, place)[r] = 0


@kernel
def is_harmless(s: st.State, place: int, i: int) -> bool:
    """Return whether job i, whose demand is in need(s), does not delay the reserved one on its server."""
    return ends_in_time(s, place, i) or line.covered(st.need(s), spare(s, place))


@kernel
def ends_in_time(s: st.State, place: int, i: int) -> bool:
    """Return whether job i, if it starts now, is expected to end by t*."""
    return bool(s.now + st.job_times(s)[i, 0] <= reserved_at(s, place))


@kernel
def take_spare(s: st.State, place: int, i: int) -> None:
    """Take the demand need(s) of a job that starts on l* from what is to spare."""
    if not ends_in_time(s, place, i):
        for r in range(s.n_resources):
            spare(s, place)[r] -= st.need(s)[r]


@kernel
def expected_end(s: st.State, i: int, soon: float) -> float:
    """Return the expected end of the job. A job that is overdue may end at any moment, so its end is the next
    moment."""
    return max(float(st.job_times(s)[i, 1]), soon)


@kernel
def next_moment(s: st.State) -> float:
    """Return the earliest time that is still to come."""
    return float(np.nextafter(s.now, np.inf))


@kernel
def takes(s: st.State, i: int, r: int) -> int:
    """Return what job i takes of a resource, or would take."""
    return int(st.job_demand(s)[i, r] if s.actual else st.demand(s)[st.jobs(s)[i, st.TYPE], r])


@kernel
def free_at(s: st.State, server: int, when: float, r: int) -> int:
    """Free room of resource r on the server once every job that ends by then has gone."""
    total, soon = st.free(s)[server, r], next_moment(s)
    i = st.chains(s)[server, st.FIRST_JOB]
    while i >= 0:
        if expected_end(s, i, soon) <= when:
            total += takes(s, i, r)
        i = st.jobs(s)[i, st.NEXT]
    return int(total)


@kernel
def earliest(s: st.State, place: int, server: int, limit: float) -> float:
    """Return the first end of a job on the server, before the limit, at which need(s) fits, or infinity. Write the
    free capacity at that time into _room_then."""
    if st.servers(s)[server, st.COUNT] > FEW:
        return _earliest_of_many(s, place, server, limit)
    ends, ending, room = st.float_field(s, place + 3), st.int_field(s, place + 4), _room_then(s, place)
    soon = next_moment(s)
    n, i = 0, st.chains(s)[server, st.FIRST_JOB]
    while i >= 0:
        end = expected_end(s, i, soon)
        if end < limit:
            k = n
            while k > 0 and ends[k - 1] > end:
                ends[k], ending[k] = ends[k - 1], ending[k - 1]
                k -= 1
            ends[k], ending[k] = end, i
            n += 1
        i = st.jobs(s)[i, st.NEXT]
    for r in range(s.n_resources):
        room[r] = st.free(s)[server, r]
    for k in range(n):
        for r in range(s.n_resources):
            room[r] += takes(s, ending[k], r)
        if (k + 1 == n or ends[k + 1] > ends[k]) and line.covered(st.need(s), room):
            return float(ends[k])
    return np.inf


@kernel
def _earliest_of_many(s: st.State, place: int, server: int, limit: float) -> float:
    """Return the same without sorting. Free capacity only grows as jobs end. So each trial of an end rules out either
    all later ends, or that end and all earlier ones. With n jobs that takes log n trials in the mean."""
    too_early, late, found, soon = -np.inf, limit, np.inf, next_moment(s)
    when = soon if soon < limit else np.inf
    while when < np.inf:
        before, after, ends, room = np.inf, np.inf, False, st.free(s)[server, 0]
        i = st.chains(s)[server, st.FIRST_JOB]
        while i >= 0:
            end = expected_end(s, i, soon)
            if end <= when:
                ends = True
                room += takes(s, i, 0)
                if too_early < end < when:
                    before = end
            elif end < late:
                after = end
            i = st.jobs(s)[i, st.NEXT]
        enough = ends and room >= st.need(s)[0]
        for r in range(1, s.n_resources):
            enough = enough and free_at(s, server, when, r) >= st.need(s)[r]
        if enough:
            late = found = when
            when = before
        else:
            too_early = when
            when = after
    for r in range(s.n_resources):
        _room_then(s, place)[r] = free_at(s, server, found, r)
    return found


def why_waits(view: View, place: int, i: int) -> Because | None:
    """Return the reason if job i waits for the reservation of another job: some server has the free capacity for
    job i."""
    first = holder(view.store.state, place)
    if first in (NONE, i) or view.no_room(i) is not None:
        return None
    on = reserved_server(view.store.state, place)
    return Because(Reason.RESERVED, {"first": view.job_of[first], "server": view.server_of.get(on, "none yet")})


def describe(view: View, place: int, server: int) -> tuple[Because, ...]:
    """Return that the server is reserved, or nothing."""
    state = view.store.state
    first = holder(state, place)
    if first < 0 or reserved_server(state, place) != server:
        return ()
    return (Because(Reason.RESERVED_FOR, {"first": view.job_of[first], "at": reserved_at(state, place)}),)


def learnt(store: Store, place: int, names: Names) -> dict[str, Any]:
    """Return the reservation as plain data. If a job ended at another time than expected, name the job only."""
    born, i, on = store.values_of(place).tolist()
    if i < 0 or store.arrays["jobs"][i, st.SERVER] != st.WAITING or store.sequence[i] != born:
        return {}
    at = float(store.values_of(place + 1)[0])
    if store.state.off_schedule:
        return {"for": born}
    server = dict(zip(names.server_rows, names.servers, strict=True)).get(on)
    left = dict(zip(names.resources, store.values_of(place + 2).tolist(), strict=True))
    return {"for": born, "server": server, "at": at if np.isfinite(at) else None, "spare": left}


def recall(store: Store, place: int, values: dict[str, Any], names: Names) -> None:
    """Reserve for the same job what was reserved for it."""
    found = np.flatnonzero(
        (store.arrays["jobs"][:, st.SERVER] == st.WAITING) & (store.sequence == values.get("for", NONE))
    )
    if not len(found):
        return
    rows = dict(zip(names.servers, names.server_rows, strict=True))
    store.values_of(place)[:] = values["for"], found[0], rows.get(values.get("server"), NONE)
    if "spare" not in values:
        return  # t* is in the past, so that it is void
    store.values_of(place + 1)[0] = np.inf if values["at"] is None else values["at"]
    store.values_of(place + 2)[:] = [values["spare"][name] for name in names.resources]


def shifted(values: dict[str, Any], by: float) -> dict[str, Any]:
    """Return the values with their time moved by `by`."""
    return values if values.get("at") is None else values | {"at": values["at"] + by}

"""Going on from a situation: a state is laid out for it, jobs and servers are put in, and the policy takes up where it was, or takes over.

A policy that goes on, with the same options, gets back all it knew, and decides from then on as if nothing had happened. Another one
finds the servers as if all had been drained and now take jobs again, one after the other, holding what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core import server_steps, sharing, steps
from slotwise.core import state as st
from slotwise.core.contract.learnt import Names
from slotwise.core.indexes import linetree
from slotwise.core.indexes.shortest import refresh_server
from slotwise.core.steps import put_on, reindex
from slotwise.core.store import Store
from slotwise.errors import InputError
from slotwise.model import JobType, ServerClass
from slotwise.scheduling.register import Register
from slotwise.scheduling.situation import STATUSES, Situation

I8 = NDArray[np.int64]


def rebuild(
    store: Store,
    register: Register,
    situation: Situation,
    types: Sequence[JobType],
    classes: Sequence[ServerClass],
    *,
    continues: bool,
) -> None:
    """Fill the store and the register, which are new. Placements of a policy that takes over are in `placed`."""
    waiting, running, table = situation.waiting, situation.running, situation.servers
    state: Any = store.state
    type_rows = _rows(situation.types, types, {*waiting.type, *running.type}, "type", "jobs")
    class_rows = _rows(situation.classes, classes, set(table.server_class), "server class", "servers")
    numbers = np.array(table.number, np.int64)
    kinds = type_rows[np.array([*waiting.type, *running.type], np.int64)]
    sizes = _demands(store, situation, kinds)
    durations = _durations(store, situation)
    _enter(store, register, situation, sizes, kinds, durations)
    W, n = len(waiting.job), len(kinds)
    state.shares_at = situation.now if situation.used_until is None else situation.used_until
    state.now, state.n_places, state.last_sequence = situation.now, situation.places, situation.last_sequence
    store.arrays["jobs"][:n, st.TYPE] = kinds
    store.sequence[:n] = [*waiting.sequence, *running.sequence]
    state.free_job = n if n < state.max_jobs else -1
    state.n_free_jobs = state.max_jobs - n
    if state.actual:
        store.arrays["job_demand"][:n] = sizes
    if state.keeps_times:
        times = store.arrays["job_times"]
        times[:n, 0] = durations
        times[W:n, 1] = np.array(running.started) + times[W:n, 0]
    if situation.use is not None:
        recall(store, situation.use)
    _put_servers(state, numbers, class_rows[np.array(table.server_class, np.int64)])
    _put_running(state, W, numbers[np.array(running.server, np.int64)])
    _put_waiting(store, situation, kinds[:W], numbers if continues else None)
    _check_room(store, situation, sizes)
    status = np.array([STATUSES.index(one) for one in table.status], np.int32)
    if continues:
        _restore_policy(store, situation, numbers, status, type_rows)
    else:
        present = numbers[status == st.PRESENT]
        store.arrays["servers"][numbers, st.STATUS] = np.where(status == st.PRESENT, st.DRAINING, status)
        _open_all(state, present)
        _resume_all(state, present, store.policy.hook("resume"))


def recall(store: Store, use: Mapping[str, Sequence[float]]) -> None:
    """Give tenants the uses, activities and corrections that they had. A tenant that is not listed any more is forgotten."""
    if not store.state.n_tenants:
        return
    for t, name in enumerate(store.tenants):
        if name in use:
            store.arrays["tenants"][t, [sharing.USE, sharing.ACTIVE, sharing.CORRECTION]] = use[name]
    sharing.set_factors(store.state, 0.0)


def _rows(
    old: Sequence[JobType | ServerClass],
    new: Sequence[JobType | ServerClass],
    used: set[int],
    what: str,
    of: str,
) -> I8:
    """Return the row of each old name among the new names, or -1 if the name is gone and no job or server has it."""
    place = {part.name: at for at, part in enumerate(new)}
    rows = [place.get(part.name, -1) for part in old]
    for at in sorted(used):
        if rows[at] < 0:
            raise InputError(
                f"has {of} of the {what} {old[at].name!r}, which is not there any more",
                where="situation",
                remedy=f"keep it, under its name; there are: {', '.join(place)}",
            )
    return np.array(rows, np.int64)


def _enter(
    store: Store, register: Register, situation: Situation, sizes: I8, kinds: I8, durations: NDArray[np.float64]
) -> None:
    """Enter names, times, attempts, and what the state does not hold."""
    waiting, running, servers = situation.waiting, situation.running, situation.servers
    names, W = [*waiting.job, *running.job], len(waiting.job)
    register.jobs.update(zip(names, range(len(names)), strict=True))
    register.job_of.update(enumerate(names))
    register.submitted[: len(names)] = [*waiting.submitted, *running.submitted]
    register.started[W : len(names)] = running.started
    earlier = [*(waiting.attempts or [0] * W), *(placed - 1 for placed in running.attempts)]
    for i, before in enumerate(earlier):
        if before > 0:
            register.extra(i).earlier = before
    if not store.state.actual:
        smaller = np.flatnonzero((sizes != store.sizes.demand[kinds]).any(axis=1))
        for i in smaller.tolist():
            register.extra(i).demand = sizes[i]
    if not store.state.keeps_times:
        for i in np.flatnonzero(np.isfinite(durations)).tolist():
            register.extra(i).duration = float(durations[i])
    register.servers.update(zip(servers.name, servers.number, strict=True))
    register.server_of.update(zip(servers.number, servers.name, strict=True))
    register.unused[:] = sorted(set(range(situation.places)) - set(servers.number))


def _demands(store: Store, situation: Situation, kinds: I8) -> I8:
    """Return the demand of each job in the units of the store: its type's demand, or its own."""
    sizes, W = store.sizes.demand[kinds].copy(), len(situation.waiting.job)
    finer = [10 ** (new - old) for new, old in zip(store.sizes.digits, situation.digits, strict=True)]
    for first, own in ((0, situation.waiting.demand), (W, situation.running.demand)):
        if own:
            sizes[first : first + len(own)] = np.array(own, np.int64) * finer
    return sizes


def _durations(store: Store, situation: Situation) -> NDArray[np.float64]:
    """Return how long each job is expected to run: infinite if unknown, which clairvoyant policies refuse."""
    known: list[float] = []
    for table in (situation.waiting, situation.running):
        column = table.duration or [None] * len(table.job)
        known += [np.inf if duration is None else duration for duration in column]
    durations = np.array(known, np.float64)
    unknown = np.flatnonzero(np.isinf(durations))
    if store.policy.needs_durations and len(unknown):
        jobs = [*situation.waiting.job, *situation.running.job]
        raise InputError(
            f"job {jobs[unknown[0]]!r} has no duration",
            where="situation",
            remedy=f"{store.policy.label} is clairvoyant: only jobs with durations can be taken over",
        )
    return durations


def _put_waiting(store: Store, situation: Situation, types: I8, numbers: I8 | None) -> None:
    """Link the waiting jobs, numbers 0 and up, into their queues."""
    state: Any = store.state
    waiting, J, n = situation.waiting, state.n_types, len(situation.waiting.job)
    order, q = np.arange(n), types.copy()
    if state.own_queues:
        q += state.max_servers * J  # those whom no server could take
        if numbers is not None and waiting.queue is not None:
            has = np.array([at is not None for at in waiting.queue], np.bool_)
            q[has] = numbers[np.array([at for at in waiting.queue if at is not None], np.int64)] * J + types[has]
    if numbers is None:  # another policy: whichever queues they were in, who came first is first
        order = np.argsort(np.array(waiting.sequence, np.int64), kind="stable")
    order = order[np.argsort(q[order], kind="stable")]
    rows, queues, q = store.arrays["jobs"], store.arrays["queues"], q[order]
    first = np.flatnonzero(np.diff(q, prepend=-1))
    last = np.append(first[1:], n) - 1 if n else first
    rows[:n, st.SERVER] = st.WAITING
    rows[order, st.QUEUE] = q
    rows[order[1:], st.PREVIOUS] = order[:-1]
    rows[order[:-1], st.NEXT] = order[1:]
    rows[order[first], st.PREVIOUS] = -1
    rows[order[last], st.NEXT] = -1
    queues[q[first], st.LENGTH] = last - first + 1
    queues[q[first], st.HEAD], queues[q[first], st.TAIL] = order[first], order[last]
    state.n_waiting = n
    if state.keeps_line:
        _file_waiting(state, n)
    length = store.arrays["queue_length"]
    length[:] = np.bincount(types, minlength=J)
    store.count_waiting()


def _check_room(store: Store, situation: Situation, sizes: I8) -> None:
    """Refuse what cannot be: more on a server than it holds, by what the jobs really ask for."""
    if any(space.demand is None for space in store.spaces):
        return  # a predicate of the class says what fits, and is asked for configurations only
    servers, running = situation.servers, situation.running
    left = store.sizes.capacity[store.arrays["servers"][servers.number, st.CLASS]]
    np.subtract.at(left, running.server, sizes[len(sizes) - len(running.job) :])
    for at in np.flatnonzero((left < 0).any(axis=1)):
        raise InputError(
            f"server {servers.name[at]!r} holds more than its class has room for",
            where="situation",
            remedy="keep capacities and demands of servers and jobs that are there",
        )


def _restore_policy(
    store: Store, situation: Situation, numbers: I8, status: NDArray[np.int32], type_rows: I8
) -> None:
    """Give the policy back all that it knew."""
    state: Any = store.state
    names = Names(
        [t.name for t in situation.types],
        type_rows.tolist(),
        situation.resources,
        situation.servers.name,
        numbers.tolist(),
    )
    rows, policy = store.arrays["servers"], situation.policy
    rows[numbers, st.STATUS] = status
    rows[numbers, st.MODE] = policy.mode
    kept = np.flatnonzero(type_rows >= 0)
    slots = np.array(policy.slots, np.int32).reshape(len(numbers), len(type_rows))
    store.configuration[numbers[:, None], type_rows[kept][None, :]] = slots[:, kept]
    present = numbers[status == st.PRESENT]
    state.n_servers = len(present)
    store.arrays["present_by_class"][:] = np.bincount(rows[present, st.CLASS], minlength=state.n_classes)
    state.n_stalled = int((rows[present, st.MODE] == st.STALLED).sum())
    store.policy.recall(store, dict(policy.learnt), names)
    store.file_all(numbers[np.array(policy.filed, np.int64)])
    _file_all(state, numbers, store.policy.hook("file"))
    store.policy.recalled(store)


@kernel
def _file_waiting(s: st.State, n: int) -> None:
    """Put jobs 0 to n - 1 into their queues."""
    for i in range(n):
        linetree.insert(s, i)


@kernel
def _put_servers(s: st.State, numbers: I8, kinds: I8) -> None:
    """Enter the servers, empty. They take no jobs yet."""
    for n in range(len(numbers)):
        server = numbers[n]
        st.servers(s)[server, st.CLASS] = kinds[n]
        st.servers(s)[server, st.STATUS] = st.DRAINING
        if s.keeps_lists:
            st.chains(s)[server, st.FIRST_JOB] = -1
        if s.keeps_free:
            for r in range(s.n_resources):
                st.free(s)[server, r] = st.capacity(s)[kinds[n], r]


@kernel
def _put_running(s: st.State, first: int, on: I8) -> None:
    """Put jobs from number `first` on onto these servers."""
    for n in range(len(on)):
        put_on(s, first + n, st.jobs(s)[first + n, st.TYPE], on[n], False)


@kernel
def _file_all(s: st.State, numbers: I8, file: Any) -> None:
    """Tell the policy of each server what it knew of it."""
    for n in range(len(numbers)):
        server = numbers[n]
        refresh_server(s, server)
        file(s, server, 0)


@kernel
def _open_all(s: st.State, numbers: I8) -> None:
    """Let all of these servers take jobs, before the policy is asked."""
    steps.begin(s)
    for n in range(len(numbers)):
        server = numbers[n]
        st.servers(s)[server, st.STATUS] = st.PRESENT
        s.n_servers += 1
        st.present_by_class(s)[st.servers(s)[server, st.CLASS]] += 1
        reindex(s, server)
        refresh_server(s, server)
    server_steps.share_out(s)


@kernel
def _resume_all(s: st.State, numbers: I8, resume: Any) -> None:
    """Resume each server with the jobs that it holds."""
    for n in range(len(numbers)):
        resume(s, numbers[n], 0)

"""Writing a situation down: from a state and the names that go with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.core import chance, sharing
from slotwise.core import state as st
from slotwise.core.contract.learnt import Names
from slotwise.core.contract.policy import Policy
from slotwise.core.store import Store
from slotwise.errors import InputError
from slotwise.model import Cluster, JobType, Shares
from slotwise.scheduling.register import Register
from slotwise.scheduling.situation import STATUSES, PolicyState, RunningTable, ServerTable, Situation, WaitingTable

I8 = NDArray[np.int64]


def capture(
    store: Store,
    register: Register,
    cluster: Cluster,
    types: Sequence[JobType],
    now: float,
    shares: Shares | None = None,
) -> Situation:
    """Return all that is known."""
    for server_class in cluster.servers:
        if server_class.feasible is not None:
            raise InputError(
                "has a predicate of its own, which cannot be written down",
                where=f"server class {server_class.name}",
                remedy="give demands and capacities",
            )
    state: Any = store.state
    numbers = sorted(register.server_of)
    rows = store.arrays["servers"][numbers]
    place_of = np.full(max(1, state.max_servers), -1, np.int64)
    place_of[numbers] = np.arange(len(numbers))
    servers = ServerTable(
        [register.server_of[number] for number in numbers],
        rows[:, st.CLASS].tolist(),
        [STATUSES[status] for status in rows[:, st.STATUS].tolist()],
        numbers,
    )
    return Situation(
        now=now,
        resources=list(cluster.resources),
        classes=[server_class.model_copy(update={"count": 0}) for server_class in cluster.servers],
        types=list(types),
        digits=list(store.sizes.digits),
        places=int(state.n_places),
        last_sequence=int(state.last_sequence),
        servers=servers,
        waiting=_waiting(store, register, place_of),
        running=_running(store, register, place_of),
        policy=_policy(store, cluster, types, servers, place_of),
        shares=shares,
        use=None if shares is None else uses(store),
        used_until=None if shares is None else float(state.shares_at),
    )


def uses(store: Store) -> dict[str, list[float]]:
    """Return the decayed use, the activity and the correction of each tenant."""
    rows = store.arrays["tenants"][:, [sharing.USE, sharing.ACTIVE, sharing.CORRECTION]]
    return dict(zip(store.tenants, rows.tolist(), strict=True))


def _waiting(store: Store, register: Register, place_of: I8) -> WaitingTable:
    state: Any = store.state
    rows, J = store.arrays["jobs"], int(state.n_types)
    jobs = np.flatnonzero(rows[:, st.SERVER] == st.WAITING)
    queue = rows[jobs, st.QUEUE].astype(np.int64)
    rank = in_queue_order(store, jobs)
    order = np.lexsort((rank, queue))
    jobs, queue = jobs[order], queue[order]
    owner = None
    if state.own_queues:
        at = np.append(place_of, -1)[queue // J]  # the last queues are those of jobs that no server could take
        owner = [None if place < 0 else int(place) for place in at]
    earlier = [register.earlier(i) for i in jobs.tolist()] if register.extras else []
    return WaitingTable(**_common(store, register, jobs), attempts=earlier if any(earlier) else None, queue=owner)


def in_queue_order(store: Store, jobs: I8) -> I8:
    """Return for each waiting job a number that grows along its queue."""
    sequence = store.sequence[jobs]
    if not store.state.own_queues:
        return sequence  # within a type, older jobs come first
    rank = np.zeros(store.state.max_jobs, np.int64)
    for head in store.arrays["queues"][:, st.HEAD].tolist():
        place = 0
        while head >= 0:
            rank[head] = place
            place, head = place + 1, int(store.arrays["jobs"][head, st.NEXT])
    return rank[jobs]


def _running(store: Store, register: Register, place_of: I8) -> RunningTable:
    rows = store.arrays["jobs"]
    jobs = np.flatnonzero(rows[:, st.SERVER] >= 0)
    jobs = jobs[np.argsort(store.sequence[jobs])]
    return RunningTable(
        **_common(store, register, jobs),
        attempts=[1 + register.earlier(i) for i in jobs.tolist()],
        server=place_of[rows[jobs, st.SERVER]].tolist(),
        started=[register.started[i] for i in jobs.tolist()],
    )


def _common(store: Store, register: Register, jobs: I8) -> dict[str, Any]:
    """Return the columns that waiting and running jobs share."""
    state: Any = store.state
    types = store.arrays["jobs"][jobs, st.TYPE]
    extras = [(at, register.extras[i]) for at, i in enumerate(jobs.tolist()) if i in register.extras]
    sizes = store.sizes.demand[types]
    if state.actual:
        sizes = store.arrays["job_demand"][jobs]
    else:
        for at, extra in extras:
            if extra.demand is not None:
                sizes[at] = extra.demand
    own = len(jobs) > 0 and bool((sizes != store.sizes.demand[types]).any())
    durations: list[float | None] = [None] * len(jobs)
    if state.keeps_times:
        durations = [x if np.isfinite(x) else None for x in store.arrays["job_times"][jobs, 0].tolist()]
    for at, extra in extras:
        if extra.duration is not None:
            durations[at] = extra.duration
    return {
        "job": [register.job_of[i] for i in jobs.tolist()],
        "type": types.tolist(),
        "sequence": store.sequence[jobs].tolist(),
        "submitted": [register.submitted[i] for i in jobs.tolist()],
        "demand": sizes.tolist() if own else None,
        "duration": durations if any(d is not None for d in durations) else None,
    }


def _policy(
    store: Store, cluster: Cluster, types: Sequence[JobType], servers: ServerTable, place_of: I8
) -> PolicyState:
    policy, numbers = store.policy, servers.number
    present = np.array([status == "present" for status in servers.status], np.bool_)
    names = Names([t.name for t in types], range(len(types)), cluster.resources, servers.name, numbers)
    return PolicyState(
        name=policy.called,
        options=options_of(policy),
        random=list(chance.words(store.state)),
        mode=np.where(present, store.arrays["servers"][numbers, st.MODE], 0).tolist(),
        slots=np.where(present[:, None], store.configuration[numbers], 0).tolist(),
        filed=place_of[store.filing_order()].tolist(),
        learnt=policy.learnt(store, names),
    )


def options_of(policy: Policy) -> dict[str, Any]:
    """Return the options that were given. An option that was not given follows the defaults of the version that
    reads the situation."""
    options: dict[str, Any] = policy.options.model_dump(mode="json", exclude_unset=True)
    return options

"""A run that begins with a live situation: its servers, its running jobs with their age, its waiting jobs in order.

Time 0 of the run is the situation's `now`. The remaining time of a running job is drawn from the service law of its
type, given its age, unless the situation says how long the job is expected to run. The service time of a waiting job is
found likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core import state as st
from slotwise.core.store import Store
from slotwise.errors import InputError
from slotwise.model import JobType, Scenario
from slotwise.policies import make_policy
from slotwise.scheduling.rebuild import rebuild
from slotwise.scheduling.register import Register
from slotwise.scheduling.situation import Situation
from slotwise.simulation.measure.meter import (
    ROW_ARRIVAL,
    ROW_DURATION,
    ROW_SERVER,
    ROW_START,
    ROW_TYPE,
    MeterStore,
)
from slotwise.simulation.run import loop
from slotwise.simulation.run.agenda import (
    ARRIVAL,
    DURATION,
    NONE,
    THROWN_BACK,
    Agenda,
    AgendaStore,
    expect_end,
    stays,
)
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.serverevents import Present
from slotwise.workloads.laws import service_law

F8 = NDArray[np.float64]


def choice_of(situation: Situation) -> Choice:
    """Return the policy of the situation, with its options."""
    return Choice(situation.policy.name, situation.policy.options)


def check(scenario: Scenario, situation: Situation) -> None:
    """Refuse what cannot be run on."""
    run = scenario.run
    if run.events is None and run.jobs is None and run.until is None:
        raise InputError(
            "does not say how far to look ahead", where="run", remedy="set run.until, run.events or run.jobs"
        )
    if list(scenario.cluster.resources) != situation.resources:
        raise InputError(
            f"are {', '.join(scenario.cluster.resources)}, but those of the situation {', '.join(situation.resources)}",
            where="cluster.resources",
            remedy="use the same, in the same order",
        )


def present(scenario: Scenario, situation: Situation) -> list[Present]:
    """Return the present servers, draining ones included: number, class, whether it takes jobs."""
    names = [server.name for server in scenario.cluster.servers]
    table = situation.servers
    found: list[Present] = []
    for number, c, status in zip(table.number, table.server_class, table.status, strict=True):
        name = situation.classes[c].name
        if name not in names:
            raise InputError(
                f"no server class is called {name!r}, of which the situation has servers",
                where="cluster.servers",
                remedy=f"there are: {', '.join(names)}",
            )
        if status != "absent":
            found.append(Present(number, names.index(name), status == "present"))
    return found


def relative(situation: Situation) -> Situation:
    """Return the situation with all times counted from its `now`."""
    now, waiting, running, policy = situation.now, situation.waiting, situation.running, situation.policy
    made = make_policy(policy.name, **policy.options)
    return replace(
        situation,
        now=0.0,
        used_until=None if situation.used_until is None else situation.used_until - now,
        waiting=replace(waiting, submitted=[time - now for time in waiting.submitted]),
        running=replace(
            running,
            submitted=[time - now for time in running.submitted],
            started=[time - now for time in running.started],
        ),
        policy=replace(policy, learnt=made.shifted(policy.learnt, -now)),
    )


def take_up(
    scenario: Scenario,
    types: Sequence[JobType],
    store: Store,
    agenda: AgendaStore,
    meters: MeterStore,
    situation: Situation,
    rng: Generator,
    durations: F8 | None = None,
) -> None:
    """Fill the store, the agenda and the meters, which are new, with what is there. The situation's times are relative.

    `durations` says how long each job takes, waiting jobs first; the situation's own are then only what the policy is told."""
    before = situation.policy
    policy = store.policy
    continues = policy.label == before.name and policy.options == type(policy)(**before.options).options
    register = Register()
    register.make_room(store.state.max_jobs)
    rebuild(store, register, situation, types, scenario.cluster.servers, continues=continues)
    state: Any = store.state
    agenda.grow(state.max_jobs)
    meters.grow(state.max_jobs)
    a, m = agenda.record, meters.record
    waiting, running = situation.waiting, situation.running
    W, arrivals = len(waiting.job), np.array([*waiting.submitted, *running.submitted])
    if durations is None:
        durations = _durations(scenario, types, situation, rng)
    own = stays(a)
    own[: len(arrivals), ARRIVAL] = arrivals
    own[: len(arrivals), DURATION] = durations
    own[: len(arrivals), THROWN_BACK] = -np.inf
    _expect_ends(a, W, np.maximum(0.0, np.array(running.started) + durations[W:]))
    if m.recording:
        _record(store, meters, arrivals, durations, W, running.started)
    m.jobs_wait, m.stalled = state.n_waiting > 0, state.n_stalled
    numbers = np.flatnonzero(
        (store.arrays["servers"][:, st.STATUS] == st.DRAINING) & (store.arrays["servers"][:, st.COUNT] == 0)
    )
    for number in numbers.tolist():
        loop.take_away(state, a, m, number)
    if not continues:
        loop.close_event(state, a, m, 0.0, NONE, False)


@kernel
def _expect_ends(a: Agenda, first: int, ends: F8) -> None:
    """Expect the ends of the jobs from number `first` on."""
    for n in range(len(ends)):
        expect_end(a, first + n, ends[n], NONE)


def _record(store: Store, meters: MeterStore, arrivals: F8, durations: F8, W: int, started: list[float]) -> None:
    """Write a row for each present job, in the order of arrival."""
    m, n = meters.record, len(arrivals)
    while m.max_rows < n:
        meters.more_rows()
    order = np.argsort(arrivals, kind="stable")
    meters.arrays["row_of"][order] = np.arange(n)
    rows, jobs = meters.arrays["rows"], store.arrays["jobs"]
    rows[:n, ROW_ARRIVAL], rows[:n, ROW_DURATION] = arrivals[order], durations[order]
    rows[:n, ROW_TYPE] = jobs[order, st.TYPE]
    running = meters.arrays["row_of"][W:n]
    rows[running, ROW_START], rows[running, ROW_SERVER] = started, jobs[W:n, st.SERVER]
    m.n_rows = n


def _durations(scenario: Scenario, types: Sequence[JobType], situation: Situation, rng: Generator) -> F8:
    """Return the whole duration of each job: as the situation says, or drawn from the law of its type, given its
    age."""
    from slotwise.workloads.residuals import residuals  # with scipy.special, slow to import

    names = [job_type.name for job_type in types]
    found: list[F8] = []
    for table in (situation.waiting, situation.running):
        ages = -np.array(getattr(table, "started", [0.0] * len(table.job)))
        known = np.array(
            [np.nan if d is None else d for d in table.duration or [None] * len(table.job)], np.float64
        )
        durations = np.where(np.isnan(known), 0.0, np.maximum(known, ages))
        for place, old in enumerate(situation.types):
            mine = np.isnan(known) & (np.array(table.type, np.int64) == place)
            if mine.any():
                if scenario.workload.trace is not None:
                    raise InputError(
                        f"jobs of type {old.name!r} have no duration",
                        where="situation",
                        remedy="with a trace every job of the situation needs one; or give rates and laws",
                    )
                j = names.index(old.name)
                left = residuals(service_law(scenario, j), types[j].mean_service, ages[mine], rng)
                durations[mine] = ages[mine] + left
        found.append(durations)
    return np.concatenate(found)

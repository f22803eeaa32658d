"""One replication: a store, a source of jobs, the loop, and what was measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from slotwise.core import chance, server_steps
from slotwise.core.contract.hooks import Hooks
from slotwise.core.contract.policy import Policy
from slotwise.core.store import Store
from slotwise.core.tenants import Sharing
from slotwise.errors import InputError
from slotwise.model import Scenario
from slotwise.packing import spaces_of
from slotwise.scheduling.faults import fault_of
from slotwise.scheduling.situation import Situation
from slotwise.simulation.judge.statistics import mser5
from slotwise.simulation.measure import measuring
from slotwise.simulation.measure.measurements import Measurements, read
from slotwise.simulation.measure.meter import MeterStore
from slotwise.simulation.measure.periods import ODD, whole_periods
from slotwise.simulation.run import ahead, churn, loop, takeup
from slotwise.simulation.run.agenda import AgendaStore
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.serverevents import ServerEvents
from slotwise.workloads.jobs import Jobs
from slotwise.workloads.laws import child, generator
from slotwise.workloads.source import Chunk, JobSource

CHUNK = 16_384  # jobs drawn at once: NumPy's overhead is spread thin, the cache holds them
FIRST_CHUNK = 1_024  # jobs drawn at first, so that short runs draw little
SERVER_EVENTS = 256  # as many are drawn ahead
DEFAULT_EVENTS = 200_000
# for jobs, to begin with, at least and at most; there will be more where it is needed, but making it takes as
# long as hundreds of events
FIRST_ROOM, MOST_ROOM = 1_024, 4_000_000
# which child of a replication's seed is for what; 1 and 3 are the policy's and its clock's (`chance`)
WORKLOAD, SERVERS, RESIDUALS = 0, 2, 4

HOOKS_OF_JOBS = ("join", "arrive", "complete", "tick")
HOOKS = (*HOOKS_OF_JOBS, "leave")  # those that the loop calls, without and with servers that come and go

Progress = Callable[[float], None]


class StoppedError(Exception):
    """The run was told to stop."""


@dataclass(frozen=True)
class Task:
    """One replication of one policy on one scenario."""

    scenario: Scenario
    jobs: Jobs
    choice: Choice
    replication: int = 0
    warmup: float | None = None
    """found by an earlier pass, where the scenario says "auto" """
    record_jobs: bool = False
    start: Situation | None = None
    """what is there at time 0; its times are relative to that"""
    durations: NDArray[np.float64] | None = None
    """of the jobs that are there at time 0, waiting jobs first; None: as the situation says, or drawn"""
    events: int | None = None
    """how long it is, where the scenario leaves that open"""

    @property
    def work(self) -> float:
        """About how many events it has."""
        run = self.scenario.run
        if run.until is not None:
            return 2 * self.jobs.rate * run.until
        return float(run.events or self.events or 2 * (run.jobs or self.jobs.count or DEFAULT_EVENTS / 2))

    @property
    def repeats(self) -> bool:
        """Whether the jobs are the same in every replication, and the servers are."""
        failing = any(server.failures is not None for server in self.scenario.cluster.servers)
        return self.scenario.workload.trace is not None and not failing and not self.jobs.running

    def make_policy(self) -> Policy:
        """Return a new instance of its policy. Jobs of a live situation may have no known duration. Then the policy
        is told no duration."""
        return self.choice.make_for(self.jobs) if self.start is None else self.choice.make()

    def same_again(self, first: Measurements) -> bool:
        """Return whether every other replication would be like the first, because nothing is random. (A user's own
        policy may draw unseen.)"""
        return self.repeats and not first.drew and self.choice.shipped


def replicate(
    task: Task, progress: Progress | None = None, stopped: Callable[[], bool] | None = None
) -> Measurements:
    """Run it. With warm-up "auto" it is run twice: once to find where MSER-5 cuts, then with that cut."""
    if task.scenario.run.warmup == "auto" and task.warmup is None:
        pilot = _run(replace(task, warmup=0.0), None, stopped)
        series = pilot.queue_series
        task = replace(task, warmup=mser5(series) / max(1, len(series)))
    return _run(task, progress, stopped)


class Prepared(NamedTuple):
    """Everything is there, and nothing has happened yet."""

    store: Store
    agenda: AgendaStore
    meters: MeterStore
    hooks: Hooks
    source: JobSource
    timeline: ServerEvents
    limits: _Limits
    undrawn: Any
    """where the random numbers of the policy and of its clock stood when none were drawn"""


def make_store(task: Task, max_servers: int, *, servers_change: bool = False) -> Store:
    """Return the state before any server has joined."""
    scenario, jobs, policy = task.scenario, task.jobs, task.make_policy()
    _check_estimates(policy, jobs)
    return Store(
        jobs.sizes,
        policy,
        max_servers=max(1, max_servers),
        spaces=spaces_of(scenario.cluster.servers, jobs.sizes),
        random=chance.words_of(scenario.run.seed, task.replication),
        mean_service=jobs.mean_service,
        rates=jobs.rates,
        counts=[server.count for server in scenario.cluster.servers],
        max_jobs=int(max(FIRST_ROOM, min(1.2 * jobs.mean_in_service, MOST_ROOM)))
        + (task.start.n_jobs if task.start is not None else 0),
        alike=jobs.alike and task.start is None,
        servers_change=servers_change,
        sharing=Sharing.of(scenario.shares, jobs.types),
    )


def _seed(task: Task) -> SeedSequence:
    return child(SeedSequence(task.scenario.run.seed), task.replication)


def prepare(task: Task) -> Prepared:
    """Make what a run needs."""
    scenario, jobs, seed = task.scenario, task.jobs, _seed(task)
    start = task.start
    there = takeup.present(scenario, start) if start is not None else None
    timeline = ServerEvents(scenario.cluster, child(seed, SERVERS), there, start.places if start is not None else 0)
    store = make_store(task, timeline.max_servers, servers_change=timeline.any)
    state: Any = store.state
    agenda = AgendaStore(state.max_jobs, chance.words_of(scenario.run.seed, task.replication, chance.CLOCK))
    meters = MeterStore(state.n_types, state.n_resources, state.max_jobs, record_jobs=task.record_jobs)
    undrawn = _drawn(store, agenda)
    hooks = store.policy.hooks(HOOKS if timeline.any else HOOKS_OF_JOBS)
    limits = _Limits.of(task)
    limits.write(agenda.record, meters.record, jobs)
    if start is None:
        server_steps.join_all(state, timeline.numbers, timeline.classes, hooks.join)
    of_class = np.bincount(timeline.classes, minlength=len(jobs.sizes.capacity))
    meters.arrays["capacity_now"] += of_class @ jobs.sizes.capacity.astype(np.float64)
    meters.record.servers_now += len(timeline.numbers)
    if start is not None:
        takeup.take_up(
            scenario, jobs.types, store, agenda, meters, start, generator(seed, RESIDUALS), task.durations
        )
    if state.tick_rate > 0:
        agenda.record.next_tick = 0.0  # redrawn after the first event
    return Prepared(store, agenda, meters, hooks, jobs.open(child(seed, WORKLOAD)), timeline, limits, undrawn)


def _drawn(store: Store, agenda: AgendaStore) -> Any:
    """Return where in the stream the random numbers are."""
    state: Any = store.state
    return chance.words(state), chance.words(agenda.record)


def pieces_of(task: Task) -> list[str]:
    """Return the pieces that are to be compiled for the task."""
    cluster = task.scenario.cluster
    changes = cluster.events or any(server.failures is not None for server in cluster.servers)
    drivers = [ahead.LOOP, *([ahead.CHURN] if changes else [])]
    return ahead.pieces_of(task.make_policy(), HOOKS if changes else HOOKS_OF_JOBS, drivers)


def _run(task: Task, progress: Progress | None, stopped: Callable[[], bool] | None) -> Measurements:
    ahead.compile_pieces(pieces_of(task))
    before = time.thread_time()
    ready = prepare(task)
    setup = time.thread_time() - before
    state: Any = ready.store.state
    begun = time.perf_counter()
    demands = drive_on(ready, progress, stopped)
    measuring.finish(state, ready.agenda.record, ready.meters.record)
    seconds = time.perf_counter() - begun
    drew = _drawn(ready.store, ready.agenda) != ready.undrawn
    return read(
        ready.store, ready.agenda, ready.meters, task.choice.name, task.replication, (seconds, setup), drew, demands
    )


def drive_on(
    ready: Prepared, progress: Progress | None, stopped: Callable[[], bool] | None
) -> list[NDArray[np.int64]]:
    """Go on until the run is over; StoppedError where `stopped` says so. Returns what the jobs of a trace really asked for, chunk by chunk, where jobs are recorded."""
    store, agenda, meters, hooks, source, timeline, limits, _ = ready
    state: Any = store.state
    a, m = agenda.record, meters.record
    chunk, demands = _Empty, _demands(_Empty, store)
    kept: list[NDArray[np.int64]] = []
    changes, events = timeline.any, (np.zeros(0), np.zeros((0, 3), np.int64))
    while True:
        when, kinds, service, expected = chunk.time, chunk.job_type, chunk.duration, _expected(chunk, store)
        arrive, complete, tick, join, leave = hooks.arrive, hooks.complete, hooks.tick, hooks.join, hooks.leave
        if changes:
            columns = when, kinds, service, demands, expected, events[0], events[1]
            what = churn.run(state, a, m, arrive, complete, tick, join, leave, *columns)
        else:
            what = loop.run_jobs(
                state, a, m, arrive, complete, tick, when, kinds, service, demands, expected, np.inf
            )
        if what == loop.DONE:
            return kept
        if fault := fault_of(store.policy, hooks, state.failed):
            raise fault
        if what == loop.MORE_SERVER_EVENTS:
            events = timeline.next(SERVER_EVENTS)
            a.at_server_event, a.n_server_events = 0, len(events[0])
        elif what == loop.MORE_ROOM:
            if state.n_free_jobs == 0:
                store.grow_jobs(2 * state.max_jobs)
                agenda.grow(state.max_jobs)
                meters.grow(state.max_jobs)
            else:
                meters.more_rows()
        else:
            if stopped is not None and stopped():
                raise StoppedError
            to_come = limits.to_come(a)
            most = FIRST_CHUNK if chunk is _Empty else max(FIRST_CHUNK, min(CHUNK, to_come))
            chunk = source.next(most, to_come)
            if len(chunk) == 0:
                if limits.until is None or a.at_job == 0:
                    return kept
                chunk = _Never  # nothing comes any more, but the run goes on until its time
            demands = _demands(chunk, store)
            if m.recording and chunk.demand is not None:
                kept.append(chunk.demand)
            a.at_job, a.n_jobs = 0, len(chunk)
            if progress is not None:
                progress(limits.done(a, float(chunk.time[0])))


_Empty = Chunk(np.zeros(0), np.zeros(0, np.int64), np.zeros(0), None)
_Never = Chunk(np.full(1, np.inf), np.zeros(1, np.int64), np.zeros(1), None)


def _demands(chunk: Chunk, store: Store) -> NDArray[np.int64]:
    """Return the demand of each job: its own, or its type's."""
    if not store.state.actual:
        return np.zeros((1, store.state.n_resources), np.int64)
    if chunk.demand is not None:
        return chunk.demand
    return store.sizes.demand[chunk.job_type]


def _expected(chunk: Chunk, store: Store) -> NDArray[np.float64]:
    """Return how long each job is expected to run: the truth, or its user's estimate."""
    return chunk.estimate if store.policy.uses_estimates and chunk.estimate is not None else chunk.duration


def _check_estimates(policy: Policy, jobs: Jobs) -> None:
    if policy.uses_estimates and not jobs.has_estimates:
        raise InputError(
            "the workload does not say how long users expect their jobs to run",
            where=f"policy {policy.label}.durations",
            remedy="use a trace with a column estimate, or durations = exact",
        )


@dataclass(frozen=True)
class _Limits:
    """How long the run is, in one of three measures, and how much of it is warm-up."""

    events: int | None
    jobs: int | None
    until: float | None
    warmup: float
    rate: float
    """arrivals per unit time"""

    @classmethod
    def of(cls, task: Task) -> _Limits:
        run, jobs, warmup = task.scenario.run, task.jobs, task.warmup
        share = warmup if warmup is not None else float(run.warmup) if run.warmup != "auto" else 0.0
        events, n_jobs = run.events, run.jobs
        if events is None and n_jobs is None and run.until is None:
            if jobs.count is None:
                events = task.events or DEFAULT_EVENTS
                if jobs.period is not None:
                    until, warm = whole_periods(jobs.period, jobs.rate, events, share)
                    return cls(None, None, until, warm / until, jobs.rate)
            else:
                n_jobs = jobs.count
        elif n_jobs is not None:
            n_jobs += jobs.running
        return cls(events, n_jobs, run.until, share, jobs.rate)

    def write(self, agenda: Any, meter: Any, jobs: Jobs) -> None:
        if self.events is not None:
            agenda.limit_events, agenda.warm_events = self.events, int(self.warmup * self.events)
        elif self.jobs is not None:
            agenda.limit_jobs = self.jobs  # those that run at the start are warm-up
            agenda.warm_jobs = jobs.running + int(self.warmup * (self.jobs - jobs.running))
        elif self.until is not None:
            agenda.limit_time, agenda.warm_time = self.until, self.warmup * self.until
        meter.sample_every = (1.0 if jobs.period is None else ODD) / max(jobs.rate, 1e-300)
        meter.slowdown_floor = 0.01 * jobs.typical_service

    def to_come(self, agenda: Any) -> int:
        """Return about how many jobs will still come, at least 1. Of events every second is an arrival, unless
        queues grow."""
        if self.events is not None:
            left = (self.events - agenda.events) / 2
        elif self.jobs is not None:
            left = self.jobs - agenda.arrivals
        else:
            left = self.rate * (self.until - agenda.now) if self.until is not None else 0
        return max(1, math.ceil(min(left, 2.0**62)))

    def done(self, agenda: Any, now: float) -> float:
        """Return the share of the run that is done."""
        if self.events is not None:
            return float(agenda.events / self.events)
        if self.jobs is not None:
            return float(agenda.arrivals / self.jobs)
        return min(1.0, now / self.until) if self.until else 0.0

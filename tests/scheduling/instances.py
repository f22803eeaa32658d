"""Small random clusters and job types, and random events upon them: what the property tests run on.

An instance is drawn from a seeded `random.Random`; the same seed gives the same instance and the same events.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling import (
    Cancel,
    Event,
    Join,
    Placement,
    Remove,
    Resume,
    Scheduler,
    Submit,
    Tick,
)
from slotwise.scheduling.events import KINDS

RESOURCES = ("memory", "cpu", "disk")

# What may happen, with how often it does.
ALL_EVENTS = {
    "submit": 50,
    "complete": 34,
    "stop": 2,
    "requeue": 2,
    "cancel": 4,
    "join": 3,
    "drain": 3,
    "resume": 2,
    "remove": 1,
    "fail": 2,
    "tick": 0,
}


@dataclass
class Instance:
    """A cluster and types to play on."""

    cluster: Cluster
    types: list[JobType]


def random_instance(rng: random.Random, *, n_resources: int | None = None, alike: bool = False) -> Instance:
    """One to three resources, one to three unlike classes (some of them with no servers yet), one to four types."""
    R = n_resources or rng.randint(1, 3)
    C = 1 if alike else rng.randint(1, 3)
    J = rng.randint(1, 4)
    units = [rng.choice([Decimal(1), Decimal("0.1"), Decimal("2.5")]) for _ in range(R)]
    classes = [
        ServerClass(
            name=f"class{c}",
            count=rng.randint(0 if c else 1, 3),
            capacity=tuple(rng.randint(4, 12) * units[r] for r in range(R)),
        )
        for c in range(C)
    ]
    types: list[JobType] = []
    while len(types) < J:
        room = rng.choice(classes).capacity
        steps = [rng.randint(0, int(room[r] / units[r])) for r in range(R)]
        if any(steps):
            demand = tuple(n * units[r] for r, n in enumerate(steps))
            if types and rng.random() < 0.25:
                demand = types[-1].demand  # twins make ties
            mean = rng.choice([0.5, 1.0, 2.0])
            types.append(JobType(name=f"type{len(types)}", demand=demand, mean_service=mean))
    return Instance(Cluster(resources=RESOURCES[:R], servers=tuple(classes)), types)


@dataclass
class Events:
    """Draws the next event from what a scheduler shows: names of jobs and servers, nothing inside."""

    rng: random.Random
    instance: Instance
    actual: float = 0.5
    """how many jobs ask for less than their type"""
    weights: dict[str, int] = field(default_factory=lambda: dict(ALL_EVENTS))
    durations: bool = False
    seldom: float = 1.0
    """how often the last type comes, beside each other type"""
    n_jobs: int = 0
    n_servers: int = 0
    now: float = 0.0

    def next(self, scheduler: Scheduler, waiting: list[str]) -> Event:
        """An event that makes sense now; a submission where nothing else does."""
        rng = self.rng
        self.now += rng.random()
        kind = rng.choices(list(self.weights), list(self.weights.values()))[0]
        running, servers = scheduler.running, scheduler.servers
        if kind in ("complete", "stop", "requeue") and running:
            job = rng.choice(list(running))
            return KINDS[kind](job, self.now, scheduler.attempt(job))
        if kind == "cancel" and waiting:
            return Cancel(rng.choice(waiting), self.now)
        if kind == "tick":
            return Tick(self.now)
        if kind == "join":
            return self.joining(scheduler)
        if kind in ("drain", "fail") and servers:
            return KINDS[kind](rng.choice(servers), self.now)
        busy = set(running.values())
        if kind == "resume":
            draining = [name for name in servers if is_draining(scheduler, name)]
            if draining:
                return Resume(rng.choice(draining), self.now)
        if kind == "remove":
            idle = [name for name in scheduler._servers if name not in busy]
            if idle:
                return Remove(rng.choice(idle), self.now)
        return self.submission()

    def joining(self, scheduler: Scheduler) -> Join:
        """A new server, or one that failed, or was drained and is empty."""
        rng, busy = self.rng, set(scheduler.running.values())
        back = [name for name in scheduler._servers if name not in busy and is_draining(scheduler, name)]
        server_class = rng.choice(self.instance.cluster.servers).name
        if back and rng.random() < 0.5:
            return Join(rng.choice(back), server_class, self.now)
        self.n_servers += 1
        return Join(f"late{self.n_servers}", server_class, self.now)

    def submission(self) -> Submit:
        """A new job of a random type, perhaps smaller than its type."""
        rng = self.rng
        self.n_jobs += 1
        types = self.instance.types
        job_type = types[-1] if rng.random() < self.seldom / len(types) else rng.choice(types[:-1] or types)
        demand = None
        if rng.random() < self.actual:
            names = self.instance.cluster.resources
            # tenths of the type's demand: finer than the types' own digits, so rounding up is met too
            demand = {n: size * rng.randint(0, 10) / 10 for n, size in zip(names, job_type.demand, strict=True)}
        duration = rng.choice([0.5, 1.0, 3.0]) if self.durations else None
        return Submit(f"job{self.n_jobs}", job_type.name, self.now, demand, duration)


def is_draining(scheduler: Scheduler, server: Any) -> bool:
    """Whether it takes no jobs, by what the scheduler says about it."""
    return scheduler.explain_server(server).reasons[0].name in ("DRAINING", "DRAINED", "GONE")


def perform(scheduler: Scheduler, event: Event) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Which jobs the event starts, and where, and the jobs that it put back into their queues."""
    outcome = scheduler.apply(event)
    assert outcome.fault is None, outcome.fault
    return pairs(outcome.placements), list(outcome.requeued)


def pairs(placements: Iterable[Placement]) -> list[tuple[Any, Any]]:
    """Who starts where."""
    return [(placement.job, placement.server) for placement in placements]


def still_waiting(
    waiting: list[Any], event: Event, placements: list[tuple[Any, Any]], requeued: list[Any]
) -> list[Any]:
    """Return the jobs that wait after the event, for tests that keep no ledger."""
    gone = {job for job, _ in placements} | ({event.job} if isinstance(event, Cancel) else set())
    come = [event.job] if isinstance(event, Submit) else []
    return [job for job in [*waiting, *requeued, *come] if job not in gone]


def put_back(line: list[Any], job: Any, age: Mapping[Any, int]) -> None:
    """Into the line again, before all who came after it."""
    line.insert(next((n for n, other in enumerate(line) if age[other] > age[job]), len(line)), job)

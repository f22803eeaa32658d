"""Small random clusters and job types, and random events upon them: what the property tests run on.

An instance is drawn from a seeded `random.Random`; the same seed gives the same instance and the same events. Events are
plain tuples, so that a run can be repeated after a restore, or fed to a second implementation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling.scheduler import Event, Placement, Scheduler

RESOURCES = ("memory", "cpu", "disk")

# What may happen, with how often it does.
ALL_EVENTS = {"submit": 50, "complete": 38, "cancel": 4, "add": 3, "drain": 2, "remove": 1, "fail": 2, "tick": 0}


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
    n_jobs: int = 0
    n_servers: int = 0
    now: float = 0.0

    def next(self, scheduler: Scheduler, waiting: list[str]) -> tuple[Any, ...]:
        """An event that makes sense now; a submission where nothing else does."""
        rng = self.rng
        self.now += rng.random()
        kind = rng.choices(list(self.weights), list(self.weights.values()))[0]
        running = scheduler.running
        if kind == "complete" and running:
            return ("complete", rng.choice(list(running)), self.now)
        if kind == "cancel" and waiting:
            return ("cancel", rng.choice(waiting), self.now)
        if kind == "tick":
            return ("tick", self.now)
        if kind == "add":
            gone = [name for name in scheduler.servers if name not in set(running.values())]
            back = [name for name in gone if is_draining(scheduler, name)]
            if back and rng.random() < 0.5:
                return ("add", rng.choice(back), rng.choice(self.instance.cluster.servers).name)
            self.n_servers += 1
            return ("add", f"late{self.n_servers}", rng.choice(self.instance.cluster.servers).name)
        servers = scheduler.servers
        if kind in ("drain", "fail") and servers:
            return (kind, rng.choice(servers))
        if kind == "remove":
            idle = [name for name in servers if name not in set(running.values())]
            if idle:
                return ("remove", rng.choice(idle))
        return self.submission()

    def submission(self) -> tuple[Any, ...]:
        """A new job of a random type, perhaps smaller than its type."""
        rng = self.rng
        self.n_jobs += 1
        job_type = rng.choice(self.instance.types)
        demand = None
        if rng.random() < self.actual:
            names = self.instance.cluster.resources
            # tenths of the type's demand: finer than the types' own digits, so rounding up is met too
            demand = {n: size * rng.randint(0, 10) / 10 for n, size in zip(names, job_type.demand, strict=True)}
        duration = rng.choice([0.5, 1.0, 3.0]) if self.durations else None
        return ("submit", f"job{self.n_jobs}", job_type.name, demand, duration, self.now)


def is_draining(scheduler: Scheduler, server: Any) -> bool:
    """By what the scheduler says about it."""
    return scheduler.explain_server(server).reasons[0].name in ("DRAINING", "DRAINED")


def perform(scheduler: Scheduler, event: tuple[Any, ...]) -> tuple[list[Placement], list[Any]]:
    """The placements that the event causes, and the jobs that it put back into their queues."""
    kind, *rest = event
    if kind == "submit":
        job, job_type, demand, duration, now = rest
        return scheduler.submit(job, job_type, demand=demand, duration=duration, now=now), []
    if kind == "complete":
        return scheduler.complete(rest[0], now=rest[1]), []
    if kind == "cancel":
        return scheduler.cancel(rest[0], now=rest[1]), []
    if kind == "tick":
        return scheduler.tick(now=rest[0]), []
    if kind == "add":
        return scheduler.add_server(*rest), []
    if kind == "drain":
        return scheduler.drain_server(*rest), []
    if kind == "remove":
        return scheduler.remove_server(*rest), []
    outcome: Event = scheduler.fail_server(*rest)
    return outcome.placements, outcome.requeued

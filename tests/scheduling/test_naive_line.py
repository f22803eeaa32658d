"""The core starts each job when and where a tiny scheduler without types does: fit policies, EASY, Adaptive Quickswap."""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest
from naive_line import Job, NaiveLine, Size

from slotwise.compiler.kernel import JIT
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling import Scheduler, make_policy

pytestmark = pytest.mark.core

RUNS, JOBS = (12, 250) if JIT else (4, 90)
RESOURCES = ("cpu", "memory", "gpu")
LABELS = ("a", "b")
NAMES = [
    "first-fit",
    "best-fit",
    "worst-fit",
    "tetris",
    "kubernetes-least-allocated",
    "kubernetes-most-allocated",
    "easy-backfill",
    "quickswap",
    "quickswap threshold",
]


class Workload:
    """Classes of servers, some jobs that arrive in bursts, and types that cover them."""

    def __init__(self, rng: random.Random, *, unlike: bool) -> None:
        R = rng.randint(1, 3)
        self.capacities: list[Size] = [
            tuple(rng.randint(8, 30) for _ in range(R)) for _ in range(rng.randint(1, 3))
        ]
        self.counts = [rng.randint(1, 3) for _ in self.capacities]
        largest = [max(c[r] for c in self.capacities) for r in range(R)]
        self.labels = [rng.choice(LABELS) for _ in self.capacities]
        self.types: list[tuple[Size, str]] = []
        J = rng.choice([1, 3, 6, 14])
        while len(self.types) < J:
            size = tuple(rng.randint(1, max(1, rng.choice([c // 3, c]))) for c in largest)
            label = rng.choice([*self.labels, "", ""])
            if any(self.may_run(size, label, c) for c in range(len(self.capacities))):
                self.types.append((size, label))
        self.jobs: list[Job] = []
        now = 0.0
        for n in range(JOBS):
            kind = rng.randrange(J)
            size, label = self.types[kind]
            if unlike:
                size = tuple(rng.randint(max(1, w // 3), w) for w in size)
            classes = frozenset(c for c in range(len(self.labels)) if not label or self.labels[c] == label)
            duration = float(rng.choice([1, 2, 3, 5, 20])) * (1 + rng.random() / 1000)
            expected = duration * rng.choice([1, 1, 0.3, 4])
            self.jobs.append(Job(n, now, duration, size, classes, expected, kind))
            if rng.random() < 0.4:
                now += rng.expovariate(1.0) * rng.choice([0.1, 1, 6])

    def may_run(self, size: Size, label: str, c: int) -> bool:
        room = self.capacities[c]
        return (not label or self.labels[c] == label) and all(a <= b for a, b in zip(size, room, strict=True))

    def scheduler(self, policy: Any, seed: int) -> Scheduler:
        resources = RESOURCES[: len(self.capacities[0])]
        servers = tuple(
            ServerClass(name=f"c{c}", count=n, capacity=room, labels={"zone": self.labels[c]})
            for c, (n, room) in enumerate(zip(self.counts, self.capacities, strict=True))
        )
        types = [
            JobType(name=f"t{j}", demand=size, requires={"zone": [label]} if label else {})
            for j, (size, label) in enumerate(self.types)
        ]
        return Scheduler(Cluster(resources=resources, servers=servers), types, policy, seed=seed)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "estimates"])
@pytest.mark.parametrize("unlike", [True, False], ids=["actual", "alike"])
@pytest.mark.parametrize("name", NAMES)
def test_every_job_starts_when_and_where_it_does_without_types(name: str, unlike: bool, exact: bool) -> None:
    if not exact and name != "easy-backfill":
        pytest.skip("does not look at durations")
    overtook = sum(same(name, unlike, exact, seed) for seed in range(RUNS))
    assert overtook > 0 or not unlike, "no job overtook an older one of its type: the runs prove nothing"


def same(name: str, unlike: bool, exact: bool, seed: int) -> int:
    """Returns how often a job overtook an older one of its own type."""
    rng = random.Random(f"{name} {unlike} {seed}")
    load = Workload(rng, unlike=unlike)
    name, _, limited = name.partition(" ")
    options = {limited: rng.randint(0, 4)} if limited else {}
    policy = make_policy(name, pack_by="actual" if unlike else rng.choice(["actual", "type"]), **options)
    scheduler = load.scheduler(policy, seed)
    numbers = [c for c, n in enumerate(load.counts) for _ in range(n)]
    naive = NaiveLine(name, load.capacities, numbers, [size for size, _ in load.types], **options)
    jobs = {job.name: job for job in load.jobs}
    ends: list[tuple[float, int]] = []
    coming, overtook = list(reversed(load.jobs)), 0
    while coming or ends:
        if ends and (not coming or ends[0][0] <= coming[-1].arrival):
            now, done = heapq.heappop(ends)
            found = scheduler.complete(done, now=now)
            right = naive.complete(done, now)
        else:
            job = coming.pop()
            now, expected = job.arrival, job.duration if exact else job.expected
            job.expected = expected
            demand = dict(zip(scheduler.cluster.resources, job.size, strict=True))
            extra: dict[str, Any] = {"duration": expected} if policy.needs_durations else {}
            found = scheduler.submit(job.name, f"t{job.kind}", now=now, demand=demand, **extra)
            right = naive.arrive(job, now)
        placed = [(p.job, scheduler._servers[p.server]) for p in found]
        assert placed == right, f"seed {seed}, at {now}"
        for who, _ in placed:
            heapq.heappush(ends, (now + jobs[who].duration, who))
            overtook += any(job.kind == jobs[who].kind and job.name < who for job in naive.waiting)
    assert not naive.waiting
    return overtook

"""A second simulator, slow and plain: heapq, dictionaries and lists, one event after the other.

It takes the jobs from the same source as the real one and must find the same figures. What to start where it asks a
decider: naive first come first served, naive best-fit, or the real scheduler through its Python interface.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.random import SeedSequence

from slotwise import Scheduler
from slotwise.model import Scenario
from slotwise.policies import make_policy
from slotwise.simulation.run.replication import SERVERS, WORKLOAD
from slotwise.simulation.run.serverevents import DRAIN, FAIL, JOIN, ServerEvents
from slotwise.workloads.jobs import Jobs
from slotwise.workloads.laws import child


class Decider(Protocol):
    """What starts where; every call returns the jobs that start now."""

    def submit(self, i: int, j: int, size: tuple[int, ...]) -> list[int]: ...
    def complete(self, i: int) -> list[int]: ...


class Servers:
    """Free room by server number, and what runs where."""

    def __init__(self, jobs: Jobs, scenario: Scenario) -> None:
        self.capacity = jobs.sizes.capacity.tolist()
        self.free: dict[int, list[int]] = {}
        self.class_of: dict[int, int] = {}
        self.draining: set[int] = set()
        self.on: dict[int, int] = {}
        self.size: dict[int, tuple[int, ...]] = {}
        self.type: dict[int, int] = {}
        number = 0
        for c, server in enumerate(scenario.cluster.servers):
            for _ in range(server.count):
                self.add(number, c)
                number += 1

    def add(self, number: int, c: int) -> None:
        self.free[number], self.class_of[number] = list(self.capacity[c]), c

    def there(self) -> list[int]:
        return sorted(set(self.free) - self.draining)

    def fits(self, number: int, i: int) -> bool:
        return all(need <= room for need, room in zip(self.size[i], self.free[number], strict=True))

    def put(self, i: int, number: int) -> None:
        assert self.fits(number, i)
        self.on[i] = number
        self.free[number] = [room - need for room, need in zip(self.free[number], self.size[i], strict=True)]

    def take(self, i: int) -> int:
        number = self.on.pop(i)
        self.free[number] = [room + need for room, need in zip(self.free[number], self.size[i], strict=True)]
        if number in self.draining and number not in self.on.values():
            self.remove(number)
        return number

    def remove(self, number: int) -> None:
        self.draining.discard(number)
        del self.free[number]


class Fifo(Servers):
    """Strictly in order of arrival, on the lowest-numbered server that fits; also knows joins, drains and failures."""

    def __init__(self, jobs: Jobs, scenario: Scenario) -> None:
        super().__init__(jobs, scenario)
        self.line: list[int] = []  # by number, which is the order of arrival

    def submit(self, i: int, j: int, size: tuple[int, ...]) -> list[int]:
        self.size[i], self.type[i] = size, j
        self.line.append(i)
        return self.serve()

    def complete(self, i: int) -> list[int]:
        number = self.take(i)
        return self.serve() if number in self.there() else []

    def serve(self) -> list[int]:
        started = []
        while self.line:
            number = next((n for n in self.there() if self.fits(n, self.line[0])), None)
            if number is None:
                break
            self.put(self.line[0], number)
            started.append(self.line.pop(0))
        return started

    def join(self, number: int, c: int) -> list[int]:
        self.add(number, c)
        return self.serve()

    def drain(self, number: int) -> None:
        self.draining.add(number)
        if number not in self.on.values():
            self.remove(number)

    def fail(self, number: int) -> tuple[list[int], list[int]]:
        lost = sorted(i for i, on in self.on.items() if on == number)
        for i in lost:
            del self.on[i]
        self.remove(number)
        self.line = sorted(self.line + lost)
        return lost, self.serve()


class BestFit(Servers):
    """The server with the least free shares in sum; a server takes the largest waiting job that fits, of equal ones the older."""

    def __init__(self, jobs: Jobs, scenario: Scenario) -> None:
        super().__init__(jobs, scenario)
        self.largest = [max(1, *(row[r] for row in self.capacity)) for r in range(len(self.capacity[0]))]
        self.weight = [1.0 / whole for whole in self.largest]
        self.waiting: list[int] = []

    def submit(self, i: int, j: int, size: tuple[int, ...]) -> list[int]:
        self.size[i], self.type[i] = size, j
        if fitting := [n for n in self.there() if self.fits(n, i)]:
            self.put(i, min(fitting, key=self.score))
            return [i]
        self.waiting.append(i)
        return []

    def complete(self, i: int) -> list[int]:
        number = self.take(i)
        started = []
        while fitting := [other for other in self.waiting if self.fits(number, other)]:
            started.append(max(fitting, key=self.rank))
            self.waiting.remove(started[-1])
            self.put(started[-1], number)
        return started

    def rank(self, i: int) -> tuple[float, float, int]:
        shares = [need / whole for need, whole in zip(self.size[i], self.largest, strict=True)]
        return max(shares), sum(shares), -i

    def score(self, number: int) -> float:
        total = 0.0
        for weight, room in zip(self.weight, self.free[number], strict=True):
            total += weight * room
        return total


class Real:
    """The scheduler of the package, through its Python interface."""

    def __init__(self, jobs: Jobs, scenario: Scenario, policy: str, **options: Any) -> None:
        self.names = [job_type.name for job_type in jobs.types]
        self.scheduler = Scheduler(scenario.cluster, jobs.types, make_policy(policy, **options))

    def submit(self, i: int, j: int, size: tuple[int, ...]) -> list[int]:
        return [placement.job for placement in self.scheduler.submit(i, self.names[j])]

    def complete(self, i: int) -> list[int]:
        return [placement.job for placement in self.scheduler.complete(i)]


@dataclass
class Figures:
    """What the naive simulator found; areas are integrals over time after the warm-up."""

    types: int
    events: int = 0
    arrivals: int = 0
    completions: int = 0
    now: float = 0.0
    since: float | None = None
    area_queue: list[float] = field(default_factory=list)
    area_running: float = 0.0
    area_used: list[float] = field(default_factory=list)
    area_capacity: list[float] = field(default_factory=list)
    waits: list[list[float]] = field(default_factory=list)
    unended: list[float] = field(default_factory=list)
    """how long those have waited who still do"""
    overtakes: int = 0
    lost: int = 0
    lost_work: float = 0.0
    waiting: list[int] = field(default_factory=list)
    running: int = 0

    @property
    def measured(self) -> float:
        assert self.since is not None
        return self.now - self.since

    @property
    def mean_queue(self) -> float:
        return sum(self.area_queue) / self.measured

    @property
    def utilisation(self) -> list[float]:
        return [used / whole for used, whole in zip(self.area_used, self.area_capacity, strict=True)]


def simulate(
    scenario: Scenario, jobs: Jobs, decider: Any, replication: int = 0, *, events: int, warmup: float = 0.0
) -> Figures:
    """One replication of so many events, the first share `warmup` of which is not measured."""
    seed = child(SeedSequence(scenario.run.seed), replication)
    source, timeline = jobs.open(child(seed, WORKLOAD)), ServerEvents(scenario.cluster, child(seed, SERVERS))
    there = dict(zip(timeline.numbers.tolist(), timeline.classes.tolist(), strict=True))
    R = len(scenario.cluster.resources)
    f = Figures(len(jobs.types), waiting=[0] * len(jobs.types))
    arrival: dict[int, float] = {}
    duration: dict[int, float] = {}
    size: dict[int, tuple[int, ...]] = {}
    kind: dict[int, int] = {}
    started: dict[int, float] = {}
    waits_now: set[int] = set()
    once: set[int] = set()  # jobs that have started before
    ends: list[tuple[float, int]] = []
    chunk, at = source.next(1), 0

    def begin() -> None:
        f.since = f.now
        f.area_queue, f.area_running = [0.0] * f.types, 0.0
        f.area_used, f.area_capacity = [0.0] * R, [0.0] * R
        f.waits = [[] for _ in range(f.types)]
        f.overtakes, f.lost, f.lost_work = 0, 0, 0.0

    def pass_time(until: float) -> None:
        passed = until - f.now
        if f.since is not None:
            for j in range(f.types):
                f.area_queue[j] += f.waiting[j] * passed
            f.area_running += len(started) * passed
            for r in range(R):
                f.area_used[r] += sum(size[i][r] for i in started) * passed
                f.area_capacity[r] += sum(int(jobs.sizes.capacity[c, r]) for c in there.values()) * passed
        f.now = until

    def start(all_started: list[int]) -> None:
        waits_now.difference_update(all_started)
        for i in all_started:
            started[i] = f.now
            heapq.heappush(ends, (f.now + duration[i], i))
            f.waiting[kind[i]] -= 1
            f.overtakes += bool(waits_now) and min(waits_now) < i
            if f.since is not None and i not in once and arrival[i] >= f.since:
                f.waits[kind[i]].append(f.now - arrival[i])
            once.add(i)

    while f.events < events:
        if f.since is None and f.events >= int(warmup * events):
            begin()
        next_arrival = float(chunk.time[at]) if len(chunk) else math.inf
        next_end = ends[0][0] if ends else math.inf
        now = min(next_arrival, next_end)
        if now == math.inf:
            break
        if timeline.next_time < now:
            (now,), ((what, server, c),) = (column.tolist() for column in timeline.next(1))
            pass_time(now)
            if what == JOIN and server not in there:
                there[server] = c
                start(decider.join(server, c))
            elif what == DRAIN and server in there:
                decider.drain(server)
            elif what == FAIL and server in there:
                lost, again = decider.fail(server)
                for i in lost:
                    f.lost += 1
                    f.lost_work += f.now - started.pop(i)
                    f.waiting[kind[i]] += 1
                    waits_now.add(i)
                ends = [(end, i) for end, i in ends if i in started]
                heapq.heapify(ends)
                start(again)
            if what in (DRAIN, FAIL):
                there = {number: c for number, c in there.items() if number in decider.free}
        elif next_end <= next_arrival:
            pass_time(next_end)
            _, i = heapq.heappop(ends)
            del started[i]
            f.completions += 1
            start(decider.complete(i))
            if isinstance(decider, Servers):
                there = {number: c for number, c in there.items() if number in decider.free}
        else:
            pass_time(next_arrival)
            i, j = f.arrivals, int(chunk.job_type[at])
            demand = chunk.demand[at] if chunk.demand is not None else jobs.sizes.demand[j]
            arrival[i], duration[i], kind[i] = f.now, float(chunk.duration[at]), j
            size[i] = tuple(int(need) for need in demand)
            f.arrivals += 1
            f.waiting[j] += 1
            waits_now.add(i)
            start(decider.submit(i, j, size[i]))
            at += 1
            if at == len(chunk):
                chunk, at = source.next(1000), 0
        f.events += 1
    f.running = len(started)
    assert f.since is not None
    f.unended = [f.now - arrival[i] for i in waits_now if i not in once and arrival[i] >= f.since]
    return f


def quantile(values: list[float], unended: list[float], p: float) -> float:
    """The value of rank ceil(p n); with some that are still going on, where Kaplan and Meier's estimate first reaches p."""
    if not unended:
        return float(np.sort(values)[max(0, math.ceil(p * len(values)) - 1)])
    left = 1.0
    for value in np.unique(values):
        at_risk = sum(other >= value for other in [*values, *unended])
        left *= 1.0 - values.count(value) / at_risk
        if 1.0 - left >= p - 1e-12:
            return float(value)
    return math.inf

"""The same run in SimPy: a process for each type's arrivals and one for each job, which waits for its start and then for its end."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator

import simpy

from benchmarks.heapq_table1 import INTENSITY, MIX, Algorithm1, Outcome, Starts


class Model:
    """A cluster in a SimPy environment."""

    def __init__(self, servers: int, events: int, seed: int, warmup: float) -> None:
        self.env = simpy.Environment()
        self.rng = random.Random(seed)
        self.core = Algorithm1(servers, self.rng)
        self.lines: list[deque[simpy.Event]] = [deque() for _ in MIX]
        self.limit, self.first = events, int(warmup * events)
        self.events = 0
        self.area = self.last = self.begun = 0.0
        self.over = self.env.event()
        for j, mix in enumerate(MIX):
            self.env.process(self.arrivals(j, INTENSITY * servers * mix))

    def arrivals(self, j: int, rate: float) -> Generator[simpy.Event, None, None]:
        """Jobs of type j come."""
        while True:
            yield self.env.timeout(self.rng.expovariate(rate))
            self.env.process(self.job(j))

    def job(self, j: int) -> Generator[simpy.Event, int, None]:
        """One job: wait for a server, run, leave."""
        start = self.env.event()
        self.look()
        self.lines[j].append(start)
        self.begin(self.core.arrive(j))
        server = yield start
        yield self.env.timeout(self.rng.expovariate(1.0))
        self.look()
        self.begin(self.core.complete(j, server))

    def begin(self, starts: Starts) -> None:
        for j, server in starts:
            self.lines[j].popleft().succeed(server)

    def look(self) -> None:
        """Something happens: add up the queue until now."""
        now = self.env.now
        self.area += self.core.waiting * (now - self.last)
        self.last = now
        self.events += 1
        if self.events == self.first:
            self.area, self.begun = 0.0, now
        elif self.events == self.limit:
            self.over.succeed()


def run(servers: int, events: int, seed: int, warmup: float = 0.25) -> Outcome:
    """So many arrivals and completions; the mean queue is that after the warm-up."""
    model = Model(servers, events, seed, warmup)
    model.env.run(until=model.over)
    return Outcome(model.events, model.area / (model.last - model.begun))

"""Table 1 of the paper at 0.89 under Algorithm 1, as one would write it in plain Python: heapq, lists, no library.

`Algorithm1` is the decision part, which `simpy_table1` uses as well: the two differ in their engines only.
"""

from __future__ import annotations

import heapq
import math
import random
from typing import NamedTuple

# the vertices of the convex hull of what a server of Table 1 holds
CONFIGURATIONS = ((2, 3, 0), (0, 5, 0), (0, 3, 2))
# jobs of each type per server that are exactly on the boundary of the capacity region
MIX = (2 / 3, 11 / 3, 2 / 3)
INTENSITY = 0.89
B, P, Z, CAP = 0.9, -0.05, 0.005, 0.1

EMPTY, ACTIVE, STALLED = range(3)
Starts = list[tuple[int, int]]


class Outcome(NamedTuple):
    """What a run found."""

    events: int
    mean_queue: float


class Algorithm1:
    """Section 3 of the paper with its section 7's parameters; sets of servers are bits of an integer."""

    def __init__(self, servers: int, rng: random.Random) -> None:
        self.servers, self.rng = servers, rng
        self.queue = [0, 0, 0]
        self.waiting = 0
        self.running = [[0, 0, 0] for _ in range(servers)]
        self.count = [0] * servers
        self.slots: list[tuple[int, ...]] = [(0, 0, 0)] * servers
        self.mode = [EMPTY] * servers
        self.stalled = 0
        self.open = [0, 0, 0]
        """for each type the active servers with an empty slot"""
        self.empty = (1 << servers) - 1

    def arrive(self, j: int) -> Starts:
        """A job of type j comes; returns who starts where, as (type, server)."""
        self.queue[j] += 1
        self.waiting += 1
        if self.open[j]:
            return [self.fill(j, (self.open[j] & -self.open[j]).bit_length() - 1)]
        if self.empty:
            return self.reset((self.empty & -self.empty).bit_length() - 1)
        return []

    def complete(self, j: int, server: int) -> Starts:
        """A job of type j ends."""
        running = self.running[server]
        running[j] -= 1
        self.count[server] -= 1
        if self.count[server] == 0:
            self.close(server)
            self.mode[server] = EMPTY
            self.slots[server] = (0, 0, 0)
            self.empty |= 1 << server
            return self.reset(server) if self.waiting else []
        if self.mode[server] == ACTIVE and self.loses(server):
            self.close(server)
            self.mode[server] = STALLED
            self.stalled += 1
        if self.mode[server] == STALLED:
            best, _ = self.best(server)
            if all(map(int.__le__, running, best)):
                self.close(server)
                return self.activate(server, best)
            return []
        if self.queue[j]:
            return [self.fill(j, server)]
        self.open[j] |= 1 << server
        return []

    def fill(self, j: int, server: int) -> tuple[int, int]:
        self.queue[j] -= 1
        self.waiting -= 1
        self.running[server][j] += 1
        self.count[server] += 1
        if self.running[server][j] == self.slots[server][j]:
            self.open[j] &= ~(1 << server)
        return j, server

    def loses(self, server: int) -> bool:
        if self.stalled >= CAP * self.servers:
            return False
        beta = B * (P + (1 - P) * math.tanh(Z * self.waiting)) * (1 - self.stalled / self.servers)
        if beta <= 0:
            return False
        a, b, c = self.queue
        mine = self.slots[server]
        weight = mine[0] * a + mine[1] * b + mine[2] * c
        return weight < beta * max(k[0] * a + k[1] * b + k[2] * c for k in CONFIGURATIONS)

    def best(self, server: int) -> tuple[tuple[int, ...], int]:
        """A max-weight configuration, ties at random but for those that hold what is there, and its weight."""
        a, b, c = self.queue
        weights = [k[0] * a + k[1] * b + k[2] * c for k in CONFIGURATIONS]
        top = max(weights)
        among = [k for k, weight in zip(CONFIGURATIONS, weights, strict=True) if weight == top]
        if len(among) > 1:
            running = self.running[server]
            among = [k for k in among if all(map(int.__le__, running, k))] or among
        return (among[0] if len(among) == 1 else self.rng.choice(among)), top

    def reset(self, server: int) -> Starts:
        best, weight = self.best(server)
        if weight == 0:
            return []
        self.empty &= ~(1 << server)
        return self.activate(server, best)

    def activate(self, server: int, slots: tuple[int, ...]) -> Starts:
        self.slots[server], self.mode[server] = slots, ACTIVE
        started = []
        for j, most in enumerate(slots):
            if self.running[server][j] < most:
                self.open[j] |= 1 << server
                for _ in range(min(self.queue[j], most - self.running[server][j])):
                    started.append(self.fill(j, server))
        return started

    def close(self, server: int) -> None:
        """The server's slots are not to be had any more."""
        if self.mode[server] == STALLED:
            self.stalled -= 1
        for j in range(3):
            self.open[j] &= ~(1 << server)


def run(servers: int, events: int, seed: int, warmup: float = 0.25) -> Outcome:
    """So many arrivals and completions; the mean queue is that after the warm-up."""
    rng = random.Random(seed)
    core = Algorithm1(servers, rng)
    exponential = rng.expovariate
    rates = [INTENSITY * servers * mix for mix in MIX]
    # (time, number, type, server); an arrival has no server
    heap = [(exponential(rate), -1 - j, j, -1) for j, rate in enumerate(rates)]
    heapq.heapify(heap)
    area = last = begun = 0.0
    number, first = 0, int(warmup * events)
    for done in range(events):
        if done == first:
            area, begun = 0.0, last
        now, key, j, server = heap[0]
        area += core.waiting * (now - last)
        last = now
        if server < 0:
            heapq.heapreplace(heap, (now + exponential(rates[j]), key, j, -1))
            started = core.arrive(j)
        else:
            heapq.heappop(heap)
            started = core.complete(j, server)
        for kind, where in started:
            number += 1
            heapq.heappush(heap, (now + exponential(1.0), number, kind, where))
    return Outcome(events, area / (last - begun))

"""Algorithm 1 and M14 a second time, with dictionaries and loops, straight from the definition of the algorithms.

What two people must agree on beyond that definition, to make the same placements:

- Candidates of a server class are a list of configurations (for solver "enumerate" all maximal ones in lexicographic order).
- Weights are added up in the order of the types. Candidates are tied when their weights are equal floats.
- When more than one candidate has the best weight, only the candidates that contain the jobs on the server count, if
  any does. Of these n the first is taken (ties = "first"), or number (word * n) >> 32 of them in the order of the list,
  where `word` is the next word of Marsaglia's xorshift128. No word is drawn when one candidate is the best alone. Words
  start from SeedSequence(seed, spawn_key=(0, 1)).generate_state(4), with the lowest bit of the last one set.
- A configuration is looked for on an empty server only if some job waits (own queues: always), and by a stalled server
  only if it is empty or stalls are reduced. Comparing weights draws nothing.
- A server that fails: its jobs are back in their queues, each before all jobs that came after it, before anything
  starts. Then each that still waits arrives again, from old to young.
- Own queues: a job joins the shortest queue of its type among the servers that can hold the type, the lowest number
  among equals; where there is no such server it waits apart. Jobs of a server that drains join the ends of other
  queues, by type and in their order, and each arrives as it joins. Jobs in the queues of a server that fails do so,
  too, before the lost jobs arrive again. A joining server first takes in the jobs that wait apart and that it can hold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from instances import put_back

Configuration = tuple[int, ...]


class XorShift:
    """Marsaglia's xorshift128 on words of 32 bits."""

    def __init__(self, seed: int) -> None:
        stream = np.random.SeedSequence(seed, spawn_key=(0, 1))
        words = [int(word) for word in stream.generate_state(4, np.uint32)]
        self.words = [*words[:3], words[3] | 1]

    def below(self, n: int) -> int:
        x, y, z, w = self.words
        t = (x ^ (x << 11)) % 2**32
        new = w ^ (w >> 19) ^ t ^ (t >> 8)
        self.words = [y, z, w, new]
        return (new * n) >> 32


def maximal_configurations(demand: Sequence[Sequence[Any]], capacity: Sequence[Any]) -> list[Configuration]:
    """Every configuration that fits and to which nothing can be added, in lexicographic order."""

    def fits(k: Sequence[int]) -> bool:
        return all(
            sum(n * size[r] for n, size in zip(k, demand, strict=True)) <= capacity[r] for r in range(len(capacity))
        )

    def alone(j: int) -> int:
        return max(n for n in range(200) if fits([n if i == j else 0 for i in range(len(demand))]))

    every = filter(fits, itertools.product(*(range(alone(j) + 1) for j in range(len(demand)))))
    units = [tuple(int(i == j) for i in range(len(demand))) for j in range(len(demand))]
    return [k for k in every if not any(fits(tuple(map(sum, zip(k, unit, strict=True)))) for unit in units)]


def capped_of(options: Any) -> Callable[[int, int], bool]:
    """Whether so many stalled servers of so many are as many as may be, from the options of Algorithm 1."""

    def capped(stalled: int, servers: int) -> bool:
        if options.spread == "off" or (options.beta is not None and options.stall_cap is None):
            return False
        return Fraction(stalled, servers) >= Fraction(str(0.1 if options.stall_cap is None else options.stall_cap))

    return capped


def beta_of(options: Any) -> Callable[[int, int, int], float]:
    """beta(sum of Q, stalled servers, servers) from the options of Algorithm 1."""
    capped = capped_of(options)

    def beta(waiting: int, stalled: int, servers: int) -> float:
        if options.beta is not None:
            value = options.beta
            if options.stall_cap is None:
                return value
        else:
            value = options.b * (options.p + (1 - options.p) * math.tanh(options.z * waiting))
        if capped(stalled, servers):
            return 0.0
        return value if options.spread in ("cap", "off") else value * (1 - stalled / servers)

    return beta


@dataclass
class Server:
    """A server: its class, what it does, the slots it has and the jobs it holds."""

    kind: str
    state: str = "empty"  # or active, stalled, draining
    slots: Configuration = ()
    jobs: dict[Hashable, int] = field(default_factory=dict)

    def holds(self, j: int) -> int:
        return sum(other == j for other in self.jobs.values())


class NaiveSlots:
    """Algorithm 1, or M14 where `beta` is None."""

    def __init__(
        self,
        candidates: dict[str, list[Configuration]],
        n_types: int,
        *,
        seed: int,
        beta: Callable[[int, int, int], float] | None,
        ties: str = "random",
        reduce_stalls: bool = True,
        faithful: bool = False,
        log_weights: bool = False,
        own_queues: bool = False,
    ) -> None:
        self.candidates, self.n_types, self.beta, self.ties = candidates, n_types, beta, ties
        self.reduce_stalls, self.faithful = reduce_stalls, faithful
        self.log_weights, self.own_queues = log_weights, own_queues
        self.random = XorShift(seed)
        self.servers: dict[int, Server] = {}
        self.queues: dict[Any, list[Hashable]] = {}
        self.type_of: dict[Hashable, int] = {}
        self.age: dict[Hashable, int] = {}
        self.placed: list[tuple[Hashable, int]] = []

    # -- queues ---------------------------------------------------------------------------------------------------

    def line(self, number: int, j: int) -> list[Hashable]:
        """The queue that this server serves for type j."""
        return self.queues.setdefault((number, j) if self.own_queues else j, [])

    def line_for(self, j: int) -> list[Hashable]:
        """The queue that a type-j job joins."""
        if not self.own_queues:
            return self.line(0, j)
        takers = [
            n for n, server in self.servers.items() if server.state != "draining" and self.can_hold(server, j)
        ]
        if not takers:
            return self.queues.setdefault(("apart", j), [])
        return self.line(min(takers, key=lambda n: (len(self.line(n, j)), n)), j)

    def line_of(self, job: Hashable) -> tuple[Any, list[Hashable]]:
        return next((key, line) for key, line in self.queues.items() if job in line)

    def waits(self, job: Hashable) -> bool:
        return any(job in line for line in self.queues.values())

    def n_waiting(self) -> int:
        return sum(map(len, self.queues.values()))

    def can_hold(self, server: Server, j: int) -> bool:
        return any(k[j] for k in self.candidates[server.kind])

    # -- weights --------------------------------------------------------------------------------------------------

    def weight(self, number: int, k: Configuration) -> float:
        total = 0.0
        for j in range(self.n_types):
            Q = len(self.line(number, j))
            total += (math.log(1.0 + Q) if self.log_weights else Q) * k[j]
        return total

    def best_weight(self, number: int) -> float:
        return max(self.weight(number, k) for k in self.candidates[self.servers[number].kind])

    def best(self, number: int) -> Configuration:
        server, top = self.servers[number], self.best_weight(number)
        tied = [k for k in self.candidates[server.kind] if self.weight(number, k) == top]
        if len(tied) == 1:
            return tied[0]
        containing = [k for k in tied if self.contains(k, server)] if server.jobs else []
        among = containing or tied
        return among[0 if self.ties == "first" else self.random.below(len(among))]

    def contains(self, k: Configuration, server: Server) -> bool:
        return all(server.holds(j) <= k[j] for j in range(self.n_types))

    # -- what a server does ---------------------------------------------------------------------------------------

    def start(self, j: int, number: int) -> None:
        job = self.line(number, j).pop(0)
        self.servers[number].jobs[job] = j
        self.placed.append((job, number))

    def activate(self, number: int, k: Configuration) -> None:
        server = self.servers[number]
        server.state, server.slots = "active", k
        for j in range(self.n_types):
            while server.holds(j) < k[j] and self.line(number, j):
                self.start(j, number)

    def configure_if_it_starts_a_job(self, number: int) -> None:
        if not self.own_queues and self.n_waiting() == 0:
            return
        k = self.best(number)
        if self.weight(number, k) > 0:
            self.activate(number, k)

    def arrive(self, job: Hashable) -> None:
        j = self.type_of[job]
        if self.own_queues:
            number = self.line_of(job)[0][0]
            if number == "apart":
                return
            if self.servers[number].state == "empty":
                self.configure_if_it_starts_a_job(number)
            elif self.has_slot(number, j):
                self.start(j, number)
            return
        with_slot = [n for n in self.servers if self.has_slot(n, j)]
        if with_slot:
            self.start(j, min(with_slot))
            return
        while not self.faithful and self.waits(job):
            empty = [n for n, s in self.servers.items() if s.state == "empty" and self.can_hold(s, j)]
            if not empty:
                return
            self.configure_if_it_starts_a_job(min(empty))

    def has_slot(self, number: int, j: int) -> bool:
        server = self.servers[number]
        return server.state == "active" and server.holds(j) < server.slots[j]

    # -- events: each returns the placements ----------------------------------------------------------------------

    def submit(self, job: Hashable, j: int) -> list[tuple[Hashable, int]]:
        self.placed = []
        self.type_of[job], self.age[job] = j, len(self.age)
        self.line_for(j).append(job)
        self.arrive(job)
        return self.placed

    def complete(self, job: Hashable) -> list[tuple[Hashable, int]]:
        self.placed = []
        number = next(n for n, server in self.servers.items() if job in server.jobs)
        del self.servers[number].jobs[job]
        return self.make_use(number, self.type_of[job])

    def requeue(self, job: Hashable) -> list[tuple[Hashable, int]]:
        self.placed = []
        number = next(n for n, server in self.servers.items() if job in server.jobs)
        del self.servers[number].jobs[job]
        put_back(self.line_for(self.type_of[job]), job, self.age)
        self.make_use(number, self.type_of[job])
        if self.waits(job):
            self.arrive(job)
        return self.placed

    def make_use(self, number: int, j: int) -> list[tuple[Hashable, int]]:
        """A type-j job has left the server."""
        server = self.servers[number]
        if server.state == "draining":
            return self.placed
        if not server.jobs and not self.faithful:
            server.state, server.slots = "empty", ()
            self.configure_if_it_starts_a_job(number)
            return self.placed
        if server.state == "active" and self.beta is not None:
            stalled = sum(s.state == "stalled" for s in self.servers.values())
            present = sum(s.state != "draining" for s in self.servers.values())
            share = self.beta(self.n_waiting(), stalled, present)
            if self.weight(number, server.slots) < share * self.best_weight(number):
                server.state = "stalled"
        if server.state == "stalled":
            if not server.jobs or self.reduce_stalls:
                k = self.best(number)
                if not server.jobs or self.contains(k, server):
                    self.activate(number, k)
        elif self.line(number, j):
            self.start(j, number)
        return self.placed

    def cancel(self, job: Hashable) -> list[tuple[Hashable, int]]:
        self.placed = []
        self.line_of(job)[1].remove(job)
        return self.placed

    def join(self, number: int, kind: str) -> list[tuple[Hashable, int]]:
        self.placed = []
        self.servers[number] = Server(kind)
        self.share_out(number)
        if self.faithful:
            self.activate(number, self.best(number))
        else:
            self.configure_if_it_starts_a_job(number)
        return self.placed

    def share_out(self, number: int) -> None:
        for j in range(self.n_types if self.own_queues else 0):
            apart = self.queues.setdefault(("apart", j), [])
            if self.can_hold(self.servers[number], j):
                while apart:
                    job = apart.pop(0)
                    self.line_for(j).append(job)

    def resume(self, number: int) -> list[tuple[Hashable, int]]:
        server = self.servers[number]
        if not server.jobs:
            return self.join(number, server.kind)
        self.placed = []
        server.state = "empty"
        self.share_out(number)
        k = self.best(number)
        held = tuple(server.holds(j) for j in range(self.n_types))
        self.activate(number, k if self.contains(k, server) else held)
        return self.placed

    def drain(self, number: int) -> list[tuple[Hashable, int]]:
        self.placed = []
        self.servers[number].state = "draining"
        self.send_away(number)
        return self.placed

    def send_away(self, number: int) -> None:
        for j in range(self.n_types if self.own_queues else 0):
            while self.line(number, j):
                job = self.line(number, j).pop(0)
                self.line_for(j).append(job)
                self.arrive(job)

    def remove(self, number: int) -> list[tuple[Hashable, int]]:
        placed = self.drain(number) if self.servers[number].state != "draining" else []
        del self.servers[number]
        return placed

    def fail(self, number: int) -> list[tuple[Hashable, int]]:
        self.placed = []
        lost = sorted(self.servers[number].jobs, key=self.age.__getitem__)
        self.servers[number].jobs = {}
        self.servers[number].state = "draining"
        for job in reversed(lost):
            put_back(self.line_for(self.type_of[job]), job, self.age)
        self.send_away(number)
        del self.servers[number]
        for job in lost:
            if self.waits(job):
                self.arrive(job)
        return self.placed

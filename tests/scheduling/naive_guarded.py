"""`guarded` a second time: lists, loops and brute force, straight from docs/theory/guarded.md.

`NaiveGuarded` is told each event and the placements that the core made for it, and says whether they are right. Where the document leaves a choice, it takes
the core's. That is the server of a job that is placed (here any packing server with enough free capacity), and the target among configurations of equal weight.
What two people must agree on beyond the document:

- Types from large to small: by the largest share of the largest capacities, then by the sum of the shares, then by number.
- The orders of refills are by size, by weight, by weight per size; of refills of equal weight the last of these wins. Types of equal value stay in the order of sizes.
- Jobs of a type are tried from old to young. Then the oldest job that still fits starts, of whatever type, until none fits.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from naive import maximal_configurations

NEAR = 1e-9  # relative difference of two sums of weights that may be rounding
EULER, PRIOR, SAMPLE_EVERY = 0.5772, 10.0, 16

Sizes = tuple[int, ...]


@dataclass
class Server:
    """A server that takes jobs."""

    kind: int
    jobs: list[Hashable] = field(default_factory=list)
    target: tuple[int, ...] | None = None  # while it turns
    since_turn: int = 1 << 40  # completions


class NaiveGuarded:
    """The policy as it is described."""

    def __init__(self, capacity: Sequence[Sizes], demand: Sequence[Sizes], margin: float, tightness: float) -> None:
        self.capacity, self.demand, self.margin, self.tightness = list(capacity), list(demand), margin, tightness
        self.largest = [max(c[r] for c in capacity) or 1 for r in range(len(capacity[0]))]
        shares = [[w / c for w, c in zip(size, self.largest, strict=True)] for size in demand]
        self.size = [max(*share, 1e-9) for share in shares]
        self.by_size = sorted(range(len(demand)), key=lambda j: (-max(shares[j]), -sum(shares[j]), j))
        self.configurations = [maximal_configurations(demand, c) for c in capacity]
        self.lines: list[list[Hashable]] = [[] for _ in demand]
        self.servers: dict[int, Server] = {}
        self.type_of: dict[Hashable, int] = {}
        self.asked: dict[Hashable, Sizes] = {}
        self.born: dict[Hashable, int] = {}
        self.arrivals = self.counts = self.all_seen = self.all_completed = 0
        self.seen, self.completed = [0] * len(demand), [0] * len(demand)
        self.drains_took = self.drains_expected = 0.0
        self.turns = self.overtaken = 0
        self.told: list[tuple[Hashable, int]] = []
        self.core_target: Any = None
        """number -> the configuration to which the core turns the server, or None"""
        self.core_turns: Any = None
        """() -> how many turns the core has begun"""

    # -- events

    def submit(self, job: Hashable, j: int, asked: Sizes) -> None:
        self.type_of[job], self.asked[job], self.born[job] = j, asked, self.arrivals
        self.lines[j].append(job)
        self.arrivals += 1
        if self.arrivals % SAMPLE_EVERY == 0:
            self.counts += 1
            for server in self.servers.values():
                self.drains_took += server.target is not None
                for other in server.jobs:
                    self.seen[self.type_of[other]] += 1
                    self.all_seen += 1
        open_slots = [n for n in self.servers if self.has_open_slot(n, j)]
        if open_slots:
            self.start(job, [min(open_slots)])
        elif room := [n for n, one in self.servers.items() if one.target is None and self.fits(job, self.free(n))]:
            self.start(job, room)

    def complete(self, job: Hashable) -> None:
        self.completed[self.type_of[job]] += 1
        self.all_completed += 1
        self.stop(job)

    def stop(self, job: Hashable) -> None:
        number = next(n for n, server in self.servers.items() if job in server.jobs)
        server = self.servers[number]
        server.jobs.remove(job)
        server.since_turn += 1
        if server.target is not None:
            self.continue_turn(number)
        elif any(self.lines):
            refill = self.heaviest_refill(number)
            self.check_refill(number, self.type_of[job], refill)
            if self.should_turn(number, refill):
                self.begin_turn(number)
            else:
                self.start_refill(number, refill)

    def cancel(self, job: Hashable) -> None:
        self.lines[self.type_of[job]].remove(job)

    def join(self, number: int, kind: int) -> None:
        self.servers[number] = Server(kind)
        self.refill(number)

    # -- what it knows

    def free(self, number: int) -> Sizes:
        server = self.servers[number]
        taken = [sum(self.asked[job][r] for job in server.jobs) for r in range(len(self.largest))]
        return tuple(c - t for c, t in zip(self.capacity[server.kind], taken, strict=True))

    def fits(self, job: Hashable, room: Sequence[int]) -> bool:
        return all(a <= b for a, b in zip(self.asked[job], room, strict=True))

    def held(self, number: int) -> list[int]:
        return [sum(self.type_of[job] == j for job in self.servers[number].jobs) for j in range(len(self.demand))]

    def has_open_slot(self, number: int, j: int) -> bool:
        target = self.servers[number].target
        room = self.free(number)
        return (
            target is not None
            and self.held(number)[j] < target[j]
            and all(a <= b for a, b in zip(self.demand[j], room, strict=True))
        )

    def weights(self) -> list[float]:
        """W_j = g_j (b + Q^(3/4) D^(1/4))."""
        found = []
        for g, line in zip(self.size, self.lines, strict=True):
            age = self.arrivals - self.born[line[0]] if line else 0
            found.append(self.tightness * g + g * math.sqrt(len(line) * math.sqrt(float(len(line)) * age)))
        return found

    def best(self, number: int) -> float:
        w = self.weights()
        return max(
            sum(a * b for a, b in zip(w, k, strict=True)) for k in self.configurations[self.servers[number].kind]
        )

    # -- R2

    def heaviest_refill(self, number: int) -> list[Hashable]:
        w, best, most = self.weights(), [], 0.0
        for value in (lambda j: 0.0, lambda j: w[j], lambda j: w[j] / self.size[j]):
            refill, added, room = [], 0.0, list(self.free(number))
            for j in sorted(self.by_size, key=value, reverse=True):  # a stable sort
                for job in self.lines[j]:
                    if self.fits(job, room):
                        refill.append(job)
                        added += w[j]
                        room = [a - b for a, b in zip(room, self.asked[job], strict=True)]
            if added >= most:
                best, most = refill, added
        return best

    def check_refill(self, number: int, j: int, refill: Sequence[Hashable]) -> None:
        """R2 of the proof: a refill weighs at least as much as a job of the type that has left, if one of that type waits and fits."""
        w = self.weights()
        if any(self.fits(job, self.free(number)) for job in self.lines[j]):
            assert sum(w[self.type_of[job]] for job in refill) >= w[j] * (1 - NEAR), "R2: a refill loses weight"

    def start_refill(self, number: int, refill: Sequence[Hashable]) -> None:
        for job in refill:
            self.start(job, [number])
        while left := [job for line in self.lines for job in line if self.fits(job, self.free(number))]:
            self.start(min(left, key=lambda job: self.born[job]), [number])

    def refill(self, number: int) -> None:
        self.start_refill(number, self.heaviest_refill(number))

    def start(self, job: Hashable, numbers: Sequence[int]) -> None:
        """Start the job on the server among these that the core has taken."""
        assert self.told, f"the core has started nothing where {job} must start on one of {numbers}"
        told, number = self.told.pop(0)
        assert told == job, f"the core has started {told}, not {job}"
        assert number in numbers, f"the core has started {job} on {number}, not on one of {numbers}"
        line = self.lines[self.type_of[job]]
        self.overtaken += line[0] != job
        line.remove(job)
        self.servers[number].jobs.append(job)

    # -- R3

    def mean_service(self, j: int) -> float:
        common = max(self.all_seen, 1.0) / max(self.all_completed, 1.0)
        return (self.seen[j] + PRIOR * common) / (self.completed[j] + PRIOR)

    def drain_time(self, number: int) -> float:
        jobs = self.servers[number].jobs
        if not jobs:
            return 0.0
        return max(self.mean_service(self.type_of[job]) for job in jobs) * (EULER + math.log(len(jobs) + 0.5))

    def largest_size(self, number: int) -> float:
        return max((self.size[j] for j in self.fitting(number)), default=0.0)

    def fitting(self, number: int) -> list[int]:
        whole = self.capacity[self.servers[number].kind]
        return [j for j, w in enumerate(self.demand) if all(a <= b for a, b in zip(w, whole, strict=True))]

    def margin_of(self, number: int) -> float:
        """F_l = c sqrt(M_l g_l W_l)."""
        expected = self.drain_time(number)
        correction = (
            min(100.0, max(1.0, (self.drains_took + expected) / (self.drains_expected + expected)))
            if expected
            else 1.0
        )
        share, used = 0.0, 0
        for r in range(len(self.largest)):
            total = sum(self.capacity[server.kind][r] for server in self.servers.values())
            if total > 0:
                share += self.capacity[self.servers[number].kind][r] / total
                used += 1
        turning = sum(server.target is not None for server in self.servers.values())
        events = (
            (1 + turning)
            * 2
            * expected
            * correction
            * self.all_completed
            / max(self.counts, 1)
            * share
            / max(used, 1)
        )
        total = sum(self.weights()[j] for j in self.fitting(number))
        return self.margin * math.sqrt(events * self.largest_size(number) * total)

    def should_turn(self, number: int, refill: Sequence[Hashable]) -> bool:
        w, margin = self.weights(), self.margin_of(number)
        counts = self.held(number)
        for job in refill:
            counts[self.type_of[job]] += 1
        weight = sum(a * b for a, b in zip(w, counts, strict=True))
        gap = self.best(number) - margin - weight
        spaced = 2 * self.servers[number].since_turn * self.largest_size(number) - margin
        turned = self.core_turns() > self.turns
        if abs(gap) <= NEAR * self.best(number) or abs(spaced) <= NEAR * margin:
            return turned  # rounding may decide
        return gap > 0 and spaced >= 0

    def begin_turn(self, number: int) -> None:
        self.turns += 1
        self.drains_expected += self.drain_time(number)
        assert self.core_turns() >= self.turns, f"server {number} must turn"
        w, best, held = self.weights(), self.best(number), self.held(number)
        heaviest = [
            k
            for k in self.configurations[self.servers[number].kind]
            if sum(a * b for a, b in zip(w, k, strict=True)) >= best * (1 - NEAR)
        ]
        target = self.core_target(number)
        if (
            target is None
        ):  # the turn was over at once: the content is within one of the best, or all jobs have started
            ended = [k for k in heaviest if all(a <= b for a, b in zip(held, k, strict=True))]
            target = next(
                iter(ended or [k for k in heaviest if self.started_by(number, k) == [job for job, _ in self.told]])
            )
        assert target in heaviest, f"server {number} turns to {target}, which is not the best"
        self.servers[number].target = target
        self.continue_turn(number)

    def started_by(self, number: int, target: Sequence[int]) -> list[Hashable]:
        """The jobs that start when the server turns to this target."""
        room, held, found = list(self.free(number)), self.held(number), []
        for j in self.by_size:
            for job in self.lines[j]:
                if held[j] >= target[j] or not self.fits(job, room):
                    break
                held[j] += 1
                found.append(job)
                room = [a - b for a, b in zip(room, self.asked[job], strict=True)]
        return found

    def continue_turn(self, number: int) -> None:
        server = self.servers[number]
        assert server.target is not None
        for j in self.by_size:
            while (
                self.lines[j]
                and self.held(number)[j] < server.target[j]
                and self.fits(self.lines[j][0], self.free(number))
            ):
                self.start(self.lines[j][0], [number])
        within = all(a <= b for a, b in zip(self.held(number), server.target, strict=True))
        if within or not any(self.lines):
            server.target, server.since_turn = None, 0
            self.refill(number)

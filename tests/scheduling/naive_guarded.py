"""`guarded` a second time: lists, loops and brute force, straight from docs/theory/guarded.md.

`NaiveGuarded` is told each event and the placements that the core made for it, and says whether they are right. Where the document leaves a choice, it takes
the core's. That is the server of a job that is placed (here any packing server with enough free capacity), and the target among configurations of equal weight.
What two people must agree on beyond the document:

- Types from large to small: by the largest share of the largest capacities, then by the sum of the shares, then by number.
- Sizes: V is searched exactly here; the core gives up a search after many steps, which the small cases of the tests never need.
- The orders of refills are by size, by weight, by weight per size; of refills of equal weight the last of these wins, unless rounding decides. Types of equal value stay in the order of sizes.
- Jobs of a type are tried from old to young. Then the oldest job that still fits starts, of whatever type, until none fits.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from naive import maximal_configurations
from naive_shares import NaiveShares

NEAR = 1e-9  # relative difference of two sums of weights that may be rounding
EULER, PRIOR, SAMPLE_EVERY, AGE, KEEP = 0.5772, 10.0, 16, 0.004, 0.5

Sizes = tuple[int, ...]


def weights_of(
    sizes: Sequence[float], tightness: float, lengths: Sequence[float], ages: Sequence[float]
) -> list[float]:
    """W_j = g_j (b + Q_j + a D_j)."""
    return [g * (tightness + q + AGE * d) for g, q, d in zip(sizes, lengths, ages, strict=True)]


@dataclass
class Server:
    """A server that takes jobs."""

    kind: int
    jobs: list[Hashable] = field(default_factory=list)
    target: tuple[int, ...] | None = None  # while it turns
    kept: tuple[int, ...] | None = None  # the target of the last turn, as long as the server goes on with it
    since_turn: float = 1e18  # sizes of completed jobs


class NaiveGuarded:
    """The policy as it is described."""

    def __init__(self, capacity: Sequence[Sizes], demand: Sequence[Sizes], margin: float, tightness: float) -> None:
        self.capacity, self.demand, self.margin, self.tightness = list(capacity), list(demand), margin, tightness
        self.largest = [max(c[r] for c in capacity) or 1 for r in range(len(capacity[0]))]
        shares = [[w / c for w, c in zip(size, self.largest, strict=True)] for size in demand]
        self.size = self.sizes_of()
        self.by_size = sorted(range(len(demand)), key=lambda j: (-max(shares[j]), -sum(shares[j]), j))
        self.configurations = [maximal_configurations(demand, c) for c in capacity]
        self.lines: list[list[Hashable]] = [[] for _ in demand]
        self.servers: dict[int, Server] = {}
        self.type_of: dict[Hashable, int] = {}
        self.asked: dict[Hashable, Sizes] = {}
        self.born: dict[Hashable, int] = {}
        self.arrivals = self.all_completed = self.events_since = 0
        self.size_completed = self.busy_time = self.now = 0.0
        self.last_count: float | None = None
        self.job_time, self.completed = [0.0] * len(demand), [0] * len(demand)
        self.drains_took = self.drains_expected = 0.0
        self.turns = self.overtaken = self.waits_checked = self.goes_on = 0
        self.told: list[tuple[Hashable, int]] = []
        self.core_target: Any = None
        """number -> the configuration to which the core turns the server, or None"""
        self.core_turns: Any = None
        """() -> how many turns the core has begun"""
        self.core_kept: Any = None
        """number -> the configuration with which the core goes on, or None"""
        self.shares: NaiveShares | None = None

    def sizes_of(self) -> list[float]:
        """g_j: the least over the classes of V(C) - V(C - w), beside the largest V(C); V by brute force."""
        share = [sum(w / c for w, c in zip(size, self.largest, strict=True)) / len(size) for size in self.demand]

        def usable(c: Sequence[int], room: Sequence[int]) -> float:
            held = [j for j, w in enumerate(self.demand) if all(a <= b for a, b in zip(w, c, strict=True))]
            return max(
                sum(n * share[j] for n, j in zip(k, held, strict=True))
                for k in maximal_configurations([self.demand[j] for j in held], room)
            )

        whole = [usable(c, c) for c in self.capacity]
        found = []
        for w in self.demand:
            costs = [
                v - usable(c, [a - b for a, b in zip(c, w, strict=True)])
                for v, c in zip(whole, self.capacity, strict=True)
                if all(a <= b for a, b in zip(w, c, strict=True))
            ]
            found.append(max(min(costs) / max(whole), 1e-9))
        return found

    # -- events

    def submit(self, job: Hashable, j: int, asked: Sizes) -> None:
        self.type_of[job], self.asked[job], self.born[job] = j, asked, self.arrivals
        self.lines[j].append(job)
        self.arrivals += 1
        open_slots = [n for n in self.servers if self.has_open_slot(n, j)]
        if open_slots:
            self.start(job, [min(open_slots)])
        elif room := [n for n, one in self.servers.items() if one.target is None and self.fits(job, self.free(n))]:
            self.start(job, room)
        self.count_event()

    def complete(self, job: Hashable) -> None:
        number = self.depart(job)
        self.count_event()
        self.completed[self.type_of[job]] += 1
        self.all_completed += 1
        if any(self.lines):
            self.size_completed += self.size[self.type_of[job]]
        self.use_capacity(job, number)

    def stop(self, job: Hashable) -> None:
        self.use_capacity(job, self.depart(job))

    def depart(self, job: Hashable) -> int:
        """Take the job off its server, and return that server."""
        number = next(n for n, server in self.servers.items() if job in server.jobs)
        self.servers[number].jobs.remove(job)
        return number

    def count_event(self) -> None:
        """Add up what runs, and for how long, after every SAMPLE_EVERY arrivals and completions."""
        self.events_since += 1
        if self.events_since < SAMPLE_EVERY:
            return
        passed = 0.0 if self.last_count is None else self.now - self.last_count
        self.events_since, self.last_count = 0, self.now
        if any(self.lines):
            self.busy_time += passed
        for server in self.servers.values():
            self.drains_took += passed * (server.target is not None)
            for other in server.jobs:
                self.job_time[self.type_of[other]] += passed

    def use_capacity(self, job: Hashable, number: int) -> None:
        """Use the capacity that the job has left."""
        server = self.servers[number]
        server.since_turn += self.size[self.type_of[job]]
        if server.target is not None:
            self.continue_turn(number)
        elif any(self.lines):
            if server.kept is not None:
                if self.keeps_target(number):
                    self.goes_on += 1
                    self.start_within(number, server.kept)
                    self.refill(number)
                    return
                server.kept = None
            refill = self.heaviest_refill(number)
            self.check_refill(number, self.type_of[job], refill)
            if self.should_turn(number, refill):
                self.begin_turn(number)
            else:
                self.check_waits(number, refill)
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
        """W_j = g_j (b + Q_j + a D_j); with shares, the part of the waiting jobs is scaled."""
        lengths = [len(line) for line in self.lines]
        ages = [float(self.arrivals - self.born[line[0]]) if line else 0.0 for line in self.lines]
        if self.shares is None or not any(self.lines):
            return weights_of(self.size, self.tightness, lengths, ages)
        service = [self.mean_service(j) for j in range(len(lengths))]
        found = self.shares.scaled(weights_of(self.size, 0.0, lengths, ages), lengths, service)
        return [self.tightness * g + own for g, own in zip(self.size, found, strict=True)]

    def passes(self, now: float) -> None:
        """Time has passed, and then the next event comes."""
        self.now = now
        if self.shares is None:
            return
        taken: dict[str, list[int]] = {}
        capacity = [0] * len(self.largest)
        for server in self.servers.values():
            capacity = [a + b for a, b in zip(capacity, self.capacity[server.kind], strict=True)]
            for job in server.jobs:
                row = taken.setdefault(self.shares.tenant[self.type_of[job]], [0] * len(self.largest))
                row[:] = [a + b for a, b in zip(row, self.asked[job], strict=True)]
        self.shares.advance(now, taken, [len(line) for line in self.lines], capacity)

    def best(self, number: int) -> float:
        w = self.weights()
        return max(
            sum(a * b for a, b in zip(w, k, strict=True)) for k in self.configurations[self.servers[number].kind]
        )

    # -- R2

    def heaviest_refill(self, number: int) -> list[Hashable]:
        w, found = self.weights(), []
        for value in (lambda j: 0.0, lambda j: w[j], lambda j: w[j] / self.size[j]):
            refill, added, room = [], 0.0, list(self.free(number))
            for j in sorted(self.by_size, key=value, reverse=True):  # a stable sort
                for job in self.lines[j]:
                    if self.fits(job, room):
                        refill.append(job)
                        added += w[j]
                        room = [a - b for a, b in zip(room, self.asked[job], strict=True)]
            found.append((added, refill))
        most = max(added for added, _ in found)
        best = [refill for added, refill in found if added >= most * (1 - NEAR)]
        told = [job for job, _ in self.told]
        return next((refill for refill in best if refill == told[: len(refill)]), best[-1])  # rounding may decide

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
        common = sum(self.job_time) / max(self.all_completed, 1.0) if any(self.job_time) else 1.0
        return (self.job_time[j] + PRIOR * common) / (self.completed[j] + PRIOR)

    def drain_time(self, held: Sequence[int]) -> float:
        """How long a server with these jobs takes to drain."""
        if not any(held):
            return 0.0
        longest = max(self.mean_service(j) for j, n in enumerate(held) if n > 0)
        return longest * (EULER + math.log(sum(held) + 0.5))

    def margin_of(self, number: int, weight: float, target: Sequence[int]) -> float:
        """F_l = c sqrt(G_l (f(k') + F_l)), for a turn to the target."""
        time = self.drain_time(self.held(number)) + self.drain_time(target)
        expected = self.drains_expected + time
        correction = min(100.0, max(1.0, (self.drains_took + time) / expected)) if expected else 1.0
        share, used = 0.0, 0
        for r in range(len(self.largest)):
            total = sum(self.capacity[server.kind][r] for server in self.servers.values())
            if total > 0:
                share += self.capacity[self.servers[number].kind][r] / total
                used += 1
        turning = sum(server.target is not None for server in self.servers.values())
        completed = self.size_completed / self.busy_time * share / max(used, 1) if self.busy_time else 0.0
        g = self.margin**2 * (1 + turning) * correction * completed * time
        margin = (g + math.sqrt(g * (g + 4 * weight))) / 2
        assert math.isclose(margin, math.sqrt(g * (weight + margin)), rel_tol=1e-6, abs_tol=1e-9)
        return margin

    def should_turn(self, number: int, refill: Sequence[Hashable]) -> bool:
        if not self.busy_time or not self.size_completed:
            return False
        w, counts = self.weights(), self.held(number)
        for job in refill:
            counts[self.type_of[job]] += 1
        weight, best = sum(a * b for a, b in zip(w, counts, strict=True)), self.best(number)
        turned = self.core_turns() > self.turns
        answers = set()
        for target in self.heaviest(number):
            margin = self.margin_of(number, weight, target)
            gap, spaced = best - margin - weight, 2 * self.servers[number].since_turn - margin
            if abs(gap) <= NEAR * best or abs(spaced) <= NEAR * margin:
                return turned  # rounding may decide
            answers.add(gap > 0 and spaced >= 0)
        return turned if len(answers) > 1 else answers.pop()  # targets of equal weight may differ in the way back

    def check_waits(self, number: int, refill: Sequence[Hashable]) -> None:
        """The bound on the age of each queue, if the server may turn and does not."""
        if not self.busy_time or not self.size_completed:
            return
        server, counts = self.servers[number], self.held(number)
        for job in refill:
            counts[self.type_of[job]] += 1
        weight = sum(a * b for a, b in zip(self.weights(), counts, strict=True))
        margin = max(self.margin_of(number, weight, target) for target in self.heaviest(number))
        if self.shares is not None or 2 * server.since_turn < margin:
            return
        for j, line in enumerate(self.lines):
            most = max(k[j] for k in self.configurations[server.kind])
            if line and most > 0:
                bound = (weight + margin) / (most * self.size[j])
                self.waits_checked += 1
                assert len(line) + AGE * (self.arrivals - self.born[line[0]]) <= bound * (1 + NEAR), (
                    f"type {j} waits for longer than the proof allows"
                )

    def heaviest(self, number: int) -> list[tuple[int, ...]]:
        """The configurations of most weight."""
        w, best = self.weights(), self.best(number)
        return [
            k
            for k in self.configurations[self.servers[number].kind]
            if sum(a * b for a, b in zip(w, k, strict=True)) >= best * (1 - NEAR)
        ]

    def begin_turn(self, number: int) -> None:
        self.turns += 1
        self.drains_expected += self.drain_time(self.held(number))
        assert self.core_turns() >= self.turns, f"server {number} must turn"
        held, heaviest = self.held(number), self.heaviest(number)
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
        self.start_within(number, server.target)
        within = all(a <= b for a, b in zip(self.held(number), server.target, strict=True))
        if within or not any(self.lines):
            server.target, server.since_turn, server.kept = None, 0, self.core_kept(number)
            self.refill(number)

    def start_within(self, number: int, target: Sequence[int]) -> None:
        """Start waiting jobs within the target, largest type first."""
        for j in self.by_size:
            while (
                self.lines[j]
                and self.held(number)[j] < target[j]
                and self.fits(self.lines[j][0], self.free(number))
            ):
                self.start(self.lines[j][0], [number])

    # -- R4

    def keeps_target(self, number: int) -> bool:
        kept, counts, w = self.servers[number].kept, self.held(number), self.weights()
        assert kept is not None
        if any(a > b for a, b in zip(counts, kept, strict=True)):
            return False
        more = [min(b - a, len(line)) for a, b, line in zip(counts, kept, self.lines, strict=True)]
        if not any(more):
            return False
        weight = sum(v * (a + b) for v, a, b in zip(w, counts, more, strict=True))
        best, answers = self.best(number), set()
        for target in self.heaviest(number):
            gap = best - KEEP * self.margin_of(number, weight, target) - weight
            if abs(gap) <= NEAR * best:
                return self.core_kept(number) is not None  # rounding may decide
            answers.add(gap <= 0)
        return self.core_kept(number) is not None if len(answers) > 1 else answers.pop()

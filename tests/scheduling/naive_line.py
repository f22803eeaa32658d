"""A tiny scheduler that knows no types, no trees and no indexes. It has a list of waiting jobs, a list of servers, and
one function each for what a fit policy, EASY, or Adaptive Quickswap does at an event. Sizes are whole numbers.

Of several servers that are equally good the core takes the one that an order of its own puts first; `NaiveLine.tied` is that order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Size = tuple[int, ...]


@dataclass
class Job:
    """One job. `kind` is the class that Quickswap puts it in; no other policy reads it."""

    name: int
    arrival: float
    duration: float
    size: Size
    classes: frozenset[int]
    """of servers that it may run on"""
    expected: float
    kind: int = 0


@dataclass
class Server:
    """One server."""

    number: int
    kind: int
    capacity: Size
    jobs: list[Job] = field(default_factory=list)
    filed: int = 0
    swaps_to: int | None = None

    @property
    def free(self) -> Size:
        return tuple(c - sum(job.size[r] for job in self.jobs) for r, c in enumerate(self.capacity))

    def fits(self, job: Job) -> bool:
        return self.kind in job.classes and all(a <= b for a, b in zip(job.size, self.free, strict=True))

    def could_hold(self, job: Job) -> bool:
        return self.kind in job.classes and all(a <= b for a, b in zip(job.size, self.capacity, strict=True))


class NaiveLine:
    """All that wait, in order of arrival, and all servers."""

    def __init__(
        self,
        policy: str,
        capacities: list[Size],
        servers: list[int],
        kinds: list[Size],
        threshold: int | None = None,
    ) -> None:
        self.policy, self.capacities, self.kinds, self.threshold = policy, capacities, kinds, threshold
        self.servers = [Server(n, c, capacities[c]) for n, c in enumerate(servers)]
        for server in self.servers:
            server.filed = server.number
        self.clock = len(servers)
        self.largest = [max(1, *(c[r] for c in capacities)) for r in range(len(capacities[0]))]
        self.waiting: list[Job] = []
        self.started: list[tuple[int, int]] = []
        self.now = 0.0
        self.ends: dict[int, float] = {}
        self.axis = max(2, round(1024 ** (1 / len(self.largest)), 6).__int__())

    # -- which server ---------------------------------------------------------------------------------------------

    def cost(self, job: Job, server: Server) -> float:
        free, own = server.free, server.capacity
        if self.policy == "tetris":
            return sum((-(w / c) / c if c else 0.0) * f for w, c, f in zip(job.size, own, free, strict=True))
        if self.policy.startswith("kubernetes"):
            sign = -1.0 if "least" in self.policy else 1.0
            return sum(sign * (1.0 / c if c else 0.0) * f for c, f in zip(own, free, strict=True))
        sign = -1.0 if self.policy == "worst-fit" else 1.0
        return sum(sign * (1.0 / c) * f for c, f in zip(self.largest, free, strict=True))

    def tied(self, server: Server) -> tuple[object, ...]:
        cell = [f * self.axis // (c + 1) for f, c in zip(server.free, server.capacity, strict=True)]
        return server.kind, cell, server.free, -server.filed

    def server_for(self, job: Job) -> Server | None:
        fitting = [server for server in self.servers if server.swaps_to is None and server.fits(job)]
        if not fitting:
            return None
        if self.policy in ("first-fit", "easy-backfill"):
            return fitting[0]
        return min(fitting, key=lambda server: (self.cost(job, server), *self.tied(server)))

    # -- which job ------------------------------------------------------------------------------------------------

    def job_for(self, server: Server) -> Job | None:
        fitting = [job for job in self.waiting if server.fits(job)]
        if not fitting:
            return None
        if self.policy in ("best-fit", "quickswap"):
            return max(fitting, key=lambda job: (*self.shares(job), -job.name))
        if self.policy == "tetris":
            free, own = server.free, server.capacity

            def dot(job: Job) -> float:
                return sum((w / c) * (f / c) if c else 0.0 for w, c, f in zip(job.size, own, free, strict=True))

            return max(fitting, key=lambda job: (dot(job), -job.name))
        return fitting[0]

    def shares(self, job: Job) -> tuple[float, float]:
        return self.size_of(job.size)

    def size_of(self, size: Size) -> tuple[float, float]:
        parts = [w / c for w, c in zip(size, self.largest, strict=True)]
        return max(parts), sum(parts)

    # -- what happens ---------------------------------------------------------------------------------------------

    def start(self, job: Job, server: Server) -> None:
        assert server.fits(job)
        self.waiting.remove(job)
        server.jobs.append(job)
        self.file(server)
        self.ends[job.name] = self.now + job.expected
        self.started.append((job.name, server.number))

    def file(self, server: Server) -> None:
        self.clock += 1
        server.filed = self.clock

    def arrive(self, job: Job, now: float) -> list[tuple[int, int]]:
        self.started, self.now = [], now
        self.waiting.append(job)
        if self.policy == "easy-backfill":
            self.easy()
        elif (server := self.server_for(job)) is not None:
            self.start(job, server)
        elif self.policy == "quickswap":
            self.swap_one_for(job.kind)
        return self.started

    def complete(self, name: int, now: float) -> list[tuple[int, int]]:
        self.started, self.now = [], now
        server = next(s for s in self.servers if any(job.name == name for job in s.jobs))
        server.jobs = [job for job in server.jobs if job.name != name]
        self.file(server)
        if self.policy == "easy-backfill":
            self.easy()
        elif self.policy == "quickswap":
            self.swapping(server)
        else:
            self.fill(server)
        return self.started

    def fill(self, server: Server) -> None:
        while (job := self.job_for(server)) is not None:
            self.start(job, server)

    # -- EASY -----------------------------------------------------------------------------------------------------

    def easy(self) -> None:
        while self.waiting and (server := self.server_for(self.waiting[0])) is not None:
            self.start(self.waiting[0], server)
        if not self.waiting:
            return
        first = self.waiting[0]
        choices = [(when, server.number) for server in self.servers if (when := self.earliest(first, server))]
        when, on = min(choices, default=(float("inf"), -1))
        for job in self.waiting[1:]:
            for server in self.servers:
                if server.fits(job) and (server.number != on or self.harmless(job, first, server, when)):
                    self.start(job, server)
                    break

    def free_at(self, server: Server, when: float) -> list[int]:
        stay = [job for job in server.jobs if self.end_of(job) > when]
        return [c - sum(job.size[r] for job in stay) for r, c in enumerate(server.capacity)]

    def end_of(self, job: Job) -> float:
        """One that is overdue may end at any moment."""
        return self.ends[job.name] if self.ends[job.name] > self.now else self.now + 1e-12

    def earliest(self, job: Job, server: Server) -> float | None:
        if not server.could_hold(job):
            return None
        for when in sorted(self.end_of(other) for other in server.jobs):
            if all(a <= b for a, b in zip(job.size, self.free_at(server, when), strict=True)):
                return when
        return None

    def harmless(self, job: Job, first: Job, server: Server, when: float) -> bool:
        if self.now + job.expected <= when:
            return True
        spare = [have - take for have, take in zip(self.free_at(server, when), first.size, strict=True)]
        return all(a <= b for a, b in zip(job.size, spare, strict=True))

    # -- Quickswap ------------------------------------------------------------------------------------------------

    def of_kind(self, kind: int) -> list[Job]:
        return [job for job in self.waiting if job.kind == kind]

    def swapping(self, server: Server) -> None:
        kind = server.swaps_to
        if kind is not None:
            line = self.of_kind(kind)
            if sum(other.swaps_to == kind for other in self.servers) <= len(line):
                if not server.fits(line[0]):
                    return
                server.swaps_to = None
                self.file(server)
                self.start(line[0], server)
            else:
                server.swaps_to = None
                self.file(server)
        self.fill(server)
        if self.may_swap(server) and (kind := self.largest_waiting(server)) is not None:
            server.swaps_to = kind

    def may_swap(self, server: Server) -> bool:
        held = {job.kind for job in server.jobs}
        if self.threshold is not None and len(server.jobs) > self.threshold:
            return False
        return bool(held) and server.swaps_to is None and not any(job.kind in held for job in self.waiting)

    def largest_waiting(self, server: Server) -> int | None:
        kinds = [
            kind
            for kind in {job.kind for job in self.waiting}
            if len(self.of_kind(kind)) > sum(other.swaps_to == kind for other in self.servers)
            and all(w <= c for w, c in zip(self.kinds[kind], server.capacity, strict=True))
            and server.kind in self.of_kind(kind)[0].classes
        ]
        found = max(kinds, key=self.rank, default=None)
        if self.threshold is None or found is None:
            return found
        return None if any(self.rank(job.kind) > self.rank(found) for job in server.jobs) else found

    def rank(self, kind: int) -> tuple[float, ...]:
        return (*self.size_of(self.kinds[kind]), -kind)

    def swap_one_for(self, kind: int) -> None:
        ready = [s for s in self.servers if self.may_swap(s) and self.largest_waiting(s) == kind]
        if ready:
            free = {s.number: sum(f / max(c, 1) for f, c in zip(s.free, s.capacity, strict=True)) for s in ready}
            max(ready, key=lambda s: (free[s.number], -s.number)).swaps_to = kind

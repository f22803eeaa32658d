"""nMSR a second time, with lists: servers on a line, slots counted anew each time. The mix of configurations is given.

What two people must agree on beyond the policy's own page, to make the same placements:

- A server that comes, or must change, gets the configuration of its class of which most servers are missing, the first of several.
- Slots are filled by type, from large to small, each with the oldest job, if the type's whole demand fits. Types are
  ordered by the largest share of a resource of the largest servers, then the sum of the shares, then the order of the
  types.
- A server *looks* after its slots were filled, and again after it was filled up: it drains if a waiting job has an open
  slot there for which the type's demand does not fit. Only who does not drain fills up.
- At the end of each event, types one after the other: a queue may have become empty, or be empty no more. Then the
  servers that have an open slot of the type without free capacity use their capacity again, by number. This is repeated
  until nothing changes.
- Where a filler fits several servers, any that is left with least will do (`hint` says which the other one took).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from instances import put_back

Size = Sequence[Any]
TINY = 1e-9


@dataclass
class Server:
    kind: int
    has: int | None = None
    drains: bool = False
    turns: bool = False
    present: bool = True
    jobs: list[Hashable] = field(default_factory=list)


class NaiveNmsr:
    def __init__(
        self,
        demand: Sequence[Size],
        capacities: Sequence[Size],
        rows: Sequence[Sequence[int]],
        owner: Sequence[int],
        low: Sequence[float],
        high: Sequence[float],
        *,
        fill: bool,
        actual: bool,
    ) -> None:
        self.demand, self.capacities, self.fill, self.actual = demand, capacities, fill, actual
        self.rows, self.owner, self.low, self.high = rows, owner, low, high
        self.u = 0.0
        self.servers: dict[int, Server] = {}
        self.queue: list[Hashable] = []
        self.type_of: dict[Hashable, int] = {}
        self.size: dict[Hashable, Size] = {}
        self.age: dict[Hashable, int] = {}
        self.placed: list[tuple[Hashable, int]] = []
        self.waited = [False] * len(demand)
        self.hint: dict[Hashable, int] = {}
        largest = [max(c[r] for c in capacities) or 1 for r in range(len(capacities[0]))]
        share = [[float(w / c) for w, c in zip(d, largest, strict=True)] for d in demand]
        self.order = sorted(range(len(demand)), key=lambda j: (-max(share[j]), -sum(share[j]), j))
        self.largest = largest

    # -- looking --------------------------------------------------------------------------------------------------

    def free(self, n: int) -> list[Any]:
        room = list(self.capacities[self.servers[n].kind])
        for job in self.servers[n].jobs:
            room = [f - w for f, w in zip(room, self.size[job], strict=True)]
        return room

    def fits(self, n: int, size: Size) -> bool:
        return all(w <= f for w, f in zip(size, self.free(n), strict=True))

    def line(self, j: int) -> list[Hashable]:
        return [job for job in self.queue if self.type_of[job] == j]

    def open(self, n: int, j: int) -> bool:
        has = self.servers[n].has
        return has is not None and sum(self.type_of[job] == j for job in self.servers[n].jobs) < self.rows[has][j]

    def wants(self, n: int, j: int) -> bool:
        return self.open(n, j) and not self.fits(n, self.demand[j])

    def present(self, kind: int | None = None) -> list[int]:
        return sorted(n for n, s in self.servers.items() if s.present and kind in (None, s.kind))

    def goals(self, kind: int) -> dict[int, int]:
        """Servers stand at n + U on the shares laid end to end."""
        rows = [k for k in range(len(self.rows)) if self.owner[k] == kind]
        many = len(self.present(kind))
        found = dict.fromkeys(rows, 0)
        for n in range(many):
            for k in rows:
                if self.low[k] * many <= n + self.u + TINY and n + self.u + TINY < self.high[k] * many:
                    found[k] += 1
        return found

    def lacks(self, kind: int) -> dict[int, int]:
        held = [self.servers[n].has for n in self.present(kind)]
        return {k: goal - held.count(k) for k, goal in self.goals(kind).items()}

    # -- doing ----------------------------------------------------------------------------------------------------

    def start(self, job: Hashable, n: int) -> None:
        assert self.fits(n, self.size[job])
        self.queue.remove(job)
        self.servers[n].jobs.append(job)
        self.placed.append((job, n))

    def look(self, n: int) -> None:
        server = self.servers[n]
        server.drains = any(self.wants(n, j) and self.line(j) for j in range(len(self.demand)))
        server.turns = server.turns and server.drains

    def use_room(self, n: int) -> None:
        for j in self.order:
            while self.open(n, j) and self.line(j) and self.fits(n, self.demand[j]):
                self.start(self.line(j)[0], n)
        self.look(n)
        if self.fill and not self.servers[n].drains:
            kind = self.servers[n].kind
            while some := [job for job in self.queue if self.fits(n, self.size[job]) and self.may(job, kind)]:
                self.start(some[0], n)
            self.look(n)

    def may(self, job: Hashable, kind: int) -> bool:
        return all(w <= c for w, c in zip(self.size[job], self.capacities[kind], strict=True))

    def settle(self) -> None:
        changed = True
        while changed:
            changed = False
            for j in range(len(self.demand)):
                if bool(self.line(j)) != self.waited[j]:
                    self.waited[j] = not self.waited[j]
                    changed = True
                    for n in self.present():
                        if self.wants(n, j):
                            self.use_room(n)

    def give_missing(self, n: int) -> None:
        lacks = self.lacks(self.servers[n].kind)
        self.servers[n].has = max(lacks, key=lambda k: (lacks[k], -k)) if lacks else None

    def arrive(self, job: Hashable) -> None:
        j = self.type_of[job]
        while job in self.queue:
            ready = [n for n in self.present() if self.open(n, j) and not self.wants(n, j)]
            if not ready:
                break
            self.use_room(ready[0])
        if self.fill and job in self.queue:
            ready = [n for n in self.present() if not self.servers[n].drains and self.fits(n, self.size[job])]
            if ready:
                left = {
                    n: sum(float(f) / float(c) for f, c in zip(self.free(n), self.largest, strict=True))
                    for n in ready
                }
                least = min(left.values())
                n = self.hint.get(job, ready[0])
                assert n in ready
                assert left[n] <= least + TINY
                self.start(job, n)
                self.look(n)
        self.settle()

    # -- events ---------------------------------------------------------------------------------------------------

    def begin(self, hint: Sequence[tuple[Hashable, int]]) -> None:
        self.placed, self.hint = [], dict(hint)

    def submit(self, job: Hashable, j: int, size: Size) -> None:
        self.type_of[job], self.size[job] = j, size if self.actual else self.demand[j]
        self.age[job] = len(self.age)
        self.queue.append(job)
        self.arrive(job)

    def complete(self, job: Hashable) -> None:
        n = next(n for n, s in self.servers.items() if job in s.jobs)
        self.servers[n].jobs.remove(job)
        if self.servers[n].present:
            self.use_room(n)
            self.settle()

    def requeue(self, job: Hashable) -> None:
        n = next(n for n, s in self.servers.items() if job in s.jobs)
        self.servers[n].jobs.remove(job)
        put_back(self.queue, job, self.age)
        if self.servers[n].present:
            self.use_room(n)
            self.settle()
        if job in self.queue:
            self.arrive(job)

    def cancel(self, job: Hashable) -> None:
        self.queue.remove(job)
        self.settle()

    def join(self, n: int, kind: int) -> None:
        self.servers[n] = Server(kind)
        self.resume(n)

    def resume(self, n: int) -> None:
        self.servers[n].present = True
        self.servers[n].has = None
        self.give_missing(n)
        self.use_room(n)
        self.settle()

    def drain(self, n: int) -> None:
        server = self.servers[n]
        server.present, server.has, server.drains, server.turns = False, None, False, False

    def fail(self, n: int) -> None:
        lost = sorted(self.servers.pop(n).jobs, key=self.age.__getitem__)
        for job in lost:
            put_back(self.queue, job, self.age)
        for job in lost:
            if job in self.queue:
                self.arrive(job)

    def tick(self) -> None:
        if any(self.servers[n].turns for n in self.present()):
            return
        points = [1.0]
        for k, kind in enumerate(self.owner):
            end = self.high[k] * len(self.present(kind))
            if TINY < end - math.floor(end) < 1 - TINY:
                points.append(end - math.floor(end))
        step = min(p for p in points if p > self.u + TINY)
        self.u = 0.0 if step == 1.0 else step
        for k, kind in enumerate(self.owner):
            while self.lacks(kind)[k] < 0:
                lacks = self.lacks(kind)
                to = max(lacks, key=lambda k: (lacks[k], -k))
                n = min(
                    (n for n in self.present(kind) if self.servers[n].has == k), key=lambda n: (self.over(n, to), n)
                )
                self.servers[n].has, self.servers[n].turns = to, True
                self.use_room(n)
        self.settle()

    def over(self, n: int, k: int) -> int:
        held = [self.type_of[job] for job in self.servers[n].jobs]
        return sum(max(0, held.count(j) - self.rows[k][j]) for j in range(len(self.demand)))

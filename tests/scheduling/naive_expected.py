"""`guarded` with expected durations a second time, on top of the naive one without: lists and loops, straight from what docs/theory/guarded.md says.

What two people must agree on beyond the document:

- Urgency is a (m + (a / h)^4) / d, m the largest share of the largest capacities, d the expected duration, at least 1e-12, a the arrivals since, h = max(1, .5 overdue * mean stay) when
  a first is chosen or a server begins to fill; infinite where durations are exact or there are several servers. Of equally urgent jobs the older one.
- Of servers on which the reserved job can start equally early, the one with the lowest number.
- After an event, in this order: the reserved job, or who becomes it, starts where it can; the reservation is searched anew if it is void; the server that has got room fills
  up, then the one that was reserved before and the one that is now, if it was searched anew; last the job that has come.
- A filling is started in the order of sizes, the most urgent jobs of each type first.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from naive_guarded import NaiveGuarded
from naive_knowledge import Sizes


class NaiveExpected(NaiveGuarded):
    """Queues are never very long here, unless there is no server, and no server turns."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.now = 0.0
        self.duration: dict[Hashable, float] = {}
        self.ends: dict[Hashable, float] = {}
        self.first: Hashable | None = (
            None  # for whom there is a reservation, where and when, and what is to spare there
        )
        self.on, self.at, self.spare = -1, -math.inf, [0]
        self.off_schedule, self.long = False, 1.0
        self.reserved = self.too_many = self.stood = self.harmless_starts = self.tight = self.urgent_first = 0
        self.put_off = 0  # how often the other one has put the search for a reservation off

    # -- urgency ----------------------------------------------------------------------------------------------------

    def waited(self, job: Hashable) -> int:
        return len(self.age) - self.age[job]

    def urgency(self, job: Hashable) -> tuple[float, int]:
        share = max(self.shares(self.size[job]))
        waited = self.waited(job)
        square = (waited / self.long) ** 2
        return waited * (share + square**2) / max(self.duration[job], 1e-12), -self.age[job]

    def look_at_waits(self) -> None:
        self.long = max(1.0, 0.5 * self.overdue * self.mean_stay()) if self.reserves_late() else math.inf

    def reserves_late(self) -> bool:
        return self.guessed and len(self.present()) == 1

    def start_job(self, job: Hashable, numbers: Any) -> None:
        self.urgent_first += self.waiting()[0] != job
        super().start_job(job, numbers)
        self.ends[job] = self.now + self.duration[job]

    # -- the reservation ----------------------------------------------------------------------------------------------

    def end_of(self, job: Hashable) -> float:
        return max(self.ends[job], math.nextafter(self.now, math.inf))

    def free_at(self, number: int, when: float) -> list[int]:
        gone = [job for job in self.servers[number].jobs if self.end_of(job) <= when]
        return [f + sum(self.size[job][r] for job in gone) for r, f in enumerate(self.free(number))]

    def earliest(self, number: int, size: Sizes) -> float:
        ends = sorted(self.end_of(job) for job in self.servers[number].jobs)
        for when in ends:
            if all(a >= b for a, b in zip(self.free_at(number, when), size, strict=True)):
                return when
        return math.inf

    def reserve(self, job: Hashable) -> None:
        self.first, self.off_schedule, size = job, False, self.size[job]
        times = {n: self.earliest(n, size) for n in self.present()}
        self.at = min(times.values(), default=math.inf)
        self.on = min((n for n in times if times[n] == self.at < math.inf), default=-1)
        if self.on >= 0:
            self.spare = [a - b for a, b in zip(self.free_at(self.on, self.at), size, strict=True)]
        self.reserved += 1

    def stands(self, job: Hashable) -> bool:
        return job == self.first and self.at > self.now and not self.off_schedule

    def in_time(self, job: Hashable) -> bool:
        return self.now + self.duration[job] <= self.at

    def harmless(self, job: Hashable) -> bool:
        return self.in_time(job) or all(a <= b for a, b in zip(self.size[job], self.spare, strict=True))

    def start_on_reserved(self, job: Hashable) -> None:
        if not self.in_time(job):
            self.spare = [a - b for a, b in zip(self.spare, self.size[job], strict=True)]
        self.start_job(job, [self.on])
        self.harmless_starts += 1

    # -- what happens -------------------------------------------------------------------------------------------------

    def make_plan(self, number: int, job: Hashable | None) -> None:
        if not self.present():
            self.first, self.on = None, -1
            return
        was, first = self.on, self.serve_first()
        new = first is None or not self.stands(first)
        if first is not None:
            self.stood += not new
            if new:
                self.reserve(first)
        self.fill(number)
        if new:
            self.fill(was)
            self.fill(self.on)
        if job is not None and job != first and job in self.lines[self.type_of[job]]:
            self.start_harmless(job)

    def serve_first(self) -> Hashable | None:
        while any(self.lines):
            job = self.first if self.first in self.waiting() else self.choose_first()
            if job is None:
                break
            best = self.best_servers(job)
            if not best:
                return job
            self.first, self.on = None, -1
            self.start_job(job, best)
        self.first, self.on = None, -1
        return None

    def choose_first(self) -> Hashable | None:
        if len(self.present()) > 1 and len(self.waiting()) > self.all_running():
            self.too_many += 1
            return None
        oldest = self.waiting()[0]
        stays, later = (2, 1.1) if self.reserves_late() else (1, 1)
        if self.waited(oldest) >= later * self.overdue_age(oldest):
            self.overdue_first += 1
            return oldest
        self.look_at_waits()
        job = max(self.waiting(), key=self.urgency)
        return job if self.waited(job) >= stays * self.mean_stay() else None

    def fill(self, number: int) -> None:
        if number not in self.present() or not any(self.lines):
            return
        self.look_at_waits()
        if self.as_types and number != self.on:
            counts, _ = self.best_filling(number)
            for job in self.chosen(counts):
                self.start_job(job, [number])
                self.tight += 1
            return
        while fitting := [
            job
            for job in self.waiting()
            if self.fits(number, self.size[job]) and (number != self.on or self.harmless(job))
        ]:
            job = max(fitting, key=self.urgency)
            if number == self.on:
                self.start_on_reserved(job)
            else:
                self.start_job(job, [number])

    def chosen(self, counts: list[int]) -> list[Hashable]:
        return [
            job for j in self.by_size for job in sorted(self.lines[j], key=self.urgency, reverse=True)[: counts[j]]
        ]

    def is_told(self, number: int, counts: list[int]) -> bool:
        jobs = [(job, number) for job in self.chosen(counts)]
        return self.told[: len(jobs)] == jobs

    def start_harmless(self, job: Hashable) -> None:
        if self.on >= 0 and self.fits(self.on, self.size[job]) and self.harmless(job):
            self.start_on_reserved(job)
        elif best := self.best_servers(job, but=self.on):
            self.start_job(job, best)

    def arrive(self, job: Hashable) -> None:
        self.notice_arrival()
        self.notice_queue()
        self.clock += 1
        if self.size[job] != self.demand[self.type_of[job]]:
            self.as_types = False
        self.make_plan(-1, job)

    def end(self, job: Hashable, *, learns: bool, again: bool = False) -> None:
        self.off_schedule |= self.ends[job] != self.now
        super().end(job, learns=learns, again=again)

    def make_use(self, number: int, j: int) -> None:
        self.make_plan(number, None)

    def cancel(self, job: Hashable) -> None:
        self.lines[self.type_of[job]].remove(job)
        self.make_plan(-1, None)

    def join(self, number: int, kind: int) -> None:
        self.add_server(number, kind)
        self.at = -math.inf
        self.make_plan(number, None)

    def resume(self, number: int) -> None:
        self.servers[number].state = "packs"
        self.at = -math.inf
        self.make_plan(number, None)

    def drain(self, number: int) -> None:
        super().drain(number)
        self.at = -math.inf
        self.make_plan(-1, None)

    def remove(self, number: int) -> None:
        if self.servers[number].state != "drains":
            self.drain(number)
        super().remove(number)

    def fail(self, number: int) -> None:
        server = self.servers[number]
        lost = sorted(server.jobs, key=self.age.__getitem__)
        self.off_schedule |= any(self.ends[job] != self.now for job in lost)
        present = server.state != "drains"
        del self.servers[number]
        for job in reversed(lost):
            self.put_back(job)
        if present:
            self.at = -math.inf
            self.make_plan(-1, None)
        for job in lost:
            if job in self.lines[self.type_of[job]]:
                self.arrive(job)

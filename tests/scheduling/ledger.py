"""A bookkeeper beside a scheduler: it hears of events and placements only, and says what must not be.

No capacity exceeded, no started job moved or stopped, no job lost or doubled, and no job placed on a server that is
draining or gone. Each type is served first come, first served, also after a server's failure, unless the policy looks
at all waiting jobs. All sums are exact decimals, computed from the names and sizes that went in.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import Any

from instances import Instance, put_back

from slotwise.scheduling import (
    Cancel,
    Complete,
    Drain,
    Event,
    Fail,
    Join,
    Remove,
    Requeue,
    Resume,
    Scheduler,
    Stop,
    Submit,
)

Vector = tuple[Decimal, ...]


class Ledger:
    """What must be true of a scheduler after each event."""

    def __init__(self, instance: Instance, *, digits: tuple[int, ...], actual: bool, in_order: bool = True) -> None:
        self.instance, self.actual, self.in_order = instance, actual, in_order
        self.units = [Decimal(1).scaleb(-d) for d in digits]
        self.capacity = {c.name: c.capacity for c in instance.cluster.servers}
        self.types = {t.name: t for t in instance.types}
        self.queue: dict[str, list[str]] = {name: [] for name in self.types}
        self.type_of: dict[str, str] = {}
        self.size: dict[str, Vector] = {}
        self.age: dict[str, int] = {}
        self.on: dict[str, str] = {}
        self.open: dict[str, str] = {}  # servers that take jobs, with their class
        self.closed: dict[str, str] = {}  # draining
        for c in instance.cluster.servers:
            self.open |= {f"{c.name}-{n}": c.name for n in range(c.count)}

    # -- events ---------------------------------------------------------------------------------------------------

    def hear(self, event: Event, requeued: list[Any]) -> None:
        """The event itself, before its placements."""
        match event:
            case Submit(job, name, _, demand):
                self.type_of[job], self.age[job] = name, 1 + max(self.age.values(), default=-1)
                self.size[job] = self.sized(name, demand)
                self.queue[name].append(job)
            case Complete(job) | Stop(job):
                del self.on[job]
            case Requeue(job):
                assert requeued == [job]
                self.put_back([job])
            case Cancel(job):
                self.queue[self.type_of[job]].remove(job)
            case Join(server, name):
                self.closed.pop(server, None)
                self.open[server] = name
            case Resume(server):
                self.open |= {server: self.closed.pop(server)} if server in self.closed else {}
            case Drain(server):
                self.closed |= {server: self.open.pop(server)} if server in self.open else {}
            case Remove(server) | Fail(server):
                self.open.pop(server, None)
                self.closed.pop(server, None)
                lost = sorted((job for job, where in self.on.items() if where == server), key=self.age.get)
                assert requeued == lost, "the lost jobs, from old to young"
                self.put_back(lost)

    def put_back(self, jobs: list[Any]) -> None:
        """To where their arrival puts them."""
        for job in jobs:
            del self.on[job]
            put_back(self.queue[self.type_of[job]], job, self.age)

    def sized(self, name: str, demand: dict[str, Decimal] | None) -> Vector:
        """What the job takes: its type's demand, or its own, rounded up to the unit of the resource."""
        size = list(self.types[name].demand)
        if self.actual:
            for r, resource in enumerate(self.instance.cluster.resources):
                if demand is not None:
                    whole = (demand[resource] / self.units[r]).to_integral_value(ROUND_CEILING)
                    size[r] = whole * self.units[r]
        return tuple(size)

    def place(self, placement: tuple[Any, Any]) -> None:
        """One placement, in the order in which they came."""
        job, server = placement
        line = self.queue[self.type_of[job]]
        assert job in line, f"{job} was started but did not wait"
        if self.in_order:
            assert line[0] == job, f"{job} overtook {line[0]} of its own type"
        assert server in self.open, f"{job} was placed on {server}, which takes no jobs"
        line.remove(job)
        self.on[job] = server
        assert min(self.free(server)) >= 0, f"{job} exceeds the capacity of {server}"

    # -- looking --------------------------------------------------------------------------------------------------

    def free(self, server: str) -> Vector:
        """What the jobs on the server leave."""
        left = list(self.capacity[self.open.get(server) or self.closed[server]])
        for job, where in self.on.items():
            if where == server:
                left = [have - take for have, take in zip(left, self.size[job], strict=True)]
        return tuple(left)

    def all_free(self) -> dict[str, Vector]:
        """Of each server that takes jobs."""
        left = {server: list(self.capacity[name]) for server, name in self.open.items()}
        for job, server in self.on.items():
            if server in left:
                left[server] = [have - take for have, take in zip(left[server], self.size[job], strict=True)]
        return {server: tuple(room) for server, room in left.items()}

    def fits(self, job: str, room: Vector) -> bool:
        """Whether the job fits that room."""
        return all(take <= have for take, have in zip(self.size[job], room, strict=True))

    def heads(self) -> list[str]:
        """The first of each line."""
        return [line[0] for line in self.queue.values() if line]

    def waiting(self) -> list[str]:
        """Return all waiting jobs."""
        return [job for line in self.queue.values() for job in line]

    def agree(self, scheduler: Scheduler) -> None:
        """The scheduler's account is ours: every job exactly once, running where it was placed or waiting."""
        assert scheduler.running == self.on
        assert scheduler.waiting == {name: len(line) for name, line in self.queue.items()}
        kinds = [self.type_of[job] for job in self.on]
        assert scheduler.jobs_by_type == {name: len(line) + kinds.count(name) for name, line in self.queue.items()}
        assert sorted(scheduler.servers) == sorted([*self.open, *self.closed])
        state, arrays = scheduler._state, scheduler._store.arrays
        assert state.n_waiting == len(self.waiting())
        assert state.n_running == len(self.on)
        assert state.n_servers == len(self.open)
        assert state.n_free_jobs == state.max_jobs - state.n_waiting - state.n_running
        counts = dict.fromkeys(self.types, 0)
        used = [Decimal(0)] * len(self.units)
        for job in self.on:
            counts[self.type_of[job]] += 1
            used = [total + take for total, take in zip(used, self.size[job], strict=True)]
        assert arrays["running_by_type"].tolist() == list(counts.values())
        if state.keeps_use:
            assert [int(n) * unit for n, unit in zip(arrays["used"], self.units, strict=True)] == used

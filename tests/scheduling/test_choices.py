"""Fit policies, decision by decision, against a search over all servers and all waiting jobs.

Where several servers are equally good, any of them is right: the naive search gives the set, the core's choice must be in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from instances import Events, perform, random_instance
from ledger import Ledger

from slotwise.compiler.kernel import JIT
from slotwise.scheduling import Complete, Join, Requeue, Resume, Scheduler, Stop, make_policy

pytestmark = pytest.mark.core

RUNS, LENGTH = (15, 150) if JIT else (3, 60)
CLOSE = 1e-9


class NaiveFit:
    """The servers that a job may go to, and the jobs that a server may take, by looking at all of them."""

    def __init__(self, name: str, ledger: Ledger, numbers: Callable[[str], int]) -> None:
        self.name, self.ledger, self.numbers = name, ledger, numbers
        capacities = list(ledger.capacity.values())
        self.largest = [max(c[r] for c in capacities) for r in range(len(capacities[0]))]

    def shares(self, room: Any, whole: Any) -> list[float]:
        return [float(have / all_) if all_ else 0.0 for have, all_ in zip(room, whole, strict=True)]

    def dot(self, job: str, server: str, room: Any) -> float:
        whole = self.ledger.capacity[self.ledger.open[server]]
        demand, free = self.shares(self.ledger.size[job], whole), self.shares(room, whole)
        return sum(a * b for a, b in zip(demand, free, strict=True))

    def cost(self, job: str, server: str, room: Any) -> float:
        """The server of the least cost takes the job."""
        whole = self.ledger.capacity[self.ledger.open[server]]
        if self.name in ("best-fit", "myopic-maxweight"):
            return sum(self.shares(room, self.largest))
        if self.name == "worst-fit":
            return -sum(self.shares(room, self.largest))
        if self.name == "kubernetes-least-allocated":
            return -sum(self.shares(room, whole))
        if self.name == "kubernetes-most-allocated":
            return sum(self.shares(room, whole))
        if self.name == "tetris":
            return -self.dot(job, server, room)
        if self.name in ("first-fit", "fifo"):
            return self.numbers(server)
        return 0.0  # random-fit

    def servers_for(self, job: str, rooms: dict[str, Any]) -> set[str]:
        costs = {s: self.cost(job, s, room) for s, room in rooms.items() if self.ledger.fits(job, room)}
        return {s for s, cost in costs.items() if cost <= min(costs.values()) + CLOSE}

    def jobs_for(self, server: str, room: Any) -> set[str]:
        fitting = [job for job in self.ledger.waiting() if self.ledger.fits(job, room)]
        if not fitting:
            return set()
        if self.name == "best-fit":
            value: dict[str, Any] = {job: self.size(job) for job in fitting}
            best = [job for job in fitting if value[job] == max(value.values())]
            return {min(best, key=self.ledger.age.__getitem__)}
        if self.name == "tetris":
            value = {job: self.dot(job, server, room) for job in fitting}
            return {job for job in fitting if value[job] >= max(value.values()) - CLOSE}
        return {min(fitting, key=self.ledger.age.__getitem__)}

    def size(self, job: str) -> Any:
        """Large first: by the largest share of a resource, then by the sum of shares."""
        shares = self.shares(self.ledger.size[job], self.largest)
        return round(max(shares), 9), round(sum(shares), 9)


NAMES = ["best-fit", "first-fit", "worst-fit", "kubernetes-least-allocated", "kubernetes-most-allocated", "tetris"]


@pytest.mark.parametrize("pack_by", ["actual", "type"])
@pytest.mark.parametrize("name", NAMES)
def test_each_choice_is_the_best_there_is(name: str, pack_by: str) -> None:
    choices = 0
    for seed in range(RUNS):
        choices += play(name, pack_by, seed)
    assert choices > RUNS * LENGTH / 20, "hardly any choice among several servers or jobs was seen"


@pytest.mark.parametrize("name", ["fifo", "random-fit"])
def test_fifo_takes_the_first_server_and_random_fit_any(name: str) -> None:
    for seed in range(RUNS):
        play(name, "actual", seed)


def play(name: str, pack_by: str, seed: int) -> int:
    rng = random.Random(f"{name} {seed}")
    instance = random_instance(rng)
    scheduler = Scheduler(instance.cluster, instance.types, make_policy(name, pack_by=pack_by), seed=seed)
    ledger = Ledger(instance, digits=scheduler.sizes.digits, actual=pack_by == "actual", in_order=False)
    naive = NaiveFit(name, ledger, lambda server: scheduler._servers[server])
    events, real = Events(rng, instance), 0
    for _ in range(LENGTH):
        event = events.next(scheduler, ledger.waiting())
        # a server with new room is filled by its own rule before anything is placed elsewhere
        filling = event.server if isinstance(event, Join | Resume) else None
        if isinstance(event, Complete | Stop | Requeue):
            filling = scheduler.running[event.job]
        refills = filling is not None
        placements, requeued = perform(scheduler, event)
        ledger.hear(event, requeued)
        for job, server in placements:
            rooms = ledger.all_free()
            takes = naive.jobs_for(filling, rooms[filling]) if filling in rooms and name != "fifo" else set()
            if takes:
                assert server == filling, f"{job} went elsewhere before {filling} was full"
                assert job in takes, f"{filling} took {job} rather than one of {takes}"
                real += len(ledger.heads()) > 1
            else:
                filling = None
                right = naive.servers_for(job, rooms)
                assert server in right, f"{job} went to {server}, best are {right}"
                real += len(right) < len([r for r in rooms.values() if ledger.fits(job, r)])
                if name == "fifo":
                    assert job == min(ledger.heads(), key=ledger.age.__getitem__)
            ledger.place((job, server))
        if refills and filling in (rooms := ledger.all_free()) and name != "fifo":
            assert not naive.jobs_for(filling, rooms[filling]), f"{filling} has room for somebody who waits"
    return real


def test_random_fit_uses_every_server_that_fits() -> None:
    """Uniformly: over many empty clusters each of three servers is taken about as often."""
    rng = random.Random(3)
    instance = random_instance(rng, n_resources=1, alike=True)
    server = instance.cluster.servers[0].model_copy(update={"count": 3})
    cluster = instance.cluster.model_copy(update={"servers": (server,)})
    scheduler = Scheduler(cluster, instance.types, "random-fit", seed=5)
    counts = dict.fromkeys(scheduler.servers, 0)
    n = 600 if JIT else 150
    for i in range(n):
        ((_job, where, _attempt),) = scheduler.submit(i, instance.types[0].name)
        counts[where] += 1
        scheduler.complete(i)
    assert min(counts.values()) > n / 3 - 4 * (n * 2 / 9) ** 0.5, counts

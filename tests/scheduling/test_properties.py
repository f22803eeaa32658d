"""Every policy, with every option, over random events: nothing is lost, doubled, moved, overfilled or overtaken."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest
from instances import ALL_EVENTS, Events, pairs, perform, random_instance
from ledger import Ledger
from variants import VARIANTS, label, looks_at_all

from slotwise.compiler.kernel import JIT
from slotwise.core.state import ACTIVE, MODE, PRESENT, STALLED, STATUS
from slotwise.errors import InputError
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling import Cancel, Event, Join, Scheduler, Submit, make_policy

pytestmark = pytest.mark.core

RUNS, LENGTH = (6, 120) if JIT else (2, 60)

WORK_CONSERVING = {
    "best-fit",
    "first-fit",
    "worst-fit",
    "random-fit",
    "kubernetes-least-allocated",
    "kubernetes-most-allocated",
    "tetris",
    "myopic-maxweight",
    "vqs-bf",
}


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_nothing_is_lost_doubled_moved_overfilled_or_overtaken(variant: tuple[str, dict[str, Any]]) -> None:
    for seed in range(RUNS):
        play(variant, seed, LENGTH)


@pytest.mark.parametrize(
    "variant",
    [
        ("algorithm1", {"beta": 0.9}),
        ("m14", {"queues": "own"}),
        ("g16", {"alpha": 5.0}),
        *[(name, {}) for name in ("first-fit", "best-fit", "random-fit", "vqs-bf", "easy-backfill")],
    ],
    ids=label,
)
def test_the_same_when_the_state_grows(variant: tuple[str, dict[str, Any]]) -> None:
    """More servers than the first 64 and, where the compiler helps, more jobs than the first 1024."""
    play(variant, 1000, 80 if JIT else 40, busy=True)


def play(variant: tuple[str, dict[str, Any]], seed: int, length: int, *, busy: bool = False) -> None:
    """A random run: each event is checked by the ledger."""
    name, options = variant
    rng = random.Random(f"{name} {seed}")
    alone = name in ("vqs", "vqs-bf")
    instance = random_instance(rng, n_resources=1 if alone else None, alike=alone)
    policy, digits = make_policy(name, **options), rng.choice([0, 2])
    scheduler = Scheduler(instance.cluster, instance.types, policy, seed=seed, digits=digits)
    events = Events(rng, instance, durations=policy.needs_durations)
    if scheduler.tick_rate > 0:
        events.weights["tick"] = 60
    ledger = Ledger(
        instance,
        digits=scheduler.sizes.digits,
        actual=policy.actual,
        in_order=options.get("queues") != "own" and not looks_at_all(policy),
    )
    checks = Checks(scheduler, ledger, variant)
    if busy:
        grow(scheduler, events, ledger, checks)
    for _ in range(length):
        step(scheduler, events.next(scheduler, ledger.waiting()), ledger, checks)


def grow(scheduler: Scheduler, events: Events, ledger: Ledger, checks: Checks) -> None:
    """Past the first 64 servers, with jobs on them and waiting."""
    for n in range(70):
        step(scheduler, Join(f"more{n}", events.instance.cluster.servers[0].name, events.now), ledger, checks)
        step(scheduler, events.submission(), ledger, checks)
    assert scheduler._state.max_servers > 64
    if JIT:
        while len(scheduler._jobs) <= 1024:  # checked as a whole: the ledger's own books are slow
            event = events.submission()
            placements, requeued = perform(scheduler, event)
            ledger.hear(event, requeued)
            for placement in placements:
                ledger.place(placement)
        assert scheduler._state.max_jobs > 1024
    ledger.agree(scheduler)


def step(scheduler: Scheduler, event: Event, ledger: Ledger, checks: Checks) -> None:
    placements, requeued = perform(scheduler, event)
    ledger.hear(event, requeued)
    for placement in placements:
        ledger.place(placement)
    ledger.agree(scheduler)
    checks.after({server for _, server in placements})


class Checks:
    """What is true of one family of policies only."""

    def __init__(self, scheduler: Scheduler, ledger: Ledger, variant: tuple[str, dict[str, Any]]) -> None:
        self.scheduler, self.ledger = scheduler, ledger
        self.name, self.options = variant
        self.stalled: set[Any] = set()

    def after(self, started_on: set[Any]) -> None:
        if self.name in WORK_CONSERVING:
            ledger = self.ledger
            self.none_fits(ledger.waiting() if looks_at_all(self.scheduler.policy) else ledger.heads())
        elif self.name == "fifo":
            heads = self.ledger.heads()
            self.none_fits([min(heads, key=self.ledger.age.__getitem__)] if heads else [])
        elif self.name in ("algorithm1", "m14"):
            self.slots_are_kept(started_on)

    def none_fits(self, heads: list[str]) -> None:
        rooms = self.ledger.all_free()
        for job in heads:
            for server, room in rooms.items():
                assert not self.ledger.fits(job, room), f"{job} waits but fits {server}"

    def slots_are_kept(self, started_on: set[Any]) -> None:
        """running <= slots while active, nothing started while stalled, no empty slot of a type that waits."""
        arrays, own = self.scheduler._store.arrays, self.options.get("queues") == "own"
        rows, slots, running = arrays["servers"], self.scheduler._store.configuration, self.scheduler._store.running
        J = len(self.ledger.types)
        stalled = set()
        for name, number in self.scheduler._servers.items():
            if rows[number, STATUS] != PRESENT:
                continue
            mode = rows[number, MODE]
            if mode == ACTIVE:
                assert (running[number] <= slots[number]).all(), f"{name} has more jobs than slots"
                self.configuration_fits(name, slots[number])
                for j in range(J):
                    waits = arrays["queues"][number * J + j if own else j, 0] > 0
                    assert not (waits and running[number, j] < slots[number, j]), f"{name} has a slot that waits"
            elif mode == STALLED:
                assert self.name == "algorithm1"
                stalled.add(name)
                assert running[number].sum() > 0, "an empty server is not stalled after an event"
                assert name not in self.stalled & started_on, f"{name} started a job while stalled"
            else:
                assert running[number].sum() == 0
                for j in range(J):
                    waits = arrays["queues"][number * J + j if own else j, 0] > 0
                    fits = arrays["most"][rows[number, 0], j] > 0
                    assert not (waits and fits), f"{name} is empty and type {j} waits"
        self.stalled = stalled
        assert self.scheduler._state.n_stalled == len(stalled)

    def configuration_fits(self, server: str, slots: Any) -> None:
        room = self.ledger.capacity[self.ledger.open[server]]
        for r, have in enumerate(room):
            total = sum(
                (int(n) * t.demand[r] for n, t in zip(slots, self.ledger.instance.types, strict=True)), Decimal(0)
            )
            assert total <= have, f"the slots of {server} do not fit it"


def test_stalls_and_resets_really_happen() -> None:
    """The runs above would prove nothing about stalling if nothing ever stalled."""
    seen = {"stalls": 0, "resets": 0}
    for seed in range(16):
        rng = random.Random(seed)
        instance = random_instance(rng)
        scheduler = Scheduler(instance.cluster, instance.types, "algorithm1", beta=0.95)
        events = Events(rng, instance, weights=ALL_EVENTS | {"submit": 60})
        waiting: list[str] = []
        for _ in range(200):
            event = events.next(scheduler, waiting)
            placements, requeued = perform(scheduler, event)
            waiting += [event.job] if isinstance(event, Submit) else requeued
            if isinstance(event, Cancel):
                waiting.remove(event.job)
            for job, _server in placements:
                waiting.remove(job)
        seen["stalls"] += scheduler._state.stalls
        seen["resets"] += scheduler._state.resets
    assert seen["stalls"] > 20
    assert seen["resets"] > 100


def two_sizes(small: int, large: int) -> tuple[Cluster, list[JobType]]:
    servers = (
        ServerClass(name="small", count=small, capacity=(3,)),
        ServerClass(name="large", count=large, capacity=(9,)),
    )
    types = [JobType(name="one", demand=(1,)), JobType(name="five", demand=(5,))]
    return Cluster(resources=("r",), servers=servers), types


@pytest.mark.parametrize("name", ["algorithm1", "m14", "best-fit", "fifo", "vqs-bf", "easy-backfill"])
def test_jobs_of_a_failed_server_start_again_together_and_in_order(name: str) -> None:
    cluster, types = two_sizes(2, 0)
    if name == "vqs-bf":
        cluster, types = cluster.model_copy(update={"servers": cluster.servers[:1]}), types[:1]
    scheduler = Scheduler(cluster, types, name)
    for job in ("a", "b"):
        scheduler.submit(job, "one", duration=1.0, now=0.0)
    home = scheduler.running["a"]
    assert scheduler.running == {"a": home, "b": home}
    other = next(server for server in scheduler.servers if server != home)
    outcome = scheduler.fail_server(home, now=0.0)
    assert outcome.requeued == ("a", "b")
    assert outcome.placements == (("a", other, 2), ("b", other, 2))


def test_with_room_for_one_the_older_job_starts_again() -> None:
    cluster, types = two_sizes(2, 0)
    scheduler = Scheduler(cluster, types, "first-fit")
    for job in "abcde":
        scheduler.submit(job, "one")
    assert scheduler.fail_server("small-0") == ((("a", "small-1", 2),), ("a", "b", "c"), None)
    scheduler.complete("d")
    assert scheduler.running == {"a": "small-1", "b": "small-1", "e": "small-1"}


def test_jobs_that_no_server_takes_wait_apart_while_the_state_grows() -> None:
    """One queue per server: jobs that no server can hold are not lost when 64 more servers of the wrong kind join."""
    cluster, types = two_sizes(1, 0)
    scheduler = Scheduler(cluster, types, "m14", queues="own")
    for n in range(3):
        assert scheduler.submit(f"five{n}", "five") == []
    assert scheduler.explain("five1").because[-1].reason.name == "FITS_NO_SERVER"
    for n in range(64):
        assert scheduler.add_server(f"more{n}", "small") == []
    assert scheduler._state.max_servers > 64
    assert scheduler.submit("five3", "five") == []
    assert pairs(scheduler.add_server("big", "large")) == [("five0", "big")]
    assert [pairs(scheduler.complete(f"five{n}")) for n in range(3)] == [
        [(f"five{n + 1}", "big")] for n in range(3)
    ]


@pytest.mark.parametrize("name", ["vqs", "vqs-bf"])
def test_vqs_is_refused_where_it_is_not_for(name: str) -> None:
    two = Cluster(resources=("a", "b"), servers=(ServerClass(name="s", count=1, capacity=(4, 4)),))
    with pytest.raises(
        InputError, match="one resource and servers of one size, without requirements; use another policy"
    ):
        Scheduler(two, [JobType(name="t", demand=(1, 1))], name)
    unlike = Cluster(
        resources=("a",),
        servers=(ServerClass(name="s", count=1, capacity=(4,)), ServerClass(name="l", count=1, capacity=(8,))),
    )
    with pytest.raises(InputError, match="one resource and servers of one size"):
        Scheduler(unlike, [JobType(name="t", demand=(1,))], name)

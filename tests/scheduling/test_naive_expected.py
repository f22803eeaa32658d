"""The core and the naive `guarded` with expected durations agree on every placement, event for event, and on every reservation."""

from __future__ import annotations

import random
from typing import Any

import pytest
from instances import ALL_EVENTS, Events, Instance, perform, random_instance, still_waiting
from naive_expected import NaiveExpected
from test_naive_guarded import beside, naive_step

from slotwise.compiler.kernel import JIT
from slotwise.policies.backfill import reservation
from slotwise.policies.guarded import memory
from slotwise.scheduling import Complete, Scheduler, make_policy
from slotwise.scheduling.events import Event

pytestmark = pytest.mark.core

RUNS, LENGTH = (60, 300) if JIT else (6, 100)


class OnTime(Events):
    """Jobs often end just when they are expected to."""

    def next(self, scheduler: Scheduler, waiting: list[str]) -> Event:
        if self.rng.random() < 0.4 and scheduler.running:
            times, known = scheduler._store.arrays["job_times"], scheduler._jobs
            end, job = min((float(times[known[job], 1]), job) for job in scheduler.running)
            if end >= self.now:
                self.now = end
                return Complete(job, end, scheduler.attempt(job))
        return super().next(scheduler, waiting)


@pytest.mark.parametrize("actual", [0.0, 0.5], ids=["as types", "less than types"])
@pytest.mark.parametrize("options", [{}, {"overdue": 1.5}, {"durations": "estimate", "overdue": 1.5}], ids=str)
def test_the_core_places_as_the_naive_one_does(options: dict[str, Any], actual: float) -> None:
    policy = make_policy("guarded", **{"durations": "exact", **options})
    runs = [same(policy, seed, actual) for seed in range(RUNS)]
    if not JIT:
        return  # too few to meet all of these
    assert sum(run.too_many for run in runs) > RUNS / 4, "never too many wait"
    assert sum(run.reserved for run in runs) > RUNS / 4, "nothing is reserved"
    assert sum(run.stood for run in runs) > RUNS / 4, "no reservation stands"
    assert sum(run.harmless_starts for run in runs) > RUNS / 4, "nobody starts on a reserved server"
    assert sum(run.urgent_first for run in runs) > RUNS / 4, "nobody overtakes"
    assert sum(run.tight for run in runs) > RUNS / 4 or actual, "no tight filling"
    assert sum(run.overdue_first for run in runs) > RUNS / 20 or not options, "nobody is overdue"


def test_the_search_for_a_reservation_on_the_only_server_is_put_off_and_finds_the_same() -> None:
    policies = [make_policy("guarded", durations=known) for known in ("exact", "estimate")]
    runs = [same(policies[seed // 2 % 2], seed, 0.5 * (seed % 2), alone=True) for seed in range(RUNS)]
    assert sum(run.put_off for run in runs) > RUNS / 4, "no search is put off"


@pytest.mark.skipif(JIT, reason="the number is compiled in")
def test_the_ends_of_many_jobs_are_tried_one_by_one_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "FEW", 1)
    runs = [same(make_policy("guarded", durations="exact"), seed, 0.5 * (seed % 2)) for seed in range(3 * RUNS)]
    assert sum(run.reserved for run in runs) > 0, "nothing is reserved"


def same(policy: Any, seed: int, actual: float, alone: bool = False) -> NaiveExpected:
    rng = random.Random(f"expected {seed}")
    instance = random_instance(rng, alike=alone)
    if alone:
        one = instance.cluster.servers[0].model_copy(update={"count": 1})
        instance = Instance(instance.cluster.model_copy(update={"servers": (one,)}), instance.types)
    scheduler = Scheduler(instance.cluster, instance.types, policy, seed=seed)
    naive, kinds, types = beside(NaiveExpected, scheduler, seed)
    weights = ALL_EVENTS | {"submit": rng.choice([40, 55]), "join": rng.choice([1, 4])}
    if alone:
        weights |= {"join": 0, "drain": 1, "remove": 0, "fail": 0}
    events = OnTime(rng, instance, actual=actual, weights=weights, durations=True)
    waiting: list[Any] = []
    for _ in range(LENGTH):
        numbers = dict(scheduler._servers)
        event = events.next(scheduler, waiting)
        placements, requeued = perform(scheduler, event)
        numbers |= scheduler._servers
        naive.now, naive.told = event.now, [(job, numbers[server]) for job, server in placements]
        naive_step(naive, event, scheduler, kinds, types, numbers)
        assert naive.told == [], f"seed {seed}: {event} starts less"
        waiting = still_waiting(waiting, event, placements, requeued)
        if reservation.is_put_off(scheduler._state, memory.RESERVATION):
            naive.put_off += 1
            if rng.random() < 0.5:
                continue  # what is found later must be the same
        agree_on_reservation(naive, scheduler, f"seed {seed}: {event}")
    assert scheduler._state.stalls == 0
    return naive


def agree_on_reservation(naive: NaiveExpected, scheduler: Scheduler, where: str) -> None:
    state = scheduler._state
    reservation.settle(state, memory.RESERVATION)
    i = reservation.holder(state, memory.RESERVATION)
    first = scheduler._register.job_of[i] if i >= 0 else None
    assert first == (naive.first if naive.first in naive.waiting() else None), where
    if first is not None:
        assert reservation.reserved_server(state, memory.RESERVATION) == naive.on, where
        assert reservation.reserved_at(state, memory.RESERVATION) == naive.at, where

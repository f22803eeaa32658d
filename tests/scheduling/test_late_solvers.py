"""A scheduler looks for the configurations of a class when it first needs them: it decides as if it had looked for them at once."""

from __future__ import annotations

import random

import pytest
from instances import Events, perform, random_instance, still_waiting

from slotwise.compiler.kernel import JIT
from slotwise.policies import make_policy
from slotwise.policies.guarded import Guarded
from slotwise.scheduling import Complete, Scheduler, Situation, Submit

pytestmark = pytest.mark.core

RUNS, LENGTH = (20, 150) if JIT else (4, 60)


def unsolved(scheduler: Scheduler) -> set[int]:
    return set(scheduler._store.unsolved)


def test_late_and_early_decide_alike() -> None:
    late_ones = solved_since = 0
    for seed in range(RUNS):
        rng = random.Random(seed)
        instance = random_instance(rng)
        events = Events(rng, instance)
        late, early = (Scheduler(instance.cluster, instance.types, "guarded", margin=0.3) for _ in range(2))
        early.solve()
        assert not unsolved(early)
        waiting: list[str] = []
        for n in range(LENGTH):
            before = unsolved(late)
            event = events.next(late, waiting)
            decided = perform(late, event)
            assert decided == perform(early, event)
            waiting = still_waiting(waiting, event, *decided)
            solved_since += unsolved(late) < before
            if n % 40 == 39:  # types change now and then: all is forgotten
                late = Scheduler.from_situation(Situation.from_json(late.situation().to_json()))
                assert len(unsolved(late)) == len(instance.cluster.servers)
        late_ones += len(unsolved(late))
    assert solved_since > RUNS
    assert late_ones > 0, "some class is never needed"


def test_only_jobs_that_leave_while_others_wait_make_the_core_look_for_configurations() -> None:
    instance = random_instance(random.Random(3), alike=True)
    scheduler = Scheduler(instance.cluster, instance.types)
    kind = instance.types[0].name
    for n in range(200):
        scheduler.apply(Submit(n, kind, 1.0))
    assert scheduler.waiting[kind] > 0
    assert unsolved(scheduler) == {0}
    scheduler.apply(Complete(next(iter(scheduler.running)), 2.0, 1))
    assert not unsolved(scheduler)


def test_a_subclass_with_other_hooks_gets_its_solvers_at_once() -> None:
    class Other(Guarded):
        arrive = staticmethod(lambda s, j, i: None)

    instance = random_instance(random.Random(3))
    assert make_policy("guarded").solves_late
    for policy in (Other(), make_policy("algorithm1"), make_policy("best-fit")):
        assert not unsolved(Scheduler(instance.cluster, instance.types, policy))


def test_a_search_that_is_cut_off_goes_on_with_the_best_that_it_has_found() -> None:
    """With one node a search finds what it begins with. That may be less than the best, and never does not fit."""
    differs = 0
    for seed in range(RUNS):
        rng = random.Random(seed)
        instance = random_instance(rng, n_resources=2)
        events = Events(rng, instance)
        cut, whole = (
            Scheduler(instance.cluster, instance.types, "guarded", margin=0.1, solver="search") for _ in range(2)
        )
        cut._state.most_nodes = 1
        waiting: list[str] = []
        for _ in range(LENGTH):
            event = events.next(cut, waiting)
            decided = perform(cut, event)
            waiting = still_waiting(waiting, event, *decided)
            if decided != perform(whole, event):
                differs += 1
                break
            assert (cut._store.arrays["free"] >= 0).all()
    assert differs < RUNS

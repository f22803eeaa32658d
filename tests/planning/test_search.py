"""The search on made-up truths that are known in full: it must find the cheapest, as brute force does."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.errors import SlotwiseError
from slotwise.model import Scenario, parse_scenario
from slotwise.planning import search
from slotwise.planning.limit import cheapest
from slotwise.planning.trials import Counts, TargetAnswer, TargetQuestion, Trial, Trials
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.workload import jobs_of


def scenario(prices: list[float]) -> Scenario:
    servers = [
        {"name": f"s{c}", "count": 1, "capacity": [4 * (c + 1)], "price": price} for c, price in enumerate(prices)
    ]
    types = [{"name": "a", "demand": [1], "rate": 10}, {"name": "b", "demand": [3], "rate": 2}]
    return parse_scenario({"cluster": {"resources": ["r"], "servers": servers}, "types": types})


class Oracle(Trials):
    """Knows the answer instead of simulating."""

    def __init__(
        self, prices: list[float], truth: Callable[[Counts], bool], luck: Callable[[Counts], bool] | None = None
    ) -> None:
        ready = scenario(prices)
        super().__init__(
            TargetQuestion(ready, jobs_of(ready), Choice("algorithm1"), {"p95_wait": 1.0}, 0.95, tuple(prices)),
            looks=1,
        )
        self.truth = truth
        self.luck = luck or truth
        """what the first look at some servers says"""

    def _simulate(self, counts: Counts, first: int = 0, longer: int = 1) -> Trial:
        verdict = TargetAnswer.MEETS if (self.truth if first else self.luck)(counts) else TargetAnswer.MISSES
        return Trial(counts, self.question.cost(counts), verdict, "", 4, {})


def free(trials: Trials) -> search.Bounds:
    return search.Bounds((0,) * len(trials.question.costs))


def limit_of(trials: Trials) -> search.Limit:
    capacity = trials.question.jobs.sizes.capacity.astype(float)
    return cheapest(trials.rho, np.zeros(1), trials.pricings, capacity, np.array(trials.question.costs))


@settings(max_examples=40, derandomize=True, deadline=None)
@given(answer=st.integers(1, 200))
def test_one_class_finds_the_least_number(answer: int) -> None:
    trials = Oracle([1.0], lambda counts: counts[0] >= answer)
    mix, start = search.scaled_mix(limit_of(trials), free(trials))
    assert start == 4  # 16 units of load fill 4 servers to the brim, which no policy can carry: 5 is the least
    found = search.along(trials, mix, start)
    assert found.servers == (max(answer, 5),)
    assert len(trials.done) <= 16


@settings(max_examples=20, derandomize=True, deadline=None)
@given(
    prices=st.lists(st.sampled_from([0.7, 1.0, 1.5, 2.2, 3.1]), min_size=2, max_size=3),
    weights=st.lists(st.sampled_from([1.0, 1.8, 2.9, 0.4]), min_size=3, max_size=3),
    enough=st.floats(8, 25),
)
def test_the_cheapest_mix_is_that_of_brute_force(prices: list[float], weights: list[float], enough: float) -> None:
    def truth(counts: Counts) -> bool:
        return sum(w * n for w, n in zip(weights, counts, strict=False)) >= enough

    trials = Oracle(prices, truth)
    limit = limit_of(trials)
    mix, start = search.scaled_mix(limit, free(trials))
    first = search.along(trials, mix, start)
    best, complete = search.cheaper(trials, first, limit, budget=10_000, bounds=free(trials), patience=10_000)
    assert complete
    assert truth(best.servers)
    most = [int(best.cost / price) + 1 for price in prices]
    missed = [
        counts
        for counts in itertools.product(*(range(n + 1) for n in most))
        if any(counts)
        and trials.question.cost(counts) < best.cost - 1e-9
        and truth(counts)
        and not trials.impossible(counts)
    ]
    assert missed == []


def test_a_budget_that_runs_out_is_said() -> None:
    trials = Oracle([1.0, 1.9], lambda counts: counts[0] + counts[1] >= 30)
    limit = limit_of(trials)
    mix, start = search.scaled_mix(limit, free(trials))
    first = search.along(trials, mix, start)
    _, complete = search.cheaper(trials, first, limit, budget=0, bounds=free(trials))
    assert not complete


def test_patience_that_runs_out_is_said() -> None:
    trials = Oracle([1.0, 1.0], lambda counts: counts[0] >= 20 and counts[1] >= 20)
    limit = limit_of(trials)
    first = trials.of((22, 20))
    best, complete = search.cheaper(trials, first, limit, 10_000, free(trials), patience=3)
    assert not complete
    assert trials.confirm(best.servers).meets
    fails = [trial.meets for trial in trials.done.values()][-3:]
    assert fails == [False] * 3
    _, complete = search.cheaper(trials, first, limit, 10_000, free(trials), patience=10_000)
    assert complete
    assert min(trial.cost for trial in trials.done.values() if trial.meets) == 40


def test_only_what_would_be_proposed_is_confirmed() -> None:
    """A confirmation takes several times as long as a trial."""
    confirmed = []

    class Counting(Oracle):
        def _simulate(self, counts: Counts, first: int = 0, longer: int = 1) -> Trial:
            if first:
                confirmed.append(counts)
            return super()._simulate(counts, first, longer)

    trials = Counting([1.0, 1.9], lambda c: c[0] + 2 * c[1] >= 30)
    best, _ = search.cheaper(trials, trials.of((40, 2)), limit_of(trials), 10_000, free(trials), 10_000)
    assert confirmed == [best.servers]
    assert len([trial for trial in trials.done.values() if trial.meets]) > 2


def test_what_cannot_be_reached_is_said() -> None:
    trials = Oracle([1.0], lambda counts: False)
    mix, start = search.scaled_mix(limit_of(trials), free(trials))
    with pytest.raises(SlotwiseError, match="out of reach"):
        search.along(trials, mix, start)


@settings(max_examples=20, derandomize=True, deadline=None)
@given(
    enough=st.integers(8, 40), least=st.tuples(*[st.integers(0, 8)] * 2), room=st.tuples(*[st.integers(0, 30)] * 2)
)
def test_within_bounds_it_is_that_of_brute_force(enough: int, least: Counts, room: Counts) -> None:
    most = tuple(a + b for a, b in zip(least, room, strict=True))
    trials = Oracle([1.0, 1.7], lambda counts: counts[0] + 2 * counts[1] >= enough)
    bounds = search.Bounds(least, most)
    limit = limit_of(trials)
    reachable = [
        counts
        for counts in itertools.product(*(range(a, b + 1) for a, b in zip(least, most, strict=True)))
        if trials.truth(counts) and not trials.impossible(counts)
    ]
    mix, start = search.scaled_mix(limit, bounds)
    if not reachable:
        with pytest.raises(SlotwiseError, match="out of reach"):
            search.confirmed(trials, mix, start)
        return
    first = search.confirmed(trials, mix, start)
    best, complete = search.cheaper(trials, first, limit, 10_000, bounds, 10_000)
    assert complete
    assert best.cost == pytest.approx(min(map(trials.question.cost, reachable)))
    assert all(a <= n <= b for a, n, b in zip(least, best.servers, most, strict=True))


def test_what_was_lucky_is_not_proposed() -> None:
    """The first look says yes from 9 servers on, the second, with other random numbers, from 14 on."""
    trials = Oracle([1.0], lambda counts: counts[0] >= 14, lambda counts: counts[0] >= 9)
    mix, start = search.scaled_mix(limit_of(trials), free(trials))
    assert search.confirmed(trials, mix, start).servers == (14,)
    two = Oracle([1.0, 1.9], lambda c: c[0] + 2 * c[1] >= 30, lambda c: c[0] + 2 * c[1] >= 24)
    mix, start = search.scaled_mix(limit_of(two), free(two))
    first = search.confirmed(two, mix, start)
    best, _ = search.cheaper(two, first, limit_of(two), 10_000, free(two), 10_000)
    assert best.servers[0] + 2 * best.servers[1] >= 30
    assert best.cost <= 29

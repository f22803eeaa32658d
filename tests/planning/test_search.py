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
from slotwise.planning.trials import Answer, Counts, Question, Trial, Trials
from slotwise.simulation.choice import Choice
from slotwise.simulation.workload import jobs_of


def scenario(prices: list[float]) -> Scenario:
    servers = [
        {"name": f"s{c}", "count": 1, "capacity": [4 * (c + 1)], "price": price} for c, price in enumerate(prices)
    ]
    types = [{"name": "a", "demand": [1], "rate": 10}, {"name": "b", "demand": [3], "rate": 2}]
    return parse_scenario({"cluster": {"resources": ["r"], "servers": servers}, "types": types})


class Oracle(Trials):
    """Knows the answer instead of simulating."""

    def __init__(self, prices: list[float], truth: Callable[[Counts], bool]) -> None:
        ready = scenario(prices)
        super().__init__(
            Question(ready, jobs_of(ready), Choice("algorithm1"), {"p95_wait": 1.0}, 0.95, tuple(prices)), looks=1
        )
        self.truth = truth

    def _simulate(self, counts: Counts) -> Trial:
        verdict = Answer.MEETS if self.truth(counts) else Answer.MISSES
        return Trial(counts, self.question.cost(counts), verdict, "", 4, {})


def limit_of(trials: Trials) -> search.Limit:
    capacity = trials.question.jobs.sizes.capacity.astype(float)
    return cheapest(trials.rho, np.zeros(1), trials.pricings, capacity, np.array(trials.question.costs))


@settings(max_examples=40, derandomize=True, deadline=None)
@given(answer=st.integers(1, 200))
def test_one_class_finds_the_least_number(answer: int) -> None:
    trials = Oracle([1.0], lambda counts: counts[0] >= answer)
    mix, start = search.scaled_mix(limit_of(trials))
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
    mix, start = search.scaled_mix(limit)
    first = search.along(trials, mix, start)
    best, complete = search.cheaper(trials, first, limit, budget=10_000)
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
    mix, start = search.scaled_mix(limit)
    first = search.along(trials, mix, start)
    _, complete = search.cheaper(trials, first, limit, budget=0)
    assert not complete


def test_what_cannot_be_reached_is_said() -> None:
    trials = Oracle([1.0], lambda counts: False)
    mix, start = search.scaled_mix(limit_of(trials))
    with pytest.raises(SlotwiseError, match="out of reach"):
        search.along(trials, mix, start)

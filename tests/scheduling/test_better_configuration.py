"""`better_configuration` against the best configuration of all: it finds that one, or says rightly that none weighs more."""

from __future__ import annotations

import numpy as np
import pytest
from test_indexes import store_of

from slotwise.compiler.kernel import JIT
from slotwise.core.indexes.weights import better_configuration
from slotwise.core.state import CLASS
from slotwise.packing.enumeration import enumerate_maximal
from slotwise.packing.space import Space

CAPACITY = [[10, 10], [14, 9]]


def best_of_all(demand: np.ndarray, capacity: list[int], weights: np.ndarray) -> float:
    """Return the most weight of a configuration, by listing all."""
    listed = enumerate_maximal(Space.additive(demand, capacity)).configurations
    return float((listed @ weights).max())


@pytest.mark.core
@pytest.mark.parametrize("solver", ["search", "dp", "enumerate"])
def test_finds_the_best_or_says_that_none_weighs_more(solver: str) -> None:
    rng = np.random.default_rng(5)
    demand = rng.integers(2, 7, (9, 2))
    store = store_of("guarded", demand, CAPACITY, 6, solver=solver)
    store.arrays["servers"][:, CLASS] = np.arange(6) % 2
    weights, found, none = np.ones(9), 0, 0
    for step in range(300 if JIT else 30):
        weights[rng.integers(0, 9, 2)] += rng.random(2) * 3.0
        if step % 40 == 0:
            weights = rng.random(9)
        store.arrays["weight"][:] = weights
        server = int(rng.integers(6))
        best = best_of_all(demand, CAPACITY[server % 2], weights)
        than = best * rng.choice([0.5, 0.9, 0.999, 1.001, 1.1, 2.0])
        answer = better_configuration(store.state, server, than)
        if than < best:
            chosen = store.arrays["choice"][0]
            assert answer == pytest.approx(best)
            assert chosen @ weights == pytest.approx(best)
            assert (chosen @ demand <= CAPACITY[server % 2]).all()
            found += 1
        else:
            assert answer == -1.0
            none += 1
    assert found > 3
    assert none > 3

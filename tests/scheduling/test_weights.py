"""The weight that others are measured by, against the best there is."""

from __future__ import annotations

import numpy as np
import pytest
from test_followed import set_queues
from test_indexes import store_of

from slotwise.compiler.kernel import JIT
from slotwise.core.indexes.weights import about_best_weight, best_above, best_configuration, best_weight
from slotwise.core.state import CLASS, SOLVER
from slotwise.packing.kernels import BRANCH_AND_BOUND


@pytest.mark.core
@pytest.mark.parametrize("solver", ["search", "dp", "enumerate"])
def test_where_the_best_is_found_it_is_the_measure(solver: str) -> None:
    """Whether or not weights have changed since it was last asked for, and whatever was searched in between."""
    rng = np.random.default_rng(5)
    store = store_of("guarded", rng.integers(2, 7, (9, 2)), [[10, 10], [14, 9]], 6, solver=solver)
    store.arrays["servers"][:, CLASS] = np.arange(6) % 2
    queue = np.zeros(9, np.int64)
    for step in range(200 if JIT else 20):
        if step % 3:
            queue[rng.integers(0, 9, 2)] += 1
        if step % 50 == 0:
            queue[:] = 0
        set_queues(store, queue)
        server = int(rng.integers(6))
        if step % 4 == 0:
            best_above(store.state, server, 1.0, 0.5)
        if step % 5 == 0:
            best_configuration(store.state, (server + 1) % 6)
        assert about_best_weight(store.state, server) == best_weight(store.state, server)


def test_where_the_best_is_hard_to_find_the_measure_is_near_it_and_no_more() -> None:
    """It is the same whatever was drawn before, and the search for who takes a configuration goes on to its end."""
    rng = np.random.default_rng(6)
    demand = rng.integers(150, 400, (120, 3))
    store = store_of("guarded", demand, [[1000, 1000, 1000]], 2, solver="search")
    assert (store.arrays["classes"][:, SOLVER] == BRANCH_AND_BOUND).all()
    short = 0
    for _ in range(20):
        set_queues(store, demand.sum(axis=1) + rng.integers(0, 30, 120))  # all are worth what they ask for
        measure = about_best_weight(store.state, 0)
        gave_up = store.state.gave_up
        best = best_configuration(store.state, 0)
        assert not store.state.gave_up
        store.arrays["watch"][:, 0] = -1.0  # nothing is known
        assert about_best_weight(store.state, 1) == measure
        assert 0.9 * best <= measure <= best
        assert gave_up or measure == best
        short += gave_up
    assert short > 10

"""The followed weights of listed candidates against a product with the whole list, and the choice among ties against all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_indexes import store_of

from slotwise.compiler.kernel import JIT
from slotwise.core import chance
from slotwise.core.indexes import followed
from slotwise.core.indexes.weights import best_configuration, best_weight
from slotwise.core.state import CLASS, COUNT, SOLVER
from slotwise.core.store import Store
from slotwise.packing.kernels import TABLE

pytestmark = pytest.mark.core

STEPS = 300 if JIT else 25
SERVERS = 6


def made(solver: str = "auto", **options: Any) -> Store:
    """Nine types, two classes of servers, each with a list of candidates; some rows of a list hold several jobs of a type."""
    demand = np.random.default_rng(3).integers(2, 7, (9, 2))
    store = store_of("algorithm1", demand, [[10, 10], [14, 9]], SERVERS, solver=solver, **options)
    assert (store.arrays["classes"][:, SOLVER] == TABLE).all()
    assert store.state.follow_limit > 0
    store.arrays["servers"][:, CLASS] = np.arange(SERVERS) % 2
    return store


def set_queues(store: Store, queue: NDArray[np.int64]) -> None:
    store.arrays["queue_length"][:] = queue
    store.arrays["weight"][:] = queue
    store.state.n_waiting = queue.sum()


def hold(store: Store, server: int, jobs: NDArray[np.int64]) -> None:
    store.running[server] = jobs
    store.arrays["servers"][server, COUNT] = jobs.sum()


def table_of(store: Store, server: int) -> NDArray[np.int64]:
    table = store.solvers[server % 2].table
    assert table is not None
    return table


@pytest.mark.parametrize("solver", ["auto", "enumerate"])
def test_weights_follow_the_queues(solver: str) -> None:
    """Queues move by one, jump and empty; classes are asked in any order; what the sums are depends on the queues alone."""
    rng, store = np.random.default_rng(4), made(solver)
    queue, several = np.zeros(9, np.int64), 0
    for step in range(STEPS):
        move = rng.integers(0, 4)
        if move == 0:
            queue = rng.integers(0, (3, 1000)[step % 2], 9) * (rng.random(9) < 0.6)
        elif move == 1:
            queue[:] = 0
            queue[rng.integers(0, 9)] = step % 3
        else:
            queue[rng.integers(0, 9, 3)] += 1
        server = int(rng.integers(SERVERS))
        table = table_of(store, server)
        values = table @ queue
        set_queues(store, queue)
        hold(store, server, table[rng.integers(len(table))] // 2 * (move > 1))
        assert best_weight(store.state, server) == values.max()
        before = chance.words(store.state)
        assert best_configuration(store.state, server) == values.max()
        chosen = store.arrays["choice"][0].copy()
        ties = table[values == values.max()]
        holding = ties[(ties >= store.running[server]).all(axis=1)]
        assert chosen.tolist() in (holding if len(holding) else ties).tolist()
        several += len(ties) > 1
        # one that has never been asked before decides the same, and so does one that adds up every candidate anew
        for anew in (False, True):
            other = made(solver)
            if anew:
                other.state.follow_limit = 0
            set_queues(other, queue)
            hold(other, server, store.running[server])
            chance.set_words(other.state, before)
            assert best_configuration(other.state, server) == values.max()
            assert other.arrays["choice"][0].tolist() == chosen.tolist()
    assert several > 5


def test_every_tie_has_its_chance() -> None:
    """No job waits: all candidates weigh nothing, and each is taken about as often."""
    store = made()
    seen: dict[tuple[int, ...], int] = {}
    ties = len(table_of(store, 0))
    draws = 200 * ties if JIT else 20 * ties
    for _ in range(draws):
        best_configuration(store.state, 0)
        key = tuple(store.arrays["choice"][0].tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == ties > 1
    expected = draws / ties
    assert sum((n - expected) ** 2 / expected for n in seen.values()) < ties + 6 * np.sqrt(2 * ties)


def test_where_sums_would_be_too_large_they_are_added_up_anew() -> None:
    store, queue = made(), np.full(9, 2**31 // 3, np.int64)
    set_queues(store, queue)
    assert store.state.n_waiting >= store.state.follow_limit
    for server in (0, 1):
        assert best_weight(store.state, server) == (table_of(store, server) @ queue).max()
    assert not store.arrays["followed"].any()
    set_queues(store, queue // 2**20)
    assert best_weight(store.state, 0) == (table_of(store, 0) @ (queue // 2**20)).max()


def test_layout_names_every_job_once() -> None:
    """Runs and lists together give each candidate its jobs of each type, and nothing else."""
    rng = np.random.default_rng(5)
    tables = [rng.integers(0, 3, (n, 7)) * (rng.random((n, 7)) < 0.3) for n in (700, 0, 90)]
    tables[0] = tables[0][np.lexsort(tables[0].T)]
    laid = followed.lay_out(tables)
    assert (laid.columns[:, followed.LISTED] == 0).any()
    for c, table in enumerate(tables):
        for j in range(7):
            counts = np.zeros(len(laid.sums), np.int64)
            for jobs, start, end, listed in laid.columns[laid.first_columns[c, j] : laid.first_columns[c, j + 1]]:
                np.add.at(counts, laid.column_rows[start:end] if listed else np.arange(start, end), jobs)
            first = laid.starts[c] * followed.BLOCK
            assert counts[first : first + len(table)].tolist() == table[:, j].tolist()
            assert counts.sum() == table[:, j].sum()

"""The tree of ends against a plain dictionary, over random sequences of starts, ends and growth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slotwise.core.chance import words_of
from slotwise.simulation.run.agenda import AgendaStore, forget_end, free_leaf
from slotwise.simulation.run.ends import insert, put


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("many", [1, 3, 40])
def test_the_root_is_the_earliest_end(seed: int, many: int) -> None:
    rng = np.random.default_rng([seed, many])
    agenda = AgendaStore(2, words_of(1))
    a = agenda.record
    running: dict[int, tuple[float, int]] = {}  # by leaf
    most = 0
    for job in range(600):
        if len(running) == a.max_jobs:
            agenda.grow(2 * a.max_jobs)
        first = min(running, key=lambda leaf: running[leaf][0], default=-1)
        move = rng.integers(3) if running else 0
        if move == 0 and len(running) < many:  # a job starts beside running jobs
            end, leaf = rng.random(), free_leaf(a)
            insert(agenda.arrays["ends"], a.root, a.leaves + leaf, job, end)
            running[leaf] = (end, job)
        elif move == 1:  # the first ends, and another starts
            end = rng.random()
            put(agenda.arrays["ends"], a.root, a.leaves + first, job, end)
            running[first] = (end, job)
        elif running:  # one ends, not always the first: its server may have failed
            leaf = first if rng.random() < 0.5 else list(running)[rng.integers(len(running))]
            forget_end(a, leaf)
            del running[leaf]
        most = max(most, len(running))
        end, whose = agenda.arrays["ends"][a.root]
        assert end == min((end for end, _ in running.values()), default=math.inf)
        if running:
            assert (end, int(whose)) in running.values()
        assert a.n_leaves - a.n_spare == len(running)
        assert a.n_leaves == most  # no leaf is used while another one is spare
        assert a.leaves // a.root < 2 * max(1, most)  # and the tree is no higher than they need

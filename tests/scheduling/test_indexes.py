"""The index structures on their own, each against the plain thing it stands for: a set, a scan, a list."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from instances import put_back

from slotwise.compiler.kernel import JIT
from slotwise.core import chance, server_steps, steps
from slotwise.core.chance import words_of
from slotwise.core.indexes import bitmap, firsttree, fitindex, shortest
from slotwise.core.state import (
    CLASS,
    DRAINING,
    GROUP_NEXT,
    HEAD,
    NEXT,
    PRESENT,
    PREVIOUS,
    STATUS,
    TAIL,
    jobs,
    queue_length,
    sequence,
)
from slotwise.core.state import queues as lines
from slotwise.core.steps import reindex
from slotwise.core.store import Store
from slotwise.model import Integers
from slotwise.model.sizes import LARGEST
from slotwise.packing import Space
from slotwise.policies import make_policy

pytestmark = pytest.mark.core

STEPS = 3000 if JIT else 400


def store_of(policy: str, demand: Any, capacity: Any, max_servers: int, **options: Any) -> Store:
    demand, capacity = np.array(demand, np.int64), np.array(capacity, np.int64)
    return Store(
        Integers(demand, capacity, (0,) * demand.shape[1]),
        make_policy(policy, **options),
        max_servers=max_servers,
        spaces=[Space.additive(demand, room) for room in capacity],
        random=words_of(1),
    )


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1024, 1025, 40_000])
def test_bitmap_is_a_set_with_a_lowest_member(n: int) -> None:
    rng = random.Random(n)
    store = store_of("m14", [[1], [2]], [[4]], n)  # it owns the arrays
    state: Any = store.state
    sets: list[set[int]] = [set(), set(), set()]
    near = [rng.randrange(n) for _ in range(20)]  # many hits on the same words
    for _ in range(STEPS // 3):
        row = rng.randrange(3)
        server = rng.choice(near) if rng.random() < 0.7 else rng.randrange(n)
        if rng.random() < 0.55 / (1 + len(sets[row]) / 15):
            bitmap.add(state, row, server)
            sets[row].add(server)
        else:
            bitmap.discard(state, row, server)
            sets[row].discard(server)
        assert bitmap.contains(state, row, server) == (server in sets[row])
        for each in range(3):
            assert bitmap.first(state, each) == min(sets[each], default=-1)


@pytest.mark.parametrize("n_resources", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 7, 64, 65])
def test_first_tree_finds_the_lowest_number_that_fits(n: int, n_resources: int) -> None:
    rng = random.Random(10 * n + n_resources)
    store = store_of("first-fit", [[1] * n_resources], [[20] * n_resources], n)
    state: Any = store.state
    rows, free = store.arrays["servers"], store.arrays["free"]
    for _ in range(STEPS // 4):
        server = rng.randrange(n)
        rows[server, STATUS] = rng.choice([PRESENT, PRESENT, PRESENT, DRAINING])
        free[server] = [rng.randint(0, 20) for _ in range(n_resources)]
        firsttree.update(state, server)
        need = np.array([rng.randint(0, 22) for _ in range(n_resources)], np.int64)
        start = rng.choice([0, 0, rng.randrange(n), n, 2 * n])
        right = [m for m in range(start, n) if rows[m, STATUS] == PRESENT and (free[m] >= need).all()]
        assert firsttree.first_fit(state, need, start) == min(right, default=-1)


@pytest.mark.parametrize("values", [3, 30, 10**6])  # few distinct free vectors, or nearly all different
@pytest.mark.parametrize("n_resources", [1, 2, 3])
def test_fit_index_finds_the_least_score(n_resources: int, values: int) -> None:
    rng = random.Random(100 * n_resources + values)
    n, top = (150 if JIT else 60), 10**7
    classes = [[top] * n_resources, [top // 2 + r for r in range(n_resources)]]
    store = store_of("best-fit", [[1] * n_resources], classes, n)
    state: Any = store.state
    rows, free, score = store.arrays["servers"], store.arrays["free"], store.arrays["score"]
    hits = 0
    for step in range(STEPS // 3):
        if step % 50 == 0:
            score[:] = np.array([[rng.uniform(-1, 1) for _ in range(n_resources + 1)] for _ in classes])
            if step % 100 == 0:
                score[:, :-1] = np.abs(score[:, :-1])
        server = rng.randrange(n)
        c = rng.randrange(2) if rows[server, STATUS] != PRESENT else rows[server, CLASS]
        rows[server, CLASS] = c
        rows[server, STATUS] = PRESENT if rng.random() < 0.85 else DRAINING
        free[server] = [rng.randrange(values) * classes[c][r] // values for r in range(n_resources)]
        fitindex.update(state, server)
        share = rng.choice([0.0, 0.3, 0.7, 1.1])
        need = np.array([int(share * rng.random() * top) for _ in range(n_resources)], np.int64)
        fits = [m for m in range(n) if rows[m, STATUS] == PRESENT and (free[m] >= need).all()]
        value = {m: float(score[rows[m, CLASS], :-1] @ free[m] + score[rows[m, CLASS], -1]) for m in fits}
        found = fitindex.best(state, need)
        assert (found < 0) == (not fits)
        if fits:
            hits += 1
            assert found in value, "does not fit, or takes no jobs"
            assert value[found] <= min(value.values()) + 1e-6  # sums are taken in another order here
        assert fitindex.count(state, need, -1) == len(fits)
        if len(fits) <= 12:
            assert sorted(fitindex.count(state, need, k) for k in range(len(fits))) == fits
    assert hits > 50
    check_groups(store)


def check_groups(store: Store) -> None:
    """Servers with one class and free vector are one group; every group is found by hashing; nothing is left over."""
    state: Any = store.state
    rows, free, groups = store.arrays["servers"], store.arrays["free"], store.arrays["groups"]
    by_vector: dict[Any, set[int]] = {}
    for server in range(state.max_servers):
        if rows[server, STATUS] == PRESENT:
            by_vector.setdefault((int(rows[server, CLASS]), *free[server].tolist()), set()).add(server)
    in_table = [int(g) for g in store.arrays["hash"] if g >= 0]
    assert len(in_table) == len(set(in_table)) == len(by_vector)
    for g in in_table:
        vector = (int(groups[g, fitindex.CLASS_OF]), *store.arrays["group_free"][g].tolist())
        members, server = set(), int(groups[g, fitindex.FIRST])
        while server >= 0:
            members.add(server)
            assert len(members) <= state.max_servers
            server = int(store.arrays["chains"][server, GROUP_NEXT])
        assert members == by_vector[vector]
        assert len(members) == groups[g, fitindex.SIZE]
    unused, g = 0, int(groups[state.max_servers, fitindex.NEXT_IN_CELL])
    while g >= 0:
        unused, g = unused + 1, int(groups[g, fitindex.NEXT_IN_CELL])
    assert unused == state.max_servers - len(in_table), "groups were lost"


def test_fit_index_survives_collisions() -> None:
    """All vectors hash to a few places of the table: deletions must not hide what was moved along."""
    rng = random.Random(8)
    n = 40
    store = store_of("best-fit", [[1]], [[10**9]], n)
    state: Any = store.state
    slots = int(state.n_slots_hash)
    home: dict[int, list[int]] = {}
    for amount in range(60_000):
        home.setdefault(fitindex.mixed(0, np.array([amount])) & (slots - 1), []).append(amount)
    crowd = [amount for place in (0, 1, slots - 2, slots - 1) for amount in home[place][:30]]
    rows, free = store.arrays["servers"], store.arrays["free"]
    for _ in range(STEPS):
        server = rng.randrange(n)
        rows[server, STATUS] = PRESENT if rng.random() < 0.8 else DRAINING
        free[server] = rng.choice(crowd)
        fitindex.update(state, server)
        need = np.array([rng.choice(crowd)], np.int64)
        fits = [int(free[m, 0]) for m in range(n) if rows[m, STATUS] == PRESENT and free[m, 0] >= need[0]]
        found = fitindex.best(state, need)
        assert (int(free[found, 0]) if found >= 0 else None) == min(fits, default=None)
    check_groups(store)


@pytest.mark.core
@pytest.mark.parametrize("unit", [1, 1024, 4096, 10**6])
def test_free_vectors_seldom_share_a_place(unit: int) -> None:
    """Whatever unit they are measured in: of 900 in a table of 4,096 places a tenth would by chance."""
    vectors = itertools.product(range(1, 100, 3), range(2, 100, 4))
    places = {fitindex.mixed(0, np.array(vector) * unit) & 4095 for vector in vectors}
    assert len(places) > 0.8 * 33 * 25


@pytest.mark.core
@pytest.mark.parametrize("n_resources", [1, 2, 3, 11])
def test_the_grid_says_which_room_is_in_a_cell(n_resources: int) -> None:
    """Of every free vector: it lies between the edges of the cell that it is filed in, and of no step before or after."""
    rng = np.random.default_rng(n_resources)
    capacity = rng.integers(0, 3000, (3, n_resources))
    capacity[0, 0] = LARGEST
    steps, edges = fitindex.grid(capacity)
    axis, axes = fitindex.axis_cells(n_resources), min(n_resources, fitindex.MAX_AXES)
    assert len(np.unique(steps, axis=0)) == len(steps) == axis**axes
    for c in range(3):
        for _ in range(100):
            room = [int(rng.integers(0, whole + 1)) for whole in capacity[c]]
            cell = 0
            for r in range(axes):
                cell = cell * axis + room[r] * axis // (int(capacity[c, r]) + 1)
            for r in range(n_resources):
                edge, step = edges[c * n_resources + r], steps[cell, r]
                assert edge[step] <= room[r] < edge[step + 1]


def test_fit_index_with_the_largest_sizes() -> None:
    """Sizes up to the largest that the model admits: nothing overflows."""
    top = LARGEST - 1
    store = store_of("best-fit", [[1]], [[top]], 4)
    state: Any = store.state
    for server, room in enumerate([top, top - 4, 2**51, 5]):
        store.arrays["servers"][server, STATUS] = PRESENT
        store.arrays["free"][server] = room
        reindex(state, server)
    for need, right in [(1, 3), (6, 2), (2**51 + 1, 1), (top - 4, 1), (top - 3, 0), (top, 0)]:
        assert fitindex.best(state, np.array([need], np.int64)) == right


@pytest.mark.parametrize("own", [False, True])
def test_queues_are_lists(own: bool) -> None:
    rng = random.Random(7)
    n = 9
    store = store_of("m14", [[2], [3]], [[4], [2]], n, queues="own" if own else "central")
    state: Any = store.state
    plain: dict[int, list[int]] = {q: [] for q in range(state.n_queues)}
    for server in range(n - 2):
        store.arrays["servers"][server, :2] = (server % 2, PRESENT)  # class 1 cannot hold type 1
    if own:
        for server in range(n):
            for j in range(2):
                shortest.refresh_shortest(state, j, server)
    for _ in range(STEPS // 2):
        waiting = [i for line in plain.values() for i in line]
        kind = rng.random()
        if kind < 0.5 and state.n_free_jobs:
            j = rng.randrange(2)
            i = steps.admit(state, j)
            if own:
                takers = [m for m in range(n - 2) if j == 0 or m % 2 == 0]
                right = min(takers, key=lambda m: (len(plain[2 * m + j]), m)) * 2 + j
            else:
                right = j
            plain[right].append(i)
        elif kind < 0.8 and waiting:
            i = rng.choice(waiting)
            steps.leave_queue(state, i)
            steps.release(state, i)
            next(line for line in plain.values() if i in line).remove(i)
        elif waiting:
            i = rng.choice(waiting)
            (q,) = [q for q, line in plain.items() if i in line]
            steps.leave_queue(state, i)
            steps.rejoin_queue(state, i, q)
            plain[q].remove(i)
            put_back(plain[q], i, sequence(state))
        check_queues(state, plain)


def test_growing_keeps_the_job_numbers_that_are_still_free() -> None:
    store = store_of("m14", [[1]], [[4]], 1)
    state: Any = store.state
    taken = [steps.admit(state, 0) for _ in range(10)]
    store.grow_jobs(2 * state.max_jobs)
    taken += [steps.admit(state, 0) for _ in range(int(state.n_free_jobs))]
    assert sorted(taken) == list(range(state.max_jobs))
    assert (state.n_free_jobs, state.free_job) == (0, -1)


def check_queues(state: Any, plain: dict[int, list[int]]) -> None:
    rows = jobs(state)
    for q, line in plain.items():
        length, first, last, _ = (int(x) for x in lines(state)[q])
        forth, i = [], first
        while i >= 0:
            forth.append(i)
            i = int(rows[i, NEXT])
        back, i = [], last
        while i >= 0:
            back.append(i)
            i = int(rows[i, PREVIOUS])
        assert forth == line
        assert back == line[::-1]
        assert length == len(line)
        assert (first, last) == ((line[0], line[-1]) if line else (-1, -1))
    assert int(lines(state)[0, HEAD]) == (plain[0] or [-1])[0]
    assert int(lines(state)[0, TAIL]) == (plain[0] or [-1])[-1]
    for j in range(2):
        assert queue_length(state)[j] == sum(len(line) for q, line in plain.items() if q % 2 == j)


def test_chance_is_marsaglias_xorshift_and_uniform() -> None:
    store = store_of("m14", [[1]], [[4]], 1)
    state: Any = store.state
    state.random_x, state.random_y, state.random_z, state.random_w = 123456789, 362436069, 521288629, 88675123
    # the first words of Marsaglia's own xor128, "Xorshift RNGs" (2003)
    assert [chance.word(state) for _ in range(4)] == [3701687786, 458299110, 2500872618, 3633119408]
    n = 20_000 if JIT else 4_000
    counts = np.bincount([chance.below(state, 7) for _ in range(n)], minlength=7)
    assert ((counts - n / 7) ** 2 / (n / 7)).sum() < 22.5  # chi-square with 6 degrees, one in a thousand
    u = [chance.uniform(state) for _ in range(n)]
    assert min(u) >= 0.0
    assert max(u) < 1.0
    assert abs(np.mean(u) - 0.5) < 4 * (1 / 12 / n) ** 0.5


@pytest.mark.core
def test_an_only_server_is_found_and_filed_when_another_comes() -> None:
    store = store_of("best-fit", [[1]], [[20]], 2)
    state: Any = store.state
    hook, rows, free = store.policy.hooks(("join",)).join, store.arrays["servers"], store.arrays["free"]
    server_steps.join(state, 0, 0, hook)
    free[0] = 5
    reindex(state, 0)
    order = np.zeros(2, np.int64)
    for need, found in ((5, 0), (6, -1)):
        assert fitindex.best(state, np.array([need])) == found
        assert fitindex.count(state, np.array([need]), -1) == 1 + found
    assert fitindex.count(state, np.array([1]), 0) == 0
    assert fitindex.filed(state, order) == 1
    rows[0, STATUS] = DRAINING
    assert fitindex.filed(state, order) == 0
    rows[0, STATUS] = PRESENT
    server_steps.join(state, 1, 0, hook)
    assert [fitindex.best(state, np.array([need])) for need in (5, 6)] == [0, 1]
    assert fitindex.count(state, np.array([5]), -1) == 2
    assert fitindex.filed(state, order) == 2

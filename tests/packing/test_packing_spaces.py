"""Feasible sets, their listing, and the vertices of their hull."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from slotwise.compiler.kernel import JIT
from slotwise.errors import InputError
from slotwise.packing import (
    Space,
    enumerate_feasible,
    enumerate_maximal,
    hull,
    hull_vertices,
    make_solver,
    thin,
)

TABLE1 = Space.additive([[150, 80, 16900], [171, 65, 4200], [70, 200, 16900]], [900, 900, 50000])


def random_space(seed: int, types: int = 4) -> Space:
    rng = np.random.default_rng(seed)
    R = 1 + seed % 4
    demand, capacity = rng.integers(1, 9, (types, R)), rng.integers(6, 16, R)
    return Space.additive(demand, capacity, random_allowed(seed, types))


def random_allowed(seed: int, types: int = 4) -> NDArray[np.bool_]:
    return np.random.default_rng([seed, 1]).random(types) < 0.8


def crowded_space(seed: int) -> Space:
    """Some tens of maximal configurations, many of them between others."""
    rng = np.random.default_rng(seed)
    R = 1 + seed % 3
    return Space.additive(rng.integers(3, 12, (3 + seed % 3, R)), rng.integers(22, 30, R))


def naive(space: Space, allowed: NDArray[np.bool_]) -> list[tuple[int, ...]]:
    assert space.demand is not None
    assert space.capacity is not None
    every = itertools.product(*(range(int(space.capacity.max()) + 1) for _ in range(space.n_types)))
    return [
        k for k in every if all(np.dot(k, space.demand) <= space.capacity) and not np.any(np.array(k)[~allowed])
    ]


@pytest.mark.core
def test_listing_is_all_there_is() -> None:
    for seed in range(12 if JIT else 4):
        space = random_space(seed, types=3)
        every = naive(space, random_allowed(seed, types=3))
        found = enumerate_feasible(space)
        assert found.complete
        assert found.configurations.tolist() == [list(k) for k in every]  # product is in lexicographic order
        fits = set(every)
        maximal = [
            list(k) for k in every if not any((*k[:j], k[j] + 1, *k[j + 1 :]) in fits for j in range(space.n_types))
        ]
        listing = enumerate_maximal(space)
        assert listing.complete
        assert listing.configurations.tolist() == maximal


@pytest.mark.core
def test_table_1_holds_five_jobs_whatever_it_does() -> None:
    listing = enumerate_maximal(TABLE1)
    assert listing.complete
    assert (listing.configurations.sum(axis=1) == 5).all()
    rows = {tuple(k) for k in hull_vertices(listing.configurations).tolist()}
    assert {(2, 3, 0), (0, 5, 0), (0, 3, 2)} <= rows


def test_powers_of_two_have_eight_vertices() -> None:
    listing = enumerate_maximal(Space.additive(2 ** np.arange(8)[:, None], [128]))
    assert listing.complete
    assert len(listing.configurations) == 27_338
    assert hull_vertices(listing.configurations).tolist() == np.diag(128 >> np.arange(8))[::-1].tolist()


@pytest.mark.core
def test_a_budget_stops_the_listing() -> None:
    space = Space.additive(np.random.default_rng(3).integers(5, 50, (40, 4)), [1000] * 4)
    for listing in (enumerate_maximal(space, budget=500), enumerate_feasible(space, budget=500)):
        assert not listing.complete
        assert 0 < len(listing.configurations) <= 500
        assert all(space.feasible(k) for k in listing.configurations)
    counted = enumerate_maximal(space, budget=500, partial=False)
    assert (counted.complete, len(counted.configurations)) == (False, 0)
    assert counted.met == len(enumerate_maximal(space, budget=500).configurations)
    many = Space.monotone(lambda k: sum(k) < 50, 12)
    assert not enumerate_maximal(many, budget=500).complete
    assert len(enumerate_maximal(many, budget=500, partial=False).configurations) == 0


@pytest.mark.core
def test_all_are_given_whether_or_not_some_would_do() -> None:
    for space in (TABLE1, Space.monotone(lambda k: sum(k) < 4, 3)):
        every = enumerate_maximal(space)
        listing = enumerate_maximal(space, partial=False)
        assert listing.complete
        assert listing.met == len(listing.configurations)
        assert listing.configurations.tolist() == every.configurations.tolist()


def is_needed(points: NDArray[np.int64], i: int) -> bool:
    """By an independent linear program: can row i beat every other row by 1 for some weights >= 0?"""
    others = np.delete(points, i, axis=0) - points[i]
    result = linprog(np.zeros(points.shape[1]), A_ub=others, b_ub=-np.ones(len(others)))
    assert result.status in (0, 2)
    return result.status == 0


def test_vertices_are_exactly_those_needed() -> None:
    thinned = 0
    for seed in range(24):
        points = enumerate_maximal(crowded_space(seed)).configurations
        needed = [i for i in range(len(points)) if is_needed(points, i)]
        assert hull_vertices(points).tolist() == points[needed].tolist()
        thinned += len(points) - len(needed)
    assert thinned > 100  # there was something to leave out


def test_the_search_is_complete_without_lucky_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the axes alone, every other vertex must come out of a witness."""
    points = [enumerate_maximal(crowded_space(seed)).configurations for seed in range(12)]
    expected = [hull_vertices(p).tolist() for p in points]
    monkeypatch.setattr(hull, "_directions", lambda p: np.eye(p.shape[1], dtype=np.int64))
    assert [hull_vertices(p).tolist() for p in points] == expected


def test_the_kernel_settles_what_whole_products_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [enumerate_maximal(crowded_space(seed)).configurations for seed in range(12)]
    whole = [thin(p, 100_000) for p in points]
    monkeypatch.setattr(hull, "JIT", True)
    monkeypatch.setattr(hull, "FEW_ENTRIES", 0)
    for p, expected in zip(points, whole, strict=True):
        found = thin(p, 100_000)
        assert (found.configurations.tolist(), found.complete) == (
            expected.configurations.tolist(),
            expected.complete,
        )


def test_integers_of_any_length() -> None:
    """Where 64 bits are too few the same answer comes from Python integers: scaling a type changes no vertex."""
    points = enumerate_maximal(crowded_space(5)).configurations
    scale = np.array([10**9 + 7, 10**9 + 9, 998_244_353, 10**9 + 21, 10**9 + 33])
    vertices = hull_vertices(points)
    assert hull_vertices(points * scale).tolist() == (vertices * scale).tolist()
    assert any(hull._optimum(vertices * scale, p * scale)[0].dtype == object for p in points)


@pytest.mark.core
def test_an_unfinished_hull_keeps_the_optimum() -> None:
    points = enumerate_maximal(Space.additive([[3], [4], [5], [7], [11]], [40])).configurations
    with pytest.raises(InputError, match="budget"):
        hull_vertices(points, budget=0)
    part = thin(points, budget=0)
    assert not part.complete
    for weights in np.random.default_rng(0).integers(0, 100, (50, 5)):
        assert (part.configurations @ weights).max() == (points @ weights).max()


@pytest.mark.core
def test_dominated_and_repeated_rows_are_no_vertices() -> None:
    assert hull_vertices([[2, 0], [1, 1], [0, 2], [0, 2], [0, 1], [0, 0]]).tolist() == [[0, 2], [2, 0]]
    assert hull_vertices([[0, 0]]).tolist() == [[0, 0]]
    assert hull_vertices([[3, 1], [3, 0], [0, 0]]).tolist() == [[3, 1]]


@pytest.mark.core
def test_additive_given_as_a_predicate() -> None:
    for seed in range(16 if JIT else 6):
        space = random_space(seed)
        same = Space.monotone(space.feasible, space.n_types)
        assert [same.most(j) for j in range(4)] == [space.most(j) for j in range(4)]
        for enumerate_ in (enumerate_maximal, enumerate_feasible):
            assert enumerate_(same).configurations.tolist() == enumerate_(space).configurations.tolist()
        weights = np.random.default_rng(seed).integers(0, 9, 4)
        for name in ("enumerate", "hull", "auto"):
            assert make_solver(name, same).best(weights)[1] == make_solver(name, space).best(weights)[1]


def few_and_apart(k: tuple[int, ...]) -> bool:
    """At most 3 jobs, and no types 0 and 1 together: no sizes say this."""
    return sum(k) <= 3 and not (k[0] and k[1])


@pytest.mark.core
def test_a_predicate_that_is_not_additive() -> None:
    space = Space.monotone(few_and_apart, 3)
    every = [k for k in itertools.product(range(4), repeat=3) if few_and_apart(k)]
    assert enumerate_feasible(space).configurations.tolist() == [list(k) for k in every]
    assert hull_vertices(enumerate_maximal(space).configurations).tolist() == [[0, 0, 3], [0, 3, 0], [3, 0, 0]]
    rng = np.random.default_rng(2)
    for name in ("enumerate", "hull", "auto", "greedy", "greedy-fill"):
        solver = make_solver(name, space)
        for weights in rng.integers(0, 9, (20, 3)):
            k, weight = solver.best(weights)
            assert few_and_apart(tuple(k.tolist()))
            assert weight >= solver.r * max(np.dot(every, weights))
            assert sum(k) == 3
    for name in ("dp", "approximate"):
        with pytest.raises(InputError, match="predicate"):
            make_solver(name, space)


@pytest.mark.core
def test_a_predicate_is_not_asked_about_types_that_are_not_allowed() -> None:
    asked = []

    def predicate(k: tuple[int, ...]) -> bool:
        asked.append(k)
        return few_and_apart(k)

    for allowed in itertools.product([True, False], repeat=3):
        asked.clear()
        space = Space.monotone(predicate, 3, allowed=allowed)
        every = [
            k
            for k in itertools.product(range(4), repeat=3)
            if few_and_apart(k) and not any(n for n, may in zip(k, allowed, strict=True) if not may)
        ]
        assert enumerate_feasible(space).configurations.tolist() == [list(k) for k in every]
        assert [space.most(j) for j in range(3)] == [3 if may else 0 for may in allowed]
        for name in ("enumerate", "hull", "auto", "greedy", "greedy-fill"):
            solver = make_solver(name, space)
            for weights in np.random.default_rng(2).integers(0, 9, (10, 3)):
                k, weight = solver.best(weights)
                assert tuple(k.tolist()) in every
                assert weight >= solver.r * max(np.dot(every, weights))
        assert not any(np.array(k)[~np.array(allowed)].any() for k in asked)


@pytest.mark.parametrize("allowed", [[True], [1, 0], [[True, False]], ["yes", "no"]])
def test_what_is_allowed_is_said_for_each_type(allowed: object) -> None:
    with pytest.raises(InputError, match="allowed: is not 2 truth values"):
        Space.additive([[1], [2]], [4], allowed)  # type: ignore[arg-type]


def test_auto_on_a_predicate_too_large_to_list() -> None:
    """Weights 1 to 12, at most 60 in all, at most 3 types at once."""

    def predicate(k: tuple[int, ...]) -> bool:
        return sum((j + 1) * n for j, n in enumerate(k)) <= 60 and sum(n > 0 for n in k) <= 3

    solver = make_solver("auto", Space.monotone(predicate, 12))
    assert solver.name == "greedy-fill"
    assert solver.r == pytest.approx(1 / 12)
    table = solver.table
    assert table is not None
    for k in table.tolist():
        assert predicate(tuple(k))
        assert not any(predicate((*k[:j], k[j] + 1, *k[j + 1 :])) for j in range(12))


@pytest.mark.core
def test_a_broken_predicate_is_refused_with_the_pair() -> None:
    def hole(k: tuple[int, ...]) -> bool:
        return sum(k) <= 3 and k != (1, 1)

    for name in ("enumerate", "hull", "auto"):
        with pytest.raises(InputError, match=r"accepts \(2, 1\) but refuses \(1, 1\)"):
            make_solver(name, Space.monotone(hole, 2))
    with pytest.raises(InputError, match=r"accepts \(3,\) but refuses \(2,\)"):
        Space.monotone(lambda k: k[0] != 2, 1)
    with pytest.raises(InputError, match="never to say no"):
        Space.monotone(lambda k: k[0] < 3, 2)
    with pytest.raises(InputError, match="empty server"):
        Space.monotone(lambda k: sum(k) > 0, 2)


@pytest.mark.core
def test_feasible_and_most() -> None:
    space = Space.additive([[5, 0], [2, 3], [11, 1]], [10, 9])
    assert [space.most(j) for j in range(3)] == [2, 3, 0]
    assert space.feasible([2, 0, 0])
    assert space.feasible([1, 2, 0])
    assert not space.feasible([1, 3, 0])
    assert not space.feasible([0, 0, 1])
    assert not space.feasible([0, -1, 0])
    assert not space.feasible([2**62, 0, 0])
    with pytest.raises(InputError, match="one count per type"):
        space.feasible([1])


@pytest.mark.core
@pytest.mark.parametrize(
    ("demand", "capacity", "what"),
    [
        ([[1.5]], [3], "scale decimals"),
        ([[1, 2]], [3], "2 resources"),
        ([[0, 0]], [3, 3], "needs nothing"),
        ([[-1]], [3], "from -1"),
        ([1], [3], "dimensions"),
        (np.zeros((0, 1), int), [3], "empty"),
    ],
)
def test_bad_sizes_are_named(demand: object, capacity: object, what: str) -> None:
    with pytest.raises(InputError, match=what):
        Space.additive(demand, capacity)  # type: ignore[arg-type]

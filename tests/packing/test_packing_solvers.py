"""Every solver against brute force: feasible, maximal, and never below its stated r."""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from slotwise.compiler.kernel import JIT
from slotwise.errors import InputError
from slotwise.packing import SOLVERS, Solver, Space, make_solver
from slotwise.packing.kernels import TABLE, solve

INSTANCES = 240 if JIT else 24
EXACT = ("enumerate", "hull", "dp", "search", "auto")


class Instance(NamedTuple):
    """A server class: sizes, and which types it may hold."""

    demand: NDArray[np.int64]
    capacity: NDArray[np.int64]
    allowed: NDArray[np.bool_]

    @property
    def space(self) -> Space:
        return Space.additive(*self)


def instance(seed: int) -> tuple[Instance, np.random.Generator]:
    """1 to 4 resources, 1 to 5 types; some sizes zero, some types too large, some capacities odd, some types not allowed."""
    rng = np.random.default_rng(seed)
    R = 1 + seed % 4
    J = int(rng.integers(1, 6))
    capacity = rng.integers(3, 13, R)
    demand = rng.integers(0, 8, (J, R)) * (rng.random((J, R)) < 0.8)
    if seed % 3 == 0:
        capacity, demand = capacity * 6 + rng.integers(0, 6, R), demand * 6
    demand[~demand.any(axis=1), rng.integers(R)] = 2
    allowed = rng.random(J) < 0.7 if seed % 8 >= 4 else np.ones(J, np.bool_)
    return Instance(demand.astype(np.int64), capacity.astype(np.int64), allowed), rng


def brute_force(
    demand: NDArray[np.int64], capacity: NDArray[np.int64], may: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Everything that fits and is allowed, by trying every combination of counts."""
    most = []
    for j, row in enumerate(demand):
        count = 0
        while may[j] and all((count + 1) * d <= c for d, c in zip(row, capacity, strict=True)):
            count += 1
        most.append(count)
    every = np.array(list(itertools.product(*(range(m + 1) for m in most))), np.int64)
    return every[(every @ demand <= capacity).all(axis=1)]


@functools.cache
def everything(seed: int) -> NDArray[np.int64]:
    return brute_force(*instance(seed)[0])


def weights_for(rng: np.random.Generator, J: int) -> list[NDArray[np.float64]]:
    queues = rng.integers(0, 50, J)
    large = rng.integers(0, 2**50, J)
    return [queues.astype(float), np.log1p(queues), (queues % 3).astype(float), np.zeros(J), large.astype(float)]


def is_maximal(k: NDArray[np.int64], made: Instance) -> bool:
    free = made.capacity - k @ made.demand
    return not any((row <= free).all() for row in made.demand[made.allowed])


@pytest.mark.core
@pytest.mark.parametrize("name", SOLVERS)
def test_against_brute_force(name: str) -> None:
    nonzero = barred = 0
    for seed in range(INSTANCES):
        made, rng = instance(seed)
        demand, capacity, allowed = made
        solver = make_solver(name, made.space, epsilon=(0.05, 0.2, 0.5)[seed % 3])
        every = everything(seed)
        for weights in weights_for(rng, len(demand)):
            optimum = float((every @ weights).max())
            order = rng.permutation(len(demand))
            k, weight = solver.best(weights, order=order)
            assert (k >= 0).all()
            assert (k @ demand <= capacity).all()
            assert not k[~allowed].any()
            assert weight == pytest.approx(float(k @ weights), rel=1e-14)
            assert weight >= solver.r * optimum * (1 - 1e-12), (seed, solver.name)
            if name in EXACT:
                assert weight == pytest.approx(optimum, rel=1e-14), (seed, solver.name)
            if name != "greedy":
                assert is_maximal(k, made), (seed, solver.name)
            if len(every) > 1:
                assert k.any()
                nonzero += 1
                barred += (weights[~allowed] > 0).any()
    assert nonzero > INSTANCES  # most instances are not about nothing
    assert barred > INSTANCES // 4  # and in many a type with weight would fit, but may not run there


def run(solver: Solver, weights: NDArray[np.float64], capacity: NDArray[np.int64], order: NDArray[np.int64]):
    """The kernel as a compiled caller sees it: scratch full of rubbish, of exactly the size stated."""
    out = np.full(len(weights), 77, np.int64)
    scratch_f = np.full(solver.scratch_f_size, np.nan)
    scratch_i = np.full(solver.scratch_i_size, -(2**40), np.int64)
    args = (
        weights,
        solver.space.demand,
        capacity,
        order,
        scratch_f,
        scratch_i,
        solver.params_f,
        solver.params_i,
        out,
    )
    return out, solve(solver.kind, *args)


@pytest.mark.core
@pytest.mark.parametrize("name", ["dp", "greedy-fill", "search", "approximate"])
def test_residual_capacity(name: str) -> None:
    for seed in range(INSTANCES):
        (demand, capacity, allowed), rng = instance(seed)
        solver = make_solver(name, Space.additive(demand, capacity, allowed), epsilon=0.1)
        if solver.kind == TABLE:
            continue  # nothing fits even the empty server
        free = rng.integers(0, capacity + 1)
        every = brute_force(demand, free, allowed)
        for weights in weights_for(rng, len(demand)):
            k, weight = run(solver, weights, free, rng.permutation(len(demand)))
            assert (k >= 0).all()
            assert (k @ demand <= free).all()
            assert not k[~allowed].any()
            assert is_maximal(k, Instance(demand, free, allowed))
            assert weight == pytest.approx(float(k @ weights), rel=1e-14)
            if name != "greedy-fill":
                assert weight >= solver.r * float((every @ weights).max()) * (1 - 1e-12)
        k, weight = run(solver, weights, np.zeros_like(capacity), np.arange(len(demand)))
        assert not k.any()
        assert weight == 0.0


@pytest.mark.core
def test_stated_guarantees() -> None:
    space = Space.additive([[5, 2], [3, 3], [9, 9]], [8, 8])  # 1, 2 and 0 fit
    assert make_solver("greedy", space).r == pytest.approx(1 / (2 * 2))
    assert make_solver("greedy-fill", space).r == pytest.approx(1 / (2 * 2))
    assert make_solver("approximate", space, epsilon=0.125).r == 0.875
    assert [make_solver(name, space).r for name in EXACT] == [1.0] * len(EXACT)
    fixed = {name for name in SOLVERS if make_solver(name, space).fixed_set}
    assert fixed == {"enumerate", "hull", "dp", "greedy", "search", "auto"}
    table = make_solver("greedy", space).table
    assert table is not None
    assert table.tolist() == [[1, 0, 0], [0, 2, 0]]
    assert max(table @ np.array([5.0, 2.0, 99.0])) == make_solver("greedy", space).best([5.0, 2.0, 99.0])[1] == 5.0
    auto = make_solver("auto", space)
    assert (auto.name, auto.asked) == ("hull", "auto")


@pytest.mark.core
@pytest.mark.parametrize("name", SOLVERS)
def test_ties_go_to_the_earlier_type(name: str) -> None:
    """Three equal types and equal weights: whichever comes first in `order` takes the server."""
    solver = make_solver(name, Space.additive([[2, 1], [2, 1], [2, 1]], [8, 9]))
    for order in itertools.permutations(range(3)):
        for weight in (0.0, 7.0):
            k, _ = solver.best([weight] * 3, order=order)
            assert k[order[0]] == 4, (order, weight)


@pytest.mark.core
@pytest.mark.parametrize("name", ["enumerate", "dp"])
def test_ties_are_broken_lexicographically(name: str) -> None:
    """Among the best maximal configurations, the largest when read in `order`: table and recursion agree."""
    for seed in range(INSTANCES // 2):
        made, rng = instance(seed)
        every = everything(seed)
        solver = make_solver(name, made.space)
        weights = rng.integers(0, 3, len(made.demand)).astype(float)
        order = rng.permutation(len(made.demand))
        best = every[every @ weights == (every @ weights).max()]
        first = max(best.tolist(), key=lambda k: [k[j] for j in order])
        assert solver.best(weights, order=order)[0].tolist() == first


@pytest.mark.core
@pytest.mark.parametrize("name", ["enumerate", "hull", "dp", "greedy", "search", "auto"])
def test_ties_prefer_what_holds_the_remaining_jobs(name: str) -> None:
    """Capacity 6, sizes 2 and 3, weights 2 and 3: (3, 0) and (0, 2) tie, and the jobs on the server decide."""
    solver = make_solver(name, Space.additive([[2], [3]], [6]))
    for held in ([1, 0], [3, 0], [0, 1], [0, 2]):
        for order in ([0, 1], [1, 0]):
            k, weight = solver.best([2.0, 3.0], order=order, holding=held)
            assert weight == 6.0
            assert (k >= held).all()
    k, weight = solver.best([2.0, 4.0], holding=[1, 0])  # no tie: the best one it is
    assert (k.tolist(), weight) == ([0, 2], 8.0)


def test_large_servers() -> None:
    """The approximation holds its word where the best is only known from the recursion."""
    rng = np.random.default_rng(5)
    for R, capacity in ((1, [4000]), (2, [150, 170])):
        for _ in range(6):
            space = Space.additive(rng.integers(5, 60, (6, R)), capacity)
            exact = make_solver("dp", space)
            for epsilon in (0.01, 0.05, 0.3):
                near = make_solver("approximate", space, epsilon=epsilon)
                for _ in range(4):
                    weights = rng.integers(1, 1000, 6).astype(float)
                    best = exact.best(weights)[1]
                    assert near.r * best <= near.best(weights)[1] <= best


def forty(capacity: int = 1000) -> Space:
    return Space.additive(np.random.default_rng(3).integers(5, 50, (40, 4)), [capacity] * 4)


@pytest.mark.parametrize(
    ("name", "remedy"), [("enumerate", "greedy-fill"), ("hull", "greedy-fill"), ("dp", "approximate")]
)
def test_what_cannot_be_had_is_refused(name: str, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        make_solver(name, forty())


def test_auto_never_fails() -> None:
    solver = make_solver("auto", forty())
    assert (solver.name, solver.asked) == ("approximate", "auto")
    assert solver.r >= 0.95
    assert "too many to list" in solver.reason
    k, weight = solver.best(np.arange(40.0))
    assert solver.space.feasible(k)
    assert weight > 0
    # Too many configurations, but a small grid: the recursion.
    grid = make_solver("auto", Space.additive(np.arange(1, 21)[:, None], [120]))
    assert grid.name == "dp"
    assert grid.r == 1.0


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("resources", [1, 2, 3])
def test_search_finds_the_best_of_many_types(resources: int, whole: bool) -> None:
    """Many types replace others: some ask for the same, some for less and weigh more; weights that are whole numbers are cut by steps of 1."""
    rng = np.random.default_rng(11)
    for _ in range(10):
        demand = rng.integers(20, 61, (25, resources))
        demand[20:] = demand[:5]
        space = Space.additive(demand, [100] * resources, rng.random(25) < 0.9)
        search, every = make_solver("search", space), make_solver("enumerate", space)
        for _ in range(10):
            weights = rng.integers(0, 6, 25) * 1.0 if whole else rng.random(25).round(2)
            k, weight = search.best(weights, order=rng.permutation(25))
            assert space.feasible(k)
            assert weight == pytest.approx(every.best(weights)[1], rel=1e-9)


@pytest.mark.core
def test_a_search_that_remembers_the_last_one_finds_the_best() -> None:
    """As a scheduler asks: the same memory for all searches, from one to the next few weights change, or none, or all; whole servers and rests."""
    rng = np.random.default_rng(12)
    demand = rng.integers(20, 61, (16, 2))
    demand[12:] = demand[:4]
    space = Space.additive(demand, [100, 100], rng.random(16) < 0.9)
    search, every = make_solver("search", space), make_solver("enumerate", space)
    params_f, params_i = search.params_f.copy(), search.params_i.copy()
    scratch_f, scratch_i = np.full(search.scratch_f_size, np.nan), np.full(search.scratch_i_size, -7)
    weights, out = np.zeros(16), np.zeros(16, np.int64)
    for step in range(60):
        changed = rng.integers(0, 16, (0, 1, 3, 16)[step % 4])
        weights[changed] = rng.integers(0, 6, len(changed)) if step < 40 else rng.random(len(changed)).round(2)
        order = rng.permutation(16)
        weight = solve(
            search.kind, weights, demand, space.capacity, order, scratch_f, scratch_i, params_f, params_i, out
        )
        assert space.feasible(out)
        assert weight == pytest.approx(every.best(weights)[1], rel=1e-9)
        again, same = search.best(weights, order=order)  # it remembers nothing, and decides the same
        assert (again.tolist(), same) == (out.tolist(), weight)
        rest = Space.additive(demand, rng.integers(20, 100, 2), space.counts > 0)
        room = rest.capacity
        weight = solve(search.kind, weights, demand, room, order, scratch_f, scratch_i, params_f, params_i, out)
        assert rest.feasible(out)
        assert weight == pytest.approx(make_solver("enumerate", rest).best(weights)[1], rel=1e-9)


@pytest.mark.parametrize("resources", [2, 3])
@pytest.mark.parametrize("largest", [0.1, 0.3, 0.6])
def test_auto_is_near_the_best_with_a_hundred_types(resources: int, largest: float) -> None:
    rng = np.random.default_rng(7)
    space = Space.additive(rng.integers(10, int(1000 * largest), (100, resources)), [1000] * resources)
    solver = make_solver("auto", space)
    assert solver.r >= 0.95
    # what it says of itself, against a search without the short cuts of its own
    exact = make_solver("approximate", space, epsilon=0.001, budget=10**8)
    for _ in range(20):
        weights = rng.poisson(4.0, 100).astype(float)
        assert solver.best(weights)[1] >= solver.r * exact.best(weights)[1] * (1 - 1e-12)


def test_a_search_that_would_not_end_is_refused() -> None:
    space = forty(200)
    with pytest.raises(InputError, match="larger epsilon"):
        make_solver("approximate", space, epsilon=0.001, budget=50)
    assert make_solver("approximate", space, epsilon=0.4).r == 0.6


@pytest.mark.core
def test_bad_input_is_named() -> None:
    space = Space.additive([[1]], [3])
    with pytest.raises(InputError, match="enumerate, hull, dp, greedy, greedy-fill, search, approximate, auto"):
        make_solver("best", space)
    with pytest.raises(InputError, match="epsilon: is 0"):
        make_solver("approximate", space, epsilon=0.0)
    with pytest.raises(InputError, match="is too small"):
        make_solver("approximate", space, epsilon=0.0001)
    solver = make_solver("auto", space)
    for weights in ([1.0, 2.0], [-1.0], [float("nan")]):
        with pytest.raises(InputError, match="weights"):
            solver.best(weights)
    with pytest.raises(InputError, match="permutation"):
        solver.best([1.0], order=[1])
    with pytest.raises(InputError, match="holding"):
        solver.best([1.0], holding=[4])


@pytest.mark.core
@pytest.mark.parametrize("name", SOLVERS)
def test_a_server_that_takes_nothing(name: str) -> None:
    solver = make_solver(name, Space.additive([[4, 1], [1, 4]], [3, 3]))
    k, weight = solver.best([1.0, 2.0])
    assert (k.tolist(), weight) == ([0, 0], 0.0)
    assert "no type fits" in solver.reason


@pytest.mark.core
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("resources", [1, 2])
def test_a_type_that_is_not_allowed_has_no_say(name: str, resources: int) -> None:
    """However much it weighs, all other types are chosen as if it were not there: 2 x 5 beats 1 x 6 in a capacity of
    10."""
    demand = np.repeat([[1], [6], [5]], resources, axis=1)
    capacity, weights = [10] * resources, [1e9, 6.1, 5.0]
    solver = make_solver(name, Space.additive(demand, capacity, [False, True, True]))
    without = make_solver(name, Space.additive(demand[1:], capacity))
    for order in ([0, 1, 2], [2, 1, 0]):
        k, weight = solver.best(weights, order=order)
        alone, same = without.best(weights[1:], order=[j - 1 for j in order if j])
        assert (k.tolist(), weight) == ([0, *alone.tolist()], same)
    assert solver.r == without.r
    if name in EXACT or name == "approximate":
        assert weight == 10.0


@pytest.mark.core
def test_one_resource_with_many_sizes() -> None:
    """The same bits, and the same of equal choices, as by the recursion type after type."""
    rng = np.random.default_rng(5)
    for n in range(INSTANCES):
        J, whole = int(rng.integers(1, 30)), int(rng.integers(1, 60))
        sizes = rng.integers(1, whole + 4, J)
        sizes[0] = 1
        weights = [rng.random(J), rng.integers(0, 4, J) * 1.0, 0.37 * sizes + 0.1 * rng.integers(0, 2, J)][n % 3]
        allowed = rng.random(J) < 0.9
        space = Space.additive(sizes.reshape(-1, 1), np.array([whole]), allowed)
        if not len(space.fitting):
            continue
        order, room = rng.permutation(J), int(rng.integers(0, whole + 1))
        solver = make_solver("dp", space)
        out, weight = run(solver, weights, np.array([room]), order)
        step = int(np.gcd.reduce(sizes[space.fitting]))
        most, choice = [0.0] * (room // step + 1), [-1] * (room // step + 1)
        for cell in range(len(most)):
            for j in order:
                if allowed[j] and sizes[j] <= cell * step:
                    here = most[cell - sizes[j] // step] + weights[j]
                    if choice[cell] < 0 or here > most[cell]:
                        most[cell], choice[cell] = here, j
        found, cell = np.zeros(J, np.int64), len(most) - 1
        while choice[cell] >= 0:
            found[choice[cell]] += 1
            cell -= sizes[choice[cell]] // step
        assert out.tolist() == found.tolist()
        assert weight == pytest.approx(most[-1])

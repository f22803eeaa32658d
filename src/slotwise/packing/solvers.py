"""r-max-weight configurations (section 6.1): k with f(k, Q) >= r max_k' f(k', Q), for any weights Q >= 0.

Each way to find one has a name, a guarantee r and a price; `make_solver` checks that the price can be paid for this
server, and `auto` picks the best that can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.errors import InputError
from slotwise.packing.enumeration import enumerate_maximal
from slotwise.packing.hull import thin
from slotwise.packing.kernels import BRANCH_AND_BOUND, DP, FPTAS, GREEDY_FILL, TABLE, solve, table_best
from slotwise.packing.kernels.fill import total
from slotwise.packing.kernels.fptas import cells as fptas_cells
from slotwise.packing.space import Space

SOLVERS: dict[str, str] = {
    "enumerate": "best over all maximal configurations (r = 1)",
    "hull": "best over the vertices of their convex hull (r = 1 with far fewer candidates)",
    "dp": "the paper's recursion over integer capacities (r = 1; additive demands)",
    "greedy": "Lemma 2: the best configuration of one type only (r = N_f / (R (N_f + 1)))",
    "greedy-fill": "Lemma 2, the rest filled by lower relative value (r as greedy)",
    "search": "branch and bound over all configurations (r = 1; additive demands)",
    "approximate": "within epsilon of the best (r = 1 - epsilon; additive demands)",
    "auto": "hull where its vertices are few, else search, dp, approximate or greedy-fill, the first that is quick enough",
}

TABLE_ROWS = 200_000  # The longest table that is searched at every decision.
DP_CELLS = 4_000_000  # The largest grid of `dp`, in cells (16 bytes each).
APPROXIMATE_CELLS = 4_000_000  # The most multiples that one resource's scheme may keep.
APPROXIMATE_NODES = 10_000_000  # The most nodes that a trial of the branch and bound may take (about a second).
# The limits of `auto`, beyond which it takes another method.
AUTO_STEPS = 8_000_000  # steps to list configurations
AUTO_PREDICATE_CALLS = 20_000  # calls of a predicate to list configurations
AUTO_ENTRIES = 500_000  # counts to thin
AUTO_HULL = 100_000_000  # work on thinning them
AUTO_ROWS = 20_000  # configurations to search
AUTO_DP = 1_000_000  # cells of the grid of `dp`
AUTO_SHORT = 15_000  # counts of a table that is no slower than a search
AUTO_FOLLOWED = 400  # candidates with jobs of a type, on average, if their weights are kept up to date
# Nodes of a search, at first and at last: about a millisecond, on weights that are hard.
AUTO_NODES, AUTO_LAST_NODES = 20_000, 200_000
# Shares of the best weight that `auto` may miss if no exact method is within its limits, tried in this order.
AUTO_EPSILON = (0.005, 0.01, 0.02)

REPLACERS = 8  # types in each type's list of types that could replace it

I8 = NDArray[np.int64]
F8 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solver:
    """A way to an r-max-weight configuration of one server class, with what its kernel needs."""

    name: str
    """The solver really used."""
    asked: str
    """The name asked for, such as "auto"."""
    r: float
    """f(k, Q) >= r max f for every Q >= 0, guaranteed."""
    fixed_set: bool
    """An argmax over a fixed set of configurations, so that the subset corollary allows any beta < 1."""
    reason: str
    space: Space
    kind: int
    table: I8 | None
    """The candidates, where there is a list of them (kind TABLE)."""
    params_f: F8
    params_i: I8
    scratch_f_size: int
    scratch_i_size: int

    def best(
        self, weights: ArrayLike, *, order: ArrayLike | None = None, holding: ArrayLike | None = None
    ) -> tuple[I8, float]:
        """Return a configuration of weight at least r times the best, and its weight.

        Ties: one that contains the jobs in `holding`, then the type earlier in `order` (a permutation).
        """
        J = self.space.n_types
        w = np.ascontiguousarray(weights, dtype=np.float64)
        if w.shape != (J,) or not np.isfinite(w).all() or (w < 0).any():
            raise InputError(f"are not {J} finite numbers >= 0", where="weights", remedy="give one weight per type")
        ranks = np.arange(J) if order is None else np.ascontiguousarray(order, dtype=np.int64)
        if not np.array_equal(np.sort(ranks), np.arange(J)):
            raise InputError(f"is not a permutation of 0..{J - 1}", where="order", remedy="name every type once")
        held = np.zeros(J, np.int64) if holding is None else np.ascontiguousarray(holding, dtype=np.int64)
        if held.shape != (J,) or not self.space.feasible(held):
            raise InputError("does not fit this server", where="holding", remedy="give the jobs that are on it")
        if self.table is not None:
            row = self.table[table_best(w, self.table, ranks, held)].copy()
            return row, total(w, row)
        assert self.space.demand is not None
        assert self.space.capacity is not None
        configuration, weight = self._solve(w, self.space.capacity, ranks)
        if held.any() and (configuration < held).any():
            beside, _ = self._solve(w, self.space.capacity - held @ self.space.demand, ranks)
            beside += held
            if total(w, beside) >= weight:
                return beside, total(w, beside)
        return configuration, weight

    def most_jobs(self) -> float:
        """Return the most jobs that a candidate holds."""
        return self.best(np.ones(self.space.n_types))[1] / self.near

    @property
    def near(self) -> float:
        """At least this share of the weight of every candidate: 1 for an argmax over a fixed set."""
        return 1.0 if self.fixed_set else self.r

    def _solve(self, weights: F8, capacity: I8, order: I8) -> tuple[I8, float]:
        assert self.space.demand is not None
        out = np.zeros(self.space.n_types, np.int64)
        weight = solve(
            self.kind,
            weights,
            self.space.demand,
            capacity,
            order,
            np.empty(self.scratch_f_size),
            np.empty(self.scratch_i_size, np.int64),
            self.params_f.copy(),  # a kernel may note there what its next call can use
            self.params_i.copy(),
            out,
        )
        return out, float(weight)


def make_solver(
    name: str, space: Space, *, epsilon: float = 0.05, budget: int | None = None, followed: bool = False
) -> Solver:
    """Return the solver of that name for this server class.

    `followed`: the caller keeps the weights of listed candidates up to date from question to question, so that `auto`
    may list more of them. `epsilon` is for `approximate`. `budget` bounds what is spent here: configurations looked at
    (`enumerate`, `hull`, `auto`), cells (`dp`, `approximate` on one resource) or nodes of a trial (`approximate`).
    """
    if name not in SOLVERS:
        raise InputError(f'no solver is called "{name}"', where="solver", remedy=f"use one of {', '.join(SOLVERS)}")
    if not 0.0 < epsilon < 1.0:
        raise InputError(f"is {epsilon}", where="epsilon", remedy="use a number between 0 and 1")
    if len(space.fitting) == 0:
        nothing = np.zeros((1, space.n_types), np.int64)
        return _of_table(name, name, nothing, 1.0, True, "no type fits this server, so it stays empty", space)
    return _auto(space, epsilon, budget, followed) if name == "auto" else _MAKERS[name](space, epsilon, budget)


def stand_in(name: str, space: Space) -> Solver:
    """Return a solver that finds the empty configuration, until the solver of that name is made."""
    nothing = np.zeros((1, space.n_types), np.int64)
    return _of_table(name, name, nothing, 1.0, True, "not made yet", space)


def _of_table(name: str, asked: str, table: I8, r: float, fixed_set: bool, reason: str, space: Space) -> Solver:
    none_f, none_i = np.zeros(1), np.zeros(1, np.int64)
    return Solver(name, asked, r, fixed_set, reason, space, TABLE, table, none_f, none_i, 1, 1)


def _enumerate(space: Space, epsilon: float, budget: int | None) -> Solver:
    table = _listed("enumerate", space, budget)
    if len(table) > TABLE_ROWS:
        raise InputError(
            f"{len(table)} maximal configurations are too many to search at every decision",
            where='solver "enumerate"',
            remedy='use "hull", "dp" or "auto"',
        )
    return _of_table("enumerate", "enumerate", table, 1.0, True, f"all {len(table)} maximal configurations", space)


def _hull(space: Space, epsilon: float, budget: int | None) -> Solver:
    table = _listed("hull", space, budget)
    hull = thin(table)
    if len(hull.configurations) > TABLE_ROWS:
        raise InputError(
            f"{len(hull.configurations)} candidates are too many to search at every decision",
            where='solver "hull"',
            remedy='use "dp", "approximate" or "auto"',
        )
    return _of_table("hull", "hull", hull.configurations, 1.0, True, _thinned(len(table), hull), space)


def _thinned(listed: int, hull: tuple[I8, bool]) -> str:
    rows, complete = hull
    if complete:
        return f"{len(rows)} vertices of the hull of {listed} maximal configurations"
    return f"{len(rows)} of {listed} maximal configurations; the rest are no vertices of their hull"


def _listed(name: str, space: Space, budget: int | None) -> I8:
    listing = enumerate_maximal(space, budget, partial=False)
    if not listing.complete:
        instead = '"greedy-fill" or "auto"'
        if space.predicate is None:
            small = math.prod(step + 1 for step in _grid(space)[0]) <= DP_CELLS
            instead = ('"dp", ' if small else '"approximate", ') + instead
        raise InputError(
            f"{len(space.fitting)} types have more maximal configurations than can be listed within the budget",
            where=f'solver "{name}"',
            remedy=f"use {instead}",
        )
    return listing.configurations


def _dp(space: Space, epsilon: float, budget: int | None) -> Solver:
    demand, _ = _additive("dp", space)
    steps, divisors = _grid(space)
    cells = math.prod(step + 1 for step in steps)
    if cells > (DP_CELLS if budget is None else budget):
        raise InputError(
            f"a grid of {' x '.join(str(step + 1) for step in steps)} capacities is too large",
            where='solver "dp"',
            remedy='use "approximate", "greedy-fill" or "auto", or round the sizes to coarser units',
        )
    J, R = demand.shape
    reason = f"recursion over a grid of {' x '.join(str(step + 1) for step in steps)} capacities"
    sizes = -(-demand // np.array(divisors))
    params = np.zeros(1), _whole_params(space, *divisors, *sizes.reshape(-1).tolist())
    room = (2 if R == 1 else 1) * cells, cells + J + 3 * R
    return Solver("dp", "dp", 1.0, True, reason, space, DP, None, *params, *room)


def _whole_params(space: Space, *more: int) -> I8:
    """Return `params_i` of a kernel: which types the class holds at all, then the solver's own numbers."""
    return np.array([*(space.counts > 0), *more], np.int64)


def _grid(space: Space) -> tuple[list[int], list[int]]:
    """Return the steps of the dp grid in each resource, and the gcd of the demands in it (of the types that fit)."""
    assert space.demand is not None
    assert space.capacity is not None
    divisors = [
        math.gcd(*(int(size) for size in column)) or int(room) + 1
        for column, room in zip(space.demand[space.fitting].T, space.capacity, strict=True)
    ]
    return [int(room) // g for room, g in zip(space.capacity, divisors, strict=True)], divisors


def _guarantee(space: Space) -> tuple[float, str]:
    """Return Lemma 2's r over the types that fit. For a predicate it is 1 / (how many fit), as f(k) <= sum_j Q_j
    most_j."""
    types = space.fitting
    if space.demand is None:
        return 1.0 / len(types), f"r = 1/{len(types)}: a predicate, {len(types)} types fit"
    R = space.demand.shape[1]
    least = int(space.counts[types].min())
    return least / (R * (least + 1)), f"r = {least}/({R} x {least + 1}): at least {least} of each type fit"


def _greedy(space: Space, epsilon: float, budget: int | None) -> Solver:
    r, why = _guarantee(space)
    table = np.diag(space.counts)[space.fitting]
    return _of_table("greedy", "greedy", np.ascontiguousarray(table), r, True, f"one type only; {why}", space)


def _greedy_fill(space: Space, epsilon: float, budget: int | None) -> Solver:
    r, why = _guarantee(space)
    if space.demand is None:
        table = _filled_by_predicate(space)
        reason = f"{len(table)} configurations, each type first, then all other types; {why}"
        return _of_table("greedy-fill", "greedy-fill", table, r, True, reason, space)
    J, R = space.demand.shape
    reason = f"by relative value, each type as often as it fits; {why}"
    params = np.zeros(1), _whole_params(space)
    return Solver("greedy-fill", "greedy-fill", r, False, reason, space, GREEDY_FILL, None, *params, J, J + R)


def _filled_by_predicate(space: Space) -> I8:
    """Return a fixed set of configurations: each type as often as it fits, then the other types in turn, upwards and
    downwards from it."""
    types = [int(j) for j in space.fitting]
    rows = set()
    for i in range(len(types)):
        for turn in (types[i:] + types[:i], types[i::-1] + types[:i:-1]):
            k = [0] * space.n_types
            for j in turn:
                fits, too_many = 0, space.most(j) + 1
                while too_many - fits > 1:
                    k[j] = (fits + too_many) // 2
                    if space.feasible(k):
                        fits = k[j]
                    else:
                        too_many = k[j]
                k[j] = fits
            rows.add(tuple(k))
    return np.array(sorted(rows), np.int64)


def _search(space: Space, epsilon: float, budget: int | None) -> Solver:
    demand, _ = _additive("search", space)
    solver = _branching("search", space, 0.0, f"branch and bound over all configurations of {len(demand)} types")
    if not _searchable(solver, APPROXIMATE_NODES if budget is None else budget):
        raise InputError(
            f"{len(demand)} types in {demand.shape[1]} resources take too long to search",
            where='solver "search"',
            remedy='use "approximate", "greedy-fill" or "auto"',
        )
    return solver


def _branching(name: str, space: Space, epsilon: float, reason: str) -> Solver:
    """Return a solver by branch and bound; with epsilon = 0 it is an argmax over all configurations."""
    assert space.demand is not None
    J, R = space.demand.shape
    params = np.array([epsilon] + [0.0] * (J + 1)), _searching(space, 0)
    sizes = (2 * R + 7) * (J + 1) + R, 4 * J + 2 * R + 3 * R * (J + 1)
    exact = epsilon == 0.0
    return Solver(name, name, 1.0 - epsilon, exact, reason, space, BRANCH_AND_BOUND, None, *params, *sizes)


def _searching(space: Space, nodes: int) -> I8:
    """Return `params_i` of the branch and bound: the most nodes, the least demands, which type may replace which,
    and memory to note which does."""
    assert space.demand is not None
    least = space.demand[space.fitting].min(axis=0)
    return _whole_params(
        space, nodes, *(int(size) for size in least), *_replacers(space), *[0] * (space.n_types + 1)
    )


@lru_cache(maxsize=8)
def _replacers(space: Space) -> tuple[int, ...]:
    """Return the lists of `unbeaten` as one row of numbers: the length of each type's list; these lists (`smaller`);
    the ends of the lists of types that a type may replace (`larger_ends`); those lists (`larger`). A type's list holds
    types that ask for no more, the largest first, since these weigh most as a rule. The type itself, which never
    replaces itself, fills up the list. A type i is 2 i + 1 if it asks for less in some resource than the type that it
    may replace, else 2 i."""
    assert space.demand is not None
    assert space.capacity is not None
    demand, types = space.demand, range(space.n_types)
    size = (demand / np.maximum(space.capacity, 1)).sum(axis=1)
    fitting = space.fitting[np.argsort(-size[space.fitting], kind="stable")]
    smaller: list[int] = []
    larger: list[list[int]] = [[] for _ in types]
    for j in types:
        others = fitting[(demand[fitting] <= demand[j]).all(axis=1) & (fitting != j)][:REPLACERS].tolist()
        for i in others:
            less = int((demand[i] != demand[j]).any())
            smaller.append(2 * i + less)
            larger[i].append(2 * j + less)
        smaller += [2 * j] * (REPLACERS - len(others))
    ends = [0, *accumulate(map(len, larger))]
    return (REPLACERS, *smaller, *ends, *chain.from_iterable(larger))


def _approximate(space: Space, epsilon: float, budget: int | None) -> Solver:
    demand, _ = _additive("approximate", space)
    J, R = demand.shape
    if R == 1:
        cells = fptas_cells(epsilon)
        if cells > (APPROXIMATE_CELLS if budget is None else budget):
            raise InputError(f"of {epsilon} is too small", where="epsilon", remedy='use a larger one, or "dp"')
        reason = f"one resource, weights rounded to {cells} steps"
        return Solver(
            *("approximate", "approximate", 1.0 - epsilon, False, reason, space, FPTAS, None),
            *(np.array([epsilon]), _whole_params(space, 0), J, 2 * cells + 2 * J + 1),
        )
    reason = f"branch and bound on {R} resources, cut at {1 - epsilon:g} of the bound"
    solver = _branching("approximate", space, epsilon, reason)
    if not _searchable(solver, APPROXIMATE_NODES if budget is None else budget):
        raise InputError(
            f"{J} types in {R} resources take too long to search within {epsilon:g} of the best",
            where='solver "approximate"',
            remedy='use a larger epsilon, "greedy-fill" or "auto"',
        )
    return solver


def _searchable(solver: Solver, nodes: int) -> bool:
    """Try the search on weights of several kinds, each with at most so many nodes.

    The search itself has no limit, since it must end for its r to hold; this is to refuse a hopeless one at once.
    """
    demand, capacity = _additive("approximate", solver.space)
    J = len(demand)
    rng = np.random.default_rng(0)
    size = (demand / np.maximum(capacity, 1)).max(axis=1)
    kinds = [np.ones(J), size, demand.sum(axis=1) / max(1, int(demand.max()))]
    kinds += [rng.integers(0, 1000, J).astype(np.float64) for _ in range(8)]
    kinds += [size * rng.uniform(0.8, 1.2, J) for _ in range(8)]
    out = np.zeros(J, np.int64)
    scratch_f, scratch_i = np.empty(solver.scratch_f_size), np.empty(solver.scratch_i_size, np.int64)
    limit = _searching(solver.space, nodes)
    order = np.arange(J)
    return all(
        solve(solver.kind, w, demand, capacity, order, scratch_f, scratch_i, solver.params_f, limit, out) >= 0
        for w in kinds
    )


def _additive(name: str, space: Space) -> tuple[I8, I8]:
    if space.demand is None or space.capacity is None:
        raise InputError(
            "needs additive demands, this server has a predicate",
            where=f'solver "{name}"',
            remedy='use "hull", "greedy-fill" or "auto"',
        )
    return space.demand, space.capacity


def _auto(space: Space, epsilon: float, budget: int | None, followed: bool) -> Solver:
    nodes = AUTO_PREDICATE_CALLS if space.demand is None else AUTO_STEPS // space.demand.size
    listing = enumerate_maximal(space, nodes if budget is None else budget, partial=False)
    many = f"more than {listing.met} maximal configurations, too many to list"
    table = None
    if listing.complete:
        rows = len(listing.configurations)
        many = f"{rows} maximal configurations, too many to look at in every decision"
        if listing.configurations.size <= AUTO_ENTRIES:
            hull = thin(listing.configurations, AUTO_HULL)
            if len(hull.configurations) <= AUTO_ROWS:
                table = _of_table("hull", "auto", hull.configurations, 1.0, True, _thinned(rows, hull), space)
                if hull.configurations.size <= AUTO_SHORT or space.demand is None:
                    return table
        if (
            followed
            and rows <= AUTO_ROWS
            and np.count_nonzero(listing.configurations) <= AUTO_FOLLOWED * space.n_types
        ):
            reason = f"all {rows} maximal configurations"
            return table or _of_table(
                "enumerate", "auto", _in_runs(listing.configurations), 1.0, True, reason, space
            )
    if space.demand is not None:
        grid = math.prod(step + 1 for step in _grid(space)[0]) * space.demand.size
        exact = _branching("search", space, 0.0, f"branch and bound over {space.n_types} types")
        if grid > AUTO_SHORT and _searchable(exact, AUTO_NODES):
            return _renamed(exact, many)
        if table is not None:
            return table
        if grid <= AUTO_DP:
            return _renamed(_dp(space, epsilon, None), many)
        many += "; a search for the best, or a dp grid, would be too large"
        for near in (*(e for e in AUTO_EPSILON if e < epsilon), epsilon, 2 * epsilon):
            if near < 1 and _quick_within(space, near, AUTO_NODES if near < epsilon else AUTO_LAST_NODES):
                return _renamed(_approximate(space, near, None), many)
    return _renamed(_greedy_fill(space, epsilon, None), many)


def _in_runs(table: I8) -> I8:
    """Return the rows in an order in which rows with a job of the same type stand together, types in many rows
    first. Following their weights then touches fewer places."""
    often = np.argsort(np.count_nonzero(table, axis=0), kind="stable")
    return np.ascontiguousarray(table[np.lexsort(table.T[often])])


def _quick_within(space: Space, epsilon: float, nodes: int) -> bool:
    """Return whether `approximate` is quick enough for every decision."""
    assert space.demand is not None
    if space.demand.shape[1] == 1:
        return fptas_cells(epsilon) * space.n_types <= AUTO_DP
    return _searchable(_branching("approximate", space, epsilon, ""), nodes)


def _renamed(solver: Solver, why: str) -> Solver:
    return Solver(**{**vars(solver), "asked": "auto", "reason": f"{solver.reason} ({why})"})


_MAKERS: dict[str, Callable[[Space, float, int | None], Solver]] = {
    "enumerate": _enumerate,
    "hull": _hull,
    "dp": _dp,
    "greedy": _greedy,
    "greedy-fill": _greedy_fill,
    "search": _search,
    "approximate": _approximate,
}

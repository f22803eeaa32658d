"""What one server class can hold at given prices: h(w) = max {w.k : k fits}, the support function of its hull.

Everything that theory asks of a server class is asked through h. A `Pricing` answers with a configuration, its
value w.k <= h(w), and a limit >= h(w) that is proven; where the two agree the answer is exact. Where they do not (a
search that ran out of its budget), results that rest on it carry a lower and an upper limit instead of one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from slotwise.packing import Space, enumerate_maximal, thin
from slotwise.packing.kernels.search import prices as dual_prices
from slotwise.packing.kernels.search import undominated
from slotwise.region.search import search

Vector = NDArray[np.float64]
Counts = NDArray[np.int64]

LISTED = 20_000  # Configurations looked at before listing them all gives way to a search.
THINNED = 500  # A table up to this long is thinned to the vertices of its hull.
EFFORT = 2_000_000  # Nodes that one search may visit, about a fifth of a second.
DEPTH = 100_000  # Jobs on one server beyond which a search does not go.
ROUNDING = 1e-11


class Priced(NamedTuple):
    """One answer: value = w.configuration <= h(w) <= limit."""

    configuration: Counts
    value: float
    limit: float


class Pricing(Protocol):
    """h(w) of one server class."""

    @property
    def space(self) -> Space:
        """The feasible set it prices."""
        ...

    def start(self) -> Counts:
        """Return a few configurations, one per row, that hold every type which fits at all (never none)."""
        ...

    def best(self, prices: Vector, effort: int = EFFORT, known: Counts | None = None) -> Priced:
        """Return the most valuable configuration at prices w >= 0, with the limit that `effort` buys.

        `known` is a configuration to start from, the best so far.
        """
        ...


class ListedPricing:
    """All (maximal) configurations in a table; exact, unless the table is known to be a part only."""

    def __init__(self, space: Space, table: Counts, complete: bool = True) -> None:
        self.space = space
        self.table = table
        self.complete = complete
        self._values = table.astype(np.float64)

    def start(self) -> Counts:
        """Return for each type a row that has the most of it."""
        return np.asarray(self.table[np.unique(np.argmax(self.table, axis=0))])

    def best(self, prices: Vector, effort: int = EFFORT, known: Counts | None = None) -> Priced:
        """Return the best row. The limit of an incomplete table is what each type could fill alone, added up."""
        values = self._values @ prices
        row = int(np.argmax(values))
        value = float(values[row])
        limit = value if self.complete else max(value, float(prices @ self.space.counts))
        return Priced(self.table[row], value, limit)


class SearchedPricing:
    """Branch and bound on additive demands (`search`): exact if it ends within its nodes, else with a limit."""

    def __init__(self, space: Space) -> None:
        assert space.demand is not None
        assert space.capacity is not None
        self.space = space
        self._room = np.flatnonzero(space.capacity > 0)
        """the resources with a capacity above 0; a type that fits asks nothing of any other"""
        self._capacity = space.capacity[self._room]
        self._demand = np.ascontiguousarray(space.demand[:, self._room])

    def start(self) -> Counts:
        """Return each type alone, as often as it fits."""
        fitting = self.space.fitting
        rows = np.zeros((max(1, len(fitting)), self.space.n_types), np.int64)
        rows[np.arange(len(fitting)), fitting] = self.space.counts[fitting]
        return rows

    def best(self, prices: Vector, effort: int = EFFORT, known: Counts | None = None) -> Priced:
        """Search at these prices, through at most `effort` nodes."""
        out = np.zeros(len(prices), np.int64)
        types = np.flatnonzero((prices > 0) & (self.space.counts > 0))
        if len(types) == 0:
            return Priced(out, 0.0, 0.0)
        y, relaxed = self._relaxation(prices, types)
        order = types[np.argsort(-prices[types] / (self._demand[types] @ y), kind="stable")]
        order = order[: undominated(prices, self._demand, order, len(order))]
        value, demand = prices[order], self._demand[order]
        multipliers = np.vstack([y, np.eye(len(y))])
        depth = min(DEPTH, int(self._capacity.sum() // demand.sum(axis=1).min()))
        # On a large server the best is near the linear program's: keep most of that, and search the room left.
        kept: Counts = np.maximum(0, relaxed[order] - 1)
        found = np.zeros(len(order), np.int64)
        left: Counts = self._capacity - kept @ demand
        search(value, demand, left, multipliers, effort // 10, depth, found)
        found += kept
        if known is not None and float(value @ known[order]) > float(value @ found):
            found = known[order]
        limit = search(value, demand, self._capacity, multipliers, effort, depth, found)
        out[order] = found
        return Priced(out, float(prices @ out), limit * (1 + ROUNDING))

    def _relaxation(self, prices: Vector, types: Counts) -> tuple[Vector, Counts]:
        """Return dual prices y > 0 of the linear relaxation over these types, and its solution rounded down."""
        m, R = len(types), len(self._capacity)
        y = np.zeros(R)
        tableau = np.zeros((R + 1) * (m + 1))
        labels = np.zeros(m + R, np.int64)
        dual_prices(prices, self._demand, self._capacity, types, m, tableau, labels, y)
        rounded = np.zeros(len(prices), np.int64)
        for n in range(R):
            if labels[m + n] < m:  # a type, not a slack, is in the basis
                rounded[types[labels[m + n]]] = int(tableau[n * (m + 1) + m] * (1 + 1e-9))
        if (rounded @ self._demand > self._capacity).any():  # the simplex method lost its way: do without
            rounded[:] = 0
        return y, rounded


def pricing_of(space: Space) -> Pricing:
    """Return the best pricing for the space: a full table if it is short, else a search."""
    additive = space.predicate is None
    listed = enumerate_maximal(space, LISTED if additive else None, partial=not additive)
    if not listed.complete and additive:
        return SearchedPricing(space)
    rows = listed.configurations
    if listed.complete and len(rows) <= THINNED:
        rows = thin(rows).configurations  # the vertices say the same in fewer words
    return ListedPricing(space, rows, listed.complete)


def total_value(pricings: Sequence[Pricing], counts: Sequence[int], prices: Vector) -> float:
    """Return a proven limit on W(w) = sum_l max_k w.k, over all servers."""
    return sum(count * pricing.best(prices).limit for pricing, count in zip(pricings, counts, strict=True) if count)

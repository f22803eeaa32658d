"""The configurations that matter: vertices of the convex hull for weights >= 0, exactly.

A configuration p is needed when it is the only best one for some weights w >= 0, that is when it lies outside {x : x <=
some convex combination of the other configurations}. Let V be the vertices found so far. By duality p lies under the
hull of V iff

    max {p.w : V w <= 1, w >= 0} <= 1.

If so, p is no further vertex. If not, the maximising w is a witness: the best configuration for w (ties broken by
the first counts, which amounts to a tiny change of w) is a vertex that V lacks. So V grows by a true vertex or a
candidate falls, until no candidate is left (Clarkson's scheme). An optimal basis serves every candidate for which
its reduced costs are >= 0, so one linear program usually settles many. All arithmetic is on integers: no tolerance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.compiler.kernel import JIT, as_python
from slotwise.errors import InputError
from slotwise.packing.kernels.settling import settle
from slotwise.packing.kernels.simplex import maximise

# Tableau and candidate entries worked on before the search for vertices stops (some seconds).
BUDGET = 2_000_000_000
DIRECTIONS = 128  # Random weights to start from: they find most vertices for next to nothing.
FEW = 200  # cells of a tableau that plain Python pivots before the compiler would be ready
FEW_ENTRIES = (
    20_000  # counts of candidates that are multiplied out at once: a kernel gains less than loading it takes
)
SLOW = 50  # What an entry costs once 64 bits are too few.

Matrix = NDArray[Any]  # of int64, or of Python integers where 64 bits are too few


class Hull(NamedTuple):
    """Rows that attain the optimum of the whole set for every weight >= 0; just the vertices when `complete`."""

    configurations: NDArray[np.int64]
    complete: bool


def hull_vertices(configurations: ArrayLike, budget: int = BUDGET) -> NDArray[np.int64]:
    """Return the rows that are the unique best one for some weights >= 0, in lexicographic order."""
    hull = thin(configurations, budget)
    if not hull.complete:
        raise InputError(
            f"the convex hull of {len(np.asarray(configurations))} configurations is not settled within the budget",
            remedy="raise the budget, or use `thin`, which keeps the undecided ones",
        )
    return hull.configurations


def thin(configurations: ArrayLike, budget: int = BUDGET) -> Hull:
    """Return the vertices as `hull_vertices` does, but keep the rows that are undecided when the budget runs out.
    The optimum never changes."""
    points = np.unique(np.asarray(configurations, dtype=np.int64), axis=0)[::-1]  # the first of ties is the largest
    if len(points) <= 1 or not points.any():
        return Hull(np.ascontiguousarray(points[:1]), True)
    points = np.ascontiguousarray(points)
    if (points < 0).any():
        raise InputError("has negative counts", where="configurations", remedy="give counts of 0 or more")
    chosen = np.unique(np.argmax(_product(points, _directions(points)), axis=0))
    vertices = points[chosen]
    open_ = np.delete(points, chosen, axis=0)
    spent = 0
    while len(open_) and spent < budget:
        prices, denominator, work = _optimum(vertices, open_[0])
        settled, values = _settled(open_, prices, denominator)
        spent += work + len(open_) * prices.size * (SLOW if prices.dtype == object else 1)
        if values[0] > denominator:
            # Settled rows weigh no more than the denominator, so the best row is not among them.
            new = int(np.argmax(values))
            vertices = np.vstack([vertices, open_[new]])
            settled[new] = True
        open_ = open_[~settled]
    rows = np.vstack([vertices, open_])
    return Hull(np.ascontiguousarray(rows[np.lexsort(rows.T[::-1])]), len(open_) == 0)


def _directions(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the axes (with them every type that occurs is in V, so no linear program is unbounded) and random weights."""
    J = points.shape[1]
    rng = np.random.default_rng(0)
    random = rng.integers(0, 1 << 16, size=(DIRECTIONS, J))
    scaled = random // np.maximum(points.max(axis=0), 1)  # so that no type outweighs the rest
    sparse = random * (rng.random((DIRECTIONS, J)) < 0.5)
    rows = [np.eye(J, dtype=np.int64), random[: DIRECTIONS // 4], scaled, sparse[: DIRECTIONS // 4]]
    return np.vstack(rows).T


def _settled(open_: NDArray[np.int64], prices: Matrix, denominator: int) -> tuple[NDArray[np.bool_], Matrix]:
    """Return which candidates lie under the hull by this basis, and the value of each, times the denominator."""
    if JIT and open_.size > FEW_ENTRIES and prices.dtype != object and _widest(open_, prices) < 2**62:
        settled, values = np.zeros(len(open_), np.bool_), np.zeros(len(open_), np.int64)
        settle(open_, np.ascontiguousarray(prices.T), denominator, settled, values)
        return settled, values
    costs = _product(open_, prices)
    return (costs >= 0).all(axis=1) & (costs[:, -1] <= denominator), costs[:, -1]


def _widest(points: NDArray[np.int64], matrix: Matrix) -> int:
    """Return a bound on the entries of points @ matrix."""
    return int(points.sum(axis=1).max()) * max(abs(int(matrix.max())), abs(int(matrix.min())))


def _product(points: NDArray[np.int64], matrix: Matrix) -> Matrix:
    """Return points @ matrix, exactly."""
    widest = _widest(points, matrix)
    if widest < 2**53:  # exact in floats, whose products are far quicker
        product: Matrix = (points.astype(np.float64) @ matrix.astype(np.float64)).astype(np.int64)
    elif widest < 2**62:
        product = points @ matrix.astype(np.int64)
    else:
        product = points.astype(object) @ matrix.astype(object)
    return product


def _optimum(vertices: NDArray[np.int64], p: NDArray[np.int64]) -> tuple[Matrix, int, int]:
    """Solve max {p.w : V w <= 1, w >= 0}: a matrix M, its denominator D, and the work done.

    For any objective q the reduced costs at this basis are (q M)[:J] / D and the value is (q M)[J] / D; the last
    column of M is D w.
    """
    v, J = vertices.shape
    tableau = np.ones((v + 1, J + 1), np.int64)
    tableau[:v, :J] = vertices
    tableau[v, :J] = -p
    tableau[v, J] = 0
    labels = np.arange(v + J, dtype=np.int64)
    exact, exact_labels = tableau.copy(), labels.copy()
    denominator, pivots, enough = (as_python(maximise) if tableau.size <= FEW else maximise)(tableau, labels, 1)
    work = (pivots + 1) * tableau.size
    final: Matrix = tableau
    if not enough:
        denominator, pivots = _maximise_long(exact_tableau := exact.astype(object), exact_labels)
        final, labels = exact_tableau, exact_labels
        work += SLOW * (pivots + 1) * tableau.size
    prices = np.zeros((J, J + 1), final.dtype)
    for place, label in enumerate(labels):
        if label < J:
            if place < J:
                prices[label, place] = -denominator
            else:
                prices[label] = final[place - J]
    return prices, int(denominator), work


def _maximise_long(tableau: Matrix, labels: NDArray[np.int64]) -> tuple[int, int]:
    """Do the work of `maximise` on Python integers, of any length (by Bland's rule)."""
    rows, width = tableau.shape[0] - 1, tableau.shape[1] - 1
    denominator, pivots = 1, 0
    while (negative := np.flatnonzero(tableau[rows, :width] < 0)).size:
        enter = negative[np.argmin(labels[negative])]
        leave = -1
        for i in np.flatnonzero(tableau[:rows, enter] > 0):
            if leave >= 0:
                gap = tableau[i, width] * tableau[leave, enter] - tableau[leave, width] * tableau[i, enter]
                if gap > 0 or (gap == 0 and labels[width + i] > labels[width + leave]):
                    continue
            leave = int(i)
        row, column, pivot = tableau[leave].copy(), tableau[:, enter].copy(), tableau[leave, enter]
        tableau[:] = (tableau * pivot - np.outer(column, row)) // denominator
        tableau[leave], tableau[:, enter] = row, -column
        tableau[leave, enter] = denominator
        labels[enter], labels[width + leave] = labels[width + leave], labels[enter]
        denominator = pivot
        pivots += 1
    return denominator, pivots

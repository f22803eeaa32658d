"""Few cover vectors for many demand vectors, wasting the least.

Given points p_i >= 0 in R^R with weights m_i > 0, choose covers c_1..c_K. A point goes to a cover that dominates it
(c >= p in every coordinate) and of those to the one of least |c| = sum_r c_r, so the cost is

    sum_i m_i min { |c_k| : c_k >= p_i },

and the waste is that minus the constant sum_i m_i |p_i|. In one dimension an optimal cover set is found by dynamic
programming. In more dimensions the problem is NP-hard, and a good set is searched. Given all covers but one, the best
place for that one is looked for among the joins of a point with the points that no other cover covers, then along each
coordinate. Each cover has its turn until none moves. That is done from several starts, then a few covers of the best
set are torn out at random and put back, again and again, and the better set is kept.

Covers always have coordinates that some point has, so nothing is rounded twice and exact decimals stay exact.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel

Floats = NDArray[np.float64]

# Above this many different points, near ones are joined before the search (and parted again after it).
MOST_POINTS = 1500


@kernel
def _norms(points: Floats, weight: Floats, covers: Floats, skip: int, out: Floats) -> float:
    """Write for each point i the least |c_k| over the covers k != skip that dominate it, or inf. Return the cost."""
    n, R = points.shape
    total = 0.0
    for i in range(n):
        least = math.inf
        for k in range(covers.shape[0]):
            if k == skip:
                continue
            size = 0.0
            fits = True
            for r in range(R):
                size += covers[k, r]
                if covers[k, r] < points[i, r]:
                    fits = False
                    break
            if fits and size < least:
                least = size
        out[i] = least
        total += weight[i] * least
    return total


@kernel
def _cost_with(points: Floats, weight: Floats, others: Floats, cover: Floats, bound: float) -> float:
    """Return the cost when `cover` joins covers that cost `others[i]` a point; given up (inf) at `bound`."""
    n, R = points.shape
    size = 0.0
    for r in range(R):
        size += cover[r]
    total = 0.0
    for i in range(n):
        price = others[i]
        if size < price:
            fits = True
            for r in range(R):
                if cover[r] < points[i, r]:
                    fits = False
                    break
            if fits:
                price = size
        total += weight[i] * price
        if total >= bound:
            return math.inf
    return total


@kernel
def _best_cover(points: Floats, weight: Floats, others: Floats, cover: Floats) -> float:
    """Put into `cover` the best addition to covers that cost `others[i]` a point; returns the cost with it."""
    n, R = points.shape
    floor = np.zeros(R)
    for i in range(n):
        if others[i] == math.inf:
            for r in range(R):
                floor[r] = max(floor[r], points[i, r])
    best = math.inf
    trial = np.empty(R)
    for q in range(n):
        for r in range(R):
            trial[r] = max(points[q, r], floor[r])
        cost = _cost_with(points, weight, others, trial, best)
        if cost < best:
            best = cost
            cover[:] = trial
    moved = True
    while moved:
        moved = False
        for r in range(R):
            trial[:] = cover
            for q in range(n):
                if points[q, r] < floor[r] or points[q, r] == cover[r]:
                    continue
                trial[r] = points[q, r]
                cost = _cost_with(points, weight, others, trial, best)
                if cost < best:
                    best = cost
                    cover[r] = trial[r]
                    moved = True
    return best


@kernel
def _settle(points: Floats, weight: Floats, covers: Floats, cost: float) -> float:
    """Move one cover at a time to its best place until none moves."""
    others = np.empty(points.shape[0])
    cover = np.empty(points.shape[1])
    moved = True
    while moved:
        moved = False
        for k in range(covers.shape[0]):
            _norms(points, weight, covers, k, others)
            found = _best_cover(points, weight, others, cover)
            if found < cost * (1.0 - 1e-12):  # sums in another order may differ in the last bits
                covers[k, :] = cover
                cost = found
                moved = True
    return cost


@kernel
def _gather(points: Floats, weight: Floats, seeds: NDArray[np.int64], covers: Floats) -> float:
    """Fill `covers` with joins: each point in turn goes to the group that grows the least by it."""
    n, R = points.shape
    K = covers.shape[0]
    mass = np.zeros(K)
    for k in range(K):
        covers[k, :] = points[seeds[k]]
    for i in range(n):
        chosen = 0
        least = math.inf
        for k in range(K):
            rise = 0.0  # of the group's cost: its mass times the growth, and the point's own excess
            for r in range(R):
                top = max(covers[k, r], points[i, r])
                rise += mass[k] * (top - covers[k, r]) + weight[i] * (top - points[i, r])
            if rise < least:
                least = rise
                chosen = k
        mass[chosen] += weight[i]
        for r in range(R):
            covers[chosen, r] = max(covers[chosen, r], points[i, r])
    return _norms(points, weight, covers, -1, np.empty(n))


def _grow(points: Floats, weight: Floats, covers: Floats) -> float:
    """Fill `covers` one by one, each the best addition to those before; the first covers everything."""
    others = np.full(len(points), math.inf)
    cost = math.inf
    for k in range(len(covers)):
        cost = _best_cover(points, weight, others, covers[k])
        _norms(points, weight, covers[: k + 1], -1, others)
    return cost


def _mend(points: Floats, weight: Floats, covers: Floats, torn: NDArray[np.int64], price: float) -> float:
    """Tear the covers `torn` out and put them back one by one.

    All but the last may leave points uncovered, at `price` each: else the first one back would have to cover
    everything and the set would never leave its valley.
    """
    others = np.empty(len(points))
    covers[torn] = -1.0  # dominates nothing
    for k in torn[:-1]:
        _norms(points, weight, covers, k, others)
        _best_cover(points, weight, np.minimum(others, price), covers[k])
    _norms(points, weight, covers, torn[-1], others)
    return _best_cover(points, weight, others, covers[torn[-1]])


def _search(points: Floats, weight: Floats, K: int, tries: int, rng: np.random.Generator) -> Floats:
    """Return the best set found: from a greedy start and from groups around random seeds, then by mending it."""
    covers = np.empty((K, points.shape[1]))
    cost = _settle(points, weight, covers, _grow(points, weight, covers))
    trial = np.empty_like(covers)
    largest = float(points.max(axis=0).sum())
    for t in range(tries):
        if t < tries // 2:
            found = _gather(points, weight, rng.choice(len(points), K, replace=False), trial)
        else:
            trial[:] = covers
            torn = rng.choice(K, min(3, K), replace=False)
            found = _mend(points, weight, trial, torn, rng.uniform(0.1, 1.0) * largest)
        found = _settle(points, weight, trial, found)
        if found < cost * (1.0 - 1e-12):
            covers[:] = trial
            cost = found
    return covers


@kernel
def _line(points: Floats, weight: Floats, K: int) -> Floats:
    """Cover points of one dimension, ascending, optimally. best[k, j] = least cost of the first j points with k
    covers."""
    n = points.shape[0]
    mass = np.zeros(n + 1)
    for i in range(n):
        mass[i + 1] = mass[i] + weight[i]
    best = np.full((K + 1, n + 1), math.inf)
    back = np.zeros((K + 1, n + 1), dtype=np.int64)
    best[0, 0] = 0.0
    for k in range(1, K + 1):
        for j in range(1, n + 1):
            for i in range(j):
                cost = best[k - 1, i] + points[j - 1] * (mass[j] - mass[i])
                if cost < best[k, j]:
                    best[k, j] = cost
                    back[k, j] = i
    covers = np.empty(K)
    j = n
    for k in range(K, 0, -1):
        covers[k - 1] = points[j - 1]
        j = back[k, j]
    return covers


def _joined(points: Floats, weight: Floats, most: int) -> tuple[Floats, Floats]:
    """Return at most `most` points, each the join of near ones: the group with the most waste is split, again and
    again."""
    groups = [np.arange(len(points))]
    waste = [math.inf]
    while len(groups) < most:
        worst = int(np.argmax(waste))
        if waste[worst] <= 0:
            break
        rows = groups.pop(worst)
        waste.pop(worst)
        inside = points[rows]
        axis = int(np.argmax(inside.max(axis=0) - inside.min(axis=0)))
        order = rows[np.argsort(inside[:, axis], kind="stable")]
        values = points[order, axis]
        mass = np.cumsum(weight[order])
        cut = int(np.searchsorted(mass, mass[-1] / 2, side="right"))
        cut = int(np.searchsorted(values, values[min(cut, len(values) - 1)], side="left"))
        if cut == 0:
            cut = int(np.searchsorted(values, values[0], side="right"))
        for part in (order[:cut], order[cut:]):
            groups.append(part)
            join = points[part].max(axis=0)
            waste.append(float((weight[part] * (join.sum() - points[part].sum(axis=1))).sum()))
    joins = np.array([points[rows].max(axis=0) for rows in groups])
    return joins, np.array([weight[rows].sum() for rows in groups])


def assign(points: Floats, covers: Floats) -> NDArray[np.int64]:
    """Return for each point the dominating cover of least sum, or -1."""
    chosen = np.full(len(points), -1, dtype=np.int64)
    for k in np.argsort(-covers.sum(axis=1), kind="stable"):
        chosen[(points <= covers[k]).all(axis=1)] = k
    return chosen


def choose_covers(points: Floats, weight: Floats, K: int, *, tries: int = 40, seed: int = 0) -> Floats:
    """Return at most K different covers of the points, in the order of descending sum."""
    few, mass = _few(points, weight)
    K = min(K, len(few))
    covers = _line(few[:, 0], mass, K)[:, None] if few.shape[1] == 1 else None
    if covers is None:
        covers = _search(few, mass, K, tries, np.random.default_rng(seed))
    return _shrunk(points, covers)


def fewest_covers(points: Floats, weight: Floats, waste: float, most: int) -> Floats:
    """Return as few covers as waste at most this share of the points' demands, or `most` covers if that takes more.

    One by one, each the best addition, some number K meets it; then the least number up to K that does so when covers
    have moved to their best places is found by halving. In one dimension that is the least of all, in more the least that is found."""
    few, mass = _few(points, weight)
    bound = (1.0 + waste) * float((weight[:, None] * points).sum())
    most = min(most, len(few))

    def placed(K: int) -> Floats:
        if few.shape[1] == 1:
            return _line(few[:, 0], mass, K)[:, None]
        covers = grown[:K].copy()
        _settle(few, mass, covers, _norms(few, mass, covers, -1, np.empty(len(few))))
        return covers

    def within(covers: Floats) -> bool:
        return _norms(few, mass, covers, -1, np.empty(len(few))) <= bound * (1.0 + 1e-12)

    low, high = 1, most
    if few.shape[1] > 1:
        grown = np.empty((most, few.shape[1]))
        _grow(few, mass, grown)
        high = next((K for K in range(1, most) if within(grown[:K])), most)
    found = placed(high)
    while low < high:
        middle = (low + high) // 2
        covers = placed(middle)
        if within(covers):
            high, found = middle, covers
        else:
            low = middle + 1
    return _shrunk(points, found)


def _few(points: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return the points to search over, and their weights. In one dimension they ascend. Otherwise heavy ones come
    first, so that a losing trial is given up early."""
    points = np.ascontiguousarray(points, dtype=np.float64)
    weight = np.ascontiguousarray(weight, dtype=np.float64)
    few, mass = (points, weight) if len(points) <= MOST_POINTS else _joined(points, weight, MOST_POINTS)
    order = np.argsort(few[:, 0] if few.shape[1] == 1 else -mass, kind="stable")
    return np.ascontiguousarray(few[order]), np.ascontiguousarray(mass[order])


def _shrunk(points: Floats, covers: Floats) -> Floats:
    """Return different covers in the order of descending sum.

    Every cover shrinks to the join of what it got; one that got nothing goes."""
    chosen = assign(points, covers)
    used = np.unique(chosen)
    covers = np.array([points[chosen == k].max(axis=0) for k in used])
    covers = np.unique(covers, axis=0)
    return np.ascontiguousarray(covers[np.argsort(-covers.sum(axis=1), kind="stable")])

"""Quantiles of waits as outcomes of similar forecasts say: a forest of random regression trees over the features of `features`.

Each tree splits the outcomes at random thresholds of random features, those that lower the variance of the log-waits most (extremely randomized trees, Geurts et al. 2006).
The leaves keep quantiles instead of means (as quantile regression forests do, Meinshausen 2006), and trees are averaged quantile by quantile.
Half of the trees learn log-waits. The other half learn how far they lie from the middle of runs and recent waits, because trees alone say nothing beyond the waits that they have seen.
All trees grow at the same time, level by level, so that NumPy has long columns to work on.
"""

from __future__ import annotations

import numpy as np

from slotwise.foresee.correction import GRID, LEAST_SLOPE
from slotwise.foresee.features import F4, centre
from slotwise.foresee.history import F8, I8

TREES = 40  # the first half learns log-waits, the second half differences
LEAF = 15  # outcomes of a leaf, at least
TRIED = 8  # features of which the best is chosen at each split
DEEPEST = 12  # levels of splits
FEWEST = 60  # outcomes below which there is no forest
UNKNOWN = -1e3  # stands for a feature that is not known


class Forest:
    """Trees that were grown from outcomes."""

    def __init__(self, features: F4, waits: F8, seed: int = 1) -> None:
        """`waits`: logarithms."""
        rng = np.random.default_rng([seed, 34])
        n, rows = len(waits), np.tile(np.arange(len(waits)), TREES)
        known = _filled(features)
        tree = np.repeat(np.arange(TREES), n)
        node = tree.copy()  # nodes are numbered over all trees
        self._feature: I8 = np.full(TREES, -1)
        self._edge: F8 = np.zeros(TREES)
        self._left: I8 = np.zeros(TREES, np.int64)
        y = np.where(tree < TREES // 2, waits[rows], waits[rows] - centre(features)[rows])
        alive = np.arange(len(rows))
        for _ in range(DEEPEST):
            count = np.bincount(node[alive], minlength=len(self._feature))
            alive = alive[count[node[alive]] >= 2 * LEAF]
            if not len(alive):
                break
            names, own = np.unique(node[alive], return_inverse=True)
            best, feature, edge = _splits(known, rows[alive], own, y[alive], len(names), rng)
            told = np.flatnonzero(best > 0.0)
            first = len(self._feature)
            self._feature[names[told]] = feature[told]
            self._edge[names[told]] = edge[told]
            self._left[names[told]] = first + 2 * np.arange(len(told))
            more = 2 * len(told)
            self._feature = np.concatenate([self._feature, np.full(more, -1)])
            self._edge = np.concatenate([self._edge, np.zeros(more)])
            self._left = np.concatenate([self._left, np.zeros(more, np.int64)])
            goes_on = best[own] > 0.0
            alive, own = alive[goes_on], own[goes_on]
            right = known[rows[alive], feature[own]] > edge[own]
            node[alive] = self._left[names[own]] + right
        self._curves = _leaves(node, y, len(self._feature))
        self.leaves = int((self._feature < 0).sum())

    def curves(self, features: F4) -> F8:
        """Return log-waits at the levels of GRID, (jobs, levels)."""
        known, jobs = _filled(features), np.arange(len(features))
        found = np.zeros((len(features), len(GRID)))
        for tree in range(TREES):
            node = np.full(len(features), tree)
            active = jobs
            while len(active := active[self._feature[node[active]] >= 0]):
                at = node[active]
                node[active] = self._left[at] + (known[active, self._feature[at]] > self._edge[at])
            found += self._curves[node]
        return np.asarray(np.maximum(found / TREES + 0.5 * centre(features)[:, None], 0.0))


def _filled(features: F4) -> F4:
    return np.asarray(np.nan_to_num(features, nan=UNKNOWN, posinf=-UNKNOWN, neginf=UNKNOWN))


def _splits(known: F4, rows: I8, own: I8, y: F8, n: int, rng: np.random.Generator) -> tuple[F8, I8, F8]:
    """Return by how much the best split of each node lowers the sum of squares, its feature and its threshold; 0 where there is none."""
    order = np.argsort(own, kind="stable")
    rows, own, y = rows[order], own[order], y[order]
    first = np.searchsorted(own, np.arange(n))
    count, total = np.bincount(own, minlength=n), np.bincount(own, y, n)
    best, feature, edge = np.zeros(n), np.zeros(n, np.int64), np.zeros(n)
    for _ in range(TRIED):
        tried = rng.integers(known.shape[1], size=n)
        x = known[rows, tried[own]]
        low, high = np.minimum.reduceat(x, first), np.maximum.reduceat(x, first)
        at = low + (high - low) * rng.random(n)
        below = x <= at[own]
        left, sum_left = np.bincount(own, below, n), np.bincount(own, np.where(below, y, 0.0), n)
        right, sum_right = count - left, total - sum_left
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = sum_left**2 / left + sum_right**2 / right - total**2 / count
        better = (left >= LEAF) & (right >= LEAF) & (gain > best)
        best, feature, edge = (
            np.where(better, gain, best),
            np.where(better, tried, feature),
            np.where(better, at, edge),
        )
    return best, feature, edge


def _leaves(node: I8, y: F8, nodes: int) -> F8:
    """Return the quantiles of the outcomes in each node, (nodes, levels); nodes that are no leaves have none."""
    order = np.lexsort((y, node))
    y, count = y[order], np.bincount(node, minlength=nodes)
    first = np.cumsum(count) - count
    out = np.zeros((nodes, len(GRID)))
    leaves = np.flatnonzero(count)
    M, begin = count[leaves, None], first[leaves, None]
    place = (M + 1) / (1.0 + np.exp(-GRID)) - 1.0
    low = np.clip(np.floor(place), 0, M - 1).astype(np.int64)
    part = np.clip(place - low, 0.0, 1.0)
    inner = y[begin + low] * (1.0 - part) + y[begin + np.minimum(low + 1, M - 1)] * part
    outermost = np.log(M)
    beyond = np.maximum(GRID - outermost, 0.0) + np.minimum(GRID + outermost, 0.0)
    out[leaves] = inner + LEAST_SLOPE * beyond
    return out

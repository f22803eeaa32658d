"""How far a ray stays inside the capacity region: max {t : base + t * direction in C}.

C = sum over servers of Conv(K), the loads that mixes of feasible configurations carry. Servers of a class are
alike, so only the mix x_c of each class counts (shares that add up to 1):

    max t   such that   sum_c n_c sum_k x_ck k >= base + t * direction,   sum_k x_ck = 1   for each class c.

There are far too many configurations k to write down. Columns are generated instead: the linear program over those
met so far gives prices w, each class is asked for its best configuration at those prices, and what is worth more
than the program believes is added. Both sides are proven at every step: the mix found carries base + t * direction
for a t that is computed from the mix alone, and for any prices w >= 0 with w.direction > 0

    t <= (W(w) - w.base) / (w.direction),    W(w) = sum over servers of max_k w.k.

It ends when the two meet. Prices are smoothed towards the best ones so far (Wentges), which saves rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotwise.errors import SlotwiseError
from slotwise.region import simplex
from slotwise.region.pricing import EFFORT, Counts, Pricing, Vector

CLOSE = 1e-10
"""Relative distance of the two limits at which they count as one."""
SMOOTHING = 0.8
Stages = Sequence[tuple[int, int]]
"""(effort of a search, rounds at most): the next stage begins when the one before has taught what it could."""
THOROUGH: Stages = ((EFFORT // 100, 2_000), (EFFORT // 10, 30), (EFFORT, 1))
QUICK: Stages = ((EFFORT // 100, 1),)
ROUNDING = 1e-11


@dataclass(frozen=True)
class Ray:
    """base + step * direction is carried by the mix; no step beyond `limit` is possible, as the prices show."""

    step: float
    limit: float
    prices: Vector
    """w >= 0 with w.direction = 1"""
    shares: tuple[tuple[Counts, Vector], ...]
    """for each class: configurations (one per row) and the share of its servers that holds each, summing to 1"""


class Columns:
    """The configurations met so far, class by class; shared by rays through the same cluster."""

    def __init__(self, pricings: Sequence[Pricing], counts: Sequence[int]) -> None:
        self.pricings = tuple(pricings)
        self.counts = np.array(counts, dtype=np.int64)
        self.n_types = self.pricings[0].space.n_types
        self.classes = [c for c in range(len(counts)) if counts[c] > 0]
        self._seen: set[tuple[int, bytes]] = set()
        self._owner: list[int] = []
        self._rows: list[Counts] = []
        for c in self.classes:
            for configuration in self.pricings[c].start():
                self.add(c, configuration)

    def add(self, c: int, configuration: Counts) -> None:
        """Remember a configuration of class c."""
        key = (c, configuration.tobytes())
        if key not in self._seen:
            self._seen.add(key)
            self._owner.append(c)
            self._rows.append(configuration)

    def arrays(self) -> tuple[NDArray[np.int64], Counts]:
        """(class of each column, its configuration)."""
        return np.array(self._owner), np.array(self._rows)

    @property
    def servable(self) -> NDArray[np.bool_]:
        """Which types fit some server that is there."""
        return np.asarray(np.any(np.array(self._rows).reshape(-1, self.n_types) > 0, axis=0))


def shoot(
    columns: Columns, base: Vector, direction: Vector, stages: Stages = THOROUGH, close: float = CLOSE
) -> Ray:
    """The largest step from `base` (which must lie in the region) along `direction` (>= 0, not all 0)."""
    nowhere = (direction > 0) & ~columns.servable
    if nowhere.any():
        j = int(np.argmax(nowhere))
        return Ray(0.0, 0.0, np.where(np.arange(len(base)) == j, 1 / direction[j], 0.0), ())
    scale = float(columns.counts.sum()) / float(direction.sum())  # steps, loads and prices of order one
    per_server = base / columns.counts.sum()
    toward = direction / direction.sum()
    best_limit, best_prices = np.inf, np.zeros_like(base)
    closed = False
    for effort, rounds in stages:
        for _ in range(rounds):
            shares, believed = _master(columns, per_server, toward)
            step = max(0.0, _step(columns, shares, per_server, toward))
            tried = [believed]
            if best_limit < np.inf:
                tried.insert(0, SMOOTHING * best_prices + (1 - SMOOTHING) * believed)
            learnt = False
            for prices in tried:
                limit, new = _ask(columns, prices, believed, per_server, toward, effort)
                learnt = learnt or new
                if limit < best_limit:
                    best_limit, best_prices = limit, prices / float(prices @ toward)
            closed = best_limit - step <= close * best_limit
            if closed or not learnt:
                break
        if closed:
            break
    owner, rows = columns.arrays()
    used = np.flatnonzero(shares)  # the last round may have added columns after the shares were found
    mix = [(rows[mine], shares[mine]) for mine in (used[owner[used] == c] for c in range(len(columns.counts)))]
    return Ray(
        step=step * scale,
        limit=max(best_limit, step) * scale,
        prices=best_prices / direction.sum(),
        shares=tuple(mix),
    )


def _master(columns: Columns, base: Vector, direction: Vector) -> tuple[Vector, Vector]:
    """Solve the program over the columns so far: (share of each, prices of the types)."""
    owner, rows = columns.arrays()
    J, n = columns.n_types, len(owner)
    weight = columns.counts[owner] / columns.counts.sum()
    if not base.any():
        solved = simplex.solve(owner, rows * weight[:, None], direction)
        if solved is not None:
            return solved
    from scipy.optimize import linprog  # slow to import, and not needed for small programs

    carry = np.zeros((J, n + 1))
    carry[:, :n] = -(rows * weight[:, None]).T
    carry[:, n] = direction
    whole = np.zeros((len(columns.classes), n + 1))
    for i, c in enumerate(columns.classes):
        whole[i, :n] = owner == c
    cost = np.zeros(n + 1)
    cost[n] = -1.0
    answer = linprog(
        cost,
        A_ub=carry,
        b_ub=-base,
        A_eq=whole,
        b_eq=np.ones(len(columns.classes)),
        method="highs",
        options={"dual_feasibility_tolerance": 1e-10, "primal_feasibility_tolerance": 1e-10},
    )
    if answer.x is None:
        raise SlotwiseError(f"the linear program of the capacity region failed: {answer.message}")
    shares = np.maximum(answer.x[:n], 0.0)
    for c in columns.classes:
        shares[owner == c] /= shares[owner == c].sum()
    return shares, np.maximum(-answer.ineqlin.marginals, 0.0)


def _step(columns: Columns, shares: Vector, base: Vector, direction: Vector) -> float:
    """The step that these shares carry, whatever the program said."""
    owner, rows = columns.arrays()
    carried = (shares * columns.counts[owner] / columns.counts.sum()) @ rows
    along = direction > 0
    return float(np.min((carried[along] - base[along]) / direction[along]))


def _ask(
    columns: Columns, prices: Vector, believed: Vector, base: Vector, direction: Vector, effort: int
) -> tuple[float, bool]:
    """Price every class: (limit on the step, whether a configuration came up that the program undervalues)."""
    owner, rows = columns.arrays()
    worth = 0.0
    learnt = False
    for c in columns.classes:
        mine = rows[owner == c]
        priced = columns.pricings[c].best(prices, effort, mine[np.argmax(mine @ prices)])
        worth += float(columns.counts[c] / columns.counts.sum()) * priced.limit
        learnt = learnt or float(priced.configuration @ believed) > float(np.max(mine @ believed)) * (1 + ROUNDING)
        columns.add(c, priced.configuration)
    return (worth - float(prices @ base)) / float(prices @ direction), learnt

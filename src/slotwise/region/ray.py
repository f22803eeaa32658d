"""How far a ray stays inside the capacity region: max {t : base + t * direction in C}.

C = sum over servers of Conv(K), the loads that mixes of feasible configurations carry. Servers of a class are
alike, so only the mix x_c of each class counts (shares that add up to 1):

    max t   such that   sum_c n_c sum_k x_ck k >= base + t * direction,   sum_k x_ck = 1   for each class c.

There are far too many configurations k to write down. Columns are generated instead. The linear program over the
configurations met so far gives prices w; the best configuration of each class at those prices is searched, and added if
it is worth more than the program believes. Both sides are proven at every step. The mix found carries base + t *
direction for a t that is computed from the mix alone, and for any prices w >= 0 with w.direction > 0

    t <= (W(w) - w.base) / (w.direction),    W(w) = sum over servers of max_k w.k.

It ends when the two meet. Prices are smoothed towards the best ones so far (Wentges), which saves rounds. The program goes on from
round to round, and from one ray to the next, where it stood (`slotwise.region.simplex`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotwise.errors import SlotwiseError
from slotwise.region.pricing import EFFORT, Counts, Pricing, Vector
from slotwise.region.simplex import Program

CLOSE = 1e-10  # Relative distance of the two limits at which they count as one.
SMOOTHING = 0.8
# (effort of a search, rounds at most): the next stage begins when the one before has taught what it could.
Stages = Sequence[tuple[int, int]]
THOROUGH: Stages = ((EFFORT // 100, 2_000), (EFFORT // 10, 30), (EFFORT, 1))
QUICK: Stages = ((EFFORT // 100, 1),)
ROUNDING = 1e-11  # relative: a configuration that gains less is not added
NOTHING = 1e-15  # a load per server below which the rest of a server is as good as all of it
GAP = 1e-10  # relative distance of what a solved program says of itself and what its shares carry, at most


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
        self.weight = self.counts / max(1, self.counts.sum())
        """of each class: its part of the servers"""
        self.n_types = self.pricings[0].space.n_types
        self.classes = [c for c in range(len(counts)) if counts[c] > 0]
        self._seen: set[tuple[int, bytes]] = set()
        self._owner = np.zeros(64, np.int64)
        self._rows = np.zeros((64, self.n_types), np.int64)
        self._last: tuple[Vector, Master] | None = None
        for c in self.classes:
            for configuration in self.pricings[c].start():
                self.add(c, configuration)

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, c: int, configuration: Counts) -> None:
        """Remember a configuration of class c."""
        key = (c, configuration.tobytes())
        if key in self._seen:
            return
        n = len(self)
        if n == len(self._owner):
            self._owner = np.concatenate([self._owner, np.zeros_like(self._owner)])
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._owner[n], self._rows[n] = c, configuration
        self._seen.add(key)

    def arrays(self) -> tuple[NDArray[np.int64], Counts]:
        """Return the class of each column, and its configuration."""
        return self._owner[: len(self)], self._rows[: len(self)]

    def toward(self, direction: Vector) -> Master:
        """Return the program in this direction. If the last ray had the same direction, return it as that ray left
        it."""
        if self._last is None or not np.allclose(self._last[0], direction, rtol=1e-13, atol=0):
            self._last = direction, Master(self, Program(direction, len(self.classes)))
        return self._last[1]

    @property
    def servable(self) -> NDArray[np.bool_]:
        """Which types fit some server that is there."""
        return np.asarray(np.any(self.arrays()[1] > 0, axis=0))


class Master:
    """The linear program over the columns so far. All loads are per server of the cluster, so that numbers are of order one."""

    def __init__(self, columns: Columns, program: Program, added: int = 0) -> None:
        self.columns, self._program, self._added = columns, program, added

    def beside(self, j: int) -> Master:
        """Return the program of how much more of type j alone fits beside the present direction."""
        return Master(self.columns, self._program.beside(j), self._added)

    def solve(self, base: Vector, direction: Vector) -> tuple[Vector, Vector, float]:
        """Return the share of each column, the prices of the types, and the step that these shares carry."""
        columns, program = self.columns, self._program
        owner, rows = columns.arrays()
        for i in range(self._added, len(columns)):
            c = int(owner[i])
            program.add(rows[i] * columns.weight[c], columns.classes.index(c))
        self._added = len(columns)
        if program.solve():
            shares = program.shares
            step = _step(columns, shares, base, direction)
            if abs(program.value - step) <= GAP * max(abs(step), 1e-300):
                return shares, program.prices, step
        shares, prices = _from_nothing(columns, base, direction)
        return shares, prices, _step(columns, shares, base, direction)


def shoot(columns: Columns, direction: Vector, stages: Stages = THOROUGH, close: float = CLOSE) -> Ray:
    """Return the largest step from 0 along `direction` (>= 0, not all 0)."""
    return _shoot(columns.toward(direction / direction.sum()), np.zeros_like(direction), direction, stages, close)


def beside(columns: Columns, base: Vector, stages: Stages = THOROUGH, close: float = CLOSE) -> list[Ray]:
    """Return for each type the largest step from `base`, which must lie in the region, along this type alone."""
    per_server, alone = base / columns.counts.sum(), np.eye(len(base))
    if per_server.sum() < NOTHING:
        return [_shoot(columns.toward(direction), base, direction, stages, close) for direction in alone]
    master = Master(columns, Program(per_server, len(columns.classes)))
    master.solve(np.zeros_like(base), per_server)
    return [_shoot(master.beside(j), base, direction, stages, close) for j, direction in enumerate(alone)]


def _shoot(master: Master, base: Vector, direction: Vector, stages: Stages, close: float) -> Ray:
    columns = master.columns
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
            shares, believed, step = master.solve(per_server, toward)
            step = max(0.0, step)
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


def _from_nothing(columns: Columns, base: Vector, direction: Vector) -> tuple[Vector, Vector]:
    """(share of each column, prices of the types), where the program lost its way."""
    from scipy.optimize import linprog  # slow to import, and hardly ever needed

    owner, rows = columns.arrays()
    J, n = columns.n_types, len(owner)
    carry = np.zeros((J, n + 1))
    carry[:, :n] = -(rows * columns.weight[owner][:, None]).T
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
    """Return the step that these shares carry, whatever the program said."""
    owner, rows = columns.arrays()
    used = np.flatnonzero(shares)
    carried = (shares[used] * columns.weight[owner[used]]) @ rows[used]
    along = direction > 0
    return float(np.min((carried[along] - base[along]) / direction[along]))


def _ask(
    columns: Columns, prices: Vector, believed: Vector, base: Vector, direction: Vector, effort: int
) -> tuple[float, bool]:
    """Price every class: (limit on the step, whether a configuration came up that the program undervalues)."""
    owner, rows = columns.arrays()
    worth = 0.0
    learnt = False
    values, dear = rows @ prices, rows @ believed
    for c in columns.classes:
        mine = np.flatnonzero(owner == c)
        priced = columns.pricings[c].best(prices, effort, rows[mine[np.argmax(values[mine])]])
        worth += float(columns.weight[c]) * priced.limit
        learnt = learnt or float(priced.configuration @ believed) > float(np.max(dear[mine])) * (1 + ROUNDING)
        columns.add(c, priced.configuration)
    return (worth - float(prices @ base)) / float(prices @ direction), learnt

"""The cheapest servers that could carry a load at all: where the search begins, and a proof that less is too little.

With prices p_c of one server of class c and y_ck servers of class c (not always whole) in configuration k,

    min sum_ck p_c y_ck   such that   sum_ck y_ck k >= rho,   sum_ck y_ck capacity_c >= need,   y >= 0,

where `need` is the mean use of each resource divided by the utilisation that is allowed (nothing, without such a
target). Columns are generated as in `slotwise.region.ray`: dual prices w, v ask each class for its best
configuration, until none is worth more than its server costs, p_c >= h_c(w) + v.capacity_c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotwise.errors import SlotwiseError
from slotwise.region.pricing import Pricing, Vector

CLOSE = 1e-9  # relative: a configuration that gains less is not added
ROUNDS = 2_000  # of column generation, at most


@dataclass(frozen=True)
class CheapestMix:
    """The solution of the linear program."""

    servers: Vector
    """of each class, not always whole"""
    cost: float
    """no servers that cost less can do, whole or not"""
    prices: Vector
    """of one job of each type: what carrying it costs"""


def serves(rho: Vector, pricings: Sequence[Pricing]) -> NDArray[np.bool_]:
    """Return which classes can hold a type that arrives. More servers of any other class would only dilute the
    utilisation."""
    return np.array([(pricing.space.counts[rho > 0] > 0).any() for pricing in pricings])


def cheapest(
    rho: Vector, need: Vector, pricings: Sequence[Pricing], capacity: Vector, costs: Vector
) -> CheapestMix:
    """Return the cheapest mix. `capacity` has a row for each class, in the units of `need`."""
    from scipy.optimize import linprog  # slow to import

    owner: list[int] = []
    rows: list[Vector] = []
    serving = serves(rho, pricings)
    for c in np.flatnonzero(serving).tolist():
        for row in pricings[c].start():
            owner.append(c)
            rows.append(row.astype(np.float64))
    unit = np.where(capacity.max(axis=0) > 0, capacity.max(axis=0), 1.0)
    wanted = np.concatenate([rho, need / unit])
    # the solver takes numbers far from 1 for nothing, or for infinite
    size = 1.0 if 1e-3 < float(wanted.max()) < 1e6 else max(float(wanted.max()), 1e-300)
    for _ in range(ROUNDS):
        of, table = np.array(owner), np.array(rows)
        answer = linprog(
            costs[of],
            A_ub=-np.hstack([table, (capacity / unit)[of]]).T,
            b_ub=-wanted / size,
            method="highs",
        )
        if answer.x is None:
            raise SlotwiseError(f"the linear program of the cheapest servers failed: {answer.message}")
        dual = np.maximum(-answer.ineqlin.marginals, 0.0)
        w, v = dual[: len(rho)], dual[len(rho) :]
        base = (capacity / unit) @ v
        worth, learnt = np.zeros(len(pricings)), False
        for c in np.flatnonzero(serving).tolist():
            priced = pricings[c].best(w)
            worth[c] = priced.limit + base[c]
            if priced.value + base[c] > costs[c] * (1 + CLOSE):
                owner.append(c)
                rows.append(priced.configuration.astype(np.float64))
                learnt = True
        if not learnt:
            break
    # Farley: dual prices, scaled down until no class is worth more than it costs, prove a cost
    scale = float(np.max(worth / costs))
    proven = float(dual @ wanted) / max(scale, 1e-300)
    servers = size * np.bincount(of, weights=answer.x, minlength=len(pricings))
    return CheapestMix(servers.astype(np.float64), proven, w)

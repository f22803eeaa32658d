"""The capacity region and the traffic intensity of a load.

A load rho (mean jobs in service, by type) is supportable iff it lies inside C = sum over servers of Conv(K). Its
intensity is the least zeta with rho in zeta C: below 1 some policy keeps the queues bounded, above 1 none does.
1 / zeta is how far the ray from 0 through rho stays inside, and the mix and the prices at its end are two proofs:

- the witness: shares of the servers of each class that hold each configuration; together they carry rho / zeta;
- the prices w, scaled to W(w) = sum over servers of max_k w.k = 1. w_j is the share of the whole cluster that one
  type-j job takes at the bottleneck, and w.rho = zeta. When zeta > 1, the prices separate rho from C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slotwise.errors import InputError
from slotwise.packing import Space
from slotwise.region.pricing import Counts, Vector, pricing_of
from slotwise.region.ray import QUICK, THOROUGH, Columns, Stages, beside, shoot

# headroom is exact up to so many types; up to so many its limits are better than those that come with the
# intensity
EXACT, BETTER = 20, 100

LEAST_LOAD = 1e-10  # of the largest load of a type


@dataclass(frozen=True)
class Mix:
    """How the servers of one class are shared between configurations."""

    configurations: Counts
    """one per row"""
    shares: Vector
    """of the servers of the class; they add up to 1"""


@dataclass(frozen=True)
class Region:
    """Where a load lies in the capacity region."""

    rho: Vector
    intensity: float
    """an upper limit on zeta: the witness carries rho / intensity"""
    lower: float
    """a lower limit on zeta: prices.rho, with W(prices) <= 1"""
    prices: Vector
    witness: tuple[Mix, ...]
    """one for each server class"""
    columns: Columns
    """what was learnt of the cluster on the way"""

    @property
    def exact(self) -> bool:
        """Whether the two limits are one, to rounding."""
        return self.intensity == np.inf == self.lower or self.intensity - self.lower <= 1e-9 * self.intensity

    @property
    def supportable(self) -> bool | None:
        """Inside the region (True), outside or on its boundary (False), or not known from the limits (None)."""
        if self.intensity < 1 - 1e-9:
            return True
        return False if self.lower >= 1 - 1e-9 else None

    @property
    def headroom(self) -> float:
        """How much the whole mix can grow, relative: 1 / zeta - 1 (negative: how much it must shrink)."""
        return 1 / self.intensity - 1 if self.intensity > 0 else np.inf


def intensity(rho: Sequence[float] | Vector, spaces: Sequence[Space], counts: Sequence[int]) -> Region:
    """Return the least zeta with rho in zeta C, for `counts[c]` servers with feasible set `spaces[c]`."""
    return locate(np.asarray(rho, dtype=np.float64), Columns([pricing_of(space) for space in spaces], counts))


def locate(rho: Vector, columns: Columns) -> Region:
    """Do the work of `intensity` for a cluster of which some configurations are known already."""
    if rho.shape != (columns.n_types,) or not np.isfinite(rho).all() or (rho < 0).any():
        raise InputError(
            f"is {rho.tolist()}", where="load", remedy=f"give {columns.n_types} finite numbers, each 0 or more"
        )
    if not rho.any():
        nothing = Mix(np.zeros((0, len(rho)), np.int64), np.zeros(0))
        return Region(rho, 0.0, 0.0, np.zeros_like(rho), (nothing,) * len(columns.counts), columns)
    # The simplex method takes a very small load for zero. Such a load is raised a little, which is on the safe side.
    ray = shoot(columns, np.where(rho > 0, np.maximum(rho, LEAST_LOAD * rho.max()), 0.0))
    if ray.limit == 0:  # some type fits nowhere: its price alone separates, whatever the prices of all other types
        return Region(rho, np.inf, np.inf, ray.prices, (), columns)
    return Region(
        rho=rho,
        intensity=1 / ray.step,
        lower=1 / ray.limit,
        prices=ray.prices / ray.limit,
        witness=tuple(Mix(rows, shares) for rows, shares in ray.shares),
        columns=columns,
    )


@dataclass(frozen=True)
class Headroom:
    """How much more load of one type alone fits beside rho: at least `more`, at most `limit`."""

    type: int
    more: float
    limit: float


def headroom_by_type(region: Region, stages: Stages | None = None) -> list[Headroom]:
    """Return max {t : rho + t e_j in C} for each type j; 0 outside the region. With many types, return limits only.

    The proofs of the intensity zeta give limits for nothing. The witness carries rho with zeta of the servers, so the
    rest can be filled with type j alone; and w.(rho + t e_j) <= W(w) = 1 for the prices w.
    """
    J, columns = len(region.rho), region.columns
    if region.lower > 1 or not columns.classes:
        return [Headroom(j, 0.0, 0.0) for j in range(J)]
    if stages is None:
        stages = THOROUGH if J <= EXACT else QUICK if J <= BETTER else ()
    alone = sum(n * pricing.space.counts for n, pricing in zip(columns.counts, columns.pricings, strict=True))
    more = max(0.0, 1 - region.intensity) * np.asarray(alone, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = np.where(region.prices > 0, (1 - region.lower) / region.prices, np.inf)
    limit = np.maximum(more, np.minimum(limit, alone))
    if stages and region.rho.any():
        base = region.rho / max(1.0, region.intensity)  # on the boundary rounding may have put it outside
        rays = beside(columns, base, stages)
        more = np.maximum(more, [ray.step for ray in rays])
        limit = np.maximum(more, np.minimum(limit, [ray.limit for ray in rays]))
    return [Headroom(j, float(more[j]), float(limit[j])) for j in range(J)]

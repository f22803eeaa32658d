"""The mix of configurations that `nmsr` walks round: the witness of the load, class by class, and what a round of it costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.core.store import Store
from slotwise.region.pricing import pricing_of
from slotwise.region.ray import Columns
from slotwise.region.region import locate

UNKNOWN_LOAD = 0.01  # load of a type without a rate, as a share of the mean load of the types with one
EPSILON = 1e-9


class LaidMix(NamedTuple):
    """Configurations, and where their shares of the servers of their class begin and end."""

    rows: NDArray[np.int64]
    owner: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    intensity: float
    """of the load, where its rates are known"""


def mix_of(store: Store) -> LaidMix:
    """Return the witness of the load: each class's configurations, from those with most jobs of the first type on."""
    J, counts = int(store.state.n_types), np.maximum(store.counts, 1).tolist()
    load = store.rates * store.mean_service
    known = load[load > 0]
    load = np.where(load > 0, load, UNKNOWN_LOAD * known.mean() if len(known) else 1.0)
    fitting = np.array([any(space.most(j) > 0 for space in store.spaces) for j in range(J)])
    region = locate(np.where(fitting, load, 0.0), Columns([pricing_of(space) for space in store.spaces], counts))
    rows, owner, low, high = [], [], [], []
    for c, mix in enumerate(region.witness):
        some = np.lexsort(mix.configurations.T[::-1])[::-1]
        some = some[mix.shares[some] > EPSILON]
        ends = np.cumsum(mix.shares[some]) / max(mix.shares[some].sum(), EPSILON)
        rows.append(mix.configurations[some])
        owner.append(np.full(len(some), c))
        low.append(np.append(0.0, ends)[: len(some)])
        high.append(ends)
    return LaidMix(
        np.concatenate(rows), np.concatenate(owner), np.concatenate(low), np.concatenate(high), region.intensity
    )


def cost_of(mix: LaidMix, store: Store) -> float:
    """Return D: the cost of the steps of a round, in time of a server, for each server of the class with the
    largest cost."""
    most = 0.0
    for c, count in enumerate(np.maximum(store.counts, 1)):
        mine = np.flatnonzero(mix.owner == c)
        ends = mix.high[mine] * count
        moves = np.flatnonzero(np.abs(ends - np.round(ends)) > EPSILON)
        if len(moves):
            steps = [*((mine[n], mine[n + 1]) for n in moves), (mine[-1], mine[0])]
            lost = sum(step_cost(mix.rows[a], mix.rows[b], store.mean_service) for a, b in steps)
            most = max(most, lost / count)
    return most


def step_cost(before: NDArray[np.int64], after: NDArray[np.int64], means: NDArray[np.float64]) -> float:
    """Return how long a server stands empty while its surplus jobs end."""
    over = np.maximum(before - after, 0)
    if not over.any():
        return 0.0
    last = float(means[over > 0].max()) * sum(1.0 / n for n in range(1, 1 + int(over.sum())))
    return max(0.0, last - float(over @ means) / int(before.sum()))

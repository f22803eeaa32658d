"""The size g_j of a type: the part of a server that one of its jobs makes unusable for all others.

    g_j = min over the classes c that hold type j of  (V(C_c) - V(C_c - w_j)) / max over all classes of V(C_c)

| symbol | meaning | unit |
|---|---|---|
| C_c | capacity of a server of class c | per resource |
| w_j | demand of type j | per resource |
| V(F) | most capacity that jobs can use together of the free capacity F, as in `placement` | servers |

A job of 6 on a server of 10 has size 0.6 if jobs of 4, 2 or 1 exist. It has size 1 if every other job needs more than 4: the server then holds one job at a time,
whatever its demand. With demands as sizes, a policy that values used capacity would prefer the larger job, although the capacity is lost either way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import JIT, as_python, kernel

NODES = 200  # steps of a search for V; after them all free capacity counts as usable, which is nearly true where so many jobs fit
LEAST = 1e-9  # size of a type that requests nothing, so that its weight grows with its queue
TINY = 1e-12  # a difference of shares that is rounding
FEW_SEARCHES = 100  # searches for V that plain Python does before the compiler would be ready


def effective_sizes(
    capacity: NDArray[np.int64], demand: NDArray[np.int64], allowed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return (J,): g_j. `allowed` (C, J) says which classes may hold which types."""
    units = 1.0 / (np.maximum(capacity.max(axis=0), 1) * capacity.shape[1])
    holds = allowed & (demand[None, :, :] <= capacity[:, None, :]).all(axis=2)
    compiled = JIT and int(np.count_nonzero(holds)) > FEW_SEARCHES
    searches = [_Search(demand[holds[c]], units, compiled=compiled) for c in range(len(capacity))]
    whole = [search.usable(room) for search, room in zip(searches, capacity, strict=True)]
    found = np.full(len(demand), LEAST)
    for j, w in enumerate(demand):
        # where a search ended early, V(C) - V(C - w) may come out below the share of w
        costs = [
            max(whole[c] - searches[c].usable(capacity[c] - w), w @ units) for c in np.flatnonzero(holds[:, j])
        ]
        if costs and max(whole) > 0.0:
            found[j] = max(min(costs) / max(whole), LEAST)
    return found


class _Search:
    """A search for V(F) over the types that a class holds, the largest first."""

    def __init__(self, demand: NDArray[np.int64], units: NDArray[np.float64], *, compiled: bool) -> None:
        demand = np.unique(demand, axis=0)  # several tenants may have types of one demand
        shares = demand @ units
        order = [j for j in np.argsort(-shares, kind="stable") if shares[j] > 0.0]
        self.units: list[float] = units.tolist()
        n, R = len(order), len(units)
        # flat, so that the same code takes arrays and, many times as fast without a compiler, lists
        given = demand[order].reshape(-1), shares[order], units
        room = np.zeros((n + 1) * R, np.int64), np.zeros(n + 1), np.zeros(n + 1, np.int64)
        self.arrays: list[Any] = [one if compiled else one.tolist() for one in (*given, *room)]
        self.search: Callable[..., float] = most_usable if compiled else as_python(most_usable)

    def usable(self, room: NDArray[np.int64]) -> float:
        """Return V(room)."""
        free = room.tolist()
        self.arrays[3][: len(free)] = free
        found = float(self.search(*self.arrays, NODES))
        return sum(unit * left for unit, left in zip(self.units, free, strict=True)) if found < 0.0 else found


@kernel
def most_usable(demand: Any, shares: Any, units: Any, free: Any, values: Any, counts: Any, nodes: int) -> float:
    """Return V of the first R numbers of `free`; -1 after so many steps. `free`, `values` and `counts` have room for what is done at each depth.

    Each type is taken as often as it fits, then less often; the next type goes on with what is left.
    """
    R, n, depth, best = len(units), len(shares), 0, 0.0
    values[0] = 0.0
    for _ in range(nodes):
        at = depth * R
        best = max(best, values[depth])
        bound = 0.0
        for r in range(R):
            bound += units[r] * free[at + r]
        if depth < n and values[depth] + bound > best + TINY:
            most = -1
            for r in range(R):
                if demand[at + r] > 0:
                    fits = free[at + r] // demand[at + r]
                    most = fits if most < 0 else min(most, fits)
            counts[depth] = most
        else:
            depth -= 1
            while depth >= 0 and counts[depth] == 0:
                depth -= 1
            if depth < 0:
                return best
            counts[depth] -= 1
        at = depth * R
        for r in range(R):
            free[at + R + r] = free[at + r] - counts[depth] * demand[at + r]
        values[depth + 1] = values[depth] + counts[depth] * shares[depth]
        depth += 1
    return -1.0

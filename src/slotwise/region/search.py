"""The most valuable configuration of additive demands, exactly: branch and bound for many types.

A node is a multiset of jobs, types in a fixed order, so each is met once. For any multipliers y >= 0 on the
resources, jobs of types i, i+1, ... that still fit beside what is there are worth at most

    (y.free) * max {w_j / (y.d_j) : j in i, i+1, ...},

and the bound used is the least over several y: the dual prices of the linear relaxation and each resource alone. It
falls with i, so the children of a node are cut all at once at the first type whose bound is no use. Types in
falling w_j / (y.d_j), y dual prices, make the first descent a good greedy one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]

MARGIN = 1e-12  # Relative: what is less than this much better than the best so far is not looked for.


@kernel
def _most(purse: F8, density: F8, d: int, i: int) -> float:
    """Return the bound on what types i, i+1, ... can add at depth d."""
    least = np.inf
    for m in range(len(density)):
        if density[m, i] < np.inf:
            least = min(least, purse[d, m] * density[m, i])
    return least


@kernel
def _fits(demand: I8, free: I8, i: int, d: int) -> bool:
    """Return whether a job of type i fits at depth d."""
    for r in range(demand.shape[1]):
        if demand[i, r] > free[d, r]:
            return False
    return True


@kernel
def _densities(value: F8, demand: I8, multipliers: F8, cost: F8, density: F8) -> None:
    """Write each type's cost at each y, and the best worth per cost over types i, i+1, ... into `density`."""
    J, R = demand.shape
    for m in range(len(multipliers)):
        for i in range(J - 1, -1, -1):
            for r in range(R):
                cost[m, i] += multipliers[m, r] * demand[i, r]
            here = value[i] / cost[m, i] if cost[m, i] > 0.0 else np.inf
            density[m, i] = max(density[m, i + 1], here)


@kernel
def _open_limit(purse: F8, density: F8, worth: F8, chosen: I8, d: int, best: float) -> float:
    """Return a limit on the worth of what a search that is cut short at depth d has left open.

    At each depth the types after the choice are open, and at the last depth the choice itself.
    """
    for e in range(d + 1):
        best = max(best, worth[e] + _most(purse, density, e, chosen[e] + (1 if e < d else 0)))
    return best


@kernel
def search(value: F8, demand: I8, capacity: I8, multipliers: F8, nodes: int, depth: int, out: I8) -> float:
    """Improve `out` to the best configuration found, types in the given order; return a limit on what any is worth.

    `out` comes with one that is known to fit: the better it is, the more is cut from the start. The limit is the
    worth of `out`, unless the search was cut short: then also what is still open counts.
    """
    J, R = demand.shape
    M = len(multipliers)
    cost = np.zeros((M, J))
    density = np.zeros((M, J + 1))
    _densities(value, demand, multipliers, cost, density)
    free = np.zeros((depth + 1, R), np.int64)
    purse = np.zeros((depth + 1, M))  # y.free
    worth = np.zeros(depth + 1)
    chosen = np.zeros(depth + 1, np.int64)
    for r in range(R):
        free[0, r] = capacity[r]
    for m in range(M):
        for r in range(R):
            purse[0, m] += multipliers[m, r] * capacity[r]
    best = 0.0
    for i in range(J):
        best += out[i] * value[i]
    visited = 0
    d = 0
    while d >= 0:
        i = chosen[d]
        descend = False
        while i < J:
            if worth[d] + _most(purse, density, d, i) <= best * (1.0 + MARGIN):
                break
            descend = _fits(demand, free, i, d)
            if descend:
                break
            i += 1
        if not descend:
            d -= 1
            if d >= 0:
                chosen[d] += 1
            continue
        visited += 1
        if visited > nodes or d == depth:
            chosen[d] = i
            return _open_limit(purse, density, worth, chosen, d, best)
        chosen[d] = i
        worth[d + 1] = worth[d] + value[i]
        for r in range(R):
            free[d + 1, r] = free[d, r] - demand[i, r]
        for m in range(M):
            purse[d + 1, m] = purse[d, m] - cost[m, i]
        d += 1
        chosen[d] = i
        if worth[d] > best:
            best = worth[d]
            out[:] = 0
            for e in range(d):
                out[chosen[e]] += 1
    return best

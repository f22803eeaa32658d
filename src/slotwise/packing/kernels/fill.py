"""Lemma 2 with filling: the type of highest relative value as often as it fits, then the next.

The relative value of a type is weight_j / max_n (w_jn / capacity_n). The first type alone already has
N_f / (R (N_f + 1)) of the best weight; what is left of the server goes to the types of lower relative value, so the
result is maximal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel

I8 = NDArray[np.int64]
F8 = NDArray[np.float64]


@kernel
def total(weights: F8, configuration: I8) -> float:
    """Return f(k, Q) = sum_j k_j Q_j, added in the order of the types (so that equal runs give equal bits)."""
    weight = 0.0
    for j in range(len(configuration)):
        if configuration[j] > 0:
            weight += weights[j] * configuration[j]
    return weight


@kernel
def covers(free: I8, demand: I8, j: int) -> bool:
    """Return whether one type-j job fits into `free`."""
    for n in range(len(free)):
        if demand[j, n] > free[n]:
            return False
    return True


@kernel
def covers_all(free: I8, sizes: I8) -> bool:
    """Return whether `free` has so much of each resource."""
    for n in range(len(free)):
        if sizes[n] > free[n]:
            return False
    return True


@kernel
def fits(demand: I8, free: I8, j: int) -> int:
    """Return how many type-j jobs fit into `free`."""
    if not covers(free, demand, j):
        return 0  # most often, and without a division
    most = -1
    for n in range(len(free)):
        if demand[j, n] > 0:
            count = free[n] // demand[j, n] if 2 * demand[j, n] <= free[n] else 1
            if most < 0 or count < most:
                most = count
    return max(most, 0)


@kernel
def fill(weights: F8, demand: I8, free: I8, order: I8, may: I8, value: F8, open_: I8, out: I8) -> None:
    """Add jobs to `out` until `free`, which is used up on the way, takes no more: the highest relative value first.

    Only types in `order` with may[j] > 0 are added. `value` and `open_` are room for one number per type.
    """
    R = demand.shape[1]
    left = 0  # of open[:left] each still fits; where two are worth the same, the earlier in `order` comes first
    for i in range(len(order)):
        j = order[i]
        if may[j] > 0 and covers(free, demand, j):
            share = 0.0
            for n in range(R):
                if demand[j, n] > 0:
                    share = max(share, demand[j, n] / free[n])
            if share > 0.0:
                value[j] = weights[j] / share
                open_[left] = j
                left += 1
    while left > 0:
        best = open_[0]
        for i in range(1, left):
            if value[open_[i]] > value[best]:
                best = open_[i]
        count = fits(demand, free, best)
        out[best] += count
        for n in range(R):
            free[n] -= count * demand[best, n]
        still = 0
        for i in range(left):
            j = open_[i]
            if j != best and covers(free, demand, j):
                open_[still] = j
                still += 1
        left = still


@kernel
def greedy_fill(
    weights: F8,
    demand: I8,
    capacity: I8,
    order: I8,
    scratch_f: F8,
    scratch_i: I8,
    params_f: F8,
    params_i: I8,
    out: I8,
) -> float:
    """Fill by Lemma 2. Scratch: J floats, J + R integers."""
    J, R = demand.shape
    free = scratch_i[J : J + R]
    for n in range(R):
        free[n] = capacity[n]
    for j in range(J):
        out[j] = 0
    fill(weights, demand, free, order, params_i[:J], scratch_f[:J], scratch_i[:J], out)
    return total(weights, out)

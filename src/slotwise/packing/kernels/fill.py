"""Lemma 2 with filling: the type of highest relative value as often as it fits, then the next.

The relative value of a type is weight_j / max_n (w_jn / capacity_n). The first type alone already has
N_f / (R (N_f + 1)) of the best weight; what is left of the server goes to the types of lower relative value, so the
result is maximal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel

I8 = NDArray[np.int64]
F8 = NDArray[np.float64]


@kernel
def total(weights: F8, configuration: I8) -> float:
    """f(k, Q) = sum_j k_j Q_j, added in the order of the types (so that equal runs give equal bits)."""
    weight = 0.0
    for j in range(len(configuration)):
        if configuration[j] > 0:
            weight += weights[j] * configuration[j]
    return weight


@kernel
def fits(demand: I8, free: I8, j: int) -> int:
    """How many type-j jobs fit into `free`."""
    most = -1
    for n in range(len(free)):
        if demand[j, n] > 0:
            count = free[n] // demand[j, n] if free[n] > 0 else 0
            if most < 0 or count < most:
                most = count
    return max(most, 0)


@kernel
def fill(weights: F8, demand: I8, free: I8, order: I8, may: I8, value: F8, done: I8, out: I8) -> None:
    """Add jobs to `out` until `free`, which is used up on the way, takes no more: the highest relative value first.

    Only types with may[j] > 0 are added. `value` and `done` are room for one number per type.
    """
    J, R = demand.shape
    for j in range(J):
        share = 0.0
        for n in range(R):
            if demand[j, n] > free[n]:
                share = np.inf
            elif demand[j, n] > 0:
                share = max(share, demand[j, n] / free[n])
        done[j] = 0 if may[j] > 0 and 0.0 < share <= 1.0 else 1
        value[j] = weights[j] / share if done[j] == 0 else 0.0
    for _ in range(J):
        best = -1
        for i in range(J):
            j = order[i]
            if done[j] == 0 and (best < 0 or value[j] > value[best]):
                best = j
        if best < 0:
            break
        done[best] = 1
        count = fits(demand, free, best)
        if count > 0:
            out[best] += count
            for n in range(R):
                free[n] -= count * demand[best, n]


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
    """Lemma 2 with filling. Scratch: J floats, J + R integers."""
    J, R = demand.shape
    free = scratch_i[J : J + R]
    for n in range(R):
        free[n] = capacity[n]
    for j in range(J):
        out[j] = 0
    fill(weights, demand, free, order, params_i[:J], scratch_f[:J], scratch_i[:J], out)
    return total(weights, out)

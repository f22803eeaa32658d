"""The paper's recursion, G[u] = max_j G[u - w_j] + Q_j, over a grid of integer capacities.

G[u] is the best weight that capacity u can hold. Every demand in resource n is a multiple of g_n, the gcd of the
demands, so the grid has floor(capacity_n / g_n) + 1 steps in that direction. Whenever a type fits, G[u] is attained
by some type, weights of zero included; so the way back, which goes on until nothing fits, ends in a maximal
configuration by itself. It takes at each step the earliest type in `order` that attains G[u]: the result is
the best configuration whose counts, read in `order`, are lexicographically largest.
"""

from __future__ import annotations

from slotwise._kernel import kernel
from slotwise.packing.kernels.fill import F8, I8, total


@kernel
def dp(
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
    """params_i after the J types: g_n for each resource. Scratch: one float a cell; one integer a cell, J R + J + 3 R more."""
    J, R = demand.shape
    steps = scratch_i[:R]
    stride = scratch_i[R : 2 * R]
    at = scratch_i[2 * R : 3 * R]
    offset = scratch_i[3 * R : 3 * R + J]
    size = scratch_i[3 * R + J : 3 * R + J + J * R]
    choice = scratch_i[3 * R + J + J * R :]
    best = scratch_f
    divisor = params_i[J : J + R]

    cells = 1
    for n in range(R - 1, -1, -1):
        steps[n] = capacity[n] // divisor[n]
        stride[n] = cells
        at[n] = 0
        cells *= steps[n] + 1
    for j in range(J):
        out[j] = 0
        offset[j] = 0
        inside = params_i[j] > 0
        for n in range(R):
            # Rounded up: the gcd is that of the types that fit the whole server, a larger one must stay too large.
            size[j * R + n] = -(-demand[j, n] // divisor[n])
            if size[j * R + n] > steps[n]:
                inside = False
        if inside:
            for n in range(R):
                offset[j] += size[j * R + n] * stride[n]

    for cell in range(cells):
        best[cell] = 0.0
        choice[cell] = -1
        for i in range(J):
            j = order[i]
            if offset[j] == 0:
                continue
            inside = True
            for n in range(R):
                if size[j * R + n] > at[n]:
                    inside = False
                    break
            if inside:
                weight = best[cell - offset[j]] + weights[j]
                if choice[cell] < 0 or weight > best[cell]:
                    best[cell] = weight
                    choice[cell] = j
        for n in range(R - 1, -1, -1):
            at[n] += 1
            if at[n] <= steps[n]:
                break
            at[n] = 0

    cell = cells - 1
    while choice[cell] >= 0:
        j = choice[cell]
        out[j] += 1
        cell -= offset[j]
    return total(weights, out)

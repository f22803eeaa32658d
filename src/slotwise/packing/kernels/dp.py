"""The paper's recursion, G[u] = max_j G[u - w_j] + Q_j, over a grid of integer capacities.

G[u] is the best weight that capacity u can hold. Every demand in resource n is a multiple of g_n, the gcd of the
demands, so the grid has floor(capacity_n / g_n) + 1 steps in that direction. Whenever a type fits, G[u] is attained
by some type, weights of zero included; so the way back, which goes on until nothing fits, ends in a maximal
configuration by itself. It takes at each step the earliest type in `order` that attains G[u]: the result is
the best configuration whose counts, read in `order`, are lexicographically largest.

With one resource and types of many sizes, all sizes k are tried, several at a time. Let v_k be the largest weight of a
type of size k; then G[u + k] = max(G[u + k], G[u] + v_k). The sums are the same as above, to the last bit. The way back
then looks for the types that attain them.
"""

from __future__ import annotations

import math

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural
from slotwise.packing.kernels.fill import F8, I8, total

# capacities for each type: with no more it takes less time to look at all sizes, several at a time, than at those
# of the types one by one
DENSE = 8


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
    """Find the best configuration by dynamic programming over the cells of the grid of capacities.

    params_i after the J types: g_n for each resource, then w_jn / g_n for each type and resource, so that no call
    divides for each. These are rounded up: g is the gcd of the types that fit the whole server, and a larger type
    must stay too large. Scratch: one float a cell, two with one resource; one integer a cell, J + 3 R more.
    """
    J, R = demand.shape
    steps = scratch_i[:R]
    stride = scratch_i[R : 2 * R]
    at = scratch_i[2 * R : 3 * R]
    offset = scratch_i[3 * R : 3 * R + J]
    choice = scratch_i[3 * R + J :]
    best = scratch_f
    divisor, size = params_i[J : J + R], params_i[J + R :]

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
            if size[j * R + n] > steps[n]:
                inside = False
        if inside:
            for n in range(R):
                offset[j] += size[j * R + n] * stride[n]

    if R == 1 and cells <= DENSE * J:
        _fill_line(weights, offset, best[:cells], scratch_f[cells : 2 * cells])
        _go_back(weights, offset, best, order, cells - 1, out)
        return total(weights, out)

    _fill_grid(weights, order, size, offset, steps, at, best[:cells], choice)
    cell = cells - 1
    while choice[cell] >= 0:
        j = choice[cell]
        out[j] += 1
        cell -= offset[j]
    return total(weights, out)


@kernel
def _fill_grid(weights: F8, order: I8, size: I8, offset: I8, steps: I8, at: I8, best: F8, choice: I8) -> None:
    """Write the best weight of each cell into `best`, and the type that it takes last, or -1, into `choice`."""
    J, R = len(order), len(steps)
    for cell in range(len(best)):
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


@kernel
def _fill_line(weights: F8, offset: I8, best: F8, most: F8) -> None:
    """Write G[u] into `best`, and v_k into `most`."""
    smallest = cells = natural(len(best))
    for cell in range(cells):
        best[cell] = most[cell] = -math.inf
    for j in range(len(offset)):
        k = natural(offset[j])
        if k > 0:
            smallest = min(smallest, k)
            most[k] = max(most[k], weights[j])
    for cell in range(cells):
        if cell < smallest:
            best[cell] = 0.0  # nothing fits
        here, later, sizes = best[cell], best[cell + smallest :], most[smallest:]
        for k in range(len(later)):
            weight = here + sizes[k]
            later[k] = weight if weight > later[k] else later[k]


@kernel
def _go_back(weights: F8, offset: I8, best: F8, order: I8, cell: int, out: I8) -> None:
    """Walk back from a cell: take the earliest type that attains G[u], and the next."""
    i = 0
    while i < len(order):
        j = order[i]
        if 0 < offset[j] <= cell and best[cell - offset[j]] + weights[j] == best[cell]:
            out[j] += 1
            cell -= offset[j]
            i = 0
        else:
            i += 1

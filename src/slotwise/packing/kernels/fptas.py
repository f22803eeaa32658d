"""(1 - eps) of the best weight on one resource, in time J / eps^2 whatever the capacity.

Let B be the best one-type weight; the optimum lies in [B, 2 B] (Lemma 2 with R = 1). Call a type heavy when its weight
exceeds T = eps B / 2. An optimum holds fewer than optimum / T heavy jobs, so rounding their weights down to multiples
of K = eps T / 2 loses at most eps/2 of it. 2 B / K = 8 / eps^2 multiples are enough: least[q] is the least capacity in
which heavy jobs reach the rounded weight q K. Beside them, the light type with the most weight per size alone is within
one job, hence T <= eps/2 of the optimum, of the best use of what is left.
"""

from __future__ import annotations

import numpy as np

from slotwise.compiler.kernel import kernel
from slotwise.packing.kernels.fill import F8, I8, fill, fits, total

NEVER = np.iinfo(np.int64).max


@kernel
def fptas(
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
    """Find a configuration of at least (1 - eps) of the best weight.

    params_f: eps. Scratch: J floats; 2 C + 2 J + 1 integers, C = `cells(eps)`.
    """
    J = demand.shape[0]
    room = capacity[0]
    bound = 0.0
    for j in range(J):
        out[j] = 0
        if params_i[j] > 0:
            bound = max(bound, weights[j] * fits(demand, capacity, j))
    free = scratch_i[:1]
    rounded = scratch_i[1 : J + 1]
    done = scratch_i[J + 1 : 2 * J + 1]
    half = (len(scratch_i) - 2 * J - 1) // 2
    least = scratch_i[2 * J + 1 : 2 * J + 1 + half]
    choice = scratch_i[2 * J + 1 + half : 2 * J + 1 + 2 * half]
    free[0] = room
    if bound > 0.0:
        units = 4.0 / (params_f[0] * params_f[0])  # B / K
        light = _round_weights(
            weights, demand, room, order, params_i, params_f[0] / 2.0 * bound, bound, units, rounded
        )
        top = min(half - 1, int(2.0 * units) + 1)
        best_q = _best_multiple(weights, demand, room, order, rounded, light, top, bound, units, least, choice)
        while choice[best_q] >= 0:
            j = choice[best_q]
            out[j] += 1
            free[0] -= demand[j, 0]
            best_q -= rounded[j]
        if light >= 0:
            count = fits(demand, free, light)
            out[light] += count
            free[0] -= count * demand[light, 0]
    fill(weights, demand, free, order, params_i[:J], scratch_f[:J], done, out)
    return total(weights, out)


@kernel
def _round_weights(
    weights: F8,
    demand: I8,
    room: int,
    order: I8,
    fitting: I8,
    threshold: float,
    bound: float,
    units: float,
    rounded: I8,
) -> int:
    """Write each heavy type's weight in multiples of K, 0 for other types. Return the light type with the most weight
    per size, or -1."""
    light = -1
    for i in range(len(order)):
        j = order[i]
        rounded[j] = 0
        if fitting[j] == 0 or weights[j] <= 0.0 or demand[j, 0] > room:
            continue
        if weights[j] > threshold:
            rounded[j] = int(weights[j] / bound * units)
        elif light < 0 or weights[j] / demand[j, 0] > weights[light] / demand[light, 0]:
            light = j
    return light


@kernel
def _best_multiple(
    weights: F8,
    demand: I8,
    room: int,
    order: I8,
    rounded: I8,
    light: int,
    top: int,
    bound: float,
    units: float,
    least: I8,
    choice: I8,
) -> int:
    """Write `least`, and the type that each multiple takes last, or -1, into `choice`. Return the multiple that, with
    the light type beside it, weighs most."""
    best_q = 0
    best = -1.0
    for q in range(top + 1):
        least[q] = 0 if q == 0 else NEVER
        choice[q] = -1
        for i in range(len(order)):
            j = order[i]
            if 0 < rounded[j] <= q and least[q - rounded[j]] <= room - demand[j, 0]:
                size = least[q - rounded[j]] + demand[j, 0]
                if size < least[q]:
                    least[q] = size
                    choice[q] = j
        if least[q] <= room:
            weight = q / units * bound
            if light >= 0:
                weight += weights[light] * ((room - least[q]) // demand[light, 0])
            if weight > best:
                best = weight
                best_q = q
    return best_q


@kernel
def cells(epsilon: float) -> int:
    """Return the multiples of K that `fptas` may need: 2 B / K, with a margin for rounding."""
    return int(8.0 / (epsilon * epsilon)) + 4

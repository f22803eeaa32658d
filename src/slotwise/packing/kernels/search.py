"""(1 - eps) of the best weight on several resources: branch and bound with linear-programming prices.

The dual of max {w x : D x <= c, x >= 0} prices the resources: y >= 0. For any such y, what is left free cannot hold
more than y.free * max_j w_j / (y.d_j) over the types still open (the surrogate knapsack), nor, for each resource n,
more than free_n * max_j w_j / d_jn. These bounds hold whatever y is, so nothing depends on the simplex method
having found the exact optimum. Types are tried in falling w_j / (y.d_j), each from its largest count down; a branch
is cut when (1 - eps) of its bound does not exceed the best so far, so that the best found is at least (1 - eps) of
the optimum when the search ends. There is no way to give up early and keep that promise: the search goes on until
it ends, unless a limit on its nodes is given, and then says that it gave up.
"""

from __future__ import annotations

import numpy as np

from slotwise._kernel import kernel
from slotwise.packing.kernels.fill import F8, I8, fill, fits, total

ROUNDING = 1e-12  # relative; bounds are raised by it, so that rounding never cuts the optimum


@kernel
def prices(weights: F8, demand: I8, capacity: I8, types: I8, m: int, tableau: F8, labels: I8, price: F8) -> None:
    """Dual prices of max {w x : D x <= c, x >= 0} over types[:m], by the simplex method."""
    R = len(capacity)
    width = m + 1
    for n in range(R):
        for i in range(m):
            d = demand[types[i], n]
            tableau[n * width + i] = d / capacity[n] if d > 0 else 0.0
        tableau[n * width + m] = 1.0
        labels[m + n] = m + n
    for i in range(m):
        tableau[R * width + i] = -weights[types[i]]
        labels[i] = i
    tableau[R * width + m] = 0.0
    for _ in range(20 * (m + R)):
        enter = -1
        least = 0.0
        for i in range(m):
            if tableau[R * width + i] < least:
                least = tableau[R * width + i]
                enter = i
        leave = -1
        ratio = np.inf
        if enter >= 0:
            for n in range(R):
                if tableau[n * width + enter] > 1e-12:
                    step = tableau[n * width + m] / tableau[n * width + enter]
                    if step < ratio:
                        ratio = step
                        leave = n
        if leave < 0:
            break
        pivot = tableau[leave * width + enter]
        for i in range(width):
            tableau[leave * width + i] /= pivot
        for n in range(R + 1):
            if n != leave:
                factor = tableau[n * width + enter]
                for i in range(width):
                    if i != enter:
                        tableau[n * width + i] -= factor * tableau[leave * width + i]
                tableau[n * width + enter] = -factor / pivot
        tableau[leave * width + enter] = 1.0 / pivot
        label = labels[enter]
        labels[enter] = labels[m + leave]
        labels[m + leave] = label
    whole = 0.0
    for n in range(R):
        price[n] = 0.0
    for i in range(m):
        if labels[i] >= m:
            price[labels[i] - m] = max(0.0, tableau[R * width + i])
            whole += price[labels[i] - m]
    for n in range(R):  # no resource is quite free, so that every job has a price
        price[n] = (price[n] + 1e-9 * whole) / capacity[n] if capacity[n] > 0 else 0.0


@kernel
def branch_and_bound(
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
    """params_f: eps. params_i after the J types: the most nodes (0: no limit); beyond them the weight returned is -1.

    Scratch: (2 R + 3) (J + 1) + 2 J + R floats, 4 J + 2 R integers.
    """
    J, R = demand.shape
    labels = scratch_i[: J + R]
    types = scratch_i[J + R : 2 * J + R]
    count = scratch_i[2 * J + R : 3 * J + R]
    done = scratch_i[3 * J + R : 4 * J + R]
    free = scratch_i[4 * J + R : 4 * J + 2 * R]
    a = (R + 1) * (J + 1)
    b = (R + 1) * (J + 1)
    tableau = scratch_f[:a]
    density = scratch_f[a : a + b]  # density[i * (R + 1) + n]: the most weight per unit of n over types[i:]
    reached = scratch_f[a + b : a + b + J + 1]  # the weight of types[:i]
    price = scratch_f[a + b + J + 1 : a + b + J + 1 + R]
    value = scratch_f[a + b + J + 1 + R : a + b + 2 * J + 1 + R]

    m = 0
    for i in range(J):
        j = order[i]
        out[j] = 0
        if params_i[j] > 0 and weights[j] > 0.0 and fits(demand, capacity, j) > 0:
            types[m] = j
            m += 1
    for n in range(R):
        free[n] = capacity[n]
    gave_up = False
    if m > 0:
        prices(weights, demand, capacity, types, m, tableau, labels, price)
        # To begin with, the linear program's solution rounded down and filled: near the best on large servers.
        for n in range(R):
            if labels[m + n] < m:
                j = types[labels[m + n]]
                out[j] = min(fits(demand, free, j), int(tableau[n * (m + 1) + m] + 1e-9))
                for h in range(R):
                    free[h] -= out[j] * demand[j, h]
        fill(weights, demand, free, order, params_i[:J], value, done, out)
        best = total(weights, out)
        for n in range(R):
            free[n] = capacity[n]
        for i in range(m):
            cost = 0.0
            for n in range(R):
                cost += price[n] * demand[types[i], n]
            value[types[i]] = weights[types[i]] / cost
        for i in range(1, m):  # insertion sort: stable, so that equal types stay in `order`
            j = types[i]
            h = i
            while h > 0 and value[types[h - 1]] < value[j]:
                types[h] = types[h - 1]
                h -= 1
            types[h] = j
        for n in range(R + 1):
            density[m * (R + 1) + n] = 0.0
        for i in range(m - 1, -1, -1):
            j = types[i]
            for n in range(R):
                here = weights[j] / demand[j, n] if demand[j, n] > 0 else np.inf
                density[i * (R + 1) + n] = max(density[(i + 1) * (R + 1) + n], here)
            density[i * (R + 1) + R] = value[j]

        keep = (1.0 - params_f[0]) * (1.0 + ROUNDING)
        nodes = 0
        reached[0] = 0.0
        level = 0
        while True:
            # Down: every open type as often as it fits, until the bound says that it is no use.
            cut = False
            while level < m:
                nodes += 1
                bound = 0.0
                for n in range(R):
                    bound += price[n] * free[n]
                bound *= density[level * (R + 1) + R]
                for n in range(R):
                    if density[level * (R + 1) + n] < np.inf:
                        bound = min(bound, density[level * (R + 1) + n] * free[n])
                if (reached[level] + bound) * keep <= best:
                    cut = True
                    break
                j = types[level]
                count[level] = fits(demand, free, j)
                for n in range(R):
                    free[n] -= count[level] * demand[j, n]
                reached[level + 1] = reached[level] + count[level] * weights[j]
                level += 1
            if not cut and reached[m] > best:
                best = reached[m]
                for j in range(J):
                    out[j] = 0
                for i in range(m):
                    out[types[i]] = count[i]
            # Up: to the last type that can have one job less and still be of use.
            level -= 1
            while level >= 0:
                j = types[level]
                if count[level] > 0:
                    count[level] -= 1
                    for n in range(R):
                        free[n] += demand[j, n]
                    reached[level + 1] = reached[level] + count[level] * weights[j]
                    bound = 0.0
                    for n in range(R):
                        bound += price[n] * free[n]
                    bound *= density[(level + 1) * (R + 1) + R]
                    if (reached[level + 1] + bound) * keep > best:
                        break
                    # Fewer of this type only lowers this bound: types are in falling density.
                    for n in range(R):
                        free[n] += count[level] * demand[j, n]
                level -= 1
            if level < 0:
                break
            level += 1
            if 0 < params_i[J] < nodes:
                gave_up = True
                break
        for n in range(R):
            free[n] = capacity[n]
            for j in range(J):
                free[n] -= out[j] * demand[j, n]
    fill(weights, demand, free, order, params_i[:J], value, done, out)
    return -1.0 if gave_up else total(weights, out)

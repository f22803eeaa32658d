"""(1 - eps) of the best weight on several resources: branch and bound with linear-programming prices.

The dual of max {w x : D x <= c, x >= 0} prices the resources: y >= 0. For any such y, what is left free cannot hold
more than y.free * max_j w_j / (y.d_j) over the types still open (the surrogate knapsack), nor, for each resource n,
more than free_n * max_j w_j / d_jn. These bounds hold whatever y is, so nothing depends on the simplex method
having found the exact optimum. Where only n more jobs fit, they weigh no more than n times the heaviest. Types are tried in falling w_j / (y.d_j), each from its largest count down; a branch
is cut when (1 - eps) of its bound does not exceed the best so far, so that the best found is at least (1 - eps) of
the optimum when the search ends. There is no way to give up early and keep that promise: the search goes on until
it ends, unless a limit on its nodes is given, and then says that it gave up.
"""

from __future__ import annotations

import numpy as np

from slotwise._kernel import kernel
from slotwise.packing.kernels.fill import F8, I8, covers, fill, fits, total

ROUNDING = 1e-12  # relative; bounds are raised by it, so that rounding never cuts the optimum


@kernel
def prices(weights: F8, demand: I8, capacity: I8, types: I8, m: int, tableau: F8, labels: I8, price: F8) -> None:
    """Dual prices of max {w x : D x <= c, x >= 0} over types[:m], by the simplex method."""
    R = len(capacity)
    width = m + 1
    for n in range(R):
        unit = 1.0 / capacity[n] if capacity[n] > 0 else 0.0
        for i in range(m):
            tableau[n * width + i] = unit * demand[types[i], n]
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
        unit = 1.0 / pivot
        for i in range(width):
            tableau[leave * width + i] *= unit
        for n in range(R + 1):
            if n != leave:
                factor = tableau[n * width + enter]
                for i in range(width):
                    tableau[n * width + i] -= factor * tableau[leave * width + i]
                tableau[n * width + enter] = -factor * unit
        tableau[leave * width + enter] = unit
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
def undominated(weights: F8, demand: I8, types: I8, m: int) -> int:
    """Keep, in types[:m], those that no earlier one replaces: with no less weight and no more demand; returns how many. In falling
    weight per cost nobody replaces an earlier one, but for equal ones."""
    R, kept = demand.shape[1], 0
    for a in range(m):
        j = types[a]
        replaced = False
        for b in range(kept):
            i = types[b]
            if weights[i] >= weights[j]:
                replaced = True
                for n in range(R):
                    if demand[i, n] > demand[j, n]:
                        replaced = False
                        break
                if replaced:
                    break
        if not replaced:
            types[kept] = j
            kept += 1
    return kept


@kernel
def _worth_trying(
    weights: F8, demand: I8, capacity: I8, types: I8, m: int, price: F8, best: float, value: F8
) -> int:
    """Keep, in types[:m], those that may be in a configuration of more than the best weight so far; returns how many. They come in
    falling value_j = w_j / (y.d_j). With z = max_j value_j no configuration weighs more than z y.c, and none that
    has a job of type j more than z y.c - (z y.d_j - w_j)."""
    R, z, whole = demand.shape[1], 0.0, 0.0
    for n in range(R):
        whole += price[n] * capacity[n]
    for i in range(m):
        cost = 0.0
        for n in range(R):
            cost += price[n] * demand[types[i], n]
        value[types[i]] = weights[types[i]] / cost
        z = max(z, value[types[i]])
    left = 0
    for i in range(m):
        j = types[i]
        if z * (whole - weights[j] / value[j]) + weights[j] <= best:
            continue
        h = left  # insertion sort: stable, so that equal types stay in `order`
        while h > 0 and value[types[h - 1]] < value[j]:
            types[h] = types[h - 1]
            h -= 1
        types[h] = j
        left += 1
    return undominated(weights, demand, types, left)


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

    Scratch: (2 R + 4) (J + 1) + 2 J + R floats, 4 J + 2 R + R (J + 1) integers.
    """
    J, R = demand.shape
    may, most_nodes = params_i[:J], params_i[J]
    labels = scratch_i[: J + R]
    types = scratch_i[J + R : 2 * J + R]
    count = scratch_i[2 * J + R : 3 * J + R]
    done = scratch_i[3 * J + R : 4 * J + R]
    free = scratch_i[4 * J + R : 4 * J + 2 * R]
    least = scratch_i[
        4 * J + 2 * R : 4 * J + 2 * R + R * (J + 1)
    ]  # least[i * R + n]: no type of types[i:] asks for less
    a = (R + 1) * (J + 1)
    b = (R + 1) * (J + 1)
    tableau = scratch_f[:a]
    density = scratch_f[a : a + b]  # density[i * (R + 1) + n]: the most weight per unit of n over types[i:]
    reached = scratch_f[a + b : a + b + J + 1]  # the weight of types[:i]
    price = scratch_f[a + b + J + 1 : a + b + J + 1 + R]
    value = scratch_f[a + b + J + 1 + R : a + b + 2 * J + 1 + R]
    heaviest = scratch_f[a + b + 2 * J + 1 + R : a + b + 3 * J + 2 + R]  # the weight of the heaviest of types[i:]

    m = 0
    for i in range(J):
        j = order[i]
        out[j] = 0
        if may[j] > 0 and weights[j] > 0.0 and covers(capacity, demand, j):
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
        fill(weights, demand, free, types[:m], may, value, done, out)
        best = total(weights, out)
        keep = (1.0 - params_f[0]) * (1.0 + ROUNDING)
        for n in range(R):
            free[n] = capacity[n]
        m = _worth_trying(weights, demand, capacity, types, m, price, best / keep, value)
        for n in range(R + 1):
            density[m * (R + 1) + n] = 0.0
        heaviest[m] = 0.0
        for n in range(R):
            least[m * R + n] = capacity[n] + 1
        for i in range(m - 1, -1, -1):
            j = types[i]
            heaviest[i] = max(heaviest[i + 1], weights[j])
            for n in range(R):
                least[i * R + n] = min(least[(i + 1) * R + n], demand[j, n])
                here = weights[j] / demand[j, n] if demand[j, n] > 0 else np.inf
                density[i * (R + 1) + n] = max(density[(i + 1) * (R + 1) + n], here)
            density[i * (R + 1) + R] = value[j]

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
                    if bound > 0.0 and free[n] < 4 * least[level * R + n]:  # only few more jobs fit: count them
                        bound = min(bound, heaviest[level] * (free[n] // least[level * R + n]))
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
            if 0 < most_nodes < nodes:
                gave_up = True
                break
        for n in range(R):
            free[n] = capacity[n]
            for j in range(J):
                free[n] -= out[j] * demand[j, n]
    fill(weights, demand, free, order, may, value, done, out)
    return -1.0 if gave_up else total(weights, out)

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
from slotwise.packing.kernels.fill import F8, I8, covers, covers_all, fill, fits, total

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
def _unreplaced(weights: F8, demand: I8, capacity: I8, order: I8, may: I8, smaller: I8, types: I8) -> int:
    """The types that weigh something, fit, and are replaced by none of some that ask for no more, in this order; returns how many. Each type j has
    as many entries in `smaller`: i, which asks for no more in all and less in some resource; or ~i, which asks for the same and must weigh
    more, or the two would replace each other."""
    J, m = len(order), 0
    each = len(smaller) // J
    for n in range(J):
        j = order[n]
        mine = weights[j]
        if may[j] == 0 or mine <= 0.0:
            continue
        replaced = False
        for e in range(j * each, j * each + each):  # to the end: no branch that nobody can predict
            i = smaller[e]
            replaced |= weights[i] >= mine if i >= 0 else weights[~i] > mine
        if not replaced and covers(capacity, demand, j):  # who replaces a type that fits does fit
            types[m] = j
            m += 1
    return m


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
    return left


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
    """params_f: eps. params_i after the J types: the most nodes (0: no limit); beyond them the weight returned is -1. Then, for each resource, what no
    type asks for less of, and the types that may replace others (`_unreplaced`).

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

    for j in range(J):
        out[j] = 0
    smallest = params_i[J + 1 : J + 1 + R]
    m = _unreplaced(weights, demand, capacity, order, may, params_i[J + 1 + R :], types)
    for n in range(R):
        free[n] = capacity[n]
    chosen, heavy = labels, done  # no longer needed by then
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
        step = 1.0 - 1e-9  # weights that are whole numbers rise by 1 at least
        for i in range(m - 1, -1, -1):
            j = types[i]
            if weights[j] != np.floor(weights[j]):
                step = 0.0
            heaviest[i] = max(heaviest[i + 1], weights[j])
            for n in range(R):
                least[i * R + n] = min(least[(i + 1) * R + n], demand[j, n])
                here = weights[j] / demand[j, n] if demand[j, n] > 0 else np.inf
                density[i * (R + 1) + n] = max(density[(i + 1) * (R + 1) + n], here)
            density[i * (R + 1) + R] = value[j]
        for i in range(m):
            h = i
            while h > 0 and weights[heavy[h - 1]] < weights[types[i]]:
                heavy[h] = heavy[h - 1]
                h -= 1
            heavy[h] = types[i]

        nodes = 0
        reached[0] = 0.0
        limit = max(best / keep, best + step)
        depth, i = 0, 0
        while True:
            # Down: the next type that fits, as often as it does, until the bound says that the rest is no use.
            while i < m:
                nodes += 1
                bound = 0.0
                for n in range(R):
                    bound += price[n] * free[n]
                bound *= density[i * (R + 1) + R]
                last = False  # whether one more job is all that fits
                for n in range(R):
                    if density[i * (R + 1) + n] < np.inf:
                        bound = min(bound, density[i * (R + 1) + n] * free[n])
                    one = least[i * R + n]
                    if free[n] < 4 * one:  # only few more jobs fit: count them
                        more = int(free[n] >= one) + int(free[n] >= 2 * one) + int(free[n] >= 3 * one)
                        bound = min(bound, heaviest[i] * more)
                        last |= more == 1
                if reached[depth] + bound <= limit:
                    break
                if last:
                    h = 0
                    while (
                        h < m and reached[depth] + weights[heavy[h]] > limit and not covers(free, demand, heavy[h])
                    ):
                        h += 1
                    if h < m and reached[depth] + weights[heavy[h]] > limit:
                        best = reached[depth] + weights[heavy[h]]
                        limit = max(best / keep, best + step)
                        for j in range(J):
                            out[j] = 0
                        for d in range(depth):
                            out[types[chosen[d]]] = count[d]
                        out[heavy[h]] += 1
                    break
                j = types[i]
                count[depth] = fits(demand, free, j)
                if count[depth] > 0:
                    chosen[depth] = i
                    for n in range(R):
                        free[n] -= count[depth] * demand[j, n]
                    reached[depth + 1] = reached[depth] + count[depth] * weights[j]
                    depth += 1
                i += 1
            if reached[depth] > best:
                best = reached[depth]
                limit = max(best / keep, best + step)
                for j in range(J):
                    out[j] = 0
                for d in range(depth):
                    out[types[chosen[d]]] = count[d]
            # Up: to the last type that can have one job less and still be of use.
            depth -= 1
            while depth >= 0:
                i = chosen[depth]
                j = types[i]
                count[depth] -= 1
                for n in range(R):
                    free[n] += demand[j, n]
                reached[depth + 1] = reached[depth] + count[depth] * weights[j]
                bound = 0.0
                for n in range(R):
                    bound += price[n] * free[n]
                bound *= density[(i + 1) * (R + 1) + R]
                if reached[depth + 1] + bound > limit:
                    break
                # Fewer of this type only lowers this bound: types are in falling density.
                for n in range(R):
                    free[n] += count[depth] * demand[j, n]
                depth -= 1
            if depth < 0:
                break
            depth += count[depth] > 0
            i += 1
            if 0 < most_nodes < nodes:
                gave_up = True
                break
        for n in range(R):
            free[n] = capacity[n]
            for j in range(J):
                free[n] -= out[j] * demand[j, n]
    if covers_all(free, smallest):
        fill(weights, demand, free, order, may, value, done, out)
    return -1.0 if gave_up else total(weights, out)

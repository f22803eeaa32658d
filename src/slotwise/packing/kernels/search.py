"""(1 - eps) of the best weight on several resources: branch and bound with linear-programming prices.

The dual of max {w x : D x <= c, x >= 0} prices the resources: y >= 0. For any such y, the free capacity cannot hold
more than y.free * max_j w_j / (y.d_j) over the types still open (the surrogate knapsack). Nor can it hold more than
free_n * max_j w_j / d_jn, for each resource n. These bounds hold whatever y is, so nothing depends on the simplex
method having found the exact optimum. Where only n more jobs fit, they weigh no more than n times the heaviest. Types
are tried in falling w_j / (y.d_j), each from its largest count down. A branch is cut when (1 - eps) of its bound does
not exceed the best so far. So the best found is at least (1 - eps) of the optimum when the search ends. A search that
gave up early could not promise that: it ends early only at a limit on its nodes, and then says so.
"""

from __future__ import annotations

import numpy as np

from slotwise.compiler.kernel import kernel
from slotwise.packing.kernels.fill import F8, I8, covers, covers_all, fill, fits, total
from slotwise.packing.kernels.replaced import unbeaten

ROUNDING = 1e-12  # relative; bounds are raised by it, so that rounding never cuts the optimum


@kernel
def prices(weights: F8, demand: I8, capacity: I8, types: I8, m: int, tableau: F8, labels: I8, price: F8) -> None:
    """Compute dual prices of max {w x : D x <= c, x >= 0} over types[:m] by the simplex method."""
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
    """Keep, in types[:m], those that no earlier one replaces: with no less weight and no more demand; returns how many.
    In falling weight per cost no type replaces an earlier one, except an equal one."""
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
def _by_value(weights: F8, demand: I8, types: I8, m: int, price: F8, value: F8, weight: F8, size: I8) -> None:
    """Put types[:m] into falling value_i = w / (y.d), with their weights and demands beside them; equal ones stay as they are."""
    R = demand.shape[1]
    for i in range(m):
        j = types[i]
        cost = 0.0
        for n in range(R):
            cost += price[n] * demand[j, n]
        mine = weights[j] / cost
        h = i
        while h > 0 and value[h - 1] < mine:
            value[h], types[h] = value[h - 1], types[h - 1]
            h -= 1
        value[h], types[h] = mine, j
    for i in range(m):
        weight[i] = weights[types[i]]
        for n in range(R):
            size[i * R + n] = demand[types[i], n]


@kernel
def _start(m: int, types: I8, weight: F8, size: I8, free: I8, out: I8) -> float:
    """Fill what is free in falling value, each type as often as it fits; returns the weight added. That is near the best on large servers."""
    R, found = len(free), 0.0
    for i in range(m):
        count = _times(size, i, free)
        if count > 0:
            found += count * weight[i]
            out[types[i]] += count
            for n in range(R):
                free[n] -= count * size[i * R + n]
    return found


@kernel
def _times(size: I8, i: int, free: I8) -> int:
    """Return how many of the i-th of the types fit into `free`."""
    R, most = len(free), -1
    for n in range(R):
        if size[i * R + n] > free[n]:
            return 0  # most often, and without a division
    for n in range(R):
        one = size[i * R + n]
        if one > 0:
            count = free[n] // one if 2 * one <= free[n] else 1
            if most < 0 or count < most:
                most = count
    return max(most, 0)


@kernel
def _worth_trying(m: int, types: I8, capacity: I8, price: F8, best: float, value: F8, weight: F8, size: I8) -> int:
    """Keep those that may be in a configuration of more than the best weight so far; returns how many. With z = max_i value_i no configuration weighs
    more than z y.c, and none that has a job of type i more than z y.c - (z y.d_i - w_i)."""
    R, whole, kept = len(capacity), 0.0, 0
    for n in range(R):
        whole += price[n] * capacity[n]
    z = value[0] * (1.0 + ROUNDING)
    for i in range(m):
        cost = 0.0
        for n in range(R):
            cost += price[n] * size[i * R + n]
        if z * (whole - cost) + weight[i] > best:
            types[kept], value[kept], weight[kept] = types[i], value[i], weight[i]
            for n in range(R):
                size[kept * R + n] = size[i * R + n]
            kept += 1
    return kept


@kernel
def _fill_with_weightless(demand: I8, free: I8, order: I8, may: I8, smallest: I8, out: I8) -> None:
    """Add jobs that weigh nothing, in this order, until no more fit."""
    R = len(free)
    for n in range(len(order)):
        j = order[n]
        if may[j] > 0 and covers(free, demand, j):
            count = fits(demand, free, j)
            out[j] += count
            for r in range(R):
                free[r] -= count * demand[j, r]
            if not covers_all(free, smallest):
                return


@kernel
def _that_fit(weights: F8, demand: I8, capacity: I8, types: I8, m: int) -> tuple[int, float]:
    """Keep the types that fit. Return how many, and by how much a better weight must exceed the best so far."""
    kept, step = 0, 1.0 - 1e-9  # weights that are whole numbers rise by 1 at least
    for i in range(m):
        j = types[i]
        if covers(capacity, demand, j):
            types[kept] = j
            kept += 1
            if weights[j] != np.floor(weights[j]):
                step = 0.0
    return kept, step


@kernel
def _rounded_down(weights: F8, demand: I8, types: I8, m: int, tableau: F8, labels: I8, free: I8, out: I8) -> float:
    """Take the linear program's solution over types[:m], rounded down. Return its weight."""
    R, found = len(free), 0.0
    for n in range(R):
        if labels[m + n] < m:
            j = types[labels[m + n]]
            out[j] = min(fits(demand, free, j), int(tableau[n * (m + 1) + m] + 1e-9))
            found += out[j] * weights[j]
            for h in range(R):
                free[h] -= out[j] * demand[j, h]
    return found


@kernel
def _bound_rests(m: int, capacity: I8, weight: F8, size: I8, density: F8, least: I8, heaviest: F8) -> None:
    """Write, over types[i:] for each i, the most weight per unit of each resource, the least demand and the heaviest weight."""
    R = len(capacity)
    for n in range(R):
        density[m * R + n] = 0.0
        least[m * R + n] = capacity[n] + 1
    heaviest[m] = 0.0
    for i in range(m - 1, -1, -1):
        heaviest[i] = max(heaviest[i + 1], weight[i])
        for n in range(R):
            one = size[i * R + n]
            least[i * R + n] = min(least[(i + 1) * R + n], one)
            here = weight[i] / one if one > 0 else np.inf
            density[i * R + n] = max(density[(i + 1) * R + n], here)


@kernel
def _sort_by_weight(m: int, weight: F8, heavy: I8) -> None:
    """Write the numbers 0 to m - 1, heaviest first."""
    for i in range(m):
        h = i
        while h > 0 and weight[heavy[h - 1]] < weight[i]:
            heavy[h] = heavy[h - 1]
            h -= 1
        heavy[h] = i


@kernel
def _write_out(types: I8, chosen: I8, count: I8, depth: int, out: I8) -> None:
    """Write the configuration of a node."""
    for j in range(len(out)):
        out[j] = 0
    for d in range(depth):
        out[types[chosen[d]]] = count[d]


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
    """Find the heaviest configuration by branch and bound. Return its weight, or -1 if the search gave up.

    params_f: eps, J numbers, and a floor. A configuration that weighs no more than the floor is not searched for.

    params_i after the J types: the most nodes of a search (0: no limit), the least demand of any type in each resource,
    the length of each type's list. Then come `smaller`, `larger_ends`, `larger` and the J + 1 numbers `beaten` of
    `unbeaten`. The numbers of `unbeaten` are 0 at first, and each call leaves them for the next.

    Scratch: (2 R + 7) (J + 1) + R floats, 4 J + 2 R + 3 R (J + 1) integers.
    """
    J, R = demand.shape
    may, most_nodes, smallest = params_i[:J], params_i[J], params_i[J + 1 : J + 1 + R]
    lists = J + 2 + R
    ends = lists + params_i[lists - 1] * J
    known = len(params_i) - J - 1
    labels = scratch_i[: J + R]
    types = scratch_i[J + R : 2 * J + R]
    count = scratch_i[2 * J + R : 3 * J + R]
    heavy = scratch_i[3 * J + R : 4 * J + R]  # heaviest first
    free = scratch_i[4 * J + R : 4 * J + 2 * R]
    a, b = 4 * J + 2 * R, R * (J + 1)
    least = scratch_i[a : a + b]  # least[i * R + n]: no type of types[i:] asks for less
    size = scratch_i[a + b : a + 2 * b]
    a = (R + 1) * (J + 1)
    tableau, density = (
        scratch_f[:a],
        scratch_f[a : 2 * a],
    )  # density[i * R + n]: the most weight per unit of n over types[i:]
    a *= 2
    reached = scratch_f[a : a + J + 1]  # the weight of types[:i]
    heaviest = scratch_f[a + J + 1 : a + 2 * J + 2]  # the weight of the heaviest of types[i:]
    value = scratch_f[a + 2 * J + 2 : a + 3 * J + 3]
    weight = scratch_f[a + 3 * J + 3 : a + 4 * J + 4]
    price = scratch_f[a + 4 * J + 4 : a + 4 * J + 4 + R]

    for j in range(J):
        out[j] = 0
    m = unbeaten(
        weights,
        order,
        may,
        params_i[lists:ends],
        params_i[ends : ends + J + 1],
        params_i[ends + J + 1 : known],
        params_f[1:],
        params_i[known:],
        types,
    )
    m, step = _that_fit(weights, demand, capacity, types, m)
    for n in range(R):
        free[n] = capacity[n]
    chosen = labels  # no longer needed by then
    gave_up = False
    if m > 0:
        prices(weights, demand, capacity, types, m, tableau, labels, price)
        # To begin with, the linear program's solution rounded down, and filled.
        best = _rounded_down(weights, demand, types, m, tableau, labels, free, out)
        _by_value(weights, demand, types, m, price, value, weight, size)
        best += _start(m, types, weight, size, free, out)
        keep = (1.0 - params_f[0]) * (1.0 + ROUNDING)
        limit = max(best / keep, best + step, params_f[J + 1])
        for n in range(R):
            free[n] = capacity[n]
        m = _worth_trying(m, types, capacity, price, limit, value, weight, size)
        _bound_rests(m, capacity, weight, size, density, least, heaviest)
        value[m] = 0.0
        _sort_by_weight(m, weight, heavy)

        nodes = 0
        reached[0] = 0.0
        depth, i = 0, 0
        while True:
            # Down: the next type that fits, as often as it does, until the bound says that the rest is no use.
            while i < m:
                nodes += 1
                bound = 0.0
                for n in range(R):
                    bound += price[n] * free[n]
                bound *= value[i]
                last = False  # whether one more job is all that fits
                for n in range(R):
                    if density[i * R + n] < np.inf:
                        bound = min(bound, density[i * R + n] * free[n])
                    one = least[i * R + n]
                    if free[n] < 4 * one:  # only few more jobs fit: count them
                        more = int(free[n] >= one) + int(free[n] >= 2 * one) + int(free[n] >= 3 * one)
                        bound = min(bound, heaviest[i] * more)
                        last |= more == 1
                if reached[depth] + bound <= limit:
                    break
                if last:
                    h = 0
                    while h < m and reached[depth] + weight[heavy[h]] > limit and _times(size, heavy[h], free) == 0:
                        h += 1
                    if h < m and reached[depth] + weight[heavy[h]] > limit:
                        best = reached[depth] + weight[heavy[h]]
                        limit = max(best / keep, best + step)
                        _write_out(types, chosen, count, depth, out)
                        out[types[heavy[h]]] += 1
                    break
                times = _times(size, i, free)
                if times > 0:
                    count[depth], chosen[depth] = times, i
                    for n in range(R):
                        free[n] -= times * size[i * R + n]
                    reached[depth + 1] = reached[depth] + times * weight[i]
                    depth += 1
                i += 1
            if reached[depth] > best:
                best = reached[depth]
                limit = max(best / keep, best + step)
                _write_out(types, chosen, count, depth, out)
            # Up: to the last type that can have one job less and still be of use.
            depth -= 1
            while depth >= 0:
                i = chosen[depth]
                count[depth] -= 1
                reached[depth + 1] = reached[depth] + count[depth] * weight[i]
                bound = 0.0
                for n in range(R):
                    free[n] += size[i * R + n]
                    bound += price[n] * free[n]
                if reached[depth + 1] + bound * value[i + 1] > limit:
                    break
                # Fewer of this type only lowers this bound: types are in falling density.
                for n in range(R):
                    free[n] += count[depth] * size[i * R + n]
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
            if out[j] > 0:
                for n in range(R):
                    free[n] -= out[j] * demand[j, n]
    if gave_up:
        return -1.0
    if covers_all(free, smallest):
        if params_f[0] == 0.0 and step > 0.0:  # then nothing that weighs anything fits
            _fill_with_weightless(demand, free, order, may, smallest, out)
        else:
            fill(weights, demand, free, order, may, value, heavy, out)
    return total(weights, out)

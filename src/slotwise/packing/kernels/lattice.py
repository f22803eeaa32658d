"""All configurations of an additive server, in falling lexicographic order.

The next one after k: take one job less of the last type that has any, and as many as fit of each type after it. For
maximal configurations the last type is always as often there as it fits, so only the types before it are stepped.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.packing.kernels.fill import I8, fits


@kernel
def walk(demand: I8, capacity: I8, maximal: bool, budget: int, count: I8, free: I8, out: I8) -> tuple[int, bool]:
    """Write the configurations (only the maximal ones, or all) into the rows of `out` as far as they go.

    Gives how many there are, and whether the walk ended before more than `budget` configurations were looked at.
    """
    J, R = demand.shape
    found = 0
    first = 0
    for n in range(R):
        free[n] = capacity[n]
    for _ in range(budget):
        for j in range(first, J):
            count[j] = fits(demand, free, j)
            for n in range(R):
                free[n] -= count[j] * demand[j, n]
        wanted = True
        if maximal:
            for j in range(J):
                if fits(demand, free, j) > 0:
                    wanted = False
                    break
        if wanted:
            if found < out.shape[0]:
                for j in range(J):
                    out[found, j] = count[j]
            found += 1
        step = J - 1
        if maximal:
            for n in range(R):
                free[n] += count[step] * demand[step, n]
            step -= 1
        while step >= 0 and count[step] == 0:
            step -= 1
        if step < 0:
            return found, True
        count[step] -= 1
        for n in range(R):
            free[n] += demand[step, n]
        first = step + 1
    return found, False

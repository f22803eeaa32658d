"""Which candidates an optimal basis settles: those whose reduced costs are all >= 0 and whose value is at most the denominator (see `hull`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.packing.kernels.fill import I8


@kernel
def settle(candidates: I8, prices: I8, denominator: int, settled: NDArray[np.bool_], values: I8) -> None:
    """Say for each candidate whether it is settled, and write its value. `prices` has a row for each type, then one for the value.

    Most candidates are not settled, and one negative cost shows it. The type that was negative for the last candidate is tried first.
    """
    n, J = candidates.shape
    first = 0
    for row in range(n):
        value = 0
        for j in range(J):
            value += candidates[row, j] * prices[J, j]
        values[row] = value
        fine = value <= denominator
        i = 0
        while fine and i < J:
            c = (first + i) % J
            cost = 0
            for j in range(J):
                cost += candidates[row, j] * prices[c, j]
            if cost < 0:
                fine, first = False, c
            i += 1
        settled[row] = fine

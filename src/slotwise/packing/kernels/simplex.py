"""An exact simplex method on integers: max {p.w : V w <= 1, w >= 0} for integer V >= 0 and p >= 0.

The tableau holds integers over one common denominator (the last pivot); each new entry is a minor of the input, so
the division is exact. Rows are the constraints, the last row the objective, the last column the right-hand side.
`labels` names the variables (w_j is j, the slack of row i is J + i): those of the columns, then those of the rows.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.packing.kernels.fill import I8

ROOM = 4.0e18  # products must stay below 2^63 - 1, also when two of them are subtracted


@kernel
def choose(tableau: I8, labels: I8, bland: bool) -> tuple[int, int]:
    """Return the pivot's row and column. At the optimum the column is -1; if a product would overflow, both are -2."""
    rows, width = tableau.shape[0] - 1, tableau.shape[1] - 1
    enter = -1
    for c in range(width):
        if tableau[rows, c] < 0 and (
            enter < 0
            or (bland and labels[c] < labels[enter])
            or (not bland and tableau[rows, c] < tableau[rows, enter])
        ):
            enter = c
    if enter < 0:
        return -1, -1
    leave = -1
    for i in range(rows):
        if tableau[i, enter] > 0:
            if leave < 0:
                leave = i
                continue
            a, b = tableau[i, width], tableau[leave, enter]
            c, d = tableau[leave, width], tableau[i, enter]
            if abs(float(a)) * abs(float(b)) >= ROOM or abs(float(c)) * abs(float(d)) >= ROOM:
                return -2, -2
            if a * b < c * d or (a * b == c * d and labels[width + i] < labels[width + leave]):
                leave = i
    return leave, enter


@kernel
def maximise(tableau: I8, labels: I8, denominator: int) -> tuple[int, int, bool]:
    """Pivot to the optimum in place: the denominator, the number of pivots, and False where 64 bits are too few."""
    rows, width = tableau.shape[0] - 1, tableau.shape[1] - 1
    pivots = 0
    while True:
        # Bland's rule cannot cycle; the steepest column is quicker as long as it does not.
        leave, enter = choose(tableau, labels, pivots > 20 * width)
        if enter == -2:
            return denominator, pivots, False
        if enter < 0:
            return denominator, pivots, True
        pivots += 1
        pivot = tableau[leave, enter]
        for i in range(rows + 1):
            if i == leave:
                continue
            factor = tableau[i, enter]
            for c in range(width + 1):
                if c == enter:
                    continue
                a, b = tableau[i, c], tableau[leave, c]
                if abs(float(a)) * float(pivot) >= ROOM or abs(float(factor)) * abs(float(b)) >= ROOM:
                    return denominator, pivots, False
                tableau[i, c] = (a * pivot - factor * b) // denominator
            tableau[i, enter] = -factor
        tableau[leave, enter] = denominator
        denominator = pivot
        label = labels[enter]
        labels[enter] = labels[width + leave]
        labels[width + leave] = label

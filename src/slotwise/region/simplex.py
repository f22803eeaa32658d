"""The linear program of a few types and configurations, without SciPy, whose import takes longer than most runs.

    max t   such that   sum_k x_k k >= t * direction,   sum_{k of class c} x_k = 1 for each class c,   x, t >= 0.

One configuration for each class and the slack of each type are a feasible start (t = 0), so the simplex method needs
no first phase: Dantzig's rule, then Bland's, which cannot cycle, once steps of length 0 abound. The answer is
checked by duality, so a program that rounding led astray is not taken for solved.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

MOST_ROWS = 24
MOST_COLUMNS = 600
PIVOTS = 2_000
STUCK = 20
"""steps of length 0 after which Bland's rule takes over"""
OPTIMAL = 1e-12
GAP = 1e-11


def solve(owner: NDArray[np.int64], rows: Vector, direction: Vector) -> tuple[Vector, Vector] | None:
    """(x, prices of the types), where column i belongs to class owner[i] and carries rows[i]; None if not solved."""
    n, J = rows.shape
    classes = np.unique(owner)
    m = J + len(classes)
    if m > MOST_ROWS or n > MOST_COLUMNS:
        return None
    # columns: x, t, slacks, right-hand side; the last row is the objective
    table = np.zeros((m + 1, n + 1 + J + 1))
    table[:J, :n] = -rows.T
    table[:J, n] = direction
    table[np.arange(J), n + 1 + np.arange(J)] = 1.0
    table[m, n] = -1.0
    basis = np.concatenate([n + 1 + np.arange(J), [int(np.argmax(owner == c)) for c in classes]])
    for i, c in enumerate(classes):
        table[J + i, :n] = owner == c
        table[J + i, -1] = 1.0
        _pivot(table, J + i, int(basis[J + i]))
    stuck = 0
    for _ in range(PIVOTS):
        reduced = table[m, :-1]
        if stuck < STUCK:
            entering = int(np.argmin(reduced))
        else:
            entering = int(np.argmax(reduced < -OPTIMAL))
        if reduced[entering] >= -OPTIMAL:
            x = np.zeros(n + 1 + J)
            x[basis] = np.maximum(table[:m, -1], 0.0)
            prices = np.maximum(table[m, n + 1 : n + 1 + J], 0.0)
            worth = sum(float(np.max(rows[owner == c] @ prices)) for c in classes)
            step = float(np.min((x[:n] @ rows)[direction > 0] / direction[direction > 0]))
            unit = float(prices @ direction)
            return (x[:n], prices) if unit > 0 and worth / unit - step <= GAP * max(step, 1e-300) else None
        column = table[:m, entering]
        rising = np.flatnonzero(column > 1e-11)
        if len(rising) == 0:
            return None
        ratios = np.maximum(table[rising, -1], 0.0) / column[rising]
        least = ratios.min()
        ties = rising[ratios <= least * (1 + 1e-12)]
        leaving = int(ties[np.argmin(basis[ties])] if stuck >= STUCK else ties[np.argmax(column[ties])])
        stuck = stuck + 1 if least <= 1e-14 else 0
        _pivot(table, leaving, entering)
        basis[leaving] = entering
    return None


def _pivot(table: Vector, row: int, column: int) -> None:
    table[row] /= table[row, column]
    factor = table[:, column].copy()
    factor[row] = 0.0
    table -= np.outer(factor, table[row])

"""The candidate of most weight in a table."""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.packing.kernels.fill import F8, I8, total


@kernel
def table_best(weights: F8, table: I8, order: I8, holding: I8) -> int:
    """Return the row of max weight. Among ties, prefer a row that contains `holding`, then the most of the earliest
    type."""
    J = table.shape[1]
    chosen = -1
    best = -1.0
    best_holds = False
    for row in range(table.shape[0]):
        weight = total(weights, table[row])
        if weight < best:
            continue
        holds = True
        for j in range(J):
            if table[row, j] < holding[j]:
                holds = False
                break
        better = weight > best or (holds and not best_holds)
        if not better and holds == best_holds:
            for i in range(J):
                more = table[row, order[i]] - table[chosen, order[i]]
                if more != 0:
                    better = more > 0
                    break
        if better:
            chosen = row
            best = weight
            best_holds = holds
    return chosen

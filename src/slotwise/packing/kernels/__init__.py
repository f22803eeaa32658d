"""The compiled solvers: one signature, no allocation, callable from other kernels.

    f(weights, demand, capacity, order, scratch_f, scratch_i, params_f, params_i, out) -> weight of out

`capacity` may be what jobs that stay leave free; where nothing fits, out = 0 and the weight is 0. `order` is a
permutation of the types: among equal choices the earlier one is preferred. `params_i` begins with a 1 for each type that
the server class may hold and a 0 for each that it may not, whatever its size; the solver's own numbers follow. `scratch_*` are
room (sizes and `params_*` come with a `Solver`); their content means nothing before and after a call.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.packing.kernels.dp import dp
from slotwise.packing.kernels.fill import F8, I8, greedy_fill
from slotwise.packing.kernels.fptas import fptas
from slotwise.packing.kernels.search import branch_and_bound
from slotwise.packing.kernels.table import table_best

TABLE, DP, GREEDY_FILL, FPTAS, BRANCH_AND_BOUND = 0, 1, 2, 3, 4  # the kinds of solvers


@kernel
def solve(
    kind: int,
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
    """Run the solver of this kind (any but TABLE, which is `table_best`). Return the weight found."""
    if kind == DP:
        return dp(weights, demand, capacity, order, scratch_f, scratch_i, params_f, params_i, out)
    if kind == FPTAS:
        return fptas(weights, demand, capacity, order, scratch_f, scratch_i, params_f, params_i, out)
    if kind == BRANCH_AND_BOUND:
        return branch_and_bound(weights, demand, capacity, order, scratch_f, scratch_i, params_f, params_i, out)
    return greedy_fill(weights, demand, capacity, order, scratch_f, scratch_i, params_f, params_i, out)


__all__ = [
    "BRANCH_AND_BOUND",
    "DP",
    "FPTAS",
    "GREEDY_FILL",
    "TABLE",
    "branch_and_bound",
    "dp",
    "fptas",
    "greedy_fill",
    "solve",
    "table_best",
]

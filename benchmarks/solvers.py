"""What one search for an (r-)max-weight configuration costs, solver by solver, from compiled code.

Three servers: Table 1 of the paper; the eight power-of-two types on a server of size 128, which has 27,338 maximal configurations; and twelve random
types in three resources. Weights are random and differ from search to search. And what an event costs with a hundred types, by the solver that is used.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numba
import numpy as np

import slotwise
from benchmarks.growth import EVENTS, scenario
from benchmarks.simulator import row
from slotwise.compiler.whole import WholeCompiler
from slotwise.errors import InputError
from slotwise.model import integers, load_scenario
from slotwise.packing import SOLVERS, Solver, Space, make_solver
from slotwise.packing.kernels import solve, table_best

SECONDS = 0.2
TURNS = 5
MOST = 3.0  # times the cost of an event with `greedy-fill`


def servers() -> dict[str, Space]:
    """What they hold, by name."""
    table1 = load_scenario("table1")
    sizes = integers(table1.cluster, table1.types)
    rng = np.random.default_rng(1)
    return {
        "Table 1": Space.additive(sizes.demand, sizes.capacity[0]),
        "8 powers of two": Space.additive(np.array([[2**i] for i in range(8)]), np.array([128])),
        "12 types x 3 resources": Space.additive(rng.integers(10, 41, (12, 3)), np.array([100, 100, 100])),
    }


@numba.njit(nogil=True, pipeline_class=WholeCompiler)  # type: ignore[untyped-decorator]
def in_table(weights: Any, table: Any, ranks: Any, held: Any) -> int:
    """A search for each row of weights in a list of configurations."""
    found = 0
    for i in range(weights.shape[0]):
        found += table_best(weights[i], table, ranks, held)
    return found


@numba.njit(nogil=True, pipeline_class=WholeCompiler)  # type: ignore[untyped-decorator]
def by_search(weights: Any, kind: int, demand: Any, capacity: Any, ranks: Any, sf: Any, si: Any, pf: Any, pi: Any, out: Any) -> float:  # fmt: skip
    """The same, for solvers without a list."""
    found = 0.0
    for i in range(weights.shape[0]):
        found += solve(kind, weights[i], demand, capacity, ranks, sf, si, pf, pi, out)
    return found


def nanoseconds(solver: Solver) -> float:
    """Of one search, the least over some turns."""
    types = solver.space.n_types
    ranks = np.arange(types)
    scratch = np.empty(solver.scratch_f_size), np.empty(solver.scratch_i_size, np.int64)
    out = np.zeros(types, np.int64)

    def seconds(n: int) -> float:
        weights = np.random.default_rng(n).random((n, types)) * 100
        begun = time.perf_counter()
        if solver.table is not None:
            in_table(weights, solver.table, ranks, out)
        else:
            by_search(weights, solver.kind, solver.space.demand, solver.space.capacity, ranks, *scratch, solver.params_f, solver.params_i, out)  # fmt: skip
        return time.perf_counter() - begun

    seconds(1)  # compiles
    n = 1
    while (spent := seconds(n)) < SECONDS / 10 and n < 100_000:
        n *= 4
    n = max(1, min(100_000, int(n * SECONDS / max(spent, 1e-9))))
    return min(seconds(n) for _ in range(TURNS)) / n * 1e9


def run() -> list[dict[str, Any]]:
    """Rows of name, value, unit, detail."""
    rows = []
    for name, space in servers().items():
        for which in SOLVERS:
            if which == "auto":
                continue
            try:
                make_solver(which, space)  # compiles
                begun = time.perf_counter()
                solver = make_solver(which, space)
                prepared = time.perf_counter() - begun
            except InputError as refusal:
                print(refusal, file=sys.stderr)
                continue
            listed = f"{len(solver.table):,} configurations, " if solver.table is not None else ""
            detail = f"{listed}r = {solver.r:.3g}; {prepared * 1e3:,.1f} ms to prepare, once"
            rows.append(
                {"name": f"solver: {which}, {name}", "value": nanoseconds(solver), "unit": "ns", "detail": detail}
            )
    return [*rows, *with_a_hundred_types()]


def with_a_hundred_types() -> list[dict[str, Any]]:
    """An event with `auto`, which is near the best, beside one with `greedy-fill`, which is cheap and may be far from it. They take turns."""
    here, rows = scenario(100, 2, EVENTS, 1), []
    sizes = integers(here.cluster, here.types)
    r = make_solver("auto", Space.additive(sizes.demand, sizes.capacity[0])).r
    for policy in ("algorithm1", "guarded"):
        spent: dict[str, list[float]] = {"auto": [], "greedy-fill": []}
        for _ in range(1 + TURNS):
            for solver, times in spent.items():
                run = slotwise.simulate(here, policy, workers=1, solver=solver).runs[0]
                times.append(run.seconds / run.events)
        auto, cheap = (min(times[1:]) for times in spent.values())  # the first compiles
        detail = f"{auto * 1e9:.0f} and {cheap * 1e9:.0f} ns; r of auto = {r:.3g}"
        rows.append(row(f"solver: auto, {policy}, 100 types", auto / cheap, "of greedy-fill", detail, MOST, False))
    return rows


if __name__ == "__main__":
    for line in run():
        print(f"{line['name']:45} {line['value']:12,.3g} {line['unit']:4} {line['detail']}", flush=True)

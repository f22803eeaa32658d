"""Packing: what fits on a server, and the configuration of (nearly) the most weight.

    space = Space.additive(demand=[[4], [1]], capacity=[6])
    solver = make_solver("auto", space)
    configuration, weight = solver.best([3.0, 1.0])

- `space`: what fits on a server; start there. `solvers`: each solver by name, with its guarantee. `enumeration`, `hull`: all configurations that count.
- `kernels`: the same solvers for callers that are compiled themselves.

Imports compiler, errors and model.
"""

from __future__ import annotations

from slotwise.packing.enumeration import Enumeration, enumerate_feasible, enumerate_maximal
from slotwise.packing.hull import Hull, hull_vertices, thin
from slotwise.packing.solvers import SOLVERS, Solver, make_solver, stand_in
from slotwise.packing.space import Space, spaces_of

__all__ = [
    "SOLVERS",
    "Enumeration",
    "Hull",
    "Solver",
    "Space",
    "enumerate_feasible",
    "enumerate_maximal",
    "hull_vertices",
    "make_solver",
    "spaces_of",
    "stand_in",
    "thin",
]

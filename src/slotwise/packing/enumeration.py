"""Listing configurations, as far as a budget goes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import as_python
from slotwise.packing.kernels.lattice import walk
from slotwise.packing.space import Predicate, Space, broken

# By default an enumeration of additive demands looks at this many configurations, divided by types x resources.
STEPS = 80_000_000
PREDICATE_BUDGET = 300_000  # By default a predicate is called about this often.


FEW = 5_000  # steps that plain Python does before the compiler would be ready


class Enumeration(NamedTuple):
    """Configurations in lexicographic order; all of them, or (not complete) those met before the budget ran out."""

    configurations: NDArray[np.int64]
    complete: bool
    met: int
    """how many there are, or were met before the budget ran out"""


def enumerate_maximal(space: Space, budget: int | None = None, *, partial: bool = True) -> Enumeration:
    """Return the configurations in which no other extra job fits. Their convex hull, downwards, is that of all
    configurations. Without `partial`, if not all can be given, they are only counted, which is several times as
    quick."""
    return _enumerate(space, budget, maximal=True, partial=partial)


def enumerate_feasible(space: Space, budget: int | None = None) -> Enumeration:
    """Return every configuration that fits, the empty one included."""
    return _enumerate(space, budget, maximal=False, partial=True)


def _enumerate(space: Space, budget: int | None, maximal: bool, partial: bool) -> Enumeration:
    if space.predicate is not None:
        rows, complete = _climb(space.predicate, space, PREDICATE_BUDGET if budget is None else budget, maximal)
        met = len(rows)
        rows = rows if complete or partial else rows[:0]
    else:
        assert space.demand is not None
        steps = STEPS // space.demand.size if budget is None else budget
        rows, complete, met = _walk(space, steps, maximal, partial)
    return Enumeration(np.ascontiguousarray(rows[np.lexsort(rows.T[::-1])]), complete, met)


def _walk(space: Space, budget: int, maximal: bool, partial: bool) -> tuple[NDArray[np.int64], bool, int]:
    assert space.demand is not None
    assert space.capacity is not None
    types = space.fitting
    if len(types) == 0:
        return np.zeros((1, space.n_types), np.int64), True, 1
    # The smallest type last: it is never stepped, so the walk is as short as it can be.
    types = types[np.argsort(space.counts[types], kind="stable")]
    demand = np.ascontiguousarray(space.demand[types])
    count = np.zeros(len(types), np.int64)
    free = np.zeros(len(space.capacity), np.int64)
    nothing = np.zeros((0, len(types)), np.int64)
    way, few = as_python(walk), min(budget, FEW // demand.size)
    found, complete = way(demand, space.capacity, maximal, few, count, free, nothing)
    if not complete and few < budget:
        way = walk
        found, complete = way(demand, space.capacity, maximal, budget, count, free, nothing)
    rows = np.zeros((found if complete or partial else 0, len(types)), np.int64)
    if len(rows):
        way(demand, space.capacity, maximal, budget if way is walk else few, count, free, rows)
    configurations = np.zeros((len(rows), space.n_types), np.int64)
    configurations[:, types] = rows
    return configurations, complete, int(found)


def _climb(predicate: Predicate, space: Space, budget: int, maximal: bool) -> tuple[NDArray[np.int64], bool]:
    """Walk upwards from the empty server, one job at a time. Every neighbour is asked for, so that no break goes
    unseen.

    A predicate that accepts k and every k - e_j on the way, for all k it is asked, is monotone there.
    """
    start = (0,) * space.n_types
    known = {start: True}
    spent = 1

    def accepts(k: tuple[int, ...]) -> bool:
        nonlocal spent
        if k not in known:
            known[k] = bool(predicate(k))
            spent += 1
        return known[k]

    def neighbour(k: tuple[int, ...], j: int, by: int) -> tuple[int, ...]:
        return (*k[:j], k[j] + by, *k[j + 1 :])

    found: list[tuple[int, ...]] = []
    layer = [start]
    while layer:
        above: dict[tuple[int, ...], None] = {}
        for k in layer:
            if spent >= budget:
                return np.array(found, np.int64).reshape(-1, space.n_types), False
            for j in range(space.n_types):
                if k[j] > 0 and not accepts(neighbour(k, j, -1)):
                    raise broken(neighbour(k, j, -1), k)
            ups = [up for up in (neighbour(k, j, 1) for j in range(space.n_types)) if accepts(up)]
            above.update(dict.fromkeys(ups))
            if not maximal or not ups:
                found.append(k)
        layer = list(above)
    return np.array(found, np.int64).reshape(-1, space.n_types), True

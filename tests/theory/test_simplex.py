"""The linear program that goes on where it stood, against SciPy's HiGHS, which begins anew each time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from slotwise.region.simplex import Program

Floats = NDArray[np.float64]


def instance(rng: np.random.Generator) -> tuple[NDArray[np.int64], Floats, Floats]:
    """(class of each column, what it carries, direction), with many ties, as in real tables."""
    J, C = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    n = C * int(rng.integers(J, 40))
    owner = np.concatenate([np.arange(C), rng.integers(0, C, n - C)])
    rows = rng.integers(0, 6, (n, J)) * rng.uniform(0.5, 2, C)[owner][:, None]
    rows[:J] += np.eye(J)
    direction = rng.dirichlet(np.ones(J))
    direction[rng.uniform(size=J) < 0.2] = 0
    if not direction.any():
        direction[0] = 1.0
    return owner, rows, direction


def largest(owner: NDArray[np.int64], rows: Floats, base: Floats, direction: Floats) -> float:
    n = len(rows)
    classes = np.unique(owner)
    answer = linprog(
        [*np.zeros(n), -1.0],
        A_ub=np.hstack([-rows.T, direction[:, None]]),
        b_ub=-base,
        A_eq=np.hstack([(owner == classes[:, None]).astype(float), np.zeros((len(classes), 1))]),
        b_eq=np.ones(len(classes)),
    )
    return float(-answer.fun)


def holds(program: Program, owner: NDArray[np.int64], rows: Floats, base: Floats, direction: Floats) -> None:
    """Its shares carry the best step, and its prices show that there is no better one."""
    best = largest(owner, rows, base, direction)
    x, prices = program.shares, program.prices
    assert (x >= 0).all()
    assert [x[owner == c].sum() for c in np.unique(owner)] == pytest.approx(np.ones(len(np.unique(owner))))
    assert (x @ rows - base >= best * direction - 1e-9).all()
    worth = sum(np.max(rows[owner == c] @ prices) for c in np.unique(owner))
    assert (worth - prices @ base) / (prices @ direction) == pytest.approx(best, rel=1e-8, abs=1e-9)
    assert program.value == pytest.approx(best, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_equal_to_highs_while_columns_come_in(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner, rows, direction = instance(rng)
    n, J = rows.shape
    program = Program(direction, int(owner.max()) + 1)
    first = int(max(owner.max() + 1, J)) + int(rng.integers(0, 5))
    added = 0
    for n_now in sorted({min(first, n), *(int(i) for i in rng.integers(min(first, n), n + 1, 3)), n}):
        for i in range(added, n_now):
            program.add(rows[i], int(owner[i]))
        added = n_now
        assert program.solve()
        holds(program, owner[:n_now], rows[:n_now], np.zeros(J), direction)


@pytest.mark.parametrize("seed", range(40))
def test_what_fits_beside_a_load_begins_where_the_load_was_found_to_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner, rows, direction = instance(rng)
    J = rows.shape[1]
    load = direction * largest(owner, rows, np.zeros(J), direction) * rng.uniform(0.3, 1.0)
    program = Program(load, int(owner.max()) + 1)
    for c, row in zip(owner, rows, strict=True):
        program.add(row, int(c))
    assert program.solve()
    for j in range(J):
        other = program.beside(j)
        assert other.solve()
        holds(other, owner, rows, load, np.eye(J)[j])
    holds(program, owner, rows, np.zeros(J), load)  # which was not touched


def test_a_goal_without_limit_and_a_basis_that_is_none_are_said() -> None:
    endless = Program(np.zeros(1), 1)
    endless.add(np.ones(1), 0)
    assert not endless.solve()
    broken = Program(np.ones(1), 1)
    assert not broken.solve()  # no configuration of its only class: no basis

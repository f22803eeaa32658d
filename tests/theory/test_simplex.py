"""The small linear program, against SciPy's HiGHS."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from slotwise.region.simplex import MOST_COLUMNS, solve


@pytest.mark.parametrize("seed", range(60))
def test_equal_to_highs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    J, C = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    n = C * int(rng.integers(J, 40))
    owner = np.sort(np.concatenate([np.arange(C), rng.integers(0, C, n - C)]))
    rows = rng.integers(0, 6, (n, J)) * rng.uniform(0.5, 2, C)[owner][:, None]  # many ties, as in real tables
    rows[:J] += np.eye(J)
    direction = rng.dirichlet(np.ones(J))
    direction[rng.uniform(size=J) < 0.2] = 0
    if not direction.any():
        direction[0] = 1.0
    found = solve(owner, rows, direction)
    assert found is not None
    x, prices = found
    assert (x >= 0).all()
    assert [x[owner == c].sum() for c in range(C)] == pytest.approx(np.ones(C))
    answer = linprog(
        [*np.zeros(n), -1.0],
        A_ub=np.hstack([-rows.T, direction[:, None]]),
        b_ub=np.zeros(J),
        A_eq=np.hstack([(owner == np.arange(C)[:, None]).astype(float), np.zeros((C, 1))]),
        b_eq=np.ones(C),
    )
    along = direction > 0
    assert np.min((x @ rows)[along] / direction[along]) == pytest.approx(-answer.fun, rel=1e-9)
    worth = sum(np.max(rows[owner == c] @ prices) for c in range(C))
    assert worth / (prices @ direction) == pytest.approx(-answer.fun, rel=1e-9)


def test_large_programs_are_left_to_highs() -> None:
    assert solve(np.zeros(MOST_COLUMNS + 1, np.int64), np.ones((MOST_COLUMNS + 1, 1)), np.ones(1)) is None

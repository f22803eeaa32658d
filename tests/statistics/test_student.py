"""Student's law in closed form, against SciPy."""

from __future__ import annotations

import pytest
from scipy.special import stdtr, stdtrit

from slotwise.simulation.judge.student import half_width, within

DEGREES = [1, 2, 3, 4, 5, 6, 7, 30, 31, 999, 1000]


@pytest.mark.parametrize("n", DEGREES)
def test_tails_and_half_widths(n: int) -> None:
    for t in (0.0, 0.1, 0.5, 1.0, 3.0, 40.0):
        assert within(t, n) == pytest.approx(1 - 2 * stdtr(n, -t), rel=1e-9, abs=1e-13)
    for level in (0.1, 0.5, 0.9, 0.95, 0.99, 0.9999):
        assert half_width(level, n) == pytest.approx(stdtrit(n, 0.5 + level / 2), rel=1e-9)
        assert within(half_width(level, n), n) == pytest.approx(level, rel=1e-12)


def test_far_out_nothing_is_left() -> None:
    assert within(1e30, 6) == 1.0

"""Erlang's formulas against their definitions, an independent form for many servers, and known special cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from slotwise.errors import InputError
from slotwise.theory.erlang import (
    erlang_b,
    erlang_c,
    mean_queue,
    mean_wait,
    wait_quantile,
)


@pytest.mark.core
@pytest.mark.parametrize(("n", "a"), [(0, 2.0), (1, 0.3), (5, 4.0), (20, 31.5), (60, 50.0), (7, 0.0)])
def test_loss_is_the_defining_sum(n: int, a: float) -> None:
    terms = [a**k / math.factorial(k) for k in range(n + 1)]
    assert erlang_b(n, a) == pytest.approx(terms[-1] / math.fsum(terms), rel=1e-13)


@pytest.mark.parametrize(("n", "a"), [(3, 2.0), (10, 9.5), (40, 30.0)])
def test_waiting_is_the_defining_sum(n: int, a: float) -> None:
    head = math.fsum(a**k / math.factorial(k) for k in range(n))
    tail = a**n / math.factorial(n) * n / (n - a)
    assert erlang_c(n, a) == pytest.approx(tail / (head + tail), rel=1e-13)


@pytest.mark.parametrize("slack", [-2000, -10, 0, 10, 1500, 4000])
def test_a_million_servers(slack: int) -> None:
    n = 1_000_000
    a = float(n - slack)
    independent = stats.poisson.pmf(n, a) / stats.poisson.cdf(n, a)
    assert erlang_b(n, a) == pytest.approx(float(independent), rel=1e-7)


def test_a_million_servers_follow_the_square_root_rule() -> None:
    # Halfin and Whitt: n = a + c sqrt(a) gives P(wait) -> 1 / (1 + c Phi(c) / phi(c)).
    a, c = 1e6, 1.0
    limit = 1 / (1 + c * stats.norm.cdf(c) / stats.norm.pdf(c))
    assert erlang_c(round(a + c * math.sqrt(a)), a) == pytest.approx(float(limit), rel=2e-3)


def test_one_server_and_overload() -> None:
    assert mean_queue(1, 0.8) == pytest.approx(0.8**2 / 0.2)
    assert mean_queue(5, 5.0) == math.inf
    assert erlang_c(5, 6.0) == 1
    assert wait_quantile(2, 3.0, 1.0, 0.5) == math.inf


def test_table1_values() -> None:
    found = [mean_queue(100, 100 * zeta) for zeta in (0.80, 0.85, 0.89, 0.90, 0.95)]
    assert [round(value, 3) for value in found] == [0.079, 0.424, 1.446, 1.952, 9.623]


def test_quantiles_invert_the_tail() -> None:
    n, rate, mean = 12, 5.5, 2.0
    waits = erlang_c(n, rate * mean)
    for p in (0.2, 0.6, 0.95, 0.99):
        t = wait_quantile(n, rate, mean, p)
        if p <= 1 - waits:
            assert t == 0
        else:
            assert waits * math.exp(-(n / mean - rate) * t) == pytest.approx(1 - p)
    # and the mean wait is the integral of the quantile function
    grid = (np.arange(20_000) + 0.5) / 20_000
    integral = np.mean([wait_quantile(n, rate, mean, float(p)) for p in grid[::20]])
    assert integral == pytest.approx(mean_wait(n, rate, mean), rel=0.01)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="finite load"):
        erlang_b(3, math.nan)
    with pytest.raises(InputError, match="quantile"):
        wait_quantile(3, 1.0, 1.0, 1.0)

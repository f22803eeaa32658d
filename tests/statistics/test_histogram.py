"""The histogram's bins and the quantiles read from them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.simulation.measure.histogram import BINS, EDGES, bin_of, quantiles

PLAIN = getattr(bin_of, "py_func", bin_of)


def counted(values: np.ndarray) -> np.ndarray:
    return np.bincount([bin_of(float(x)) for x in values], minlength=BINS)


def test_layout() -> None:
    assert len(EDGES) == BINS + 1
    assert EDGES[2] <= 1e-9
    assert EDGES[-2] >= 1e12
    inner = EDGES[2:-1]
    assert (np.diff(inner) > 0).all()
    assert (np.diff(inner) / inner[:-1]).max() < 0.01


@pytest.mark.core
def test_every_edge_starts_its_bin() -> None:
    for i in range(2, BINS):
        assert bin_of(EDGES[i]) == i
        assert bin_of(np.nextafter(EDGES[i], 0)) == i - 1
    assert bin_of(0.0) == 0
    assert bin_of(-1.0) == 0
    assert bin_of(5e-324) == 1
    assert bin_of(math.inf) == BINS - 1


@pytest.mark.core
@settings(max_examples=300, derandomize=True, deadline=None)
@given(x=st.floats(min_value=0, max_value=1e13))
def test_a_value_lies_in_its_bin(x: float) -> None:
    i = bin_of(x)
    assert EDGES[i] <= x
    assert x < EDGES[i + 1] or i == x == 0
    assert PLAIN(x) == i, "compiled and plain agree"


@pytest.mark.parametrize("n", [1, 2, 10, 999, 5000])
def test_quantiles_against_numpy(n: int) -> None:
    """Within 1 % of the order statistic, zeros exact, over twenty decades."""
    rng = np.random.default_rng(n)
    x = np.where(rng.random(n) < 0.3, 0.0, 10 ** rng.uniform(-8.9, 11.9, n))
    probs = [0.0, 0.01, 0.25, 0.5, 0.95, 0.99, 1.0]
    exact = np.quantile(x, probs, method="inverted_cdf")
    assert quantiles(counted(x), EDGES, probs) == pytest.approx(exact, rel=0.01, abs=0)


def test_interpolation_within_a_bin() -> None:
    """A thousand values spread evenly over one bin: the median is its middle, far closer than the bin's width."""
    low, high = EDGES[5000], EDGES[5001]
    x = np.linspace(low, high, 1000, endpoint=False)
    (median,) = quantiles(counted(x), EDGES, [0.5])
    assert median == pytest.approx((low + high) / 2, rel=1e-5)


def test_ends() -> None:
    assert quantiles(np.zeros(BINS, dtype=np.int64), EDGES, [0.5, 0.9]) == [None, None]
    beyond = counted(np.array([1e13, 2e13]))
    assert quantiles(beyond, EDGES, [0.5]) == [2.0**40]
    (found,) = quantiles(beyond, EDGES, [1.0], largest=2e13)
    assert found is not None
    assert 2.0**40 < found <= 2e13
    (found,) = quantiles(counted(np.array([1.0001])), EDGES, [0.5], largest=1.0001)
    assert found is not None
    assert found <= 1.0001, "never above the largest value seen"
    with pytest.raises(ValueError, match="not a probability"):
        quantiles(beyond, EDGES, [1.5])

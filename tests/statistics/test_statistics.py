"""Intervals, truncation, batch means and moments, against SciPy, naive code and known coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats

from slotwise.simulation.judge.statistics import (
    Moments,
    batch_means,
    merged,
    moments,
    mser5,
    paired_difference,
    student_interval,
)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("n", [2, 5, 40])
def test_student_against_scipy(n: int, level: float) -> None:
    values = np.random.default_rng(n).normal(3, 2, n)
    found = student_interval(values, level)
    low, high = stats.t.interval(level, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert found == pytest.approx((values.mean(), low, high))
    assert found.half_width == pytest.approx((high - low) / 2)


def test_one_value_has_no_interval() -> None:
    assert student_interval([4.0]) == (4.0, None, None)
    assert student_interval([4.0]).half_width is None
    assert student_interval([4.0, 4.0]) == (4.0, 4.0, 4.0)
    with pytest.raises(ValueError, match="one or more"):
        student_interval([])


def test_paired_differences_are_tight() -> None:
    """What both runs share drops out: as SciPy's paired t-test, and far narrower than the runs' own intervals."""
    rng = np.random.default_rng(1)
    shared = rng.normal(50, 10, 8)
    first, second = shared + rng.normal(1, 0.1, 8), shared + rng.normal(0, 0.1, 8)
    found = paired_difference(first, second)
    exact = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    own = student_interval(first).half_width
    assert found.half_width is not None
    assert own is not None
    assert found.half_width < own / 20
    with pytest.raises(ValueError, match="pairs"):
        paired_difference([1.0], [1.0, 2.0])


def naive_mser5(series: list[float]) -> int:
    means = [sum(series[i : i + 5]) / 5 for i in range(0, len(series) - 4, 5)]
    n = len(means)
    if n < 2:
        return 0
    best, best_d = math.inf, 0
    for d in range(n // 2 + 1):
        rest = means[d:]
        mean = math.fsum(rest) / len(rest)
        value = math.fsum((y - mean) ** 2 for y in rest) / len(rest) ** 2
        if value < best:
            best, best_d = value, d
    return 5 * best_d


@pytest.mark.parametrize("n", [1, 9, 10, 14, 57, 300, 1001])
@pytest.mark.parametrize("seed", range(5))
def test_mser5_against_naive(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = rng.normal(1e3, 1, n) - 20 * np.exp(-np.arange(n) / (5 + 10 * seed))
    assert mser5(series) == naive_mser5(series.tolist())


def test_mser5_finds_the_warmup() -> None:
    rng = np.random.default_rng(2)
    flat = rng.normal(0, 1, 2000)
    ramp = np.concatenate((np.linspace(-10, 0, 400), np.zeros(1600)))
    assert 300 <= mser5(flat + ramp) <= 450
    assert mser5(np.ones(100)) == 0
    assert mser5(np.arange(1000.0)) == 500, "a series that never settles loses its first half, no more"


def ar1(rng: np.random.Generator, phi: float, n: int) -> np.ndarray:
    """Stationary, mean 0."""
    noise = rng.standard_normal(n)
    noise[0] /= math.sqrt(1 - phi**2)
    return signal.lfilter([1.0], [1.0, -phi], noise)


@pytest.mark.parametrize(("phi", "n"), [(0.0, 640), (0.9, 5000), (0.98, 10_000)])
def test_batch_means_cover(phi: float, n: int) -> None:
    """95 % intervals hold the mean in 91 % to 99 % of 400 runs (a binomial's 4 standard deviations at .95), even if the
    values themselves are strongly correlated. Student's interval on the raw values would not: it holds the mean in a
    third at .9."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        found = batch_means(ar1(rng, phi, n)).interval
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0 <= found.high
    assert 0.91 * 400 <= held <= 0.99 * 400


def test_batch_means_join_correlated_batches() -> None:
    rng = np.random.default_rng(4)
    calm = batch_means(rng.standard_normal(3200))
    assert (calm.batches, calm.independent) == (32, True)
    walk = batch_means(np.cumsum(rng.standard_normal(3200)))
    assert (walk.batches, walk.independent) == (8, False)
    assert walk.lag1 > 0.5
    assert batch_means(np.ones(64)).interval == (1, 1, 1)
    series = rng.standard_normal(1003)
    assert batch_means(series, batches=10).interval.mean == pytest.approx(series[3:].mean())
    with pytest.raises(ValueError, match="3 values"):
        batch_means([1.0, 2.0, 3.0])


values = st.lists(st.floats(-1e3, 1e3), max_size=20)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(parts=st.lists(values, max_size=6))
def test_merged_moments(parts: list[list[float]]) -> None:
    """Merging is the same as taking all values at once."""
    together = [x for part in parts for x in part]
    found = merged(moments(part) for part in parts)
    assert found.count == len(together)
    if together:
        assert found.mean == pytest.approx(np.mean(together), abs=1e-9)
        assert found.m2 / found.count == pytest.approx(np.var(together), rel=1e-9, abs=1e-7)
    else:
        assert found == Moments(0, 0.0, 0.0)


def test_merging_keeps_small_variances_at_large_means() -> None:
    rng = np.random.default_rng(5)
    parts = [1e9 + rng.standard_normal(1000) for _ in range(50)]
    found = merged(map(moments, parts))
    assert found.m2 / found.count == pytest.approx(np.var(np.concatenate(parts)), rel=1e-6)

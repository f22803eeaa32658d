"""Intervals that respect zero, with their coverage where the truth is known; waits of jobs that still wait."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slotwise.model import parse_scenario
from slotwise.simulation.judge.intervals import mean_interval, quantile_interval
from slotwise.simulation.measure.histogram import EDGES, bin_of, censored_mean, censored_quantiles, with_waiting
from slotwise.simulation.simulate import simulate
from slotwise.theory import erlang


def histogram(values: np.ndarray) -> np.ndarray:
    return np.bincount([bin_of(float(x)) for x in values], minlength=len(EDGES) - 1)


def test_the_mean_of_skewed_values_is_covered_and_never_below_zero() -> None:
    """Means of ten gamma variables each: 95 % of 1000 intervals hold 1, within 4 binomial standard deviations."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(1000):
        found = mean_interval(list(rng.gamma(4.0, 0.25, 10)))
        assert found.low is not None
        assert found.high is not None
        assert 0 < found.low < found.mean < found.high
        held += found.low <= 1.0 <= found.high
    assert 920 <= held <= 980
    assert mean_interval([3.0]) == (3.0, None, None)
    assert mean_interval([0.0, 0.0]) == (0.0, 0.0, 0.0)
    assert mean_interval([math.inf, 1.0]) == (math.inf, math.inf, math.inf)


def test_quantiles_of_waits_with_zeros_are_covered() -> None:
    """A wait is 0 with probability 1 - c, else exponential; c = .5 and c = .06, where p95 is near the mass at zero."""
    rng = np.random.default_rng(4)
    for share in (0.5, 0.06):
        true = -math.log(0.05 / share)
        held = 0
        for _ in range(150):
            runs = [
                histogram(rng.exponential(1.0, 2000) * (rng.random(2000) < share * rng.uniform(0.8, 1.2)))
                for _ in range(8)
            ]
            low, high = quantile_interval(runs, [np.zeros_like(run) for run in runs], 0.95)
            assert low is not None
            assert high is not None
            assert 0 <= low <= high
            held += low <= true * 1.008 and true <= high * 1.008
        assert held >= 134  # 95 % less 4 standard deviations
    assert quantile_interval(runs[:1], runs[:1], 0.95) == (None, None)


def test_who_still_waits_is_not_left_out() -> None:
    """Exponential waits, cut off at random times: the censored figures find the law again; leaving them out does not."""
    rng = np.random.default_rng(5)
    wait, cut = rng.exponential(1.0, 40_000), rng.uniform(0, 6.0, 40_000)
    ended, unended = histogram(wait[wait <= cut]), histogram(cut[wait > cut])
    largest = float(np.minimum(wait, cut).max())
    p50, p95 = censored_quantiles(ended, unended, [0.5, 0.95], largest)
    assert p50 == pytest.approx(math.log(2), rel=0.03)
    assert p95 == pytest.approx(math.log(20), rel=0.05)
    assert censored_mean(ended, unended, largest) == pytest.approx(1.0, rel=0.03)
    assert wait[wait <= cut].mean() < 0.9
    assert with_waiting(ended, np.zeros_like(unended)) == pytest.approx(ended)


def test_what_is_not_known_yet_is_infinite() -> None:
    ended, unended = histogram(np.zeros(50)), histogram(np.full(50, 7.0))
    assert censored_quantiles(ended, unended, [0.4, 0.95], 7.0) == [pytest.approx(0.0, abs=1e-9), math.inf]
    assert censored_mean(ended, unended, 7.0) == pytest.approx(3.5)


@pytest.mark.parametrize(("servers", "load"), [(20, 0.4), (20, 0.5), (10, 0.3)])
def test_a_queue_of_which_little_is_seen_is_covered(servers: int, load: float) -> None:
    """Nearly no job waits, so most runs see none of the rare long waits that make up the mean."""
    cluster = {"resources": ["r"], "servers": [{"name": "s", "count": servers, "capacity": [1]}]}
    types = [{"name": "job", "demand": [1], "rate": load * servers, "mean_service": 1.0}]
    true = erlang.mean_wait(servers, load * servers, 1.0) * load * servers
    held = 0
    for seed in range(40):
        run = {"events": 5_000, "replications": 4, "seed": seed}
        found = simulate(parse_scenario({"cluster": cluster, "types": types, "run": run}), "fifo", workers=1)
        low, high = found.mean_queue.low, found.mean_queue.high
        assert low is not None
        assert high is not None
        held += low <= true <= high
    assert held >= 36

"""The verdict on drift, with its error rates over many seeds.

M/M/1 as its jump chain: a step up with probability rho / (1 + rho), else down, reflected at 0. The number of runs
called unstable is compared with bounds that leave 4 binomial standard deviations to the rates stated in the module.
"""

from __future__ import annotations

import numpy as np
import pytest

from slotwise.simulation.drift import Drift, stable

SAMPLES = 480


def reflected(steps: np.ndarray) -> np.ndarray:
    """Queue sizes at SAMPLES equally spaced steps (Lindley: the walk above its running minimum)."""
    walk = np.cumsum(steps)
    queue = walk - np.minimum(np.minimum.accumulate(walk), 0)
    every = len(queue) // SAMPLES
    return queue[every - 1 :: every][:SAMPLES].astype(float)


def mm1(rng: np.random.Generator, rho: float, arrivals: int) -> np.ndarray:
    n = int(arrivals * (1 + rho) / rho)
    return reflected(np.where(rng.random(n, dtype=np.float32) < rho / (1 + rho), 1, -1))


def unstable(rho: float, arrivals: int, replications: int, sets: int) -> int:
    rng = np.random.default_rng(round(1000 * rho) + arrivals + replications)
    return sum(not stable([mm1(rng, rho, arrivals) for _ in range(replications)]).stable for _ in range(sets))


def test_stable_queues_are_stable() -> None:
    assert unstable(0.5, 20_000, 1, 200) <= 1
    assert unstable(0.95, 20_000, 1, 300) <= 4  # .002 stated
    assert unstable(0.95, 100_000, 1, 100) <= 2  # .001 stated
    assert unstable(0.95, 20_000, 5, 60) <= 5  # .017 stated


def test_growth_by_two_per_cent_of_the_arrivals_is_not() -> None:
    assert unstable(1 / 0.98, 100_000, 1, 100) >= 90  # .971 stated
    assert unstable(1 / 0.98, 50_000, 5, 30) == 30
    assert unstable(1 / 0.9, 20_000, 1, 100) == 100


def test_no_drift_is_the_border() -> None:
    """At load 1 the verdict is open: neither always nor never."""
    assert 5 <= unstable(1.0, 20_000, 1, 100) <= 45  # .196 stated


def test_p_values_are_honest() -> None:
    """Without drift, noise of short memory has p < .05 in 5 % of 1000 series: 22 to 78 by 4 standard deviations."""
    rng = np.random.default_rng(8)
    small = sum(stable([100 + rng.standard_normal(SAMPLES)]).p_value < 0.05 for _ in range(1000))
    assert 22 <= small <= 78


@pytest.mark.parametrize("aligned", [True, False])
def test_sawtooths_are_stable(aligned: bool) -> None:
    """Periods up to a fifth of the run at any phase, replications in step or not."""
    t = np.arange(SAMPLES) / SAMPLES
    rng = np.random.default_rng(9)
    for period in np.linspace(0.01, 0.2, 20):
        for phase in np.linspace(0, 1, 10, endpoint=False):
            shifts = [phase] * 3 if aligned else [phase, *rng.random(2)]
            series = [100 * ((t / period + shift) % 1) + 3 * rng.random(SAMPLES) for shift in shifts]
            assert stable(series).stable, (period, phase)


def test_growing_sawtooth_is_unstable() -> None:
    t = np.arange(SAMPLES) / SAMPLES
    found = stable([1000 * t + 100 * ((t / 0.07) % 1)])
    assert not found.stable
    assert found.slope == pytest.approx(1000 / SAMPLES, rel=0.1)


def test_bursts_are_stable() -> None:
    """Batches of infinite variance at load .8, and a rate that swings between .7 and 1.3 times the capacity."""
    rng = np.random.default_rng(10)
    wrong = 0
    for _ in range(100):
        size = np.floor(4 * (1 + rng.pareto(1.8, 60_000)))
        up = rng.random(60_000) < 0.8 / (0.8 + size.mean())
        wrong += not stable([reflected(np.where(up, size, -1.0))]).stable
    assert wrong <= 3
    wrong = 0
    for _ in range(100):
        spells = rng.exponential(np.tile([2000.0, 500.0], 60)).astype(int)
        rate = np.repeat(np.tile([0.7, 1.3], 60), spells)
        wrong += not stable([reflected(np.where(rng.random(len(rate)) < rate / (1 + rate), 1, -1))]).stable
    assert wrong <= 3


def test_exact_lines() -> None:
    line = np.arange(960) / 20
    found = stable([line, line[:480] * 2])
    assert not found.stable
    assert found.slope == pytest.approx((1 / 20 + 1 / 10) / 2, rel=0.1)
    assert found.p_value < 1e-9
    assert found.rise == pytest.approx(2 / 3, rel=0.05)
    for calm in (np.zeros(100), np.full(100, 0.1), line[::-1], np.full(100, 1e9)):
        assert stable([calm]).stable
    assert stable([np.arange(960) / 1000]).stable, "less than one job more"
    assert stable([1000 + np.arange(960) / 20]).stable, "a few per cent more"


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match="48 samples"):
        stable([np.zeros(47)])
    with pytest.raises(ValueError, match="one or more"):
        stable([])
    assert isinstance(stable([np.zeros(48)]), Drift)

"""The verdict on drift, with its error rates over many seeds.

M/M/1 as its jump chain: a step up with probability rho / (1 + rho), else down, reflected at 0.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from slotwise.simulation.judge.drift import GROWTH_OF_TYPE, Stability, drift, least_samples

SAMPLES = 480
STABLE, GROWS, TOO_SHORT = Stability.STABLE, Stability.GROWS, Stability.TOO_SHORT


def reflected(steps: np.ndarray) -> np.ndarray:
    """Queue sizes at SAMPLES equally spaced steps (Lindley: the walk above its running minimum), less a quarter of warm-up."""
    walk = np.cumsum(steps)
    queue = walk - np.minimum(np.minimum.accumulate(walk), 0)
    every = len(queue) // SAMPLES
    return queue[every - 1 :: every][SAMPLES // 4 : SAMPLES].astype(float)


def mm1(rng: np.random.Generator, rho: float, arrivals: int) -> np.ndarray:
    n = int(arrivals * (1 + rho) / rho)
    return reflected(np.where(rng.random(n, dtype=np.float32) < rho / (1 + rho), 1, -1))


def verdicts(rho: float, arrivals: int, replications: int, sets: int) -> Counter[Stability]:
    rng = np.random.default_rng(round(1000 * rho) + arrivals + replications)
    return Counter(drift([mm1(rng, rho, arrivals) for _ in range(replications)]).stability() for _ in range(sets))


@pytest.mark.parametrize("replications", [1, 5])
def test_stable_queues_never_grow_and_long_runs_say_so(replications: int) -> None:
    for rho, arrivals in ((0.5, 20_000), (0.95, 20_000), (0.98, 50_000)):
        found = verdicts(rho, arrivals, replications, 40)
        assert found[GROWS] == 0
        if replications == 5 and rho < 0.98:
            assert found[STABLE] >= 38


def test_growth_by_two_per_cent_of_the_arrivals_is_seen() -> None:
    assert verdicts(1 / 0.98, 100_000, 5, 25)[GROWS] == 25
    assert verdicts(1 / 0.9, 20_000, 1, 40)[GROWS] == 40
    assert verdicts(1 / 0.98, 20_000, 5, 40)[STABLE] == 0


def test_without_a_drift_nothing_can_be_said() -> None:
    """At load 1 the queue is neither stable nor does it grow in proportion to time."""
    for replications in (1, 5):
        assert verdicts(1.0, 20_000, replications, 60)[TOO_SHORT] >= 57


@pytest.mark.parametrize("aligned", [True, False])
def test_sawtooths_do_not_grow(aligned: bool) -> None:
    """Periods up to a fifth of the run at any phase, replications in step or not."""
    t = np.arange(SAMPLES) / SAMPLES
    rng = np.random.default_rng(9)
    for period in np.linspace(0.01, 0.2, 20):
        for phase in np.linspace(0, 1, 10, endpoint=False):
            shifts = [phase] * 3 if aligned else [phase, *rng.random(2)]
            series = [100 * ((t / period + shift) % 1) + 3 * rng.random(SAMPLES) for shift in shifts]
            assert drift(series).stability(GROWTH_OF_TYPE) is not GROWS, (period, phase)


def test_growing_sawtooth_grows() -> None:
    t = np.arange(SAMPLES) / SAMPLES
    found = drift([1000 * t + 40 * ((t / 0.07) % 1) for _ in range(5)])
    assert found.stability() is GROWS
    assert found.slope == pytest.approx(1000 / SAMPLES, rel=0.1)


def test_bursts_do_not_grow() -> None:
    """Batches of infinite variance at load .8, and a rate that swings between .7 and 1.3 times the capacity."""
    rng = np.random.default_rng(10)
    wrong = 0
    for _ in range(100):
        size = np.floor(4 * (1 + rng.pareto(1.8, 60_000)))
        up = rng.random(60_000) < 0.8 / (0.8 + size.mean())
        wrong += drift([reflected(np.where(up, size, -1.0))]).stability() is GROWS
    for _ in range(100):
        spells = rng.exponential(np.tile([2000.0, 500.0], 60)).astype(int)
        rate = np.repeat(np.tile([0.7, 1.3], 60), spells)
        up = rng.random(len(rate)) < rate / (1 + rate)
        wrong += drift([reflected(np.where(up, 1, -1))]).stability() is GROWS
    assert wrong <= 2


def test_exact_lines() -> None:
    line = np.arange(960) / 20
    found = drift([line, line])
    assert found.stability() is GROWS
    assert found.slope == pytest.approx(1 / 20, rel=0.01)
    assert found.rise == pytest.approx(4 / 3, rel=0.05)
    assert found.wander == pytest.approx(144, rel=0.05)
    for calm in (np.zeros(500), np.full(500, 0.1), np.full(500, 1e9)):
        assert drift([calm]).stability() is STABLE
    assert drift([line[::-1]]).stability() is TOO_SHORT, "it is still falling"
    assert drift([np.arange(960) / 2000]).stability() is not GROWS, "less than one job more"
    assert drift([1000 + np.arange(960) / 20]).stability() is not GROWS, "a few per cent more"


def test_few_samples_tell_nothing() -> None:
    assert drift([np.zeros(least_samples(1) - 1)]).stability() is TOO_SHORT
    assert drift([np.zeros(least_samples(5))] * 5).stability() is STABLE
    with pytest.raises(ValueError, match="one or more"):
        drift([])

"""Rates that change: the clock and its inverse, counts that are Poisson with the right mean, and M/M/inf as theory has it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.random import SeedSequence
from scipy import stats

from slotwise.display.numbers import number
from slotwise.errors import InputError
from slotwise.model import RateProfile, parse_scenario
from slotwise.report.comparison import comparison_page
from slotwise.simulation.result import Comparison
from slotwise.simulation.simulate import simulate
from slotwise.theory.capacity import assess
from slotwise.workloads.laws import child
from slotwise.workloads.source import open_source
from slotwise.workloads.timechange import RateRhythm, in_service, steps_of

STEPS = (0.0, 0.4, 1.7, 2.6, 1.1, 0.0, 0.9)
LENGTHS = (2.0, 1.0, 0.5, 3.0, 0.25, 1.0, 2.25)
RHYTHM = RateRhythm.of(RateProfile(period=10.0, rates=STEPS, lengths=LENGTHS), None)


def scenario(**more: object) -> object:
    tables = {
        "time_unit": "h",
        "cluster": {"resources": ["cpu"], "servers": [{"name": "n", "count": 60, "capacity": [1]}]},
        "types": [{"name": "a", "demand": [1], "rate": 12, "mean_service": 1.5}],
        "workload": {"profile": {"period": "day", "rates": [0.2, 0.5, 1.6, 1.7]}},
    }
    return parse_scenario(tables | more)


def test_the_mean_is_one_and_the_steps_are_as_given() -> None:
    lengths = np.diff(RHYTHM.start)
    assert lengths == pytest.approx(LENGTHS)
    assert RHYTHM.rate @ lengths / RHYTHM.period == pytest.approx(1.0, rel=1e-14)
    given = np.array(STEPS) @ lengths / 10
    assert RHYTHM.rate == pytest.approx(np.array(STEPS) / given)
    assert RHYTHM.at(np.array([0.0, 2.0, 3.2, 12.0])) == pytest.approx(RHYTHM.rate[[0, 1, 2, 1]])


def test_the_clock_and_its_inverse() -> None:
    shown = np.sort(np.random.default_rng(1).uniform(0, 500, 20_000))
    when = RHYTHM.when(shown)
    assert (np.diff(when) >= 0).all()
    assert RHYTHM.passed(when) == pytest.approx(shown, rel=1e-12, abs=1e-12)
    assert (RHYTHM.at(when) > 0).all()


@pytest.mark.parametrize("shown", [0.0, 10.0, 20.0, 1e9, 1e15])
def test_whole_periods_are_not_lost_in_rounding(shown: float) -> None:
    (when,) = RHYTHM.when(np.array([shown]))
    assert when == pytest.approx(shown + 2.0 if shown % 10 == 0 else when, rel=1e-15, abs=1e-9)
    assert abs(when - shown) <= 10.0


def test_the_stream_does_not_depend_on_the_chunks() -> None:
    made = scenario()
    whole = open_source(made, np.array([12.0]), SeedSequence(3)).next(5000)
    source = open_source(made, np.array([12.0]), SeedSequence(3))
    parts = [source.next(n) for n in (1, 7, 500, 4492)]
    assert np.array_equal(np.concatenate([part.time for part in parts]), whole.time)
    assert np.array_equal(np.concatenate([part.duration for part in parts]), whole.duration)


def test_counts_are_poisson_with_the_right_mean() -> None:
    """Chi-squared over the counts of each hour of the day, 2,000 days; dispersion 1 within each hour."""
    made, days = scenario(), 2_000
    times = open_source(made, np.array([12.0]), SeedSequence(5)).next(700_000).time
    times = times[times < 24 * days]
    counts = np.bincount(times.astype(np.int64), minlength=24 * days).reshape(days, 24)
    expected = 12 * RateRhythm.of(made.workload.profile, "h").at(np.arange(24) + 0.5)
    assert expected.mean() == pytest.approx(12)
    z = (counts.mean(axis=0) - expected) / np.sqrt(expected / days)
    assert stats.chi2.sf(float(z @ z), 24) > 1e-3
    dispersion = counts.var(axis=0, ddof=1) / counts.mean(axis=0)
    assert np.abs(dispersion - 1).max() < 5 * np.sqrt(2 / days)
    neighbours = np.corrcoef(counts[:, 11], counts[:, 12])[0, 1]
    assert abs(neighbours) < 4 / np.sqrt(days)


@pytest.mark.parametrize(
    ("law", "spread"),
    [({"law": "poisson"}, 1.0), ({"law": "lognormal", "sigma": 0.5}, 0.533), ({"law": "deterministic"}, 0.0)],
)
def test_on_the_changed_clock_the_process_is_the_one_of_constant_rate(
    law: dict[str, object], spread: float
) -> None:
    """Gaps on the clock M are independent with mean 1 / rate and the law's own spread; and they are the very gaps without a profile."""
    profile = {"period": "day", "rates": [0.2, 0.5, 1.6, 1.7]}
    made = scenario(workload={"arrivals": law, "profile": profile})
    times = open_source(made, np.array([12.0]), SeedSequence(7)).next(100_000).time
    clock = RateRhythm.of(made.workload.profile, "h").passed(times)
    steady = open_source(scenario(workload={"arrivals": law}), np.array([12.0]), SeedSequence(7)).next(100_000).time
    assert clock == pytest.approx(steady, rel=1e-11, abs=1e-9)
    gaps = np.diff(clock) * 12
    assert gaps.mean() == pytest.approx(1.0, abs=4 * max(spread, 1e-6) / np.sqrt(len(gaps)))
    assert gaps.std() == pytest.approx(spread, abs=0.02)
    if spread == 1.0:
        assert stats.kstest(gaps[:20_000], "expon").pvalue > 1e-3


def test_batches_follow_the_profile() -> None:
    arrivals = {"law": "batch", "rate": 4.0, "batches": [{"probability": 1.0, "jobs": {"a": 3}}]}
    types = [{"name": "a", "demand": [1], "mean_service": 1.5}]
    made = scenario(types=types, workload={"arrivals": arrivals, "profile": {"period": "day", "rates": [0, 1]}})
    source = open_source(made, np.array([12.0]), SeedSequence(1))
    times = np.concatenate([source.next(3000).time for _ in range(20)])
    assert times[-1] > 48
    assert (times % 24 >= 12).all()
    assert (np.unique(times, return_counts=True)[1] == 3).all()


def test_types_may_have_their_own_rhythm() -> None:
    types = [
        {"name": "a", "demand": [1], "rate": 6, "profile": {"period": "day", "rates": [2, 0]}},
        {"name": "b", "demand": [1], "rate": 6, "profile": {"period": "week", "rates": [1, 1, 1, 1, 1, 0, 0]}},
        {"name": "c", "demand": [1], "rate": 6},
    ]
    made = scenario(types=types, workload={})
    steps = steps_of(made)
    assert steps is not None
    assert made.period == 168
    assert steps.start == pytest.approx(np.arange(15) * 12)
    assert steps.rate.mean(axis=0) == pytest.approx([1, 1, 1])
    chunk = open_source(made, np.full(3, 6.0), SeedSequence(1)).next(20_000)
    assert (chunk.time[chunk.job_type == 0] % 24 < 12).all()
    assert (chunk.time[chunk.job_type == 1] % 168 < 120).all()


def test_infinitely_many_servers_have_the_known_mean_at_every_time() -> None:
    """M(t)/M/inf with 24 steps of a sinusoid: the mean number in service over the day is n' = rate - n / mean, periodic; and Poisson."""
    hours = np.arange(24)
    rates = 1 + 0.8 * np.sin(2 * np.pi * (hours + 0.5) / 24)
    profile = {"period": "day", "rates": rates.tolist()}
    made = scenario(workload={"profile": profile}, run={"until": 24 * 60, "replications": 1, "seed": 3})
    known = in_service(12 * rates / rates.mean(), np.arange(25.0), 1.5)
    # theory against theory: the differential equation in small steps, from any start, after many days
    n, step = 0.0, 1e-3
    for hour in itertools.islice(itertools.cycle(range(24)), 24 * 4):
        for _ in range(1000):
            n += step * (12 * rates[hour] / rates.mean() - n / 1.5)
    assert n == pytest.approx(known[0], rel=2e-3)
    assert known.mean() == pytest.approx(18.0, rel=0.02)
    # and the generator against theory: the jobs in service at each hour of 800 days
    source = open_source(made, np.array([12.0]), child(SeedSequence(9), 0))
    chunk = source.next(12 * 24 * 800)
    begin, end = chunk.time, chunk.time + chunk.duration
    at = np.arange(24.0 * 10, 24 * 790)
    there = np.searchsorted(np.sort(begin), at, side="right") - np.searchsorted(np.sort(end), at, side="right")
    table = there.reshape(-1, 24)
    z = (table.mean(axis=0) - known) / np.sqrt(known / len(table))
    assert np.abs(z).max() < 4.5
    assert table.var(axis=0) / table.mean(axis=0) == pytest.approx(np.ones(24), abs=0.25)


def test_a_run_is_whole_periods_and_shows_the_queue_at_the_peak() -> None:
    """Twenty-four servers for a mean of 18, whose peak asks for more than there are: the queue is where the load was."""
    cluster = {"resources": ["cpu"], "servers": [{"name": "n", "count": 24, "capacity": [1]}]}
    result = simulate(scenario(cluster=cluster, run={"replications": 3}), "first-fit")
    for run in result.runs:
        assert run.ended / 24 == pytest.approx(round(run.ended / 24), abs=1e-9)
        assert run.measured / 24 == pytest.approx(round(run.measured / 24), abs=1e-6)
    found = result.queue_over_period
    assert found is not None
    assert found.peak > 2 * result.mean_queue.mean
    assert 18 <= found.when[0] <= 24 or found.when[0] < 2
    assert np.mean(found.mean) == pytest.approx(result.mean_queue.mean, rel=0.1)
    assert str(result.verdict) == "stable"
    told = comparison_page(Comparison((result,))).lead
    assert f"of each 24 h, {number(found.peak)} jobs on average." in told[-1]


def test_a_mean_above_what_servers_carry_grows_whatever_the_profile() -> None:
    cluster = {"resources": ["cpu"], "servers": [{"name": "n", "count": 17, "capacity": [1]}]}
    result = simulate(scenario(cluster=cluster, run={"replications": 2}), "first-fit")
    assert str(result.verdict) == "grows"


def test_capacity_tells_the_mean_and_the_peak() -> None:
    found = assess(scenario())
    assert found.region.intensity == pytest.approx(12 * 1.5 / 60)
    assert found.peak is not None
    assert found.peak.rates == pytest.approx(1.7 * 0.3)
    assert (found.peak.start, found.peak.end) == (18.0, 24.0)
    assert 0.3 < found.peak.in_service < found.peak.rates
    assert any("intensity 0.51, or" in line for line in found.answer)
    assert "guarded is not proven here" in " ".join(found.answer)
    assert assess(scenario(workload={})).peak is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_unit": None}, "workload.profile.period: is a day, and the scenario does not say its unit of time"),
        (
            {"types": [{"name": "a", "demand": [1], "rate": 1, "profile": {"period": 7, "rates": [1, 2]}}]},
            "types[0] (a).profile.period: the longest period is 3.42857 times this one",
        ),
        (
            {"workload": {"profile": {"period": 3, "rates": [0, 0]}}},
            "workload.profile: all rates are 0, so nothing arrives; give at least one above 0",
        ),
        (
            {"workload": {"profile": {"period": 3, "rates": [1, 2], "lengths": [1]}}},
            "workload.profile: has 1 lengths for 2 rates; give one for each",
        ),
        ({"workload": {"profile": {"period": "month", "rates": [1]}}}, "workload.profile.period: is 'month'"),
        (
            {
                "workload": {
                    "arrivals": {"law": "mmpp", "rates": [1, 2], "sojourns": [1, 1]},
                    "profile": {"period": 3, "rates": [1, 2]},
                }
            },
            "workload.profile: a profile beside mmpp arrivals",
        ),
    ],
)
def test_mistakes_are_one_clear_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        scenario(**change)
    assert message in str(refused.value)

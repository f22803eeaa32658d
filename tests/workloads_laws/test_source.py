"""Streams of jobs: rates, variability, independence of how they are asked for."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.random import SeedSequence
from scipy import stats

from slotwise.errors import InputError
from slotwise.model.scenario import Scenario
from slotwise.workloads.laws import effective_rates
from slotwise.workloads.processes import Renewal
from slotwise.workloads.source import Chunk, JobSource, MergedSource, TraceSource, open_source

MMPP = {"law": "mmpp", "rates": [1.0, 6.0], "sojourns": [4.0, 1.0]}
OFF_AND_ON = {"law": "mmpp", "rates": [0.0, 1.0, 3.0], "sojourns": [2.0, 1.0, 0.5]}
BATCH = {
    "law": "batch",
    "rate": 2.0,
    "batches": [
        {"probability": 0.5, "jobs": {"t2": 1, "t0": 2}},
        {"probability": 0.3, "jobs": {"t1": 3}},
        {"probability": 0.2, "jobs": {"t1": 0}},
    ],
}
ARRIVALS: list[dict[str, Any]] = [
    {"law": "poisson"},
    {"law": "lognormal"},
    {"law": "deterministic"},
    {"law": "hyperexponential", "scv": 3.0},
    MMPP,
    OFF_AND_ON,
    BATCH,
]


def scenario(
    rates: list[float], arrivals: dict[str, Any] | None = None, service: dict[str, Any] | None = None, **types: Any
) -> Scenario:
    """Types t0, t1, ...; `types` maps a name to more keys of that type."""
    batch = (arrivals or {}).get("law") == "batch"
    return Scenario.model_validate(
        {
            "cluster": {"resources": ["r"], "servers": [{"name": "s", "count": 1, "capacity": [1]}]},
            "types": [
                {"name": f"t{j}", "demand": [1], "mean_service": 1 + j, **types.get(f"t{j}", {})}
                | ({} if batch else {"rate": rate})
                for j, rate in enumerate(rates)
            ],
            "workload": {
                "arrivals": arrivals or {"law": "poisson"},
                "service": service or {"law": "exponential"},
            },
        }
    )


def take(source: JobSource, n: int, at_most: int = 5000) -> Chunk:
    chunks = []
    have = 0
    while have < n:
        chunk = source.next(min(at_most, n - have))
        assert 0 < len(chunk) <= at_most
        chunks.append(chunk)
        have += len(chunk)
    return Chunk(
        np.concatenate([c.time for c in chunks]),
        np.concatenate([c.job_type for c in chunks]),
        np.concatenate([c.duration for c in chunks]),
        None,
    )


def jobs(of: Scenario, n: int, seed: int = 1, at_most: int = 5000, scale: float = 1.0) -> Chunk:
    return take(open_source(of, scale * effective_rates(of), SeedSequence(seed)), n, at_most)


def same(a: Chunk, b: Chunk) -> bool:
    return all(np.array_equal(getattr(a, key), getattr(b, key)) for key in ("time", "job_type", "duration"))


@pytest.mark.parametrize("arrivals", ARRIVALS, ids=lambda law: law["law"])
def test_chunks_do_not_change_the_stream(arrivals: dict[str, Any]) -> None:
    of = scenario([1.0, 0.0, 0.001, 30.0], arrivals, {"law": "hyperexponential", "scv": 4.0})
    whole = jobs(of, 30_000, at_most=30_000)
    assert (np.diff(whole.time) >= 0).all()
    assert (whole.duration > 0).all()
    assert same(whole, jobs(of, 30_000, at_most=777))
    assert same(Chunk(whole.time[:300], whole.job_type[:300], whole.duration[:300], None), jobs(of, 300, at_most=1))
    source = open_source(of, effective_rates(of), SeedSequence(1))
    sizes = np.random.default_rng(0).integers(1, 4000, 20)
    parts = [take(source, int(size), int(size)) for size in sizes]
    n = int(sizes.sum())
    assert np.array_equal(np.concatenate([part.time for part in parts])[:30_000], whole.time[: min(n, 30_000)])


@pytest.mark.parametrize("arrivals", ARRIVALS, ids=lambda law: law["law"])
@pytest.mark.parametrize("expected", [1, 700, 20_000, 2**62])
def test_what_is_expected_does_not_change_the_stream(arrivals: dict[str, Any], expected: int) -> None:
    """Whether fewer or more jobs come than the source was told."""
    of = scenario([1.0, 0.0, 0.001, 30.0], arrivals, {"law": "hyperexponential", "scv": 4.0})
    source, whole, have = open_source(of, effective_rates(of), SeedSequence(1)), jobs(of, 20_000), 0
    while have < 20_000:
        chunk = source.next(777, max(1, expected - have))
        n = min(len(chunk), 20_000 - have)
        for key in ("time", "job_type", "duration"):
            assert np.array_equal(getattr(chunk, key)[:n], getattr(whole, key)[have : have + n])
        have += n


def test_a_source_that_knows_how_many_come_draws_little_more() -> None:
    drawn, calls, rng = 0, 0, np.random.default_rng(1)

    def service(n: int) -> Any:
        nonlocal drawn, calls
        drawn, calls = drawn + n, calls + 1
        return rng.standard_exponential(n)

    rates = np.full(100, 2.0)
    arrivals = [Renewal(np.random.default_rng(j).standard_exponential, 2.0) for j in range(100)]
    source, have, n = MergedSource([*arrivals], [service] * 100, rates), 0, 50_000
    while have < n:
        have += len(source.next(min(7_000, n - have), n - have))
    assert drawn < 1.2 * n
    assert calls < 2.2 * 100


@pytest.mark.parametrize("arrivals", ARRIVALS, ids=lambda law: law["law"])
def test_a_seed_is_a_stream(arrivals: dict[str, Any]) -> None:
    of = scenario([1.0, 2.0, 3.0], arrivals)
    seed = SeedSequence(4)
    rates = effective_rates(of)
    first = take(open_source(of, rates, seed), 2000)
    assert same(first, take(open_source(of, rates, seed), 2000)), "opening must not use up the seed"
    assert not np.array_equal(first.time, jobs(of, 2000, seed=5).time)


@pytest.mark.parametrize("arrivals", ARRIVALS, ids=lambda law: law["law"])
def test_intensity_stretches_the_same_jobs(arrivals: dict[str, Any]) -> None:
    """Doubling the rates brings the same service times in the same order for each type."""
    of = scenario([1.0, 2.0, 3.0], arrivals)
    slow, fast = jobs(of, 3000), jobs(of, 3000, scale=2.0)
    for j in range(3):
        a, b = slow.duration[slow.job_type == j], fast.duration[fast.job_type == j]
        n = min(len(a), len(b))
        assert n > 300
        assert np.array_equal(a[:n], b[:n])
    if arrivals["law"] != "mmpp":  # whose chain keeps its own pace
        assert fast.time == pytest.approx(slow.time / 2)


@pytest.mark.parametrize("law", ["poisson", "lognormal", "hyperexponential", "deterministic"])
def test_a_type_has_its_own_streams(law: str) -> None:
    """Neither the rates nor the number of other types change what a type brings."""
    arrivals = {"law": law} | ({"scv": 3.0} if law == "hyperexponential" else {})
    few, many = jobs(scenario([2.0, 1.0], arrivals), 3000), jobs(scenario([2.0, 1.0, 5.0], arrivals), 3000)
    for j in range(2):
        a, b = few.time[few.job_type == j], many.time[many.job_type == j]
        assert np.array_equal(a[: len(b)], b)
        a, b = few.duration[few.job_type == j], many.duration[many.job_type == j]
        assert np.array_equal(a[: len(b)], b)


@pytest.mark.parametrize(("law", "scv"), [("poisson", 1), ("lognormal", math.e - 1), ("hyperexponential", 3)])
def test_renewal_rates_and_gaps(law: str, scv: float) -> None:
    """Mean gaps within 4 standard errors, and no correlation between gaps, types or service times."""
    rates = [1.0, 4.0]
    arrivals = {"law": law} | ({"scv": 3.0} if law == "hyperexponential" else {})
    found = jobs(scenario(rates, arrivals), 200_000)
    gaps = [np.diff(found.time[found.job_type == j]) for j in range(2)]
    for j, rate in enumerate(rates):
        n = len(gaps[j])
        assert abs(gaps[j].mean() * rate - 1) < 4 * math.sqrt(scv / n)
        durations = found.duration[found.job_type == j]
        assert abs(durations.mean() / (1 + j) - 1) < 4 / math.sqrt(len(durations))
        assert abs(np.corrcoef(gaps[j][1:], gaps[j][:-1])[0, 1]) < 4 / math.sqrt(n)
        assert abs(np.corrcoef(gaps[j], durations[1:])[0, 1]) < 4 / math.sqrt(n)
    n = min(map(len, gaps))
    assert abs(np.corrcoef(gaps[0][:n], gaps[1][:n])[0, 1]) < 4 / math.sqrt(n)


def test_poisson_counts() -> None:
    """Counts in unit windows of the merged stream are Poisson with the sum of the rates (chi-squared, 1e-4)."""
    found = jobs(scenario([1.0, 0.5, 1.5]), 60_000)
    counts = np.bincount(found.time[found.time < 19_000].astype(np.int64), minlength=19_000)
    cells = np.arange(11)
    seen = np.array([*(np.sum(counts == k) for k in cells[:-1]), np.sum(counts >= 10)])
    law = stats.poisson(3)
    expected = 19_000 * np.array([*law.pmf(cells[:-1]), law.sf(9)])
    assert stats.chisquare(seen, expected).pvalue > 1e-4


def test_deterministic_gaps_and_phases() -> None:
    found = jobs(scenario([2.0, 2.0, 0.5], {"law": "deterministic"}), 5000)
    for j, rate in enumerate((2.0, 2.0, 0.5)):
        times = found.time[found.job_type == j]
        assert 0 <= times[0] < 1 / rate
        assert times == pytest.approx(times[0] + np.arange(len(times)) / rate)
    assert len(np.unique(found.time)) == 5000, "types with equal rates must not coincide"


def test_own_laws_override_the_common_one() -> None:
    of = scenario(
        [1.0, 1.0],
        {"law": "poisson"},
        {"law": "exponential"},
        t1={"arrivals": {"law": "deterministic"}, "service": {"law": "deterministic"}},
    )
    found = jobs(of, 5000)
    own = found.job_type == 1
    assert np.diff(found.time[own]) == pytest.approx(1)
    assert (found.duration[own] == 2).all()
    assert np.diff(found.time[~own]).std() > 0.9
    assert found.duration[~own].std() > 0.9


def _dispersion(law: dict[str, Any], rate: float, t: float) -> float:
    """Var N(t) / E N(t) of a stationary two-state process (Heffes and Lucantoni 1986)."""
    a, b = (1 / d for d in law["sojourns"])
    x, y = law["rates"]
    mean = (x * b + y * a) / (a + b)
    x, y = x * rate / mean, y * rate / mean
    limit = 2 * (x - y) ** 2 * a * b / ((a + b) ** 2 * (x * b + y * a))
    return 1 + limit * (1 - (1 - math.exp(-(a + b) * t)) / ((a + b) * t))


@pytest.mark.parametrize("t", [1.0, 20.0])
def test_modulated_mean_and_dispersion(t: float) -> None:
    """Counts in windows of length t: mean and index of dispersion, 4 standard errors by batching."""
    found = jobs(scenario([5.0, 1.0], MMPP), 400_000)
    end = int(found.time[-1] / t / 40) * 40 * t
    for j, rate in enumerate((5.0, 1.0)):
        times = found.time[(found.job_type == j) & (found.time < end)]
        counts = np.bincount((times / t).astype(np.int64), minlength=round(end / t)).astype(float)
        parts = counts.reshape(40, -1)
        assert abs(counts.mean() - rate * t) < 4 * parts.mean(axis=1).std(ddof=1) / math.sqrt(40)
        ratio = (parts - rate * t) ** 2 / (rate * t)
        assert abs(ratio.mean() - _dispersion(MMPP, rate, t)) < 4 * ratio.mean(axis=1).std(ddof=1) / math.sqrt(40)


def test_modulated_three_states_mean() -> None:
    found = jobs(scenario([3.0], OFF_AND_ON), 300_000)
    end = int(found.time[-1] / 40) * 40
    counts = np.bincount(found.time[found.time < end].astype(np.int64), minlength=end).reshape(40, -1).mean(axis=1)
    assert abs(counts.mean() - 3) < 4 * counts.std(ddof=1) / math.sqrt(40)
    # In state 0, four sevenths of the time, nothing arrives: gaps far beyond those of a Poisson process.
    assert np.diff(found.time).max() > 8


def test_one_chain_drives_the_types_that_share_the_law() -> None:
    """Shared: the covariance of two types' counts in unit windows is rate_0 rate_1 (I(1) - 1) / rate, by theory."""
    windows = 40_000

    def covariance(of: Scenario) -> tuple[float, float]:
        found = jobs(of, round(windows * 4.4))
        end = int(found.time[-1])
        assert end > windows
        counts = [
            np.bincount(found.time[found.job_type == j].astype(np.int64), minlength=end + 1)[:windows].astype(float)
            for j in (0, 1)
        ]
        product = ((counts[0] - 2) * (counts[1] - 2)).reshape(40, -1).mean(axis=1)
        return float(product.mean()), float(product.std(ddof=1) / math.sqrt(40))

    expected = 2 * (_dispersion(MMPP, 2.0, 1.0) - 1)
    value, error = covariance(scenario([2.0, 2.0], MMPP))
    assert abs(value - expected) < 4 * error < expected
    value, error = covariance(scenario([2.0, 2.0], MMPP, t1={"arrivals": MMPP}))
    assert abs(value) < 4 * error < expected, "a law of one's own is a chain of one's own"


def test_modulated_memory_stays_small() -> None:
    """The path of the chain is dropped behind the slowest type."""
    of = scenario([100.0, 0.01], {"law": "mmpp", "rates": [1.0, 2.0], "sojourns": [0.02, 0.02]})
    source = open_source(of, effective_rates(of), SeedSequence(1))
    take(source, 400_000)
    chain = source._arrivals[0]._chain  # type: ignore[attr-defined]
    assert len(chain._end) < 100_000  # the run crosses 200,000 pieces


def test_batches() -> None:
    of = scenario([0, 0, 0], BATCH)
    rates = effective_rates(of)
    assert rates == pytest.approx([2.0, 1.8, 1.0])
    found = jobs(of, 100_000, scale=1.5)
    starts = np.flatnonzero(np.diff(found.time, prepend=-1) > 0)
    kinds = [tuple(found.job_type[a:b].tolist()) for a, b in itertools.pairwise(starts)]
    assert set(kinds) == {(0, 0, 2), (1, 1, 1)}, "one request is one instant, its jobs in the order of the types"
    n = len(kinds)
    share = 0.5 / 0.8
    assert abs(kinds.count((0, 0, 2)) - n * share) < 4 * math.sqrt(n * share * (1 - share))
    gaps = np.diff(found.time[starts])  # requests that bring nothing are not seen
    assert abs(gaps.mean() * 1.5 * 2.0 * 0.8 - 1) < 4 / math.sqrt(n)
    assert stats.kstest(gaps * 1.5 * 2.0 * 0.8, stats.expon.cdf).statistic < 2.3 / math.sqrt(n)
    for j in range(3):
        durations = found.duration[found.job_type == j]
        assert abs(durations.mean() / (1 + j) - 1) < 4 / math.sqrt(len(durations))


def test_a_rate_of_zero_never_comes() -> None:
    assert set(jobs(scenario([0.0, 1.0]), 1000).job_type) == {1}
    of = scenario([1.0, 1.0])
    assert len(open_source(of, np.zeros(2), SeedSequence(1)).next(10)) == 0
    of = scenario([0, 0, 0], BATCH)
    assert len(open_source(of, np.zeros(3), SeedSequence(1)).next(10)) == 0


def test_trace_source() -> None:
    time, kind, duration = np.array([0.0, 1.0, 1.0, 3.0]), np.array([1, 0, 1, 2]), np.array([1.0, 0.0, 2.0, 3.0])
    demand = np.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    source = TraceSource(time, kind, duration, demand)
    first, second, third = source.next(3), source.next(3), source.next(3)
    assert (len(first), len(second), len(third)) == (3, 1, 0)
    assert second.time.tolist() == [3.0]
    assert first.job_type.tolist() == [1, 0, 1]
    assert first.demand is not None
    assert first.demand.tolist() == demand[:3].tolist()
    assert TraceSource(time, kind, duration).next(9).demand is None


@pytest.mark.parametrize(
    ("time", "duration", "message"),
    [([1.0, 0.5], [1.0, 1.0], "ascend"), ([0.0, 1.0], [1.0, -1.0], "duration"), ([0.0], [1.0, 1.0], "lengths")],
)
def test_bad_traces_are_refused(time: list[float], duration: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TraceSource(np.array(time), np.zeros(2, dtype=np.int64), np.array(duration))


def test_bad_requests_are_refused() -> None:
    of = scenario([0, 0, 0], BATCH)
    with pytest.raises(InputError, match="one factor"):
        open_source(of, effective_rates(of) * [1, 1, 2], SeedSequence(1))
    with pytest.raises(InputError, match="finite rate"):
        open_source(of, np.ones(2), SeedSequence(1))
    with pytest.raises(InputError, match="beside batch"):
        open_source(scenario([0, 0, 0], BATCH, t1={"arrivals": {"law": "poisson"}}), np.ones(3), SeedSequence(1))
    with pytest.raises(ValueError, match="0 jobs"):
        open_source(of, effective_rates(of), SeedSequence(1)).next(0)


PROBE = """
import json, sys
import numpy as np
from slotwise.model.scenario import Scenario
from slotwise.workloads.laws import effective_rates
from slotwise.workloads.source import open_source
of = Scenario.model_validate(json.loads(sys.argv[1]))
chunk = open_source(of, effective_rates(of), np.random.SeedSequence(9)).next(700)
print(chunk.time.tobytes().hex(), chunk.job_type.tobytes().hex(), chunk.duration.tobytes().hex())
"""


def test_without_compilation_the_stream_is_the_same() -> None:
    of = scenario([1.0, 2.0, 3.0], MMPP, {"law": "weibull", "shape": 0.8}, t1={"arrivals": {"law": "lognormal"}})
    chunk = open_source(of, effective_rates(of), SeedSequence(9)).next(700)
    plain = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(of.model_dump(mode="json"))],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert plain.stdout.split() == [
        column.tobytes().hex() for column in (chunk.time, chunk.job_type, chunk.duration)
    ]

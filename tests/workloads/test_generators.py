"""Generated traces: seeded, as long as asked, and close to the real ones."""

from __future__ import annotations

import numpy as np
import pytest

from slotwise.errors import InputError
from slotwise.workloads.generators import PROFILES, azure_like, google_like
from slotwise.workloads.profiles import closeness, fit_profile, generate
from slotwise.workloads.traces import Trace
from slotwise.workloads.traces.summary import dispersion


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("jobs", [1, 7, 1000, 20_011])
def test_as_many_jobs_as_asked_for_and_equal_by_seed(name: str, jobs: int) -> None:
    trace = generate(PROFILES[name], jobs, 3)
    assert len(trace) == jobs
    assert trace.frame.equals(generate(PROFILES[name], jobs, 3).frame)
    assert jobs < 10 or not trace.frame.equals(generate(PROFILES[name], jobs, 4).frame)
    assert trace.frame["arrival"][0] == 0.0


def test_mix_of_types_is_held_at_every_seed() -> None:
    shares = {tuple(s.demand): s.share for s in PROFILES["google-like"].shapes}
    for seed in range(3):
        demands = google_like(30_000, seed).demands()
        for demand, share in shares.items():
            assert abs((demands == demand).all(axis=1).mean() - share) < 1e-4


def test_bursts_are_far_from_poisson() -> None:
    for trace, least in ((google_like(100_000, 1), 200.0), (azure_like(100_000, 1), 30.0)):
        found = dispersion(trace.arrival, 1200.0)
        assert found is not None
        assert found > least


def test_arrivals_and_durations_do_not_depend_on_how_jobs_are_numbered() -> None:
    trace = google_like(50_000, 2)
    half = len(trace) // 2
    assert abs(np.log(trace.duration[:half].mean() / trace.duration[half:].mean())) < 0.5


def test_refuses_no_jobs_and_short_traces(small: Trace) -> None:
    with pytest.raises(InputError, match="0 jobs"):
        google_like(0, 1)
    with pytest.raises(InputError, match="too short to fit"):
        fit_profile(small, "small-like")


def test_a_fit_comes_back_from_what_it_generated() -> None:
    made = azure_like(60_000, 5)
    again = fit_profile(made, "again", shapes=16)
    want = PROFILES["azure-like"]
    assert again.rate == pytest.approx(want.rate, rel=0.01)
    assert again.tick == want.tick
    assert {s.demand for s in again.shapes} <= {s.demand for s in want.shapes}
    near = closeness(made, generate(again, 60_000, 6))
    assert near["mix_distance"] < 0.001
    assert near["mean_duration_ratio"] == pytest.approx(1.0, abs=0.1)


def check(near: dict[str, object], *, quantiles: float, load: float, idc: tuple[float, float]) -> None:
    ratios = near["duration_ratio"]
    assert isinstance(ratios, dict)
    assert near["mix_distance"] < 0.001
    assert all(1 / quantiles < ratio < quantiles for ratio in ratios.values()), ratios
    loads = near["load_ratio"]
    assert isinstance(loads, dict)
    assert all(abs(ratio - 1) < load for ratio in loads.values()), loads
    dispersions = near["idc"]
    assert isinstance(dispersions, dict)
    for real, made in dispersions.values():
        assert idc[0] < made / real < idc[1], dispersions


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_google_like_is_close_to_google(google: Trace, seed: int) -> None:
    near = closeness(google, google_like(len(google), seed))
    check(near, quantiles=1.2, load=0.05, idc=(1 / 3, 2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_azure_like_is_close_to_azure(azure: Trace, seed: int) -> None:
    # Durations there are bin middles, up to a factor of 1.4 from the next bin.
    near = closeness(azure, azure_like(len(azure), seed))
    check(near, quantiles=1.5, load=0.05, idc=(0.5, 3))

"""Warm starts of traces: the stationary law against brute force, and what a run sees of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.random import SeedSequence

from slotwise.errors import InputError
from slotwise.model import Scenario, parse_scenario
from slotwise.simulation.run.workload import jobs_of, window_words
from slotwise.simulation.simulate import simulate
from slotwise.theory.capacity import assess
from slotwise.workloads.traces import Trace, TraceMeta, write_trace
from slotwise.workloads.warmstart import MOST, drawn, how_many


def test_the_law_is_that_of_a_process_that_has_gone_on_for_long() -> None:
    """Jobs of two types came for ever. The jobs in service at time 0, and their remaining times, are compared with what
    is drawn."""
    rng = np.random.default_rng(2)
    duration, kind = rng.lognormal(0, 1, 4000), rng.integers(0, 2, 4000)
    duration[kind == 1] *= 3
    count = how_many(duration, 100.0)
    assert count == round(duration.sum() / 100)
    met, left = [], []
    for _ in range(400):  # arrivals over a long past, each one of the jobs at random
        before = rng.uniform(0, 600, 40 * 600)
        which = rng.integers(0, 4000, len(before))
        there = before < duration[which]
        met.append(np.bincount(kind[which[there]], minlength=2))
        left.append((duration[which] - before)[there])
    rows, mine = zip(*(drawn(duration, kind, count, np.random.default_rng(s)) for s in range(200)), strict=True)
    assert np.mean(met, axis=0).sum() == pytest.approx(count, rel=0.02)
    share = np.bincount(kind[np.concatenate(rows)], minlength=2) / (200 * count)
    assert share == pytest.approx(np.sum(met, axis=0) / np.sum(met), abs=0.01)
    levels = (0.1, 0.25, 0.5, 0.75, 0.9)
    assert np.quantile(np.concatenate(mine), levels) == pytest.approx(
        np.quantile(np.concatenate(left), levels), rel=0.03
    )


def long_jobs(folder: Path, **workload: object) -> Scenario:
    """18 minutes of 29-minute jobs, on twice the servers that they take in the long run."""
    rng = np.random.default_rng(3)
    n = 2000
    frame = pl.DataFrame({"arrival": np.sort(rng.uniform(0, 1080, n)), "duration": rng.exponential(1740.0, n)})
    write_trace(
        Trace(frame.with_columns(pl.lit(1.0).alias("demand.cpu")), TraceMeta("made", ("cpu",))),
        folder / "t.parquet",
    )
    load = round(float(frame["duration"].sum()) / 1080)
    return parse_scenario(
        {
            "time_unit": "min",
            "cluster": {"resources": ["cpu"], "servers": [{"name": "n", "count": 2 * load, "capacity": [1]}]},
            "workload": {"trace": str(folder / "t.parquet"), "typing": {"method": "exact"}, **workload},
            "run": {"replications": 3},
        }
    )


def test_a_warm_run_sees_the_offered_load_and_an_empty_one_does_not(tmp_path: Path) -> None:
    cold = simulate(long_jobs(tmp_path), "first-fit")
    warm = simulate(long_jobs(tmp_path, start="warm"), "first-fit")
    assert warm.offered == cold.offered
    assert cold.in_service < 0.6 * cold.offered
    assert warm.in_service == pytest.approx(warm.offered, rel=0.05)
    assert len(cold.runs) == 1, "nothing is left to chance"
    assert len(warm.runs) == 3
    assert warm.runs[0].in_service != warm.runs[1].in_service
    again = simulate(long_jobs(tmp_path, start="warm"), "first-fit")
    assert again.runs[1].same_as(warm.runs[1])


def test_the_jobs_of_the_trace_are_the_same_and_come_after(tmp_path: Path) -> None:
    cold, warm = jobs_of(long_jobs(tmp_path)), jobs_of(long_jobs(tmp_path, start="warm"))
    assert warm.count == (cold.count or 0) + warm.running
    assert warm.running == pytest.approx(cold.mean_in_service, abs=0.51)
    assert np.array_equal(warm.rates, cold.rates)
    one, other = (warm.open(SeedSequence(s)).next(warm.count or 1) for s in (1, 2))
    assert (one.time[: warm.running] == 0).all()
    assert not np.array_equal(one.duration[: warm.running], other.duration[: warm.running])
    for column in ("time", "job_type", "duration"):
        mine = getattr(cold.listed(), column)
        assert np.array_equal(getattr(one, column)[warm.running :], mine)
        assert np.array_equal(getattr(warm.listed(), column), mine)


def test_what_is_said_of_it(tmp_path: Path) -> None:
    cold, warm = long_jobs(tmp_path), long_jobs(tmp_path, start="warm")
    assert "begins empty" in window_words(cold)
    assert f"begins with {jobs_of(warm).running:,} jobs running" in window_words(warm)
    assert assess(cold).actual == assess(warm).actual
    assert assess(cold).region.intensity == assess(warm).region.intensity


def test_bounded_and_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"workload\.start: a warm start would begin with 1e\+12 jobs, more than 10,000,000"
    ):
        how_many(np.full(10, 1e12), 10.0)
    assert how_many(np.full(MOST, 1.0), 1.0) == MOST
    with pytest.raises(
        InputError, match=r"workload\.start: is for traces only; remove it, or give workload\.trace"
    ):
        parse_scenario(
            {
                "cluster": {"resources": ["cpu"], "servers": [{"name": "n", "count": 1, "capacity": [1]}]},
                "types": [{"name": "a", "demand": [1], "rate": 1}],
                "workload": {"start": "warm"},
            }
        )

"""The summary's numbers against their definitions, and the figure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slotwise.display.drawing import save_figure
from slotwise.errors import InputError
from slotwise.workloads.traces import Trace, TraceMeta, summarise
from slotwise.workloads.traces.figure import arrivals_figure, in_use, nice_width
from slotwise.workloads.traces.summary import counts_in_windows, dispersion


def test_numbers_of_a_trace_small_enough_to_do_by_hand() -> None:
    frame = pl.DataFrame(
        {
            "arrival": [0.0, 10.0, 10.0, 40.0],
            "duration": [20.0, 40.0, 10.0, 10.0],
            "demand.cpu": [1.0, 2.0, 1.0, 1.0],
            "batch": [1, 2, 2, 3],
            "tenant": ["a", "b", "b", "a"],
            "censored": [False, True, False, False],
        }
    )
    summary = summarise(Trace(frame, TraceMeta("test", ("cpu",), {}, {"cpu": 2.0})))
    assert (summary.jobs, summary.span, summary.rate) == (4, 40.0, 0.1)
    assert summary.duration["mean"] == 20.0
    assert summary.load == {"cpu": (20 + 80 + 10 + 10) / 40}
    assert summary.load_in_servers == {"cpu": 1.5}
    assert summary.batches == {"count": 3.0, "mean": pytest.approx(4 / 3), "max": 2.0}
    assert (summary.tenants, summary.censored, summary.shapes) == (2, 0.25, 2)
    assert summary.top_shapes[0] == {"demand": [1.0], "share": 0.75, "mean_duration": pytest.approx(40 / 3)}
    json.dumps(summary.dict())
    with pytest.raises(InputError, match="has no jobs"):
        summarise(Trace(frame.clear(), TraceMeta("test", ("cpu",))))


def test_a_single_job_has_a_summary_and_a_figure(small: Trace, tmp_path: Path) -> None:
    one = Trace(small.frame[:1], small.meta)
    facts = json.loads(json.dumps(summarise(one).dict(), allow_nan=False))
    assert (facts["jobs"], facts["rate"], facts["load"]["cpu"]) == (1, None, None)
    save_figure(arrivals_figure(one), tmp_path / "one.svg")


def test_dispersion_is_one_for_poisson_and_the_batch_size_for_batches() -> None:
    rng = np.random.default_rng(1)
    poisson = np.cumsum(rng.exponential(1.0, 200_000))
    assert dispersion(poisson, 60.0) == pytest.approx(1.0, abs=0.1)
    assert dispersion(np.repeat(poisson, 7), 60.0) == pytest.approx(7.0, abs=0.7)
    assert dispersion(poisson[:20], 60.0) is None
    assert counts_in_windows(np.array([5.0, 6.0, 14.9, 15.0, 31.0]), 10.0).tolist() == [3, 1]


def test_in_use_is_the_sum_of_running_demands(small: Trace) -> None:
    moments = np.array([0.0, 3333.0, 10_000.0])
    start, end = small.arrival, small.arrival + small.duration
    for moment, row in zip(moments, in_use(small, moments), strict=True):
        running = (start <= moment) & (moment < end)
        assert np.allclose(row, small.demands()[running].sum(axis=0))


def test_the_figure_is_the_same_for_the_same_trace(small: Trace, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        save_figure(arrivals_figure(small), tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "<svg" in text
    assert nice_width(19.47 * 3600) == 1200.0
    assert nice_width(29 * 86_400) == 6 * 3600.0

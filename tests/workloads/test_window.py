"""What a trace's window sees of its load: against plain sums, and the four tools' figures on one trace."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from slotwise.workloads.traces import Trace, TraceMeta, summarise
from slotwise.workloads.window import in_words, window_of

Array = NDArray[np.float64]


def holding(at: Array, arrival: Array, duration: Array, demand: Array) -> Array:
    """What is held at each of these times."""
    runs = (arrival <= at[:, None]) & (at[:, None] < arrival + duration)
    held: Array = runs.astype(float) @ demand
    return held


def test_against_plain_sums() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        n = int(rng.integers(2, 60))
        arrival = np.sort(rng.uniform(0, 10, n)).round(1)
        duration, demand = rng.exponential(5.0, n), rng.integers(0, 5, (n, 2)).astype(float)
        found = window_of(arrival, duration, demand)
        if arrival[-1] == arrival[0]:
            assert found is None
            continue
        assert found is not None
        fine = np.linspace(arrival[0], arrival[-1], 40_001)[:-1]
        busy = holding(fine, arrival, duration, demand)
        assert found.mean == pytest.approx(busy.mean(axis=0), rel=0.01, abs=0.02)
        most = holding(np.concatenate([arrival, fine]), arrival, duration, demand).max(axis=0)
        assert found.peak == pytest.approx(most)
        assert found.offered == pytest.approx(duration @ demand / (arrival[-1] - arrival[0]))
        assert found.outlast == pytest.approx(np.mean(arrival + duration > arrival[-1]))


def test_short_jobs_are_seen_whole() -> None:
    arrival = np.arange(1000.0)
    found = window_of(arrival, np.full(1000, 0.5), np.ones((1000, 1)))
    assert found is not None
    assert found.mean == pytest.approx(found.offered, rel=0.01)
    assert found.peak == pytest.approx([1.0])
    assert "outlast" not in in_words(found, np.ones(1))


def test_the_trace_that_was_tried() -> None:
    """18 minutes of jobs of 29 minutes: 357 servers' worth of work, of which the window sees a part."""
    rng = np.random.default_rng(7)
    n = 13_290
    frame = pl.DataFrame(
        {
            "arrival": np.sort(rng.uniform(0, 1080, n)),
            "duration": rng.exponential(1740.0, n),
            "demand.cpu": np.full(n, 1 / 60),
        }
    )
    trace = Trace(frame, TraceMeta("made", ("cpu",), capacity={"cpu": 1.0}))
    summary = summarise(trace)
    seen = summary.window
    assert seen is not None
    assert summary.load_in_servers["cpu"] == pytest.approx(357, rel=0.05)
    assert seen["cpu"]["offered"] == pytest.approx(summary.load["cpu"])
    assert seen["cpu"]["mean"] < 0.3 * seen["cpu"]["offered"]
    assert seen["cpu"]["mean"] < seen["cpu"]["peak"] < seen["cpu"]["offered"]
    words = summary.window_words
    assert "begins empty" in words
    assert "outlast" in words

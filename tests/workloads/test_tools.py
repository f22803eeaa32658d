"""Trace tools keep what they say they keep."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from slotwise.errors import InputError
from slotwise.workloads.generators import google_like
from slotwise.workloads.traces import Trace, tools
from slotwise.workloads.traces.summary import dispersion


def test_window_by_time_and_by_number(small: Trace) -> None:
    part = tools.window(small, start=5000, end=9000)
    inside = (small.arrival >= 5000) & (small.arrival < 9000)
    assert len(part) == inside.sum()
    assert part.arrival[0] == 0.0
    assert np.allclose(part.arrival + part.meta.origin, small.arrival[inside] + small.meta.origin)
    numbered = tools.window(small, first=10, jobs=25)
    assert numbered.frame["id"].to_list() == small.frame["id"].to_list()[10:35]
    assert "window" in numbered.meta.notes[-1]
    with pytest.raises(InputError, match="no job in the window"):
        tools.window(small, start=1e9)
    with pytest.raises(InputError, match="empty window"):
        tools.window(small, start=5, end=5)


def test_thin_keeps_a_share_of_jobs_or_whole_batches(small: Trace) -> None:
    some = tools.thin(small, 0.5, seed=3)
    assert 150 < len(some) < 250
    assert some.frame.equals(tools.thin(small, 0.5, seed=3).frame)
    whole = tools.thin(small, 0.5, seed=3, by_batch=True)
    assert set(whole.frame["batch"].value_counts()["count"]) == {10}
    assert tools.thin(small, 1.0).frame.equals(small.frame)
    with pytest.raises(InputError, match="share of 0"):
        tools.thin(small, 0.0)


def test_scale_moves_the_load_as_it_should(small: Trace) -> None:
    slow = tools.scale(small, 2.0, duration=3.0)
    assert slow.span == 2 * small.span
    assert np.allclose(slow.duration, 3 * small.duration)
    with pytest.raises(InputError, match="scales"):
        tools.scale(small, -1.0)


def test_concat_lays_one_after_the_other(small: Trace) -> None:
    both = tools.concat([small, small], gap=100.0)
    assert len(both) == 2 * len(small)
    assert both.arrival[len(small)] == small.span + 100.0
    assert both.frame["batch"].n_unique() == 2 * small.frame["batch"].n_unique()
    assert len(tools.concat([small])) == len(small)
    other = Trace(small.frame.drop("demand.memory"), small.meta.__class__("x", ("cpu",)), "other")
    with pytest.raises(InputError, match="other: has the resources cpu; small has cpu, memory"):
        tools.concat([small, other])


def test_split_by_tenant_comes_together_again(small: Trace) -> None:
    parts = tools.split(small)
    assert set(parts) == {"ann", "bob", "cy"}
    together = pl.concat([part.frame for part in parts.values()]).sort("arrival", "id")
    assert together.equals(small.frame.sort("arrival", "id"))
    with pytest.raises(InputError, match="no column 'priority'"):
        tools.split(small, "priority")
    alike = small.with_frame(small.frame.with_columns(tenant=pl.Series(["a/b", "a b"] * 200)))
    assert len({part.name for part in tools.split(alike).values()}) == 2


def test_bootstrap_is_longer_seeded_and_as_bursty() -> None:
    trace = google_like(100_000, 1)
    longer = tools.bootstrap(trace, 250_000, seed=2)
    assert len(longer) == 250_000
    assert longer.frame.equals(tools.bootstrap(trace, 250_000, seed=2).frame)
    assert not longer.frame.equals(tools.bootstrap(trace, 250_000, seed=3).frame)
    assert longer.span / trace.span == pytest.approx(2.5, rel=0.25)
    assert longer.duration.mean() == pytest.approx(trace.duration.mean(), rel=0.2)
    for width in (60.0, 300.0):
        one, other = dispersion(trace.arrival, width), dispersion(longer.arrival, width)
        assert one is not None
        assert other is not None
        assert 0.5 < other / one < 2
    sizes = longer.frame["batch"].value_counts()["count"]
    assert sizes.max() <= trace.frame["batch"].value_counts()["count"].max()


def test_bootstrap_draws_every_job_alike(small: Trace) -> None:
    counts = np.zeros(4)
    marked = small.with_frame(small.frame.with_columns(pl.Series("duration", np.repeat([1.0, 2.0, 3.0, 4.0], 100))))
    for seed in range(60):
        drawn = tools.bootstrap(marked, 400, seed=seed, block=1500.0).duration
        counts += np.bincount(drawn.astype(int) - 1, minlength=4)
    assert np.allclose(counts / counts.sum(), 0.25, atol=0.06)
    with pytest.raises(InputError, match="blocks of"):
        tools.bootstrap(small, 10, block=1e9)

"""The record of single jobs: what it says agrees with what was measured, with servers that fail, and as a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import slotwise
from slotwise.model import Scenario
from slotwise.simulation.measure.measurements import COUNT, SUM
from slotwise.workloads.traces import read_trace, write_trace
from slotwise.workloads.traces.tools import window

Make = Callable[..., Scenario]


def test_every_job_is_there_and_the_figures_follow_from_them(scenario: Make) -> None:
    made = scenario({"ten": (3, 10)}, [(5, 3), (2, 6)], run={"events": 30_000, "replications": 2, "warmup": 0})
    result = slotwise.simulate(made, "best-fit", record_jobs=True)
    run, jobs = result.runs[1], result.jobs(1)
    assert jobs.columns == ["arrival", "start", "end", "server", "type", "duration"]
    assert jobs.height == run.arrivals > 8192  # the record has grown
    assert jobs["arrival"].is_sorted()
    assert jobs["start"].null_count() == run.final_queue.sum()
    assert jobs["end"].null_count() == run.final_queue.sum() + run.final_running
    started = jobs.drop_nulls("start")
    assert (started["start"] >= started["arrival"]).all()
    ended = jobs.drop_nulls("end")
    assert np.allclose(ended["end"] - ended["start"], ended["duration"])
    assert started["server"].unique().sort().to_list() == [0, 1, 2]
    for j, name in enumerate(result.type_names):
        waits = started.filter(pl.col("type") == name).select(pl.col("start") - pl.col("arrival")).to_series()
        assert len(waits) == run.wait_sums[j, COUNT]
        assert waits.sum() == pytest.approx(run.wait_sums[j, SUM])
    plain = slotwise.simulate(made, "best-fit")
    assert plain.runs[1].mean_queue == run.mean_queue
    with pytest.raises(slotwise.InputError, match="no jobs were recorded"):
        plain.jobs()
    with pytest.raises(slotwise.InputError, match="no replication 7"):
        result.jobs(7)


def test_no_server_holds_more_than_it_can(scenario: Make) -> None:
    """By the record alone, with failing servers that throw jobs back."""
    cluster = {
        "servers": [
            {"name": "s", "count": 3, "capacity": [10], "failures": {"mean_time_between": 30, "mean_repair": 3}}
        ]
    }
    made = scenario({}, [(5, 1.5), (2, 3)], cluster=cluster, run={"events": 6000, "replications": 1, "warmup": 0})
    result = slotwise.simulate(made, "first-fit", record_jobs=True)
    assert result.runs[0].lost_jobs > 10
    jobs = (
        result.jobs().drop_nulls("start").with_columns(size=pl.when(pl.col("type") == "type0").then(5).otherwise(2))
    )
    for server in range(3):
        here = jobs.filter(pl.col("server") == server)
        ups = here.select(time="start", by="size")
        downs = here.drop_nulls("end").select(time="end", by=-pl.col("size"))
        level = pl.concat([ups, downs]).sort("time", "by")["by"].cum_sum()
        assert level.max() <= 10  # type: ignore[operator]
        assert level.min() >= 0  # type: ignore[operator]


def test_as_a_trace_it_gives_the_same_waits_again(scenario: Make, tmp_path: Path) -> None:
    made = scenario({"five": (1, 5)}, [(1, 3), (2, 0.5)], run={"jobs": 2000, "replications": 1, "warmup": 0})
    result = slotwise.simulate(made, "fifo", record_jobs=True)
    trace = result.trace()
    write_trace(trace, tmp_path / "jobs.parquet")
    again = read_trace(tmp_path / "jobs.parquet")
    assert len(window(again, jobs=100)) == 100
    assert set(again.frame["demand.units"].unique()) == {1.0, 2.0}
    workload = {"trace": str(tmp_path / "jobs.parquet"), "typing": {"method": "exact"}}
    replayed = slotwise.simulate(
        slotwise.model.parse_scenario(
            {
                "cluster": {"resources": ["units"], "servers": [{"name": "five", "count": 1, "capacity": [5]}]},
                "workload": workload,
                "run": {"warmup": 0},
            }
        ),
        "fifo",
        record_jobs=True,
    )
    assert len(replayed.runs) == 1  # nothing is left to chance, so once is enough
    first, second = result.jobs(), replayed.jobs()
    shifted = second["arrival"] + first["arrival"][0]
    assert np.allclose(first["arrival"], shifted)
    both = first["start"].is_not_null() & second["start"].is_not_null()
    assert both.sum() > 1900
    assert np.allclose(
        (first["start"] - first["arrival"]).filter(both), (second["start"] - second["arrival"]).filter(both)
    )


def test_a_clock_counts_as_chance(scenario: Make) -> None:
    made = scenario({"ten": (3, 10)}, [(5, 3), (2, 6)], run={"events": 4000, "replications": 1})
    run = slotwise.simulate(made, "g16").runs[0]
    assert run.ticks > 0
    assert run.drew
    assert not slotwise.simulate(made, "best-fit").runs[0].drew

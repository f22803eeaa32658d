"""A trace whose types have one size each needs no index of waiting jobs, and decides the same without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slotwise.model import Scenario, parse_scenario
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task, replicate
from slotwise.simulation.run.workload import jobs_of
from slotwise.workloads.traces import Trace, TraceMeta, write_trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng, n = np.random.default_rng(3), 2000
    frame = pl.DataFrame(
        {
            "arrival": np.sort(rng.uniform(0, 2000, n)),
            "duration": rng.exponential(12, n),
            "demand.cpu": rng.choice([1.0, 2.0, 3.0, 5.0, 16.0], n, p=[0.4, 0.3, 0.2, 0.08, 0.02]),
            "demand.memory": rng.choice([2.0, 16.0], n),
        }
    )
    write_trace(Trace(frame, TraceMeta("test", ("cpu", "memory"), {})), tmp_path / "trace.parquet")
    return tmp_path / "trace.parquet"


def scenario(path: Path, servers: int, method: str) -> Scenario:
    server = {"name": "n", "count": servers, "capacity": [16, 64]}
    return parse_scenario(
        {
            "cluster": {"resources": ["cpu", "memory"], "servers": [server]},
            "workload": {"trace": str(path), "typing": {"method": method}},
            "run": {"replications": 1, "seed": 1},
        }
    )


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("policy", ["guarded", "best-fit", "first-fit", "tetris", "kubernetes-most-allocated"])
def test_the_same_waits_with_the_index_and_without(path: Path, policy: str, servers: int) -> None:
    made = scenario(path, servers, "exact")
    jobs = jobs_of(made)
    assert jobs.alike
    with_none, with_one = (
        replicate(Task(made, replace(jobs, alike=alike), Choice(policy, {}))) for alike in (True, False)
    )
    assert with_none.events == with_one.events
    assert np.array_equal(with_none.wait_bins, with_one.wait_bins)
    assert np.array_equal(with_none.wait_sums, with_one.wait_sums)
    assert with_none.wait_sums[:, 0].sum() > 0


def test_jobs_that_ask_for_less_than_their_type_are_not_alike(path: Path) -> None:
    assert not jobs_of(scenario(path, 3, "power-of-two")).alike

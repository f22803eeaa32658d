"""One seed gives one result: whatever the number of workers, the engine, the sizes of chunks, the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import slotwise
from slotwise.model import parse_scenario
from slotwise.policies.fit.fitting import Fifo
from slotwise.simulation.judge.statistics import student_interval
from slotwise.simulation.measure.measurements import Measurements
from slotwise.simulation.run import replication

POLICIES = ["algorithm1", "m14", "g16", "best-fit", "fifo", "easy-backfill"]
EVENTS = 800

TABLES: dict[str, Any] = {
    "cluster": {
        "resources": ["cpu", "memory"],
        "servers": [
            {"name": "a", "count": 3, "capacity": [6, 8]},
            {
                "name": "b",
                "count": 2,
                "capacity": [9, 5],
                "failures": {"mean_time_between": 10, "mean_repair": 5},
            },
        ],
        "events": [
            {"at": 5, "action": "join", "servers": "b"},
            {"at": 15, "action": "drain", "servers": "a"},
        ],
    },
    "types": [
        {"name": "large", "demand": [4, "2.5"], "rate": 2.5},
        {"name": "small", "demand": [1, 1], "rate": 14, "service": {"law": "lognormal", "sigma": 1}},
    ],
    "run": {"events": EVENTS, "replications": 2, "seed": 11},
}


def figures(run: Measurements) -> dict[str, Any]:
    """Every figure but the time the run took, floats as hexadecimal text."""

    def text(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [text(item) for item in value.tolist()]
        if isinstance(value, list):
            return [text(item) for item in value]
        return value.hex() if isinstance(value, float) else value

    return {name: text(value) for name, value in vars(run).items() if name not in ("seconds", "setup")}


def run_all(workers: int | None = None) -> dict[str, list[dict[str, Any]]]:
    comparison = slotwise.compare(parse_scenario(TABLES), POLICIES, workers=workers)
    return {result.policy: [figures(run) for run in result.runs] for result in comparison.results}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[dict[str, Any]]]:
    return run_all(workers=1)


def test_runs_differ_between_replications_and_between_seeds(expected: dict[str, Any]) -> None:
    """Else the equalities below would say nothing."""
    for runs in expected.values():
        assert runs[0]["mean_queue"] != runs[1]["mean_queue"]
        assert float.fromhex(runs[0]["mean_queue"]) > 0
    other = slotwise.simulate(parse_scenario({**TABLES, "run": {"events": EVENTS, "seed": 12}}), "fifo")
    assert other.runs[0].mean_queue.hex() != expected["fifo"][0]["mean_queue"]


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers(expected: dict[str, Any], workers: int) -> None:
    assert run_all(workers) == expected


@pytest.mark.parametrize("sizes", [(1, 1), (7, 3), (100_000, 100_000)])
def test_any_size_of_chunks(
    expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int]
) -> None:
    monkeypatch.setattr(replication, "CHUNK", sizes[0])
    monkeypatch.setattr(replication, "FIRST_CHUNK", sizes[1])
    assert run_all() == expected


def test_little_room_at_first(expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that must grow again and again decides the same."""
    real = replication.Store

    def small(*arguments: Any, **options: Any) -> Any:
        return real(*arguments, **{**options, "max_jobs": 2})

    monkeypatch.setattr(replication, "Store", small)
    assert run_all() == expected


SCRIPT = """
import json, sys, types
module = types.ModuleType("test_same")
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), module.__dict__)
json.dump(module.run_all(), sys.stdout)
"""


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="the compiler is off here already")
def test_without_the_compiler(expected: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, __file__],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == expected


def test_dask_on_two_processes(expected: dict[str, Any]) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, protocol="tcp"
    ) as cluster:
        for policy in ("algorithm1", "fifo"):
            result = slotwise.simulate(
                parse_scenario(TABLES), policy, engine="dask", scheduler_address=cluster.scheduler_address
            )
            assert [figures(run) for run in result.runs] == expected[policy]


def test_policies_meet_the_same_jobs() -> None:
    """Common random numbers: what arrives is the same, so differences are known better than the figures themselves."""
    base = slotwise.load_scenario("table1", ["run.until=400", "run.replications=8", "workload.intensity=0.93"])
    comparison = slotwise.compare(base, ["best-fit", "first-fit", "fifo"])
    arrivals = [[run.arrivals for run in result.runs] for result in comparison.results]
    assert arrivals[0] == arrivals[1] == arrivals[2]
    best, first, _ = ([run.mean_queue for run in result.runs] for result in comparison.results)
    paired = comparison.difference("first-fit", "best-fit")
    separate = np.hypot(student_interval(best).half_width, student_interval(first).half_width)  # type: ignore[arg-type]
    assert paired.half_width is not None
    assert paired.half_width < 0.5 * separate
    assert paired.mean == pytest.approx(np.mean(first) - np.mean(best))


def test_a_policy_of_ones_own_gets_the_same_jobs(expected: dict[str, Any]) -> None:
    class Mine(Fifo):
        name = "mine"

    result = slotwise.simulate(parse_scenario(TABLES), Mine)
    assert result.policy == "mine"
    assert [{**figures(run), "policy": "fifo"} for run in result.runs] == expected["fifo"]

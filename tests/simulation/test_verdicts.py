"""The cluster that was tried: each answer right, or said to be open. Runs of the length that the workload asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import slotwise
from slotwise.cli.main import build
from slotwise.model import parse_scenario
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.run import sequential
from slotwise.simulation.run.workload import jobs_of
from slotwise.theory import erlang

FILE = Path(__file__).with_name("ours.toml")
CLUSTER: dict[str, Any] = {
    "name": "ours",
    "cluster": {
        "resources": ["cpu", "memory", "gpu"],
        "servers": [
            {"name": "cpu-node", "count": 40, "capacity": [64, 256, 0]},
            {"name": "highmem", "count": 8, "capacity": [96, 1536, 0]},
            {"name": "gpu-node", "count": 6, "capacity": [48, 512, 8]},
        ],
    },
    "types": [
        {"name": "web", "demand": [2, 4, 0], "rate": 90, "mean_service": 6.0},
        {"name": "batch-small", "demand": [8, 16, 0], "rate": 60, "mean_service": 1.5},
        {"name": "batch-large", "demand": [32, 128, 0], "rate": 6, "mean_service": 3.0},
        {"name": "database", "demand": [16, 256, 0], "rate": 0.5, "mean_service": 48.0},
        {"name": "train", "demand": [12, 128, 4], "rate": 0.6, "mean_service": 12.0},
        {"name": "notebook", "demand": [4, 32, 1], "rate": 4, "mean_service": 3.0},
    ],
}


def test_twenty_thousand_events_are_too_short_and_it_says_why() -> None:
    for seed in (1, 2, 3):
        made = parse_scenario({**CLUSTER, "run": {"events": 20_000, "seed": seed, "replications": 3}})
        result = slotwise.simulate(made)
        assert result.verdict is Stability.TOO_SHORT
        assert "database runs 48 on average: too short to judge" in result.why
        assert result.certified
        assert result.as_dict()["stable"] is None


def test_the_length_fits_the_workload() -> None:
    jobs = jobs_of(parse_scenario(CLUSTER))
    events = sequential.first_events(jobs)
    assert events / 2 / jobs.rate == pytest.approx(20 * 48, rel=0.01)


def test_left_open_it_runs_until_it_is_clear_and_precise() -> None:
    made = parse_scenario(
        {
            "cluster": {"resources": ["r"], "servers": [{"name": "s", "count": 4, "capacity": [1]}]},
            "types": [{"name": "job", "demand": [1], "rate": 3.2}],
            "policy": {"name": "fifo"},
        }
    )
    result = slotwise.simulate(made)
    assert result.stable
    assert len(result.runs) >= 10
    queue = result.mean_queue
    assert queue.half_width is not None
    assert queue.half_width <= 0.1 * queue.mean
    assert queue.low < erlang.mean_queue(4, 3.2) < queue.high  # type: ignore[operator]
    wait = result.wait_interval("p95")
    true = erlang.wait_quantile(4, 3.2, 1.0, 0.95)
    assert wait.low <= true <= wait.high  # type: ignore[operator]
    again = slotwise.simulate(made, workers=1)
    assert [run.mean_queue for run in again.runs] == [run.mean_queue for run in result.runs]


def test_overload_and_starvation_have_verdicts_of_their_own() -> None:
    over = parse_scenario(
        {
            "cluster": {"resources": ["r"], "servers": [{"name": "s", "count": 4, "capacity": [1]}]},
            "types": [{"name": "job", "demand": [1], "rate": 4.24}],
            "policy": {"name": "fifo"},
            "run": {"events": 3000},
        }
    )
    result = slotwise.simulate(over)
    assert result.verdict is Stability.GROWS
    assert "outside what these servers can carry" in result.why
    # small jobs keep every server partly busy, so that best-fit never has room for one that takes a whole server
    blocked = parse_scenario(
        {
            "cluster": {"resources": ["r"], "servers": [{"name": "s", "count": 4, "capacity": [100]}]},
            "types": [
                {"name": "small", "demand": [1], "rate": 380},
                {"name": "whole", "demand": [100], "rate": 0.1},
            ],
            "policy": {"name": "best-fit"},
            "run": {"events": 80_000},
        }
    )
    result = slotwise.simulate(blocked)
    assert result.verdict is Stability.NEVER_STARTS
    assert "jobs of whole that came after the warm-up has started" in result.why
    assert result.still_waiting["whole"] > 10
    assert result.wait_by_type["whole"]["p95"] == float("inf")
    assert result.worst_type == "whole"


def test_figures_that_agree_with_each_other() -> None:
    made = parse_scenario({**CLUSTER, "run": {"events": 20_000, "replications": 3}})
    result = slotwise.simulate(made)
    slowdown = result.slowdown
    assert slowdown["p50"] == 1.0
    assert slowdown["mean"] >= slowdown["p50"]  # type: ignore[operator]
    queue = result.mean_queue
    assert 0 <= queue.low <= queue.mean <= queue.high  # type: ignore[operator]
    idle = parse_scenario({**CLUSTER, "run": {"events": 500, "replications": 2}})
    empty = slotwise.simulate(idle)
    if empty.mean_queue.mean == 0:
        assert empty.mean_queue.high >= empty.bound.mean_queue > 0  # type: ignore[operator]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("types.web.rate=1e308", "must be at most 1e+30"),
        ("types.web.rate=1e-308", "is 1e-308; use another unit of time"),
        ("types.web.mean_service=1e-308", "is 1e-308; use another unit of time"),
        ("types.web.demand=[1e30, 1, 0]", "has too many digits to be kept exactly"),
        ("cluster.servers.highmem.count=1000000000", "must be at most 1e+07"),
    ],
)
def test_odd_numbers_are_refused_in_one_line(setting: str, told: str) -> None:
    with pytest.raises(slotwise.InputError) as refused:
        slotwise.load_scenario(FILE, [setting])
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_exact_commands() -> None:
    """`slotwise simulate` and `capacity` on the file of the report."""
    told = CliRunner().invoke(build(["simulate"]), ["simulate", str(FILE), "--json"])
    assert told.exit_code == 0, told.output
    (found,) = json.loads(told.stdout)["results"]
    assert found["verdict"] == "too short"
    assert found["certified"]
    assert found["mean_queue"]["ci95"][0] >= 0
    assert found["worst_type"] in {one["name"] for one in CLUSTER["types"]}

"""No bound that a result carries is above what a policy was seen to do: a random suite of scenarios, and traces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slotwise.model import Scenario, parse_scenario
from slotwise.simulation.judge.statistics import student_interval
from slotwise.simulation.simulate import compare, simulate

POLICIES = ["algorithm1", "best-fit", "fifo"]
SERVICES: list[dict[str, Any]] = [
    {"law": "exponential"},
    {"law": "deterministic"},
    {"law": "hyperexponential", "probabilities": [0.5, 0.5], "means": [0.4, 1.6]},
    {"law": "lognormal", "sigma": 0.8},
]


def random_scenario(seed: int) -> Scenario:
    rng = np.random.default_rng(seed)
    J, R, C = int(rng.integers(1, 4)), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    servers = [
        {"name": f"s{c}", "count": int(rng.integers(1, 6)), "capacity": rng.integers(6, 12, R).tolist()}
        for c in range(C)
    ]
    means = rng.uniform(0.5, 2, J) if seed % 3 == 0 else np.ones(J)
    types = [
        {
            "name": f"t{j}",
            "demand": rng.integers(1, 6, R).tolist(),
            "rate": float(rng.uniform(0.2, 2)),
            "mean_service": float(means[j]),
        }
        for j in range(J)
    ]
    return parse_scenario(
        {
            "cluster": {"resources": [f"r{r}" for r in range(R)], "servers": servers},
            "types": types,
            "workload": {
                "intensity": float(rng.uniform(0.7, 0.92)),
                "service": SERVICES[0] if seed % 2 else SERVICES[int(rng.integers(4))],
            },
            "run": {"events": 12_000, "replications": 4, "seed": seed},
        }
    )


def test_no_bound_is_above_what_was_seen() -> None:
    kinds = set()
    for seed in range(10):
        results = compare(random_scenario(seed), POLICIES).results
        for result in results:
            seen = student_interval([run.mean_queue for run in result.runs], 0.998)
            assert seen.high is not None
            assert result.bound.mean_queue <= seen.high, (seed, result.policy, result.bound)
        kinds.add(results[0].bound.kind)
    assert len(kinds - {"none", "unstable"}) > 1  # the suite tries more than one kind


def test_the_clairvoyant_carry_no_size_blind_bound() -> None:
    blind, seeing = compare(
        "example1", ["best-fit", "easy-backfill"], overrides=["run.events=10000", "run.replications=1"]
    ).results
    assert blind.bound.kind == "workload"
    assert (seeing.bound.kind, seeing.bound.mean_queue) == ("none", 0.0)
    outside = simulate("example1", "easy-backfill", overrides=["run.events=10000", "types.large.rate=5"])
    assert outside.bound.kind == "unstable"  # this holds for every policy


def trace_scenario(count: int, **more: Any) -> Scenario:
    return parse_scenario(
        {
            "cluster": {
                "resources": ["cpu", "memory"],
                "servers": [{"name": "s", "count": count, "capacity": [1, 1]}],
                **more,
            },
            "workload": {"trace": "google-like"},
            "run": {"jobs": 4000, "replications": 2, "seed": 4},
        }
    )


@pytest.mark.parametrize("count", [20, 150])
def test_runs_of_a_trace_carry_the_srpt_bound(count: int) -> None:
    """Path by path: not even one run may lie below it, under any policy and however jobs are packed."""
    results = compare(trace_scenario(count), [*POLICIES, "easy-backfill", "tetris"]).results
    for result in results:
        assert result.bound.kind == "srpt"
        assert result.bound.mean_queue <= result.mean_queue.mean
    if count == 20:
        assert min(result.bound.mean_queue for result in results) > 1  # it says something


def test_no_bound_where_servers_come_and_go() -> None:
    events = [{"at": 10.0, "action": "join", "servers": "s"}]
    result = simulate(trace_scenario(20, events=events), "best-fit")
    assert result.bound.kind == "none"
    assert "join" in result.bound.assumptions[0]

"""What is read or worked out for a run is not read or worked out again to describe it."""

from __future__ import annotations

from typing import Any

import pytest

from slotwise.cli.tables import results_table
from slotwise.model import load_scenario
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.simulate import run_policies
from slotwise.theory import load
from slotwise.workloads import tracejobs


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    real, calls = getattr(module, name), []

    def call(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return real(*given, **named)

    monkeypatch.setattr(module, name, call)
    return calls


def test_a_trace_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario("google-like", ["run.jobs=200", "run.replications=1"])
    read = counted(monkeypatch, tracejobs, "jobs_from_trace")
    results = run_policies(scenario, [Choice.of(scenario, "fifo")])
    results_table(results, 200)
    assert len(read) == 1


def test_the_capacity_region_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario("example1", ["run.events=200", "run.replications=1"])
    made = counted(monkeypatch, load, "columns_of")
    from slotwise.simulation import simulate

    monkeypatch.setattr(simulate, "columns_of", load.columns_of)
    results = run_policies(scenario, [Choice.of(scenario, "fifo")])
    assert results[0].as_dict()["certified"] is False
    assert len(made) == 1

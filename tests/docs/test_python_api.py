"""What a user meets who types `slotwise.` in a notebook."""

from __future__ import annotations

from typing import Any

import pytest

import slotwise

QUICK = {"run.events": 2000, "run.replications": 2}


@pytest.fixture(scope="module")
def comparison() -> slotwise.Comparison:
    return slotwise.compare("table1", ["best-fit", "fifo"], overrides=QUICK)


def test_everything_public_is_found_by_completion() -> None:
    assert {"simulate", "compare", "capacity", "plan", "tradeoff", "read_trace", "Scheduler"} <= set(dir(slotwise))
    for name in slotwise.__all__:
        assert getattr(slotwise, name) is not None


def test_results_are_short_and_can_be_shown(comparison: Any) -> None:
    result = comparison["best-fit"]
    assert len(repr(result)) < 250
    assert "mean queue" in repr(result)
    assert len(repr(comparison)) < 600
    assert comparison._repr_html_().count("<tr>") == 3
    assert "<script" not in result._repr_html_()
    assert result.by_type().height == 3
    assert comparison.by_type().select("policy", "type").n_unique() == 6
    assert result.to_pandas().shape == (2, result.frame().width)
    assert list(comparison.to_pandas()["policy"]) == ["best-fit"] * 2 + ["fifo"] * 2
    for picture in (result.plot(), comparison.plot()):
        assert picture._repr_svg_().startswith("<svg")
    with pytest.raises(slotwise.InputError, match="no policy 'nope' was compared; there are: best-fit, fifo"):
        comparison["nope"]


def test_names_are_escaped() -> None:
    text = slotwise.load_scenario("example1").model_copy(update={"name": "<b>x</b>"})
    assert "&lt;b&gt;" in slotwise.capacity(text)._repr_html_()


def test_capacity_and_plan_can_be_shown() -> None:
    found = slotwise.capacity("table1", {"workload.intensity": 0.8})
    assert len(repr(found)) < 250
    assert "25.0% to spare" in str(found)
    assert found.by_type()["type"].to_list() == ["standard", "high-memory", "high-cpu"]
    assert found.to_pandas().shape == (3, 5)
    assert "<svg" in found.plot()._repr_svg_()
    plan = slotwise.plan("example1", {"mean_queue": 500}, "best-fit", overrides=QUICK, looks=1)
    assert len(repr(plan)) < 700
    assert plan.frame().height == len(plan.tried) == plan.to_pandas().shape[0]
    assert "<table" in plan._repr_html_()
    assert "<svg" in plan.plot()._repr_svg_()


def test_a_scheduler_in_a_line_and_a_table() -> None:
    scenario = slotwise.load_scenario("example1")
    scheduler = slotwise.Scheduler.from_scenario(scenario)
    assert repr(scheduler) == "<Scheduler algorithm1: 1 server, 0 running, 0 waiting>"
    assert "waiting: large" not in scheduler._repr_html_()
    scheduler.submit("a", "large")
    scheduler.submit("b", "large")
    assert repr(scheduler) == "<Scheduler algorithm1: 1 server, 1 running, 1 waiting>"
    assert "waiting: large" in scheduler._repr_html_()
    empty = scenario.cluster.model_copy(
        update={"servers": tuple(c.model_copy(update={"count": 0}) for c in scenario.cluster.servers)}
    )
    numbered = slotwise.Scheduler(empty, scenario.types, "fifo")
    for number in (7, 8):
        numbered.add_server(number, empty.servers[0].name)
    numbered.submit("a", "large")
    assert repr(numbered) == "<Scheduler fifo: 2 servers, 1 running, 0 waiting>"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"run.evnts": 3}, "run.evnts: unknown key; did you mean events?"),
        ({"cluster.servers.nope.count": 3}, "overrides: cluster.servers.nope.count: there is no 'nope'"),
        (["run.events"], "overrides: run.events: is not a setting"),
    ],
)
def test_errors_speak_python(overrides: Any, message: str) -> None:
    with pytest.raises(slotwise.InputError) as caught:
        slotwise.simulate("table1", overrides=overrides)
    assert message in str(caught.value)
    assert "--set" not in str(caught.value)


def test_overrides_of_a_scenario_that_is_there() -> None:
    scenario = slotwise.load_scenario("table1")
    changed = slotwise.simulate(scenario, "fifo", overrides={**QUICK, "cluster.servers.standard.count": 30})
    named = slotwise.simulate("table1", "fifo", overrides={**QUICK, "cluster.servers.standard.count": 30})
    assert changed.mean_queue == named.mean_queue
    assert changed.scenario.cluster.n_servers == 30

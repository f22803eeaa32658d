"""Plans against queueing theory, on traces, with prices; their JSON and their page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from slotwise.cli.plan import plan as command
from slotwise.cli.plan import plan_view
from slotwise.errors import InputError, SlotwiseError
from slotwise.model import Failures, Scenario, parse_scenario
from slotwise.planning import TargetAnswer, plan
from slotwise.planning.targets import measure
from slotwise.simulation.simulate import simulate
from slotwise.theory import erlang

APP = typer.Typer()
APP.command()(command)


def many(rate: float, mean_service: float = 1.0, events: int = 60_000, **server: Any) -> Scenario:
    """M/M/n: one job fills a server."""
    return parse_scenario(
        {
            "name": "many",
            "cluster": {"resources": ["r"], "servers": [{"name": "s", "count": 1, "capacity": [1], **server}]},
            "types": [{"name": "job", "demand": [1], "rate": rate, "mean_service": mean_service}],
            "policy": {"name": "fifo"},
            "run": {"events": events, "seed": 3},
        }
    )


@pytest.mark.parametrize(("rate", "mean_service", "answer"), [(2.0, 1.0, 4), (8.0, 1.0, 11), (20.0, 2.5, 56)])
def test_mean_wait_agrees_with_erlang(rate: float, mean_service: float, answer: int) -> None:
    """The target is halfway between the waits of two numbers of servers, so that there is a right answer."""
    waits = [erlang.mean_wait(n, rate, mean_service) for n in (answer - 1, answer)]
    target = math.sqrt(waits[0] * waits[1])
    found = plan(many(rate, mean_service), {"mean_wait": target})
    assert found.servers == {"s": answer}
    assert found.best.estimates is not None
    estimate = found.best.estimates["mean_wait"]
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low <= waits[1] <= estimate.high <= target


@pytest.mark.parametrize(("rate", "answer"), [(3.0, 6), (12.0, 17)])
def test_p95_wait_agrees_with_erlang(rate: float, answer: int) -> None:
    """No bound speaks about quantiles, so this is decided by simulation alone."""
    waits = [erlang.wait_quantile(n, rate, 1.0, 0.95) for n in (answer - 1, answer)]
    target = (waits[0] + waits[1]) / 2
    found = plan(many(rate), {"p95_wait": target})
    assert found.servers == {"s": answer}
    less = found.neighbour
    assert less is not None
    assert less.servers == (answer - 1,)
    assert less.verdict in (TargetAnswer.MISSES, TargetAnswer.DOUBT)
    assert f"{answer} s servers meet p95 wait at most" in found.statement


def test_utilisation_is_exact() -> None:
    """10 jobs in service on average: at most 62.5 % takes exactly 16 servers, whatever the noise."""
    found = plan(many(10.0, events=5_000), {"utilisation": 0.625})
    assert found.servers == {"s": 16}
    assert found.limit.cost == pytest.approx(16)
    assert plan(many(10.0, events=5_000), {"utilisation": 0.62}).servers == {"s": 17}


def test_several_targets_are_all_met() -> None:
    loose, tight = {"mean_queue": 5.0}, {"utilisation": 0.5}
    both = plan(many(10.0, events=10_000), loose | tight)
    assert both.servers["s"] == 20 > plan(many(10.0, events=10_000), loose).servers["s"]


def test_rates_do_not_move_with_the_servers() -> None:
    """An intensity fixes the rates on the scenario's own cluster; more servers then carry the same load."""
    found = plan("table1", {"p95_wait": 0.05}, "best-fit", overrides=["run.events=20000"])
    assert 18 <= found.servers["standard"] <= 24
    assert found.limit.servers[0] == pytest.approx(17.8)
    twice = plan("table1", {"p95_wait": 0.05}, "best-fit", overrides=["run.events=20000"], workers=1)
    assert twice.as_dict() == found.as_dict()


TWO: dict[str, Any] = {
    "name": "two",
    "cluster": {
        "resources": ["cpu"],
        "servers": [
            {"name": "small", "count": 10, "capacity": [4], "price": 1.0},
            {"name": "large", "count": 2, "capacity": [16], "price": 3.5},
        ],
    },
    "types": [{"name": "one", "demand": [1], "rate": 20}, {"name": "eight", "demand": [8], "rate": 2}],
    "policy": {"name": "best-fit"},
    "run": {"events": 20_000},
}


def test_two_classes_take_the_cheapest_mix() -> None:
    found = plan(parse_scenario(TWO), {"mean_wait": 0.1})
    assert found.cheapest
    assert found.cost == pytest.approx(found.servers["small"] + 3.5 * found.servers["large"])
    assert found.cost > found.limit.cost
    assert found.servers["large"] >= 2  # eights fit nowhere else, and one large server is full of them
    # every cheaper mix is ruled out by a trial above it, or by theory
    failed = [trial.servers for trial in found.tried if not trial.meets]
    for large in range(2, 5):
        small = math.ceil(round((found.cost - 3.5 * large) / 1.0, 9)) - 1
        if small >= 0 and not any(a >= small and b >= large for a, b in failed):
            queue = simulate(_with(small, large)).mean_queue
            assert queue.low is not None
            assert not simulate(_with(small, large)).stable or queue.mean > 0.1 * 22
    assert "at a cost of" in found.statement
    assert "no cheaper mix was found to" in found.statement


def _with(small: int, large: int) -> Scenario:
    cluster = TWO["cluster"]
    servers = [{**cluster["servers"][0], "count": small}, {**cluster["servers"][1], "count": large}]
    return parse_scenario({**TWO, "cluster": {**cluster, "servers": servers}})


def test_dear_classes_are_not_bought() -> None:
    dear = parse_scenario(
        {
            **TWO,
            "cluster": {
                **TWO["cluster"],
                "servers": [{**TWO["cluster"]["servers"][0], "price": 9.0}, TWO["cluster"]["servers"][1]],
            },
        }
    )
    found = plan(dear, {"mean_wait": 0.5})
    assert found.servers["small"] == 0
    assert found.cost == 3.5 * found.servers["large"]


def test_prices_are_all_or_none() -> None:
    servers = [{**TWO["cluster"]["servers"][0], "price": None}, TWO["cluster"]["servers"][1]]
    half_priced = parse_scenario({**TWO, "cluster": {**TWO["cluster"], "servers": servers}})
    with pytest.raises(InputError, match=r"\(small\)\.price: has no price, but others have"):
        plan(half_priced, {"mean_wait": 0.1})
    with pytest.raises(InputError, match="is 0, so any number would do"):
        plan(many(1.0, price=0.0), {"mean_wait": 0.1})
    with pytest.raises(InputError, match="confidence: is 1"):
        plan(many(1.0), {"mean_wait": 0.1}, confidence=1.0)


def test_a_trace_is_planned_as_it_was() -> None:
    scenario = parse_scenario(
        {
            "name": "day",
            "cluster": {"resources": ["cpu", "memory"], "servers": [{"name": "s", "count": 1, "capacity": [1, 1]}]},
            "workload": {"trace": "google-like"},
            "policy": {"name": "best-fit"},
            "run": {"jobs": 4000, "seed": 2},
        }
    )
    found = plan(scenario, {"p95_wait": 300.0})
    n = found.servers["s"]
    assert "this very trace" in found.statement
    assert found.as_dict()["lower_limit"]["proven"] is False
    for count, meets in ((n, True), (n - 1, False)):
        cluster = scenario.cluster.model_copy(
            update={"servers": (scenario.cluster.servers[0].model_copy(update={"count": count}),)}
        )
        result = simulate(scenario.model_copy(update={"cluster": cluster}))
        assert all((measure(run, "p95_wait") <= 300.0) == meets for run in result.runs)


@pytest.mark.slow
def test_the_google_window(tmp_path: Path) -> None:
    shared = Path(__file__).parents[3] / "shared" / "traces" / "google2011"
    if not shared.is_dir():
        pytest.skip("no ../shared/traces/google2011")
    from slotwise.workloads.traces.formats import import_to_file

    parts = sorted((shared / "task_events").glob("part-0000[0-1]*"))
    import_to_file("google2011", parts, tmp_path / "google.parquet")
    scenario = parse_scenario(
        {
            "cluster": {
                "resources": ["cpu", "memory"],
                "servers": [{"name": "unit", "count": 1, "capacity": [1, 1]}],
            },
            "workload": {"trace": str(tmp_path / "google.parquet")},
            "policy": {"name": "best-fit"},
        }
    )
    found = plan(scenario, {"p95_wait": 60.0})
    assert found.servers["unit"] > 10
    assert "nothing is left to chance" in found.statement  # best-fit draws no random number
    assert found.best.replications == 1
    assert found.neighbour is not None
    assert found.neighbour.servers == (found.servers["unit"] - 1,)


def test_json_has_what_a_program_needs() -> None:
    result = CliRunner().invoke(
        APP,
        [
            *("table1", "--target", "mean_queue=5", "-t", "p95_wait=1", "--policy", "best-fit", "--json"),
            *("--set", "run.events=20000"),
        ],
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["targets"] == {"mean_queue": 5.0, "p95_wait": 1.0}
    assert found["confidence"] == 0.95
    assert found["servers"] == {"standard": int(found["cost"])}
    assert found["lower_limit"] == {
        "servers": {"standard": pytest.approx(17.8)},
        "cost": pytest.approx(17.8),
        "proven": True,
    }
    chosen = [one for one in found["tried"] if one["servers"] == found["servers"]]
    assert len(chosen) == 1
    assert chosen[0]["verdict"] == "meets"
    assert chosen[0]["replications"] >= 4
    for key, limit in found["targets"].items():
        estimate = chosen[0]["estimates"][key]
        assert estimate["low"] <= estimate["mean"] <= estimate["high"] <= limit
    assert "Intensity" in found["statement"]
    assert found["certified"] is False


def test_the_page_fits_eighty_columns() -> None:
    found = plan("table1", {"p95_wait": 0.5, "mean_queue": 20}, overrides=["run.events=20000"])
    console = Console(width=80)
    with console.capture() as capture:
        console.print(plan_view(found, 80))
    page = capture.get()
    assert "…" not in page
    assert max(map(len, page.splitlines())) <= 80
    flat = " ".join(page.split())
    assert found.statement in flat
    assert "least for the load, by a linear program: 17.8 standard" in flat


def test_servers_that_fail_prove_nothing() -> None:
    """Each is away half of the time, so theory on the full cluster is no limit and the answer is about twice."""
    steady = many(6.0, events=20_000)
    server = steady.cluster.servers[0].model_copy(
        update={"failures": Failures(mean_time_between=20.0, mean_repair=20.0)}
    )
    flaky = steady.model_copy(update={"cluster": steady.cluster.model_copy(update={"servers": (server,)})})
    found = plan(flaky, {"mean_wait": 0.5})
    assert not found.firm
    assert found.as_dict()["lower_limit"]["proven"] is False
    assert found.servers["s"] > 1.5 * plan(steady, {"mean_wait": 0.5}).servers["s"]
    assert "ruled out by theory" not in found.statement


def test_a_policy_that_draws_is_run_again_on_a_trace() -> None:
    scenario = parse_scenario(
        {
            "cluster": {"resources": ["cpu", "memory"], "servers": [{"name": "s", "count": 1, "capacity": [1, 1]}]},
            "workload": {"trace": "google-like"},
            "run": {"jobs": 1500, "seed": 2},
        }
    )
    found = plan(scenario, {"mean_queue": 20.0}, "random-fit")
    assert found.best.replications >= 4
    assert "95% confidence covers the policy's own random choices" in found.statement


def test_from_what_one_owns() -> None:
    """Six more than four: the same ten servers as from scratch, and nothing where there are enough."""
    made = many(8.0)
    four = made.model_copy(
        update={
            "cluster": made.cluster.model_copy(
                update={"servers": (made.cluster.servers[0].model_copy(update={"count": 4}),)}
            )
        }
    )
    scratch = plan(four, {"mean_wait": 0.3})
    kept = plan(four, {"mean_wait": 0.3}, keep=True)
    assert kept.servers == scratch.servers
    assert kept.more == {"s": scratch.servers["s"] - 4}
    assert "more than there are" in kept.statement
    assert "Intensity" in kept.statement
    enough = plan(four, {"mean_wait": 0.3}, least={"s": 20})
    assert enough.more == {"s": 0}
    with pytest.raises(SlotwiseError, match="out of reach"):
        plan(four, {"mean_wait": 0.3}, most={"s": 8})
    with pytest.raises(InputError, match="no server class is called 'big'"):
        plan(four, {"mean_wait": 0.3}, most={"big": 8})
    with pytest.raises(InputError, match="no type is called 'jobb'; use one of: job"):
        plan(four, {"jobb.p95_wait": 0.3})

"""`slotwise capacity`: the record, the JSON and the page."""

from __future__ import annotations

import json

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from slotwise.cli.capacity import capacity
from slotwise.errors import InputError
from slotwise.model import Scenario, load_scenario, parse_scenario
from slotwise.theory.capacity import Capacity, assess
from slotwise.theory.rendering import render
from slotwise.workloads.tracejobs import jobs_from_trace

APP = typer.Typer()
APP.command()(capacity)


def page(width: int, name: str, *overrides: str) -> str:
    return printed(Console(width=width), assess(load_scenario(name, overrides)))


def printed(console: Console, found: Capacity) -> str:
    with console.capture() as capture:
        console.print(render(found))
    return capture.get()


def test_json_is_complete_and_plain() -> None:
    result = CliRunner().invoke(APP, ["table1", "--json", "--set", "workload.intensity=0.8"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["intensity"] == pytest.approx(0.8)
    assert found["supportable"] is True
    assert found["exact"] is True
    assert found["headroom"] == pytest.approx(0.25)
    # five jobs fill a server, but storage holds no more than two that are not high-memory
    assert found["types"]["high-memory"]["headroom"]["rate"] == pytest.approx(100 * 0.2)
    assert found["types"]["high-cpu"]["headroom"]["rate"] == pytest.approx(40 - 0.8 * 80 / 3)
    assert found["types"]["standard"]["price"] == pytest.approx(0.01)
    mix = found["witness"][0]["mix"]
    assert sum(one["share"] for one in mix) == pytest.approx(1)
    assert {"standard": 2, "high-memory": 3} in [one["configuration"] for one in mix]
    own = found["guarantees"][0]
    assert (own["policy"], own["verdict"]) == ("algorithm1", "certified")
    assert {"text", "holds", "detail"} == set(own["assumptions"][0])
    assert found["lower_bound"] == {
        "mean_queue": pytest.approx(0.0786, abs=1e-4),
        "kind": "erlang-c",
        "assumptions": found["lower_bound"]["assumptions"],
    }


def test_json_outside_has_no_infinite_numbers() -> None:
    found = assess(load_scenario("table1", ["workload.intensity=1.2"])).as_dict()
    assert json.loads(json.dumps(found, allow_nan=False))["lower_bound"]["mean_queue"] is None
    assert {one["verdict"] for one in found["guarantees"]} == {"impossible"}
    stuck = parse_scenario(
        {
            "cluster": {
                "resources": ["cpu"],
                "servers": [{"name": "s", "count": 2, "capacity": [4]}, {"name": "b", "count": 0, "capacity": [8]}],
            },
            "types": [{"name": "a", "demand": [5], "rate": 1}, {"name": "c", "demand": [1], "rate": 1}],
        }
    )
    found = assess(stuck).as_dict()
    assert found["intensity"] is None
    assert found["supportable"] is False
    json.dumps(found, allow_nan=False)
    assert "a type that arrives fits no server" in " ".join(printed(Console(width=80), assess(stuck)).split())


@pytest.mark.parametrize("width", [80, 120])
def test_the_page_fits_and_says_it_in_words(width: int) -> None:
    text = page(width, "table1")
    assert max(len(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    assert "This load can be carried: its intensity is 0.89" in flat
    assert "can grow by 12.4%" in flat
    assert "33.3% 2 standard + 3 high-memory" in flat
    assert "…" not in text  # nothing is cut off
    outside = " ".join(page(width, "table1", "workload.intensity=1.1").split())
    assert "No policy can carry this load: its intensity is 1.1" in outside
    assert "every policy impossible" in outside


def trace_scenario(count: int, trace: str = "google-like") -> Scenario:
    return parse_scenario(
        {
            "cluster": {
                "resources": ["cpu", "memory"],
                "servers": [{"name": "s", "count": count, "capacity": [1, 1]}],
            },
            "workload": {"trace": trace},
            "run": {"jobs": 4000},
        }
    )


def test_the_load_of_a_trace_is_measured() -> None:
    scenario = trace_scenario(1000)
    found = assess(scenario)
    jobs = jobs_from_trace(scenario)
    assert found.region.rho == pytest.approx(jobs.rates * jobs.mean_service)
    chunk = jobs.open(np.random.SeedSequence(1)).next(10_000)
    assert len(chunk) == 4000
    assert chunk.demand is not None
    asked = (chunk.duration @ chunk.demand) / 10.0 ** np.array(jobs.sizes.digits) * jobs.rate / len(chunk)
    assert found.actual == pytest.approx({"cpu": asked[0] / 1000, "memory": asked[1] / 1000})
    assert max(found.actual.values()) < found.region.intensity  # types round up
    plain = found.as_dict()
    assert plain["trace"] == "google-like"
    assert plain["actual_load"] == found.actual
    assert plain["supportable"] is True
    assert {one["verdict"] for one in plain["guarantees"]} == {"not certified"}
    assert "trace" in plain["guarantees"][0]["why"]


def test_a_trace_outside_rules_out_only_who_packs_by_type() -> None:
    found = assess(trace_scenario(1))
    verdicts = {one.policy: one.verdict for one in found.guarantees}
    assert verdicts["algorithm1"] == "impossible"
    assert verdicts["best-fit"] == "not certified"
    assert "outside the capacity region" in " ".join(printed(Console(width=80), found).split())


def test_a_trace_that_is_not_there_is_one_line() -> None:
    with pytest.raises(InputError, match=r"jobs\.parquet: is not there"):
        assess(trace_scenario(2, "jobs.parquet"))

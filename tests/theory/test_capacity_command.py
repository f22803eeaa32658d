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
from slotwise.theory.answer import answer
from slotwise.theory.capacity import Capacity, assess
from slotwise.theory.rendering import render
from slotwise.workloads.tracejobs import jobs_from_trace

APP = typer.Typer()
APP.command()(capacity)


def page(width: int, name: str, *overrides: str) -> str:
    return printed(Console(width=width), assess(load_scenario(name, overrides)))


def printed(console: Console, found: Capacity, proofs: bool = True) -> str:
    with console.capture() as capture:
        console.print(render(found, proofs))
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
    assert (own["policy"], own["verdict"]) == ("algorithm1", "certified under assumptions")
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


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_page_fits_and_says_it_in_words(width: int) -> None:
    text = page(width, "table1")
    assert max(len(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    assert "The cluster carries this load with 12.4% to spare (intensity 0.89; 1 is the most" in flat
    if width > 40:
        assert "33.3% 2 standard + 3 high-memory" in flat
    assert "…" not in text  # nothing is cut off
    outside = " ".join(page(width, "table1", "workload.intensity=1.1").split())
    assert "No policy can carry this load (intensity 1.1): it must shrink by 9.1%, or the cluster grow." in outside
    assert "impossible" in outside


def test_the_answer_comes_first_in_a_few_lines() -> None:
    short = printed(Console(width=160), assess(load_scenario("table1", ())), proofs=False)
    lines = short.splitlines()
    assert len(lines) <= 8
    assert "to spare" in lines[1]
    assert "bottleneck" in lines[2]
    assert lines[3].startswith("algorithm1 is proven to keep queues bounded up to intensity 0.9")
    for internal in ("hull", "vertices", "q(s)", "corollary", "e-0", "e-1", "e-3"):
        assert internal not in short


CLUSTER = {
    "resources": ["cpu", "gpu"],
    "servers": [
        {"name": "plain", "count": 10, "capacity": [64, 0]},
        {"name": "gpu-node", "count": 2, "capacity": [32, 8]},
    ],
}


def test_the_bottleneck_is_named() -> None:
    types = [
        {"name": "web", "demand": [2, 0], "rate": 50},
        {"name": "train", "demand": [4, 1], "rate": 13},
    ]
    text = " ".join(answer(assess(parse_scenario({"cluster": CLUSTER, "types": types}))))
    assert "gpu is the bottleneck; of the load on it: train 100%" in text
    assert "with 23.1% to spare" in text  # 16 of them fit
    # two fit a server of 64 and one a server of 32, so a quarter stays empty
    halves = [{"name": "half", "demand": [24, 0], "rate": 10}]
    text = " ".join(answer(assess(parse_scenario({"cluster": CLUSTER, "types": halves}))))
    assert "The bottleneck is how jobs fit together: at most 75% of the cpu can be in use" in text


def test_bounds_that_say_nothing_are_not_told() -> None:
    web = [{"name": "web", "demand": [2, 0], "rate": 50}]
    found = assess(parse_scenario({"cluster": CLUSTER, "types": web}))
    assert 0 < found.bound.mean_queue < 1e-6
    assert "mean queue below" not in printed(Console(width=100), found)


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

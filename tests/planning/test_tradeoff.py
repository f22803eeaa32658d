"""Beta and solver: what is proven rises with beta, and what is recommended is proven and short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from slotwise.cli.tradeoff import tradeoff as command
from slotwise.cli.tradeoff import tradeoff_view
from slotwise.display.numbers import measured
from slotwise.errors import InputError
from slotwise.model import parse_scenario
from slotwise.planning import Tradeoff, tradeoff
from slotwise.planning.figure import draw

APP = typer.Typer()
APP.command()(command)
QUICK = ["run.events=20000", "run.replications=3"]


@pytest.fixture(scope="module")
def example1() -> Tradeoff:
    return tradeoff("example1", betas=(0.5, 0.9, 0.98), overrides=QUICK)


def test_the_guarantee_rises_with_beta(example1: Tradeoff) -> None:
    shares: dict[str, list[float]] = {}
    for setting in example1.settings:
        if setting.share is not None:
            shares.setdefault(setting.solver, []).append(setting.share)
    assert shares["auto"] == pytest.approx([0.5, 0.9, 0.98])  # the whole region, times beta
    assert shares["greedy"] == sorted(shares["greedy"])
    assert all(weak < strong for weak, strong in zip(shares["greedy"], shares["auto"], strict=True))
    assert "greedy-fill" not in shares  # beta < r does not hold for any of these
    assert {s.why for s in example1.settings if s.share is None} != {""}


def test_what_is_recommended_is_proven_and_short(example1: Tradeoff) -> None:
    assert example1.intensity == pytest.approx(0.89)
    assert [(s.solver, s.beta) for s in example1.proven] == [("auto", 0.9), ("auto", 0.98)]
    best = example1.recommended
    assert (best.solver, best.beta) == ("auto", 0.98)
    assert "Use b = 0.98, solver = auto (proven below intensity 0.98" in example1.statement


def test_outside_every_guarantee_it_says_so() -> None:
    found = tradeoff("example1", betas=(0.5, 0.7), solvers=("auto",), overrides=QUICK)
    assert found.proven == ()
    assert "no setting is proven at this load: the most is 0.7" in found.statement


def test_a_load_below_what_is_proven_is_never_called_unproven() -> None:
    """The cluster that was tried: at 0.85, with settings proven up to 0.98, it said "no setting is proven at this load: the most is 0.98"."""
    ours = Path(__file__).parents[1] / "simulation" / "ours.toml"
    told = json.loads(CliRunner().invoke(APP, [str(ours), "--set", "run.events=20000", "--json"]).stdout)
    shares = [one["guarantee"] or 0.0 for one in told["settings"]]
    assert told["intensity"] < 0.9 < max(shares)
    assert "no setting is proven" not in told["statement"]
    assert "the most is" not in told["statement"]
    best = next(
        one
        for one in told["settings"]
        if one["solver"] == told["recommended"]["solver"] and one["b"] == told["recommended"]["b"]
    )
    assert best["guarantee"] > told["intensity"]
    assert best["verdict"] != "grows"


@pytest.mark.parametrize(
    "workload", [{"arrivals": {"law": "lognormal"}}, {"profile": {"period": 5, "rates": [1, 2]}}]
)
def test_what_the_theorems_need_is_said(workload: dict[str, object]) -> None:
    tables = {
        "cluster": {"resources": ["cpu"], "servers": [{"name": "n", "count": 4, "capacity": [3]}]},
        "types": [{"name": "a", "demand": [1], "rate": 6}],
        "workload": workload,
        "run": {"events": 5000, "replications": 2},
    }
    found = tradeoff(parse_scenario(tables), betas=(0.9,), solvers=("auto",))
    assert "proven below intensity 0.9, were its arrivals Poisson, with the load at 0.5" in found.statement


def test_a_constant_beta_stays_one() -> None:
    found = tradeoff("example1", betas=(0.6, 0.9), solvers=("auto",), overrides=[*QUICK, "policy.beta=0.5"])
    assert [setting.key for setting in found.settings] == ["beta", "beta"]
    assert [setting.share for setting in found.settings] == pytest.approx([0.6, 0.9])


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="best-fit has no beta to choose"):
        tradeoff("example1", "best-fit")
    with pytest.raises(InputError, match="beta: is 1; use numbers between 0 and 1"):
        tradeoff("example1", betas=(1.0,))
    with pytest.raises(InputError, match="nothing to try"):
        tradeoff("example1", betas=())


def test_json_and_figure(tmp_path: Path) -> None:
    figure = tmp_path / "t.svg"
    arguments = ["example1", "--beta", "0.8,0.95", "--solver", "auto", "--json", "--figure", str(figure)]
    result = CliRunner().invoke(APP, [*arguments, "--set", "run.events=20000"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [one["b"] for one in found["settings"]] == [0.8, 0.95]
    assert [one["guarantee"] for one in found["settings"]] == pytest.approx([0.8, 0.95])
    assert found["recommended"] == {"b": 0.95, "solver": "auto"}
    text = figure.read_text()
    assert "recommended: b = 0.95, solver = auto" in text
    with pytest.raises(InputError, match="no picture format"):
        draw(tradeoff("example1", betas=(0.9,), solvers=("auto",), overrides=QUICK), tmp_path / "t.doc")


def test_the_page_fits_eighty_columns(example1: Tradeoff) -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(tradeoff_view(example1, 80))
    page = capture.get()
    assert "…" not in page
    assert example1.statement in " ".join(page.split())


def test_intervals_are_told_by_their_ends(example1: Tradeoff) -> None:
    """They are not symmetric, so a half-width beside the mean would mislead."""
    console = Console(width=140)
    with console.capture() as capture:
        console.print(tradeoff_view(example1, 140))
    for setting in example1.settings:
        queue = setting.result.mean_queue
        assert f"{measured(queue.low)} to {measured(queue.high)}" in capture.get()


def test_a_trace_says_that_it_is_not_poisson() -> None:
    scenario = parse_scenario(
        {
            "cluster": {
                "resources": ["cpu", "memory"],
                "servers": [{"name": "s", "count": 2000, "capacity": [1, 1]}],
            },
            "workload": {"trace": "google-like"},
            "run": {"jobs": 2000, "replications": 2},
        }
    )
    found = tradeoff(scenario, betas=(0.9,), solvers=("auto",))
    assert "were its arrivals Poisson" in found.statement
    assert 0 < found.intensity < 1

"""The experiments end to end, in small; sweeps; and the two commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slotwise.cli.main import main
from slotwise.errors import InputError
from slotwise.experiments import compiling
from slotwise.experiments import reproduce as module
from slotwise.experiments.beyond import KNOBS
from slotwise.experiments.examples import swings
from slotwise.experiments.experiment import Order
from slotwise.experiments.points import Points
from slotwise.experiments.reproduce import EXPERIMENTS, chosen, reproduce
from slotwise.experiments.settings import FULL, SHOWN, Scale, changed, table1
from slotwise.experiments.sweep import SweepCell, sweep
from slotwise.experiments.traces import offered_load, scenario_of, srpt_bound, window_of
from slotwise.policies import POLICIES, make_policy
from slotwise.report.blocks import Figure, Section, Table
from slotwise.simulation.run import ahead
from slotwise.simulation.simulate import simulate
from slotwise.workloads.generators import google_like
from slotwise.workloads.tracejobs import jobs_of_trace
from slotwise.workloads.traces import tools

SMALL = Scale(events=1500, replications=1, trace_jobs=1500, trace_replications=1, settings=2)


def small(name: str) -> Section:
    return EXPERIMENTS[name].run(Order(SMALL))


def test_the_scale_is_the_papers() -> None:
    assert FULL.run("algorithm1").events == 200_000
    assert FULL.run("g16").events == 400_000
    assert FULL.run("m14").warmup == 0.25
    assert FULL.run("m14").replications == 5
    assert FULL.trace_jobs == 1_000_000
    assert FULL.trace_replications == 3
    assert FULL.run("g16", until=5.0).events is None
    assert Scale(settings=3).thinned([1, 2, 3, 4, 5]) == [1, 3, 5]
    assert {"algorithm1", "m14", "g16", "best-fit"} <= set(SHOWN)


def test_sweep_is_simulate_whatever_the_workers() -> None:
    cells = [
        SweepCell(
            changed(table1(20, 0.85), run=SMALL.run(policy)), policy, {"z": 0.02} if policy == "algorithm1" else {}
        )
        for policy in ("algorithm1", "best-fit")
    ]
    heard: list[float] = []
    one, two = sweep(cells, heard.append, workers=1), sweep(cells, workers=2)
    for cell, a, b in zip(cells, one, two, strict=True):
        alone = simulate(cell.scenario, cell.policy, **cell.options)
        assert [run.mean_queue for run in a.runs] == [run.mean_queue for run in b.runs]
        assert all(x.same_as(y) for x, y in zip(a.runs, alone.runs, strict=True))
        assert a.bound == alone.bound
    assert heard == sorted(heard)
    assert heard[-1] == pytest.approx(1.0)


def test_on_a_trace_a_policy_that_draws_nothing_is_run_once() -> None:
    order = Order(replace(SMALL, trace_jobs=2_000, trace_replications=3))
    trace, _ = window_of(order)
    first = scenario_of(1, trace, order)
    jobs = jobs_of_trace(trace, first.cluster, first.workload.typing)
    heard: list[float] = []
    cells = [
        SweepCell(scenario_of(6, trace, order, name), name, jobs=jobs) for name in ("best-fit", "g16", "algorithm1")
    ]
    results = sweep(cells, heard.append)
    assert [len(result.runs) for result in results] == [3 if result.runs[0].drew else 1 for result in results]
    assert [len(result.runs) for result in results][:2] == [1, 3]
    assert heard[-1] == pytest.approx(1.0)


def test_what_is_shown_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(compiling.POLICIES) >= set(SHOWN)
    asked: list[str] = []
    monkeypatch.setattr(ahead, "compile_pieces", asked.extend)
    compiling.compile_ahead()
    assert ahead.LOOP in asked
    for name in compiling.POLICIES:
        arrive = POLICIES[name].arrive
        assert f"{arrive.__module__}:{arrive.__qualname__}" in asked


def test_sweep_sees_mistakes_first() -> None:
    with pytest.raises(InputError, match="unknown option"):
        sweep([SweepCell(table1(20, 0.8), "algorithm1", {"bb": 1})])


def test_swings() -> None:
    assert swings(np.tile([1.0, 10.0], 6)) == 5  # the last high is not followed by a low
    assert swings(np.full(10, 3.0)) == 0


@pytest.mark.parametrize("name", ["example1", "example2", "servers", "intensity", "arrivals", "google", "beyond"])
def test_each_experiment_in_small(name: str) -> None:
    section = small(name)
    assert section.name == name
    figures = [block for block in section.blocks if isinstance(block, Figure)]
    assert figures
    assert all(panel.alt and panel.svg.startswith("<svg") for figure in figures for panel in figure.panels)
    assert all(block.data.height > 0 for block in figures)


def test_the_google_claim_is_shown_under_several_readings() -> None:
    tables = {block.name: block for block in small("google").blocks if isinstance(block, Table)}
    readings, pairs = tables["google-readings"].data, tables["google-pairs"].data
    for name, policy in (
        ("never stalls", "algorithm1"),
        ("a queue for each server", "m14"),
        ("alpha = 0.1", "g16"),
    ):
        assert readings.filter(reading=name)["policy"].unique().to_list() == [policy]
    queues = {name: frame["mean_queue"].to_list() for (name,), frame in readings.group_by("reading")}
    assert queues["never stalls"] == pytest.approx(queues["common queues"]), "without stalls it is M14"
    assert pairs.height == 6
    assert (pairs["best_at"] <= pairs["of"]).all()


def test_one_of_the_values_tried_is_the_default() -> None:
    usual = make_policy("algorithm1").options
    for knob, (_, values) in KNOBS.items():
        assert values.count(getattr(usual, knob)) == 1, knob


def test_google_bound_is_below_every_policy() -> None:
    trace = tools.scale(google_like(4000, 2), 50.0)
    order = Order(SMALL)
    scenario = scenario_of(1, trace, order)
    jobs = jobs_of_trace(trace, scenario.cluster, scenario.workload.typing)
    servers = round(0.5 * offered_load(jobs))
    bound = srpt_bound(trace, servers, 0.25)
    assert bound.mean_queue > 0
    cells = [SweepCell(scenario_of(servers, trace, order), policy, jobs=jobs) for policy in SHOWN]
    assert all(point.mean >= bound.mean_queue for point in Points.of(cells, sweep(cells)).all)


def test_the_same_seed_gives_the_same_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", SMALL)
    names = ["example2", "arrivals"]
    found = [reproduce(names, quick=True, out=tmp_path / str(n), workers=n) for n in (1, 2)]
    assert found[0].claims == found[1].claims
    files = sorted(path.name for path in (tmp_path / "1" / "data").iterdir())
    assert "example2-series.csv" in files
    assert "arrivals-counts.parquet" in files
    for name in files:
        assert (tmp_path / "1" / "data" / name).read_bytes() == (tmp_path / "2" / "data" / name).read_bytes()
    text = [(tmp_path / str(n) / "index.html").read_text().partition('<section id="manifest">')[0] for n in (1, 2)]
    assert text[0] == text[1]
    other = reproduce(names, quick=True, out=tmp_path / "3", seed=2)
    assert [claim.evidence for claim in other.claims] != [claim.evidence for claim in found[0].claims]


def test_unknown_experiment() -> None:
    assert [experiment.name for experiment in chosen([])] == list(EXPERIMENTS)
    assert [experiment.name for experiment in chosen(["google", "example1"])] == ["example1", "google"]
    with pytest.raises(InputError, match="no experiment is called"):
        chosen(["example3"])


def test_reproduce_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "QUICK", SMALL)
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "example2", "--quick", "--out", str(tmp_path / "r")])
    assert end.value.code == 0
    shown = capsys.readouterr()
    assert shown.out.rstrip().endswith(f"report: {tmp_path / 'r' / 'index.html'}")
    assert "Example 2: G16" in shown.out
    assert "example2 (1 of 1): 100 %" in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "nothing"], "no experiment is called 'nothing'"),
        (["reproduce", "google", "--trace", "google2011"], "is not FORMAT=DIR"),
        (["reproduce", "google", "--trace", "google2011=/no/such/folder"], "there is no folder /no/such/folder"),
        (["reproduce", "google", "--trace", "other=."], "no experiment uses a trace 'other'"),
        (["compare", "table1", "--policy", "m14"], "needs two policies"),
        (["compare", "table1", "--policy", "m14,m15"], "no policy is called"),
    ],
)
def test_bad_input(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--out", str(tmp_path / "r")])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_compare_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c"
    arguments = [
        "compare",
        "example1",
        "--policy",
        "algorithm1,m14,best-fit",
        "--set",
        "run.events=3000",
        "--set",
        "run.replications=2",
    ]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--out", str(out)])
    assert end.value.code == 0
    assert f"report: {out / 'index.html'}" in capsys.readouterr().out
    results = pl.read_csv(out / "data" / "results.csv")
    assert results["policy"].unique(maintain_order=True).to_list() == ["algorithm1", "m14", "best-fit"]
    assert results.height == 6
    tails = pl.read_parquet(out / "data" / "wait-tail.parquet")
    shares = tails.filter(policy="best-fit")["share_above"].to_numpy()
    assert (np.diff(shares) <= 0).all()
    p95 = simulate("example1", "best-fit", overrides=["run.events=3000", "run.replications=2"]).wait["p95"]
    assert p95 is not None
    beyond = tails.filter((pl.col("policy") == "best-fit") & (pl.col("wait") >= p95))["share_above"][0]
    assert beyond == pytest.approx(0.05, abs=0.005)
    with pytest.raises(SystemExit):
        main(arguments)
    assert "report:" not in capsys.readouterr().out


def test_real_google_trace_in_small() -> None:
    folder = Path(__file__).parents[3] / "shared" / "traces" / "google2011"
    if not folder.is_dir():
        pytest.skip("the Google trace is not at ../shared/traces/google2011")
    section = EXPERIMENTS["arrivals"].run(Order(SMALL, {"google2011": folder}))
    assert "ClusterData2011_2, as given" in section.blocks[0].text  # type: ignore[union-attr]

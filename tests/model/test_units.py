"""Units of time and of resources: read, checked, and shown wherever a figure is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slotwise.cli.main import main
from slotwise.errors import InputError, SlotwiseWarning
from slotwise.model import changed, load_scenario, time_in
from slotwise.planning.targets import parse_targets
from slotwise.simulation.simulate import simulate
from slotwise.workloads.traces import Trace, TraceMeta, write_trace

HOURS = """
time_unit = "h"

[cluster]
resources = ["cpu", "memory"]
units = { memory = "GB" }
servers = [{ name = "node", count = 3, capacity = [4, 8] }]

[[types]]
name = "web"
demand = [1, 2]
rate = 9.5

[run]
events = 3000
replications = 2
"""


@pytest.fixture
def hours(tmp_path: Path) -> Path:
    path = tmp_path / "hours.toml"
    path.write_text(HOURS)
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints on a terminal that is wide enough."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("30min", "h", 0.5),
        ("2 d", "h", 48.0),
        ("0.5", "h", 0.5),
        ("1e3ms", "s", 1.0),
        ("7h", "h", 7.0),
        ("7", None, 7),
    ],
)
def test_times_are_read_in_the_scenario_s_unit(text: str, unit: str | None, value: float) -> None:
    assert time_in(text, unit, where="here") == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("30min", None, "here: is in min, and the scenario does not say its own unit of time; give time_unit"),
        ("3 weeks", "h", "here: 'weeks' is no unit of time; use one of: ms, s, min, h, d"),
        ("soon", "h", "here: 'soon' is not a number; give a limit"),
        ("", "h", "here: '' is not a number"),
    ],
)
def test_what_is_no_time_is_one_clear_line(text: str, unit: str | None, message: str) -> None:
    with pytest.raises(InputError) as refused:
        time_in(text, unit, where="here")
    assert message in str(refused.value)


def test_targets_take_units_where_they_are_times() -> None:
    assert parse_targets(["p95_wait=30min", "web.max_wait=1d"], "h") == {"p95_wait": 0.5, "web.max_wait": 24.0}
    with pytest.raises(InputError, match=r"--target mean_queue: '3h' is not a number"):
        parse_targets(["mean_queue=3h"], "h")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("time_unit=fortnight",), "time_unit: is 'fortnight'; use one of: 'ms', 's', 'min', 'h' or 'd'"),
        (("cluster.units.disk=GB",), "cluster.units.disk: no resource is called 'disk'; use some of: cpu, memory"),
        (("types.web.demand=[1, 9]",), "it asks for 9 GB of memory, the largest server has 8"),
    ],
)
def test_mistakes(hours: Path, change: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_scenario(hours, change)
    assert message in str(refused.value)


def test_a_unit_and_a_scale_are_not_both_given(tmp_path: Path) -> None:
    path = tmp_path / "both.toml"
    path.write_text(HOURS.split("[[types]]")[0] + '[workload]\ntrace = "jobs.parquet"\ntime_scale = 60\n')
    with pytest.raises(InputError, match=r"workload\.time_scale: is given beside time_unit; remove it"):
        load_scenario(path)


def test_tables_sentences_and_json_have_the_unit(
    hours: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    table = said(capsys, "simulate", str(hours))
    assert table.count("wait (h)") == 4
    short = " ".join(said(capsys, "simulate", str(hours), "--set", "run.events=60").split())
    assert re.search(r"[\d.]+ h were simulated, and \w+ runs [\d.]+ h on average: too short to judge", short)
    assert "per h: " in said(capsys, "capacity", str(hours))
    assert "arrivals per h; load" in said(capsys, "capacity", str(hours), "--proofs")
    plan = said(capsys, "plan", str(hours), "-t", "p95_wait=30min")
    assert "p95 wait ≤ 0.5 h" in plan
    assert "p95 wait (h)" in plan
    assert "p95 wait at most 0.5 h" in " ".join(plan.split())
    assert "units of time" not in plan
    for words in (["simulate"], ["capacity"], ["plan", "-t", "p95_wait=30min"]):
        found = json.loads(said(capsys, words[0], str(hours), *words[1:], "--json"))
        assert (found["time_unit"], found["units"]) == ("h", {"memory": "GB"})


def test_reports_and_figures_have_the_unit(hours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "simulate", str(hours), "--out", str(tmp_path / "report"))
    page = (tmp_path / "report" / "index.html").read_text()
    for words in ("times in", "mean wait (h)", "longest (h)"):
        assert words in page
    result = simulate(hours)
    assert " h, p95 wait" in str(result)
    assert "mean wait (h)" in result._repr_html_()
    assert [axes.get_xlabel() for axes in result.plot().axes] == ["time (h)", "wait (h)"]


def test_without_a_unit_nothing_is_added(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    table = said(capsys, "simulate", "example1", "--set", "run.events=2000", "--set", "run.replications=1")
    assert "wait (" not in table
    assert "per unit of time: " in said(capsys, "capacity", "example1")
    assert not {"time_unit", "units"} & set(json.loads(said(capsys, "capacity", "example1", "--json")))


def test_the_unit_does_not_change_a_figure(hours: Path) -> None:
    with_unit = simulate(hours)
    without = simulate(load_scenario(hours).model_copy(update={"time_unit": None}))
    assert with_unit.runs[0].same_as(without.runs[0])
    assert changed(load_scenario(hours), {"run.seed": 2}).time_unit == "h"


def test_a_trace_is_read_in_the_unit(tmp_path: Path) -> None:
    arrival = np.arange(0.0, 36_000.0, 60.0)
    frame = pl.DataFrame({"arrival": arrival, "duration": np.full(len(arrival), 1800.0), "demand.cpu": 1.0})
    write_trace(Trace(frame, TraceMeta("test", ("cpu",), units={"cpu": "core"}), "t"), tmp_path / "t.parquet")
    text = '[cluster]\nresources = ["cpu"]\nservers = [{ name = "n", count = 40, capacity = [1] }]\n'
    path = tmp_path / "t.toml"
    path.write_text('time_unit = "h"\n' + text + '[workload]\ntrace = "t.parquet"\n')
    from slotwise.simulation.run.workload import jobs_of

    jobs = jobs_of(load_scenario(path))
    assert jobs.longest_service == pytest.approx(0.5)
    assert jobs.rate == pytest.approx(60.0, rel=0.01)
    other = load_scenario(path, ["cluster.units={ cpu = 'thread' }"])
    with pytest.warns(SlotwiseWarning, match="counts cpu in 'core', and cluster.units in 'thread'"):
        jobs_of(other)

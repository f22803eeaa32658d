"""The check of new figures against the committed ones, and that the models that are raced are the same models."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from benchmarks.policies.suite import labelled_scenario, random_scenario, suite

from benchmarks import __main__ as bench
from benchmarks import growth, results, solvers
from slotwise.theory import columns_of, region_of

MACHINE = {"processor": "A", "cores": 2, "system": "Linux x86_64", "time": "2026-01-01", "python": "3.11"}


def of(value: float, unit: str, **machine: Any) -> results.Results:
    row = {"name": "a figure", "value": value, "unit": unit, "detail": ""}
    return {"machine": MACHINE | machine, "rows": [row]}


@pytest.mark.parametrize(
    ("unit", "then", "now", "worse"),
    [
        ("events/s", 100, 81, False),
        ("events/s", 100, 79, True),
        ("events/s", 100, 300, False),
        ("times", 50, 39, True),
        ("of the speed with 20", 0.5, 0.39, True),
        ("s", 8, 9.9, False),
        ("s", 8, 10.1, True),
        ("ns", 8, 2, False),
        ("MB", 8, 10.1, True),
        ("of what was asked for", 0.1, 9.0, False),  # no speed
        ("", 0.1, 9.0, False),
    ],
)
def test_a_fifth_of_the_speed_may_go(unit: str, then: float, now: float, worse: bool) -> None:
    warnings, summary = results.compare(of(now, unit), of(then, unit))
    assert len(warnings) == worse
    if worse:
        assert warnings[0].startswith("a figure: ")
        assert "1 lost more than 20%" in summary


def test_the_warning_says_how_much() -> None:
    warnings, _ = results.compare(of(20, "s"), of(10, "s"))
    assert warnings == ["a figure: 20 s, was 10: 50% slower"]


@pytest.mark.parametrize("key", results.SAME_MACHINE)
def test_another_machine_is_not_compared(key: str) -> None:
    warnings, summary = results.compare(of(1, "events/s", **{key: "other"}), of(100, "events/s"))
    assert warnings == []
    assert summary.startswith("cannot compare")
    assert f"{key} {MACHINE[key]}, here other" in summary


def test_other_versions_are_compared() -> None:
    assert results.compare(of(1, "events/s", python="3.13"), of(100, "events/s"))[0]


def test_figures_that_came_or_went_are_left_alone() -> None:
    now, before = of(1, "events/s"), of(100, "events/s")
    now["rows"][0]["name"] = "a new figure"
    assert results.compare(now, before) == (
        [],
        "0 figures compared with results.json of 2026-01-01: none lost more than 20%",
    )
    changed = of(1, "s")
    assert results.compare(changed, before)[0] == []  # another unit: another figure


def test_written_and_read(tmp_path: Path) -> None:
    found = of(1.5, "s")
    results.write(copy.deepcopy(found), tmp_path / "deep" / "r.json")
    assert results.read(tmp_path / "deep" / "r.json") == found
    assert results.read(tmp_path / "none.json") is None


def test_the_command_measures_checks_and_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one made-up benchmark in place of all."""

    class Fake:
        value = 100.0

        @classmethod
        def run(cls) -> list[dict[str, Any]]:
            return [{"name": "fake", "value": cls.value, "unit": "events/s", "detail": "", "goal": "at least 50", "met": cls.value > 50}]  # fmt: skip

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "MODULES", ("fake",))
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "results.json")
    monkeypatch.setattr(results.read, "__defaults__", (tmp_path / "results.json",))
    monkeypatch.setattr(bench.importlib, "import_module", lambda name: Fake)
    assert bench.main(["--check"]) == 0
    assert "there is no results.json" in capsys.readouterr().err
    assert bench.main(["--save"]) == 0
    Fake.value = 40.0
    assert bench.main(["--check"]) == 1
    out, err = capsys.readouterr()
    assert "MISSED" in out
    assert "WARNING fake: 40 events/s, was 100: 60% slower" in err
    saved = results.read(tmp_path / "results.json")
    assert saved is not None
    assert saved["rows"][0]["value"] == 100.0
    assert {"processor", "cores", "system", "python", "numba", "time"} <= set(saved["machine"])
    with pytest.raises(SystemExit) as refused:
        bench.main(["fake", "--save"])
    assert refused.value.code == 2
    with pytest.raises(SystemExit):
        bench.main(["moon"])


def test_the_growing_scenarios_are_what_they_say() -> None:
    made = growth.scenario(30, 4, 1000, 1)
    assert (len(made.types), len(made.cluster.resources), made.cluster.n_servers) == (30, 4, 200)
    assert growth.scenario(30, 4, 1000, 1) == made


def test_every_server_of_the_solvers_benchmark_holds_something() -> None:
    for space in solvers.servers().values():
        assert all(space.feasible([int(i == j) for i in range(space.n_types)]) for j in range(space.n_types))


def test_the_labelled_scenarios_bar_types_from_classes() -> None:
    entries = suite(labelled=True)
    barred = 0
    for entry in entries[:8]:
        scenario = entry.scenario
        spaces = [pricing.space for pricing in columns_of(scenario).pricings]
        fits = [[(space.demand[j] <= space.capacity).all() for j in range(space.n_types)] for space in spaces]
        barred += sum(
            may and not space.most(j) for space, row in zip(spaces, fits, strict=True) for j, may in enumerate(row)
        )
        assert region_of(scenario).intensity == pytest.approx(scenario.workload.intensity)
    assert barred > 8
    first = entries[0].scenario
    assert labelled_scenario(7000) == first
    assert [t.demand for t in random_scenario(7000).types] == [t.demand for t in first.types]

"""`slotwise trace`, as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slotwise.cli.trace import app
from slotwise.errors import InputError
from slotwise.workloads.traces import Trace, read_trace, write_trace

CSV = "arrival,duration,demand.cpu\n0,10,1\n5,x,1\n7,20,2\n"


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_import_refuses_bad_rows_or_counts_them(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(CSV)
    out = tmp_path / "jobs.parquet"
    with pytest.raises(InputError, match=r"jobs\.csv:3: text in a number"):
        run("import", "csv", tmp_path / "jobs.csv", "-o", out)
    assert not out.exists()
    result = CliRunner().invoke(app, ["import", "csv", str(tmp_path / "jobs.csv"), "-o", str(out), "--skip-bad"])
    assert result.exit_code == 0
    assert "skipped as bad: 1 text in a number" in result.stderr
    assert result.stdout == ""
    assert len(read_trace(out)) == 2


def test_import_maps_columns(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("when,long,cores\n1,1,1\n2,2,2\n")
    maps = ["--map", "arrival=when", "--map", "duration=long", "--map", "demand.cpu=cores"]
    run("import", "csv", tmp_path / "jobs.csv", "-o", tmp_path / "t.parquet", *maps, "--time-unit", "h")
    assert read_trace(tmp_path / "t.parquet").duration.tolist() == [3600.0, 7200.0]
    with pytest.raises(InputError, match="'arrival' has no value"):
        run("import", "csv", tmp_path / "jobs.csv", "-o", tmp_path / "t.parquet", "--map", "arrival")


def test_summary_in_words_in_json_and_as_a_figure(small: Trace, tmp_path: Path) -> None:
    write_trace(small, tmp_path / "small.parquet")
    words = run("summary", tmp_path / "small.parquet", "--figure", tmp_path / "small.svg")
    assert all(heading in words for heading in ("offered", "in servers", "peak in"))
    assert "burstiness" in words
    assert (tmp_path / "small.svg").stat().st_size > 1000
    facts = json.loads(run("summary", tmp_path / "small.parquet", "--json", "--capacity", "cpu=2"))
    assert facts["jobs"] == 400
    assert facts["load_in_servers"]["cpu"] == pytest.approx(facts["load"]["cpu"] / 2)


def test_tools_write_traces(small: Trace, tmp_path: Path) -> None:
    source = tmp_path / "small.parquet"
    write_trace(small, source)

    def made(*words: object) -> Trace:
        run(*words, "-o", tmp_path / "out.parquet")
        return read_trace(tmp_path / "out.parquet")

    assert len(made("window", source, "--jobs", 30)) == 30
    assert 100 < len(made("thin", source, 0.5)) < 300
    assert made("scale", source, "--time", 2).span == 2 * small.span
    assert len(made("concat", source, source)) == 800
    assert len(made("bootstrap", source, 1000)) == 1000
    assert len(made("generate", "google-like", "--jobs", 500, "--seed", 2)) == 500
    run("split", source, "-o", tmp_path / "parts")
    assert len(list((tmp_path / "parts").glob("*.parquet"))) == 3
    with pytest.raises(InputError, match="no generator 'moon-like'"):
        run("generate", "moon-like", "-o", tmp_path / "x.parquet")


def test_types_in_words_and_json(small: Trace, tmp_path: Path) -> None:
    write_trace(small, tmp_path / "small.parquet")
    assert "bottleneck" in run("types", tmp_path / "small.parquet", "-k", 3)
    types = json.loads(run("types", tmp_path / "small.parquet", "--method", "power-of-two", "--json"))
    assert types["types"][1] == {**types["types"][1], "name": "1/2", "demand": ["0.5"]}
    assert set(types["waste"]) == {"cpu", "memory", "total", "bottleneck"}


def test_compare_in_words_in_json_and_as_a_figure(small: Trace, tmp_path: Path) -> None:
    write_trace(small, tmp_path / "small.parquet")
    run("scale", tmp_path / "small.parquet", "--duration", 2, "-o", tmp_path / "long.parquet")
    words = ["compare", tmp_path / "small.parquet", tmp_path / "long.parquet"]
    near = json.loads(run(*words, "--json", "--figure", tmp_path / "both.svg"))
    assert near["mix_distance"] == 0.0
    assert near["rate_ratio"] == pytest.approx(1.0)
    assert near["load_ratio"] == {"cpu": pytest.approx(2.0), "memory": pytest.approx(2.0)}
    assert list(near["duration_ratio"].values()) == pytest.approx([2.0] * 7)
    assert (tmp_path / "both.svg").stat().st_size > 1000
    assert "distance of the type mix" in run(*words)

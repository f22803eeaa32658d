"""What a newcomer's mistakes are answered with, and help without types of Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotwise.cli.main import COMMANDS, SECTIONS, main

GOOD = """
[cluster]
resources = ["cpu"]
servers = [{ name = "node", count = 1, capacity = [8] }]
[[types]]
name = "web"
demand = [2]
rate = 1
[run]
events = 2000
"""


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line that a refused command prints."""
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("slotwise: ")
    assert err.count("\n") == 1
    return err.removeprefix("slotwise: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", 'workload.service="exponential"'], 'workload.service: is \'exponential\'; write { law = "exponential" }'),
        (["--set", "types.web.demand=[1,2]"], "types[0] (web).demand: has 2 sizes for 1 resource; give one size for each of: cpu"),
        (["-p", "mine.py"], "policy mine.py: names no class; write mine.py:ClassName"),
        (["--engine", "dask", "--scheduler-address", "here"], "give its address, such as tcp://HOST:8786"),
        (["--wrong"], "see slotwise simulate --help"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_wrong_simulation_is_told_what_would_be_right(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(GOOD)
    assert complaint(capsys, "simulate", "mine.toml", *arguments).endswith(said)


def test_a_broken_scenario_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace('["cpu"]', '["cpu"'))
    assert complaint(capsys, "simulate", str(path)).endswith("(at line 4, column 1); correct this line")


def test_a_figure_that_cannot_be_written_is_refused_before_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(capsys, "tradeoff", "table1", "--figure", "x.gif") == (
        "x.gif: '.gif' is no picture format; use .svg, .png or .pdf"
    )


def test_a_certificate_that_is_not_there_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, "serve", "--local", "--certificate", "no.pem", "--key", "no.pem")
    assert said == "--certificate no.pem: there is no such file; name a PEM file"


def test_help_lists_each_command_once() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize(
    "command", ["simulate", "plan", "serve", "trace import", "trace window", "restore", "warm"]
)
def test_help_shows_no_types_of_python(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    out, _ = capsys.readouterr()
    assert out.startswith(f"Usage: slotwise {command} [OPTIONS]")
    assert not {"<", "{"} & set(out)
    assert "show this help" in out

"""What a person meets on a terminal: nothing is cut at any width, help is true, mistakes are one line, TAB completes."""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import slotwise
from slotwise.__main__ import main as command
from slotwise.cli import main as cli
from slotwise.cli.main import COMMANDS, build, main
from slotwise.simulation.run import ahead
from slotwise.workloads.generators import PROFILES
from slotwise.workloads.profiles import generate
from slotwise.workloads.traces import write_trace
from slotwise.workloads.traces.tools import scale

WIDTHS = (80, 60, 40)
JOBS = 5000
QUICK = ["--set", "run.events=2000", "--set", "run.replications=2"]

MINE = """
[cluster]
resources = ["cpu"]
servers = [{ name = "big", count = 2, capacity = [10] }]
[[types]]
name = "database"
demand = [3]
rate = 3
mean_service = 1.0
[run]
events = 2000
replications = 2
"""


def called(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scenario, a trace and a CSV."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "jobs.csv").write_text("submitted,duration,demand.cpu\n0,5,1\n3,7,2\n")
    trace = scale(generate(PROFILES["google-like"], JOBS, 1), 15)  # over some hours
    trace = type(trace)(trace.frame.with_columns(priority=(np.arange(JOBS) % 2).astype(np.int32)), trace.meta)
    for name in ("jobs", "monday", "tuesday", "imitation"):
        write_trace(trace, tmp_path / f"{name}.parquet")
    return tmp_path


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "example1", "-p", "m14,kubernetes-least-allocated", "--set", "run.events=60000"],
        ["compare", "example1", "-p", "m14,algorithm1", *QUICK],
        ["plan", "mine.toml", "-t", "p95_wait=2", "-t", "mean_queue=5", "-p", "best-fit"],
        ["tradeoff", "example1", "--beta", "0.8,0.95", "--solver", "auto,greedy-fill", *QUICK],
        ["capacity", "best-fit-trap"],
        ["policies"],
        ["policies", "guarded"],
        ["scenarios"],
        ["trace", "summary", "jobs.parquet", "--capacity", "cpu=1"],
        ["trace", "types", "jobs.parquet"],
        ["trace", "compare", "jobs.parquet", "monday.parquet"],
    ],
    ids=lambda arguments: "-".join(arguments[:2]) if isinstance(arguments, list) else None,
)
def test_nothing_is_cut(
    here: Path, arguments: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = called(capsys, *arguments)
    assert code == 0
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= width


def test_a_narrow_terminal_says_what_it_does_not_show(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _, narrow, _ = called(capsys, "simulate", "example1", *QUICK)
    monkeypatch.setenv("COLUMNS", "100")
    _, wide, _ = called(capsys, "simulate", "example1", *QUICK)
    assert "not shown" in narrow
    assert "not shown" not in wide
    assert all(heading in wide for heading in ("interval", "in use", "stalled", "verdict"))
    assert "verdict" in narrow


# -- help -------------------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and its path."""

    def below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(inner, f"{path} {name}")
        yield path, command

    yield from below(typer.main.get_command(build(list(COMMANDS))), "slotwise")


@pytest.mark.parametrize("path", [path for path, _ in commands()])
def test_help_fits_a_terminal(path: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = called(capsys, *path.split()[1:], "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: {path}")
    assert "..." not in out.split("Commands:")[-1] if "Commands:" in out else True  # no summary is cut
    assert max(map(len, out.splitlines())) <= 80


EXAMPLES = [
    line.strip()
    for _, command in commands()
    for line in inspect.cleandoc(command.help or "").partition("\b\n")[2].splitlines()[1:]
]


def test_commands_have_examples() -> None:
    assert len(EXAMPLES) > 15


# these start a service, talk to the one that listens on this machine, or read its store: never run here (tests/live
# runs its own)
LIVE = [
    line
    for line in EXAMPLES
    if COMMANDS[line.split()[1]].light
    or COMMANDS[line.split()[1]].module == "slotwise.cli.serve"
    or "--journal" in line
]
ALONE = [line for line in EXAMPLES if line not in LIVE and "DIR" not in line and line != "slotwise reproduce"]


@pytest.mark.parametrize("line", LIVE)
def test_examples_of_the_live_service_are_understood(line: str) -> None:
    """Commands, options and their values are right; nothing is done."""
    words = shlex.split(line.partition(" > ")[0])[1:]  # a redirection is the shell's
    command: Any = typer.main.get_command(build(list(COMMANDS)))
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(line, words)


@pytest.mark.parametrize("line", ALONE)
def test_examples_of_the_help_run(here: Path, line: str, capsys: Any) -> None:
    """As they stand but for shorter runs; those with DIR need data that is not here, and tests/experiments reproduces."""
    words = shlex.split(line)[1:]
    if "reproduce" in words:
        pytest.skip("tests/experiments/test_reproduce.py runs this")
    if "profile" in words:  # a day, or a week, takes a longer trace
        called(capsys, "trace", "scale", "jobs.parquet", "-o", "jobs.parquet", "--time", "60")
    if "import" in words:
        pass
    elif words[0] in ("simulate", "compare", "plan", "tradeoff"):
        words += QUICK
    code, out, err = called(capsys, *words)
    assert code == 0, err
    assert out or err


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compare", "mine.toml", "-p", "fifo,best-fit", "--out", "jobs.csv"], 2, "cannot be made a folder"),
        (["reproduce", "example1", "--quick", "--out", "jobs.csv"], 2, "cannot be made a folder"),
        (["simulate", "mine.toml", "--scheduler-address", "tcp://127.0.0.1:1"], 2, "is for Dask only"),
        (["simulate", "."], 2, "is a directory"),
        (["simulate", "jobs.parquet"], 2, "is not a text file"),
        (["simulat", "mine.toml"], 2, "Did you mean 'simulate'"),
        (["plan", "mine.toml", "-t", "p95_wait=1", "--confidence", "2"], 2, "confidence"),
        (["tradeoff", "mine.toml", "--beta", "a,b"], 2, "not a list of numbers"),
        (["trace", "summary", "jobs.parquet", "--capacity", "moon=1"], 2, "it has cpu, memory"),
        (["trace", "types", "jobs.parquet", "--capacity", "cpu=0"], 2, "capacities are above 0"),
        (["trace", "summary", "jobs.parquet", "--figure", "a.xyz"], 2, "use .svg, .png or .pdf"),
        (["trace", "summary", "jobs.parquet", "--figure", "none/a.svg"], 2, "cannot be written"),
        (["trace", "summary", "mine.toml"], 2, "is not a Parquet file"),
        (
            ["trace", "import", "csv", "jobs.csv", "-o", "none/x.parquet", "--map", "arrival=submitted"],
            2,
            "written",
        ),
    ],
)
def test_mistakes_are_one_line(here: Path, arguments: list[str], code: int, message: str, capsys: Any) -> None:
    found, out, err = called(capsys, *arguments)
    lines = [line for line in err.splitlines() if "compiling" not in line and not line.startswith("[")]
    assert (found, out) == (code, "")
    assert len(lines) == 1, err
    assert lines[0].startswith("slotwise: ")
    assert message in lines[0]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "slotwise: not enough memory; try fewer servers or jobs, or shorter runs"),
        (OSError(28, "No space left on device", "jobs.parquet"), "slotwise: jobs.parquet: No space left on device"),
    ],
)
def test_what_the_system_refuses_is_one_line(error: Exception, line: str, capsys: Any) -> None:
    def fail() -> None:
        raise error

    assert cli.run(fail) == 1
    assert capsys.readouterr() == ("", line + "\n")


# -- completion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sim", ["simulate"]),
        ("simulate exa", ["example1", "example2"]),
        ("simulate mi", ["mine.toml"]),
        ("compare table1 --policy best-fit,gu", ["best-fit,guarded"]),
        ("trace im", ["import"]),
        ("plan table1 --conf", ["--confidence"]),
    ],
)
def test_what_is_offered(
    here: Path, typed: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("_SLOTWISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"slotwise {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    _, out, _ = called(capsys)
    assert out.split() == offered


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_tab_completes_in_the_shell(here: Path, shell: str) -> None:
    """With the script that `--show-completion` prints."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    program = here / "slotwise"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m slotwise "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(here),
        "PYTHONPATH": str(Path(slotwise.__file__).parents[1]),
    }
    made = subprocess.run(
        [program],
        env=environment | {"_SLOTWISE_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    )
    (here / "completion").write_text(made.stdout)
    act = {
        "bash": "COMP_WORDS=(slotwise simulate exa); COMP_CWORD=2; _slotwise_completion slotwise; echo ${COMPREPLY[@]}",
        "fish": "complete -C 'slotwise simulate exa'",
    }[shell]
    done = subprocess.run(
        [shell, "-c", f"source completion; {act}"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["example1", "example2"], done.stderr


def test_a_mistake_is_seen_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ahead, "compile_pieces", asked.extend)
    for arguments in (["simulate", "example1", "-p", "nope"], ["compare", "example1", "--policy", "fifo,nope"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == cli.BAD_INPUT
        assert "nope" in capsys.readouterr().err.splitlines()[0]
    assert asked == []


def test_interrupted_while_it_is_imported(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    class Impatient:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "slotwise.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "slotwise.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Impatient(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        command()
    assert (ended.value.code, capsys.readouterr().err) == (130, "slotwise: interrupted\n")

"""The edges of the command line: full disks, closed streams, odd bytes, Ctrl-C, folders and files of others."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer

from slotwise import files
from slotwise.cli.main import COMMANDS, build, main
from slotwise.errors import InputError
from slotwise.workloads.generators import PROFILES
from slotwise.workloads.profiles import generate
from slotwise.workloads.traces import Trace, read_trace, write_trace

MINE = """
[cluster]
resources = ["cpu"]
servers = [{ name = "machine", count = 2, capacity = [10] }]
[[types]]
name = "a"
demand = [3]
rate = 3
[run]
events = 2000
replications = 2
"""
COMPARE = ["compare", "mine.toml", "-p", "fifo,best-fit"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(MINE)
    trace = generate(PROFILES["google-like"], 500, 1)
    write_trace(trace, tmp_path / "jobs.parquet")
    slower = trace.frame.with_columns(pl.col("arrival") * (100_000 / trace.arrival[-1]))
    write_trace(Trace(slower, trace.meta), tmp_path / "day.parquet")
    return tmp_path


def called(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


# -- what is in the way -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["index.html", "manifest.json", "data/results.csv"])
@pytest.mark.parametrize("command", [COMPARE, ["simulate", "mine.toml"], ["reproduce", "example1", "--quick"]])
def test_out_never_writes_over_what_it_did_not_write(
    here: Path, command: list[str], name: str, capsys: Any
) -> None:
    theirs = here / "site" / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    code, out, err = called(capsys, *command, "--out", "site")
    assert (code, out) == (2, "")
    assert "which Slotwise did not write there" in err
    assert [path.read_text() for path in (here / "site").rglob("*") if path.is_file()] == ["mine"]


def test_out_replaces_its_own_report_and_leaves_other_files(here: Path, capsys: Any) -> None:
    assert called(capsys, *COMPARE, "--out", "report")[0] == 0
    (here / "report" / "notes.txt").write_text("mine")
    before = (here / "report" / "manifest.json").read_text()
    assert called(capsys, "simulate", "mine.toml", "-p", "fifo", "--out", "report")[0] == 0
    assert (here / "report" / "notes.txt").read_text() == "mine"
    assert (here / "report" / "manifest.json").read_text() != before
    assert not (here / "report" / "data" / "differences.csv").exists()  # one policy has none: the old one is gone
    assert not [path for path in (here / "report").iterdir() if path.name.startswith(".partial")]


def test_split_keeps_to_its_own_files(here: Path, capsys: Any) -> None:
    trace = read_trace("jobs.parquet")
    write_trace(trace.with_frame(trace.frame.with_columns(tenant=pl.lit("ann"))), "jobs.parquet")
    (here / "parts").mkdir()
    (here / "parts" / "jobs-ann.parquet").write_text("mine")
    code, _, err = called(capsys, "trace", "split", "jobs.parquet", "-o", "parts")
    assert code == 2
    assert "did not write" in err


# -- all or nothing -----------------------------------------------------------------------------------------------------


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")

    def half(place: Path) -> None:
        place.write_text("half")
        raise OSError(28, "No space left on device")

    def cut(place: Path) -> None:
        place.write_text("half")
        raise KeyboardInterrupt

    for write, error in ((half, InputError), (cut, KeyboardInterrupt)):
        with pytest.raises(error), files.whole(path) as place:
            write(place)
        assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
        assert path.read_text() == "before"


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("write", ["trace", "figure", "report"])
def test_a_full_disk_leaves_what_was_there(
    here: Path, write: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Every write goes to a file that takes no byte."""
    arguments = {
        "trace": ["trace", "window", "jobs.parquet", "--jobs", "10", "-o", "out.parquet"],
        "figure": ["trace", "summary", "jobs.parquet", "--figure", "out.svg"],
        "report": ["simulate", "mine.toml", "-p", "fifo", "--out", "out"],
    }[write]
    if write == "report":
        assert called(capsys, *arguments)[0] == 0
    else:
        (here / arguments[-1]).write_text("before")
    before = {str(path): path.read_bytes() for path in here.rglob("*") if path.is_file()}
    real = Path.replace

    def full(self: Path, target: Any) -> Path:
        if ".partial" in str(self):
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    code, _, err = called(capsys, *arguments)
    assert (code, "No space left on device" in err) == (2, True)
    assert {str(path): path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "window", "jobs.parquet", "--jobs", "10", "-o", "jobs.parquet"],
        ["trace", "thin", "jobs.parquet", "0.5", "-o", "jobs.parquet"],
        ["trace", "filter", "jobs.parquet", "cpu > 0.02", "-o", "jobs.parquet"],
    ],
)
def test_a_trace_may_take_the_place_of_itself(here: Path, arguments: list[str], capsys: Any) -> None:
    assert called(capsys, *arguments)[0] == 0
    assert 0 < len(read_trace(here / "jobs.parquet")) < 500


# -- streams ------------------------------------------------------------------------------------------------------------


def shell(line: str, here: Path) -> subprocess.CompletedProcess[bytes]:
    text = line.replace("slotwise", f"{sys.executable} -m slotwise", 1)
    return subprocess.run(["sh", "-c", text], cwd=here, capture_output=True, timeout=120, check=False)


def test_a_closed_output_is_told(here: Path) -> None:
    done = shell("slotwise trace summary jobs.parquet >&-", here)
    assert (done.returncode, done.stderr) == (1, b"slotwise: standard output: is closed\n")
    done = shell(
        "slotwise trace window jobs.parquet --jobs 10 -o ten.parquet >&-", here
    )  # has nothing to say there
    assert (done.returncode, len(read_trace(here / "ten.parquet"))) == (0, 10)
    done = shell("slotwise trace summary jobs.parquet --json 2>&-", here)
    assert (done.returncode, json.loads(done.stdout)["jobs"]) == (0, 500)
    done = shell("slotwise trace summary nope.parquet 2>&-", here)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("command", ["window jobs.parquet --jobs 400", "import csv jobs.csv"])
def test_a_file_that_polars_cannot_write_is_told_in_a_line(here: Path, command: str) -> None:
    """No file may be larger than 1 KB in that process. It is no OSError that Polars raises."""
    (here / "jobs.csv").write_text("id,arrival,duration,demand.cpu\n1,0,5,1\n")
    before = sorted(os.listdir(here))
    done = shell(f"ulimit -f 2; slotwise trace {command} -o out.parquet", here)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"slotwise: out.parquet: cannot be written (File too large)\n"
    assert sorted(os.listdir(here)) == before


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
def test_a_full_output_is_told_once(here: Path) -> None:
    done = shell("slotwise trace summary jobs.parquet --json >/dev/full", here)
    assert (done.returncode, done.stderr) == (1, b"slotwise: standard output: No space left on device\n")


# -- odd bytes ----------------------------------------------------------------------------------------------------------


def test_a_byte_order_mark_before_a_scenario(here: Path, capsys: Any) -> None:
    (here / "mine.toml").write_bytes(b"\xef\xbb\xbf" + MINE.encode())
    code, out, _ = called(capsys, "capacity", "mine.toml", "--json")
    assert (code, json.loads(out)["supportable"]) == (0, True)


def test_control_bytes_do_not_reach_the_terminal(here: Path, capsys: Any) -> None:
    odd = "x\x1b[31m\x07"
    code, _, err = called(capsys, "simulate", odd)
    assert code == 2
    assert "x\\x1b[31m\\x07" in err
    assert not set("\x1b\x07") & set(err)
    trace = read_trace("jobs.parquet")
    write_trace(trace.with_frame(trace.frame, f"said {odd}"), "odd.parquet")
    (here / "odd.toml").write_text(MINE.replace('name = "a"', 'name = "x\\u001b[31m\\u0007"'))
    for arguments in (["trace", "summary", "odd.parquet"], ["capacity", "odd.toml"]):
        code, out, _ = called(capsys, *arguments)
        assert code == 0
        assert "\\x1b[31m" in out.replace("\n", "")
        assert not set("\x1b\x07") & set(out)


@pytest.mark.parametrize("command", [["trace", "summary"], ["simulate"], ["trace", "types"]])
def test_a_directory_is_called_one(here: Path, command: list[str], capsys: Any) -> None:
    code, _, err = called(capsys, *command, ".")
    assert (code, "is a directory" in err) == (2, True)


def test_a_trace_in_place_of_a_scenario_is_told_where_it_belongs(here: Path, capsys: Any) -> None:
    code, _, err = called(capsys, "simulate", "jobs.parquet")
    assert (code, "is not a text file" in err, "workload.trace" in err, "codec" in err) == (2, True, True, False)


def test_an_error_names_no_python_exception(here: Path, capsys: Any) -> None:
    (here / "pods.json").write_text("{}")
    code, _, err = called(capsys, "trace", "import", "kubernetes", "pods.json", "-o", "pods.parquet")
    assert (code, "not a pod (has no 'metadata')" in err) == (2, True)


# -- remedies -----------------------------------------------------------------------------------------------------------


def test_the_remedy_for_short_traces_is_an_option_that_works(here: Path, capsys: Any) -> None:
    code, _, err = called(capsys, "trace", "bootstrap", "jobs.parquet", "900", "-o", "long.parquet")
    assert code == 2
    block = err.split("give --block with up to ")[1].split()[0]
    code, _, _ = called(capsys, "trace", "bootstrap", "jobs.parquet", "900", "-o", "long.parquet", "--block", block)
    assert (code, len(read_trace("long.parquet"))) == (0, 900)


def test_a_policy_that_cannot_run_this_is_refused_before_the_others_run(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any) -> None:
        raise AssertionError("something ran")

    monkeypatch.setattr("slotwise.simulation.run.engines.replicate", run)
    code, _, err = called(capsys, "compare", "table1", "-p", "fifo,vqs", "--set", "run.events=2000")
    assert (code, "is for one resource" in err) == (2, True)


# -- formats ------------------------------------------------------------------------------------------------------------


WITH_JSON = [
    ["simulate", "mine.toml", "-p", "fifo"],
    COMPARE,
    ["capacity", "mine.toml"],
    ["plan", "mine.toml", "-t", "p95_wait=2", "-p", "fifo"],
    ["tradeoff", "mine.toml", "--beta", "0.9", "--solver", "auto"],
    ["trace", "summary", "jobs.parquet"],
    ["trace", "profile", "day.parquet"],
    ["trace", "types", "jobs.parquet"],
    ["trace", "compare", "jobs.parquet", "jobs.parquet"],
]


def test_every_command_with_json_is_looked_at() -> None:
    """Those of the live service have their own (tests/live)."""
    simple = {name for name, each in COMMANDS.items() if not each.light and each.module != "slotwise.cli.serve"}
    whole = typer.main.get_command(build(sorted(simple)))
    found = set()
    for name, command in whole.commands.items():  # type: ignore[attr-defined]
        for path, one in [
            ((name,), command),
            *(((name, n), c) for n, c in getattr(command, "commands", {}).items()),
        ]:
            if any("--json" in parameter.opts for parameter in one.params):
                found.add(path)
    assert found == {tuple(a[: 2 if a[0] == "trace" else 1]) for a in WITH_JSON}


@pytest.mark.parametrize("arguments", WITH_JSON, ids=lambda arguments: "-".join(arguments[:2]))
def test_json_looks_the_same_everywhere(here: Path, arguments: list[str], capsys: Any) -> None:
    code, out, _ = called(capsys, *arguments, "--json")
    assert code == 0
    assert out == json.dumps(json.loads(out), indent=2) + "\n"
    assert not {"NaN", "Infinity"} & set(out.replace(",", " ").split())


@pytest.mark.parametrize("command", [["simulate", "mine.toml", "-p", "fifo,best-fit"], COMPARE])
def test_csv_has_a_row_for_each_policy_and_replication(here: Path, command: list[str], capsys: Any) -> None:
    code, out, _ = called(capsys, *command, "--csv")
    frame = pl.read_csv(out.encode())
    assert code == 0
    assert frame.select("policy", "replication").rows() == [(p, r) for p in ("fifo", "best-fit") for r in (0, 1)]
    code, out, err = called(capsys, *command, "--csv", "--json")
    assert (code, out, "keep one of them" in err) == (2, "", True)


def test_compare_json_and_page_at_once(here: Path, capsys: Any) -> None:
    code, out, err = called(capsys, *COMPARE, "--json", "--out", "report")
    assert (code, len(json.loads(out)["results"])) == (0, 2)
    assert "report: " in err


@pytest.mark.parametrize("width", [30, 40, 50])
def test_names_stay_on_narrow_terminals(
    here: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = called(capsys, "simulate", "mine.toml", "-p", "fifo,best-fit")
    assert "fifo" in out
    assert "verdict" in out
    _, out, _ = called(capsys, "trace", "types", "jobs.parquet")
    assert out.replace("\n", "").replace(" ", "").count("cpu-0.") >= 4
    assert "…" not in out
    assert "mean\n" in out  # the last heading of the first line is whole
    assert re.search(r"\d min", out)
    assert not re.search(r"\d\d\d\.\d+ min", out)  # no figure runs into the next
    _, out, _ = called(capsys, "trace", "summary", "jobs.parquet")
    load = out.split("\nload")[1].split("\njobs bring")[0]
    assert re.search(r"^cpu +\d", load, re.MULTILINE)
    assert re.search(r"^memory +\d", load, re.MULTILINE)
    assert "the trace" in load
    _, out, _ = called(capsys, "scenarios")
    assert {line.split()[0] for line in out.splitlines()[1:]} >= {"azure-like", "best-fit-trap", "google-like"}


# -- Ctrl-C -------------------------------------------------------------------------------------------------------------

WAITING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from slotwise.simulation.run import engines
def replicate(task, progress, stopped):
    print("ready", file=sys.stderr, flush=True)
    while not stopped():
        pass
    raise KeyboardInterrupt
engines.replicate = replicate
from slotwise.cli.main import COMMANDS, build, main
main(["compare", "mine.toml", "-p", "fifo,best-fit", "--out", "new/report", "--workers", "1"])
"""


def interrupted(program: str, here: Path) -> tuple[int, str, str]:
    """Ctrl-C when the program says that it is ready: its exit code, what it printed, and its last message."""
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line == "ready\n":
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err.splitlines()[-1]


def test_ctrl_c_is_130_and_leaves_nothing(here: Path) -> None:
    before = sorted(os.listdir(here))
    code, out, err = interrupted(WAITING, here)
    assert (code, out) == (130, "")
    assert err.startswith("slotwise: interrupted")
    assert sorted(os.listdir(here)) == before


PLANNING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from slotwise.simulation.run import engines
real, servers = engines.replicate, []
def replicate(task, progress, stopped):
    servers.append(task.scenario.cluster.n_servers)
    if servers[-1] == servers[0]:
        return real(task, progress, stopped)
    print("ready", file=sys.stderr, flush=True)
    while not stopped():
        pass
    raise KeyboardInterrupt
engines.replicate = replicate
from slotwise.cli.main import COMMANDS, build, main
main(["plan", "mine.toml", "-p", "fifo", "-t", "p95_wait=0.2", "--workers", "1"])
"""


def test_a_plan_that_is_interrupted_says_what_failed_and_why(here: Path) -> None:
    code, out, err = interrupted(PLANNING, here)
    assert (code, err) == (130, "slotwise: interrupted before a plan was found")
    assert out == "2 machine misses: p95 wait is above 0.2\n"

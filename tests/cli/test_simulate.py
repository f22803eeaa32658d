"""`slotwise simulate` and the entry point as users and scripts meet them: the JSON, the exit codes, the streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise.cli.main import COMMANDS, main

QUICK = ["--set", "run.events=3000", "--set", "run.replications=3"]

NUMBER = (int, float)
INTERVAL = {"mean": float, "ci95": [float, float]}
QUANTILE = float | None  # null where so many still wait that it is not known yet
WAIT = {"mean": float, "p50": QUANTILE, "p95": QUANTILE, "p99": QUANTILE, "max": float}
# what the design promises of each result; there may be more
CONTRACT: dict[str, Any] = {
    "policy": str,
    "replications": int,
    "events": int,
    "events_per_second": float,
    "mean_queue": {**INTERVAL, "runs": [float, float, float]},
    "mean_queue_by_type": {"large": INTERVAL, "small": INTERVAL},
    "wait": WAIT,
    "utilisation": {"units": float},
    "in_service": float,
    "stalled_fraction": float,
    "stalls": int,
    "resets": int,
    "verdict": str,
    "stable": bool | None,
    "final_queue": [int, int, int],
    "lower_bound": {"mean_queue": float, "kind": str},
}


def conforms(found: Any, wanted: Any, where: str = "result") -> None:
    """Every promised key is there, with its type."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), where
        assert set(wanted) <= set(found), f"{where} lacks {set(wanted) - set(found)}"
        for key, inner in wanted.items():
            conforms(found[key], inner, f"{where}.{key}")
    elif isinstance(wanted, list):
        assert isinstance(found, list), where
        assert len(found) == len(wanted), where
        for n, inner in enumerate(wanted):
            conforms(found[n], inner, f"{where}[{n}]")
    elif wanted is float:
        assert isinstance(found, NUMBER), f"{where} is {found!r}"
        assert not isinstance(found, bool)
    else:
        assert isinstance(found, wanted), f"{where} is {found!r}"
        assert wanted is not int or not isinstance(found, bool), where


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    out, err = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, out, err


def test_json_follows_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "simulate", "example1", "-p", "algorithm1", "-p", "fifo,m14", "--json", *QUICK)
    assert code == 0
    found = json.loads(out)
    assert list(found) == ["scenario", "seed", "version", "results"]
    assert (found["scenario"], found["seed"], found["version"]) == ("example1", 1, slotwise.__version__)
    assert [result["policy"] for result in found["results"]] == ["algorithm1", "fifo", "m14"]
    for result in found["results"]:
        conforms(result, CONTRACT)
        assert (result["replications"], result["events"]) == (3, 3000)
        queue = result["mean_queue"]
        assert queue["mean"] == pytest.approx(sum(queue["runs"]) / 3)
        assert queue["ci95"][0] <= queue["mean"] <= queue["ci95"][1]
        total = sum(of_type["mean"] for of_type in result["mean_queue_by_type"].values())
        assert total == pytest.approx(queue["mean"])
        known = [value for key in ("p50", "p95", "p99") if (value := result["wait"][key]) is not None]
        assert known == sorted(known)
        assert known[-1] <= result["wait"]["max"]
    api = slotwise.simulate("example1", "fifo", overrides=["run.events=3000", "run.replications=3"])
    assert found["results"][1]["mean_queue"]["runs"] == [run.mean_queue for run in api.runs]


@pytest.mark.parametrize(
    "command",
    [
        ["simulate", "example1", "-p", "guarded"],
        ["compare", "example1", "--policy", "guarded,best-fit"],
        ["plan", "example1", "--target", "mean_wait=5", "-p", "guarded"],
        ["tradeoff", "example1", "-p", "guarded"],
    ],
    ids=lambda command: command[0],
)
def test_an_option_for_a_policy_that_is_not_run_is_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = called(capsys, *command, "--set", "policy.b=0.8")
    assert (code, out) == (2, "")
    assert err == (
        "slotwise: --set policy.b: is for the scenario's policy, algorithm1, which is not run; add --set policy.name=guarded\n"
    )


def test_an_option_for_one_of_several_policies_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    def queues(*arguments: str) -> list[float]:
        _, out, _ = called(capsys, "simulate", "example1", "-p", "algorithm1,fifo", "--json", *QUICK, *arguments)
        return [result["mean_queue"]["mean"] for result in json.loads(out)["results"]]

    (mine, other), (changed, same) = queues(), queues("--set", "policy.beta=0.2")
    assert changed != mine
    assert same == other


def test_json_has_null_where_there_is_no_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """One run of a few events tells no spread; an overload has no finite bound; NaN is not JSON."""
    arguments = ["--set", "run.events=20", "--set", "run.replications=1", "--set", "workload.intensity=1.5"]
    code, out, _ = called(capsys, "simulate", "table1", "--json", *arguments)
    assert code == 0

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    result = json.loads(out, parse_constant=refuse)["results"][0]
    assert result["mean_queue"]["ci95"] == [None, None]
    assert result["lower_bound"] == {"mean_queue": None, "kind": "unstable"}


def test_table_names_policies_and_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "run.events=20000", "--set", "run.replications=2"]
    code, out, _ = called(capsys, "simulate", "example1", "-p", "kubernetes-least-allocated,algorithm1", *arguments)
    assert code == 0
    assert "2 runs of 20,000 events" in out
    assert "algorithm1" in out
    assert "stable" in out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_set_changes_the_scenario(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[cluster]\nresources = ["u"]\nservers = [{ name = "s", count = 1, capacity = [4] }]\n'
        '[[types]]\nname = "a"\ndemand = [1]\nrate = 3\n[policy]\nname = "fifo"\n[run]\nevents = 500\n'
    )
    keys = ["run.jobs=700", "cluster.servers.s.count=3", "types.a.rate=2.5", "policy.name=best-fit", "run.seed=9"]
    settings = [word for key in keys for word in ("--set", key)]
    code, out, _ = called(capsys, "simulate", str(path), "--json", *settings)
    assert code == 0
    found = json.loads(out)
    assert (found["scenario"], found["seed"]) == ("mine", 9)
    result = found["results"][0]
    assert result["policy"] == "best-fit"
    assert result["offered"] == pytest.approx(2.5)
    assert result["utilisation"]["u"] == pytest.approx(2.5 / 12, rel=0.2)
    assert 1200 < result["events"] <= 1400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "exampl1"], "did you mean example1"),
        (["simulate", "nowhere/none.toml"], "no such file or shipped scenario"),
        (["simulate", "example1", "-p", "best-fitt"], "did you mean best-fit"),
        (["simulate", "example1", "--set", "run.evnts=3"], "did you mean events"),
        (["simulate", "example1", "--set", "run.events=-3"], "must be at least 1"),
        (["simulate", "example1", "--set", "run.events"], "is not a setting"),
        (["simulate", "example1", "--set", "policy.bta=1"], "unknown option"),
        (["simulate", "example1", "--set", "cluster.servers.moon.count=1"], "there is no 'moon'"),
        (["simulate", "example1", "--engine", "moon"], "no engine is called 'moon'"),
        (["simulate", "example1", "--workers", "0"], "--workers"),
        (["simulate", "example1", "--frobnicate"], "--frobnicate"),
        (["simulate"], "Missing argument 'SCENARIO'"),
        (["frobnicate"], "frobnicate"),
        (["simulate", "table1", "-p", "vqs"], "is for one resource"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = called(capsys, *arguments)
    lines = [line for line in err.splitlines() if "compiling" not in line]
    assert code == 2
    assert out == ""
    assert len(lines) == 1, err
    assert lines[0].startswith("slotwise: ")
    assert message in lines[0]


def test_a_policy_that_fails_is_exit_code_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A user's policy that starts what does not wait: the run ends with an error, not with wrong figures."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from slotwise import Policy\nfrom slotwise.core.steps import start\n"
        "class Greedy(Policy):\n    name = 'greedy'\n    keeps = frozenset({'free'})\n"
        "    @staticmethod\n    def arrive(s, j, i):\n        start(s, j, 0)\n        start(s, j, 0)\n"
    )
    code, out, err = called(capsys, "simulate", "example1", "-p", f"{path}:Greedy", *QUICK)
    assert code == 1
    assert out == ""
    assert err.splitlines()[-1] == "slotwise: policy greedy wanted to start a job of a type that has no waiting job"


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, "--version") == (0, f"slotwise {slotwise.__version__}\n", "")
    for command in COMMANDS:
        code, out, err = called(capsys, command, "--help")
        assert (code, err) == (0, "")
        assert f"slotwise {command}" in out
    code, out, _ = called(capsys, "--help")
    assert code == 0
    assert all(command in out for command in COMMANDS)
    code, out, err = called(capsys)
    assert (code, err) == (2, "")
    assert "Usage" in out


INTERRUPTED = """
import signal, sys
from slotwise.simulation.run import engines
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)
real, wanted = engines.replicate, int(sys.argv[1])
finished = []
def replicate(task, *rest):
    if len(finished) == wanted:
        print("ready", file=sys.stderr, flush=True)
        while True:  # until somebody says stop
            real(task, *rest)
    measured = real(task, *rest)
    finished.append(measured)
    return measured
engines.replicate = replicate
from slotwise.cli.main import main
main(["simulate", "example1", "--json", "--workers", "1", "--set", "run.events=4000", "--set", "run.replications=9"])
"""


@pytest.mark.parametrize("finished", [0, 3])
def test_ctrl_c_ends_cleanly_with_what_was_finished(finished: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(finished)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line == "ready\n":
            break
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("slotwise: interrupted")
    if finished:
        result = json.loads(out)["results"][0]
        conforms(result["wait"], WAIT)
        assert len(result["mean_queue"]["runs"]) == result["replications"] == finished
    else:
        assert out == ""


def test_a_reader_that_goes_away_is_no_crash() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "slotwise", "simulate", "example1", "--json", *QUICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 1
    assert "Traceback" not in err
    assert "Broken" not in err

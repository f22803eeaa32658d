"""The command line as a contract: each line that scripts rely on, as a script calls it, on real services (`--local`, `--demo`, a cluster file)."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Process

CLUSTER = """\
[cluster]
resources = ["cpu"]
servers = [{ name = "node", count = 2, capacity = [2] }]

[[types]]
name = "one"
demand = [1]
"""
INTERVAL = {"p10", "p50", "p90"}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    made = Process(tmp_path_factory.mktemp("local"), "--local")
    made.start()
    yield made
    assert made.end() == 0
    made.clean_up()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    made = Process(tmp_path_factory.mktemp("demo"), "--demo", "--speed", "20")
    made.start()
    yield made
    made.clean_up()


def told(process: Process, *argv: str, code: int = 0) -> Any:
    """What a command prints as JSON: one value and nothing else."""
    done = process.command(argv[0], "--json", *argv[1:])
    assert done.returncode == code, (argv, done.stdout, done.stderr)
    return json.loads(done.stdout)


# -- submit, cancel, status ---------------------------------------------------------------------------------------


def test_a_time_limit_ends_a_job(local: Process) -> None:
    """`submit --time 2s` ends the job after 2 s: state failed, reason names the time limit."""
    number = told(local, "submit", "--time", "2s", "--", "sleep", "1000")["id"]
    while (job := told(local, "job", str(number)))["ended"] is None:
        pass
    assert (job["state"], job["reason"]) == ("failed", "time limit of 2 s exceeded")
    assert job["ended"] - job["started"] >= 2.0


def test_cancel(local: Process) -> None:
    """`cancel ... --json` prints cancelled and errors, and exits with 0 only if there were no errors."""
    cpus = str(len(os.sched_getaffinity(0)))
    running = told(local, "submit", "--needs", f"cpu={cpus}", "--name", "run", "--", "sleep", "1000")["id"]
    waiting = told(local, "submit", "--needs", f"cpu={cpus}", "--name", "wait", "--", "true")["id"]
    array = told(local, "submit", "--needs", f"cpu={cpus}", "--array", "1-3", "--name", "many", "--", "true")
    both = told(local, "cancel", str(waiting), "987654", code=1)
    assert both == {"cancelled": [waiting], "errors": {"987654": "there is no job 987654"}}
    again = told(local, "cancel", str(waiting), code=1)
    assert again == {"cancelled": [], "errors": {str(waiting): f"job {waiting} has ended: cancelled"}}
    shown = told(local, "cancel", "--array", str(array["id"]), "--dry-run")
    assert shown == {"cancelled": array["ids"], "errors": {}}
    assert told(local, "cancel", "--array", str(array["id"]), "--state", "waiting") == shown
    assert told(local, "cancel", "--name", "many") == {"cancelled": [], "errors": {}}
    assert told(local, "cancel", "--name", "run", "--state", "waiting") == {"cancelled": [], "errors": {}}
    later = told(local, "submit", "--needs", f"cpu={cpus}", "--tenant", "physics", "--", "true")["id"]
    assert told(local, "cancel", "--tenant", "physics") == {"cancelled": [later], "errors": {}}
    assert told(local, "cancel", "--all") == {"cancelled": [running], "errors": {}}
    while told(local, "job", str(running))["ended"] is None:
        pass
    assert told(local, "job", str(running))["state"] == "cancelled"


def test_status(local: Process) -> None:
    """`status --json` has servers, jobs (counts by state) and trouble."""
    found = told(local, "status")
    assert {"servers", "jobs", "trouble"} <= found.keys()
    assert {"waiting", "running", "done", "failed", "cancelled", "lost"} <= found["jobs"].keys()
    assert all(isinstance(number, int) for number in found["jobs"].values())
    assert [server["status"] for server in found["servers"]] == ["up"]
    assert isinstance(found["trouble"], list)


# -- apply --------------------------------------------------------------------------------------------------------


def test_apply(tmp_path: Path, serve: Callable[..., Process]) -> None:
    """`apply FILE [--dry-run] [--yes] --json` prints what changes. What `serve` says of a changed file is tested in test_changes.py."""
    file = tmp_path / "mine.toml"
    file.write_text(CLUSTER)
    service = serve(tmp_path, "mine.toml", "--engine", "simulated")
    assert told(service, "apply", "mine.toml")["changes"] == []
    file.write_text(CLUSTER.replace("count = 2", "count = 3"))

    def classes() -> list[Any]:
        return [server["name"] for server in told(service, "servers")]

    before = classes()
    for words in (["--dry-run"], []):  # without a terminal to ask on, nothing is changed, and the code says so
        shown = told(service, "apply", "mine.toml", *words, code=0 if words else 2)
        assert [(one["what"], one["name"], one["action"]) for one in shown["changes"]] == [
            ("class", "node", "change")
        ]
        assert (shown["applied"], classes()) == (False, before)
    assert told(service, "apply", "mine.toml", "--yes")["applied"] is True
    assert len(classes()) == 3
    assert told(service, "apply", "mine.toml", "--yes") | {"plan": ""} == told(
        service, "plan-apply", "mine.toml"
    ) | {"plan": ""}
    file.write_text("x = [")
    assert service.command("apply", "mine.toml").stderr.startswith("slotwise: mine.toml: is not valid TOML")


# -- the demo, the dashboard, forecasts ---------------------------------------------------------------------------


def test_the_demo_prints_the_usual_line(demo: Process) -> None:
    """`serve --demo [--port N] [--speed X]`: the fixture has read `listening on http://127.0.0.1:PORT` from its output."""
    assert demo.address == f"http://127.0.0.1:{demo.port}"
    found = told(demo, "status")
    assert len(found["servers"]) > 1


def test_open_prints_a_link_that_works_once(demo: Process) -> None:
    """`open --print` prints a link that logs a browser in once, and shows the cluster view."""
    link = demo.command("open", "--print").stdout.strip()
    assert link.startswith(f"{demo.address}/login?code=")
    assert told(demo, "open", "--print").keys() == {"link", "expires"}
    jar = CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with browser.open(link, timeout=PATIENCE) as page:
        assert page.url.rstrip("/") == demo.address
        assert b'<script type="module"' in page.read()
    assert len(list(jar)) == 1
    with browser.open(f"{demo.address}/v1/status", timeout=PATIENCE) as answer:
        assert json.load(answer)["engine"] == "simulated"
    other = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    other.open(link, timeout=PATIENCE).close()  # shows how to log in
    with pytest.raises(urllib.error.HTTPError, match="401"):
        other.open(f"{demo.address}/v1/status", timeout=PATIENCE)


def check_forecast(found: dict[str, Any]) -> None:
    assert {*INTERVAL, "coverage", "of"} <= found.keys()
    if found["p50"] is None:
        assert (found["p10"], found["p90"]) == (None, None)
        assert found["reason"]
    else:
        assert 0 <= found["p10"] <= found["p50"] <= found["p90"]
    assert found["coverage"] is None or 0 <= found["coverage"] <= 1
    assert isinstance(found["of"], int)


def test_forecast(demo: Process) -> None:
    """`forecast ID --json` and `--needs`: p10, p50, p90, coverage, of; null with a reason where nothing can be said."""
    kind = told(demo, "show")["types"][0]["name"]
    number = told(demo, "submit", "--type", kind, "--", "x")["id"]
    check_forecast(told(demo, "forecast", str(number)))
    check_forecast(told(demo, "forecast", "--needs", "cpu=1", "--time", "2h"))
    check_forecast(told(demo, "submit", "--dry-run", "--needs", "cpu=1", "--", "x"))


def test_what_if(tmp_path: Path, serve: Callable[..., Process]) -> None:
    """`whatif ... --json` prints now and then, each with queue and waits by type and their intervals."""
    (tmp_path / "mine.toml").write_text(CLUSTER)
    service = serve(tmp_path, "mine.toml", "--engine", "simulated", "--speed", "100")
    service.command("submit", "--type", "one", "--array", "1-40", "--wait", "--", "x")
    while (found := told(service, "whatif", "--add", "node=2"))["now"] is None:
        assert (
            "not known" in found["reason"]
        )  # on a busy machine it takes longer than the service lets a question wait
    for side in (found["now"], found["then"]):
        assert side["queue"]["mean"].keys() == INTERVAL
        assert side["wait"].keys() == INTERVAL
        assert side["types"]
        for one in side["types"].values():
            assert one["queue"].keys() == one["wait"].keys() == INTERVAL


# -- what scripts do besides --------------------------------------------------------------------------------------


def shell(process: Process, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell in which `slotwise` is the command."""
    own = {**process.environment, "SLOTWISE_SERVER": process.address, **environment}
    line = f'slotwise() {{ {shlex.quote(sys.executable)} -m slotwise "$@"; }}\n{line}'
    return subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=process.folder,
        env=own,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
    )


def test_in_a_shell(local: Process) -> None:
    done = shell(
        local,
        "set -e; id=$(slotwise submit --json -- sh -c 'echo out; exit 0' | tr -dc 0-9); slotwise logs -f $id; slotwise job $id --json | grep -c '\"state\": \"done\"'",
    )
    assert (done.returncode, done.stdout) == (0, "out\n1\n"), done.stderr
    inner = shell(local, "slotwise submit --wait -q --env SLOTWISE_SERVER --env XDG_STATE_HOME -- "
                  f"{shlex.quote(sys.executable)} -m slotwise submit --json -- true")  # fmt: skip
    assert inner.returncode == 0, inner.stderr
    assert json.loads(inner.stdout).keys() == {"id"}  # a job can submit a job
    assert shell(local, "slotwise jobs --limit 0 | head -1; exit ${PIPESTATUS[1]}").returncode == 0
    assert shell(local, "slotwise submit --wait -q -- cat").returncode == 0  # standard input is empty
    assert shell(local, "slotwise jobs --json >&-").returncode == 1
    assert shell(local, "cd / && slotwise submit --wait -q -- pwd").stdout == "/\n"


def test_messages_and_results_are_apart(local: Process) -> None:
    """Results go to standard output, messages to standard error; bad input is 2, a refusal 1, an interrupted command 130."""
    for argv, code in (
        (["job", "987654"], 1),
        (["job", "x"], 2),
        (["jobs", "--state", "odd"], 2),
        (["frobnicate"], 2),
        (["cancel"], 2),
    ):
        done = local.command(*argv)
        assert (done.returncode, done.stdout) == (code, ""), argv
        assert done.stderr.count("\n") == 1, done.stderr
    away = local.command("jobs", SLOTWISE_SERVER="http://127.0.0.1:9")
    assert (away.returncode, away.stdout, "is `slotwise serve` running?" in away.stderr) == (1, "", True)
    follower = subprocess.Popen(
        [sys.executable, "-m", "slotwise", "watch", "--after", "0", "--json"], cwd=local.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**local.environment, "SLOTWISE_SERVER": local.address},
    )  # fmt: skip
    assert follower.stdout is not None
    assert json.loads(follower.stdout.readline())["seq"] == 1
    follower.send_signal(signal.SIGINT)
    _, said = follower.communicate(timeout=PATIENCE)
    assert (follower.returncode, said) == (130, "slotwise: interrupted\n")


def test_jobs_of_arrays_are_named_by_their_index(local: Process) -> None:
    """7_1 is the job of array 7 with index 1, as in `submit --after ok:7_1`."""
    array = told(
        local,
        "submit",
        "--array",
        "3,1",
        "--wait",
        "-o",
        "index-%a.txt",
        "--",
        "sh",
        "-c",
        "echo $SLOTWISE_ARRAY_INDEX",
    )
    first = array[0]["array"]
    assert told(local, "job", f"{first}_1")["id"] == first + 1
    logged = local.command("logs", f"{first}_3")
    assert (logged.returncode, logged.stdout) == (0, "")
    assert logged.stderr == f"slotwise: job {first} writes to {local.folder}/index-3.txt\n"
    assert (local.folder / "index-3.txt").read_text() == "3\n"
    assert told(local, "explain", f"{first}_1") == {"id": first + 1, "text": f"job {first + 1} has ended: done"}
    assert told(local, "cancel", f"{first}_1", code=1)["errors"] == {
        str(first + 1): f"job {first + 1} has ended: done"
    }
    for argv, code, said in (
        (["job", f"{first}_7"], 1, f"there is no array {first} with a job of index 7"),
        (["cancel", "5-7"], 2, "'5-7' is no number of a job; write it like 7, or like 7_1"),
        (["submit", "--time", "1h30", "--", "x"], 2, "'1h30' ends without a unit; write 1h30m or 1h30s"),
        (["jobs", "--count", "--follow"], 2, "--follow: is given beside --count"),
        (["submit", "--array", "5-1", "--", "x"], 2, "'5-1' is no range of indices"),
    ):
        done = local.command(*argv)
        assert (done.returncode, done.stdout) == (code, "")
        assert said in done.stderr

"""The commands against a real `slotwise serve --local`: the contract that scripts rely on, the guide, and the mistakes
of new users."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import PATIENCE, Process

from slotwise.cli.main import main
from slotwise.live import AsyncClient, Client
from slotwise.live.transport import ServiceError

ROOT = Path(__file__).parents[2]
CONTRACT = ("id", "state", "type", "server", "attempt", "exit_code", "submitted", "started", "ended")


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    made = Process(tmp_path_factory.mktemp("commands"), "--local", "--json-logs")
    made.start()
    yield made
    assert made.end() == 0
    made.clean_up()


@pytest.fixture
def run(process: Process, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command of the client, as its user would type it."""
    monkeypatch.setenv("SLOTWISE_SERVER", process.address)
    monkeypatch.setenv("XDG_STATE_HOME", process.environment["XDG_STATE_HOME"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(process.folder / "config"))

    def act(*argv: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(argv))
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, *capsys.readouterr())

    return act


def test_the_guide(run: Run) -> None:
    lines = re.findall(r"^\$ slotwise (.*)$", (ROOT / "docs/guides/serve.md").read_text(), re.M)
    assert lines[0] == "serve --local"
    for line in lines[1:]:
        ran = run(*shlex.split(line))
        told = [line for line in ran.err.splitlines() if not re.fullmatch(r"slotwise: job \d+: .*", line)]
        assert (ran.code, told) == (0, []), line


def test_what_scripts_rely_on(run: Run) -> None:
    made = json.loads(run("submit", "--json", "--", "sh", "-c", "echo hello; exit 3").out)
    assert made.keys() == {"id"}
    assert run("logs", "-f", str(made["id"])).out == "hello\n"
    listed = json.loads(run("jobs", "--json").out)
    shown = next(job for job in listed if job["id"] == made["id"])
    assert [key for key in shown if key in CONTRACT] == list(CONTRACT)
    while (shown := json.loads(run("job", str(made["id"]), "--json").out))["ended"] is None:
        pass
    assert (shown["state"], shown["exit_code"], shown["argv"][0]) == ("failed", 3, "sh")
    assert all(isinstance(shown[key], float) for key in ("submitted", "started", "ended"))
    array = json.loads(
        run("submit", "--json", "--array", "1-3", "--wait", "--", "sh", "-c", "exit $SLOTWISE_ARRAY_INDEX").out
    )
    assert sorted(job["exit_code"] for job in array) == [1, 2, 3]
    assert all(job["array"] == array[0]["array"] for job in array)


def test_every_command_has_json(run: Run) -> None:
    number = json.loads(run("submit", "--json", "--", "sleep", "60").out)["id"]
    while json.loads(run("job", str(number), "--json").out)["state"] == "waiting":
        pass  # for jobs of the tests before
    server = json.loads(run("servers", "--json").out)[0]["name"]
    assert json.loads(run("drain", server, "--reason", "disk", "--json").out)["status"] == "draining"
    waiting = json.loads(run("submit", "--json", "--", "true").out)["id"]
    assert str(waiting) in json.loads(run("explain", str(waiting), "--json").out)["text"]
    assert json.loads(run("cancel", str(waiting), "--json").out) == {"cancelled": [waiting], "errors": {}}
    assert json.loads(run("resume", server, "--json").out)["status"] == "up"
    assert json.loads(run("logs", str(waiting), "--json").out) == {"id": waiting, "output": ""}
    assert json.loads(run("stop", str(number), "--json").out)[0]["id"] == number
    rows = [json.loads(line) for line in run("watch", "--after", "0", "--no-follow", "--json").out.splitlines()]
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    token = json.loads(run("token", "create", "--role", "read", "--json").out)
    assert token["id"] in {one["id"] for one in json.loads(run("token", "list", "--json").out)}
    assert json.loads(run("token", "revoke", token["id"], "--json").out) == {"id": token["id"], "revoked": True}
    again = run("cancel", str(waiting), "--json")
    assert (again.code, json.loads(again.out)["errors"].keys()) == (1, {str(waiting)})


def test_wait_streams_and_exits_as_the_job_does(run: Run) -> None:
    assert run("submit", "--wait", "--", "sh", "-c", "echo one; exit 3")[:2] == (3, "one\n")
    assert run("submit", "--wait", "--needs", "cpu=1,memory=10M", "--", "sh", "-c", "kill -9 $$").code == 137
    env = run(
        "submit", "--wait", "--env", "A=b c", "--label", "team=x", "--cwd", "/", "--", "sh", "-c", "echo $A; pwd"
    )
    assert env.out == "b c\n/\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "no-such-command"], 127, "failed, exit code 127: cannot be executed: no such command: no-such-command"),
        (["--", "/etc/passwd"], 126, "failed, exit code 126: cannot be executed: Permission denied: /etc/passwd"),
        (["--cwd", "/none", "--", "pwd"], 127, "no such working directory (No such file or directory): /none"),
        (["--time", "0.2s", "--", "sleep", "60"], 124, "failed, signal 15: time limit of 0.2 s exceeded"),
        (["--", "sh", "-c", "exit 125"], 1, "failed, exit code 125 (reported as 1)"),
        (["--", "sh", "-c", "kill -INT $$"], 1, "failed, signal 2 (reported as 1)"),
        (["--", "sh", "-c", "exit 7"], 7, "failed, exit code 7"),
        (["--needs", "cpu=999", "--", "true"], 125, "no server can hold"),
        (["--nonsense", "--", "true"], 125, "no option --nonsense"),
        (["--server", "http://127.0.0.1:9", "--", "true"], 125, "no service answers"),
    ],
)  # fmt: skip
def test_waiting_says_how_it_ended(run: Run, words: list[str], code: int, said: str) -> None:
    ran = run("submit", "--wait", *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err.splitlines()[-1]


def test_a_time_limit_is_shown(run: Run) -> None:
    made = run(
        "submit", "--wait", "--json", "--time", "0.2s", "--warn", "CONT@0.1s", "--grace", "1s", "--", "sleep", "60"
    )
    shown = json.loads(run("job", str(json.loads(made.out)["id"]), "--json").out)
    assert (shown["state"], shown["time"], shown["grace"]) == ("failed", 0.2, 1)
    assert (shown["warn"], shown["reason"]) == ({"signal": "CONT", "before": 0.1}, "time limit of 0.2 s exceeded")


def test_status_and_lists(run: Run) -> None:
    first = json.loads(run("submit", "--json", "--name", "unlike others", "--array", "1-3", "--", "true").out)[
        "ids"
    ][0]
    found = json.loads(run("status", "--json").out)
    assert {"servers", "jobs", "trouble"} <= found.keys()
    assert sum(found["jobs"].values()) >= 3
    assert "trouble: " in run("status").out
    part = run("jobs", "--name", "unlike others", "--limit", "2")
    assert part.err == "slotwise: 2 of 3 jobs; --limit 0 lists all\n"
    assert len(part.out.splitlines()) == 3
    assert run("jobs", "--name", "unlike others", "--limit", "0").err == ""
    oldest = json.loads(
        run("jobs", "--since", "1d", "--array", str(first), "--sort", "submitted", "--reverse", "--json").out
    )
    assert [job["id"] for job in oldest] == [first, first + 1, first + 2]
    counts = json.loads(run("jobs", "--count", "--name", "unlike others", "--json").out)
    assert sum(counts.values()) == 3
    assert run("cancel").code == 2
    assert run("cancel", "--all", "1").code == 2
    assert json.loads(run("cancel", "--array", str(first), "--json").out)["errors"] == {}


def test_a_relative_directory_is_the_callers(run: Run, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(process.folder)
    (process.folder / "below").mkdir()
    for cwd, meant in ((".", process.folder), ("below", process.folder / "below"), ("..", process.folder.parent)):
        assert run("submit", "--wait", "--cwd", cwd, "--", "pwd").out == f"{meant}\n"
    with Client(process.address, token=own_token(process)) as client:
        job = client.submit(["pwd"], cwd="below")
        assert job.result(PATIENCE).exit_code == 0
        assert job.output().decode() == f"{process.folder}/below\n"
        with pytest.raises(ServiceError, match="cwd: .*'below' is relative"):
            client.call("POST", "/v1/jobs", json={"argv": ["pwd"], "cwd": "below"})


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["submit", "--needs", "cpu=999", "--", "true"], 2, "no server can hold a job that needs cpu=999"),
        (["submit", "--needs", "cpu", "--", "true"], 2, "--needs: 'cpu' is no need; write it like cpu=2,memory=4G"),
        (["submit", "--needs", "cups=1", "--", "true"], 2, "no resource is called 'cups'"),
        (["submit", "--type", "none", "--", "true"], 2, "no type is called 'none'"),
        (["submit", "--array", "9-1", "--", "true"], 2, "1-1000"),
        (["submit", "--on-loss", "cry", "--", "true"], 2, "is not one of: fail, requeue"),
        (["submit", "--env", "NOT_SET_ANYWHERE", "--", "true"], 2, "is not set here"),
        (["submit", "--requires", "fast", "--", "true"], 2, "write NAME=VALUE"),
        (["submit"], 2, "ARGV... is missing; write slotwise submit -- ARGV..."),
        (["jobs", "--state", "happy"], 2, "no state is called 'happy'"),
        (["job", "999999"], 1, "there is no job 999999"),
        (["job", "x"], 2, "'x' is no number of a job"),
        (["logs", "999999"], 1, "there is no job 999999"),
        (["stop", "999999"], 1, "there is no job 999999"),
        (["drain", "no where?"], 1, "there is no server 'no where?'"),
        (["submit", "--needs", "cpu=1", "--needs", "cpu=2", "--", "true"], 2, "names cpu twice"),
        (["token", "create", "--role", "king"], 2, "no role is called 'king'"),
        (["token", "create", "--role", "submit", "--user", "no such"], 2, "no account of this machine is called 'no such'"),
        (["jobs", "--server", "localhost:8700"], 2, "write it like http://"),
        (["jobs", "--server", "http://127.0.0.1:9"], 1, "is `slotwise serve` running?"),
        (["jobs", "--profile", "lab"], 2, "profiles.toml"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(run: Run, argv: list[str], code: int, said: str) -> None:
    ran = run(*argv)
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
    assert said in ran.err
    assert ran.err.startswith("slotwise: ")


def test_tokens_and_profiles(run: Run, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = run("token", "create", "--role", "submit", "--tenant", "lab").out.strip()
    profiles = process.folder / "config" / "slotwise" / "profiles.toml"
    profiles.parent.mkdir(parents=True)
    profiles.write_text(f'[lab]\nserver = "{process.address}"\ntoken = "{secret}"\n[odd]\nserver = 3\n')
    number = json.loads(run("submit", "--profile", "lab", "--json", "--", "true").out)["id"]
    assert json.loads(run("job", str(number), "--json").out)["tenant"] == "lab"
    assert run("drain", "x", "--profile", "lab").err.count("needs operate") == 1
    own = pwd.getpwuid(os.geteuid()).pw_name
    made = json.loads(run("token", "create", "--role", "submit", "--user", own, "--json").out)
    assert made["user"] == own
    assert re.search(rf"^{made['id']} .*\b{own}\b", run("token", "list").out, re.MULTILINE)
    assert run("jobs", "--profile", "odd").code == 2
    profiles.write_text("[lab\n")
    assert run("jobs", "--profile", "lab").code == 2
    monkeypatch.setenv("SLOTWISE_TOKEN", "sw_a_b")
    refused = run("jobs")
    assert (refused.code, "SLOTWISE_TOKEN" in refused.err) == (1, True)


def test_ctrl_c_ends_the_waiting_and_not_the_job(process: Process) -> None:
    command = [sys.executable, "-m", "slotwise", "submit", "--wait", "--", "sh", "-c", "echo up; sleep 60"]
    environment = {**process.environment, "SLOTWISE_SERVER": process.address}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stderr is not None
        assert waiting.stdout.readline() == "up\n"
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait() == 130
        said = waiting.stderr.read()
    number = int(re.search(r"job (\d+) goes on", said)[1])  # type: ignore[index]
    with Client(process.address, token=own_token(process)) as client:
        while (state := client.job(number).state) != "running":
            assert state == "placed"  # its output is there before its start is told
        client.stop(number)
        assert [job.state for job in client.wait([number])] == ["cancelled"]


def test_no_secret_in_a_log_or_a_process_list(run: Run, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2-in-the-environment")
    number = json.loads(
        run("submit", "--json", "--env", "PASSWORD", "--", "sh", "-c", "echo $PASSWORD; sleep 60").out
    )["id"]
    with Client(process.address, token=own_token(process)) as client:
        for piece in client.output(number, follow=True):
            assert piece == b"hunter2-in-the-environment\n"
            break
        token = own_token(process)
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue  # it has ended
            assert b"hunter2-in-the" not in line
            assert token.encode() not in line
        client.stop(number)
        client.wait([number])
    written = (process.folder / "errors").read_text()
    assert "hunter2-in-the" not in written
    assert token not in written
    whole, _, _ = written.rpartition("\n")  # the last line may be half written
    assert all(json.loads(line)["level"] for line in whole.splitlines())


def test_asyncio(process: Process) -> None:
    async def side_by_side() -> tuple[list[int | None], bytes, int]:
        async with AsyncClient(process.address, token=own_token(process)) as client:
            made = await client.submit_many([{"argv": ["echo", "a"]}, {"argv": ["false"]}])
            codes = [job.exit_code for job in sorted(await client.wait(made, timeout=PATIENCE))]
            output = b"".join([piece async for piece in client.output(made[0].id)])
            rows = [row["seq"] async for row in client.events(0, follow=False)]
            assert rows == sorted(set(rows))
            listed = [job.id async for job in client.jobs(limit=2)]
            long = await client.submit(["sleep", "60"])
            assert await client.wait([long], timeout=0.01) == []
            while (await long.status()).state == "waiting":
                pass  # for jobs of the tests before
            await client.stop(long.id)
            return codes, output, len(listed)

    assert asyncio.run(side_by_side()) == ([0, 1], b"a\n", 2)
    with pytest.raises(ServiceError, match="token"), Client(process.address, token="sw_a_b") as stranger:
        stranger.job(1)


def test_like_concurrent_futures(process: Process) -> None:
    with Client(process.address, token=own_token(process)) as client:
        job = client.submit(["sleep", "60"])
        with pytest.raises(TimeoutError, match="has not ended"):
            job.result(timeout=0.01)
        while not job.running():
            assert not job.done()
        assert not job.cancel()  # it runs
        client.stop(job.id)
        assert job.result(PATIENCE).state == "cancelled"
        assert (job.cancelled(), job.running(), job.done()) == (True, False, True)


def own_token(process: Process) -> str:
    (path,) = (Path(process.environment["XDG_STATE_HOME"]) / "slotwise").glob(
        f"token-*-{process.address.split(':')[-1]}"
    )
    return path.read_text().strip()


def test_packaging_uses_options_that_exist() -> None:
    import typer

    from slotwise.cli.main import build

    known = {
        name
        for parameter in typer.main.get_command(build(["serve"])).commands["serve"].params  # type: ignore[attr-defined]
        for name in parameter.opts
    }
    for name in ("slotwise.service", "Containerfile"):
        text = (ROOT / "packaging" / name).read_text()
        lines = re.findall(r"serve.*", text)
        assert lines
        for line in lines:
            assert set(re.findall(r"--[a-z-]+", line)) <= known, line

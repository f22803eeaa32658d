"""Jobs of callers who do not operate the service are kept out of its files, of other jobs, and of its sockets, although they run as its user."""

from __future__ import annotations

import logging
import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from house import House
from processes import PATIENCE, gone, kill_supervisor
from test_local_engine import Driver, supervisor_of, wait_for

import slotwise
from slotwise.live import serving, unix_sockets
from slotwise.live.api import connections
from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.protocol import Ended
from slotwise.live.engines.supervisor import confining
from slotwise.live.hooks.definition import Hook
from slotwise.live.out_of_reach import out_of_reach
from slotwise.live.spec import CONFINED, plain
from slotwise.live.store import open_store

IS_ROOT = os.geteuid() == 0
needs_landlock = pytest.mark.skipif(not confining.version(), reason="this kernel has no Landlock")
REACH = """
import socket, sys
peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
peer.settimeout(60)
peer.connect(sys.argv[1])
try:
    print("hello" if peer.recv(10) else "nothing")
except ConnectionResetError:
    print("nothing")
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with what is secret, what is not, and an engine's folder."""
    (tmp_path / "state" / "deep").mkdir(parents=True)
    (tmp_path / "state" / "token").write_text("a secret")
    (tmp_path / "x.db").write_text("a secret")
    (tmp_path / "work").mkdir()
    (tmp_path / "code" / "deep").mkdir(parents=True)
    (tmp_path / "code" / "deep" / "program").write_text("#!/bin/sh\necho it runs\n")
    (tmp_path / "code" / "deep" / "program").chmod(0o755)
    (tmp_path / "code" / "key").write_text("a secret")
    (tmp_path / "link").symlink_to(tmp_path / "state")
    yield tmp_path
    kill_supervisor(tmp_path / "engine")


def drive(place: Path, **options: Any) -> Driver:
    return Driver(
        place / "engine",
        hidden=[place / "state", place / "x.db", place / "code" / "key", place / "not there"],
        fixed=[place / "code"],
        **options,
    )


def output(driver: Driver, job: int, script: str, **spec: Any) -> str:
    driver.start(job, "sh", "-c", script, confined=True, **spec)
    assert isinstance(driver.until_ended(job)[job], Ended)
    return driver.text(job)


@needs_landlock
@pytest.mark.parametrize(
    "deed",
    ["cat state/token", "cat code/key", "cat x.db", "cat link/token", "cat work/../state/token", "cat engine/log", "cat engine/output/0/1.1",
     "echo x >>state/token", "echo x >state/new", "rm state/token", "mv state/token work/t", "mv state work/s", "ln x.db work/x",
     "mkdir state/d", "echo x >new", "mv x.db work/x", "echo x >>code/deep/program", "echo x >code/new", "mv code/deep work/d", "rm code/deep/program"],
)  # fmt: skip
def test_hidden_files_can_be_neither_read_nor_changed(place: Path, deed: str) -> None:
    driver = drive(place)
    driver.start(1, "echo", "the output of another job")
    driver.until_ended(1)
    script = f"({deed}) >work/got 2>work/said && echo DONE; cat work/got; test -s work/said && echo refused"
    assert output(driver, 2, script, cwd=str(place)) == "refused\n"
    driver.start(3, "sh", "-c", "cat state/token x.db", cwd=str(place))
    driver.until_ended(3)
    assert driver.text(3) == "a secreta secret", "a job of an operator is not confined"
    driver.engine.close()


@needs_landlock
def test_all_else_goes_on_as_usual(place: Path) -> None:
    driver = drive(place)
    script = (
        "code/deep/program; echo a >work/a && mv work/a work/b && mkdir work/c && mv work/b work/c/b && cat work/c/b && echo out >>/dev/stdout"
        " && (sleep 1000 & kill $! && wait) ; ls state >/dev/null; ls; pwd; echo x >/dev/null; date >/dev/null"
    )
    names = sorted(path.name for path in place.iterdir())
    said = output(driver, 1, script, cwd=str(place)).splitlines()
    assert [line for line in said if "ermission denied" not in line] == ["it runs", "a", "out", *names, str(place)]
    driver.start(2, "no-such-command", confined=True)
    end = driver.until_ended(2)[2]
    assert isinstance(end, Ended)
    assert end.exit_code == 127
    driver.engine.close()


@needs_landlock
def test_processes_of_others_cannot_be_looked_into_or_signalled(place: Path) -> None:
    """As `nobody` where the test runs as root: root may look into any process."""
    driver = drive(place, runs_as_submitter=IS_ROOT)
    driver.start(1, "sh", "-c", "echo $$; exec sleep 1000", env={"SECRET": "of job 1"}, confined=True)
    wait_for(lambda: driver.text(1).endswith("\n"))
    pid = driver.text(1).strip()
    for job, what in enumerate(("environ", "mem", "fd/1", "root/etc/passwd", "cwd/."), 2):
        assert "ermission denied" in output(driver, job, f"cat /proc/{pid}/{what} 2>&1"), what
    if confining.keeps_signals():
        said = output(
            driver,
            10,
            f"kill -9 {pid} 2>&1; kill -9 {supervisor_of(place / 'engine')} 2>&1; kill -9 {os.getpid()} 2>&1",
        )
        assert said.count("not permitted") == 3
        assert not gone(int(pid))
    driver.engine.stop(1, 1)
    driver.until_ended(1)
    driver.engine.close()


@pytest.mark.parametrize("is_confined", [False, pytest.param(True, marks=needs_landlock)])
def test_no_job_speaks_to_the_supervisor(place: Path, is_confined: bool) -> None:
    """Its socket starts commands with all rights: only the service may use it, and no job poses as a newer one."""
    driver = drive(place)
    driver.start(1, sys.executable, "-I", "-S", "-c", REACH, str(place / "engine" / "socket"), confined=is_confined)
    driver.until_ended(1)
    assert driver.text(1) == "nothing\n"
    driver.engine.close()


@needs_landlock
@pytest.mark.skipif(unix_sockets.is_confined(), reason="every process here has the mark of confined jobs")
def test_no_confined_job_of_a_killed_supervisor_speaks_to_the_next(place: Path) -> None:
    driver = drive(place)
    reach = f"exec {sys.executable} -I -S -c '{REACH}' {place}/engine/socket >{place}/work/said"
    script = f"touch {place}/work/ready; until test -e {place}/work/../x.db.go; do sleep 0.01; done; {reach}"
    driver.start(1, "sh", "-c", script, confined=True)
    wait_for((place / "work" / "ready").exists)
    first = supervisor_of(place / "engine")
    kill_supervisor(place / "engine")
    driver.engine.known([])  # another one is there
    assert supervisor_of(place / "engine") != first
    (place / "x.db.go").touch()
    driver.until_ended(1)
    assert (place / "work" / "said").read_text() == "nothing\n"
    driver.engine.close()


@needs_landlock
def test_a_job_starts_no_processes_without_end(place: Path) -> None:
    """Not as root, whom the kernel lets start any number."""
    driver = drive(place, runs_as_submitter=IS_ROOT, processes=60 if IS_ROOT else threads_of_ours() + 60)
    driver.start(1, "sh", "-c", "for n in $(seq 200); do sleep 1000 & done; echo all", confined=True)
    end = driver.until_ended(1)[1]
    assert isinstance(end, Ended)
    assert end.exit_code != 0
    assert "all" not in driver.text(1)
    driver.engine.close()


def threads_of_ours() -> int:
    """All threads of this user: the limit counts them."""
    found = 0
    for path in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            found += len(os.listdir(path / "task")) if path.stat().st_uid == os.geteuid() else 0
    return found


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with unix_sockets.listen(tmp_path / "s", for_all=True) as sock:
        sock.listen()
        sock.settimeout(PATIENCE)  # a child that failed never connects
        yield sock


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these")
@pytest.mark.parametrize("how", ["plain", "confined", "gone"])
def test_a_confined_process_is_not_the_user_at_the_socket(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A job runs as the user of the service, who operates. What has gone could have been a job."""
    if unix_sockets.is_confined():
        pytest.skip("every process here has this mark")
    user = pwd.getpwnam("nobody").pw_uid if IS_ROOT else os.geteuid()
    tmp_path.chmod(0o755)  # the child is in it already: folders above may stay closed to its user
    script = (
        "import ctypes, os, socket, sys\n"
        f"if {IS_ROOT}: os.setuid({user})\n"
        f"if {how == 'confined'}: ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
        "s = socket.socket(socket.AF_UNIX); s.connect('s')\n"
        f"if {how != 'gone'}: s.recv(1)\n"
    )
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", script], cwd=tmp_path) as child:
        peer, _ = listening.accept()
        if how == "gone":
            child.wait()
        with peer:
            monkeypatch.setattr(os, "geteuid", lambda: user)
            assert connections.peer_uid(peer) == (user if how == "plain" else None)


def test_jobs_of_callers_who_do_not_operate_are_confined(tmp_path: Path) -> None:
    """Also if an operator submits them once more; then they run as the account that they had."""
    house = House(tmp_path)
    with house.http:
        house.tokens["alice"] = house.guard.create("submit", "alice", "nobody")[1]
        house.tokens["boss"] = house.guard.create("operate", user="root")[1]
        jobs = {role: house.submit(role) for role in ("submit", "alice", "boss")}
        for number in jobs.values():
            while house.call("GET", f"/v1/jobs/{number}").json()["ended"] is None:
                pass
        again = {
            role: house.call("POST", "/v1/jobs/resubmit", "boss", json={"ids": [number]}).json()["ids"][0]
            for role, number in jobs.items()
        }
        assert house.call("POST", "/v1/jobs", "submit", json={"argv": ["x"], CONFINED: False}).status_code == 422

        def of(number: int) -> tuple[object, object]:
            spec = plain(house.service.store.specs([number])[number][1])
            return spec.get(CONFINED), spec.get("user")

        expected = {"submit": (True, None), "alice": (True, "nobody"), "boss": (None, "root")}
        assert {role: of(number) for role, number in jobs.items()} == expected
        assert {role: of(number) for role, number in again.items()} == expected
    house.service.close()


@pytest.mark.parametrize("version", [0, 3, 7])
def test_a_service_says_what_separates_tenants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    monkeypatch.setattr(confining, "version", lambda: version)
    with caplog.at_level(logging.INFO, "slotwise"):
        serving.say_isolation(LocalEngine(tmp_path, {}), None)
    (said,) = [record.getMessage() for record in caplog.records]
    assert ("tenants are no isolation" in said) == (version == 0)
    assert ("Landlock" in said) == (version > 0)
    assert ("can signal other jobs" in said) == (version == 3)


def test_what_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store, tokens, keys, and files of the operator; the program itself, what shells start, and commands of hooks stay as they are."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    told = tmp_path / "tell"
    told.touch(0o700)
    (tmp_path / ".bashrc").touch()
    hook = Hook("h", frozenset(), None, [str(told)], tmp_path / "hook.secret", None, 1.0)
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    found = out_of_reach(store, tmp_path / "x.files", [tmp_path / "key.pem", None, "cluster.toml"], [hook])
    store.close()
    names = (
        "x.files",
        ".local/state/slotwise",
        ".config/slotwise",
        ".ssh",
        "x.db",
        "x.db-wal",
        "key.pem",
        "hook.secret",
    )
    assert {tmp_path / name for name in names} | {Path("cluster.toml")} <= set(found["hidden"])
    assert {told, tmp_path / ".bashrc"} <= set(found["fixed"])
    if os.access(slotwise.__path__[0], os.W_OK):
        assert Path(slotwise.__path__[0]) in found["fixed"]
    assert confining.present(["cluster.toml", str(told)]) == [str(told)]

"""A job is all that it started: with `setsid`, double forks and wiped environments, by control group or by process tree."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import PATIENCE, gone, kill_supervisor

from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.protocol import Ended, Fact, ServerUp, Start
from slotwise.live.engines.supervisor import trees
from slotwise.live.engines.supervisor.groups import is_delegated, own_group

SERVERS = {"a": ServerUp("a", {"cpu": 2, "memory": 1000})}
ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {wipe}
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(1000)
    os._exit(0)
os.wait()
"""


class Driver:
    """An engine whose facts are waited for."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        self.engine = LocalEngine(folder, SERVERS, grace=0.2, **options)  # type: ignore[arg-type]
        self.facts: queue.SimpleQueue[Fact] = queue.SimpleQueue()
        self.engine.open(lambda facts: [self.facts.put(fact) for fact in facts] and None, 1)

    def start(self, job: int, *argv: str, memory: float = 0, **spec: object) -> None:
        self.engine.start([Start(job, 1, "a", {"argv": list(argv), "cwd": "/", **spec}, {"memory": memory})])

    def python(self, job: int, script: str, *argv: str, memory: float = 0, **spec: object) -> None:
        self.start(job, sys.executable, "-c", script, *argv, memory=memory, **spec)

    def until_ended(self, job: int) -> Ended:
        while True:
            fact = self.facts.get(timeout=PATIENCE)
            if isinstance(fact, Ended) and fact.job == job:
                return fact


def can_use_groups() -> bool:
    own = own_group()
    return own is not None and is_delegated(*own) and os.path.exists(own[0])


@pytest.fixture(params=["tree", "group"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    if request.param == "group" and not can_use_groups():
        pytest.skip("no part of the cgroup v2 hierarchy is delegated here")
    made = Driver(tmp_path / "engine", uses_groups=request.param == "group")
    yield made
    made.engine.close()
    kill_supervisor(tmp_path / "engine")


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.01)


def number_in(file: Path) -> int:
    until(lambda: file.exists() and file.read_text())
    return int(file.read_text())


def test_what_a_job_left_behind_ends_with_it(driver: Driver, tmp_path: Path) -> None:
    driver.python(1, ESCAPE.format(wipe="pass"), str(tmp_path / "pid"))
    assert driver.until_ended(1).exit_code == 0
    until(lambda: gone(number_in(tmp_path / "pid")))


def test_a_process_that_hides_ends_too(driver: Driver, tmp_path: Path) -> None:
    wipe = "sys.argv[2:] or os.execve(sys.executable, [sys.executable, '-c', 'import os, sys, time; open(sys.argv[1], \"w\").write(str(os.getpid())); time.sleep(1000)', sys.argv[1]], {})"
    driver.python(1, ESCAPE.format(wipe=wipe), str(tmp_path / "pid"))
    assert driver.until_ended(1).exit_code == 0
    until(lambda: not (tmp_path / "pid").exists() or gone(number_in(tmp_path / "pid")))


def test_stop_ends_everything_with_grace_and_then_kill(driver: Driver, tmp_path: Path) -> None:
    """The escaped process ignores SIGTERM; a job beside it goes on."""
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    script = ESCAPE.format(wipe=stubborn) + "\nopen(sys.argv[2], 'w').write('x')\ntime.sleep(1000)"
    driver.python(1, script, str(tmp_path / "pid"), str(tmp_path / "ready"))
    driver.python(2, ESCAPE.format(wipe="pass") + "\ntime.sleep(1000)", str(tmp_path / "other"))
    until((tmp_path / "ready").exists)
    escaped, other = number_in(tmp_path / "pid"), number_in(tmp_path / "other")
    driver.engine.stop(1, 1)
    assert driver.until_ended(1).exit_code == -15
    until(lambda: gone(escaped))
    assert not gone(other)
    driver.engine.stop(2, 1)
    driver.until_ended(2)
    until(lambda: gone(other))


def test_memory_counts_for_all_processes_together(driver: Driver, tmp_path: Path) -> None:
    """Five processes of 40 MB each may not pass a limit of 100 MB, although each alone may."""
    script = "import os, time\nfor n in range(5):\n    if os.fork() == 0:\n        os.setsid(); x = bytearray(40_000_000); time.sleep(1000)\ntime.sleep(1000)"
    driver.python(1, script, memory=100)
    ended = driver.until_ended(1)
    assert ended.exit_code == -9
    assert "memory" in ended.reason


def test_a_time_limit_ends_everything(driver: Driver, tmp_path: Path) -> None:
    driver.python(1, ESCAPE.format(wipe="pass") + "\ntime.sleep(1000)", str(tmp_path / "pid"), time=0.5, grace=0.1)
    ended = driver.until_ended(1)
    assert "time" in ended.reason
    if (tmp_path / "pid").exists():
        until(lambda: gone(number_in(tmp_path / "pid")))


def test_a_job_of_a_killed_supervisor_is_stopped_with_all_of_it(driver: Driver, tmp_path: Path) -> None:
    driver.python(1, ESCAPE.format(wipe="pass") + "\ntime.sleep(1000)", str(tmp_path / "pid"))
    escaped = number_in(tmp_path / "pid")
    kill_supervisor(driver.folder)
    driver.engine.stop(1, 1)  # perhaps while no supervisor is there: the next one is told
    until(lambda: gone(escaped))


def test_a_missing_command_is_told_as_before(driver: Driver) -> None:
    driver.start(1, "no-such-command")
    ended = driver.until_ended(1)
    assert (ended.exit_code, ended.reason) == (127, "cannot be executed: no such command: no-such-command")
    driver.start(2, "/etc/passwd")
    assert driver.until_ended(2).exit_code == 126


def test_members_by_session_and_descent() -> None:
    processes = {
        pid: trees.Process(pid, "S", parent, group, session)
        for pid, parent, group, session in (
            (10, 1, 10, 10),
            (11, 10, 11, 11),
            (12, 1, 10, 10),
            (13, 1, 13, 13),
            (14, 11, 14, 14),
        )
    }
    assert trees.members(processes, 10, "", ()) == {10, 11, 12, 14}

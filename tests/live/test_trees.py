"""A job is all that it started: with `setsid`, double forks and wiped environments, by control group or by process tree."""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import PATIENCE, gone, kill_supervisor

from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.protocol import Ended, Fact, ServerUp, Start
from slotwise.live.engines.supervisor import groups, trees
from slotwise.live.engines.supervisor.groups import is_delegated, own_group

SERVERS = {"a": ServerUp("a", {"cpu": 2, "memory": 1000})}
ESCAPE = """
import os, sys, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {wipe}
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        os.write(writing, b"x")
        time.sleep(1000)
    os._exit(0)
os.close(writing)
os.wait()
os.read(reading, 1)
"""  # the first process goes on when the escaped one has told its number, or has become another program


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


@pytest.fixture
def a_signal_ignored() -> Iterator[None]:
    """What a process inherits that a shell starts in the background."""
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGQUIT, before)


def test_no_signal_is_ignored_or_blocked_in_a_job(a_signal_ignored: None, driver: Driver) -> None:
    """Whatever the supervisor does with its own signals: a job that ignores SIGPIPE or SIGINT would not end as it should."""
    driver.start(1, "grep", "-E", "SigBlk|SigIgn", "/proc/self/status")
    assert driver.until_ended(1).exit_code == 0
    written = driver.engine.output(1, 1, 0, 1000)
    assert written is not None
    can_be_set = sum(
        1 << (number - 1) for number in signal.valid_signals()
    )  # without those that the C library keeps for itself
    assert [int(line.split()[1], 16) & can_be_set for line in written[0].splitlines()] == [0, 0]


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


def test_groups_of_a_living_supervisor_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is empty between its making and the first process of its job. A supervisor that starts then must not remove it."""

    def other(name: str, processes: str) -> Path:
        made = tmp_path / f"slotwise-{name}"
        (made / "supervisor").mkdir(parents=True)
        (made / "supervisor/cgroup.procs").write_text(processes)
        (made / "85.1").mkdir()
        return made / "85.1"

    lives, died = other("1-1", "123\n"), other("1-2", "")
    (tmp_path / "engine").mkdir()
    monkeypatch.setattr(groups, "own_group", lambda: (str(tmp_path), "/"))
    monkeypatch.setattr(groups, "is_delegated", lambda path, name: True)
    made = groups.Groups(str(tmp_path / "engine"))
    base = tmp_path / made._name
    (base / "supervisor").mkdir(parents=True)
    (base / "cgroup.kill").touch()
    (base / "supervisor/cgroup.procs").touch()
    made.begin()
    assert made.base == str(base)
    assert lives.exists()
    assert not died.exists()


def test_memory_and_processes_are_limited_where_the_hierarchy_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of control groups exist as soon as a group is made; here writes are only noted."""
    written: dict[str, str] = {}
    (tmp_path / "engine").mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
    monkeypatch.setattr(groups, "own_group", lambda: (str(tmp_path), "/"))
    monkeypatch.setattr(groups, "is_delegated", lambda path, name: True)
    monkeypatch.setattr(groups, "enter", lambda base: True)
    monkeypatch.setattr(
        groups, "write", lambda path, text: written.update({str(Path(path).relative_to(tmp_path)): text})
    )
    made = groups.Groups(str(tmp_path / "engine"))
    made.begin()
    assert (made.limits_memory, made.limits_processes) == (True, True)
    assert made.make((7, 1), 1000, 60) == str(tmp_path / made._name / "7.1")
    below = f"{made._name}/7.1"
    assert written == {
        "cgroup.subtree_control": "+memory +pids", f"{made._name}/cgroup.subtree_control": "+memory +pids",
        f"{below}/pids.max": "60", f"{below}/memory.max": "1000", f"{below}/memory.swap.max": "0", f"{below}/memory.oom.group": "1",
    }  # fmt: skip


def test_a_group_that_was_removed_meanwhile_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, tries = tmp_path / "slotwise-1-3", []
    base.mkdir()
    (base / "cgroup.kill").touch()

    def write(path: str, text: str) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise FileNotFoundError(path)

    monkeypatch.setattr(groups, "write", write)
    assert groups.enter(str(base))
    assert len(tries) == 3

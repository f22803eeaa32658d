"""Real processes under the supervisor: started at most once, ended once, whatever is killed."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import PATIENCE, gone, kill_supervisor

from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.machine import Machine
from slotwise.live.engines.protocol import Ended, Fact, Lost, ServerUp, Start, Started, UnknownAttempt
from slotwise.live.engines.supervisor.claims import boot
from slotwise.live.engines.supervisor.outputs import make_space, output_path, sweep
from slotwise.live.engines.supervisor.processes import RunningProcess, ask_to_end, kill_late, start_time
from slotwise.live.engines.supervisor.rounds import Supervisor

SERVERS = {"a": ServerUp("a", {"cpu": 2, "memory": 1000})}


class Driver:
    """An engine with its facts in a queue."""

    def __init__(self, folder: Path, epoch: int = 1, **options: object) -> None:
        self.engine = LocalEngine(folder, SERVERS, grace=0.2, **options)  # type: ignore[arg-type]
        self.facts: queue.SimpleQueue[Fact] = queue.SimpleQueue()
        self.ends: dict[tuple[int, int], Ended | Lost] = {}
        self.engine.open(lambda facts: [self.facts.put(fact) for fact in facts] and None, epoch)

    def start(
        self, job: int, *argv: str, attempt: int = 1, demand: Mapping[str, float] | None = None, **spec: object
    ) -> None:
        self.engine.start([Start(job, attempt, "a", {"argv": argv, "cwd": "/", **spec}, demand or {})])

    def until_ended(self, *jobs: int, attempt: int = 1) -> dict[int, Ended | Lost]:
        """Wait for the ends of these jobs. Ends may be told more than once, so those of other jobs and attempts may come in between."""
        found: dict[int, Ended | Lost] = {}
        while found.keys() != set(jobs):
            fact = self.facts.get(timeout=PATIENCE)
            if isinstance(fact, Ended | Lost):
                known = self.ends.setdefault((fact.job, fact.attempt), fact)
                if isinstance(known, Ended) and isinstance(fact, Ended):  # a new supervisor does not know the start
                    known = known._replace(started=fact.started)
                assert known == fact, "two different ends"
                if fact.job in jobs and fact.attempt == attempt:
                    found[fact.job] = fact
        return found

    def until_started(self, job: int) -> None:
        while True:
            fact = self.facts.get(timeout=PATIENCE)
            if isinstance(fact, Started) and fact.job == job:
                return

    def text(self, job: int, attempt: int = 1) -> str:
        """The whole output."""
        pieces, offset = [], 0
        while (got := self.engine.output(job, attempt, offset, 1 << 20)) and got[0]:
            pieces.append(got[0])
            offset = got[1]
        return b"".join(pieces).decode()


def supervisor_of(folder: Path) -> int:
    """The process that holds the lock."""
    return int((folder / "lock").read_text())


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "does not come true"
        os.sched_yield()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "engine"
    kill_supervisor(tmp_path / "engine")


@pytest.fixture
def driver(folder: Path) -> Iterator[Driver]:
    made = Driver(folder)
    yield made
    made.engine.close()


def test_exit_codes_outputs_and_errors(driver: Driver, tmp_path: Path) -> None:
    driver.start(1, "true")
    driver.start(2, "sh", "-c", "echo out; echo err >&2; exit 3")
    driver.start(3, "sh", "-c", "kill -9 $$")
    driver.start(4, "/no/such/thing")
    driver.start(5, "no-such-command")
    driver.start(6, str(tmp_path))
    driver.start(7, "true", cwd="/no/such/folder")
    driver.start(
        8, "sh", "-c", 'pwd; echo "$X $SLOTWISE_JOB_ID $SLOTWISE_ATTEMPT"', cwd=str(tmp_path), env={"X": "ä b"}
    )
    driver.start(9, "cat")  # standard input is empty
    ends = driver.until_ended(*range(1, 10))
    codes = {job: end.exit_code for job, end in ends.items() if isinstance(end, Ended)}
    assert codes == {1: 0, 2: 3, 3: -9, 4: 127, 5: 127, 6: 126, 7: 127, 8: 0, 9: 0}
    assert driver.text(2) == "out\nerr\n"
    assert driver.text(8) == f"{tmp_path}\nä b 8 1\n"
    assert driver.engine.output(1, 1, 0, 100) is None  # an empty output leaves no file
    assert "no such command" in ends[5].reason
    assert not set(os.environ) & {"SLOTWISE_JOB_ID"}


def test_an_attempt_is_executed_once(driver: Driver, tmp_path: Path) -> None:
    for _ in range(3):
        driver.start(1, "sh", "-c", f"echo x >> {tmp_path}/count")
    first = driver.until_ended(1)
    driver.start(1, "sh", "-c", f"echo x >> {tmp_path}/count")
    assert driver.until_ended(1) == first  # told again, the same
    driver.start(1, "sh", "-c", f"echo x >> {tmp_path}/count", attempt=2)
    driver.until_ended(1, attempt=2)
    assert (tmp_path / "count").read_text() == "x\nx\n"


def test_a_service_that_wakes_up_late_is_sent_away(folder: Path, tmp_path: Path) -> None:
    """A newer one has come: the supervisor does nothing more for the older one, which would start what has long ended and was forgotten."""
    command = ["sh", "-c", "echo >> ran"]
    old = Driver(folder)
    old.start(1, *command, cwd=str(tmp_path))
    old.until_ended(1)
    new = Driver(folder, epoch=2)
    try:
        new.engine.settled([(1, 1)])
        assert new.engine.known([(1, 1, "a")]) == {(1, 1): UnknownAttempt()}
        assert old.engine._reader is not None
        old.engine._reader.join(PATIENCE)  # it was sent away
        assert not old.engine._reader.is_alive()
        old.start(1, *command, cwd=str(tmp_path))
        new.start(2, "true")
        new.until_ended(2)
        assert new.engine.known([(1, 1, "a")]) == {(1, 1): UnknownAttempt()}
        assert (tmp_path / "ran").read_text() == "\n"
    finally:
        for driver in (old, new):
            driver.engine.close()


def test_jobs_go_on_without_the_service(folder: Path) -> None:
    first = Driver(folder)
    first.start(1, "sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; exit 4", cwd=str(folder))
    first.until_started(1)
    pid = supervisor_of(folder)
    first.engine.close()
    second = Driver(folder)
    assert isinstance(second.engine.known([(1, 1, "a")])[1, 1], Started)
    second.engine.close()
    (folder / "go").touch()
    wait_for(lambda: "E 1 1 4" in (folder / "log").read_text())
    third = Driver(folder)
    known = third.engine.known([(1, 1, "a"), (2, 1, "a")])
    assert known[2, 1] == UnknownAttempt()
    assert isinstance(known[1, 1], Ended)
    assert known[1, 1].exit_code == 4
    third.engine.settled([(1, 1)])
    assert third.engine.known([(1, 1, "a")])[1, 1] == UnknownAttempt()
    assert supervisor_of(folder) == pid
    third.engine.close()


def test_a_killed_supervisor(folder: Path) -> None:
    """Its jobs go on; how they end is not known any more, and is told as lost; ends that were written down are kept."""
    driver = Driver(folder)
    driver.start(1, "sh", "-c", "exit 5")
    driver.until_ended(1)
    driver.start(2, "sh", "-c", "exec >/dev/null 2>&1; while [ ! -e go ]; do sleep 0.01; done", cwd=str(folder))
    driver.start(3, "sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; touch done3", cwd=str(folder))
    driver.until_started(3)
    old = supervisor_of(folder)
    os.kill(old, signal.SIGKILL)
    driver.start(4, "sh", "-c", "exit 6")  # to the dead one, or the new one
    end = driver.until_ended(4)[4]
    assert isinstance(end, Ended)
    assert end.exit_code == 6
    assert supervisor_of(folder) != old
    known = driver.engine.known([(n, 1, "a") for n in (1, 2, 3)])
    assert isinstance(known[1, 1], Ended)
    assert known[1, 1].exit_code == 5
    assert isinstance(known[2, 1], Started)
    assert isinstance(known[3, 1], Started)
    (folder / "go").touch()
    lost = driver.until_ended(2, 3)
    assert isinstance(lost[2], Lost)
    assert isinstance(lost[3], Lost)
    assert (folder / "done3").exists()
    driver.engine.close()


def test_a_claim_without_a_process_is_not_started_again(folder: Path) -> None:
    """A supervisor killed between the claim and the process: it may have run, so it must not run again."""
    folder.mkdir()
    (folder / "log").write_text(f"B {boot()}\nC 1 1\nC 2 1\nP 2 1 999999 123\nE 3 1 0 1.5\nC 4")
    driver = Driver(folder)
    driver.start(1, "touch", str(folder / "twice"))
    ends = driver.until_ended(1, 2)
    assert isinstance(ends[1], Lost)
    assert isinstance(ends[2], Lost)
    assert driver.engine.known([(3, 1, "a"), (4, 1, "a")]) == {
        (3, 1): Ended(3, 1, 0, 1.5),
        (4, 1): UnknownAttempt(),
    }
    assert not (folder / "twice").exists()
    driver.engine.close()


def test_after_the_machine_went_down(folder: Path) -> None:
    """Lines of the log may be missing then, so what has no end in it may have run: it is lost, once and for all, and is not started again."""
    folder.mkdir()
    (folder / "log").write_text("B another-boot\nC 1 1\nC 2 1\nP 2 1 999999 5\nE 3 1 0 1.5\n")
    driver = Driver(folder)
    known = driver.engine.known([(n, 1, "a") for n in (1, 2, 3, 4)])  # of the fourth nothing was synced
    assert isinstance(known[1, 1], Lost)
    assert isinstance(known[2, 1], Lost)
    assert known[3, 1] == Ended(3, 1, 0, 1.5)
    assert isinstance(known[4, 1], Lost)
    assert "machine went down" in known[4, 1].reason
    driver.start(4, "touch", str(folder / "twice"))  # a service that was killed before it wrote the loss down, say
    assert isinstance(driver.until_ended(4)[4], Lost)
    driver.start(5, "true")
    assert isinstance(driver.until_ended(5)[5], Ended)
    driver.engine.close()
    kill_supervisor(folder)
    again = Driver(folder)  # in the same boot: what it never heard of has never run
    known = again.engine.known([(n, 1, "a") for n in (4, 6)])
    assert isinstance(known[4, 1], Lost)
    assert known[6, 1] == UnknownAttempt()
    again.engine.close()
    assert not (folder / "twice").exists()


def test_a_supervisor_without_a_log_starts_nothing_that_may_have_run(folder: Path) -> None:
    driver = Driver(folder)
    assert isinstance(driver.engine.known([(1, 1, "a")])[1, 1], Lost)
    assert driver.engine.known([(2, 1, "a")])[2, 1] == UnknownAttempt()  # asked for later: it was placed since
    driver.start(2, "true")
    assert isinstance(driver.until_ended(2)[2], Ended)
    driver.engine.close()


def test_stop(driver: Driver, tmp_path: Path) -> None:
    driver.start(1, "sleep", "100")
    driver.start(
        2,
        sys.executable,
        "-c",
        "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(99)",
    )
    wait_for(lambda: driver.text(2) == "1\n")
    driver.engine.stop(1, 1)
    driver.engine.stop(2, 1)
    driver.engine.stop(3, 1)  # never heard of
    ends = driver.until_ended(1, 2)
    assert {job: end.exit_code for job, end in ends.items() if isinstance(end, Ended)} == {1: -15, 2: -9}


def test_what_a_job_leaves_behind_is_ended(driver: Driver) -> None:
    driver.start(1, "sh", "-c", "sleep 1000 & echo $!")
    driver.until_ended(1)
    left = int(driver.text(1))
    wait_for(lambda: gone(left))


def test_output_is_limited(folder: Path) -> None:
    driver = Driver(folder, output_limit=64 * 1024)
    line = "0123456789abcdef" * 64
    script = f"for i in $(seq 2000); do echo $i {line}; done; while [ ! -e go ]; do sleep 0.01; done; echo the end"
    driver.start(1, "sh", "-c", script, cwd=str(folder))
    path = output_path(str(folder), 1, 1)
    wait_for(
        lambda: (
            os.path.exists(path) and os.stat(path).st_size > 2_000_000 and os.stat(path).st_blocks * 512 < 200_000
        )
    )
    (folder / "go").touch()
    driver.until_ended(1)
    text = driver.text(1)
    assert text.startswith(f"1 {line}\n2 ")
    assert text.endswith("the end\n")
    assert "bytes dropped" in text
    assert len(text) < 100_000
    driver.engine.close()


def test_limits_and_cpus(folder: Path) -> None:
    cpu = sorted(os.sched_getaffinity(0))[0]
    driver = Driver(folder, machine=Machine((cpu, cpu), 10**9, (4, 5)))
    show = "import os, resource as r; print(sorted(os.sched_getaffinity(0)), r.getrlimit(r.RLIMIT_DATA)[0], r.getrlimit(r.RLIMIT_NOFILE)[0])"
    driver.start(1, sys.executable, "-c", show, demand={"cpu": 1, "memory": 500}, open_files=77)
    driver.start(2, sys.executable, "-c", "x = bytearray(900_000_000)", demand={"memory": 200})
    ends = driver.until_ended(1, 2)
    assert driver.text(1) == f"[{cpu}] 500000000 77\n"
    assert isinstance(ends[2], Ended)
    assert ends[2].exit_code == 1
    assert "MemoryError" in driver.text(2)
    driver.engine.close()


def test_cpus_are_shared_out() -> None:
    machine = Machine((0, 1, 2, 5), 10**10, (0, 1))
    pools = machine.pools({"x": ServerUp("x", {"cpu": 3, "gpu": 1}), "y": ServerUp("y", {"cpu": 1, "gpu": 1})})
    assert (pools["x"].cpus, pools["y"].cpus) == ([0, 1, 2], [5])
    assert (pools["x"].gpus, pools["y"].gpus) == ([0], [1])
    more = machine.pools({"x": ServerUp("x", {"cpu": 3}), "y": ServerUp("y", {"cpu": 3})})
    assert more["x"].cpus == more["y"].cpus == []
    assert machine.capacity() == {"cpu": 4, "memory": 9500, "gpu": 2}


def test_the_log_is_kept_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(folder)
    for job in range(50):
        driver.start(job, "true")
    driver.until_ended(*range(50))
    driver.engine.settled([(job, 1) for job in range(49)])
    driver.engine.known([(1, 1, "a")])  # it has heard it
    driver.engine.close()
    kill_supervisor(folder)
    again = Driver(folder)
    assert isinstance(again.engine.known([(49, 1, "a")])[49, 1], Ended)
    assert [line[0] for line in (folder / "log").read_text().splitlines()] == ["B", "N", "H", "E"]
    again.engine.close()


def test_services_that_are_killed_at_the_door(driver: Driver, folder: Path) -> None:
    """They have connected, and are gone before the supervisor could greet them: it goes on, and so do its jobs."""
    driver.start(1, "sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; exit 4", cwd=str(folder))
    driver.until_started(1)
    pid = supervisor_of(folder)
    os.kill(pid, signal.SIGSTOP)
    for _ in range(3):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            here = os.open(folder, os.O_RDONLY)
            dead.connect(f"/proc/self/fd/{here}/socket")
            os.close(here)
    os.kill(pid, signal.SIGCONT)
    (folder / "go").touch()
    end = driver.until_ended(1)[1]
    assert isinstance(end, Ended)
    assert end.exit_code == 4
    assert supervisor_of(folder) == pid


def test_nobody_else_can_talk_to_it(driver: Driver, folder: Path) -> None:
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "socket").stat().st_mode & 0o077 == 0


def test_two_supervisors_do_not_share_a_folder(driver: Driver, folder: Path) -> None:
    from slotwise.live.engines.local import SCRIPT

    pid = supervisor_of(folder)
    subprocess.run([sys.executable, "-I", "-S", str(SCRIPT), str(folder)], check=True)
    assert supervisor_of(folder) == pid
    driver.start(1, "true")
    assert json.dumps(driver.until_ended(1)[1].job) == "1"


def test_an_older_service_is_refused_also_while_no_other_is_there(tmp_path: Path) -> None:
    """The newest epoch is in the log: it holds with no service connected and after the supervisor was killed."""
    folder = tmp_path / "engine"
    newer = Driver(folder, epoch=2)
    newer.engine.known([])  # the supervisor has heard it
    newer.engine.close()
    for _ in range(2):
        with closing(reach(folder)) as peer:
            peer.sendall(
                b'{"epoch":1}\n' + json.dumps({"start": [started(1, f"touch {tmp_path}/ran")]}).encode() + b"\n"
            )
            assert b'"refused":2' in heard(peer)
        kill_supervisor(folder)
        Driver(folder, epoch=2).engine.close()
    again = Driver(folder, epoch=3)
    again.start(2, "true")
    again.until_ended(2)
    again.engine.close()
    assert not (tmp_path / "ran").exists()


def reach(folder: Path) -> socket.socket:
    """A connection to the supervisor, as a service would make it."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(PATIENCE)
    peer.connect(f"/proc/self/fd/{here}/socket")
    os.close(here)
    return peer


def heard(peer: socket.socket) -> bytes:
    """All that the supervisor says until it hangs up."""
    pieces = []
    with suppress(ConnectionResetError):
        while piece := peer.recv(1000):
            pieces.append(piece)
    return b"".join(pieces)


def started(job: int, script: str) -> dict[str, object]:
    return {"job": job, "attempt": 1, "argv": ["sh", "-c", script], "env": {}, "cwd": "/", "output": 1000}


@pytest.mark.parametrize(
    "said",
    [b"x", b"[]", b'{"epoch":"a"}', b'{"epoch":1}\n{"stop":[1]}', b'{"epoch":1}\n{"known":[[1,1]]}',
     b'{"epoch":1}\n{"start":[{"job":1}]}', b'{"epoch":1}\n{"settled":7}', b'{"epoch":1}\n\xff'],
)  # fmt: skip
def test_what_the_supervisor_does_not_understand_ends_the_connection_only(tmp_path: Path, said: bytes) -> None:
    driver = Driver(tmp_path)
    driver.start(1, "sh", "-c", f"while ! test -e {tmp_path}/go; do sleep 0.01; done; exit 3")
    driver.until_started(1)
    before = supervisor_of(tmp_path)
    with closing(reach(tmp_path)) as peer:
        peer.sendall(said + b"\n")
        heard(peer)
    (tmp_path / "go").touch()
    end = driver.until_ended(1)[1]
    assert isinstance(end, Ended)
    assert (end.exit_code, supervisor_of(tmp_path)) == (3, before)
    driver.engine.close()


@pytest.mark.parametrize("damage", ["X 1 2", "C 7", "P 7 1 x y", "E 1 1", "\x00\x00", "\xff\xfe", ""])
def test_a_damaged_log_keeps_no_supervisor_from_starting(tmp_path: Path, damage: str) -> None:
    """What the log still says holds; what it may have lost is lost and is not executed."""
    (tmp_path / "log").write_bytes(f"B {boot()}\nE 1 1 4 5.0\n{damage}\n".encode("latin-1"))
    driver = Driver(tmp_path)
    known = driver.engine.known([(1, 1, "a"), (2, 1, "a")])
    assert known[1, 1] == Ended(1, 1, 4, 5.0, "", None)
    assert isinstance(known[2, 1], Lost)
    assert "damaged" in known[2, 1].reason
    assert (tmp_path / "log.damaged").exists()
    driver.start(3, "true")
    driver.until_ended(3)
    driver.engine.close()


def test_no_signal_goes_to_a_number_that_another_process_has(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        stale = RunningProcess(other.pid, "1")
        ask_to_end(stale, 0.0)
        stale.kill_at = 1.0
        kill_late(stale, 2.0)
        assert start_time(other.pid)
        mine = RunningProcess(other.pid, start_time(other.pid))
        ask_to_end(mine, 0.0)
        assert other.wait(PATIENCE) == -signal.SIGTERM
    finally:
        other.kill()
        other.wait()


def test_a_group_is_ended_after_its_first_process_has_gone(tmp_path: Path) -> None:
    read, write = os.pipe()
    leader = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $! >&2"], start_new_session=True, stderr=subprocess.PIPE,
                              stdout=write, text=True)  # fmt: skip
    os.close(write)
    assert leader.stderr is not None
    since, child = start_time(leader.pid, zombies=True), int(leader.stderr.readline())
    leader.wait(PATIENCE)
    assert start_time(child)
    ask_to_end(RunningProcess(leader.pid, since), 10.0)
    assert os.read(read, 1) == b"", "its end of the pipe is closed when it has ended"
    os.close(read)
    leader.stderr.close()


def output_of(folder: Path, job: int, size: int, written: float) -> Path:
    path = Path(output_path(str(folder), job, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (written, written))
    return path


def test_outputs_have_a_quota(tmp_path: Path) -> None:
    """The oldest of ended jobs go first, those that are no longer kept always, and none that a job still has open."""
    old, held, *rest = [output_of(tmp_path, job, 100_000, 1000.0 * job) for job in range(1, 7)]
    with open(held) as reader:
        fcntl.flock(reader, fcntl.LOCK_EX)
        assert sweep(str(tmp_path), 10**6, 10**9, 1500.0) == 5 * size_of(held)
        assert not old.exists()
        assert sweep(str(tmp_path), 10**6, 3 * size_of(held), 0.0) == 3 * size_of(held)
        assert [one.exists() for one in (held, *rest)] == [True, False, False, True, True]


def size_of(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_the_limit_of_an_output_holds_after_the_end(tmp_path: Path) -> None:
    """A process that a job has left behind writes on: its output is shortened all the same."""
    path = output_of(tmp_path, 1, 1_000_000, 5.0)
    assert sweep(str(tmp_path), 100_000, 10**9, 0.0) <= 110_000
    assert path.stat().st_size == 1_000_000, "the middle is a hole"


def test_outputs_give_way_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest are shortened first, and no more of them than it takes: the store needs the space."""
    small, large, larger = [
        output_of(tmp_path, job, size, 5.0) for job, size in enumerate((90_000, 10**6, 3 * 10**6))
    ]
    disk = 100_000_000

    def found(path: str) -> SimpleNamespace:
        free = disk - filled - sum(map(size_of, (small, large, larger)))
        return SimpleNamespace(f_blocks=disk, f_frsize=1, f_bavail=free)

    monkeypatch.setattr("slotwise.live.engines.supervisor.outputs.os.statvfs", found)
    filled = 90_000_000
    assert make_space(str(tmp_path))
    assert [one.stat().st_blocks * 512 >= 10**6 for one in (large, larger)] == [True, True]
    filled = 93_000_000
    assert make_space(str(tmp_path))
    assert (size_of(large) >= 10**6, size_of(larger) < 200_000) == (True, True)
    filled = 96_000_000
    assert not make_space(str(tmp_path)), "there is no more to shorten"
    assert [size_of(one) < 200_000 for one in (small, large, larger)] == [True] * 3
    assert small.read_bytes() == b"x" * 90_000
    assert larger.stat().st_size == 3 * 10**6


@pytest.mark.parametrize("where", ["engine", "supervisor"])
def test_a_full_disk_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """By the service for outputs of ended jobs, and by the supervisor for those of running ones."""
    monkeypatch.setattr("slotwise.live.engines.local.SWEEP_SECONDS", 0.01)
    monkeypatch.setattr("slotwise.live.engines.supervisor.outputs.RESERVE_BYTES", float("inf"))
    monkeypatch.setattr("slotwise.live.engines.supervisor.outputs.RESERVE_SHARE", 2.0)
    path = output_of(tmp_path, 1, 10**6, 5.0)
    if where == "engine":
        driver = Driver(tmp_path)
        wait_for(lambda: size_of(path) < 200_000)
        driver.engine.close()
    else:
        Supervisor(str(tmp_path), uses_groups=False)._look(100.0)
        assert size_of(path) < 200_000


def test_the_engine_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotwise.live.engines.local.SWEEP_SECONDS", 0.01)
    old = output_of(tmp_path, 1, 10, 5.0)
    driver = Driver(tmp_path, keep_seconds=3600.0)
    wait_for(lambda: not old.exists())
    driver.engine.close()

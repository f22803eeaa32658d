"""`slotwise.live.Executor` on a real `slotwise serve --local`: results, exceptions, cancellation, chunks, restarts."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError, as_completed
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Process

from slotwise.errors import InputError
from slotwise.live import Executor, task
from slotwise.live.executor import JobError, RemoteTracebackError
from slotwise.live.transport import ServiceError


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    made = Process(tmp_path_factory.mktemp("executor"), "--local")
    made.start()
    yield made
    made.clean_up()


@pytest.fixture
def make(process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_STATE_HOME", process.environment["XDG_STATE_HOME"])
    return lambda **options: Executor(process.address, folder=tmp_path / "calls", **options)


def test_results_exceptions_and_chunks(make: Any, tmp_path: Path) -> None:
    factor = 3

    def times(number: int) -> int:
        return number * factor  # a closure: only cloudpickle can send it

    def fails(text: str) -> None:
        raise KeyError(text)

    def dies() -> None:
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    with make(needs={"cpu": 1}, time="1h") as executor:
        results = executor.map(times, range(10), chunksize=4)
        one, wrong, dead = executor.submit(times, number=7), executor.submit(fails, "x"), executor.submit(dies)
        unpicklable = executor.submit(lambda: (n for n in ()))
        assert one.result(PATIENCE) == 21
        assert list(results) == [3 * n for n in range(10)]
        with pytest.raises(KeyError, match="x") as caught:
            wrong.result(PATIENCE)
        assert isinstance(caught.value.__cause__, RemoteTracebackError)
        assert "in fails" in str(caught.value.__cause__)
        with pytest.raises(JobError, match="last words") as killed:
            dead.result(PATIENCE)
        assert killed.value.job is not None
        assert killed.value.job.exit_code == -signal.SIGKILL
        with pytest.raises(RuntimeError, match="cannot be pickled"):
            unpicklable.result(PATIENCE)
        assert {future.done() for future in as_completed([one, wrong, dead])} == {True}
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(times, 1)
    assert list((tmp_path / "calls").iterdir()) == []


def test_cancelling(make: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")

    def wait(path: str) -> str:
        return Path(path).read_text()

    with make(needs={"cpu": 1}) as executor:
        every = executor.using(needs={"cpu": len(os.sched_getaffinity(0))})
        running = every.submit(wait, str(tmp_path / "gate"))
        gate = open(tmp_path / "gate", "w")  # noqa: SIM115 - returns once the job reads it
        waiting = every.submit(wait, "/dev/null")
        assert waiting.cancel()
        assert waiting.cancelled()
        with pytest.raises(CancelledError):
            waiting.result(PATIENCE)
        assert not running.cancel()
        running.stop()
        with pytest.raises(JobError, match="cancelled"):
            running.result(PATIENCE)
        gate.close()


def test_results_and_calls_of_other_users_are_not_read(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a pickle executes what it says. A folder of calls may lie in one that other users can change."""
    planted = tmp_path / "planted"
    planted.write_bytes(pickle.dumps([]) + pickle.dumps((os.mkdir, (str(tmp_path / "owned"),), {})))
    (tmp_path / "link").symlink_to(planted)
    assert task.outcome_of(str(tmp_path / "link"))[0] is False
    with make() as executor:
        future = executor.submit(int, "7")
        monkeypatch.setattr("slotwise.live.task.os.geteuid", lambda: os.getuid() + 1)
        with pytest.raises(JobError, match="belongs to another user"):
            future.result(PATIENCE)
        ok, error, _ = task.outcome_of(str(planted))
        assert (ok, type(error)) == (False, PermissionError)
        monkeypatch.undo()
        assert not (tmp_path / "owned").exists()
        assert task.outcome_of(str(planted))[0] is True


def test_refused_calls_fail_alone(make: Any) -> None:
    with make() as executor:
        good = executor.submit(int, "7")
        bad = executor.using(needs={"unicorn": 1}).submit(int, "8")
        with pytest.raises(ServiceError, match="unicorn"):
            bad.result(PATIENCE)
        assert good.result(PATIENCE) == 7
    with pytest.raises(InputError, match="no duration"):
        make(time="soon")
    with pytest.raises(InputError, match="leave it out"):
        make(array="1-3")


def test_restarts_of_the_service_lose_and_repeat_nothing(process: Process, make: Any, tmp_path: Path) -> None:
    def mark(number: int) -> int:
        with open(tmp_path / "marks", "a") as file:
            file.write(f"{number}\n")
        return number

    with make() as executor:
        before = [executor.submit(mark, n) for n in range(5)]
        assert before[0].result(PATIENCE) == 0
        process.end(signal.SIGKILL)
        during = [executor.submit(mark, n) for n in range(5, 10)]
        process.start()
        assert [future.result(PATIENCE) for future in before + during] == list(range(10))
    assert sorted(map(int, (tmp_path / "marks").read_text().split())) == list(range(10))

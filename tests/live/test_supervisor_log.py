"""The log and the socket of a supervisor: what a damaged disk, or a tenant with odd names, must not make of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slotwise.live.engines.supervisor.claims import Claims, boot, read_log
from slotwise.live.engines.supervisor.processes import CannotExecuteError
from slotwise.live.engines.supervisor.rounds import Supervisor
from slotwise.live.engines.supervisor.talking import parse

NAMES = ("/x\rE 5 1 0 1.0", "/x\nE 5 1 0 1.0", "/\u00fcn\u00ef\u2028\u0085\x0b", "\udc80")


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_command_makes_lines_of_its_own(tmp_path: Path, name: str) -> None:
    """The reason of an end names the command. With the end of a line in it, it could end the job of another tenant."""
    log = Claims(str(tmp_path))
    log.claim((1, 1))
    log.claim((5, 1))
    log.end((1, 1), 127, str(CannotExecuteError(FileNotFoundError(2, "no such command", name))))
    assert log.write()
    log.compact([((5, 1), 0, "")])  # as when the log has grown
    again = Claims(str(tmp_path))
    assert not again.damaged
    assert set(again.ended) == {(1, 1)}
    assert set(again.claimed) == {(5, 1)}


DAMAGED_LINES = (
    "T 2 1 105.0 5.0 nan 103.0 10",
    "T 2 1 later",
    "P 2 1 1 99",  # init
    "P 2 1 99999999999 99",
    "P 2 1 -5 99",
    f"C {10**30} 1",
    "E 2 1 0 inf",
    "E 1 1 0 \u00b2",
    f"N {10**30}",
    "H 1_0",
)


@pytest.mark.parametrize("line", DAMAGED_LINES)
def test_a_damaged_line_is_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_bytes(f"B {boot()}\nN 3\nC 2 1\n{line}\nC 3 1\n".encode())
    supervisor = Supervisor(str(tmp_path))
    supervisor._look(1e18)
    assert line[:5] in supervisor._claims.damaged
    assert (supervisor._claims.epoch, supervisor._claims.highest) == (3, 3)
    again = Claims(str(tmp_path))
    assert not again.damaged
    assert set(again.claimed) | set(again.ended) == {(2, 1), (3, 1)}


def test_what_has_ended_does_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"B {boot()}\nC 1 1\nE 1 1 0 5.0\nC 1 1\nP 1 1 {os.getpid()} 1\n")
    log = read_log(str(tmp_path))
    assert log is not None
    assert (set(log.ended), set(log.claimed)) == ({(1, 1)}, set())
    assert log.damaged


START = {"job": 1, "attempt": 1, "argv": ["x"], "env": {}, "cwd": "/", "output": 1000}


@pytest.mark.parametrize(
    "message",
    [
        b"[" * 100_000,
        {"start": [START | {"job": 10**400}]},
        {"start": [START | {"time": "1"}]},
        {"start": [START | {"warn": [99, 1]}]},
        {"start": [START | {"warn": "USR1"}]},
        {"start": [START | {"memory": 10**30}]},
        {"start": [START | {"user": 5}]},
        {"stop": [1, 1, float("nan")]},
        {"known": [[1, 1]], "id": 10**400},
        {"epoch": True},
    ],
)
def test_what_no_service_says_is_refused(message: bytes | dict[str, object]) -> None:
    with pytest.raises(ValueError, match="deep|understood|digits"):
        parse(message if isinstance(message, bytes) else json.dumps(message).encode())


def test_what_a_service_says_is_understood() -> None:
    start = START | {"time": 5, "warn": [10, 1e300], "grace": 0.5, "cpus": None, "memory": 0, "user": "x", "cpu": 1}
    assert parse(json.dumps({"start": [start], "epoch": 3}).encode())["start"] == [start]

"""The first run: another process compiles a part, leaves it in the cache, and is ended when this one is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import slotwise
from slotwise.simulation import ahead
from slotwise.simulation.parts import compile_parts


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Others that are started: a process that waits for ever, and the command that was meant."""
    started: list[list[str]] = []
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        started.append(command)
        return real([sys.executable, "-c", "import signal; signal.pause()"], **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(ahead, "JIT", True)
    monkeypatch.setattr(ahead, "_others", {})
    monkeypatch.setattr(ahead, "is_compiled", lambda *_: False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(subprocess, "Popen", popen)
    return started


def test_a_part_is_asked_for_once(nobody: list[list[str]]) -> None:
    ahead.begin("loop")
    ahead.begin("loop")
    ahead.begin("guarded", "best-fit")
    assert [command[2:] for command in nobody] == [
        ["slotwise.simulation.parts", "loop"],
        ["slotwise.simulation.parts", "guarded", "best-fit"],
    ]
    ahead.give_up()
    ahead.wait("loop", "guarded", "never asked for")  # ends, since they have been ended
    assert all(other.returncode is not None for other in ahead._others.values() if other is not None)


@pytest.mark.parametrize("hindrance", ["compiled", "one core", "no compiler", "is one of the others"])
def test_nobody_is_started(nobody: list[list[str]], monkeypatch: pytest.MonkeyPatch, hindrance: str) -> None:
    if hindrance == "compiled":
        monkeypatch.setattr(ahead, "is_compiled", lambda *_: True)
    elif hindrance == "one core":
        monkeypatch.setattr(os, "cpu_count", lambda: 1)
    elif hindrance == "no compiler":
        monkeypatch.setattr(ahead, "JIT", False)
    else:
        ahead.alone()
    ahead.begin("loop")
    ahead.wait("loop")
    assert nobody == []


def test_a_mistake_ends_the_others(nobody: list[list[str]]) -> None:
    with pytest.raises(RuntimeError, match="of mine"):
        slotwise.simulate("example1", Mistaken)
    (other,) = ahead._others.values()
    assert other is not None
    assert other.wait() != 0


class Mistaken(slotwise.Policy):
    """One that cannot even be made ready."""

    name = "mistaken"

    def prepare(self, store: object) -> None:
        raise RuntimeError("a mistake of mine")


def test_the_parts_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_others", {})
    compile_parts(["loop", "m14"])
    assert ahead._others == {"loop": None}

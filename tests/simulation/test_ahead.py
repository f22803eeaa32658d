"""The first run: another process compiles a part, leaves it in the cache, and is ended when this one is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import slotwise
from slotwise._kernel import JIT
from slotwise.scheduling.hooks import Hooks
from slotwise.simulation import ahead
from slotwise.simulation.parts import compile_parts
from slotwise.simulation.simulate import InterruptedRunError


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Others that are started: a process that waits for ever, and the command that was meant."""
    started: list[list[str]] = []
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        started.append(command)
        return real([sys.executable, "-c", "import signal; signal.pause()"], **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(ahead, "_others", {})
    monkeypatch.setattr(ahead, "compiled", lambda: False)
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


def test_who_takes_too_long_is_not_waited_for(nobody: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "PATIENCE", 0.0)
    ahead.begin("loop")
    ahead.wait("loop")
    (other,) = ahead._others.values()
    assert other is not None
    assert other.wait() != 0


@pytest.mark.parametrize("hindrance", ["compiled", "one core", "is one of the others"])
def test_nobody_is_started(nobody: list[list[str]], monkeypatch: pytest.MonkeyPatch, hindrance: str) -> None:
    if hindrance == "compiled":
        monkeypatch.setattr(ahead, "compiled", lambda: True)
    elif hindrance == "one core":
        monkeypatch.setattr(os, "cpu_count", lambda: 1)
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
    """One that cannot even be compiled."""

    name = "mistaken"

    def hooks(self) -> Hooks:
        raise RuntimeError("a mistake of mine")


def test_the_parts_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_others", {})
    compile_parts(["loop", "m14"])
    assert ahead._others == {"loop": None}


@pytest.mark.skipif(not JIT, reason="nothing is compiled")
def test_the_cache_is_looked_for_where_it_is(tmp_path: Path) -> None:
    """Where the package cannot be written, or Numba is told to keep its cache elsewhere, too."""
    code = "from slotwise.simulation import ahead; print(ahead.compiled())"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def asked() -> str:
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert asked() == "False"
    run = subprocess.run(
        [sys.executable, "-c", "from slotwise.simulation import loop; print(loop.run_jobs._cache.cache_path)"],
        env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    place = Path(run.stdout.strip())
    assert place.is_relative_to(tmp_path)
    place.mkdir(parents=True, exist_ok=True)
    (place / "loop.run_jobs-1.py3.nbi").touch()
    assert asked() == "True"


def test_interrupted_while_compiling(nobody: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled in the thread that hears Ctrl-C, and the others are ended."""

    def pressed(self: object) -> None:
        assert threading.current_thread() is threading.main_thread()
        raise KeyboardInterrupt

    monkeypatch.setattr(Mistaken, "hooks", pressed)
    with pytest.raises(InterruptedRunError) as interrupted:
        slotwise.simulate("example1", Mistaken)
    assert interrupted.value.results == []
    assert len(nobody) == 1
    (other,) = ahead._others.values()
    assert other is not None
    assert other.wait() != 0

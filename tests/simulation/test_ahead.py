"""The first run: helpers compile pieces, leave them in the cache, and are ended when this process is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import slotwise
from slotwise.compiler.kernel import JIT
from slotwise.core.contract.hooks import HOOKS, nothing
from slotwise.policies import POLICIES, make_policy
from slotwise.simulation.run import ahead, parts
from slotwise.simulation.simulate import InterruptedRunError

REAL = subprocess.Popen
NOTHING = "slotwise.core.contract.hooks:nothing"


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, str]]:
    """Nothing is known to be compiled, and nothing ever will be; what is told."""
    heard: list[tuple[int, int, str]] = []
    monkeypatch.setattr(ahead, "JIT", True)
    monkeypatch.setattr(ahead, "_known", set())
    monkeypatch.setattr(ahead, "in_cache", lambda piece: False)
    monkeypatch.setattr(ahead, "told", [lambda *one: heard.append(one)])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return heard


def helpers_that(code: str, monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """In place of the helpers: processes that do this."""
    started: list[subprocess.Popen[str]] = []

    def popen(command: list[str], **options: object) -> subprocess.Popen[str]:
        assert command[1:] == ["-m", "slotwise.simulation.run.parts"]
        started.append(REAL([sys.executable, "-c", code], **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return started


ANSWERS = "import sys\nfor line in sys.stdin: print(line.strip(), flush=True)"
WAITS = "import signal; signal.pause()"


def test_pieces_are_shared_out_and_told(
    unknown: list[tuple[int, int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = helpers_that(ANSWERS, monkeypatch)
    pieces = [f"m:f{n}" for n in range(7)]
    ahead.compile_pieces(pieces)
    assert len(started) == 2
    assert [n for n, _, _ in unknown] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {m for _, m, _ in unknown} == {7}
    assert sorted(piece for _, _, piece in unknown) == sorted([*pieces, ""])
    assert [piece for _, _, piece in unknown][:2] == ["m:f0", "m:f6"]  # from both ends
    assert all(helper.returncode is not None for helper in started)
    ahead.compile_pieces(pieces)  # known now
    assert len(started) == 2


def test_helpers_that_die_or_do_not_answer_cost_only_time(
    unknown: list[tuple[int, int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = helpers_that("", monkeypatch)
    ahead.compile_pieces(["m:a", "m:b", "m:c"])
    monkeypatch.setattr(ahead, "_known", set())
    monkeypatch.setattr(ahead, "PATIENCE", 0.0)
    more = helpers_that(WAITS, monkeypatch)
    ahead.compile_pieces(["m:a", "m:b", "m:c"])
    assert all(helper.returncode is not None for helper in [*started, *more])


def test_nobody_is_asked_for_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_known", set())
    monkeypatch.setattr(ahead, "in_cache", lambda piece: True)
    monkeypatch.setattr(subprocess, "Popen", None)
    ahead.compile_pieces([NOTHING, ahead.LOOP])


def test_a_helper_asks_no_helpers(unknown: list[tuple[int, int, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(ahead, "_helping", True)
    ahead.compile_pieces([NOTHING])


@pytest.mark.parametrize("name", POLICIES)
def test_every_function_of_a_policy_is_a_piece_that_can_be_found(name: str) -> None:
    policy = make_policy(name)
    pieces = ahead.pieces_of(policy, ("join", *HOOKS), ahead.DRIVERS)
    assert len(set(pieces)) == len(pieces)
    functions = [ahead.function_of(piece) for piece in pieces if ":" in piece]
    assert {policy.arrive, policy.complete, policy.join, *policy.late} <= {*functions}
    assert [piece for piece in pieces if ":" not in piece] == [*ahead.DRIVERS]


def test_a_policy_in_plain_python_needs_the_drivers_only() -> None:
    class Plain(slotwise.Policy):
        name = "plain"

    assert ahead.pieces_of(Plain(), ("arrive",), [ahead.LOOP]) == [ahead.LOOP]


def test_interrupted_while_helpers_compile(
    unknown: list[tuple[int, int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that hears Ctrl-C waits for them, and they are ended."""
    started = helpers_that(WAITS, monkeypatch)

    def pressed(*_: object) -> None:
        assert threading.current_thread() is threading.main_thread()
        if len(started) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ahead, "told", [pressed])
    with pytest.raises(InterruptedRunError) as interrupted:
        slotwise.simulate("example1", "m14")
    assert interrupted.value.results == []
    assert len(started) == 2
    assert all(helper.wait() != 0 for helper in started)


@pytest.mark.skipif(not JIT, reason="nothing is compiled")
def test_a_piece_is_in_the_cache_when_it_has_been_compiled_and_not_before(tmp_path: Path) -> None:
    """Also where Numba is told to keep its cache elsewhere; and not when any source has changed."""
    code = f"""
from slotwise.compiler import sources
from slotwise.simulation.run import ahead, parts
print(ahead.in_cache({NOTHING!r}))
parts.compile_piece({NOTHING!r})
print(ahead.in_cache({NOTHING!r}))
sources.stamp = lambda module: "other sources"
print(ahead.in_cache({NOTHING!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["False", "True", "False"]
    assert len(list(tmp_path.rglob("*.nbi"))) == 1


def test_the_drivers_can_be_run_for_their_kernels() -> None:
    for driver in ahead.DRIVERS:
        parts.compile_piece(driver)
    assert parts.Idle.arrive is nothing

"""`slotwise warm`, and the commands that compile nothing: real processes with a cache of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slotwise.cli.compiling import name_of, show
from slotwise.compiler.kernel import JIT

RUN = """
import sys
from slotwise.__main__ import main
try:
    main()
finally:
    print("numba" in sys.modules, file=sys.stderr)
"""


def called(cache: Path, *arguments: str) -> tuple[str, str]:
    """What the command prints on both streams."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "compiler"),
    [
        (["--help"], False),
        (["scenarios"], False),
        (["trace", "--help"], False),
        (["trace", "generate", "google-like", "--jobs", "50", "-o", "{}/jobs.parquet"], False),
        (["capacity", "table1"], True),
        (["capacity", "example1"], True),
    ],
)
def test_nothing_is_compiled_where_nothing_runs(arguments: list[str], compiler: bool, tmp_path: Path) -> None:
    """Where `compiler` is False, it is not even imported."""
    cache = tmp_path / "cache"
    _, err = called(cache, *(argument.format(tmp_path) for argument in arguments))
    assert err.split()[-1] == str(compiler)
    assert not list(cache.rglob("*.nb?"))


@pytest.mark.skipif(not JIT, reason="nothing is compiled")
def test_warm_compiles_once_and_all_that_runs_need(tmp_path: Path) -> None:
    out, err = called(tmp_path, "warm", "fifo")
    lines = [line for line in err.splitlines() if line.startswith("compiling")]
    assert lines
    assert lines[-1].startswith(f"compiling (once): kernel {len(lines)} of {len(lines)}, ")
    assert str(tmp_path) in out
    there = sorted(tmp_path.rglob("*.nbi"))
    out, err = called(tmp_path, "warm", "fifo")
    assert "nothing to do" in out
    assert "compiling" not in err
    failures = "cluster.servers.standard.failures={mean_time_between=1,mean_repair=0.1}"
    for settings in ([], ["--set", failures]):
        called(tmp_path, "simulate", "table1", "-p", "fifo", "--set", "run.events=2000", *settings)
    assert sorted(tmp_path.rglob("*.nbi")) == there


def test_an_unknown_policy_is_told() -> None:
    done = subprocess.run([sys.executable, "-m", "slotwise", "warm", "gaurded"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "did you mean guarded?" in done.stderr


def test_one_line_that_changes_on_a_terminal_and_plain_lines_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = "slotwise.policies.guarded.rules:place"
    assert name_of(piece) == "guarded.rules.place"
    assert name_of("loop") == "loop"
    show(1, 2, piece)
    show(3, 2, "")
    assert capsys.readouterr().err == "compiling (once): kernel 1 of 2, guarded.rules.place\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show(1, 2, piece)
    show(3, 2, "")
    shown = capsys.readouterr().err
    assert shown == "\r\033[Kcompiling (once): kernel 1 of 2, guarded.rules.place\r\033[K"

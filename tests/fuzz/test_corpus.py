"""Every input of the corpus, among them those that `make fuzz` once found, and a check that the targets see a defect."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from targets import BOOT, TARGETS, claims

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: str(path.relative_to(CORPUS)))
def test_each_input_is_read_or_refused(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


def test_the_targets_leave_logging_on() -> None:
    """Other tests of the same process read the log: only a fuzzing run may turn it off."""
    assert logging.root.manager.disable == logging.NOTSET


def test_each_target_has_inputs() -> None:
    assert {path.parent.name for path in INPUTS} == set(TARGETS)


def test_a_target_sees_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of a log are taken as they are, as they once were: the service would be told that a job ended at no time."""
    data = f"B {BOOT}\nC 1 1\nE 1 1 0 nan\n".encode()
    TARGETS["supervisor_log"](data)
    monkeypatch.setattr(claims, "finite", float)
    with pytest.raises(AssertionError):
        TARGETS["supervisor_log"](data)

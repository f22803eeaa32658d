"""What an experiment is: a name, a run that gives its section of the report and its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slotwise.experiments.settings import FULL, Scale
from slotwise.report.blocks import Section

Progress = Callable[[str, float], None]  # (what is being done, share of the experiment that is done)


def silent(_: str, __: float) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    scale: Scale = FULL
    traces: Mapping[str, Path] = field(default_factory=dict)
    """format of a real trace: where it lies"""
    progress: Progress = silent
    workers: int | None = None

    def share(self, what: str, start: float = 0.0, end: float = 1.0) -> Callable[[float], None]:
        """A listener to a part of the experiment, from `start` to `end` of the whole."""
        return lambda done: self.progress(what, start + (end - start) * done)


@dataclass(frozen=True)
class Experiment:
    """One of the experiments of `slotwise reproduce`."""

    name: str
    title: str
    run: Callable[[Order], Section]
    simulates: bool = True

"""Results as points of figures: what claims are tested on, what is drawn, and what is written beside the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from slotwise.display.drawing import DrawnSeries
from slotwise.experiments.sweep import SweepCell
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.result import Result


@dataclass(frozen=True)
class Point:
    """One policy in one setting: the mean queue over the replications, and what else was measured."""

    policy: str
    x: float
    mean: float
    low: float | None = None
    high: float | None = None
    verdict: Stability = Stability.STABLE
    law: str = ""
    label: str = ""
    runs: tuple[float, ...] = ()
    bound: float = 0.0
    more: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, cell: SweepCell, result: Result) -> Point:
        """The point of a cell's result."""
        queue, runs = result.mean_queue, result.runs
        facts = result.as_dict()
        more: dict[str, Any] = {f"wait_{name}": result.wait[name] for name in ("mean", "p50", "p95", "p99", "max")}
        more |= {"in_service": result.in_service, "offered": result.offered}
        more |= {key: facts[key] for key in ("stalled_fraction", "stalls", "resets", "overtakes")}
        more |= {"final_queue": sum(facts["final_queue"]) / len(runs)}
        more |= {"events": runs[0].events, "simulated_time": sum(run.measured for run in runs) / len(runs)}
        return cls(
            policy=cell.policy,
            x=cell.x,
            mean=queue.mean,
            low=queue.low,
            high=queue.high,
            verdict=result.verdict,
            law=cell.law,
            label=cell.label,
            runs=tuple(run.mean_queue for run in runs),
            bound=result.bound.mean_queue,
            more=more,
        )

    @property
    def stable(self) -> bool:
        """The queue was found to stay bounded."""
        return self.verdict is Stability.STABLE

    @property
    def grows(self) -> bool:
        """It was found not to."""
        return self.verdict.unbounded

    @property
    def open(self) -> bool:
        """The runs were too short to tell."""
        return self.verdict is Stability.TOO_SHORT

    @property
    def shown_low(self) -> float | None:
        """Where a band begins in a figure: no lower than the smallest run, as Student's interval may reach below 0."""
        return max(self.low, min(self.runs)) if self.low is not None and self.runs else self.low

    def row(self) -> dict[str, Any]:
        """For the data files."""
        return {
            "law": self.law,
            "policy": self.policy,
            "label": self.label,
            "x": self.x,
            "mean_queue": self.mean,
            "ci95_low": self.low,
            "ci95_high": self.high,
            "verdict": str(self.verdict),
            "lower_bound": self.bound,
            **self.more,
            "runs": list(self.runs),
        }


@dataclass(frozen=True)
class Points:
    """The points of an experiment."""

    all: tuple[Point, ...]

    @classmethod
    def of(cls, cells: Sequence[SweepCell], results: Sequence[Result]) -> Points:
        """From a sweep."""
        return cls(tuple(Point.of(cell, result) for cell, result in zip(cells, results, strict=True)))

    def where(self, *, policy: str | None = None, law: str | None = None, label: str | None = None) -> Points:
        """Some of them, in order of x."""
        found = (
            point
            for point in self.all
            if (policy is None or point.policy == policy)
            and (law is None or point.law == law)
            and (label is None or point.label == label)
        )
        return Points(tuple(sorted(found, key=lambda point: point.x)))

    def line(self, policy: str, law: str = "") -> tuple[Point, ...]:
        """One policy under one law, in order of x."""
        return self.where(policy=policy, law=law).all

    @property
    def laws(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(point.law for point in self.all))

    @property
    def policies(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(point.policy for point in self.all))

    @property
    def any_grows(self) -> bool:
        """Whether some queue was found to grow."""
        return any(point.grows for point in self.all)

    def series(self, law: str, policies: Iterable[str] | None = None, *, bound: bool = True) -> list[DrawnSeries]:
        """The lines of a chart, the lower bound first where there is one."""
        shown = [policy for policy in (policies or self.policies) if self.line(policy, law)]
        lines = [
            DrawnSeries(
                policy,
                [p.x for p in line],
                [p.mean for p in line],
                [p.shown_low for p in line],
                [p.high for p in line],
                [p.grows for p in line],
            )
            for policy in shown
            for line in [self.line(policy, law)]
        ]
        if bound and shown:
            first = [p for p in self.line(shown[0], law) if 0 < p.bound < float("inf")]
            if first:
                lines.insert(0, DrawnSeries("lower-bound", [p.x for p in first], [p.bound for p in first]))
        return lines

    @property
    def has_bound(self) -> bool:
        """Whether a lower bound above 0 is known somewhere."""
        return any(0 < point.bound < float("inf") for point in self.all)

    def legend(self) -> list[str]:
        """The policies, and the lower bound where it is drawn."""
        return [*self.policies, *(["lower-bound"] if self.has_bound else [])]

    def frame(self) -> pl.DataFrame:
        """A row for each point."""
        return pl.DataFrame([point.row() for point in self.all], infer_schema_length=None)

"""Many settings and policies at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotwise.model import Scenario
from slotwise.simulation.result import Result
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.engines import Workers
from slotwise.simulation.run.replication import Task
from slotwise.simulation.run.workload import jobs_of
from slotwise.simulation.simulate import run_tasks
from slotwise.theory.bounds import Bound
from slotwise.workloads.jobs import Jobs

OnShare = Callable[[float], None]  # hears of the share of the whole work that is done


@dataclass(frozen=True, eq=False)
class SweepCell:
    """One policy in one setting."""

    scenario: Scenario
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    law: str = ""
    """which family of settings it belongs to, in words: an arrival law, say"""
    x: float = 0.0
    """where it stands on the axis"""
    label: str = ""
    """what it is called where the policy's name does not say enough"""
    jobs: Jobs | None = None
    """the workload, where it is already at hand"""
    bound: Bound | None = None

    @property
    def choice(self) -> Choice:
        """The policy with its options."""
        return Choice(self.policy, self.options)


def sweep(cells: Sequence[SweepCell], on_share: OnShare | None = None, workers: int | None = None) -> list[Result]:
    """Run all replications of all cells; a result for each cell, in their order."""
    for cell in cells:  # so that a mistake is seen before anything runs
        cell.choice.make()
    tasks = [Task(cell.scenario, cell.jobs or jobs_of(cell.scenario), cell.choice) for cell in cells]
    hear = None if on_share is None else lambda share, _: on_share(share)
    return run_tasks(tasks, Workers(workers=workers), hear, [cell.bound for cell in cells])

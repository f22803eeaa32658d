"""Runs policies on the scenarios of the suite and compares them.

All policies see the same arrivals and service times. A figure is compared only where the policy's queue is stable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.policies.suite import Entry
from slotwise.errors import InputError
from slotwise.simulation.drift import stable
from slotwise.simulation.measurements import Measurements, add_up, wait_figures
from slotwise.simulation.replication import Task, replicate
from slotwise.simulation.workload import jobs_of
from slotwise.theory.bounds import best_lower_bound
from slotwise.workloads.jobs import Jobs

POLICIES = (
    "guarded",
    "algorithm1",
    "m14",
    "g16",
    "best-fit",
    "first-fit",
    "worst-fit",
    "random-fit",
    "tetris",
    "myopic-maxweight",
    "kubernetes-least-allocated",
    "kubernetes-most-allocated",
)
"""every policy for clusters of any shape that neither blocks (fifo) nor knows the future (easy-backfill)"""
SMALL, SLACK = 5.0, 2.0
"""queues under SMALL are compared with SLACK allowed"""


@dataclass(frozen=True)
class Figures:
    """What one policy did on one scenario."""

    policy: str
    stable: bool
    mean_queue: float
    mean_wait: float
    p99_wait: float
    p99_by_type: tuple[float, ...]
    events_per_second: float


@dataclass
class Row:
    """One scenario: the bound and every policy's figures (None where the policy is not for it)."""

    name: str
    bound: float
    types: tuple[str, ...]
    figures: dict[str, Figures | None] = field(default_factory=dict)

    def best(self, figure: str) -> float:
        """The least of a figure over the stable policies; nan where there is none."""
        values = [getattr(f, figure) for f in self.figures.values() if f is not None and f.stable]
        return min(values) if values else math.nan

    def ratio(self, policy: str, figure: str = "mean_queue") -> float:
        """To the best policy's; inf where the policy diverges and another does not."""
        mine, best = self.figures[policy], self.best(figure)
        if mine is None or math.isnan(best):
            return math.nan
        if not mine.stable:
            return math.inf
        value = getattr(mine, figure)
        return value / best if best > 0 else (1.0 if value == 0 else math.inf)

    def within(self, policy: str, factor: float) -> bool:
        """Whether the mean queue is at most that much of the best one, with the slack of small queues."""
        mine, best = self.figures[policy], self.best("mean_queue")
        if mine is None or math.isnan(best):
            return True
        slack = SLACK if best < SMALL else 0.0
        return mine.stable and mine.mean_queue <= factor * best + slack


def run_all(
    entries: Iterable[Entry],
    policies: Sequence[str],
    events: int,
    runs: int,
    options: dict[str, dict[str, Any]] | None = None,
) -> Iterable[Row]:
    """The rows, one after the other; the replications of a row on two threads."""
    for entry in entries:
        scenario = entry.prepared(events, runs)
        jobs = jobs_of(scenario)
        bound = math.nan
        if scenario.workload.trace is None:
            bound = best_lower_bound(scenario, jobs.rates).mean_queue
        row = Row(entry.name, bound, tuple(t.name for t in jobs.types))
        tasks = [
            Task(scenario, jobs, policy, (options or {}).get(policy, {}), n)
            for policy in policies
            for n in range(scenario.run.replications)
        ]
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(_one, tasks))
        for policy in policies:
            mine = [r for task, r in zip(tasks, results, strict=True) if task.policy == policy]
            row.figures[policy] = (
                figures_of(policy, jobs, [m for m in mine if m is not None]) if all(mine) else None
            )
        yield row


def _one(task: Task) -> Measurements | None:
    try:
        return replicate(task)
    except InputError:
        return None  # not for this cluster, such as a policy for one resource


def figures_of(policy: str, jobs: Jobs, runs: Sequence[Measurements]) -> Figures:
    """Over the replications: means of means, quantiles of all waits together."""
    sums, bins = np.array([m.wait_sums for m in runs]), np.array([m.wait_bins for m in runs])
    p99 = wait_figures(add_up(sums.reshape(-1, sums.shape[-1])), bins.sum(axis=(0, 1)))["p99"]
    by_type = [wait_figures(add_up(sums[:, j]), bins[:, j].sum(axis=0))["p99"] for j in range(len(jobs.types))]
    return Figures(
        policy=policy,
        stable=stable([m.queue_series for m in runs]).stable,
        mean_queue=float(np.mean([m.mean_queue for m in runs])),
        mean_wait=float(np.mean([m.mean_wait for m in runs])),
        p99_wait=p99 or 0.0,
        p99_by_type=tuple(p or 0.0 for p in by_type),
        events_per_second=sum(m.events for m in runs) / sum(m.seconds for m in runs),
    )

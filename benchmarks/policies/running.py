"""Runs policies on the scenarios of the suite and compares them.

All policies see the same arrivals and service times, so ratios are far more certain than the figures themselves. A figure is
compared only where the policy's queue is stable. Where the verdict on drift is in doubt, for the first policy or one that
may be the best, the scenario is run again, LONGER times as long; what is in doubt then is marked.

A trace is one day: its queue rises and falls with the arrivals, and no drift can be told from that. There is
no verdict; all policies are compared, by all the waiting that there was, that of jobs still waiting at the end included. Quantiles of
waits come from a second run, which goes on after the last arrival until all are served: else a job that came just before the end
would count as one that waits for ever. The jobs are the same in all runs, but policies that draw lots draw others; of a type of few jobs one
run says little (under algorithm1 the p99 of 42 jobs of alibaba2017 is 0 in one and 42,000 s in another).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.random import SeedSequence

from benchmarks.policies.suite import Entry
from benchmarks.policies.traces import WARMUP
from slotwise.errors import InputError
from slotwise.model import Scenario
from slotwise.simulation.choice import Choice
from slotwise.simulation.drift import LEAST_RISE, stable
from slotwise.simulation.histogram import EDGES, quantiles
from slotwise.simulation.measurements import Measurements, add_up
from slotwise.simulation.meter import COUNT, LARGEST
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
LONGER, ROUNDS = 4, 1
"""runs in doubt are made so many times as long, so often"""
CONTENDER = 3.0
"""a policy with at most so many times the best queue may be the best"""


@dataclass(frozen=True)
class Figures:
    """What one policy did on one scenario."""

    policy: str
    stable: bool
    """no drift; True on a trace, where there is no verdict"""
    doubtful: bool
    """a longer run might say otherwise"""
    mean_queue: float
    mean_wait: float
    """of all that arrived after the warm-up, by Little's law, those who still wait at the end included"""
    p99_wait: float
    p99_by_type: tuple[float, ...]
    waits_by_type: tuple[int, ...]
    """how many jobs these are the p99 of"""
    events_per_second: float


@dataclass
class Row:
    """One scenario: the bound and every policy's figures (None where the policy is not for it)."""

    name: str
    bound: float
    types: tuple[str, ...]
    trace: bool = False
    events: int = 0
    """arrivals and completions of each run; 0 for a trace, which is run once as a whole"""
    figures: dict[str, Figures | None] = field(default_factory=dict)

    def best(self, figure: str) -> float:
        """The least of a figure over the stable policies; nan where there is none."""
        values = [getattr(f, figure) for f in self.figures.values() if f is not None and f.stable]
        return min(values) if values else math.nan

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Row:
        """From what `dataclasses.asdict` made of one."""
        tuples = ("p99_by_type", "waits_by_type")
        figures = {
            name: Figures(**f | {key: tuple(f[key]) for key in tuples}) if f else None
            for name, f in found["figures"].items()
        }
        return cls(**{**found, "types": tuple(found["types"]), "figures": figures})

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
    threads: int = 2,
) -> Iterable[Row]:
    """The rows, one after the other; the replications of a row on some threads."""
    for entry in entries:
        row = run_row(entry, policies, events, runs, options or {}, threads)
        for n in range(ROUNDS):
            if row.trace or not in_doubt(row):
                break
            again = [p for p, f in row.figures.items() if f is not None and (f.stable or f.doubtful)]
            longer = run_row(entry, again, events * LONGER ** (n + 1), runs, options or {}, threads)
            longer.figures = {p: longer.figures.get(p, f) for p, f in row.figures.items()}
            row = longer
        yield row


def in_doubt(row: Row) -> bool:
    """Whether the verdict on the first policy, or on one that may be the best, is not clear."""
    shown = [f for f in row.figures.values() if f is not None]
    best = min((f.mean_queue for f in shown), default=math.nan)
    return any(f.doubtful and (n == 0 or f.mean_queue <= CONTENDER * best + SLACK) for n, f in enumerate(shown))


def run_row(
    entry: Entry,
    policies: Sequence[str],
    events: int,
    runs: int,
    options: dict[str, dict[str, Any]],
    threads: int,
) -> Row:
    """One scenario under the policies, once."""
    scenario = entry.prepared(events, runs)
    jobs, trace = jobs_of(scenario), scenario.workload.trace is not None
    bound = math.nan if trace else best_lower_bound(scenario, jobs.rates).mean_queue
    row = Row(entry.name, bound, tuple(t.name for t in jobs.types), trace, 0 if trace else events)
    tasks = [
        Task(scenario, jobs, Choice(policy, options.get(policy, {})), n)
        for policy in policies
        for n in range(scenario.run.replications)
    ]
    if trace:
        longer = until_served(scenario, jobs)
        tasks += [replace(task, scenario=longer) for task in tasks]
    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(_one, tasks))
    for policy in policies:
        mine = [r for task, r in zip(tasks, results, strict=True) if task.choice.policy == policy]
        found = [m for m in mine if m is not None]
        if len(found) < len(mine):
            row.figures[policy] = None
        elif trace:
            half = len(found) // 2
            row.figures[policy] = figures_of(policy, jobs, found[:half], True, found[half:])
        else:
            row.figures[policy] = figures_of(policy, jobs, found, False, found)
    return row


def until_served(scenario: Scenario, jobs: Jobs) -> Scenario:
    """A trace that goes on until every job is served: one after the other they would be by then."""
    source, times, work = jobs.open(SeedSequence(0)), [], 0.0
    while len(chunk := source.next(1 << 20)):
        times.append(chunk.time)
        work += float(chunk.duration.sum())
    arrivals = np.concatenate(times)
    end = float(arrivals[-1]) + work
    warm = float(arrivals[int(WARMUP * len(arrivals))]) / end
    run = scenario.run.model_copy(update={"until": end, "jobs": None, "events": None, "warmup": warm})
    return scenario.model_copy(update={"run": run})


def _one(task: Task) -> Measurements | None:
    try:
        return replicate(task)
    except InputError:
        return None  # not for this cluster, such as a policy for one resource


def figures_of(
    policy: str, jobs: Jobs, runs: Sequence[Measurements], trace: bool, waits: Sequence[Measurements]
) -> Figures:
    """Over the replications: means of means, quantiles of all waits together, those of the runs `waits`."""
    by_type = [p99_of(waits, [j]) for j in range(len(jobs.types))]
    verdict = stable([m.queue_series for m in runs])
    # a rise that may be chance, or a divergence that may be slow settling
    rises = verdict.rise > LEAST_RISE and not verdict.returned
    doubtful = rises and (verdict.p_value < 0.1 if verdict.stable else verdict.p_value > 1e-3 or verdict.rise < 0.3)
    mean_queue = float(np.mean([m.mean_queue for m in runs]))
    return Figures(
        policy=policy,
        stable=trace or verdict.stable,
        doubtful=not trace and bool(doubtful) and mean_queue > 1.0,
        mean_queue=mean_queue,
        mean_wait=mean_queue / jobs.rate if not trace else mean_queue * runs[0].measured / _arrived(runs[0]),
        p99_wait=p99_of(waits, list(range(len(jobs.types)))),
        p99_by_type=tuple(by_type),
        waits_by_type=tuple(int(sum(m.wait_sums[j, COUNT] for m in waits)) for j in range(len(jobs.types))),
        events_per_second=sum(m.events for m in runs) / sum(m.seconds for m in runs),
    )


def p99_of(runs: Sequence[Measurements], types: list[int]) -> float:
    """The p99 wait of these types together; jobs still waiting at the end count as waiting longer than all that started."""
    sums, bins = np.array([m.wait_sums for m in runs]), np.array([m.wait_bins for m in runs])
    started = add_up(sums[:, types].reshape(-1, sums.shape[-1]))
    waiting = sum(int(m.final_queue[types].sum()) for m in runs)
    count = float(started[COUNT])
    if count + waiting == 0:
        return 0.0
    level = 0.99 * (count + waiting) / count if count else math.inf
    if level > 1.0:
        return math.inf
    (found,) = quantiles(bins[:, types].sum(axis=(0, 1)), EDGES, [level], largest=float(started[LARGEST]))
    return found or 0.0


def _arrived(run: Measurements) -> float:
    """How many jobs arrived in the measured part of a run."""
    return max(1.0, (1.0 - WARMUP) * run.arrivals)

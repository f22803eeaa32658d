"""Runs policies on the scenarios of the suite and compares them.

All policies see the same arrivals and service times, so ratios are far more certain than the figures themselves. A figure is
compared only where the policy's queue is stable. Where the verdict on drift is in doubt, for the first policy or one that
may be the best, the scenario is run again, LONGER times as long; what is in doubt then is marked.

A trace is one day: its queue rises and falls with the arrivals, and no drift can be told from that. There is no
verdict; all policies are compared, by all the waiting that there was, that of jobs still waiting at the end included.
Quantiles of waits come from a second run, which goes on after the last arrival until all jobs are served. Otherwise a
job that came just before the end would count as one that waits for ever. The jobs are the same in all runs, but
policies that draw lots draw other lots. So one run says little about a type of few jobs: under algorithm1 the p99 of 42
jobs of alibaba2017 is 0 in one run and 42,000 s in another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.random import SeedSequence

from benchmarks.policies.cache import Cache
from benchmarks.policies.suite import Entry
from benchmarks.policies.traces import WARMUP
from slotwise.errors import InputError
from slotwise.model import Scenario
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.judge.judging import judge
from slotwise.simulation.measure.histogram import EDGES, quantiles
from slotwise.simulation.measure.measurements import Measurements, add_up
from slotwise.simulation.measure.meter import COUNT, LARGEST
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task, replicate
from slotwise.simulation.run.workload import jobs_of
from slotwise.theory.bounds import best_lower_bound
from slotwise.workloads.jobs import Jobs

# every policy for clusters of any shape that does not block (fifo)
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
    "quickswap",
    "nmsr",
    "easy-backfill",
    "guarded-durations",
    "easy-estimates",
)
# policies with options, under names of their own
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "guarded-durations": ("guarded", {"durations": "exact"}),
    "easy-estimates": ("easy-backfill", {"durations": "estimate"}),
    "guarded-blind": ("guarded", {"durations": "none"}),
}
# run only where jobs bring users' estimates
ON_ESTIMATES = ("easy-estimates",)
# these know how long each job will run: they are shown, but are not what others are compared with
KNOWS = ("easy-backfill", "guarded-durations", "easy-estimates")
# with more types in a trace they are not run. g16: each type has a clock of its own, and where whole machines are
# asked for they ring billions of times. nmsr: its configurations are looked for before the run, for more than ten
# minutes with the 457 types of ceritsc2013
MOST_TYPES = {"g16": 64, "nmsr": 400}
# families on which policies are not run: with types that differ a thousand times EASY takes more than five
# minutes a scenario
TOO_SLOW = {"means": ("easy-backfill",)}
SERVED_WITHIN = 10.0  # times as long as jobs arrive: a job that has not started by then counts as waiting for ever
SMALL, SLACK = 5.0, 2.0  # queues under SMALL are compared with SLACK allowed
LONGER, ROUNDS = 4, 1  # runs in doubt are made so many times as long, so often
CONTENDER = 3.0  # a policy with at most so many times the best queue may be the best


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
    """of all that arrived after the warm-up, by Little's law, jobs that still wait at the end included"""
    p99_wait: float
    p999_wait: float
    longest_wait: float
    """of all jobs, those still waiting at the end included"""
    p99_by_type: tuple[float, ...]
    p999_by_type: tuple[float, ...]
    longest_by_type: tuple[float, ...]
    waits_by_type: tuple[int, ...]
    """how many jobs these are the p99 of"""
    events_per_second: float


@dataclass
class Row:
    """One scenario: the bound and every policy's figures (None where the policy is not for it)."""

    name: str
    family: str
    bound: float
    types: tuple[str, ...]
    trace: bool = False
    events: int = 0
    """arrivals and completions of each run; 0 for a trace, which is run once as a whole"""
    figures: dict[str, Figures | None] = field(default_factory=dict)

    def best(self, figure: str) -> float:
        """The least of a figure over the stable policies that know no durations; nan where there is none."""
        values = [
            getattr(f, figure) for p, f in self.figures.items() if f is not None and f.stable and p not in KNOWS
        ]
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


@dataclass(frozen=True)
class Runner:
    """How long and how often scenarios are run, and what is known already."""

    events: int
    runs: int
    threads: int = 2
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    cache: Cache = field(default_factory=Cache)
    say: Callable[[str], None] = lambda text: None

    def row(self, entry: Entry, policies: Sequence[str]) -> Row:
        """One scenario under the policies; where the verdict on one that matters is in doubt, a longer run of it."""
        row = self._once(entry, policies, self.events)
        for n in range(ROUNDS):
            if row.trace or not in_doubt(row):
                break
            again = [p for p, f in row.figures.items() if f is not None and (f.stable or f.doubtful)]
            longer = self._once(entry, again, self.events * LONGER ** (n + 1))
            longer.figures = {p: longer.figures.get(p, f) for p, f in row.figures.items()}
            row = longer
        return row

    def _once(self, entry: Entry, policies: Sequence[str], events: int) -> Row:
        about = self._about(entry, events)
        row = Row(entry.name, entry.family, **about | {"types": tuple(about["types"])})
        for policy in policies:
            what = (entry.name, events, self.runs, self.options.get(policy, {}))
            known = self.cache.get(policy, *what)
            if known is None:
                self.say(f"{entry.name}: {policy}")
                figures = self._figures(entry, policy, events)
                known = {"figures": asdict(figures) if figures is not None else None}
                self.cache.put(known, policy, *what)
            row.figures[policy] = _as_figures(known["figures"])
        return row

    def _about(self, entry: Entry, events: int) -> dict[str, Any]:
        """Types and bound of a scenario."""
        known: dict[str, Any] | None = self.cache.get("", entry.name, events, "about")
        if known is None:
            scenario = entry.prepared(events, self.runs)
            jobs, trace = jobs_of(scenario), scenario.workload.trace is not None
            known = {
                "bound": math.nan if trace else best_lower_bound(scenario, jobs.rates).mean_queue,
                "types": [t.name for t in jobs.types],
                "trace": trace,
                "events": 0 if trace else scenario.run.events,
            }
            self.cache.put(known, "", entry.name, events, "about")
        return known

    def _figures(self, entry: Entry, policy: str, events: int) -> Figures | None:
        if policy in TOO_SLOW.get(entry.family, ()):
            return None
        scenario = entry.prepared(events, self.runs)
        jobs, trace = jobs_of(scenario), scenario.workload.trace is not None
        if policy in ON_ESTIMATES and not jobs.has_estimates:
            return None
        if trace and len(jobs.types) > MOST_TYPES.get(policy, len(jobs.types)):
            return None
        name, options = VARIANTS.get(policy, (policy, {}))
        first = Task(scenario, jobs, Choice(name, options | self.options.get(policy, {})))
        if trace:
            served = replace(first, scenario=until_served(scenario, jobs))
            one = _one(first)
            if one is None:
                return None
            # where nothing is left to chance every other run would be the same
            more = 0 if first.same_again(one) else scenario.run.replications - 1
            rest = self._all([replace(first, replication=n) for n in range(1, 1 + more)])
            waits = self._all([replace(served, replication=n) for n in range(1 + more)])
            return figures_of(policy, jobs, [one, *rest], True, waits)
        found = self._all([replace(first, replication=n) for n in range(scenario.run.replications)])
        return figures_of(policy, jobs, found, False, found) if found else None

    def _all(self, tasks: list[Task]) -> list[Measurements]:
        with ThreadPoolExecutor(self.threads) as pool:
            return [found for found in pool.map(_one, tasks) if found is not None]


def _as_figures(found: dict[str, Any] | None) -> Figures | None:
    if found is None:
        return None
    tuples = ("p99_by_type", "p999_by_type", "longest_by_type", "waits_by_type")
    return Figures(**found | {key: tuple(found[key]) for key in tuples})


def in_doubt(row: Row) -> bool:
    """Whether the verdict on the first policy, or on one that may be the best, is not clear."""
    shown = [f for f in row.figures.values() if f is not None]
    best = min((f.mean_queue for f in shown), default=math.nan)
    return any(f.doubtful and (n == 0 or f.mean_queue <= CONTENDER * best + SLACK) for n, f in enumerate(shown))


def until_served(scenario: Scenario, jobs: Jobs) -> Scenario:
    """A trace that goes on until every job is served, but at most `SERVED_WITHIN` times as long as jobs arrive; one after the other they would be served after all their work."""
    source, times, work = jobs.open(SeedSequence(0)), [], 0.0
    while len(chunk := source.next(1 << 20)):
        times.append(chunk.time)
        work += float(chunk.duration.sum())
    arrivals = np.concatenate(times)
    end = float(arrivals[-1]) + min(work, SERVED_WITHIN * float(arrivals[-1]))
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
    everybody, each = list(range(len(jobs.types))), [[j] for j in range(len(jobs.types))]
    verdict = judge(runs, jobs.types, impossible=False, is_trace=trace).verdict
    grows = verdict in (Stability.GROWS, Stability.NEVER_STARTS)
    mean_queue = float(np.mean([m.mean_queue for m in runs]))
    return Figures(
        policy=policy,
        stable=trace or not grows,
        doubtful=not trace and verdict is Stability.TOO_SHORT and mean_queue > 1.0,
        mean_queue=mean_queue,
        mean_wait=mean_queue / jobs.rate if not trace else mean_queue * runs[0].measured / _arrived(runs[0]),
        p99_wait=quantile_of(waits, everybody, 0.99),
        p999_wait=quantile_of(waits, everybody, 0.999),
        longest_wait=longest_of(waits, everybody),
        p99_by_type=tuple(quantile_of(waits, one, 0.99) for one in each),
        p999_by_type=tuple(quantile_of(waits, one, 0.999) for one in each),
        longest_by_type=tuple(longest_of(waits, one) for one in each),
        waits_by_type=tuple(int(sum(m.wait_sums[j, COUNT] for m in waits)) for j in range(len(jobs.types))),
        events_per_second=sum(m.events for m in runs) / sum(m.seconds for m in runs),
    )


def longest_of(runs: Sequence[Measurements], types: list[int]) -> float:
    """Return the longest wait of these types, jobs that still wait at the end included."""
    return max((float(m.wait_sums[types, LARGEST].max(initial=0.0)) for m in runs), default=0.0)


def quantile_of(runs: Sequence[Measurements], types: list[int], share: float) -> float:
    """A quantile of the waits of these types together; jobs still waiting at the end count as waiting longer than all that started."""
    sums, bins = np.array([m.wait_sums for m in runs]), np.array([m.wait_bins for m in runs])
    started = add_up(sums[:, types].reshape(-1, sums.shape[-1]))
    waiting = sum(int(m.final_queue[types].sum()) for m in runs)
    count = float(started[COUNT])
    if count + waiting == 0:
        return 0.0
    level = share * (count + waiting) / count if count else math.inf
    if level > 1.0:
        return math.inf
    (found,) = quantiles(bins[:, types].sum(axis=(0, 1)), EDGES, [level], largest=float(started[LARGEST]))
    return found or 0.0


def _arrived(run: Measurements) -> float:
    """How many jobs arrived in the measured part of a run."""
    return max(1.0, (1.0 - WARMUP) * run.arrivals)

"""Do so many servers meet the targets? Decided by as many replications as it takes, and remembered.

Replications are as long as the workload asks for (`slotwise.simulation.run.sequential`), whatever the scenario says:
too short a run would call a cluster good that is still filling up. A run that is too short to tell whether the queue
grows is made longer; if that cannot be told in the end, the targets count as missed. Then replications are added while
the decision is in doubt: there are looks after 4, 8, 16, 32 and 64 of them, or just one on a trace where nothing is
left to chance. At a look the targets are met if every interval lies below its limit, and missed if an interval lies
above. With L looks each interval has confidence 1 - alpha / L, so that over all looks together a decision is wrong with
probability alpha at most (Bonferroni). What is in doubt after the last look is not taken for met. Replication i meets
the same jobs whatever the servers (common random numbers), which makes neighbouring numbers of servers comparable.

What was chosen among many is likely to have been lucky. So what the search would propose is run again, with other random numbers and
longer (`confirm`), and only what holds there is proposed.

Before anything is run, theory may say no. The load may be outside the capacity region, a lower bound on the mean queue
may be above the target, or utilisation, which is known exactly by Little's law, may be too high.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slotwise.model import Scenario
from slotwise.packing import spaces_of
from slotwise.planning.targets import Targets, estimate, meaning, measure, shown
from slotwise.region.pricing import ListedPricing, Pricing, pricing_of
from slotwise.region.ray import Columns
from slotwise.region.region import locate
from slotwise.simulation.judge.bounding import LowerBounds
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.judge.judging import judge
from slotwise.simulation.judge.statistics import Interval
from slotwise.simulation.measure.measurements import Measurements
from slotwise.simulation.measure.periods import without_rhythm
from slotwise.simulation.run import engines
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.engines import Replications, Workers
from slotwise.simulation.run.replication import Task
from slotwise.simulation.run.sequential import LONGER, MOST_EVENTS, MOST_WORK, first_events
from slotwise.simulation.simulate import InterruptedRunError
from slotwise.theory.bounds import changes_of
from slotwise.workloads.jobs import Jobs

Counts = tuple[int, ...]
FIRST_LOOK = 4  # replications before the first look; each look doubles them
LOOKS = 5  # at most: 64 replications
MARGIN = 1e-9  # relative, for rounding
CONFIRM = 1_000_000  # the first replication of those that confirm a plan


class TargetAnswer(enum.StrEnum):
    """What can be said of some servers."""

    MEETS = "meets"
    MISSES = "misses"
    DOUBT = "in doubt"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True)
class Trial:
    """What was found out about one choice of servers."""

    servers: Counts
    cost: float
    verdict: TargetAnswer
    why: str
    replications: int = 0
    estimates: dict[str, Interval] | None = None
    runs: tuple[Measurements, ...] = ()

    @property
    def meets(self) -> bool:
        """Shown to meet every target."""
        return self.verdict is TargetAnswer.MEETS


@dataclass(frozen=True)
class TargetQuestion:
    """What is to be planned."""

    scenario: Scenario
    jobs: Jobs
    choice: Choice
    targets: Targets
    confidence: float
    costs: tuple[float, ...]

    @property
    def is_trace(self) -> bool:
        """The jobs are given one by one, not by laws."""
        return self.scenario.workload.trace is not None

    @property
    def firm(self) -> bool:
        """Whether theory speaks about the long run of this workload on a cluster that stays as it is."""
        return not self.is_trace and not changes_of(self.scenario)

    @property
    def type_names(self) -> tuple[str, ...]:
        """Of the jobs."""
        return tuple(job_type.name for job_type in self.jobs.types)

    def cost(self, counts: Sequence[int]) -> float:
        """Return what these servers cost."""
        return float(sum(n * cost for n, cost in zip(counts, self.costs, strict=True)))

    def with_servers(self, counts: Sequence[int]) -> Scenario:
        """Return the scenario with so many servers of each class."""
        cluster = self.scenario.cluster
        servers = tuple(
            server.model_copy(update={"count": int(n)}) for server, n in zip(cluster.servers, counts, strict=True)
        )
        changed: dict[str, Any] = {"cluster": cluster.model_copy(update={"servers": servers})}
        if not self.is_trace:  # how long runs are is for us to say
            changed["run"] = self.scenario.run.model_copy(update=dict.fromkeys(("events", "jobs", "until")))
        return self.scenario.model_copy(update=changed)


class Trials:
    """Answers, each found once."""

    def __init__(
        self,
        question: TargetQuestion,
        workers: int | None = None,
        looks: int = LOOKS,
        on_trial: Callable[[Counts, int], None] | None = None,
    ) -> None:
        self.question = question
        self.done: dict[Counts, Trial] = {}
        self._engine, self._on_trial = Workers(workers=workers), on_trial
        self._looks = [FIRST_LOOK * 2**i for i in range(looks)]
        self._events = None if question.is_trace else first_events(question.jobs)
        self._confirmed: set[Counts] = set()
        self.level = 1 - (1 - question.confidence) / looks
        self._knows_durations = question.choice.make_for(question.jobs).needs_durations
        jobs = question.jobs
        self.rho = jobs.rates * jobs.mean_service
        self.used = self.rho @ jobs.sizes.demand
        """mean use of each resource, in the integer units of the sizes (jobs packed by type)"""
        self.pricings: list[Pricing] = [
            pricing_of(space) for space in spaces_of(question.scenario.cluster.servers, jobs.sizes)
        ]

    def impossible(self, counts: Counts) -> str:
        """Return why theory rules these servers out, or nothing."""
        asked = self.question
        if not any(counts):
            return "no servers"
        holds = sum(n * pricing.space.counts for n, pricing in zip(counts, self.pricings, strict=True))
        nowhere = np.flatnonzero((self.rho > 0) & (holds == 0))
        if len(nowhere):
            return f"no server can hold {asked.jobs.types[nowhere[0]].name}"
        if not asked.firm:
            return ""
        columns = Columns(self.pricings, counts)
        region = locate(self.rho, columns)
        if region.supportable is False:
            return f"cannot carry the load (intensity {region.intensity:.4g})"
        if "utilisation" in asked.targets:
            share = self.utilisation(counts)
            if share > asked.targets["utilisation"] * (1 + MARGIN):
                return f"utilisation is {share:.4g}"
        queue = min(
            asked.targets.get("mean_queue", math.inf), asked.targets.get("mean_wait", math.inf) * asked.jobs.rate
        )
        if queue < math.inf and all(isinstance(one, ListedPricing) for one in self.pricings):
            bounds = LowerBounds(asked.with_servers(counts), asked.jobs, columns)
            bound = bounds.before(knows_durations=self._knows_durations)
            if bound.mean_queue > queue * (1 + MARGIN):
                return f"no policy has a mean queue below {bound.mean_queue:.4g} ({bound.kind})"
        return ""

    def utilisation(self, counts: Counts) -> float:
        """Return the utilisation of the resource most in use, in the long run, if the servers keep up."""
        whole = np.array(counts) @ self.question.jobs.sizes.capacity
        return float(max((use / all_ for use, all_ in zip(self.used, whole, strict=True) if use > 0), default=0.0))

    def of(self, counts: Counts) -> Trial:
        """Return the verdict on these servers."""
        if counts not in self.done:
            why = self.impossible(counts)
            cost = self.question.cost(counts)
            self.done[counts] = Trial(counts, cost, TargetAnswer.IMPOSSIBLE, why) if why else self._simulate(counts)
        return self.done[counts]

    def confirm(self, counts: Counts) -> Trial:
        """Try these servers once more, with other random numbers and twice as long. If the targets are not met
        again they count as not met."""
        trial = self.of(counts)
        if (
            trial.meets
            and counts not in self._confirmed
            and not (self.question.is_trace and trial.replications == 1)
        ):
            self._confirmed.add(counts)
            trial = self.done[counts] = self._simulate(counts, first=CONFIRM, longer=2)
        return trial

    def _simulate(self, counts: Counts, first: int = 0, longer: int = 1) -> Trial:
        """Simulate the replications from number `first` on."""
        asked = self.question
        events = None if self._events is None else min(longer * self._events, MOST_EVENTS)
        task = Task(asked.with_servers(counts), asked.jobs, asked.choice, events=events)
        runs: list[Measurements] = []
        for look in self._looks:
            while True:
                if self._on_trial is not None:
                    self._on_trial(counts, look)
                done = engines.run([Replications(task, range(first + len(runs), first + look))], self._engine)
                if done.interrupted:
                    raise InterruptedRunError([])
                runs += done.runs[0]
                estimates = {key: self._estimate(runs, key, counts) for key in asked.targets}
                verdict, why, short = self._judge(estimates, runs)
                if not short or task.events is None or task.events >= MOST_EVENTS:
                    break
                task, runs = replace(task, events=min(LONGER * task.events, MOST_EVENTS)), []
            if verdict is not TargetAnswer.DOUBT or len(runs) < look:  # fewer: any other run would be the same
                break
            if task.events is not None and 2 * look * task.events > MOST_WORK:
                break
        return Trial(counts, asked.cost(counts), verdict, why, len(runs), estimates, tuple(runs))

    def _estimate(self, runs: list[Measurements], key: str, counts: Counts) -> Interval:
        if key == "utilisation" and self.question.firm:
            share = self.utilisation(counts)
            return Interval(share, share, share)
        if len(runs) == 1:
            figure = measure(runs[0], key, self.question.type_names)
            return Interval(figure, figure, figure)
        return estimate(runs, key, self.level, self.question.type_names)

    def _judge(self, estimates: dict[str, Interval], runs: list[Measurements]) -> tuple[TargetAnswer, str, bool]:
        """Return the answer, why, and whether longer runs are what it takes."""
        targets, unit = self.question.targets, self.question.scenario.time_unit
        for key, interval in estimates.items():
            if interval.low is not None and interval.low > targets[key] * (1 + MARGIN):
                return TargetAnswer.MISSES, f"{meaning(key)} is above {shown(key, targets[key], unit)}", False
        seen = without_rhythm(runs, self.question.jobs.period)
        found = judge(
            seen, self.question.jobs.types, impossible=False, is_trace=self.question.is_trace, time_unit=unit
        )
        if found.verdict is Stability.NEVER_STARTS or (self.question.firm and found.verdict is Stability.GROWS):
            return TargetAnswer.MISSES, found.why, False
        if self.question.firm and found.verdict is Stability.TOO_SHORT:
            return TargetAnswer.DOUBT, found.why, True
        for key, interval in estimates.items():
            if interval.high is None or interval.high > targets[key] * (1 + MARGIN):
                return TargetAnswer.DOUBT, f"{meaning(key)} is too close to {shown(key, targets[key], unit)}", False
        return TargetAnswer.MEETS, "", False

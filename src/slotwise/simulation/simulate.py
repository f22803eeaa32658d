"""`simulate` and `compare`: replications of policies on a scenario. All policies see the same arrivals and service times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slotwise.errors import InputError, SlotwiseError
from slotwise.model import MOST_EVENTS, Overrides, Scenario, changed, load_scenario
from slotwise.region.ray import Columns
from slotwise.scheduling.situation import Situation
from slotwise.simulation.judge.bounding import LowerBounds
from slotwise.simulation.measure.measurements import Measurements
from slotwise.simulation.result import Comparison, Result
from slotwise.simulation.run import engines, sequential, takeup
from slotwise.simulation.run.choice import Choice, PolicyLike
from slotwise.simulation.run.engines import THREADS, OnProgress, Replications, Workers
from slotwise.simulation.run.replication import Task
from slotwise.simulation.run.serverevents import check_pace
from slotwise.simulation.run.workload import jobs_of
from slotwise.theory.bounds import Bound
from slotwise.theory.load import columns_of


class InterruptedRunError(SlotwiseError):
    """Ctrl-C: `results` are of the replications that were finished."""

    exit_code = 130

    def __init__(self, results: list[Result]) -> None:
        self.results = results
        super().__init__("interrupted" if results else "interrupted before the first replication was finished")


def simulate(
    scenario: str | Path | Scenario,
    policy: PolicyLike | None = None,
    *,
    overrides: Overrides = (),
    workers: int | None = None,
    engine: str = "threads",
    scheduler_address: str | None = None,
    on_progress: OnProgress | None = None,
    record_jobs: bool = False,
    from_: Situation | None = None,
    **options: Any,
) -> Result:
    """Run one policy (the scenario's own by default) on a scenario: a path, a shipped name or a `Scenario`.

    `options` are parameters of the policy; `overrides` are settings of the scenario, such as {"run.events": 20_000}. With `record_jobs` the result
    knows every single job (`Result.jobs`, `Result.trace`), and memory grows with them.

    `from_` is a live situation to begin with (`Scheduler.situation()`), at time 0. Its servers replace the scenario's,
    its jobs run with their age and wait in order, and its policy goes on unless another is given. The scenario says
    what arrives from then on, and how long services take. There is no warm-up then, and the scenario must say how long
    the run is.
    """
    ready = as_scenario(scenario, overrides)
    where = Workers(engine, workers, scheduler_address)
    if from_ is None:
        return run_policies(ready, [Choice.of(ready, policy, **options)], where, on_progress, record_jobs)[0]
    takeup.check(ready, from_)
    same = policy is None and not options
    choice = takeup.choice_of(from_) if same else Choice.of(ready, policy or from_.policy.name, **options)
    choice.make()
    start = takeup.relative(from_)
    task = Task(ready, jobs_of(ready), choice, warmup=0.0, record_jobs=record_jobs, start=start)
    return run_tasks([task], where, on_progress)[0]


def compare(
    scenario: str | Path | Scenario,
    policies: Sequence[PolicyLike],
    *,
    overrides: Overrides = (),
    workers: int | None = None,
    engine: str = "threads",
    scheduler_address: str | None = None,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Run several policies on the same jobs."""
    ready = as_scenario(scenario, overrides)
    choices = [Choice.of(ready, policy) for policy in policies]
    return Comparison(tuple(run_policies(ready, choices, Workers(engine, workers, scheduler_address), on_progress)))


def as_scenario(scenario: str | Path | Scenario, overrides: Overrides = ()) -> Scenario:
    """Return a scenario from its path, its shipped name or itself."""
    if isinstance(scenario, Scenario):
        return changed(scenario, overrides) if overrides else scenario
    return load_scenario(scenario, overrides)


def run_policies(
    scenario: Scenario,
    choices: Sequence[Choice],
    engine: Workers = THREADS,
    on_progress: OnProgress | None = None,
    record_jobs: bool = False,
) -> list[Result]:
    """Run every replication of every policy."""
    for choice in choices:  # first, so that a mistake is seen before anything runs
        choice.make()
    columns = columns_of(scenario) if scenario.workload.trace is None else None
    jobs = jobs_of(scenario, columns)
    check_pace(scenario.cluster, jobs.rate)
    tasks = [Task(scenario, jobs, choice, record_jobs=record_jobs) for choice in choices]
    return run_tasks(tasks, engine, on_progress, columns=columns)


def run_tasks(
    tasks: Sequence[Task],
    engine: Workers = THREADS,
    on_progress: OnProgress | None = None,
    bounds: Sequence[Bound | None] | None = None,
    columns: Columns | None = None,
) -> list[Result]:
    """Run as many replications of each task as its scenario asks for. `bounds`: lower bounds that are known
    already. `columns`: what is known of the cluster, if all tasks have the same."""
    for task in tasks:
        if task.scenario.quotas:
            raise InputError(
                "are not simulated: jobs over a quota never reach the policy",
                where="quotas",
                remedy="leave them out; `slotwise serve` honours them",
            )
        if task.work > MOST_EVENTS:
            raise InputError(
                f"a run until {task.scenario.run.until:g} has about {task.work:.3g} events",
                where="run.until",
                remedy=f"use an earlier time: {MOST_EVENTS:.0e} events take about a day",
            )
    known: dict[tuple[int, int], LowerBounds] = {}

    def result_of(n: int, runs: tuple[Measurements, ...]) -> Result:
        task, bound = tasks[n], bounds[n] if bounds is not None else None
        policy = task.make_policy()
        if bound is None:
            same = id(task.jobs), id(task.scenario.cluster)
            lower = known.setdefault(same, LowerBounds(task.scenario, task.jobs, columns))
            bound = lower.of(runs, knows_durations=policy.needs_durations)
        return Result(
            task.scenario,
            task.choice,
            task.jobs.types,
            runs,
            task.jobs.mean_in_service,
            bound,
            task.jobs.typed,
            policy.uses_estimates,
            task.jobs,
            columns,
        )

    if all(sequential.is_open(task) for task in tasks):
        done = sequential.run_until_clear(tasks, engine, on_progress, result_of)
    else:
        batches = [Replications(task, range(task.scenario.run.replications)) for task in tasks]
        done = engines.run(batches, engine, on_progress)
    results = [result_of(n, runs) for n, runs in enumerate(done.runs) if runs]
    if done.interrupted:
        raise InterruptedRunError(results)
    return results

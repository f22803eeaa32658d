"""`simulate` and `compare`: replications of policies on a scenario. All policies see the same arrivals and service times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slotwise.errors import SlotwiseError
from slotwise.model import Overrides, Scenario, changed, load_scenario
from slotwise.simulation import engines
from slotwise.simulation.bounding import LowerBounds
from slotwise.simulation.choice import Choice, PolicyLike
from slotwise.simulation.engines import THREADS, Batch, Engine, OnProgress
from slotwise.simulation.replication import Task
from slotwise.simulation.result import Comparison, Result
from slotwise.simulation.workload import jobs_of
from slotwise.theory.bounds import Bound


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
    **options: Any,
) -> Result:
    """Run one policy (the scenario's own by default) on a scenario: a path, a shipped name or a `Scenario`.

    `options` are parameters of the policy; `overrides` are settings of the scenario, such as {"run.events": 20_000}. With `record_jobs` the result
    knows every single job (`Result.jobs`, `Result.trace`), and memory grows with them.
    """
    ready = as_scenario(scenario, overrides)
    where = Engine(engine, workers, scheduler_address)
    return run_policies(ready, [Choice.of(ready, policy, **options)], where, on_progress, record_jobs)[0]


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
    return Comparison(tuple(run_policies(ready, choices, Engine(engine, workers, scheduler_address), on_progress)))


def as_scenario(scenario: str | Path | Scenario, overrides: Overrides = ()) -> Scenario:
    """A scenario from whatever names it."""
    if isinstance(scenario, Scenario):
        return changed(scenario, overrides) if overrides else scenario
    return load_scenario(scenario, overrides)


def run_policies(
    scenario: Scenario,
    choices: Sequence[Choice],
    engine: Engine = THREADS,
    on_progress: OnProgress | None = None,
    record_jobs: bool = False,
) -> list[Result]:
    """Every replication of every policy."""
    for choice in choices:  # first, so that a mistake is seen before anything runs
        choice.make()
    jobs = jobs_of(scenario)
    tasks = [Task(scenario, jobs, choice, record_jobs=record_jobs) for choice in choices]
    return run_tasks(tasks, engine, on_progress)


def run_tasks(
    tasks: Sequence[Task],
    engine: Engine = THREADS,
    on_progress: OnProgress | None = None,
    bounds: Sequence[Bound | None] | None = None,
) -> list[Result]:
    """As many replications of each task as its scenario asks for. `bounds`: lower bounds that are known already."""
    batches = [Batch(task, range(task.scenario.run.replications)) for task in tasks]
    done = engines.run(batches, engine, on_progress)
    known: dict[tuple[int, int], LowerBounds] = {}
    results = []
    for n, (task, runs) in enumerate(zip(tasks, done.runs, strict=True)):
        if not runs:
            continue
        bound = bounds[n] if bounds is not None else None
        if bound is None:
            same = id(task.jobs), id(task.scenario.cluster)
            lower = known.setdefault(same, LowerBounds(task.scenario, task.jobs))
            bound = lower.of(runs, knows_durations=task.choice.make().needs_durations)
        names = tuple(job_type.name for job_type in task.jobs.types)
        results.append(Result(task.scenario, task.choice.name, names, runs, task.jobs.mean_in_service, bound))
    if done.interrupted:
        raise InterruptedRunError(results)
    return results

"""`simulate` and `compare`: replications of policies on a scenario, on all cores by threads or on many machines by Dask.

Every (policy, replication) is a task of its own whose figures depend on the seed and its numbers only, so any number of
workers gives the same result, and all policies see the same arrivals and service times.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from slotwise.errors import InputError, SlotwiseError
from slotwise.model import Overrides, Scenario, changed, load_scenario
from slotwise.scheduling.policies import make_policy
from slotwise.scheduling.policy import Policy
from slotwise.simulation.measurements import Measurements
from slotwise.simulation.replication import Task, compile_for, make_store, replicate
from slotwise.simulation.result import Comparison, Result
from slotwise.simulation.workload import jobs_of
from slotwise.theory.bounds import Bound, best_lower_bound
from slotwise.theory.tracebound import TraceBound
from slotwise.workloads.jobs import Jobs

PolicyLike = str | type[Policy]
PATIENCE = 0.2
"""seconds for which Ctrl-C may go unnoticed"""
OnProgress = Callable[[str, int, float], None]
"""(policy, replication, share that is done)"""


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
    **options: Any,
) -> Result:
    """Run one policy (the scenario's own by default) on a scenario: a path, a shipped name or a `Scenario`.

    `options` are parameters of the policy; `overrides` are settings of the scenario, such as {"run.events": 20_000}.
    """
    ready = as_scenario(scenario, overrides)
    chosen = ready.policy.name if policy is None else policy
    given = dict(ready.policy.options) if chosen == ready.policy.name else {}
    policies = [(chosen, given | options)]
    return run_policies(ready, policies, workers, engine, scheduler_address, on_progress)[0]


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
    pairs = [(one, dict(ready.policy.options) if one == ready.policy.name else {}) for one in policies]
    return Comparison(tuple(run_policies(ready, pairs, workers, engine, scheduler_address, on_progress)))


def as_scenario(scenario: str | Path | Scenario, overrides: Overrides = ()) -> Scenario:
    """A scenario from whatever names it."""
    if isinstance(scenario, Scenario):
        return changed(scenario, overrides) if overrides else scenario
    return load_scenario(scenario, overrides)


def run_policies(
    scenario: Scenario,
    policies: Sequence[tuple[PolicyLike, dict[str, Any]]],
    workers: int | None = None,
    engine: str = "threads",
    scheduler_address: str | None = None,
    on_progress: OnProgress | None = None,
) -> list[Result]:
    """Every replication of every policy."""
    made = [  # first, so that a mistake is seen before anything runs
        make_policy(policy, **options) if isinstance(policy, str) else policy(**options)
        for policy, options in policies
    ]
    jobs = jobs_of(scenario)
    tasks = [
        Task(scenario, jobs, policy, options, replication)
        for replication in range(scenario.run.replications)
        for policy, options in policies
    ]
    if scheduler_address and engine != "dask":
        raise InputError("is for Dask only", where="scheduler address", remedy="add the engine dask")
    if engine == "threads":
        done, interrupted = run_on_threads(tasks, workers, on_progress)
    elif engine == "dask":
        done, interrupted = _on_dask(tasks, scheduler_address, on_progress)
    else:
        raise InputError(f"no engine is called {engine!r}", where="engine", remedy="use threads or dask")
    bound_of = _bounds(scenario, jobs)
    names = tuple(job_type.name for job_type in jobs.types)
    results = []
    for n, (policy, _) in enumerate(policies):
        runs = tuple(run for at, run in sorted(done.items()) if at % len(policies) == n)
        if runs:
            name = policy if isinstance(policy, str) else runs[0].policy
            bound = bound_of(made[n], runs)
            results.append(Result(scenario, name, names, runs, jobs.mean_in_service, bound))
    if interrupted:
        raise InterruptedRunError(results)
    return results


def _bounds(scenario: Scenario, jobs: Jobs) -> Callable[[Policy, Sequence[Measurements]], Bound]:
    """The best lower bound on the mean queue that is valid for a policy and its runs."""
    if scenario.workload.trace:
        trace_bound = TraceBound(scenario, jobs)
        return lambda _, runs: trace_bound.of(list(runs))
    size_blind = best_lower_bound(scenario, jobs.rates)
    clairvoyant = Bound(0.0, "none", ("the policy knows service times, and no bound for such is known here",))

    def bound(policy: Policy, _: Sequence[Measurements]) -> Bound:
        return clairvoyant if policy.needs_durations and size_blind.kind != "unstable" else size_blind

    return bound


def run_on_threads(
    tasks: Sequence[Task], workers: int | None, on_progress: OnProgress | None = None, *, compiled: bool = False
) -> tuple[dict[int, Measurements], bool]:
    """Run tasks: (figures by position, whether it was interrupted). `compiled`: such tasks have been run before.

    Kernels run without the GIL, so threads are as good as processes and share the compiled code.
    """
    stop = threading.Event()
    done: dict[int, Measurements] = {}
    if not compiled:
        different = {task.policy: task for task in tasks}.values()
        try:
            for task in different:
                compile_for(task)
            for task in different if len(different) > 1 else ():
                make_store(task, 1)  # a policy that cannot run this is refused before the others run
        except KeyboardInterrupt:
            return done, True

    def work(task: Task) -> Measurements:
        report = None
        if on_progress is not None:
            name = task.policy if isinstance(task.policy, str) else task.policy.name

            def report(share: float) -> None:
                on_progress(name, task.replication, share)

        measured = replicate(task, report, stop.is_set)
        if report is not None:
            report(1.0)
        return measured

    with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1) as pool:
        pending: dict[Future[Measurements], int] = {}
        try:
            alone = 0 if compiled else 1  # the first alone, so that the compiler works once
            for some in (range(alone), range(alone, len(tasks))):
                pending |= {pool.submit(work, tasks[at]): at for at in some}
                while pending:
                    # in short waits: a signal need not wake the main thread where it reaches another one
                    finished, _ = wait(pending, timeout=PATIENCE, return_when=FIRST_COMPLETED)
                    for future in finished:
                        done[pending[future]] = future.result()
                        del pending[future]
        except BaseException as error:
            stop.set()
            for future in pending:
                future.cancel()
            if not isinstance(error, KeyboardInterrupt):
                raise
            wait(pending)
            finished = {future for future in pending if not future.cancelled() and future.exception() is None}
            return done | {pending[future]: future.result() for future in finished}, True
    return done, False


def _on_dask(
    tasks: Sequence[Task], address: str | None, on_progress: OnProgress | None
) -> tuple[dict[int, Measurements], bool]:
    """The same tasks on a Dask cluster: at an address, or one of this machine's own."""
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError(
            "Dask is not installed", where="engine dask", remedy="pip install 'slotwise[dask]'"
        ) from None
    try:
        client = Client(address) if address else Client(processes=True)
    except OSError as error:
        raise InputError(
            f"no Dask scheduler answers ({error})", where=str(address), remedy="start one with `dask scheduler`"
        ) from None
    done: dict[int, Measurements] = {}
    with client:
        futures = {client.submit(replicate, task, pure=False): at for at, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                at = futures[future]
                done[at] = future.result()
                if on_progress is not None:
                    on_progress(done[at].policy, done[at].replication, 1.0)
        except KeyboardInterrupt:
            client.cancel(list(futures))
            return done, True
    return done, False

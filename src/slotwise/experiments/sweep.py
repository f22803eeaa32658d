"""Many settings, policies and replications at once, on all cores by threads.

Each (setting, policy, replication) is a task of its own whose figures depend on the seed and its numbers only, so
any number of workers gives the same results.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from slotwise.model import Scenario
from slotwise.scheduling.policies import make_policy
from slotwise.simulation.measurements import Measurements
from slotwise.simulation.replication import Task, replicate
from slotwise.simulation.result import Result
from slotwise.simulation.workload import jobs_of
from slotwise.theory.bounds import Bound, best_lower_bound
from slotwise.workloads.jobs import Jobs

OnShare = Callable[[float], None]
"""hears of the share of the whole work that is done"""


@dataclass(frozen=True, eq=False)
class Cell:
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
    def work(self) -> float:
        """About how many events a replication has."""
        run = self.scenario.run
        return float(run.events or 2 * (run.jobs or 100_000))


def sweep(cells: Sequence[Cell], on_share: OnShare | None = None, workers: int | None = None) -> list[Result]:
    """Run all replications of all cells; a result for each cell, in their order.

    On a trace replications differ in the policy's own random choices only: where the first made none it is the only one."""
    for cell in cells:  # so that a mistake is seen before anything runs
        make_policy(cell.policy, **cell.options)
    jobs = [cell.jobs or jobs_of(cell.scenario) for cell in cells]
    tasks = {
        (n, r): Task(cell.scenario, jobs[n], cell.policy, dict(cell.options), r)
        for n, cell in enumerate(cells)
        for r in range(cell.scenario.run.replications)
    }
    shares = _Shares({key: cells[key[0]].work for key in tasks}, on_share)
    done = _run(tasks, shares, workers or os.cpu_count() or 1)
    results = []
    for n, cell in enumerate(cells):
        runs = tuple(done[n, r] for r in range(cell.scenario.run.replications) if (n, r) in done)
        names = tuple(job_type.name for job_type in jobs[n].types)
        bound = cell.bound or _bound_of(cell.scenario, jobs[n])
        results.append(Result(cell.scenario, cell.policy, names, runs, jobs[n].mean_in_service, bound))
    return results


def _bound_of(scenario: Scenario, jobs: Jobs) -> Bound:
    if scenario.workload.trace is not None:
        return Bound(0.0, "none", ("a trace",))
    return best_lower_bound(scenario, jobs.rates)


class _Shares:
    """Adds up what the tasks have done."""

    def __init__(self, work: Mapping[Any, float], on_share: OnShare | None) -> None:
        self.work, self.total = work, sum(work.values())
        self.on_share = on_share
        self.of: dict[Any, float] = dict.fromkeys(work, 0.0)
        self.lock = threading.Lock()

    def hear(self, key: Any, share: float) -> None:
        if self.on_share is not None:
            with self.lock:
                self.of[key] = min(1.0, share)
                self.on_share(sum(self.of[key] * self.work[key] for key in self.of) / self.total)


def _run(tasks: Mapping[Any, Task], shares: _Shares, workers: int) -> dict[Any, Measurements]:
    stop = threading.Event()
    done: dict[Any, Measurements] = {}

    def work(key: Any) -> Measurements:
        found = replicate(tasks[key], lambda share: shares.hear(key, share), stop.is_set)
        shares.hear(key, 1.0)
        return found

    def settle(first: Any) -> None:
        """The first replication on a trace is done: the others follow, or are not needed."""
        for key in sorted(key for key in later if key[0] == first[0]):
            later.discard(key)
            if done[first].drew:
                pending[pool.submit(work, key)] = key
            else:
                shares.hear(key, 1.0)

    keys, later = list(tasks), set[Any]()
    with ThreadPoolExecutor(max_workers=workers) as pool:
        pending: dict[Future[Measurements], Any] = {}
        try:
            done[keys[0]] = pool.submit(work, keys[0]).result()  # alone, so that the compiler works once
            # the longest first, so that no core is left alone with one at the end
            rest = sorted(keys[1:], key=lambda key: -shares.work[key])
            later = {key for key in rest if key[1] > 0 and tasks[key].scenario.workload.trace is not None}
            pending = {pool.submit(work, key): key for key in rest if key not in later}
            settle(keys[0])
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    key = pending.pop(future)
                    done[key] = future.result()
                    settle(key)
        except BaseException:
            stop.set()
            for future in pending:
                future.cancel()
            raise
    return done

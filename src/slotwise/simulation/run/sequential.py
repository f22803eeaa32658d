"""How long to run, where the scenario leaves it open: until the verdict is clear, then until the answer is precise enough.

1. A replication begins with 20 times the longest mean service time (a quarter of it is warm-up), and 100,000 events at least. While it is too
   short to tell whether the queue stays bounded, four times as many events are run, up to MOST_EVENTS a replication. The random
   numbers are the same, so a longer run begins like the shorter one.
2. If the queue is stable, replications are added, at least until there are twelve. They end when the half-width of the
   95 % interval of the mean queue is `run.precision` of it, or MOST_WORK events have been run. Queues below a
   thousandth of the jobs in service need no such precision.

All policies are run on the same jobs; one whose queue grows is not run any further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.measure.measurements import Measurements
from slotwise.simulation.result import Result
from slotwise.simulation.run import engines
from slotwise.simulation.run.engines import Finished, OnProgress, Replications, Workers
from slotwise.simulation.run.replication import Task
from slotwise.workloads.jobs import Jobs

LEAST_EVENTS = 100_000  # of a replication
MOST_EVENTS = 2_000_000  # of one replication
MOST_WORK = 10_000_000  # events of all replications of a policy
SERVICES = 20.0  # longest mean service times in a run, at least
LONGER = 4
PRECISE_RUNS = 12  # replications before an interval is trusted
SMALL = 1e-3  # a mean queue of this share of the jobs in service is a small one

Runs = list[tuple[Measurements, ...]]


def is_open(task: Task) -> bool:
    """Return whether the scenario does not set the length of its runs."""
    run = task.scenario.run
    return run.events is None and run.jobs is None and run.until is None and task.jobs.count is None


def first_events(jobs: Jobs) -> int:
    """Return the number of events of one replication in the first round."""
    span = SERVICES * jobs.longest_service
    return int(min(MOST_EVENTS, max(LEAST_EVENTS, 2 * jobs.rate * span)))


def run_until_clear(
    tasks: Sequence[Task],
    engine: Workers,
    on_progress: OnProgress | None,
    result_of: Callable[[int, tuple[Measurements, ...]], Result],
) -> Finished:
    """Run the replications of each task, as many and as long as its verdict and precision take."""
    events = max(first_events(task.jobs) for task in tasks)
    count = max(task.scenario.run.replications for task in tasks)
    runs: Runs = [() for _ in tasks]
    going = list(range(len(tasks)))

    def more(numbers: Sequence[int]) -> tuple[list[tuple[Measurements, ...]], bool]:
        batches = [Replications(replace(tasks[n], events=events), numbers) for n in going]
        done = engines.run(batches, engine, on_progress)
        return done.runs, done.interrupted

    while going:
        found, interrupted = more(range(count))
        for n, new in zip(going, found, strict=True):
            if not interrupted or not runs[n]:
                runs[n] = new
        if interrupted:
            return Finished(runs, interrupted=True)
        verdicts = {n: result_of(n, runs[n]).verdict for n in going}
        going = [n for n in going if verdicts[n] not in (Stability.GROWS, Stability.NEVER_STARTS)]
        if events >= MOST_EVENTS or all(verdicts[n] is Stability.STABLE for n in going):
            break
        events = min(MOST_EVENTS, LONGER * events)
    most = max(count, min(MOST_WORK // events, 40))
    while going and count < most:
        wanted = max(_wanted(result_of(n, runs[n]), count) for n in going)
        if wanted <= count:
            break
        wanted = min(wanted, most)
        found, interrupted = more(range(count, wanted))
        if interrupted:
            return Finished(runs, interrupted=True)
        for n, new in zip(going, found, strict=True):
            runs[n] += new
        count = wanted
    return Finished(runs)


def imprecise(result: Result) -> str:
    """Return a sentence if the most events were run before the answer was as precise as asked for. If it is
    precise, or the scenario sets the length, return nothing."""
    run = result.scenario.run
    given = (run.events, run.jobs, run.until, result.scenario.workload.trace)
    half, target = _precision(result)
    if not result.stable or half <= target or any(one is not None for one in given):
        return ""
    events = sum(one.events for one in result.runs)
    return (
        f"after {events:,} events the mean queue is known to {half / max(result.mean_queue.mean, 1e-300):.0%} only"
        f" (run.precision is {run.precision:g}); run.events and run.replications give more"
    )


def _precision(result: Result) -> tuple[float, float]:
    """Return half of the interval of the mean queue, and its goal."""
    queue = result.mean_queue
    half = (queue.high - queue.low) / 2 if queue.high is not None and queue.low is not None else 0.0
    return half, result.scenario.run.precision * max(queue.mean, SMALL * result.offered)


def _wanted(result: Result, count: int) -> int:
    """Return how many replications should be enough."""
    if count < PRECISE_RUNS:
        return PRECISE_RUNS
    half, target = _precision(result)
    if half <= target:
        return count
    return max(count + 4, math.ceil(1.1 * count * (half / target) ** 2)) if target > 0 else count

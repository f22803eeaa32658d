"""Runs ahead of a situation: with the true durations and arrivals they are what really happens."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Complete, Submit
from slotwise.scheduling.situation import Situation
from slotwise.simulation.run.forward import Coming, Forward

N, CUT = 400, 250


def replay(policy: str) -> tuple[Situation, Coming, np.ndarray, np.ndarray]:
    """A made-up log: the situation after CUT submissions, what comes then, durations, and when each job started."""
    rng = np.random.default_rng(5)
    cluster = Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=3, capacity=(8, 16)),))
    types = (JobType(name="small", demand=(1, 2)), JobType(name="large", demand=(6, 4)))
    arrival = np.cumsum(rng.exponential(1.0, N))
    kind = (rng.random(N) < 0.3).astype(np.int64)
    duration = rng.lognormal(1.6, 1.0, N)
    core = Scheduler(cluster, types, policy)
    ends: list[tuple[float, int]] = []
    started = np.full(N, np.nan)
    situation = None
    for i in [*range(N), -1]:
        now = float(arrival[i]) if i >= 0 else np.inf
        while ends and ends[0][0] <= now:
            end, job = heapq.heappop(ends)
            place(core.apply(Complete(job, end)), end, started, ends, duration)
        if i == CUT:
            situation = core.situation()
            cut = core.now
        if i >= 0:
            place(core.apply(Submit(i, types[kind[i]].name, now)), now, started, ends, duration)
    assert situation is not None
    rest = slice(CUT, None)
    return situation, Coming(arrival[rest] - cut, kind[rest], duration[rest]), duration, started - cut


def place(outcome, now, started, ends, duration) -> None:  # type: ignore[no-untyped-def]
    for placement in outcome.placements:
        started[placement.job] = now
        heapq.heappush(ends, (now + duration[placement.job], placement.job))


@pytest.mark.parametrize("policy", ["guarded", "best-fit"])
def test_with_true_durations_and_arrivals_a_run_ahead_is_what_happens(policy: str) -> None:
    situation, coming, duration, started = replay(policy)
    assert len(situation.waiting.job) > 5, "the situation must have waiting jobs"
    jobs = np.array([*situation.waiting.job, *situation.running.job])
    forward = Forward(situation)
    for _ in range(2):  # the second run begins where the first did
        course = forward.run(duration[jobs], coming, 1e6)
        W = len(situation.waiting.job)
        assert course.start[:W] == pytest.approx(started[jobs[:W]], abs=1e-6)
    whole = forward.run(duration[jobs], coming, 1e6, to_the_end=True)
    assert whole.start[len(jobs) :] == pytest.approx(started[CUT:], abs=1e-6)


def test_a_run_ahead_ends_once_the_watched_job_has_started() -> None:
    situation, coming, duration, _ = replay("guarded")
    jobs = np.array([*situation.waiting.job, *situation.running.job])
    forward = Forward(situation)
    first = forward.run(duration[jobs], coming, 1e6, watched=np.array([0]))
    whole = forward.run(duration[jobs], coming, 1e6, to_the_end=True)
    assert first.until < whole.until
    assert first.start[0] == whole.start[0]


def test_without_arrivals_the_waiting_jobs_start_all_the_same() -> None:
    situation, _, duration, _ = replay("guarded")
    jobs = np.array([*situation.waiting.job, *situation.running.job])
    nothing = Coming(np.zeros(0), np.zeros(0, np.int64), np.zeros(0))
    course = Forward(situation).run(duration[jobs], nothing, 1e6)
    assert not np.isnan(course.start).any()

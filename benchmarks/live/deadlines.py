"""Deadlines in virtual time: the share that is met, and what it costs the jobs without deadlines, beside EASY and earliest deadline first.

The books of the live service decide, event by event, with the policy best-fit and with EASY; no service and no store is there. Each scenario gives the
servers, the types and the mean service times. One job in five has a deadline: its time limit and a slack of 0.5 to 4 mean service times after its
submission. A time limit is 1 to 4 times what the job takes; policies know limits only. `edf` starts waiting jobs in the order of their deadlines on
the first server that fits, jobs without deadlines last; it skips jobs that fit nowhere.

    python -m benchmarks.live.deadlines [--jobs 4000] [--load 0.95] [--scenario example1 ...]
"""

from __future__ import annotations

import argparse
import heapq
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slotwise.live.deadlines import BUDGET
from slotwise.live.engines.protocol import Ended, ServerUp
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.restart import Setup
from slotwise.live.settings import servers_of
from slotwise.model import Scenario, load_scenario
from slotwise.theory.capacity import assess

LABELS = (
    "guarded",
    "guarded+deadlines",
    "best-fit",
    "best-fit+deadlines",
    "easy-backfill",
    "easy-backfill+deadlines",
    "edf",
)
SCENARIOS = ("example1", "example2", "table1")
WITH_DEADLINE = 0.2  # share of the jobs
SLACK = (0.5, 4.0)  # mean service times between the end of a job that starts at once and its deadline
UNIT = 1000.0  # seconds of a unit of time of a scenario
LIMITS = (1.0, 4.0)  # time limit / what the job takes


class Work(NamedTuple):
    """A job to come."""

    at: float
    type: str
    takes: float
    limit: float
    deadline: float | None


class Found(NamedTuple):
    """What became of the jobs."""

    met: float
    """share of the deadlines"""
    others: float
    """mean wait of the jobs without deadlines, in mean service times"""
    p95: float
    """95 % quantile of their waits"""


def work_of(scenario: Scenario, count: int, load: float, seed: int) -> list[Work]:
    """Return jobs at a share of the load that the cluster can carry."""
    random = np.random.default_rng(seed)
    types = [one.model_copy(update={"mean_service": UNIT * one.mean_service}) for one in scenario.types]
    rates = np.array([one.rate for one in types], float) / UNIT
    rates *= load / assess(scenario).region.intensity
    mean = sum(rate * one.mean_service for rate, one in zip(rates, types, strict=True)) / rates.sum()
    found, now = [], 0.0
    for _ in range(count):
        now += float(random.exponential(1.0 / rates.sum()))
        one = types[random.choice(len(types), p=rates / rates.sum())]
        takes = float(random.exponential(one.mean_service))
        limit = takes * float(random.uniform(*LIMITS))
        slack = float(random.uniform(*SLACK)) * mean
        with_deadline = random.random() < WITH_DEADLINE
        found.append(Work(now, one.name, takes, limit, now + limit + slack if with_deadline else None))
    return found


def with_books(
    scenario: Scenario, work: Sequence[Work], policy: str, budget: float
) -> tuple[list[float], list[float]]:
    """Return when each job was placed and when it ended, as the books of the live service decide."""
    ledger = Ledger(Setup(scenario.cluster, scenario.types, policy).core())
    ledger.budget = budget
    ledger.follow_jobs()
    for server in servers_of(scenario.cluster):
        ledger.server_up(ServerUp(server.name, server.capacity, server.labels, server.server_class), 0.0)
    ledger.take()
    placed, ended = [0.0] * len(work), [0.0] * len(work)
    ends: list[tuple[float, int, int]] = []
    at = 0
    while at < len(work) or ends or ledger.live:
        arrival = work[at].at if at < len(work) else float("inf")
        end = ends[0][0] if ends else float("inf")
        now = min(arrival, end, max(ledger.next_urge, ledger.core.now))
        if arrival == now:
            one = work[at]
            at += 1
            # without a budget no book is kept of deadlines
            deadline = one.deadline if budget else None
            ledger.submit(
                [NewJob("t", one.type, {}, {}, duration=one.limit, limit=one.limit, deadline=deadline)], now
            )
        elif end == now:
            _, job, attempt = heapq.heappop(ends)
            ended[job - 1] = now
            ledger.ended(Ended(job, attempt, 0, now), now)
        ledger.urge(now)
        _, effects = ledger.take()
        for start in effects.starts:
            job = int(str(start.job))
            placed[job - 1] = now
            heapq.heappush(ends, (now + work[job - 1].takes, job, start.attempt))
    return placed, ended


def earliest_deadline_first(scenario: Scenario, work: Sequence[Work]) -> tuple[list[float], list[float]]:
    """Return when each job was placed and when it ended if waiting jobs start in the order of their deadlines."""
    capacity = np.array([one.capacity for one in scenario.cluster.servers for _ in range(one.count)], float)
    demand = {one.name: np.array(one.demand, float) for one in scenario.types}
    placed, ended = [0.0] * len(work), [0.0] * len(work)
    waiting: list[tuple[float, int]] = []
    ends: list[tuple[float, int, int]] = []
    at = 0
    while at < len(work) or ends:
        arrival = work[at].at if at < len(work) else float("inf")
        if ends and ends[0][0] <= arrival:
            now, job, server = heapq.heappop(ends)
            capacity[server] += demand[work[job].type]
            ended[job] = now
        else:
            now = arrival
            deadline = work[at].deadline
            waiting.append((float("inf") if deadline is None else deadline, at))
            waiting.sort()
            at += 1
        left, refused = [], set[str]()
        for key, job in waiting:
            kind = work[job].type
            fits = np.flatnonzero((capacity >= demand[kind]).all(axis=1)) if kind not in refused else ()
            if len(fits):
                capacity[fits[0]] -= demand[kind]
                placed[job] = now
                heapq.heappush(ends, (now + work[job].takes, job, int(fits[0])))
            else:
                refused.add(kind)
                left.append((key, job))
        waiting = left
    return placed, ended


def judged(work: Sequence[Work], placed: Sequence[float], ended: Sequence[float]) -> Found:
    """Return what came of it, without the first tenth of the jobs."""
    mean = statistics.fmean(one.takes for one in work)
    rows = list(zip(work, placed, ended, strict=True))[len(work) // 10 :]
    met = [end <= one.deadline for one, _, end in rows if one.deadline is not None]
    waits = [(begin - one.at) / mean for one, begin, _ in rows if one.deadline is None]
    return Found(statistics.fmean(met), statistics.fmean(waits), float(np.quantile(waits, 0.95)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--load", type=float, default=0.95, help="share of what the cluster can carry")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scenario", nargs="*", default=list(SCENARIOS))
    given = parser.parse_args()
    for name in given.scenario:
        scenario = load_scenario(name)
        for label in LABELS:
            found = []
            for seed in range(given.seeds):
                work = work_of(scenario, given.jobs, given.load, seed)
                if label == "edf":
                    times = earliest_deadline_first(scenario, work)
                else:
                    policy, _, more = label.partition("+")
                    times = with_books(scenario, work, policy, BUDGET if more else 0.0)
                found.append(judged(work, *times))
            met, others, p95 = (statistics.fmean(values) for values in zip(*found, strict=True))
            print(
                f"{name:10} {label:20} deadlines met {met:6.1%}; waits of the other jobs, in mean service times: mean {others:7.3f}, "
                f"95 % {p95:7.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

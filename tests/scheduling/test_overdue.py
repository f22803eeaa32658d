"""Rule R5 of `guarded`: reservations for overdue jobs, where durations are known."""

from __future__ import annotations

import heapq
import random

import pytest

from slotwise.core.state import SERVER, WAITING
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.policies.backfill import reservation
from slotwise.policies.guarded import memory
from slotwise.policies.guarded.overdue import BUDGET, OVERDUE, trust
from slotwise.scheduling import Scheduler

EVENTS = 6_000
SMALL, WHOLE = 1, 10  # demands; a server holds WHOLE
TYPES = [JobType(name="small", demand=(SMALL,)), JobType(name="whole", demand=(WHOLE,))]  # type: ignore[arg-type]


class Run:
    """A cluster on which small jobs keep whole ones from starting. `told` says what a job's duration is told to be."""

    def __init__(self, servers: int, seed: int, told: float | None = None, **options: float) -> None:
        self.rng, self.told = random.Random(seed), told
        cluster = Cluster(
            resources=("cpu",),
            servers=(ServerClass(name="a", count=servers, capacity=(str(WHOLE),)),),  # type: ignore[arg-type]
        )
        # a margin so large that no server turns: only the reservation lets a whole job start
        self.scheduler = Scheduler(
            cluster, TYPES, "guarded", durations="exact", margin=100.0, tightness=10_000.0, **options
        )
        self.store = self.scheduler._store
        self.ends: list[tuple[float, int]] = []
        self.born: dict[int, float] = {}
        self.now, self.next, self.started = 0.0, 0, dict[int, float]()
        self.whole: set[int] = set()
        self.rate = 0.8 * servers * WHOLE

    def step(self) -> None:
        """The next arrival or end."""
        arrives = self.now + self.rng.expovariate(self.rate)
        if self.ends and self.ends[0][0] <= arrives:
            self.now, job = heapq.heappop(self.ends)
            placements = self.scheduler.complete(job, now=self.now)
        else:
            self.now, job = arrives, self.next
            self.next += 1
            whole = self.rng.random() < 0.01
            if whole:
                self.whole.add(job)
            self.born[job] = self.rng.expovariate(1.0)
            told = self.born[job] if self.told is None else self.told
            placements = self.scheduler.submit(job, "whole" if whole else "small", now=self.now, duration=told)
        for placed in placements:
            self.started[placed.job] = self.now
            heapq.heappush(self.ends, (self.now + self.born[placed.job], placed.job))

    def reserved(self) -> tuple[int, float] | None:
        """The job for which a server is reserved, and from when on."""
        i = reservation.holder(self.store.state, memory.RESERVATION)
        if i < 0 or reservation.reserved_server(self.store.state, memory.RESERVATION) < 0:
            return None
        assert self.store.arrays["jobs"][i, SERVER] == WAITING
        return self.scheduler._job_of[i], reservation.reserved_at(self.store.state, memory.RESERVATION)


@pytest.mark.parametrize("servers", [1, 3])
def test_an_overdue_job_starts_by_the_time_that_was_promised(servers: int) -> None:
    """With exact durations a reservation can only come true or be improved."""
    promised: dict[int, float] = {}
    run = Run(servers, seed=servers)
    for _ in range(EVENTS * servers):
        run.step()
        if (found := run.reserved()) is not None:
            assert found[1] <= promised.setdefault(found[0], found[1]) + 1e-9, "a promise was put off"
    kept = [job for job in promised if job in run.started]
    assert len(kept) >= 2, "hardly a job was overdue"
    assert all(run.started[job] <= promised[job] + 1e-9 for job in kept)


def test_a_job_gets_a_reservation_only_once_it_is_overdue() -> None:
    run, arrivals, reserved = Run(1, seed=5), dict[int, int](), set[int]()
    for _ in range(EVENTS):
        state, before = run.store.state, run.next
        present = state.n_waiting + state.n_running
        run.step()
        if run.next > before:
            arrivals[before] = run.next
        if (found := run.reserved()) is not None and found[0] not in reserved:
            reserved.add(found[0])
            assert run.next - arrivals[found[0]] > OVERDUE * (present - 1)  # the event itself may end a job
    assert reserved


@pytest.mark.parametrize(
    ("told", "least", "most"), [(None, 1.0, 1.0), (2.0, 0.3, 0.8), (1e-6, 0.0, 1e-3), (1e9, 0.0, 1e-3)]
)
def test_trust_is_the_share_of_the_work_that_was_as_estimated(
    told: float | None, least: float, most: float
) -> None:
    run = Run(2, seed=9, told=told)
    for _ in range(EVENTS):
        run.step()
    running = {job for _, job in run.ends}
    work = as_estimated = 0.0
    for job in run.started.keys() - running:
        length = run.born[job]
        estimate = length if told is None else told
        done = run.store.values_of(memory.SIZES)[int(job in run.whole)] * length
        work += done
        as_estimated += done * min(length / estimate, estimate / length)
    assert float(run.store.arrays["policy_floats"][memory.WORK]) == pytest.approx(work)
    assert trust(run.store.state) == pytest.approx(as_estimated / work, abs=1e-9)
    assert least - 1e-9 <= trust(run.store.state) <= most + 1e-9


@pytest.mark.parametrize("told", [1e-6, 1e9])
def test_wrong_durations_cost_no_more_than_the_budget(told: float) -> None:
    """No new reservation is made beyond the budget; the last one may overdraw it by its own length."""
    run = Run(1, seed=7, told=told)
    longest, since = 0.0, None
    for _ in range(EVENTS):
        run.step()
        held = run.reserved() is not None
        since = (run.now if since is None else since) if held else None
        longest = max(longest, run.now - since if since is not None else 0.0)
        numbers = run.store.arrays["policy_floats"]
        assert numbers[memory.IDLE] <= BUDGET * numbers[memory.ELAPSED] + longest + 1e-9

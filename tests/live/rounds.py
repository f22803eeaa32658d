"""A loop without a thread: a test makes its rounds one by one, by a clock that it sets."""

from __future__ import annotations

from typing import Any

from slotwise.live.engines.protocol import Ended, ServerUp
from slotwise.live.engines.simulated import SimulatedEngine
from slotwise.live.ledger import Ledger
from slotwise.live.loop import Loop
from slotwise.live.newjob import NewJob
from slotwise.live.restart import Setup
from slotwise.live.store import Query, open_store
from slotwise.live.store.records import Job


class Hand:
    """A clock that is set by hand."""

    off = 0.0

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


class Rounds:
    """A loop whose rounds are made one by one, on a new store, with one server `s`; the engine only keeps what it is told."""

    def __init__(self, url: str, setup: Setup) -> None:
        self.store = open_store(url)
        self.store.become_writer()
        self.clock = Hand()
        self.ledger = Ledger(setup.core())
        engine = SimulatedEngine([], lambda job, attempt, spec: 1e9)
        self.loop = Loop(self.store, self.ledger, engine, clock=self.clock)  # type: ignore[arg-type]
        (first, *_) = setup.cluster.servers
        has = dict(zip(setup.cluster.resources, map(float, first.capacity), strict=True))
        self.loop.inbox.tell([ServerUp("s", has, server_class=first.name)])
        self.round()

    def round(self) -> None:
        """Take everything that waits, until nothing is left to release."""
        self.loop.round(self.loop.inbox.take(10**6, 0))
        while self.ledger.next_release <= self.clock.time:
            self.loop.round([])

    def submit(self, *jobs: NewJob) -> list[int]:
        future = self.loop.submit(jobs)
        while not future.done():
            self.round()
        self.round()
        return list(future.result())

    def ask(self, act: Any) -> Any:
        future = self.loop.ask(act)
        self.round()
        return future.result()

    def end(self, number: int, code: int = 0) -> None:
        self.loop.inbox.tell([Ended(number, self.ledger.live[number].attempt, code, self.clock.time)])
        self.round()

    def jobs(self) -> dict[int, Job]:
        return {job.id: job for job in self.store.jobs(Query(limit=10**6))}

    def state(self, number: int) -> str:
        return self.jobs()[number].state

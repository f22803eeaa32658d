"""A service that loses its store, and its lease to another service, answers and starts nothing that is not its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from faulty import SERVERS, SETUP
from processes import PATIENCE

from slotwise.live.engines.protocol import Start
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.loop import NotReadyError
from slotwise.live.newjob import NewJob
from slotwise.live.service import Service
from slotwise.live.store import FencedError, Query, StoreError, open_store
from slotwise.live.store.protocol import Store

pytestmark = pytest.mark.usefixtures("impatient")
LONG = 1e6  # seconds that a job takes: longer than any test


def named(name: str) -> NewJob:
    return NewJob("t", "one", {}, {}, name=name, body=json.dumps({"argv": [name], "duration": LONG}))


class Told(SimulatedEngine):
    """A simulated engine that remembers what it was told to start."""

    def __init__(self) -> None:
        super().__init__(SERVERS, exponential(1, LONG))
        self.started: list[tuple[int, int]] = []

    def start(self, starts: list[Start]) -> None:  # type: ignore[override]
        self.started += [(one.job, one.attempt) for one in starts]
        super().start(starts)


class Cut:
    """Makes calls of a store's writing methods fail, before or after they have had their effect, until `heal`."""

    def __init__(self, store: Store, *, after: bool) -> None:
        self.healthy, self.after, self.tried = True, after, 0
        for name in ("commit", "hold"):
            self._wrap(store, name)

    def _wrap(self, store: Store, name: str) -> None:
        real = getattr(store, name)

        def call(*values: object) -> None:
            if self.healthy:
                return real(*values)
            self.tried += 1
            if self.after and self.tried == 1:
                real(*values)
            raise StoreError("the connection was cut")

        setattr(store, name, call)


def second_writer(folder: Path, engine: Told) -> Service:
    """A service that takes over a SQLite store: the lock of the first is on a file that is no longer there."""
    (folder / "x.db.lock").unlink()
    return Service(open_store(f"sqlite:///{folder}/x.db"), engine, SETUP)


def test_an_old_writer_neither_answers_nor_starts_for_the_new_one(tmp_path: Path) -> None:
    """The first service is cut off with a job that it has not written; the second writes three; the connection heals."""
    engine, other = Told(), Told()
    first = Service(open_store(f"sqlite:///{tmp_path}/x.db"), engine, SETUP)
    cut = Cut(first.store, after=False)
    cut.healthy = False
    asked = first.loop.submit([named("first")])
    second = second_writer(tmp_path, other)
    try:
        assert second.loop.submit([named(f"second-{n}") for n in range(3)]).result(PATIENCE) == [1, 2, 3]
        cut.healthy = True
        with pytest.raises(NotReadyError, match="taken over"):
            asked.result(PATIENCE)
        assert first.loop.ended.wait(PATIENCE)
        assert isinstance(first.loop.failure, FencedError)
        assert engine.started == []
        names = [one.name for one in second.store.jobs(Query(ascending=True))]
        assert names == ["second-0", "second-1", "second-2"]
        assert sorted(other.started) == [(1, 1), (2, 1), (3, 1)]
    finally:
        first.close()
        second.close()


def test_an_idle_writer_notices_that_another_has_taken_over(tmp_path: Path) -> None:
    first = Service(open_store(f"sqlite:///{tmp_path}/x.db"), Told(), SETUP)
    first.loop.ask(lambda ledger, now: None).result(PATIENCE)  # its servers have joined: it has nothing to write
    second = second_writer(tmp_path, Told())
    try:
        assert first.loop.ended.wait(PATIENCE), "it was idle and did not look"
        assert isinstance(first.loop.failure, FencedError)
    finally:
        first.close()
        second.close()


def test_a_commit_whose_answer_was_lost_is_there_once(tmp_path: Path) -> None:
    engine = Told()
    service = Service(open_store(f"sqlite:///{tmp_path}/x.db"), engine, SETUP)
    cut = Cut(service.store, after=True)
    cut.healthy = False
    asked = service.loop.submit([named("mine")])
    try:
        while cut.tried < 3:
            assert not asked.done()
        cut.healthy = True
        assert asked.result(PATIENCE) == [1]
        assert [one.name for one in service.store.jobs(Query())] == ["mine"]
        service.loop.ask(lambda ledger, now: None).result(PATIENCE)
        assert engine.started == [(1, 1)]
    finally:
        service.close()


def test_a_lease_that_was_lost_after_the_commit_starts_nothing(tmp_path: Path) -> None:
    """The job is durable and belongs to the second service, which starts it; the first, too late, does not."""
    engine, other = Told(), Told()
    first = Service(open_store(f"sqlite:///{tmp_path}/x.db"), engine, SETUP)
    made: list[Service] = []
    first.loop.ask(lambda ledger, now: None).result(PATIENCE)  # its servers have joined
    first.loop.on_commit = lambda seq: made.append(second_writer(tmp_path, other))
    try:
        assert first.loop.submit([named("first")]).result(PATIENCE) == [1]
        assert first.loop.ended.wait(PATIENCE)
        assert engine.started == []
        assert other.started == [(1, 1)]
        (second,) = made
        assert [one.name for one in second.store.jobs(Query())] == ["first"]
    finally:
        first.close()
        for one in made:
            one.close()

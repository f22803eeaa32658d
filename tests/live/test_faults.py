"""Faults of clocks, engines and policies, each for real: what it ends in is stated in docs/reference/conditions.md, nothing is lost, and it goes on when the cause is gone."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from faulty import ONE, SERVERS, SETUP, Until, exact, simulated
from processes import PATIENCE, kill_supervisor

from slotwise.live.clock import Clock
from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.protocol import (
    Ended,
    Fact,
    Lost,
    Refused,
    ServerDrained,
    ServerLost,
    Started,
    Tell,
)
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.replay import replay, rows
from slotwise.live.service import Service
from slotwise.live.store import Query, open_store

pytestmark = pytest.mark.usefixtures("impatient")


def test_clocks_that_jump(tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an hour, both ways, again and again: journal times never go back, waits are not touched, and jobs come to their end."""
    jump, true = [0.0], __import__("time").time
    monkeypatch.setattr("slotwise.live.clock.time.time", lambda: true() + jump[0])
    url = f"sqlite:///{tmp_path}/x.db"
    began = true()
    for life in (0.0, -7200.0, 7200.0):  # a restart with a clock that is wrong is the hardest
        jump[0] = life
        service = Service(
            open_store(url),
            simulated(),
            SETUP,
        )
        service.loop.clock._wall = lambda: true() + jump[0]
        try:
            for step in (3600.0, -3600.0, -3600.0, 7200.0):
                jump[0] += step
                service.loop.submit([ONE] * 2).result(PATIENCE)
            until(service.loop, lambda store=service.store: set(store.counts()) == {"done"})  # type: ignore[misc]
        finally:
            service.close()
    jump[0] = 0.0
    store = open_store(url)
    times = [entry.time for entry in rows(store, 0)]
    assert times == sorted(times)
    jobs = store.jobs(Query(limit=100))
    assert len(jobs) == 24
    for job in jobs:
        assert job.placed is not None
        assert job.ended is not None
        assert 0 <= job.placed - job.submitted < 60
        assert 0 <= job.ended - job.placed < 60
    assert times[-1] - began < 7200.0 + 120
    assert replay(store).differences == []
    store.close()
    assert Clock(not_before=times[-1]).now() >= times[-1]


class Liar(SimulatedEngine):
    """Tells what is true, and much that is not."""

    def __init__(self) -> None:
        super().__init__(SERVERS, exponential(1, 0.002))
        self.chance, self.lies = random.Random(5), 0

    def open(self, tell: Tell, epoch: int) -> None:
        def lying(facts: Sequence[Fact]) -> None:
            tell([told for fact in facts for told in self.around(fact)])

        super().open(lying, epoch)

    def around(self, fact: Fact) -> list[Fact]:
        job = getattr(fact, "job", 1)
        lies: list[Fact] = [
            Ended(10**9, 1, 0, 0.0),
            Ended(job, 7, 3, 0.0),
            Ended(job, 0, 3, 0.0),
            Started(job, 2, 1e12),
            Started(-5, 1, float("nan")),
            Lost(job, 99, "no"),
            Lost(10**9, 1, "no"),
            Refused(job, 5, "no"),
            ServerLost("nobody", "no"),
            ServerDrained("nobody", "no"),
        ]
        told = self.chance.choices(lies, k=2)
        self.lies += 2
        if isinstance(fact, Ended):  # the first end holds; another one, and the same again, change nothing
            return [*told, fact, Ended(fact.job, fact.attempt, fact.exit_code + 1, fact.at), fact]
        return [*told, fact]


def test_an_end_that_is_told_again_after_a_restart(tmp_path: Path, until: Until) -> None:
    """It is in the store, so it is no news; another end of the same attempt is a lie."""
    url = f"sqlite:///{tmp_path}/x.db"
    service = Service(open_store(url), simulated(), SETUP)
    try:
        (number,) = service.loop.submit([ONE]).result(PATIENCE)
        until(service.loop, lambda: set(service.store.counts()) == {"done"})
    finally:
        service.close()
    service = Service(open_store(url), simulated(), SETUP)
    try:
        for code, found in ((0, {}), (3, {"ended: unknown job": 1})):
            service.loop.inbox.tell([Ended(number, 1, code, 5.0)])
            until(service.loop, lambda: not service.loop.inbox)
            assert service.loop.ask(lambda ledger, now: dict(ledger.lies)).result(PATIENCE) == found
    finally:
        service.close()


def test_an_engine_that_lies(tmp_path: Path, until: Until) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    engine = Liar()
    service = Service(open_store(url), engine, SETUP)
    jobs = [ONE._replace(body=json.dumps({"argv": ["x"], "exit_code": n % 5})) for n in range(60)]
    try:
        numbers = service.loop.submit(jobs).result(PATIENCE)
        until(service.loop, lambda: sum(service.store.counts().get(s, 0) for s in ("done", "failed")) == 60)
        found = {job.id: job for job in service.store.jobs(Query(limit=100))}
        assert {n: found[n].exit_code for n in numbers} == {n: i % 5 for i, n in enumerate(numbers)}
        assert all(job.attempt == 1 for job in found.values())
        assert service.loop.trouble is None
        lies = service.loop.ask(lambda ledger, now: dict(ledger.lies)).result(PATIENCE)
        assert engine.lies > 100
        assert lies["stale attempt"] > 0
        assert lies["ended: unknown job"] > 0
    finally:
        service.close()
    store = open_store(url)
    assert replay(store).differences == []
    store.close()


def test_a_killed_supervisor_under_the_service(tmp_path: Path, until: Until) -> None:
    """Jobs that ran are lost, since their end was not seen, or are executed again if they allow it; all other jobs go
    on."""
    url = f"sqlite:///{tmp_path}/x.db"
    engine = LocalEngine(tmp_path / "engine", {one.name: one for one in SERVERS})
    service = Service(open_store(url), engine, SETUP)
    wait = f"echo $SLOTWISE_JOB_ID $SLOTWISE_ATTEMPT >> {tmp_path}/ran; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    jobs = [
        ONE._replace(type="all", body=json.dumps({"argv": ["sh", "-c", wait], "on_loss": on_loss}))
        for on_loss in ("fail", "requeue")
    ]
    after = ONE._replace(type="all", body=json.dumps({"argv": ["sh", "-c", "exit 4"]}))
    ran = tmp_path / "ran"
    try:
        service.loop.submit([*jobs, after]).result(PATIENCE)
        until(service.loop, lambda: ran.exists() and len(ran.read_text().split("\n")) == 3)
        until(service.loop, lambda: service.store.counts().get("running") == 2)
        kill_supervisor(tmp_path / "engine")
        (tmp_path / "go").touch()
        until(service.loop, lambda: service.store.counts() == {"lost": 1, "done": 1, "failed": 1})
        found = {job.id: job for job in service.store.jobs(Query(limit=10))}
        assert {n: (job.state, job.attempt, job.exit_code) for n, job in found.items()} == {
            1: ("lost", 1, None),
            2: ("done", 2, 0),
            3: ("failed", 1, 4),
        }
        assert "supervisor was killed" in (found[1].reason or "")
        assert sorted(ran.read_text().split("\n")[:-1]) == ["1 1", "2 1", "2 2"]
    finally:
        service.close()
        kill_supervisor(tmp_path / "engine")


def test_killed_between_the_first_commit_and_the_first_start(tmp_path: Path, until: Until) -> None:
    """The supervisor is new and has never heard of any job; the placement is durable, and is carried out by the next service."""
    url = f"sqlite:///{tmp_path}/x.db"

    def new_service() -> Service:
        engine = LocalEngine(tmp_path / "engine", {one.name: one for one in SERVERS})
        return Service(open_store(url), engine, SETUP)

    service = new_service()
    service.engine.start = lambda starts: None  # type: ignore[method-assign]  # as if it were killed before
    service.loop.submit([ONE._replace(body=json.dumps({"argv": ["true"]}))]).result(PATIENCE)
    service.close()
    again = new_service()
    try:
        until(again.loop, lambda: again.store.counts() == {"done": 1})
    finally:
        again.close()
        kill_supervisor(tmp_path / "engine")
    exact(url, 1)


RAISING = """
from slotwise.scheduling.api import FitOptions, Policy, State, first_fit, need, queue_length, set_need, start

def serve(s: State, _a: int, _b: int) -> None:
    for j in range(s.n_types):
        while queue_length(s)[j] > 0:
            set_need(s, j)
            server = first_fit(s, need(s), 0)
            if server < 0:
                break
            start(s, j, server)
        if queue_length(s)[j] >= 3:
            raise RuntimeError("three are too many")

class Raising(Policy):
    name = "raising"
    summary = "raises where three jobs wait"
    Options = FitOptions
    keeps = frozenset({"free", "tree"})
    arrive = complete = join = cancel = resume = staticmethod(serve)
"""


def test_a_policy_that_raises(tmp_path: Path, until: Until) -> None:
    """What it had decided holds; the fault is told; another policy takes over while jobs run; the journal replays."""
    (tmp_path / "mine.py").write_text(RAISING)
    url = f"sqlite:///{tmp_path}/x.db"
    engine = SimulatedEngine(SERVERS, exponential(1, 1e9))  # nothing ends by itself
    setup = SETUP._replace(policy=f"{tmp_path}/mine.py:Raising")
    service = Service(open_store(url), engine, setup)
    loop = service.loop
    try:
        numbers = loop.submit([ONE] * 14).result(PATIENCE)
        assert numbers == list(range(1, 15))
        fault = loop.ask(lambda ledger, now: ledger.fault).result(PATIENCE)
        assert fault == "RuntimeError: three are too many"
        assert loop.ask(lambda ledger, now: len(ledger.live)).result(PATIENCE) == 8
        assert loop.trouble is None
        # room: it still starts who fits, and raises
        loop.ask(lambda ledger, now: ledger.stop(numbers[0], now)).result(PATIENCE)
        until(loop, lambda: numbers[8] in loop.ledger.live)
    finally:
        service.close()
    again = Service(
        open_store(url), SimulatedEngine(SERVERS, exponential(1, 0.001)), setup
    )  # it goes on after a restart
    try:
        again.loop.ask(lambda ledger, now: ledger.change(now, policy="best-fit")).result(PATIENCE)
        assert again.loop.ask(lambda ledger, now: ledger.fault).result(PATIENCE) is None
        until(again.loop, lambda: again.store.counts() == {"done": 13, "cancelled": 1})
    finally:
        again.close()
    store = open_store(url)
    assert replay(store).differences == []
    store.close()

"""Faults, each for real: what it ends in is stated in docs/reference/conditions.md, nothing is lost, and it goes on when the cause is gone."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE

from slotwise.errors import InputError
from slotwise.live.clock import Clock
from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.protocol import (
    Ended,
    Fact,
    Lost,
    Refused,
    ServerDrained,
    ServerLost,
    ServerUp,
    Started,
    Tell,
)
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.ledger import NewJob
from slotwise.live.loop import Loop, NotReadyError
from slotwise.live.replay import replay, rows
from slotwise.live.restart import Setup
from slotwise.live.retention import Retention
from slotwise.live.service import Service
from slotwise.live.store import Query, StoreBrokenError, StoreError, open_store
from slotwise.live.store.backup import restore, save
from slotwise.live.store.sqlite import SQLiteStore
from slotwise.model import Cluster, JobType, ServerClass

Until = Callable[[Loop, Callable[[], Any]], None]
SERVERS = [ServerUp(name, {"cpu": 4, "memory": 1000}, server_class="a") for name in ("x", "y")]
SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=2, capacity=("4", "1000")),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1", "0")), JobType(name="all", demand=("4", "0"))),  # type: ignore[arg-type]
    policy="best-fit",
)
ONE = NewJob("t", "one", {}, {}, body=json.dumps({"argv": ["x"]}))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotwise.live.loop.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("slotwise.live.store.sqlite.BUSY_MILLISECONDS", 20)


def simulated() -> SimulatedEngine:
    return SimulatedEngine(SERVERS, exponential(1, 0.001))


def exact(url: str, jobs: int) -> None:
    """All jobs are done, once each, and the journal replays."""
    store = open_store(url)
    assert store.counts() == {"done": jobs}
    assert all(job.attempt == 1 for job in store.jobs(Query(limit=10**6)))
    assert replay(store).differences == []
    store.close()


def trouble_and_back(service: Service, until: Until, cause: Callable[[], Callable[[], None]], says: str) -> None:
    """Some jobs; then the cause: nothing is acknowledged, and it is said why; then it is gone, and what was asked for is done."""
    loop = service.loop
    loop.submit([ONE] * 3).result(PATIENCE)
    until(loop, lambda: service.store.counts() == {"done": 3})
    undo = cause()
    asked = loop.submit([ONE] * 3)
    until(loop, lambda: loop.trouble is not None)
    assert says in (loop.trouble or "")
    assert not asked.done(), "acknowledged before it was durable"
    with pytest.raises(NotReadyError, match="cannot be written"):
        loop.submit([ONE])
    undo()
    assert asked.result(PATIENCE) == [4, 5, 6]
    until(loop, lambda: loop.trouble is None and service.store.counts() == {"done": 6})


def test_a_full_disk(tmp_path: Path, until: Until) -> None:
    """No file may grow any more: SQLite meets it as it would meet a full disk."""
    url = f"sqlite:///{tmp_path}/x.db"
    service = Service(open_store(url), simulated(), SETUP)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> Callable[[], None]:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "x.db-wal").stat().st_size, hard))
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    try:
        trouble_and_back(service, until, fill, "disk")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        service.close()
    exact(url, 6)


def test_a_read_only_store(tmp_path: Path, until: Until) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    store = open_store(url)
    assert isinstance(store, SQLiteStore)
    service = Service(store, simulated(), SETUP)

    def read_only(value: str) -> None:
        with store._writing:
            store._writer.execute(f"PRAGMA query_only = {value}")

    def cause() -> Callable[[], None]:
        read_only("on")
        return lambda: read_only("off")

    try:
        trouble_and_back(service, until, cause, "readonly")
    finally:
        service.close()
    exact(url, 6)
    with pytest.raises(StoreError, match="unable to open"):
        open_store("sqlite:////proc/slotwise.db")


def test_a_locked_store(tmp_path: Path, until: Until) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    service = Service(open_store(url), simulated(), SETUP)
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as other:

        def lock() -> Callable[[], None]:
            other.execute("BEGIN IMMEDIATE")
            return lambda: other.execute("ROLLBACK") and None

        try:
            trouble_and_back(service, until, lock, "locked")
        finally:
            service.close()
    exact(url, 6)


def test_a_corrupt_store(tmp_path: Path, until: Until) -> None:
    """It is refused, and a backup goes on where it was made."""
    url = f"sqlite:///{tmp_path}/x.db"
    service = Service(open_store(url), simulated(), SETUP)
    service.loop.submit([ONE] * 50).result(PATIENCE)
    until(service.loop, lambda: service.store.counts() == {"done": 50})
    service.loop.ask(lambda ledger, now: [ledger.drain(one.name, now) for one in SERVERS]).result(PATIENCE)
    service.loop.submit([ONE] * 7).result(PATIENCE)
    save(service.store, tmp_path / "backup.gz")
    service.close()

    whole, chance = (tmp_path / "x.db").read_bytes(), random.Random(3)
    seen = 0
    for _ in range(6):
        for left in ("x.db-wal", "x.db-shm"):
            (tmp_path / left).unlink(missing_ok=True)
        pages = bytearray(whole)
        for _ in range(8):
            at = chance.randrange(1, len(whole) // 4096) * 4096
            pages[at : at + 4096] = chance.randbytes(4096)
        (tmp_path / "x.db").write_bytes(pages)
        try:
            store = open_store(url)
        except StoreBrokenError:
            seen += 1
            continue
        try:
            Service(store, simulated(), SETUP).close()
        except (StoreBrokenError, InputError):
            seen += 1
        finally:
            store.close()
    assert seen > 0

    fresh = open_store(f"sqlite:///{tmp_path}/new.db")
    fresh.become_writer()
    restore(fresh, tmp_path / "backup.gz")
    fresh.close()
    again = Service(open_store(f"sqlite:///{tmp_path}/new.db"), simulated(), SETUP)
    try:
        again.loop.ask(lambda ledger, now: [ledger.resume(one.name, now) for one in SERVERS]).result(PATIENCE)
        until(again.loop, lambda: again.store.counts() == {"done": 57})
    finally:
        again.close()
    exact(f"sqlite:///{tmp_path}/new.db", 57)


def test_a_store_that_is_damaged_while_it_is_used(tmp_path: Path, until: Until) -> None:
    """The service ends and says so; nothing that it cannot write is acknowledged."""
    url = f"sqlite:///{tmp_path}/x.db"
    service = Service(open_store(url), simulated(), SETUP)
    service.loop.submit([ONE]).result(PATIENCE)
    with closing(sqlite3.connect(tmp_path / "x.db")) as other:
        other.execute(
            "INSERT INTO journal VALUES (1000, 0, '{}', '[]', NULL)"
        )  # nobody but the service writes here
        other.commit()
    asked = [service.loop.submit([ONE] * 1200)]
    assert isinstance(asked[0].exception(30), NotReadyError)
    assert service.loop.ended.wait(PATIENCE)
    assert isinstance(service.loop.failure, StoreBrokenError)
    assert "the store is damaged" in (service.loop.trouble or "")
    with pytest.raises(NotReadyError, match="damaged"):
        service.loop.submit([ONE])
    service.close()
    with closing(sqlite3.connect(tmp_path / "x.db")) as other:
        other.execute("DELETE FROM journal WHERE seq = 1000")
        other.commit()
    again = Service(open_store(url), simulated(), SETUP)
    try:
        again.loop.submit([ONE]).result(PATIENCE)
        until(again.loop, lambda: again.store.counts() == {"done": 2})
    finally:
        again.close()


@pytest.mark.parametrize("seed", range(4))
def test_damaged_rows_of_the_journal_are_named(tmp_path: Path, seed: int) -> None:
    url, chance = f"sqlite:///{tmp_path}/x.db", random.Random(seed)
    service = Service(open_store(url), simulated(), SETUP)
    service.loop.submit([ONE] * 20).result(PATIENCE)
    service.loop.retention.checkpoint = lambda *_: None  # type: ignore[method-assign]  # as if it were killed
    service.close()
    with closing(sqlite3.connect(tmp_path / "x.db")) as base:
        numbered = base.execute("SELECT seq, event FROM journal WHERE event LIKE '%submit%'").fetchall()
        seq, event = chance.choice(numbered)
        at = chance.randrange(len(event))
        spoilt = chance.choice(
            [event[:at], event.replace("submit", "sub"), "null", "[]", event.replace('"one"', "7")]
        )
        base.execute("UPDATE journal SET event = ? WHERE seq = ?", (spoilt, seq))
        base.commit()
    store = open_store(url)
    with pytest.raises(InputError, match=f"row {seq} of the journal"):
        Service(store, simulated(), SETUP)
    with pytest.raises(InputError, match=f"row {seq} of the journal"):
        replay(store)
    store.close()


@pytest.mark.system
def test_a_postgres_that_goes_away_and_comes_back(postgres_url: str, until: Until) -> None:
    import psycopg

    name = postgres_url.split("/")[3].partition("?")[0]
    server = os.environ["SLOTWISE_TEST_POSTGRES"]
    service = Service(open_store(postgres_url), simulated(), SETUP)

    def away() -> Callable[[], None]:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

        def back() -> None:
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

        return back

    try:
        service.loop.submit([ONE] * 3).result(PATIENCE)
        until(service.loop, lambda: service.store.counts() == {"done": 3})
        undo = away()
        asked = service.loop.submit([ONE] * 3)
        until(service.loop, lambda: service.loop.trouble is not None)
        assert not asked.done()
        undo()
        assert asked.result(PATIENCE) == [4, 5, 6]
        until(service.loop, lambda: service.loop.trouble is None and service.store.counts() == {"done": 6})
    finally:
        service.close()
    exact(postgres_url, 6)


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
    """Jobs that ran are lost, since nobody saw how they ended, or are executed again where they allow it; the others go on."""
    url = f"sqlite:///{tmp_path}/x.db"
    engine = LocalEngine(tmp_path / "engine", {one.name: one for one in SERVERS})
    service = Service(open_store(url), engine, SETUP)
    lock = tmp_path / "engine" / "lock"
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
        os.kill(int(lock.read_text()), signal.SIGKILL)
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
        with suppress(ProcessLookupError):
            os.kill(int(lock.read_text()), signal.SIGKILL)


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
        os.kill(int((tmp_path / "engine" / "lock").read_text()), signal.SIGKILL)
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
        assert len(loop.ledger.live) == 8
        assert loop.trouble is None
        loop.ask(lambda ledger, now: ledger.stop(numbers[0], now)).result(
            30
        )  # room: it still starts who fits, and raises
        until(loop, lambda: numbers[8] in loop.ledger.live)
    finally:
        service.close()
    again = Service(
        open_store(url), SimulatedEngine(SERVERS, exponential(1, 0.001)), setup
    )  # it goes on after a restart
    try:
        again.loop.ask(lambda ledger, now: ledger.change(now, policy="best-fit")).result(PATIENCE)
        assert again.loop.ask(lambda ledger, now: ledger.fault).result(PATIENCE) is None
        until(again.loop, lambda: not sum(again.loop.ledger.core.waiting.values()) and not again.loop.ledger.live)
    finally:
        again.close()
    store = open_store(url)
    assert store.counts() == {"done": 13, "cancelled": 1}
    assert replay(store).differences == []
    store.close()


def test_a_failing_checkpoint_is_no_reason_to_stop(
    tmp_path: Path, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal is whole without it: the next start reads more rows."""
    url = f"sqlite:///{tmp_path}/x.db"
    store = open_store(url)
    service = Service(store, simulated(), SETUP, retention=Retention(every=10))
    held = threading.Event()

    def fails(checkpoint: object) -> None:
        held.set()
        raise StoreError("no space left on device")

    store.save_checkpoint = fails  # type: ignore[method-assign]
    try:
        service.loop.submit([ONE] * 30).result(PATIENCE)
        until(service.loop, lambda: service.store.counts() == {"done": 30})
        assert held.wait(PATIENCE)
        assert "cannot keep a situation" in caplog.text
    finally:
        service.close()
    exact(url, 30)
    again = Service(open_store(url), simulated(), SETUP)
    again.close()

"""Faults of the store, each for real: what it ends in is stated in docs/reference/conditions.md, nothing is lost, and it goes on when the cause is gone."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from faulty import ONE, SERVERS, SETUP, Until, exact, simulated
from processes import PATIENCE

from slotwise.errors import InputError
from slotwise.live.loop import NotReadyError, UnsureError
from slotwise.live.replay import replay
from slotwise.live.retention import Retention
from slotwise.live.service import Service
from slotwise.live.store import StoreBrokenError, StoreError, open_store
from slotwise.live.store.backup import restore, save
from slotwise.live.store.sqlite import SQLiteStore

pytestmark = pytest.mark.usefixtures("impatient")


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


def test_callers_are_told_that_the_disk_is_full(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not wait in silence; what they asked for is done later, once, as they were told."""
    url = f"sqlite:///{tmp_path}/x.db"
    service = Service(open_store(url), simulated(), SETUP)
    service.loop.ask(lambda ledger, now: None).result(PATIENCE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr("slotwise.live.loop.ANSWER_SECONDS", 0.0)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "x.db-wal").stat().st_size, hard))
        with pytest.raises(UnsureError, match=r"disk.*will be carried out when the store can be written again"):
            service.loop.submit([ONE]).result(PATIENCE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        until(service.loop, lambda: service.loop.trouble is None and service.store.counts() == {"done": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        service.close()
    exact(url, 1)


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
        other.execute("INSERT INTO journal VALUES (1000, 0, '{}', '[]', NULL)")  # only the service writes here
        other.commit()
    asked = service.loop.submit([ONE] * 1200)
    assert isinstance(asked.exception(PATIENCE), NotReadyError)
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
        until(service.loop, lambda: "cannot keep a situation" in caplog.text)
    finally:
        service.close()
    exact(url, 30)
    again = Service(open_store(url), simulated(), SETUP)
    again.close()


@pytest.mark.parametrize("missing", ["os.fork", "tempfile.TemporaryFile"])
def test_a_situation_that_cannot_be_written_apart_is_no_reason_to_stop(
    tmp_path: Path, until: Until, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """No process or no file can be made: it is logged, and the service goes on."""
    url = f"sqlite:///{tmp_path}/x.db"
    service = Service(open_store(url), simulated(), SETUP, retention=Retention(every=10, apart=0))

    def fails(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(f"slotwise.live.retention.{missing}", fails)
    try:
        service.loop.submit([ONE] * 30).result(PATIENCE)
        until(service.loop, lambda: service.store.counts() == {"done": 30})
        until(service.loop, lambda: "cannot keep a situation" in caplog.text)
        assert service.loop.trouble is None
    finally:
        service.close()
    exact(url, 30)

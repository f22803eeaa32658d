"""The store in PostgreSQL: COPY for what is new, one statement for what changes, and a lease that a standby can take over.

The writer holds a row with its epoch and a heartbeat. Every transaction renews that row last, on the condition that the epoch
is still its own; a standby that finds the heartbeat old ends the old writer's session and raises the epoch. So a writer that
was stopped and wakes up finds its session gone or its epoch old, and cannot write.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from slotwise.live.store.records import (
    Batch,
    BusyError,
    FencedError,
    Job,
    StoreBrokenError,
    StoreError,
    by_columns,
)
from slotwise.live.store.schema import TABLES, statements
from slotwise.live.store.writing import Writing

LEASE = 2.0
"""seconds without a heartbeat after which a standby takes over"""
GRACE = 1.0
"""the same for a writer whose session has ended: it has a moment to come back"""
BEAT = 0.5
SCHEMA_LOCK = 0x510751
REAL = {"submitted", "placed", "started", "ended"}
TEXT = {"tenant", "type", "name", "state", "server", "reason", "key"}
CLOCK = "extract(epoch FROM clock_timestamp())::float8"


def kind_of(column: str) -> str:
    """The type of a column of the job table."""
    return "text" if column in TEXT else "float8" if column in REAL else "bigint"


class PostgresStore(Writing):
    """See `Store`."""

    placeholder = "%s"
    fenced = False

    def __init__(self, url: str) -> None:
        self._target = url
        self.url = without_password(url)
        self.epoch = 0
        self._readers: queue.SimpleQueue[psycopg.Connection[Any]] = queue.SimpleQueue()
        self._writing = threading.RLock()
        self._writer: psycopg.Connection[Any] | None = None
        self._session = ""
        self._closing = threading.Event()
        self._beating: threading.Thread | None = None
        with self._said():
            self._migrate()

    # -- the one writer -----------------------------------------------------------------------------------------

    def become_writer(self, *, wait: bool = False) -> int:
        while not self._closing.is_set():
            with self._said():
                if self._take_over():
                    self._beating = threading.Thread(target=self._beat_on, name="slotwise-lease", daemon=True)
                    self._beating.start()
                    return self.epoch
            if not wait:
                raise BusyError(f"{self.url}: another `slotwise serve` uses this store")
            self._closing.wait(0.1)
        raise BusyError(f"{self.url}: closed while waiting to become the writer")

    def _take_over(self) -> bool:
        """Become the writer if the lease is free or has run out."""
        with self._connect() as connection:  # leaves with a commit
            row = connection.execute(
                f"SELECT epoch, session, {CLOCK} - heartbeat FROM writer WHERE one = 1"
            ).fetchone()
            assert row is not None
            epoch, session, age = row
            if session:
                pid, _, since = session.partition(" ")
                its = "FROM pg_stat_activity WHERE pid = %s AND backend_start::text = %s"
                there = connection.execute(f"SELECT 1 {its}", (int(pid), since)).fetchone()
                if age < (LEASE if there else GRACE):
                    return False
                # it may have been stopped in the middle of a transaction, holding the row
                connection.execute(f"SELECT pg_terminate_backend(pid) {its}", (int(pid), since))
                connection.commit()
            connection.execute("SET lock_timeout = '1s'")
            writer = self._connect()
            mine = writer.execute(
                "SELECT pid || ' ' || backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            ).fetchone()
            writer.commit()
            assert mine is not None
            try:
                taken = connection.execute(
                    f"UPDATE writer SET epoch = epoch + 1, session = %s, heartbeat = {CLOCK}"
                    " WHERE one = 1 AND epoch = %s AND session = %s",
                    (mine[0], epoch, session),
                ).rowcount
            except psycopg.errors.LockNotAvailable:
                connection.rollback()
                taken = 0
            if not taken:
                writer.close()
                return False
        self._writer, self._session, self.epoch = writer, mine[0], epoch + 1
        return True

    def beat(self) -> None:
        with self.as_writer():
            pass  # every transaction renews the heartbeat

    def _beat_on(self) -> None:
        """Keep the lease while the loop has nothing to write, or works long on one thing."""
        while not self._closing.wait(BEAT):
            try:
                self.beat()
            except FencedError:
                self.fenced = True
                return
            except StoreError:
                continue  # the connection comes back, or the lease runs out

    # -- writing ------------------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> None:
        with self.as_writer() as connection:
            cursor = connection.cursor()
            copy(cursor, "journal (seq, time, event, placements, note)", batch.entries)
            copy(cursor, "spec (id, body)", batch.specs)
            copy(cursor, f"job ({', '.join(Job._fields)})", batch.jobs.values())
            for columns, rows in by_columns(batch.changes):
                lists = list(zip(*rows, strict=True))
                given = ", ".join(f"%s::{kind_of(column)}[]" for column in (*columns, "id"))
                cursor.execute(
                    f"UPDATE job SET {', '.join(f'{column} = new.{column}' for column in columns)}"
                    f" FROM unnest({given}) AS new ({', '.join(columns)}, id) WHERE job.id = new.id",
                    [list(values) for values in lists],
                )
            if batch.servers_gone or batch.servers:
                cursor.execute("DELETE FROM server WHERE name = ANY(%s)", ([*batch.servers_gone, *batch.servers],))
            copy(cursor, "server (name, server_class, status, reason)", batch.servers.values())

    # -- copies -------------------------------------------------------------------------------------------------

    def dump(self) -> Iterator[tuple[str, list[Any]]]:
        with self._said(), self._connect() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            for table in TABLES:
                with connection.cursor(name=f"dump_{table}") as cursor:
                    for row in cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))):
                        yield table, list(row)

    def close(self) -> None:
        self._closing.set()
        if self._beating is not None:
            self._beating.join()
        with self._writing:
            if self._writer is not None:
                try:  # so that a standby, or the next start, need not wait
                    self._writer.execute(
                        "UPDATE writer SET session = '' WHERE one = 1 AND epoch = %s AND session = %s",
                        (self.epoch, self._session),
                    )
                    self._writer.commit()
                except psycopg.Error:
                    pass  # it has gone: the lease runs out by itself
                self._writer.close()
                self._writer = None
        while not self._readers.empty():
            self._readers.get().close()

    # -- inside -------------------------------------------------------------------------------------------------

    def ask(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._said():
            while True:
                try:
                    connection, kept = self._readers.get_nowait(), True
                except queue.Empty:
                    connection, kept = self._connect(), False
                    connection.autocommit = True
                try:
                    rows = connection.execute(self.words(text), values).fetchall()
                except psycopg.OperationalError:
                    connection.close()
                    if not kept:
                        raise
                    continue  # it broke while nobody used it: another one, and at last a new one
                except psycopg.Error:
                    self._readers.put(connection)
                    raise
                self._readers.put(connection)
                return rows

    def _connect(self) -> psycopg.Connection[Any]:
        # a database made without a locale has no encoding, and texts would come back as bytes
        connection = psycopg.connect(
            self._target, connect_timeout=5, application_name="slotwise", client_encoding="utf8"
        )
        connection.execute("SET synchronous_commit = on")
        connection.execute("SET idle_in_transaction_session_timeout = '30s'")
        connection.commit()
        return connection

    def _migrate(self) -> None:
        with self._connect() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
            connection.execute("CREATE TABLE IF NOT EXISTS migration (number bigint PRIMARY KEY)")
            row = connection.execute("SELECT coalesce(max(number), 0) FROM migration").fetchone()
            version = row[0] if row is not None else 0
            self.check_version(version)
            for number, texts in statements(version, integer="BIGINT", real="DOUBLE PRECISION"):
                for text in texts:
                    connection.execute(text)
                connection.execute("INSERT INTO migration VALUES (%s)", (number,))

    @contextmanager
    def as_anybody(self) -> Iterator[psycopg.Connection[Any]]:
        with self._said(), self._connect() as connection:  # leaves with a commit
            yield connection

    @contextmanager
    def as_writer(self) -> Iterator[psycopg.Connection[Any]]:
        """All or nothing, and only while the epoch is ours; a lost connection is made anew the next time."""
        with self._writing, self._said():
            if self._writer is None or self._writer.closed:
                self._writer = self._reconnect()
            connection = self._writer
            try:
                yield connection
                renewed = connection.execute(
                    f"UPDATE writer SET heartbeat = {CLOCK} WHERE one = 1 AND epoch = %s AND session = %s",
                    (self.epoch, self._session),
                ).rowcount
                if not renewed:
                    raise FencedError(f"{self.url}: another service has taken over this store")
                connection.commit()
            except psycopg.OperationalError:
                connection.close()
                raise
            except BaseException:
                connection.rollback()
                raise

    def _reconnect(self) -> psycopg.Connection[Any]:
        """A new session for the same epoch, if nobody has taken over meanwhile."""
        connection = self._connect()
        mine = connection.execute(
            "SELECT pid || ' ' || backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchone()
        assert mine is not None
        renewed = connection.execute(
            f"UPDATE writer SET session = %s, heartbeat = {CLOCK} WHERE one = 1 AND epoch = %s AND session = %s",
            (mine[0], self.epoch, self._session),
        ).rowcount
        connection.commit()
        if not renewed:
            connection.close()
            raise FencedError(f"{self.url}: another service has taken over this store")
        self._session = mine[0]
        return connection

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.errors.DataCorrupted, psycopg.errors.UniqueViolation, psycopg.ProgrammingError) as error:
            raise StoreBrokenError(f"{self.url}: {one_line(error)}") from error
        except psycopg.Error as error:
            raise StoreError(f"{self.url}: {one_line(error)}") from error


def copy(cursor: psycopg.Cursor[Any], target: str, rows: Any) -> None:
    """Send rows by COPY."""
    if not rows:
        return
    with cursor.copy(f"COPY {target} FROM STDIN") as into:
        for row in rows:
            into.write_row(row)


def one_line(error: psycopg.Error) -> str:
    """What PostgreSQL says, without its line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


def without_password(url: str) -> str:
    """The address as it may stand in a log."""
    return psycopg.conninfo.make_conninfo(
        "",
        **{
            key: value
            for key, value in psycopg.conninfo.conninfo_to_dict(url).items()
            if key != "password" and value is not None
        },
    )

"""The store in PostgreSQL: COPY for what is new, one statement for what changes, and a lease that a standby can take over.

The writer holds a row with its epoch, a heartbeat and the number of its last batch. Every transaction renews that row first, on the
condition that the epoch is still its own, and keeps it locked to its end. A standby that finds the heartbeat old ends the old writer's
session and raises the epoch. So a writer that was stopped and wakes up finds its session gone or its epoch old, and cannot write.

A commit whose answer was lost is repeated: the row then tells whether the batch is there already.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
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

log = logging.getLogger(__name__)
# Seconds without a heartbeat after which a standby takes over.
LEASE = 2.0
# As LEASE, for a writer whose session has ended: it has a moment to come back.
GRACE = 1.0
BEAT = 0.5  # seconds between two heartbeats, a small part of LEASE
# Seconds between two looks of a standby at the lease.
TRY_SECONDS = 0.1
# Milliseconds without an acknowledgement after which a connection counts as dead.
DEAD_MILLISECONDS = 4000
SCHEMA_LOCK = 0x510751  # an arbitrary number that no other program locks
REAL = {"submitted", "placed", "started", "ended", "due", "ready"}
TEXT = {"tenant", "type", "name", "state", "server", "reason", "key"}
SESSION = "FROM pg_stat_activity WHERE pid = %s AND backend_start::text = %s"
CLOCK = "extract(epoch FROM clock_timestamp())::float8"


def kind_of(column: str) -> str:
    """The type of a column of the job table."""
    return "text" if column in TEXT else "float8" if column in REAL else "bigint"


class PostgresStore(Writing):
    """See `Store`."""

    placeholder = "%s"

    def __init__(self, url: str) -> None:
        self._target = url
        self.url = without_password(url)
        self.epoch = 0
        self._readers: queue.SimpleQueue[psycopg.Connection[Any]] = queue.SimpleQueue()
        self._writing = threading.RLock()
        self._writer: psycopg.Connection[Any] | None = None
        self._session = ""
        self._fenced = False
        self._batches = 0
        """how many batches this writer has numbered"""
        self._sure_until = 0.0
        """until then no standby can have taken over, by the clock of `elapsed`"""
        self._closing = threading.Event()
        self._beating: threading.Thread | None = None
        with self._said():
            self._migrate()
        self.name = str(self.ask("SELECT current_database()")[0][0])

    # -- the one writer -----------------------------------------------------------------------------------------

    def become_writer(self, *, wait: bool = False) -> int:
        while not self._closing.is_set():
            try:
                with self._said():
                    taken = self._take_over()
            except StoreBrokenError:
                raise
            except StoreError as error:
                if not wait:
                    raise
                log.warning("cannot reach the store, trying on: %s", error)
                taken = False
            if taken:
                self._beating = threading.Thread(target=self._beat_on, name="slotwise-lease", daemon=True)
                self._beating.start()
                return self.epoch
            if not wait:
                raise BusyError(f"{self.url}: another `slotwise serve` uses this store")
            self._closing.wait(TRY_SECONDS)
        raise BusyError(f"{self.url}: closed while waiting to become the writer")

    def _take_over(self) -> bool:
        """Become the writer if the lease is free or has run out."""
        connection = self._connect()
        try:
            mine, asked = session_of(connection), elapsed()
            epoch = self._raise_epoch(connection, mine)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        if epoch is None:
            connection.close()
            return False
        self._writer, self._session, self.epoch = connection, mine, epoch
        self._sure_until = asked + GRACE / 2
        return True

    def _raise_epoch(self, connection: psycopg.Connection[Any], mine: str) -> int | None:
        """Begin a new epoch for a session. Return None if another writer has the lease, or has just renewed it."""
        row = connection.execute(
            f"SELECT epoch, session, heartbeat, {CLOCK} - heartbeat FROM writer WHERE one = 1"
        ).fetchone()
        assert row is not None
        epoch, session, heartbeat, age = row
        if session:
            there = connection.execute(f"SELECT 1 {SESSION}", session.split(" ", 1)).fetchone()
            if age < (LEASE if there else GRACE):
                return None
            # it may have been stopped in the middle of a transaction, holding the row
            end_session(connection, session)
        connection.execute("SET LOCAL lock_timeout = '1s'")
        try:
            taken = connection.execute(
                f"UPDATE writer SET epoch = epoch + 1, session = %s, heartbeat = {CLOCK}, batch = 0"
                " WHERE one = 1 AND epoch = %s AND session = %s AND heartbeat = %s",
                (mine, epoch, session, heartbeat),
            ).rowcount
        except psycopg.errors.LockNotAvailable:
            connection.rollback()
            return None
        return int(epoch) + 1 if taken else None

    def beat(self) -> None:
        with self.as_writer():
            pass  # every transaction renews the heartbeat

    def hold(self) -> None:
        if self._fenced:
            raise self._taken()
        if elapsed() > self._sure_until:
            self.beat()

    def _beat_on(self) -> None:
        """Keep the lease while the loop has nothing to write, or works long on one thing."""
        while not self._closing.wait(BEAT):
            try:
                self.beat()
            except FencedError:
                self._fenced = True
                return
            except StoreError:
                continue  # the connection comes back, or the lease runs out

    # -- writing ------------------------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> None:
        again = batch.number is not None
        if batch.number is None:
            self._batches += 1
            batch.number = self._batches
        with self.as_writer() as connection:
            cursor = connection.cursor()
            if again:
                there = cursor.execute("SELECT batch FROM writer WHERE one = 1").fetchone()
                assert there is not None
                if there[0] >= batch.number:
                    return
            cursor.execute("UPDATE writer SET batch = %s WHERE one = 1", (batch.number,))
            copy(cursor, "journal (seq, time, event, placements, note)", batch.entries)
            copy(cursor, "spec (id, body, on_loss, account, demand)", batch.spec_rows())
            copy(cursor, f"job ({', '.join(Job._fields)})", batch.jobs.values())
            copy(cursor, "dependency (job, kind, other)", batch.needs)
            copy(cursor, "attempt (job, number, server, placed, ended, exit_code)", batch.attempts)
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
            if batch.windows:
                cursor.execute("DELETE FROM maintenance WHERE id = ANY(%s)", ([*batch.windows],))
            where = "maintenance (id, server, begins, ends, reason, assumed, state, tenant)"
            copy(cursor, where, batch.windows.values())
            if batch.hooks:
                cursor.execute("DELETE FROM hook WHERE name = ANY(%s)", ([*batch.hooks],))
            copy(cursor, "hook (name, state)", batch.hooks.items())

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
                    continue  # it broke while it was idle: try another one, and at last a new one
                except psycopg.Error:
                    self._readers.put(connection)
                    raise
                self._readers.put(connection)
                return rows

    def _connect(self) -> psycopg.Connection[Any]:
        # a database made without a locale has no encoding, and texts would come back as bytes
        connection = psycopg.connect(
            self._target,
            connect_timeout=5,
            application_name="slotwise",
            client_encoding="utf8",
            keepalives_idle=1,
            keepalives_interval=1,
            tcp_user_timeout=DEAD_MILLISECONDS,
        )
        connection.execute("SET synchronous_commit = on")
        connection.execute("SET idle_in_transaction_session_timeout = '30s'")
        connection.commit()
        return connection

    def migrations(self, after: int) -> list[tuple[int, list[str]]]:
        return statements(after, integer="BIGINT", real="DOUBLE PRECISION", key=body_key)

    def _migrate(self) -> None:
        with self._connect() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
            connection.execute("CREATE TABLE IF NOT EXISTS migration (number bigint PRIMARY KEY)")
            row = connection.execute("SELECT coalesce(max(number), 0) FROM migration").fetchone()
            version = row[0] if row is not None else 0
            self.check_version(version)
            for number, texts in self.migrations(version):
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
            asked = elapsed()
            try:
                if not connection.execute(
                    f"UPDATE writer SET heartbeat = {CLOCK} WHERE one = 1 AND epoch = %s AND session = %s",
                    (self.epoch, self._session),
                ).rowcount:
                    self._check_epoch(connection)
                    raise StoreError(f"{self.url}: an earlier session of this service has come back late")
                yield connection
                connection.commit()
                self._sure_until = asked + GRACE / 2
            except (psycopg.OperationalError, StoreError):
                connection.close()
                raise
            except BaseException:
                connection.rollback()
                raise

    def _reconnect(self) -> psycopg.Connection[Any]:
        """Open a new session for the same epoch, unless another service has taken over meanwhile."""
        connection = self._connect()
        try:
            self._check_epoch(connection)
            end_session(connection, self._session)  # a transaction of it may wait for the end of a lost connection
            mine = session_of(connection)
            # by the epoch alone: the answer to an earlier call of this method may have been lost
            if not connection.execute(
                f"UPDATE writer SET session = %s, heartbeat = {CLOCK} WHERE one = 1 AND epoch = %s",
                (mine, self.epoch),
            ).rowcount:
                raise self._taken()
            connection.commit()
        except BaseException:
            connection.close()
            raise
        self._session = mine
        return connection

    def _check_epoch(self, connection: psycopg.Connection[Any]) -> None:
        row = connection.execute("SELECT epoch FROM writer WHERE one = 1").fetchone()
        if row is None or row[0] != self.epoch:
            raise self._taken()

    def _taken(self) -> FencedError:
        return FencedError(f"{self.url}: another service has taken over this store")

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.errors.DataCorrupted, psycopg.errors.UniqueViolation, psycopg.ProgrammingError) as error:
            raise StoreBrokenError(f"{self.url}: {one_line(error)}") from error
        except psycopg.Error as error:
            raise StoreError(f"{self.url}: {one_line(error)}") from error


def body_key(name: str) -> str:
    """Return the expression for a value of the body of a submission."""
    return f"(body::json ->> '{name}')"


def elapsed() -> float:
    """Return a time in seconds that also passes while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def session_of(connection: psycopg.Connection[Any]) -> str:
    """Return the name of a connection's session: its process and when that began."""
    row = connection.execute(
        "SELECT pid || ' ' || backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    ).fetchone()
    assert row is not None
    return str(row[0])


def end_session(connection: psycopg.Connection[Any], session: str) -> None:
    """End a session by its name, if it is there; what it has not committed is undone."""
    connection.execute(f"SELECT pg_terminate_backend(pid) {SESSION}", session.split(" ", 1))
    connection.commit()


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

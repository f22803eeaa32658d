"""The store in one SQLite file: WAL, synchronous FULL, one connection that writes and several that read."""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from slotwise.errors import InputError
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

INSERT_JOB = f"INSERT INTO job ({', '.join(Job._fields)}) VALUES ({', '.join('?' * len(Job._fields))})"
ON_LOSS = "json_valid(body) AND json_extract(body, '$.on_loss')"
BUSY_MILLISECONDS = 2000
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT)


class SQLiteStore(Writing):
    """See `Store`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.epoch = 0
        self._batches = 0
        self._lock_file: int | None = None
        self._readers: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._writing = threading.RLock()
        self._closed = False
        if not path.parent.is_dir():
            raise InputError(
                "no such folder", where=str(path.parent), remedy="make it, or name another file with --store"
            )
        existed = path.exists()
        with self._said():
            self._writer = self._connect()
            if not existed:
                os.chmod(path, 0o600)  # commands and environments of jobs are nobody else's business
            with self._said():
                self._migrate()

    # -- writing ------------------------------------------------------------------------------------------------

    def become_writer(self, *, wait: bool = False) -> int:
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            raise BusyError(f"{self.path}: another `slotwise serve` uses this store") from None
        self._lock_file = descriptor
        with self.as_anybody() as connection:
            connection.execute("UPDATE writer SET epoch = epoch + 1, batch = 0, heartbeat = ?", (time.time(),))
            self.epoch = connection.execute("SELECT epoch FROM writer").fetchone()[0]
        return self.epoch

    def commit(self, batch: Batch) -> None:
        again = batch.number is not None
        if batch.number is None:
            self._batches += 1
            batch.number = self._batches
        with self.as_writer() as connection:
            if again and connection.execute("SELECT batch FROM writer").fetchone()[0] >= batch.number:
                return
            connection.execute("UPDATE writer SET batch = ?", (batch.number,))
            connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", batch.entries)
            connection.executemany("INSERT INTO spec VALUES (?, ?, ?)", batch.spec_rows())
            connection.executemany(INSERT_JOB, batch.jobs.values())
            for columns, rows in by_columns(batch.changes):
                connection.executemany(
                    f"UPDATE job SET {', '.join(f'{column} = ?' for column in columns)} WHERE id = ?", rows
                )
            connection.executemany("DELETE FROM server WHERE name = ?", [(name,) for name in batch.servers_gone])
            connection.executemany("INSERT OR REPLACE INTO server VALUES (?, ?, ?, ?)", batch.servers.values())

    def beat(self) -> None:
        """Nobody waits to take over: the lock of a dead process is free at once."""

    def hold(self) -> None:
        if self.ask("SELECT epoch FROM writer")[0][0] != self.epoch:
            raise FencedError(f"{self.path}: another service has taken over this store")

    # -- copies -------------------------------------------------------------------------------------------------

    def dump(self) -> Iterator[tuple[str, list[Any]]]:
        with self._said(), closing(self._connect()) as connection:
            connection.execute("BEGIN")  # one moment for all tables
            for table in TABLES:
                for row in connection.execute(f"SELECT * FROM {table}"):
                    yield table, list(row)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        while not self._readers.empty():
            self._readers.get().close()
        with self._writing:
            self._writer.close()
        if self._lock_file is not None:
            os.close(self._lock_file)

    # -- inside -------------------------------------------------------------------------------------------------

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._said():
            try:
                connection = self._readers.get_nowait()
            except queue.Empty:
                connection = self._connect()
            try:
                return connection.execute(sql, values).fetchall()
            finally:
                if self._closed:
                    connection.close()
                else:
                    self._readers.put(connection)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_MILLISECONDS / 1000
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _migrate(self) -> None:
        version = self._writer.execute("PRAGMA user_version").fetchone()[0]
        self.check_version(version)
        if version == 0 and self._writer.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise StoreBrokenError(f"{self.path}: is a database of another program; name another file with --store")
        for number, texts in statements(version, integer="INTEGER", real="REAL", on_loss=ON_LOSS):
            with self.as_anybody() as connection:
                if connection.execute("PRAGMA user_version").fetchone()[0] >= number:
                    continue  # another process was quicker
                for text in texts:
                    connection.execute(text)
                connection.execute(f"PRAGMA user_version = {number}")

    @contextmanager
    def as_writer(self) -> Iterator[sqlite3.Connection]:
        with self.as_anybody() as connection:
            if connection.execute("SELECT epoch FROM writer").fetchone()[0] != self.epoch:
                raise FencedError(f"{self.path}: another service has taken over this store")
            yield connection

    @contextmanager
    def as_anybody(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; what the file system says against it is a StoreError."""
        with self._writing, self._said():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            primary = None if code is None else code & 0xFF
            kind = StoreBrokenError if primary in BROKEN else StoreError
            raise kind(f"{self.path}: {error}") from error

"""The store in one SQLite file: WAL, synchronous FULL, one connection that writes and several that read."""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
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
    StoreGoneError,
    by_columns,
)
from slotwise.live.store.schema import TABLES, statements
from slotwise.live.store.writing import Writing

log = logging.getLogger(__name__)
INSERT_JOB = f"INSERT INTO job ({', '.join(Job._fields)}) VALUES ({', '.join('?' * len(Job._fields))})"
BUSY_MILLISECONDS = 2000  # to wait for a reader's lock
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT)


class SQLiteStore(Writing):
    """See `Store`."""

    def __init__(self, path: Path) -> None:
        # by its true name: a link to the file must not have a lock and a folder of its own
        self.path = self.file = path = Path(os.path.realpath(path))
        self.url, self.name = f"sqlite:///{path}", path.name
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
        with self._said():
            with suppress(FileExistsError):  # one that is there is not opened: closing it would end locks of SQLite
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            make_private(path)
            self._file = os.stat(path)
            self._writer = self._connect()
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
            connection.executemany("INSERT INTO spec VALUES (?, ?, ?, ?, ?)", batch.spec_rows())
            connection.executemany(INSERT_JOB, batch.jobs.values())
            connection.executemany("INSERT INTO dependency (job, kind, other) VALUES (?, ?, ?)", batch.needs)
            connection.executemany("INSERT INTO attempt VALUES (?, ?, ?, ?, ?, ?)", batch.attempts)
            for columns, rows in by_columns(batch.changes):
                connection.executemany(
                    f"UPDATE job SET {', '.join(f'{column} = ?' for column in columns)} WHERE id = ?", rows
                )
            connection.executemany("DELETE FROM server WHERE name = ?", [(name,) for name in batch.servers_gone])
            connection.executemany("INSERT OR REPLACE INTO server VALUES (?, ?, ?, ?)", batch.servers.values())
            connection.executemany(
                "INSERT OR REPLACE INTO maintenance VALUES (?, ?, ?, ?, ?, ?, ?, ?)", batch.windows.values()
            )
            connection.executemany("INSERT OR REPLACE INTO hook VALUES (?, ?)", batch.hooks.items())

    def beat(self) -> None:
        """Do nothing: no standby waits for a lease, because the lock of a dead process is free at once."""

    def hold(self) -> None:
        self._check_file()
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

    def migrations(self, after: int) -> list[tuple[int, list[str]]]:
        return statements(after, integer="INTEGER", real="REAL", key=body_key)

    def _migrate(self) -> None:
        version = self._writer.execute("PRAGMA user_version").fetchone()[0]
        self.check_version(version)
        if version == 0 and self._writer.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise StoreBrokenError(f"{self.path}: is a database of another program; name another file with --store")
        for number, texts in self.migrations(version):
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
            self._check_file()
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
                self._check_file()
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def _check_file(self) -> None:
        """Raise StoreGoneError if the file that is open is not the one that its name says."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise StoreGoneError(f"{self.path}: the database was deleted; restore a backup") from None
        if (found.st_dev, found.st_ino) != (self._file.st_dev, self._file.st_ino):
            raise StoreGoneError(f"{self.path}: the database was replaced by another one; start the service again")

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"{self.path}: unable to open: {error.strerror}") from error
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            primary = None if code is None else code & 0xFF
            kind = StoreBrokenError if primary in BROKEN else StoreError
            raise kind(f"{self.path}: {error}") from error


def body_key(name: str) -> str:
    """Return the expression for a value of the body of a submission."""
    return f"CASE WHEN json_valid(body) THEN json_extract(body, '$.{name}') END"


def make_private(path: Path) -> None:
    """Let only the owner read a store: it holds commands, environments and hashes of tokens."""
    for suffix in ("", "-wal", "-shm", ".lock"):
        file = Path(f"{path}{suffix}")
        with suppress(FileNotFoundError, PermissionError):  # a store of another user is that user's to protect
            if file.stat().st_mode & 0o077:
                log.warning("%s could be read by other users; it no longer can", file)
                file.chmod(0o600)

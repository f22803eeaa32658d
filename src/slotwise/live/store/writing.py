"""What both databases write in the same words; `?` stands for a value in all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from slotwise.errors import InputError
from slotwise.live.store.reading import StoreQueries
from slotwise.live.store.records import PLANNED, Checkpoint, StoreBrokenError, Token
from slotwise.live.store.schema import NEWEST, TABLES

# Rows of a backup that are loaded together.
PIECE = 1000
HELD = "SELECT coalesce(array_id, id) FROM job WHERE state = 'held'"


class Writing(StoreQueries):
    """Changes in SQL over two kinds of transaction."""

    url: str
    name: str
    file: Path | None = None
    placeholder = "?"

    @abstractmethod
    def as_writer(self) -> AbstractContextManager[Any]:
        """A transaction of the one writer: all or nothing, FencedError where another has taken over."""

    @abstractmethod
    def as_anybody(self) -> AbstractContextManager[Any]:
        """A transaction that needs no writer's right."""

    def words(self, text: str) -> str:
        """A statement in the words of the database."""
        return text.replace("?", self.placeholder)

    def set_home(self, host: str, folder: str) -> None:
        with self.as_writer() as connection:
            connection.execute(self.words("UPDATE identity SET host = ?, folder = ?"), (host, folder))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        with self.as_writer() as connection:
            connection.execute(self.words("DELETE FROM checkpoint WHERE seq = ?"), (checkpoint.seq,))
            connection.execute(self.words("INSERT INTO checkpoint VALUES (?, ?, ?, ?)"), checkpoint)

    def trim(self, *, journal_before: float, jobs_before: float, limit: int) -> int:
        with self.as_writer() as connection:

            def run(text: str, *values: Any) -> Any:
                return connection.execute(self.words(text), values)

            row = run("SELECT max(seq) FROM checkpoint WHERE time < ?", journal_before).fetchone()
            kept_from = -1 if row[0] is None else row[0]
            gone: int = run(
                "DELETE FROM journal WHERE seq IN (SELECT seq FROM journal WHERE seq <= ? ORDER BY seq LIMIT ?)",
                kept_from,
                limit,
            ).rowcount
            run("DELETE FROM checkpoint WHERE seq < ?", kept_from)
            needed = f"SELECT other FROM dependency WHERE job IN ({HELD})"  # held jobs wait for these
            gone += run(
                f"DELETE FROM job WHERE id IN (SELECT id FROM job WHERE ended < ? AND id NOT IN ({needed})"
                f" AND coalesce(array_id, 0) NOT IN ({needed}) ORDER BY id LIMIT ?)",
                jobs_before,
                limit,
            ).rowcount
            run("DELETE FROM attempt WHERE ended < ?", jobs_before)
            run("DELETE FROM maintenance WHERE ends < ? AND state <> ?", jobs_before, PLANNED)
            run("DELETE FROM spec WHERE id < (SELECT coalesce(min(spec), 0) FROM job)")
            run(
                "DELETE FROM dependency WHERE job < (SELECT coalesce(min(id), 9000000000000000) FROM job)"
                " AND NOT EXISTS (SELECT 1 FROM job WHERE array_id = dependency.job)"
            )
            return gone

    def add_token(self, token: Token) -> None:
        with self.as_anybody() as connection:
            connection.execute(self.words("INSERT INTO token VALUES (?, ?, ?, ?, ?, ?)"), token)

    def drop_token(self, token: str) -> bool:
        with self.as_anybody() as connection:
            return bool(connection.execute(self.words("DELETE FROM token WHERE id = ?"), (token,)).rowcount)

    @abstractmethod
    def migrations(self, after: int) -> list[tuple[int, list[str]]]:
        """Return the migrations with higher numbers in the words of the database."""

    def load(self, rows: Iterator[tuple[str, list[Any]]], schema: int = NEWEST) -> int:
        total = 0
        with self.as_writer() as connection:
            for table in TABLES:
                if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
                    raise InputError("is not empty", where=self.url, remedy="restore into a new store")
            for table, values in groupby(rows, key=lambda row: row[0]):
                columns = [one[0] for one in connection.execute(f"SELECT * FROM {table} LIMIT 0").description]
                while piece := [row for _, row in islice(values, PIECE)]:
                    if any(len(row) != len(piece[0]) or len(row) > len(columns) for row in piece):
                        raise InputError(f"has rows of the wrong length for {table}", where="backup")
                    named = columns[
                        : len(piece[0])
                    ]  # migrations add columns at the end; those that are not there get their defaults
                    text = f"INSERT INTO {table} ({', '.join(named)}) VALUES ({', '.join('?' * len(named))})"
                    connection.cursor().executemany(self.words(text), piece)
                    total += len(piece)
            for _, texts in self.migrations(schema):
                for text in texts:
                    if text.startswith("UPDATE"):
                        connection.execute(text)
        return total

    def check_version(self, version: int) -> None:
        """Refuse what a later program has written."""
        if version > NEWEST:
            raise StoreBrokenError(
                f"{self.url}: the store is of version {version}, newer than this program knows ({NEWEST}); upgrade slotwise"
            )

"""What the service asks of a store. Two databases answer it: SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from slotwise.live.store.records import (
    Batch,
    Checkpoint,
    DependencyRow,
    Entry,
    Identity,
    Job,
    LiveJob,
    Member,
    Query,
    Server,
    Token,
    Window,
)


class Store(Protocol):
    """A journal and a read model with one writer.

    `become_writer` gives this process the only right to write, and a new epoch; `commit` makes a batch durable as a whole or
    raises and leaves nothing of it. Everything that reads may be called from any thread.
    """

    url: str
    name: str
    """of the file or database"""
    file: Path | None
    """of a SQLite store"""

    def become_writer(self, *, wait: bool = False) -> int:
        """Take the lock and begin a new epoch; BusyError where another service writes, unless `wait`."""

    def commit(self, batch: Batch) -> None:
        """Make a batch durable, once however often it is called with the same batch: an answer may have been lost.

        Raises FencedError if another writer has taken over since.
        """

    def hold(self) -> None:
        """Return if this process certainly has the writer's right now; raise FencedError if another writer has taken over.

        Called before an answer that no commit has confirmed and before engines are told anything, so it costs next to nothing.
        """

    def beat(self) -> None:
        """Say that this writer is alive, where others wait to take over."""

    def identity(self) -> Identity:
        """Return which store it is. A restored or new store is another one."""

    def set_home(self, host: str, folder: str) -> None:
        """Remember where the engine keeps claims and outputs."""

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a situation."""

    def trim(self, *, journal_before: float, jobs_before: float, limit: int) -> int:
        """Drop what is older than these times: journal rows behind a checkpoint that is itself old enough, and ended jobs, at
        most `limit` of each; the rows dropped."""

    def checkpoints(self) -> list[tuple[int, float, int]]:
        """Sequence, time and epoch of each, oldest first."""

    def checkpoint(self, seq: int | None = None) -> Checkpoint | None:
        """The newest, or the one at this row."""

    def entries(self, after: int, *, limit: int = 1000) -> list[Entry]:
        """Journal rows after this one, in order."""

    def last_entry(self) -> Entry | None:
        """The newest row."""

    def first_seq(self) -> int | None:
        """The oldest row that is kept."""

    def job(self, job: int) -> Job | None:
        """One job."""

    def job_by_key(self, tenant: str, key: str) -> Job | None:
        """The job that was submitted with this idempotency key."""

    def jobs(self, query: Query) -> list[Job]:
        """A page of jobs."""

    def live(self) -> list[LiveJob]:
        """All jobs that are placed or run."""

    def held(self) -> list[tuple[Job, str]]:
        """Held jobs, with what they execute, by number."""

    def retrying(self) -> list[tuple[Job, str]]:
        """Jobs that have not ended and are executed again if they fail, with what they execute."""

    def members(self, other: int, indices: Sequence[int] = ()) -> list[Member]:
        """The job of this number, or all jobs of this array; with indices, only those jobs of the array."""

    def needs(self, *, of: Sequence[int] = (), on: Sequence[int] = ()) -> list[DependencyRow]:
        """Dependencies of these jobs and arrays, and dependencies on these."""

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""

    def counts_of(self, query: Query) -> dict[str, int]:
        """How many of these jobs there are in each state; limit and order do not matter."""

    def jobs_by_server(self) -> dict[str, int]:
        """How many jobs are placed or run on each server that has any."""

    def jobs_by_tenant(self) -> list[tuple[str, int, int]]:
        """Tenants with jobs that have not ended: name, waiting, placed or running."""

    def oldest_waiting(self, tenant: str | None = None) -> dict[str, tuple[int, float]]:
        """By type: how many jobs wait, and when the oldest was submitted; of one tenant, or of all."""

    def waiting_of(self, tenant: str) -> int:
        """How many jobs of a tenant wait or are held."""

    def specs(self, jobs: Sequence[int]) -> dict[int, tuple[Job, str]]:
        """Jobs with what they execute."""

    def servers(self) -> list[Server]:
        """All servers, by name."""

    def windows(self) -> list[Window]:
        """All maintenance windows that are kept, by number."""

    def hook_states(self) -> dict[str, str]:
        """How far each hook has come, as JSON."""

    def next_ids(self) -> tuple[int, int]:
        """The lowest job and spec numbers above all that were given."""

    def tokens(self) -> list[Token]:
        """All tokens."""

    def add_token(self, token: Token) -> None:
        """A new token; this needs no writer's right."""

    def drop_token(self, token: str) -> bool:
        """Take a token back; False where there is none of this name."""

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a SELECT with `?` for values; see `slotwise.live.store.history`."""

    def dump(self) -> Iterator[tuple[str, list[Any]]]:
        """All rows as (table, values) of one moment, for a backup."""

    def load(self, rows: Iterator[tuple[str, list[Any]]], schema: int) -> int:
        """Fill an empty store from a backup that was made with this version of the schema."""

    def close(self) -> None:
        """Let go of the lock and the connections."""

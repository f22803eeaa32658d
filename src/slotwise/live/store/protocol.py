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
        """Return the newest checkpoint, or the one at a row."""

    def entries(self, after: int, *, limit: int = 1000) -> list[Entry]:
        """Journal rows after this one, in order."""

    def last_entry(self) -> Entry | None:
        """Return the newest row."""

    def first_seq(self) -> int | None:
        """Return the number of the oldest row that is kept."""

    def job(self, job: int) -> Job | None:
        """Return a job; None if there is none."""

    def job_by_key(self, tenant: str, key: str) -> Job | None:
        """Return the job that was submitted with an idempotency key."""

    def jobs(self, query: Query) -> list[Job]:
        """Return a page of jobs."""

    def live(self) -> list[LiveJob]:
        """Return all jobs that are placed or run."""

    def held(self) -> list[tuple[Job, str]]:
        """Held jobs, with what they execute, by number."""

    def retrying(self) -> list[tuple[Job, str]]:
        """Return the jobs that have not ended and are executed again if they fail, with what they execute."""

    def members(self, other: int, indices: Sequence[int] = ()) -> list[Member]:
        """Return the job of a number, or all jobs of an array; with indices, only those jobs of the array."""

    def needs(self, *, of: Sequence[int] = (), on: Sequence[int] = ()) -> list[DependencyRow]:
        """Dependencies of these jobs and arrays, and dependencies on these."""

    def counts(self) -> dict[str, int]:
        """Count jobs by state."""

    def counts_of(self, query: Query) -> dict[str, int]:
        """Count the jobs that meet a query by state. Limit and order do not matter."""

    def jobs_by_server(self) -> dict[str, int]:
        """Count the jobs that are placed or run by server; servers without jobs are left out."""

    def jobs_by_tenant(self) -> list[tuple[str, int, int]]:
        """Tenants with jobs that have not ended: name, waiting, placed or running."""

    def oldest_waiting(self, tenant: str | None = None) -> dict[str, tuple[int, float]]:
        """By type: how many jobs wait, and when the oldest was submitted; of one tenant, or of all."""

    def waiting_of(self, tenant: str) -> int:
        """Count the jobs of a tenant that wait or are held."""

    def specs(self, jobs: Sequence[int]) -> dict[int, tuple[Job, str]]:
        """Return jobs with what they execute."""

    def servers(self) -> list[Server]:
        """Return all servers by name."""

    def windows(self) -> list[Window]:
        """Return all maintenance windows that are kept, by number."""

    def hook_states(self) -> dict[str, str]:
        """Return how far each hook has come, as JSON."""

    def next_ids(self) -> tuple[int, int]:
        """Return the lowest job and spec numbers above all that were given."""

    def tokens(self) -> list[Token]:
        """Return all tokens."""

    def add_token(self, token: Token) -> None:
        """Add a token. This needs no right to write."""

    def drop_token(self, token: str) -> bool:
        """Take a token back; False where there is none of this name."""

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT with `?` for values; see `slotwise.live.store.history`."""

    def dump(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield all rows of one moment as (table, values), for a backup."""

    def load(self, rows: Iterator[tuple[str, list[Any]]], schema: int) -> int:
        """Fill an empty store from a backup that was made with this version of the schema."""

    def close(self) -> None:
        """Let go of the lock and the connections."""

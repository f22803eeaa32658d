"""The questions both databases answer in the same words; `?` stands for a value in all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from slotwise.live.store.records import (
    ORDERS,
    PLACED,
    RUNNING,
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

JOB = ", ".join(Job._fields)
MEMBER = ", ".join(Member._fields)
# Values in one IN (...).
PIECE = 500


def marks(values: Sequence[Any]) -> str:
    """Return so many `?` with commas."""
    return ", ".join("?" * len(values))


def literal(text: str) -> str:
    """A text in which LIKE ... ESCAPE '!' finds nothing but itself."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def conditions_of(query: Query) -> tuple[str, list[Any]]:
    """Return the WHERE of a query, with its values."""
    conditions: list[str] = []
    values: list[Any] = []
    for column in ("tenant", "type", "server", "array_id", "name"):
        value = getattr(query, column)
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    for column, several in (("state", query.states), ("id", query.ids)):
        if several:
            conditions.append(f"{column} IN ({', '.join('?' * len(several))})")
            values += several
    if query.search:
        number = int(query.search) if query.search.isdecimal() and len(query.search) < 16 else -1
        conditions.append("(lower(name) LIKE ? ESCAPE '!' OR id = ?)")
        values += [f"%{literal(query.search.lower())}%", number]
    if query.since is not None:
        conditions.append("submitted >= ?")
        values.append(query.since)
    if query.after is not None and query.order == "id":
        conditions.append("id > ?" if query.ascending else "id < ?")
        values.append(query.after)
    return f"WHERE {' AND '.join(conditions)}" if conditions else "", values


class StoreQueries(ABC):
    """Questions in SQL over one method that asks them."""

    @abstractmethod
    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a SELECT, on a connection of its own."""

    def identity(self) -> Identity:
        return Identity(*self.ask("SELECT identity, host, folder FROM identity")[0])

    def checkpoints(self) -> list[tuple[int, float, int]]:
        return [
            (row[0], row[1], row[2]) for row in self.ask("SELECT seq, time, epoch FROM checkpoint ORDER BY seq")
        ]

    def checkpoint(self, seq: int | None = None) -> Checkpoint | None:
        which, values = ("WHERE seq = ?", (seq,)) if seq is not None else ("ORDER BY seq DESC LIMIT 1", ())
        rows = self.ask(f"SELECT seq, time, epoch, body FROM checkpoint {which}", values)
        return Checkpoint(*rows[0]) if rows else None

    def entries(self, after: int, *, limit: int = 1000) -> list[Entry]:
        rows = self.ask(
            "SELECT seq, time, event, placements, note FROM journal WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, limit),
        )
        return [Entry(*row) for row in rows]

    def last_entry(self) -> Entry | None:
        rows = self.ask("SELECT seq, time, event, placements, note FROM journal ORDER BY seq DESC LIMIT 1")
        return Entry(*rows[0]) if rows else None

    def first_seq(self) -> int | None:
        first = self.ask("SELECT min(seq) FROM journal")[0][0]
        return None if first is None else int(first)

    def job(self, job: int) -> Job | None:
        rows = self.ask(f"SELECT {JOB} FROM job WHERE id = ?", (job,))
        return Job(*rows[0]) if rows else None

    def job_by_key(self, tenant: str, key: str) -> Job | None:
        rows = self.ask(f"SELECT {JOB} FROM job WHERE tenant = ? AND key = ?", (tenant, key))
        return Job(*rows[0]) if rows else None

    def jobs(self, query: Query) -> list[Job]:
        where, values = conditions_of(query)
        direction = "ASC" if query.ascending else "DESC"
        if query.order == "id":
            order, page = f"id {direction}", "LIMIT ?"
            numbers: tuple[int, ...] = (query.limit,)
        else:  # jobs without a value come last
            assert query.order in ORDERS
            order = f"{query.order} IS NULL, {query.order} {direction}, id {direction}"
            page, numbers = "LIMIT ? OFFSET ?", (query.limit, query.skip)
        rows = self.ask(f"SELECT {JOB} FROM job {where} ORDER BY {order} {page}", (*values, *numbers))
        return [Job(*row) for row in rows]

    def counts_of(self, query: Query) -> dict[str, int]:
        where, values = conditions_of(query)
        rows = self.ask(f"SELECT state, count(*) FROM job {where} GROUP BY state", values)
        return {row[0]: row[1] for row in rows}

    def live(self) -> list[LiveJob]:
        found: list[LiveJob] = []
        for state in (PLACED, RUNNING):  # one by one, as the index has them in order
            rows = self.ask(
                "SELECT job.id, server, attempt, placed, state, stop_asked, on_loss FROM job"
                " JOIN spec ON spec.id = job.spec WHERE state = ? ORDER BY job.id",
                (state,),
            )
            found += [LiveJob(*row)._replace(stop_asked=bool(row[5])) for row in rows]
        return found

    def held(self) -> list[tuple[Job, str]]:
        return self._with_bodies("state = 'held'")

    def retrying(self) -> list[tuple[Job, str]]:
        return self._with_bodies("ended IS NULL AND body LIKE ?", '%"retry":%')

    def _with_bodies(self, condition: str, *values: Any) -> list[tuple[Job, str]]:
        columns = ", ".join(f"job.{name}" for name in Job._fields)
        rows = self.ask(
            f"SELECT {columns}, body FROM job JOIN spec ON spec.id = job.spec WHERE {condition} ORDER BY job.id",
            values,
        )
        return [(Job(*row[:-1]), row[-1]) for row in rows]

    def members(self, other: int, indices: Sequence[int] = ()) -> list[Member]:
        if not indices:
            rows = self.ask(f"SELECT {MEMBER} FROM job WHERE id = ? OR array_id = ?", (other, other))
        else:
            rows = []
            for at in range(0, len(indices), PIECE):
                piece = indices[at : at + PIECE]
                rows += self.ask(
                    f"SELECT {MEMBER} FROM job WHERE array_id = ? AND array_index IN ({marks(piece)})",
                    (other, *piece),
                )
        return [Member(*row) for row in rows]

    def needs(self, *, of: Sequence[int] = (), on: Sequence[int] = ()) -> list[DependencyRow]:
        found: list[DependencyRow] = []
        for column, numbers in (("job", of), ("other", on)):
            for at in range(0, len(numbers), PIECE):
                piece = numbers[at : at + PIECE]
                rows = self.ask(
                    f"SELECT job, kind, other FROM dependency WHERE {column} IN ({marks(piece)})", piece
                )
                found += [DependencyRow(*row) for row in rows]
        return found

    def counts(self) -> dict[str, int]:
        return {row[0]: row[1] for row in self.ask("SELECT state, count(*) FROM job GROUP BY state")}

    def jobs_by_server(self) -> dict[str, int]:
        rows = self.ask("SELECT server, count(*) FROM job WHERE state IN ('placed', 'running') GROUP BY server")
        return {row[0]: int(row[1]) for row in rows}

    def jobs_by_tenant(self) -> list[tuple[str, int, int]]:
        rows = self.ask(
            "SELECT tenant, sum(CASE WHEN state IN ('held', 'waiting') THEN 1 ELSE 0 END), count(*) FROM job"
            " WHERE state IN ('held', 'waiting', 'placed', 'running') GROUP BY tenant ORDER BY tenant"
        )
        return [(row[0], int(row[1]), int(row[2]) - int(row[1])) for row in rows]

    def oldest_waiting(self, tenant: str | None = None) -> dict[str, tuple[int, float]]:
        which, values = ("AND tenant = ?", (tenant,)) if tenant is not None else ("", ())
        rows = self.ask(
            f"SELECT type, count(*), min(submitted) FROM job WHERE state = 'waiting' {which} GROUP BY type", values
        )
        return {row[0]: (int(row[1]), float(row[2])) for row in rows}

    def waiting_of(self, tenant: str) -> int:
        rows = self.ask("SELECT count(*) FROM job WHERE tenant = ? AND state IN ('held', 'waiting')", (tenant,))
        return int(rows[0][0])

    def specs(self, jobs: Sequence[int]) -> dict[int, tuple[Job, str]]:
        found: dict[int, tuple[Job, str]] = {}
        columns = ", ".join(f"job.{name}" for name in Job._fields)
        for at in range(0, len(jobs), PIECE):
            piece = jobs[at : at + PIECE]
            rows = self.ask(
                f"SELECT {columns}, body FROM job JOIN spec ON spec.id = job.spec"
                f" WHERE job.id IN ({', '.join('?' * len(piece))})",
                piece,
            )
            found.update((row[0], (Job(*row[:-1]), row[-1])) for row in rows)
        return found

    def servers(self) -> list[Server]:
        return [
            Server(*row) for row in self.ask("SELECT name, server_class, status, reason FROM server ORDER BY name")
        ]

    def windows(self) -> list[Window]:
        columns = "id, server, begins, ends, reason, assumed, state, tenant"
        rows = self.ask(f"SELECT {columns} FROM maintenance ORDER BY id")
        return [Window(*row) for row in rows]

    def hook_states(self) -> dict[str, str]:
        return dict(self.ask("SELECT name, state FROM hook"))

    def next_ids(self) -> tuple[int, int]:
        return tuple((self.ask(f"SELECT max(id) FROM {table}")[0][0] or 0) + 1 for table in ("job", "spec"))  # type: ignore[return-value]

    def tokens(self) -> list[Token]:
        return [
            Token(*row)
            for row in self.ask("SELECT id, role, tenant, digest, created, account FROM token ORDER BY created, id")
        ]

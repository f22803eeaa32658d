"""What the store keeps, as plain values: journal rows, jobs, servers, checkpoints and tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slotwise.errors import SlotwiseError

HELD, WAITING, PLACED, RUNNING = "held", "waiting", "placed", "running"
DONE, FAILED, CANCELLED, LOST = "done", "failed", "cancelled", "lost"
STATES = (HELD, WAITING, PLACED, RUNNING, DONE, FAILED, CANCELLED, LOST)
ENDED = (DONE, FAILED, CANCELLED, LOST)


class StoreError(SlotwiseError):
    """The store could not do it now; it may be tried again when the cause is gone (full disk, lost connection)."""


class StoreBrokenError(StoreError):
    """The store is damaged, or not ours: trying again does not help."""


class StoreGoneError(StoreBrokenError):
    """The database was deleted or replaced while it was used: what is written to it is not kept."""


class FencedError(StoreError):
    """Another service has become the writer of this store: this one may not write any more."""


class BusyError(StoreError):
    """Another service writes to this store."""


class Entry(NamedTuple):
    """A row of the journal: what happened and what was decided, in the order in which it was decided."""

    seq: int
    time: float
    event: str
    """JSON: an event of the core, or one of the service's own (held, dropped, started, stop-asked, change, epoch)"""
    placements: str
    """JSON: [[job, server, attempt], ...]"""
    note: str | None
    """JSON: what the service knows and the core does not ask for, such as exit codes"""


class Job(NamedTuple):
    """A job as the read model keeps it."""

    id: int
    tenant: str
    type: str
    name: str
    state: str
    server: str | None
    attempt: int
    exit_code: int | None
    reason: str | None
    stop_asked: int
    submitted: float
    placed: float | None
    started: float | None
    ended: float | None
    array_id: int | None
    array_index: int | None
    key: str | None
    spec: int
    retries: int = 0
    """how often it was executed again because it had failed"""
    due: float | None = None
    """of a job that is held until its next attempt: when the back-off is over"""
    ready: float | None = None
    """when the job last began to wait in a queue, if that was not at its submission: it was held, or was taken back from a server"""


class Member(NamedTuple):
    """What must be known of a job that other jobs wait for."""

    id: int
    tenant: str
    state: str
    array_id: int | None
    array_index: int | None


class DependencyRow(NamedTuple):
    """A row of the table `dependency`: a job, or all jobs of the array of this number, are executed after another job or array."""

    job: int
    kind: str
    """see `slotwise.live.dependencies`"""
    other: int


class Attempt(NamedTuple):
    """An attempt that was not the last one of its job: the job was executed again. The row of the job has the last attempt."""

    job: int
    number: int
    server: str
    placed: float
    ended: float
    exit_code: int | None
    """None: the attempt did not end by itself; its server was lost, or its engine refused it"""


class LiveJob(NamedTuple):
    """What a restart must know of a job that is placed or runs."""

    id: int
    server: str
    attempt: int
    placed: float
    state: str
    stop_asked: bool
    on_loss: str
    """`fail` or `requeue`: what becomes of the job if its server is lost"""


AT = {name: i for i, name in enumerate(Job._fields)}


class Server(NamedTuple):
    """A server as the read model keeps it."""

    name: str
    server_class: str
    status: str
    """up, draining, or lost (a failed server that its engine may bring back)"""
    reason: str | None


class Token(NamedTuple):
    """Who may do what; only a hash of the secret is kept."""

    id: str
    role: str
    tenant: str
    digest: str
    created: float
    user: str | None = None
    """the account that executes the jobs of its holder, where the service may change users"""


class Identity(NamedTuple):
    """Which store it is, and where its engine keeps claims and outputs."""

    identity: str
    host: str
    """JSON: see `slotwise.live.home.this_machine`; empty where no service has begun yet"""
    folder: str


class Checkpoint(NamedTuple):
    """A situation: what the core was after the journal row `seq`."""

    seq: int
    time: float
    epoch: int
    body: str
    """JSON: {"situation": ..., "next_job": ..., "next_spec": ...}"""


ORDERS = ("id", "submitted", "started", "ended", "name", "state")


class Query(NamedTuple):
    """Which jobs to list: all conditions hold; newest first, or oldest first with `ascending`."""

    states: tuple[str, ...] = ()
    tenant: str | None = None
    type: str | None = None
    server: str | None = None
    array_id: int | None = None
    name: str | None = None
    ids: tuple[int, ...] = ()
    after: int | None = None
    """a cursor: the last job of the page before"""
    limit: int = 100
    ascending: bool = False
    since: float | None = None
    """submitted at this time or later"""
    order: str = "id"
    """the column to sort by: one of ORDERS; with another one than id, pages are counted by `skip`, and `after` is not used"""
    skip: int = 0
    search: str | None = None
    """a part of the name, in any case of letters; a number also finds the job of this number"""


PLANNED, OVER = "planned", "over"
ASSUMED = 86_400.0  # seconds that a job is expected to take of which nothing is known


class Window(NamedTuple):
    """A window: a time in which a server takes no jobs, or only those of one tenant."""

    id: int
    server: str
    begin: float
    until: float
    reason: str
    assumed: float = ASSUMED
    """seconds that a job is expected to take of which nothing is known"""
    state: str = PLANNED
    """planned, over or cancelled"""
    tenant: str = ""
    """for whom the server is reserved; empty: for maintenance"""


@dataclass
class Batch:
    """Everything that one transaction writes. Changes to a job that is new in the batch go into its row."""

    entries: list[Entry] = field(default_factory=list)
    specs: list[tuple[int, str]] = field(default_factory=list)
    jobs: dict[int, list[Any]] = field(default_factory=dict)
    demands: dict[int, str] = field(default_factory=dict)
    """JSON: by spec, what one of its jobs is charged of each resource"""
    needs: list[DependencyRow] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    changes: dict[int, dict[str, Any]] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    servers_gone: set[str] = field(default_factory=set)
    windows: dict[int, Window] = field(default_factory=dict)
    hooks: dict[str, str] = field(default_factory=dict)
    """JSON: the state of each hook that has moved"""
    number: int | None = None
    """set by the store's first `commit`: a later one of the same batch sees whether the first has come through"""

    def spec_rows(self) -> list[tuple[int, str, str, str | None, str | None]]:
        """Return the rows of the spec table: number, body, whether a lost job is executed again, the account, the demand."""
        rows = []
        for number, body in self.specs:
            spec = json.loads(body)
            rows.append((number, body, spec.get("on_loss", "fail"), spec.get("user"), self.demands.get(number)))
        return rows

    def __bool__(self) -> bool:
        return bool(self.entries or self.changes or self.jobs or self.servers or self.servers_gone or self.hooks)

    def add_job(self, job: Job) -> None:
        """A new job."""
        self.jobs[job.id] = list(job)

    def change(self, job: int, **columns: Any) -> None:
        """Columns of a job that have new values."""
        row = self.jobs.get(job)
        if row is None:
            self.changes.setdefault(job, {}).update(columns)
        else:
            for name, value in columns.items():
                row[AT[name]] = value

    def put_server(self, server: Server) -> None:
        """A server that is new or has changed."""
        self.servers[server.name] = server
        self.servers_gone.discard(server.name)

    def drop_server(self, name: str) -> None:
        """A server that has left."""
        self.servers.pop(name, None)
        self.servers_gone.add(name)


def by_columns(changes: dict[int, dict[str, Any]]) -> Iterable[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Changes of the same columns together, each as (values..., job)."""
    groups: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for job, columns in changes.items():
        groups.setdefault(tuple(columns), []).append((*columns.values(), job))
    return groups.items()

"""What the service asks of an engine: the thing that really executes jobs on servers.

An engine is told to start an attempt of a job on a server, and tells facts. It may be told the same start twice (after a
restart, or when an answer was lost) and must not execute it twice. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable


class Start(NamedTuple):
    """Execute this attempt of a job on this server."""

    job: int
    attempt: int
    server: str
    spec: Mapping[str, Any]
    """argv, env, cwd and so on: see `slotwise.live.spec`"""
    demand: Mapping[str, float]
    """what it may use of each resource"""


class Started(NamedTuple):
    """An attempt runs."""

    job: int
    attempt: int
    at: float


class Ended(NamedTuple):
    """An attempt has ended, by itself or because it was stopped."""

    job: int
    attempt: int
    exit_code: int
    """as of a process: minus the signal's number where it was killed by one"""
    at: float
    reason: str = ""
    started: float | None = None
    """where the engine knows it: then a short job's start need not be told before"""
    by_user: bool = False
    """its user has ended it without telling us: in Slurm itself, for instance"""
    over_time: bool = False
    """its time limit has ended it: it has failed, whatever its exit code is"""


class Refused(NamedTuple):
    """An attempt was not started and will not be: the job goes back to its queue."""

    job: int
    attempt: int
    reason: str


class Lost(NamedTuple):
    """An attempt was started, or may have been, and how it ended cannot be known any more."""

    job: int
    attempt: int
    reason: str


@dataclass(frozen=True)
class ServerUp:
    """A server is there and can take jobs."""

    name: str
    capacity: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)
    server_class: str = ""
    """where the engine knows it; otherwise servers of the same capacity and labels are one class"""


@dataclass(frozen=True)
class ServerDrained:
    """A server shall take no more jobs; those on it go on."""

    name: str
    reason: str


@dataclass(frozen=True)
class ServerLost:
    """A server is gone, with what ran on it."""

    name: str
    reason: str


@dataclass(frozen=True)
class ServersChanged:
    """Known servers have another capacity or other labels now. Jobs on them go on."""

    servers: tuple[ServerUp, ...]


@dataclass(frozen=True)
class ServerRemoved:
    """A server without jobs is gone for good: it is forgotten."""

    name: str


@dataclass(frozen=True)
class Deposed:
    """Another service has taken over the engine: this one must end."""

    reason: str


@dataclass(frozen=True)
class Arrived:
    """A job that a user gave to the engine itself (a held job in Slurm) and that shall be scheduled here."""

    key: str
    """the engine's name for it; the same job may be told again"""
    spec: Mapping[str, Any]
    again: bool = False
    """the job waits in the engine for certain: if a job with its key has ended here, it is submitted anew"""


@dataclass(frozen=True)
class Withdrawn:
    """Such a job was taken back by its user before it was placed."""

    key: str
    tenant: str = ""
    """as in the spec that told its arrival; "": the engine's name"""


Fact = (
    Started
    | Ended
    | Refused
    | Lost
    | ServerUp
    | ServerDrained
    | ServerLost
    | ServersChanged
    | ServerRemoved
    | Deposed
    | Arrived
    | Withdrawn
)
Tell = Callable[[Sequence[Fact]], None]
Attempt = tuple[int, int]


class UnknownAttempt(NamedTuple):
    """The engine has never heard of the attempt."""


Known = UnknownAttempt | Started | Ended | Lost


@runtime_checkable
class Attached(Protocol):
    """An engine whose jobs come from its own users: it needs to know what the service counts, and tells its users why jobs wait."""

    refuses: Mapping[str, str]
    """requests of users that the engine cannot carry out ("submit", "cancel", "stop"), each with what to do instead"""

    def attach(self, resources: Sequence[str], why: Callable[[str, str], Future[str | None]]) -> None:
        """Take the resources of the cluster, and what explains why the job with this tenant and key waits."""


class Engine(Protocol):
    """See the modules beside this one: `simulated`, `local`, `slurm`."""

    name: str

    def open(self, tell: Tell, epoch: int) -> None:
        """Begin. From now on `tell` is called with facts, from any thread; it does not block for long. The epoch grows with each service on a
        store: what one of an older epoch wants, because it hung and has woken up, must not be done any more."""

    def servers(self) -> list[ServerUp]:
        """Return the servers that are there now."""

    def start(self, starts: Sequence[Start]) -> None:
        """Execute attempts, at most once each; returns without waiting for them. What it cannot do now it tries again."""

    def stop(self, job: int, attempt: int) -> None:
        """End an attempt because its user wants it; the end is told as `Ended`."""

    def known(self, attempts: Sequence[tuple[int, int, str]]) -> dict[Attempt, Known]:
        """After a restart, before anything is started: what is known of these (job, attempt, server). These are all that may have been started
        before, so it is also asked where there are none."""

    def settled(self, attempts: Sequence[Attempt]) -> None:
        """Their ends are written down: the engine may forget them."""

    def output(self, job: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int] | None:
        """Return a piece of what an attempt wrote, from an offset on, and the offset after it; None if nothing is kept."""

    def close(self) -> None:
        """Let go; jobs go on."""


@runtime_checkable
class Machines(Protocol):
    """An engine whose jobs are virtual machines, not commands."""

    def console(self, job: int, attempt: int) -> tuple[str, str] | None:
        """Return the connection URI and the domain's name of an attempt that runs; None if it does not."""


@runtime_checkable
class Troubled(Protocol):
    """An engine that knows of trouble which neither servers nor jobs show."""

    def troubles(self) -> list[str]:
        """Return what is wrong now, one line each; called from any thread."""


@runtime_checkable
class Configurable(Protocol):
    """An engine whose servers come from a cluster file; other engines find theirs."""

    def set_servers(self, servers: Sequence[ServerUp]) -> None:
        """Take these servers from now on; attempts that run go on."""

"""What can happen to a scheduler, and what comes of it: plain values, one vocabulary for programs, journals, replays and tests.

Every event has `now`, the time at which it happens; `Scheduler.apply(event)` gives its `Outcome`. `as_dict` and `from_dict` turn events
into what JSON can hold and back.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from slotwise.errors import InputError

Amount = float | Decimal | str


class Submit(NamedTuple):
    """A job arrives. `demand` is what it requests, if that is less than its type's demand. `duration` is its expected duration, which clairvoyant
    policies need. `attempts` counts earlier placements of the job that have ended."""

    job: Hashable
    type: str
    now: float
    demand: Mapping[str, Amount] | None = None
    duration: float | None = None
    attempts: int | None = None


class Complete(NamedTuple):
    """A running job has ended. If it was placed more than once, `attempt` says which placement has ended."""

    job: Hashable
    now: float
    attempt: int | None = None


class Stop(NamedTuple):
    """A running job was stopped as its user wished. It leaves its server. Policies do not learn from it how long jobs run."""

    job: Hashable
    now: float
    attempt: int | None = None


class Requeue(NamedTuple):
    """A placement could not be carried out. The job waits again, in its old place in the queue."""

    job: Hashable
    now: float
    attempt: int | None = None


class Cancel(NamedTuple):
    """A waiting job is cancelled."""

    job: Hashable
    now: float


class Join(NamedTuple):
    """An empty server of a class joins: a new one, or one that failed, or was drained."""

    server: Hashable
    server_class: str
    now: float


class Resume(NamedTuple):
    """A draining server takes jobs again, whatever it holds."""

    server: Hashable
    now: float


class Drain(NamedTuple):
    """The server takes no more jobs. Its jobs run to their end."""

    server: Hashable
    now: float


class Remove(NamedTuple):
    """A server that holds no jobs is removed. Its number may be given to another server."""

    server: Hashable
    now: float


class Fail(NamedTuple):
    """The server is lost. Its jobs wait again, in their old places in the queues. It keeps its number until it joins again or is removed."""

    server: Hashable
    now: float


class Tick(NamedTuple):
    """The policy's own clock has rung."""

    now: float


Event = Submit | Complete | Stop | Requeue | Cancel | Join | Resume | Drain | Remove | Fail | Tick


class Placement(NamedTuple):
    """Start this job on this server. `attempt` counts the placements of the job, from 1."""

    job: Hashable
    server: Hashable
    attempt: int


class Outcome(NamedTuple):
    """The outcome of an event. If the policy did something wrong (`fault`), the placements were decided before and are valid."""

    placements: tuple[Placement, ...] = ()
    requeued: tuple[Hashable, ...] = ()
    """jobs that lost their server, from old to young; they wait again, or are among the placements"""
    fault: Exception | None = None


class StaleReportError(InputError):
    """A report about an earlier attempt of a job says nothing about the present one."""


KINDS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind
    for kind in (Submit, Complete, Stop, Requeue, Cancel, Join, Resume, Drain, Remove, Fail, Tick)
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def as_dict(event: Event) -> dict[str, Any]:
    """Return {"event": "submit", "job": ..., ...}. Leave out None. Amounts are strings, which are exact."""
    values = {"event": _NAMES[type(event)]} | {k: v for k, v in event._asdict().items() if v is not None}
    if isinstance(event, Submit) and event.demand is not None:
        values["demand"] = {resource: str(amount) for resource, amount in event.demand.items()}
    return values


def from_dict(values: Mapping[str, Any]) -> Event:
    """Return the event from which `as_dict` made these values."""
    kind = KINDS.get(str(values.get("event")))
    if kind is None:
        raise InputError(
            f"no event is called {values.get('event')!r}", where="event", remedy=f"use one of: {', '.join(KINDS)}"
        )
    fields = {name: value for name, value in values.items() if name != "event"}
    where = f"event {values['event']}"
    for name in fields:
        if name not in kind._fields:
            raise InputError(f"unknown key {name!r}", where=where, remedy=f"it has: {', '.join(kind._fields)}")
    for name in kind._fields:
        if name not in fields and name not in kind._field_defaults:
            raise InputError(f"has no {name}", where=where, remedy=f"it has: {', '.join(kind._fields)}")
    event: Event = kind(**fields)
    return event

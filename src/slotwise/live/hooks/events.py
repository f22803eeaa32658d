"""What hooks are told of: events, made of rows of the journal.

The identity of an event comes from the position of its row, so an event that is delivered twice has the same identity both times.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from slotwise.live.api.models import view
from slotwise.live.spec import plain
from slotwise.live.store.history import SCANNED, about
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Entry

# Each event, with the rows of the journal that may tell of it.
EVENTS: dict[str, tuple[str, ...]] = {
    "job.started": ("started",),
    "job.done": ("complete",),
    "job.failed": ("complete", "dropped"),
    "job.retried": ("complete",),
    "job.cancelled": ("stop", "cancel", "dropped"),
    "job.lost": ("stop",),
    "job.requeued": ("requeue",),
    "server.up": ("join", "resume"),
    "server.drained": ("drain",),
    "server.lost": ("fail",),
    "server.removed": ("remove",),
    "cluster.changed": ("change",),
    "policy.failed": (),
}
FAULT = '%"fault":%'
SERVER_EVENTS = {name: event for event, rows in EVENTS.items() if event.startswith("server.") for name in rows}
TEST = "test"  # the event that `slotwise hooks --test` sends


class Event(NamedTuple):
    """Something that happened."""

    name: str
    seq: int
    time: float
    job: int | None
    about: dict[str, Any]
    """what the row itself says: reason, exit code, server"""

    def identity(self, store: str) -> str:
        """Return what is the same whenever this event is delivered. `store` is the identity of the store."""
        return f"{store[:12]}-{self.seq}-{self.name}"


def of_entry(entry: Entry) -> list[Event]:
    """Return the events of a row."""
    row = json.loads(entry.event)
    note = {} if entry.note is None else json.loads(entry.note)
    told = {**row, **note}
    name = name_of(row["event"], told)
    found = []
    if name is not None:
        kept = ("server", "attempt", "exit_code", "reason", "retry", "due", "policy")
        what = {key: told[key] for key in kept if told.get(key) is not None}
        found.append(Event(name, entry.seq, entry.time, told.get("job"), what))
    if "fault" in note:
        found.append(Event("policy.failed", entry.seq, entry.time, None, {"reason": note["fault"]}))
    return found


def name_of(kind: str, told: dict[str, Any]) -> str | None:
    """Return the event that a row of a kind tells, with its note; None: none."""
    if kind in SERVER_EVENTS:
        return SERVER_EVENTS[kind]
    if kind == "started":
        return "job.started"
    if kind == "requeue":
        return "job.requeued"
    if kind == "cancel":
        return None if "held" in told else "job.cancelled"
    if kind == "change":
        return None if "place" in told else "cluster.changed"
    if kind not in ("complete", "stop", "dropped"):
        return None
    return "job.retried" if "retry" in told else f"job.{told['state']}" if "state" in told else None


def search(store: Store, names: Collection[str], after: int, limit: int) -> tuple[list[Entry], int]:
    """Return the first rows after one that may tell of these events, and the row up to which all are found.

    One search reads a bounded part of the journal.
    """
    rows = store.ask("SELECT max(seq) FROM journal")
    last = min(int(rows[0][0] or 0), after + SCANNED)
    kinds = sorted({row for name in names for row in EVENTS[name]})
    conditions, values = [], list[str]()
    if kinds:
        wanted = about(*kinds)
        conditions.append(wanted.condition)
        values += wanted.values
    if "policy.failed" in names:
        conditions.append("note LIKE ?")
        values.append(FAULT)
    found = store.ask(
        "SELECT seq, time, event, placements, note FROM journal WHERE seq > ? AND seq <= ?"
        f" AND ({' OR '.join(conditions)}) ORDER BY seq LIMIT ?",
        [after, last, *values, limit],
    )
    entries = [Entry(*row) for row in found]
    return entries, entries[-1].seq if len(entries) == limit else max(last, after)


def body_of(event: Event, store: Store, identity: str, tenant: str | None) -> bytes | None:
    """Return the JSON that is delivered; None if the event is about a job of another tenant, or about no job and only one tenant is told."""
    told: dict[str, Any] = {
        "id": event.identity(identity),
        "event": event.name,
        "seq": event.seq,
        "time": event.time,
    }
    told |= event.about
    if event.job is not None:
        found = store.specs([event.job]).get(event.job)
        told["job"] = {"id": event.job}
        if found is not None:
            job, spec = found
            told["job"] = view(job) | {"labels": plain(spec).get("labels", {})}
    owner = told.get("job", {}).get("tenant")
    if tenant is not None and tenant != owner:
        return None
    return json.dumps(told, ensure_ascii=False).encode()

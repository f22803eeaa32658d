"""The journal read back: every row through the core again, every decision compared with the one that was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.changes.reshape import changed
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Checkpoint, Entry
from slotwise.scheduling import Scheduler
from slotwise.scheduling.compact import unpacked
from slotwise.scheduling.events import KINDS, Event, Outcome, as_dict, from_dict
from slotwise.scheduling.situation import Situation

# Rows of the service that decide nothing.
OWN = ("held", "dropped", "started", "stop-asked", "epoch", "maintenance", "maintenance-over")
# How a row begins that holds a situation, from which the core goes on.
EPOCH = '{"event":"epoch"'
CHANGE = '{"event":"change"'
PIECE = 10_000  # rows read at once
# Errors that reading a damaged row may raise.
WRONG = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration, RecursionError)


class Difference(NamedTuple):
    """A row at which the core decides otherwise than was recorded."""

    seq: int
    recorded: list[list[Any]]
    decided: list[list[Any]]


class Replayed(NamedTuple):
    """What a replay found."""

    rows: int
    events: int
    placements: int
    checkpoints: int
    """situations that came out as they were kept"""
    differences: list[Difference]


as_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode(row: Event | dict[str, Any]) -> str:
    """Return an event, or a row of the service's own, as the journal keeps it."""
    return as_json(row if isinstance(row, dict) else as_dict(row))


def damaged(seq: int, error: Exception | str) -> InputError:
    """Return what is said of a row that cannot be right."""
    shown = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return InputError(
        f"is damaged: {' '.join(shown.split())}", where=f"row {seq} of the journal", remedy="restore a backup"
    )


def row_of(entry: Entry) -> dict[str, Any]:
    """Return the event of a row. Raise InputError if it is none."""
    try:
        row = json.loads(entry.event)
    except (ValueError, RecursionError) as error:
        raise damaged(entry.seq, error) from None
    if not isinstance(row, dict):
        raise damaged(entry.seq, "it is no object")
    return row


def step(core: Scheduler, entry: Entry) -> tuple[Scheduler, Outcome | None]:
    """Apply one row. Return the core after it, and what it decided (None for rows that decide nothing)."""
    try:
        row = row_of(entry)
        kind = row["event"]
        if kind in KINDS:
            return core, core.apply(from_dict(row))
        if kind == "change":
            return changed(core, row)
        if kind in OWN:
            return core, None
    except (*WRONG, SlotwiseError) as error:
        raise damaged(entry.seq, error) from None
    raise InputError(
        f"has the unknown event {kind!r}",
        where=f"row {entry.seq} of the journal",
        remedy="read it with the version that wrote it, or a later one",
    )


def difference(entry: Entry, outcome: Outcome) -> Difference | None:
    """Return where a decision differs from the recorded one."""
    decided = [list(placement) for placement in outcome.placements]
    try:
        recorded = json.loads(entry.placements)
    except (ValueError, RecursionError) as error:
        raise damaged(entry.seq, error) from None
    return None if decided == recorded else Difference(entry.seq, recorded, decided)


def rows(store: Store, after: int) -> Iterator[Entry]:
    """Yield all rows after a row."""
    while piece := store.entries(after, limit=PIECE):
        for entry in piece:
            if entry.seq != after + 1:
                raise damaged(after + 1, "it is missing")
            yield entry
            after = entry.seq


class Kept(NamedTuple):
    """What a checkpoint keeps: the situation of the core, and what the service needs beside it."""

    situation: dict[str, Any]
    next_job: int
    next_spec: int
    made: dict[str, float]
    outgoing: dict[str, Any] | None
    settings: dict[str, Any]
    quotas: list[dict[str, Any]]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Kept:
        """Return what a checkpoint keeps. Raise InputError if it is damaged."""
        try:
            body = unpacked(checkpoint.body)
            made, outgoing = body.get("made", {}), body.get("outgoing")
            found = cls(
                dict(body["situation"]),
                int(body["next_job"]),
                int(body["next_spec"]),
                {str(name): float(when) for name, when in made.items()},
                None if outgoing is None else dict(outgoing),
                dict(body.get("settings", {})),
                list(body.get("quotas", ())),
            )
        except WRONG as error:
            raise damaged_at(checkpoint, error) from None
        return found

    def core(self) -> Scheduler:
        """Return the core as it was."""
        return Scheduler.from_situation(Situation.from_dict(self.situation))


def damaged_at(checkpoint: Checkpoint, error: Exception) -> InputError:
    """Return what is said of a checkpoint that cannot be right."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return InputError(
        f"is damaged: {said}", where=f"the situation after row {checkpoint.seq}", remedy="restore a backup"
    )


def core_of(checkpoint: Checkpoint) -> Scheduler:
    """Return the core that a checkpoint keeps."""
    return Kept.of(checkpoint).core()


def replay(store: Store) -> Replayed:
    """Replay the journal from the oldest situation that is kept, and compare every decision and every situation on the way."""
    kept = store.checkpoints()
    if not kept:
        return Replayed(0, 0, 0, 0, [])
    first = store.checkpoint(kept[0][0])
    assert first is not None
    core: Scheduler | None = core_of(first)
    at = {seq for seq, _, _ in kept[1:]}
    n_rows = n_events = n_placements = n_same = 0
    differences: list[Difference] = []
    for entry in rows(store, first.seq):
        n_rows += 1
        if core is not None:
            core, outcome = step(core, entry)
            if outcome is not None:
                n_events += 1
                n_placements += len(outcome.placements)
                found = difference(entry, outcome)
                if found is not None:
                    differences.append(found)
                    core = None  # nothing can agree until the next situation
        if entry.seq in at:
            checkpoint = store.checkpoint(entry.seq)
            if checkpoint is not None:
                if core is None or entry.event.startswith(EPOCH):
                    core = core_of(checkpoint)
                elif Kept.of(checkpoint).situation == json.loads(core.situation().to_json()):
                    n_same += 1
                else:
                    differences.append(Difference(entry.seq, [["the situation that was kept"]], [["another one"]]))
                    core = core_of(checkpoint)
    return Replayed(n_rows, n_events, n_placements, n_same, differences)

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

OWN = ("started", "stop-asked", "epoch")
"""rows of the service that decide nothing"""
EPOCH = '{"event":"epoch"'
"""how a row begins after which the core goes on from the situation that is kept there"""
CHANGE = '{"event":"change"'
PIECE = 10_000
WRONG = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration)
"""what reading a damaged row may end in"""


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
    """An event, or a row of the service's own, as the journal keeps it."""
    return as_json(row if isinstance(row, dict) else as_dict(row))


def damaged(seq: int, error: Exception | str) -> InputError:
    """What is said of a row that cannot be right."""
    shown = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return InputError(
        f"is damaged: {' '.join(shown.split())}", where=f"row {seq} of the journal", remedy="restore a backup"
    )


def step(core: Scheduler, entry: Entry) -> tuple[Scheduler, Outcome | None]:
    """One row: the core after it, and what it decided (None for rows that decide nothing)."""
    try:
        row = json.loads(entry.event)
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
    """Where a decision is not the recorded one."""
    decided = [list(placement) for placement in outcome.placements]
    try:
        recorded = json.loads(entry.placements)
    except ValueError as error:
        raise damaged(entry.seq, error) from None
    return None if decided == recorded else Difference(entry.seq, recorded, decided)


def rows(store: Store, after: int) -> Iterator[Entry]:
    """All rows after this one."""
    while piece := store.entries(after, limit=PIECE):
        for entry in piece:
            if entry.seq != after + 1:
                raise damaged(after + 1, "it is missing")
            yield entry
            after = entry.seq


def core_of(checkpoint: Checkpoint) -> Scheduler:
    """The core that a checkpoint keeps."""
    return Scheduler.from_situation(Situation.from_dict(unpacked(checkpoint.body)["situation"]))


def replay(store: Store) -> Replayed:
    """From the oldest situation that is kept to the newest row, and compare every decision and every situation on the way."""
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
                elif unpacked(checkpoint.body)["situation"] == json.loads(core.situation().to_json()):
                    n_same += 1
                else:
                    differences.append(Difference(entry.seq, [["the situation that was kept"]], [["another one"]]))
                    core = core_of(checkpoint)
    return Replayed(n_rows, n_events, n_placements, n_same, differences)

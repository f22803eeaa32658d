"""The common part of the books: journal rows, changes of the read model, and what engines are told once they are durable."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slotwise.live.changes.target import Outgoing
from slotwise.live.holds import Holds
from slotwise.live.newjob import NewJob
from slotwise.live.quotas import Quotas
from slotwise.live.replay import as_json, encode
from slotwise.live.store.records import PLACED, WAITING, Attempt, Batch, Entry, Server
from slotwise.live.typebook import TypeBook
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Event, Outcome, Placement, Tick

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Live:
    """A job that is placed or runs."""

    server: str
    attempt: int
    placed: float
    state: str = PLACED
    on_loss: str = "fail"
    stop_asked: bool = False

    def when(self, told: float | None, now: float) -> float:
        """Return the time that an engine tells by its own clock: not before the placement, and not in the future."""
        return now if told is None else min(now, max(self.placed, told))


@dataclass
class Effects:
    """What engines are told once the batch is durable."""

    starts: list[Placement] = field(default_factory=list)
    stops: list[tuple[int, int]] = field(default_factory=list)
    settled: list[tuple[int, int]] = field(default_factory=list)
    reconfigured: bool = False
    """servers or classes have changed: an engine whose servers come from a cluster file is told"""

    def __bool__(self) -> bool:
        return bool(self.starts or self.stops or self.settled or self.reconfigured)


class Bookkeeping:
    """The core, and what gathers for the next transaction."""

    def __init__(self, core: Scheduler, *, seq: int = 0, next_job: int = 1, next_spec: int = 1) -> None:
        self.core = core
        self.seq, self.next_job, self.next_spec = seq, next_job, next_spec
        self.live: dict[int, Live] = {}
        self.servers: dict[str, Server] = {}
        self.batch, self.effects = Batch(), Effects()
        self.keys: dict[tuple[str, str], range] = {}
        """the jobs of idempotency keys of this batch; older ones are in the store"""
        self.lies: Counter[str] = Counter()
        """what engines said that cannot be, by kind"""
        self.types = TypeBook()
        self.holds = Holds()
        self.quotas = Quotas()
        self.retrying: dict[int, NewJob] = {}
        """jobs that have not ended and may be executed again"""
        self.retried: dict[int, int] = {}
        """how often they were"""
        self.outgoing = Outgoing()
        self.fault: str | None = None
        """the last thing that the policy did wrong"""
        self._refusals: Counter[str] = Counter()
        self._ends: dict[tuple[int, int], int] = {}
        """exit codes of the last attempts that ended"""

    def take(self) -> tuple[Batch, Effects]:
        """Return what has gathered, and begin the next batch."""
        taken = self.batch, self.effects
        self.batch, self.effects = Batch(), Effects()
        self.keys.clear()
        return taken

    def begin_epoch(self, why: dict[str, Any], opening: Sequence[Placement], now: float) -> None:
        """Begin an epoch: the core was made anew from recorded facts, and starts these jobs at once."""
        self._write(encode({"event": "epoch", "now": now, **why}), Outcome(tuple(opening)), now)

    def tick(self, now: float) -> None:
        """Let the policy act on its own clock."""
        self._apply(Tick(now))

    def _apply(self, event: Event, note: dict[str, Any] | None = None) -> None:
        """Let the core decide, and write it down."""
        outcome = self.core.apply(event)
        self._write(encode(event), outcome, event.now, note)

    def _note(self, row: dict[str, Any], now: float) -> None:
        """Write a row of the service's own, which the core need not know."""
        self._write(encode(row), Outcome(), now)

    def _write(self, event: str, outcome: Outcome, now: float, note: dict[str, Any] | None = None) -> None:
        if outcome.fault is not None:
            self.fault = f"{type(outcome.fault).__name__}: {outcome.fault}"
            note = {**(note or {}), "fault": self.fault}
            log.error("the policy failed: %s", self.fault)
        self.seq += 1
        placements = outcome.placements
        decided = as_json(placements) if placements else "[]"
        self.batch.entries.append(Entry(self.seq, now, event, decided, as_json(note) if note else None))
        for job in outcome.requeued:
            number = int(str(job))
            live = self.live.pop(number, None)
            if live is not None:
                self.batch.attempts.append(Attempt(number, live.attempt, live.server, live.placed, now, None))
            self.batch.change(number, state=WAITING, server=None, placed=None, started=None, ready=now)
            self.quotas.requeued(number)
        for placement in placements:
            self.live[placement.job] = Live(placement.server, placement.attempt, now)  # type: ignore[index, arg-type]
            self.batch.change(
                placement.job,  # type: ignore[arg-type]
                state=PLACED,
                server=placement.server,
                attempt=placement.attempt,
                placed=now,
            )
            self.effects.starts.append(placement)
            self.quotas.placed(placement.job)  # type: ignore[arg-type]

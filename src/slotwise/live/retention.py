"""Checkpoints, and what is dropped behind them.

A situation is kept after so many journal rows, and more rarely the more jobs there are: writing one costs time in proportion to them. Journal
rows and ended jobs stay for a time that the operator chooses.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from slotwise.live.ledger import Ledger
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Checkpoint, StoreError

log = logging.getLogger(__name__)
DAY = 86_400.0
TRIM_LIMIT = 5_000
"""rows dropped at once, so that nobody waits long for it"""


class Retention:
    """When to keep a situation and what to drop."""

    def __init__(
        self,
        *,
        every: int = 50_000,
        journal: float = 7 * DAY,
        jobs: float = 30 * DAY,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.every, self.journal, self.jobs = every, journal, jobs
        self.settings = settings or {}
        """kept beside each situation, for the next start"""
        self.kept_at: int | None = None
        self._next_trim = 0.0

    def now_and_then(self, store: Store, ledger: Ledger, now: float) -> None:
        """Called after every commit; does something rarely."""
        if self.kept_at is None:
            self.kept_at = ledger.seq
        size = (
            sum(ledger.core.waiting.values()) + len(ledger.live) if ledger.seq - self.kept_at >= self.every else 0
        )
        if ledger.seq - self.kept_at >= max(self.every, 2 * size):
            self.checkpoint(store, ledger)
        if now >= self._next_trim:
            self._next_trim = now + 1.0
            try:
                gone = store.trim(journal_before=now - self.journal, jobs_before=now - self.jobs, limit=TRIM_LIMIT)
            except StoreError as error:
                log.warning("cannot drop old rows: %s", error)
                return
            self._next_trim = now + (1.0 if gone >= TRIM_LIMIT else 600.0)

    def checkpoint(self, store: Store, ledger: Ledger) -> None:
        """Keep the situation after the newest row. A store that cannot take it now is no reason to stop: the journal is whole."""
        body = {
            "situation": ledger.core.situation().to_dict(),
            "next_job": ledger.next_job,
            "next_spec": ledger.next_spec,
            "made": ledger.types.made,
            "settings": self.settings,
        }
        self.kept_at = ledger.seq
        try:
            store.save_checkpoint(
                Checkpoint(ledger.seq, ledger.core.now, 0, json.dumps(body, separators=(",", ":"), allow_nan=False))
            )
        except StoreError as error:
            log.warning("cannot keep a situation: %s", error)

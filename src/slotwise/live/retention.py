"""Checkpoints, and what is dropped behind them.

A situation is kept after so many journal rows, and more rarely the more jobs there are: writing one costs time in proportion to them. A large one is
written by a process of its own, a copy of this one at that moment, while this one goes on; it is kept when it is whole. Journal rows and ended
jobs stay for a time that the operator chooses.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import warnings
from typing import IO, Any, NamedTuple

from slotwise.live.ledger import Ledger
from slotwise.live.quotas import rows_of
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Checkpoint, StoreError
from slotwise.scheduling.compact import packed

log = logging.getLogger(__name__)
DAY = 86_400.0  # seconds
# Rows dropped in one step: more would delay the loop.
TRIM_LIMIT = 5_000


class SituationWriter(NamedTuple):
    """A process that writes a situation."""

    pid: int
    file: IO[bytes]
    seq: int
    time: float


class Retention:
    """When to keep a situation and what to drop."""

    def __init__(
        self,
        *,
        every: int = 50_000,
        apart: int = 20_000,
        journal: float = 7 * DAY,
        jobs: float = 30 * DAY,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.every, self.journal, self.jobs = every, journal, jobs
        self.apart = apart
        """from so many jobs on a process of its own writes the situation"""
        self._copy: SituationWriter | None = None
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
        try:
            if self._copy is not None:
                self._collect(store, self._copy)
            elif ledger.seq - self.kept_at >= max(self.every, 2 * size):
                if size >= self.apart:
                    self._copy = self._begin(ledger)
                else:
                    self.checkpoint(store, ledger)
        except Exception:  # no process, no file, no memory: the journal is whole without it
            log.exception("cannot keep a situation; it is tried again after %d more rows", self.every)
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
        self._keep(store, self.situation(ledger))

    def situation(self, ledger: Ledger) -> Checkpoint:
        """Return the situation after the newest row, to be kept."""
        self.kept_at = ledger.seq
        return Checkpoint(ledger.seq, ledger.core.now, 0, packed(self._body(ledger)))

    def _body(self, ledger: Ledger) -> dict[str, Any]:
        return {
            "situation": ledger.core.situation().to_dict(),
            "next_job": ledger.next_job,
            "next_spec": ledger.next_spec,
            "made": ledger.types.made,
            "outgoing": ledger.outgoing.as_dict(),
            "settings": self.settings,
            "quotas": rows_of(ledger.quotas.limits),
        }

    def _keep(self, store: Store, checkpoint: Checkpoint) -> None:
        try:
            store.save_checkpoint(checkpoint)
        except StoreError as error:
            log.warning("cannot keep a situation: %s", error)

    def _begin(self, ledger: Ledger) -> SituationWriter:
        """A copy of this process has everything as it is now. It touches nothing that is shared but the file, and ends."""
        self.kept_at = ledger.seq
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when the copy has been collected
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of forks beside threads: the copy takes no lock that they may hold
            try:
                pid = os.fork()
            except OSError:
                file.close()
                raise
        if pid:
            return SituationWriter(pid, file, ledger.seq, ledger.core.now)
        status = 1
        try:
            keep = file.fileno()
            os.closerange(3, keep)  # the lock of the store, connections, databases: they are the service's
            os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
            with open(keep, "wb", closefd=False) as into:
                into.write(packed(self._body(ledger)).encode())
            status = 0
        finally:
            os._exit(status)

    def close(self) -> None:
        """Let a copy that still writes go: the journal is whole without it."""
        if self._copy is not None:
            os.kill(self._copy.pid, signal.SIGKILL)
            os.waitpid(self._copy.pid, 0)
            self._copy.file.close()
            self._copy = None

    def _collect(self, store: Store, copy: SituationWriter) -> None:
        """Keep what the copy has written, if it is done."""
        pid, status = os.waitpid(copy.pid, os.WNOHANG)
        if not pid:
            return
        self._copy = None
        with copy.file as file:
            if status:
                log.warning(
                    "cannot write a situation: its process ended with %s", os.waitstatus_to_exitcode(status)
                )
                return
            file.seek(0)
            self._keep(store, Checkpoint(copy.seq, copy.time, 0, file.read().decode()))

"""Forecasts that were made, in a SQLite file of their own: the service's store has one writer, and it is not this one."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from slotwise.foresee.tracking import Tracker

KEPT = 200_000  # newest rows
SCHEMA = """
CREATE TABLE IF NOT EXISTS forecast (
    job INTEGER NOT NULL, made REAL NOT NULL, type TEXT NOT NULL, median REAL NOT NULL,
    p10 REAL, p50 REAL, p90 REAL, started REAL);
CREATE INDEX IF NOT EXISTS forecast_job ON forecast (job);
CREATE TABLE IF NOT EXISTS learnt (one INTEGER PRIMARY KEY, body TEXT NOT NULL);
"""


class Records:
    """The file; without a path, memory."""

    def __init__(self, path: Path | None) -> None:
        self._base = sqlite3.connect(":memory:" if path is None else path)
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("PRAGMA synchronous = NORMAL")
        self._base.executescript(SCHEMA)

    def tracker(self) -> Tracker:
        """Return what was learnt, with the forecasts whose outcome is not known."""
        row = self._base.execute("SELECT body FROM learnt").fetchone()
        tracker = Tracker.from_dict(json.loads(row[0])) if row else Tracker()
        for job, made, kind, median, *levels in self._base.execute(
            "SELECT job, made, type, median, p10, p50, p90 FROM forecast WHERE started IS NULL ORDER BY made"
        ):
            tracker.add(job, made, (float("inf") if x is None else x for x in levels), kind, median)
        return tracker

    def made(self, rows: list[tuple[int, float, str, float, float | None, float | None, float | None]]) -> None:
        """Keep forecasts."""
        self._base.executemany("INSERT INTO forecast VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", rows)

    def started(self, job: int, when: float) -> None:
        """Note when a job started (-1: it will not)."""
        self._base.execute("UPDATE forecast SET started = ? WHERE job = ? AND started IS NULL", (when, job))

    def keep(self, tracker: Tracker) -> None:
        """Write what was learnt, and drop the oldest rows."""
        self._base.execute("INSERT OR REPLACE INTO learnt VALUES (1, ?)", (json.dumps(tracker.to_dict()),))
        self._base.execute("DELETE FROM forecast WHERE rowid <= (SELECT max(rowid) FROM forecast) - ?", (KEPT,))
        self._base.commit()

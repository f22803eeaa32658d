"""Forecasts that were made, in a SQLite file of their own: the service's store has one writer, and it is not this one."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np

from slotwise.foresee.tracking import REMEMBERED, Tracker

Row = tuple[int, float, str, float, float | None, float | None, float | None, bytes]
KEPT = 100_000  # newest rows, of 400 bytes
SCHEMA = """
CREATE TABLE IF NOT EXISTS forecast (
    job INTEGER NOT NULL, made REAL NOT NULL, type TEXT NOT NULL, median REAL NOT NULL,
    p10 REAL, p50 REAL, p90 REAL, curve BLOB NOT NULL, started REAL);
CREATE INDEX IF NOT EXISTS forecast_job ON forecast (job);
CREATE TABLE IF NOT EXISTS learnt (one INTEGER PRIMARY KEY, body TEXT NOT NULL);
"""


class Records:
    """The file; without a path, memory."""

    def __init__(self, path: Path | None) -> None:
        self._base = sqlite3.connect(":memory:" if path is None else path)
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("PRAGMA synchronous = NORMAL")
        found = [row[1] for row in self._base.execute("PRAGMA table_info(forecast)")]
        if found and "curve" not in found:  # of a version whose correction learnt otherwise
            self._base.executescript("DROP TABLE forecast; DROP TABLE IF EXISTS learnt;")
        self._base.executescript(SCHEMA)

    def tracker(self) -> Tracker:
        """Return what was learnt, with the forecasts whose outcome is not known."""
        row = self._base.execute("SELECT body FROM learnt").fetchone()
        tracker = Tracker.from_dict(json.loads(row[0])) if row else Tracker()
        for job, made, kind, median, *levels, kept, started in self._base.execute(
            "SELECT job, made, type, median, p10, p50, p90, curve, started FROM forecast"
            " WHERE started IS NULL OR started >= 0 AND rowid > (SELECT max(rowid) FROM forecast) - ? ORDER BY made",
            (REMEMBERED,),
        ):
            curve = np.frombuffer(kept, np.float64)
            if started is not None:
                tracker.remember(made, started - made, kind, median, curve)
                continue
            quantiles = (float("inf") if x is None else x for x in levels)
            tracker.add(job, made, quantiles, kind, median, curve)
        return tracker

    def made(self, rows: list[Row]) -> None:
        """Keep forecasts."""
        self._base.executemany("INSERT INTO forecast VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", rows)

    def started(self, job: int, when: float) -> None:
        """Note when a job started (-1: it will not)."""
        self._base.execute("UPDATE forecast SET started = ? WHERE job = ? AND started IS NULL", (when, job))

    def keep(self, tracker: Tracker) -> None:
        """Write what was learnt, and drop the oldest rows."""
        self._base.execute("INSERT OR REPLACE INTO learnt VALUES (1, ?)", (json.dumps(tracker.to_dict()),))
        self._base.execute("DELETE FROM forecast WHERE rowid <= (SELECT max(rowid) FROM forecast) - ?", (KEPT,))
        self._base.commit()

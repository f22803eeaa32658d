"""The record of single jobs of a run: as a data frame, and as a trace that every tool for traces takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slotwise.simulation.measure.meter import (
    ROW_ARRIVAL,
    ROW_COLUMNS,
    ROW_DURATION,
    ROW_END,
    ROW_SERVER,
    ROW_START,
    ROW_TYPE,
)

if TYPE_CHECKING:
    import polars as pl  # slow to import

    from slotwise.workloads.traces import Trace

Rows = NDArray[np.float64]  # (n, 6 + R): a row of the meter for each job, then what it demands


def job_frame(rows: Rows, type_names: tuple[str, ...]) -> pl.DataFrame:
    """Return arrival, start, end, server, type and duration, in order of arrival. `start` and `server` are null for
    a waiting job, `end` also for a running one. For a job that a failing server threw back it is the last start."""
    import polars as pl

    types = pl.Series("type", [type_names[int(j)] for j in rows[:, ROW_TYPE]], pl.String)
    floats = {"arrival": ROW_ARRIVAL, "start": ROW_START, "end": ROW_END, "duration": ROW_DURATION}
    columns = {name: pl.Series(name, rows[:, at]).fill_nan(None) for name, at in floats.items()}
    server = pl.Series("server", rows[:, ROW_SERVER]).fill_nan(None).cast(pl.Int64)
    frame = pl.DataFrame({**columns, "server": server, "type": types})
    return frame.select("arrival", "start", "end", "server", "type", "duration")


def job_trace(rows: Rows, resources: tuple[str, ...], name: str) -> Trace:
    """Return the same jobs as a trace: when they came, their durations and demands. Its origin is 0, or the first
    arrival before it."""
    import polars as pl

    from slotwise.workloads.traces import Trace, TraceMeta
    from slotwise.workloads.traces.schema import DEMAND

    kept = rows[rows[:, ROW_DURATION] > 0]
    origin = min(0.0, float(kept[0, ROW_ARRIVAL])) if len(kept) else 0.0
    columns = {"arrival": kept[:, ROW_ARRIVAL] - origin, "duration": kept[:, ROW_DURATION]}
    columns |= {DEMAND + resource: kept[:, ROW_COLUMNS + r] for r, resource in enumerate(resources)}
    left_out = len(rows) - len(kept)
    notes = (f"{left_out} jobs of duration 0 are left out",) if left_out else ()
    meta = TraceMeta(source="slotwise simulate", resources=resources, origin=origin, notes=notes)
    return Trace(pl.DataFrame(columns), meta, name)

"""Cutting, thinning, stretching, joining and lengthening traces. Every tool returns a new trace and notes what it
did.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.schema import OPTIONAL, Trace

BLOCK_SECONDS = 1200.0  # 20 minutes: bursts that are shorter are kept


def _moved(frame: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """Return the frame with the first arrival at 0, and by how much it moved."""
    by = float(frame["arrival"][0]) if frame.height else 0.0
    return frame.with_columns(pl.col("arrival") - by), by


def window(
    trace: Trace, *, start: float = 0.0, end: float | None = None, first: int = 0, jobs: int | None = None
) -> Trace:
    """Return the jobs that arrive in [start, end) seconds, and of those `jobs` from number `first` on; moved to begin at
    0.
    """
    if start < 0 or (end is not None and end <= start) or first < 0 or (jobs is not None and jobs < 1):
        raise InputError(
            "an empty window", where=trace.name, remedy="use 0 <= start < end, first >= 0 and jobs >= 1"
        )
    inside = pl.col("arrival") >= start
    if end is not None:
        inside &= pl.col("arrival") < end
    frame = trace.frame.filter(inside).slice(first, jobs)
    if not frame.height:
        raise InputError(
            "has no job in the window", where=trace.name, remedy=f"it has {len(trace):,} jobs in {trace.span:g} s"
        )
    frame, by = _moved(frame)
    text = f"window: from {start:g} s" + (f" to {end:g} s" if end is not None else "")
    text += (f", from job {first}" if first else "") + (f", {jobs} jobs" if jobs is not None else "")
    cut = trace.with_frame(frame, text)
    return Trace(cut.frame, replace(cut.meta, origin=cut.meta.origin + by), cut.name)


def thin(trace: Trace, keep: float, *, seed: int = 1, by_batch: bool = False) -> Trace:
    """Keep each job (or each batch as a whole, which keeps the burstiness) with probability `keep`, independently."""
    if not 0 < keep <= 1:
        raise InputError(f"a share of {keep:g}", where=trace.name, remedy="use a share above 0 and at most 1")
    rng = np.random.default_rng(seed)
    if by_batch:
        if "batch" not in trace.frame.columns:
            raise InputError("has no batches", where=trace.name, remedy="thin it by jobs")
        names = trace.frame["batch"].unique(maintain_order=True)
        chosen = names.filter(pl.Series(rng.random(len(names)) < keep))
        frame = trace.frame.filter(pl.col("batch").is_in(chosen.implode(), nulls_equal=True))
    else:
        frame = trace.frame.filter(pl.Series(rng.random(len(trace)) < keep))
    if not frame.height:
        raise InputError("has no job left after thinning", where=trace.name, remedy="keep more")
    return trace.with_frame(frame, f"thinned: {keep:g} of the {'batches' if by_batch else 'jobs'} (seed {seed})")


def scale(trace: Trace, time: float = 1.0, *, duration: float = 1.0) -> Trace:
    """Multiply arrival times by `time` (2 halves the rate) and durations by `duration`."""
    if not (0 < time < float("inf") and 0 < duration < float("inf")):
        raise InputError(f"scales of {time:g} and {duration:g}", where=trace.name, remedy="scales are above 0")
    lengths = [name for name in ("duration", "estimate") if name in trace.frame.columns]
    frame = trace.frame.with_columns(pl.col("arrival") * time, pl.col(lengths) * duration)
    return trace.with_frame(frame, f"scaled: arrivals by {time:g}, durations by {duration:g}")


def _relabelled(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Number batches on from piece to piece: batches of different pieces are different batches."""
    out, offset = [], 0
    for frame in frames:
        if "batch" in frame.columns:
            dense = pl.col("batch").rank("dense").cast(pl.Int64) - 1 + offset
            frame = frame.with_columns(dense.alias("batch"))
            largest = frame["batch"].max()
            offset = largest + 1 if isinstance(largest, int) else offset
        out.append(frame)
    return out


def concat(traces: Sequence[Trace], *, gap: float | None = None) -> Trace:
    """Put one trace after the other. The next begins `gap` seconds after the last arrival of the one before; by
    default after that one's mean time between arrivals."""
    if not traces:
        raise InputError("no traces to join")
    first = traces[0]
    for other in traces[1:]:
        if other.resources != first.resources:
            raise InputError(
                f"has the resources {', '.join(other.resources)}",
                where=other.name,
                remedy=f"{first.name} has {', '.join(first.resources)}",
            )
        for name in first.resources:
            if other.meta.units.get(name) != first.meta.units.get(name):
                raise InputError(
                    f"counts {name} in {other.meta.units.get(name)!r}",
                    where=other.name,
                    remedy=f"{first.name} counts it in {first.meta.units.get(name)!r}",
                )
    if gap is not None and gap < 0:
        raise InputError(f"a gap of {gap:g} s", remedy="gaps are 0 or more")
    shared = [c for c in first.frame.columns if c not in OPTIONAL or all(c in t.frame.columns for t in traces)]
    frames, at = [], 0.0
    for trace, frame in zip(traces, _relabelled([t.frame.select(shared) for t in traces]), strict=True):
        if "id" in shared and len({t.frame["id"].dtype for t in traces}) > 1:
            frame = frame.with_columns(pl.col("id").cast(pl.String))
        begin = float(trace.arrival[0]) if len(trace) else 0.0
        frames.append(frame.with_columns(pl.col("arrival") - begin + at))
        at += trace.span + (gap if gap is not None else trace.span / max(len(trace) - 1, 1))
    return first.with_frame(pl.concat(frames), f"joined: {', '.join(t.name for t in traces)}")


def split(trace: Trace, by: str = "tenant") -> dict[str, Trace]:
    """Return a trace for each tenant (or priority), largest first; all on the common clock, so they can be laid over each
    other again."""
    if by not in ("tenant", "priority"):
        raise InputError(f"cannot split by {by!r}", where=trace.name, remedy="use tenant or priority")
    if by not in trace.frame.columns:
        raise InputError(f"has no column {by!r} to split by", where=trace.name)
    parts: dict[str, Trace] = {}
    sizes = trace.frame[by].value_counts().sort("count", by, descending=[True, False])
    for value in sizes[by].to_list():
        name = "none" if value is None else str(value)
        frame = trace.frame.filter(pl.col(by).eq_missing(value))
        label = f"{trace.name}-{_safe(name)}"
        if label in {part.name for part in parts.values()}:  # two names may look alike once made safe for a file
            label += f"-{len(parts)}"
        parts[name] = replace(trace.with_frame(frame, f"split: {by} {name}"), name=label)
    return parts


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:40]


def _floor3(value: float) -> float:
    """Round down to three digits: a number that may be typed in and is not too large."""
    digits = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.floor(value / digits) * digits


def bootstrap(trace: Trace, jobs: int, *, seed: int = 1, block: float = BLOCK_SECONDS) -> Trace:
    """Return a longer (or another) trace of `jobs` jobs: stretches of `block` seconds of the real one, drawn with
    replacement and laid end to end (the moving-block bootstrap). Within a stretch every job, batch and burst is as it
    was, so burstiness is kept up to the block's length. The stretches begin at uniform moments, the end of the trace
    joined to its start, so every job is as likely as any other."""
    if jobs < 1:
        raise InputError(f"{jobs} jobs", remedy="ask for 1 or more")
    if not 0 < block <= max(trace.span, 0.0):
        raise InputError(
            f"blocks of {block:g} s in a trace of {trace.span:g} s",
            where=trace.name,
            remedy=f"give --block with up to {_floor3(trace.span):g}"
            if trace.span > 0
            else "it has arrivals at one moment only",
        )
    rng = np.random.default_rng(seed)
    arrival = trace.arrival - trace.arrival[0]
    cycle = trace.span * (1 + 1 / max(len(trace) - 1, 1))  # the last arrival and the first do not fall together
    twice = np.concatenate([arrival, arrival + cycle])
    rows: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    times: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    piece: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    total = number = 0
    while total < jobs:
        begin = float(rng.random() * cycle)
        low, high = (int(i) for i in np.searchsorted(twice, [begin, begin + block]))
        rows.append(np.arange(low, high) % len(trace))
        times.append(twice[low:high] - begin + number * block)
        piece.append(np.full(high - low, number))
        total += high - low
        number += 1
    at = np.concatenate(times)[:jobs]
    frame = trace.frame[np.concatenate(rows)[:jobs]].with_columns(arrival=pl.Series(at))
    if "batch" in frame.columns:  # a batch drawn twice is two batches
        frame = frame.with_columns(piece=pl.Series(np.concatenate(piece)[:jobs])).with_columns(
            pl.when(pl.col("batch").is_not_null())
            .then(pl.struct("piece", "batch").rank("dense").cast(pl.Int64) - 1)
            .alias("batch")
        )
    frame = frame.drop("piece", "id", strict=False)
    frame, _ = _moved(frame)
    return trace.with_frame(frame, f"bootstrap: {jobs} jobs in blocks of {block:g} s (seed {seed})")

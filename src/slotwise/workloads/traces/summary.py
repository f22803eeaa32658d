"""What a trace is like, in a few numbers.

Burstiness is the index of dispersion of counts: with N_w the arrivals in a window of w seconds, IDC(w) = Var N_w / E
N_w. It is 1 at every w for a Poisson process and grows with w where the rate itself wanders. The offered load of a
resource is sum_n d_n w_n / T, where T is the span from the first arrival to the last. It is the amount in use on
average if every job started at once; divided by the capacity of a server, it is a number of servers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.workloads.traces.schema import DEMAND, Trace
from slotwise.workloads.window import in_words, window_of

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
WINDOWS = (60.0, 300.0, 1200.0, 3600.0)
TWENTY_MINUTES = 1200.0  # seconds: the window of the paper
SHAPES = 8  # demands that are listed, the most frequent ones


@dataclass(frozen=True)
class Summary:
    """See the module; times are in seconds, rates per second. `dict` makes plain JSON of it."""

    name: str
    source: str
    jobs: int
    span: float
    rate: float
    interarrival: dict[str, float]
    duration: dict[str, float]
    demand: dict[str, dict[str, float]]
    shapes: int
    top_shapes: list[dict[str, Any]]
    burstiness: dict[str, Any]
    load: dict[str, float]
    load_in_servers: dict[str, float]
    window: dict[str, dict[str, float]] | None
    """by resource: offered, mean and peak; see `slotwise.workloads.window`"""
    window_words: str
    """how these figures explain each other; empty where no capacity is known"""
    batches: dict[str, float] | None
    tenants: int | None
    censored: float | None
    priorities: dict[str, float] | None
    servers: list[dict[str, Any]]
    units: dict[str, str]
    origin: float
    clock: str
    notes: list[str]

    def dict(self) -> dict[str, Any]:
        """Return the summary as plain JSON. What is undefined (the rate of a trace of no length) is null."""
        found: dict[str, Any] = _no_nan(asdict(self))
        return found


def _no_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _no_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_no_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def counts_in_windows(arrival: NDArray[np.float64], width: float) -> NDArray[np.int64]:
    """Count arrivals in each whole window of `width` seconds, from the first arrival on."""
    if not arrival.size:
        return np.zeros(0, dtype=np.int64)
    place = ((arrival - arrival[0]) / width).astype(np.int64)
    counts = np.bincount(place)
    return counts[:-1] if len(counts) > 1 else counts  # the last window is cut off by the trace's end


def dispersion(arrival: NDArray[np.float64], width: float) -> float | None:
    """Return IDC(width), or None if there are fewer than 8 windows."""
    counts = counts_in_windows(arrival, width)
    return float(counts.var() / counts.mean()) if len(counts) >= 8 and counts.mean() > 0 else None


def _spread(values: NDArray[np.float64]) -> dict[str, float]:
    out = {f"p{100 * q:g}": float(v) for q, v in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)}
    mean = float(values.mean())
    cv = float(values.std() / mean) if mean > 0 else 0.0
    return {"mean": mean, "cv": cv, "min": float(values.min()), **out, "max": float(values.max())}


def burstiness(arrival: NDArray[np.float64]) -> dict[str, Any]:
    """Return IDC at several windows. Over 20 minutes also return peak over mean and the correlation of neighbouring
    windows."""
    counts = counts_in_windows(arrival, TWENTY_MINUTES).astype(np.float64)
    out: dict[str, Any] = {"idc": {f"{w:g}s": dispersion(arrival, w) for w in WINDOWS}}
    out["peak_to_mean"] = float(counts.max() / counts.mean()) if counts.size and counts.mean() > 0 else None
    steady = len(counts) < 8 or counts.std() == 0
    out["lag1_correlation"] = None if steady else float(np.corrcoef(counts[:-1], counts[1:])[0, 1])
    return out


def offered_load(trace: Trace) -> dict[str, float]:
    """Return the offered load by resource, in its unit."""
    if trace.span <= 0:
        return dict.fromkeys(trace.resources, float("nan"))
    total = trace.duration @ trace.demands() / trace.span
    return {name: float(total[r]) for r, name in enumerate(trace.resources)}


def _batches(trace: Trace) -> dict[str, float] | None:
    """Return how many jobs were submitted together, if the trace says so."""
    frame = trace.frame
    if "batch" not in frame.columns or frame["batch"].null_count() == len(trace):
        return None
    sizes = frame["batch"].drop_nulls().value_counts()["count"].to_numpy().astype(np.float64)
    return {"count": float(len(sizes)), "mean": float(sizes.mean()), "max": float(sizes.max())}


def _priorities(trace: Trace) -> dict[str, float] | None:
    """Return the share of each priority, if the trace has priorities."""
    frame = trace.frame
    if "priority" not in frame.columns or frame["priority"].null_count() == len(trace):
        return None
    counts = frame["priority"].drop_nulls().value_counts().sort("priority")
    return {str(p): c / len(trace) for p, c in counts.iter_rows()}


def summarise(trace: Trace, capacity: Mapping[str, float] | None = None) -> Summary:
    """Compute the whole summary of one trace."""
    if not len(trace):
        raise InputError("has no jobs", where=trace.name)
    arrival, frame = trace.arrival, trace.frame
    gaps = np.diff(arrival) if len(trace) > 1 else np.zeros(1)
    columns = [DEMAND + name for name in trace.resources]
    shapes = frame.group_by(columns).agg(pl.len().alias("jobs"), pl.col("duration").sum().alias("seconds"))
    top = shapes.sort("jobs", *columns, descending=True).head(SHAPES)
    load = offered_load(trace)
    room = {**trace.meta.capacity, **(capacity or {})}
    seen = window_of(trace.arrival, trace.duration, trace.demands())
    one = np.array([float(room.get(name, 0.0)) for name in trace.resources])
    return Summary(
        name=trace.name,
        source=trace.meta.source,
        jobs=len(trace),
        span=trace.span,
        rate=len(trace) / trace.span if trace.span > 0 else float("nan"),
        interarrival={
            "mean": float(gaps.mean()),
            "cv": float(gaps.std() / gaps.mean()) if gaps.mean() > 0 else 0.0,
        },
        duration=_spread(trace.duration),
        demand={name: _spread(frame[DEMAND + name].to_numpy()) for name in trace.resources},
        shapes=shapes.height,
        top_shapes=[
            {
                "demand": [row[c] for c in columns],
                "share": row["jobs"] / len(trace),
                "mean_duration": row["seconds"] / row["jobs"],
            }
            for row in top.iter_rows(named=True)
        ],
        burstiness=burstiness(arrival),
        load=load,
        load_in_servers={name: value / room[name] for name, value in load.items() if room.get(name)},
        window=None
        if seen is None
        else {
            name: {"offered": float(seen.offered[r]), "mean": float(seen.mean[r]), "peak": float(seen.peak[r])}
            for r, name in enumerate(trace.resources)
        },
        window_words=in_words(seen, one) if seen is not None and one.any() else "",
        batches=_batches(trace),
        tenants=frame["tenant"].n_unique() if "tenant" in frame.columns else None,
        censored=float(frame["censored"].mean() or 0.0) if "censored" in frame.columns else None,  # type: ignore[arg-type]
        priorities=_priorities(trace),
        servers=[{"name": s.name, "count": s.count, "capacity": list(s.capacity)} for s in trace.meta.servers],
        units=dict(trace.meta.units),
        origin=trace.meta.origin,
        clock=trace.meta.clock,
        notes=list(trace.meta.notes),
    )

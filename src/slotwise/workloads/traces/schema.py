"""The trace: one table of jobs, sorted by arrival, and what its numbers mean.

A job n arrives at a_n >= 0, in seconds after the trace's origin, a_1 <= a_2 <= ... Once started it runs for d_n > 0
seconds, and asks for w_n in R^R, w_n >= 0, all the while. On disk it is one Parquet file:

| column | type | |
|---|---|---|
| `arrival` | Float64 | seconds from the origin, ascending |
| `duration` | Float64 | seconds, above 0 |
| `demand.<resource>` | Float64 | one column per resource, in the order of the metadata |
| `batch` | Int64, optional | jobs that were asked for together |
| `tenant` | String, optional | who asked |
| `priority` | Int32, optional | larger is more urgent |
| `censored` | Boolean, optional | the true duration is longer than the one seen |
| `estimate` | Float64, optional | seconds, above 0: how long its user expected it to run |
| `id` | String or Int64, optional | the job's name in its source |

The units, the origin and (where the source has them) the servers stand in the file's metadata, as JSON under the
key `slotwise`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.files import whole

VERSION = 1  # of the format
METADATA_KEY = "slotwise"
DEMAND = "demand."
UNKNOWN_UNIT = "as in the source"  # the unit of a resource where a source does not say

OPTIONAL: dict[str, tuple[pl.DataType, ...]] = {
    "batch": (pl.Int64(),),
    "tenant": (pl.String(),),
    "priority": (pl.Int32(),),
    "censored": (pl.Boolean(),),
    "estimate": (pl.Float64(),),
    "id": (pl.String(), pl.Int64()),
}


@dataclass(frozen=True, slots=True)
class Servers:
    """`count` servers of one make; the capacity is in the order of the trace's resources."""

    name: str
    count: int
    capacity: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TraceMeta:
    """What the numbers of a trace mean.

    `origin` is the moment of arrival 0 on the source's own clock, in seconds, and `clock` says which clock that is.
    `capacity` is what one ordinary server of the source holds, by resource (1.0 in normalised units); a resource
    that the source says nothing about is absent.
    """

    source: str
    resources: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, float] = field(default_factory=dict)
    servers: tuple[Servers, ...] = ()
    origin: float = 0.0
    clock: str = "seconds from the start of the trace"
    time_unit: str = "s"
    notes: tuple[str, ...] = ()
    version: int = VERSION

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": self.version,
                "source": self.source,
                "time_unit": self.time_unit,
                "origin": self.origin,
                "clock": self.clock,
                "resources": list(self.resources),
                "units": dict(self.units),
                "capacity": dict(self.capacity),
                "servers": [{"name": s.name, "count": s.count, "capacity": list(s.capacity)} for s in self.servers],
                "notes": list(self.notes),
            }
        )

    @classmethod
    def from_json(cls, text: str, where: str) -> TraceMeta:
        try:
            raw: dict[str, Any] = json.loads(text)
            meta = cls(
                source=str(raw["source"]),
                resources=tuple(str(name) for name in raw["resources"]),
                units={str(k): str(v) for k, v in raw.get("units", {}).items()},
                capacity={str(k): float(v) for k, v in raw.get("capacity", {}).items()},
                servers=tuple(
                    Servers(str(s["name"]), int(s["count"]), tuple(float(c) for c in s["capacity"]))
                    for s in raw.get("servers", [])
                ),
                origin=float(raw.get("origin", 0.0)),
                clock=str(raw.get("clock", "")),
                time_unit=str(raw.get("time_unit", "s")),
                notes=tuple(str(note) for note in raw.get("notes", [])),
                version=int(raw["version"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise InputError(
                f"has broken trace metadata ({type(problem).__name__}: {problem})",
                where=where,
                remedy="import the trace again from its source",
            ) from problem
        if meta.version > VERSION:
            raise InputError(
                f"is a trace of format version {meta.version}; this Slotwise reads up to {VERSION}",
                where=where,
                remedy="upgrade Slotwise",
            )
        if meta.time_unit != "s":
            raise InputError(
                f"has times in {meta.time_unit!r}", where=where, remedy="a trace counts in seconds (s)"
            )
        return meta


def fault_of(frame: pl.DataFrame, resources: tuple[str, ...], *, in_order: bool = True) -> str | None:
    """Return the first reason why `frame` is no trace over these resources, None for a good one.

    Without `in_order`, arrivals may be in any order and on any clock.
    """
    if not resources:
        return "names no resource in its metadata"
    needed = ["arrival", "duration", *(DEMAND + name for name in resources)]
    if missing := [name for name in needed if name not in frame.columns]:
        return f"lacks the column {missing[0]!r}"
    extra = [name for name in frame.columns if name not in needed and name not in OPTIONAL]
    if extra:
        return f"has the unknown column {extra[0]!r}"
    for name in needed:
        column = frame[name]
        if column.dtype != pl.Float64:
            return f"has {column.dtype} in the column {name!r}, not Float64"
        if column.null_count() or not column.is_finite().all():
            return f"has a missing or infinite value in the column {name!r}"
    for name, kinds in OPTIONAL.items():
        if name in frame.columns and frame[name].dtype not in kinds:
            return f"has {frame[name].dtype} in the column {name!r}, not {kinds[0]}"
    if not frame.height:
        return None
    arrival = frame["arrival"].to_numpy()
    if in_order and arrival[0] < 0:
        return "has an arrival before its origin"
    if in_order and (falls := np.flatnonzero(arrival[1:] < arrival[:-1])).size:
        return f"is not sorted by arrival (row {int(falls[0]) + 1} comes before row {int(falls[0])})"
    if frame["duration"][row := int(frame["duration"].arg_min() or 0)] <= 0:
        return f"has a duration of {frame['duration'][row]} in row {row}; durations are above 0"
    if "estimate" in frame.columns and not (frame["estimate"].fill_null(1.0) > 0).all():
        return "has an estimate that is not above 0"
    for name in resources:
        column = frame[DEMAND + name]
        if column[row := int(column.arg_min() or 0)] < 0:
            return f"has a negative demand for {name} in row {row}"
    return None


@dataclass(frozen=True)
class Trace:
    """Jobs in the order of their arrival, and what their numbers mean. Checked when it is made, never changed."""

    frame: pl.DataFrame
    meta: TraceMeta
    name: str = "trace"

    def __post_init__(self) -> None:
        if fault := fault_of(self.frame, self.meta.resources):
            raise InputError(fault, where=self.name)

    def __len__(self) -> int:
        return self.frame.height

    @property
    def resources(self) -> tuple[str, ...]:
        return self.meta.resources

    @property
    def arrival(self) -> NDArray[np.float64]:
        return self.frame["arrival"].to_numpy()

    @property
    def duration(self) -> NDArray[np.float64]:
        return self.frame["duration"].to_numpy()

    @property
    def estimate(self) -> NDArray[np.float64] | None:
        """How long users expected their jobs to run; None if the trace has no estimates. A job without an estimate gets
        the longest one in the trace: its true duration is what no scheduler is told."""
        if "estimate" not in self.frame.columns or self.frame["estimate"].is_null().all():
            return None
        told = self.frame["estimate"]
        return told.fill_null(told.max()).to_numpy()

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last."""
        arrival = self.arrival
        return float(arrival[-1] - arrival[0]) if arrival.size else 0.0

    def demands(self) -> NDArray[np.float64]:
        """Return the demand of each job: float64[n, R]."""
        columns = [self.frame[DEMAND + name].to_numpy() for name in self.resources]
        return np.ascontiguousarray(np.stack(columns, axis=1)) if columns else np.empty((len(self), 0))

    def only(self, resources: Sequence[str]) -> Trace:
        """Return the same jobs, with what they ask of these resources."""
        if tuple(resources) == self.resources:
            return self
        frame = self.frame.drop(DEMAND + name for name in self.resources if name not in resources)
        places = [self.resources.index(name) for name in resources]
        meta = replace(
            self.meta,
            resources=tuple(resources),
            servers=tuple(replace(s, capacity=tuple(s.capacity[r] for r in places)) for s in self.meta.servers),
        )
        return Trace(frame, meta, self.name)

    def with_frame(self, frame: pl.DataFrame, note: str = "") -> Trace:
        """Return the same meaning for another table, with a note of what was done to it."""
        meta = replace(self.meta, notes=(*self.meta.notes, note)) if note else self.meta
        return Trace(frame, meta, self.name)


def tidy(frame: pl.DataFrame, resources: tuple[str, ...]) -> pl.DataFrame:
    """Return `frame` with its columns in the schema's order and of the schema's types, without any other columns."""
    columns = [pl.col(name).cast(pl.Float64) for name in ["arrival", "duration", *(DEMAND + r for r in resources)]]
    for name, kinds in OPTIONAL.items():
        if name in frame.columns:
            columns.append(pl.col(name) if frame[name].dtype in kinds else pl.col(name).cast(kinds[0]))
    return frame.select(columns)


def read_trace(path: str | Path, columns: list[str] | None = None) -> Trace:
    """Return the trace in `path`; with `columns`, only those optional columns besides what every trace has."""
    path = Path(path)
    if path.is_dir():
        raise InputError("is a directory", where=str(path), remedy="give the trace in it")
    if not path.is_file():
        raise InputError("is not there", where=str(path), remedy="give a trace that `slotwise trace import` wrote")
    try:
        keys = pl.read_parquet_metadata(path)
        names = list(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, OSError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(
            f"is not a Parquet file ({reason})",
            where=str(path),
            remedy="bring it in with `slotwise trace import FORMAT PATH -o FILE.parquet`",
        ) from problem
    if METADATA_KEY not in keys:
        raise InputError(
            "is Parquet, but not a Slotwise trace",
            where=str(path),
            remedy="bring it in with `slotwise trace import parquet PATH --map arrival=COLUMN ... -o FILE.parquet`",
        )
    meta = TraceMeta.from_json(keys[METADATA_KEY], str(path))
    if columns is not None:
        names = [name for name in names if name not in OPTIONAL or name in columns]
    try:
        frame = pl.read_parquet(path, columns=names)
    except pl.exceptions.PolarsError as problem:
        raise InputError(f"cannot be read ({str(problem).splitlines()[0]})", where=str(path)) from problem
    if fault := fault_of(frame, meta.resources):
        raise InputError(fault, where=str(path), remedy="import it again from its source")
    return Trace(frame, meta, path.stem)


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write `trace` as one Parquet file."""
    with whole(path) as place:
        trace.frame.write_parquet(place, metadata={METADATA_KEY: trace.meta.to_json()})

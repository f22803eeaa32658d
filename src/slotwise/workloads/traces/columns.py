"""Any table with named columns, CSV or Parquet: say which column is what.

The option `map` is a mapping from the schema's names to the table's: `arrival`, then `duration` or `end` (and
`start`, where a job waited before it ran), `demand.<resource>` for each resource, and any of the optional columns.
Without it the table's columns must bear the schema's names. `time_unit` is s (default), ms, us, ns, min, h, d, or
`iso` for times such as 2024-01-31T12:00:00.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.records import Field, plain_suffix, read_records
from slotwise.workloads.traces.schema import DEMAND, OPTIONAL, TraceMeta
from slotwise.workloads.traces.tables import Column, blocks, header_of

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86_400.0}
TIMES = ("arrival", "start", "end")


def _names(path: Path, intake: Intake) -> list[str]:
    if plain_suffix(path) == ".parquet":
        try:
            return list(pl.read_parquet_schema(path))
        except (pl.exceptions.PolarsError, OSError) as problem:
            raise InputError(
                f"is not a Parquet file ({str(problem).splitlines()[0]})", where=str(path)
            ) from problem
    first = next(blocks(path, intake.bad, size=1 << 16), None)
    return header_of(first[1]) if first is not None else []


def _mapping(intake: Intake) -> dict[str, str]:
    """Schema name -> column name."""
    known = {*TIMES, "duration", *OPTIONAL}
    given: Mapping[str, str] = intake.options.get("map", {})
    for name in given:
        if name not in known and not name.startswith(DEMAND):
            raise InputError(
                f"a trace has no column {name!r}",
                where="map",
                remedy=f"it has {', '.join(sorted(known))}, demand.*",
            )
    names = _names(intake.paths[0], intake)
    taken = set(given.values())
    mapping = {n: n for n in names if (n in known or n.startswith(DEMAND)) and n not in taken and n not in given}
    mapping.update(given)
    if "arrival" not in mapping or not mapping.keys() & {"duration", "end"}:
        lacks = "arrival" if "arrival" not in mapping else "duration or end"
        raise InputError(
            f"has no column for {lacks}",
            where=str(intake.paths[0]),
            remedy=f"say which it is with --map {lacks.split()[0]}=COLUMN; its columns are {', '.join(names[:30])}",
        )
    if not any(name.startswith(DEMAND) for name in mapping):
        raise InputError(
            "has no column of demands",
            where=str(intake.paths[0]),
            remedy=f"say which are with --map demand.cpu=COLUMN; its columns are {', '.join(names[:30])}",
        )
    return mapping


def _fields(mapping: dict[str, str], iso: bool) -> list[Field]:
    fields = []
    for name, column in mapping.items():
        if name in TIMES:
            spec = Column(name, str if iso else float)
        elif name == "duration":
            spec = Column(name, float)
        elif name.startswith(DEMAND):
            spec = Column(name, float, low=0)
        elif name in ("batch", "priority"):
            spec = Column(name, int, required=False)
        else:
            spec = Column(name, str, required=False)
        fields.append(Field(spec, (column,)))
    return fields


def _jobs(intake: Intake, mapping: dict[str, str], unit: str) -> Iterator[pl.DataFrame]:
    iso = unit == "iso"
    scale = 1.0 if iso else UNITS[unit]
    for path in intake.paths:
        jobs = read_records(intake, path, _fields(mapping, iso and plain_suffix(path) != ".parquet"))
        for name in (n for n in TIMES if n in mapping):
            if jobs[name].dtype == pl.String:
                time = pl.col(name).str.strip_suffix("Z").str.to_datetime(strict=False).dt.epoch("us") / 1e6
                jobs = intake.bad.screen(jobs, time.is_null(), f"text in a time (column {mapping[name]!r})", path)
                jobs = jobs.with_columns(time.alias(name))
            else:
                jobs = jobs.with_columns(pl.col(name) * scale)
        if "duration" in mapping:
            jobs = jobs.with_columns(pl.col("duration") * scale)
            jobs = intake.bad.screen(jobs, pl.col("duration") < 0, "negative duration", path)
            jobs = intake.bad.screen(jobs, pl.col("duration") == 0, "duration of zero", path)
        else:
            start = pl.col("start" if "start" in mapping else "arrival")
            jobs = intake.bad.screen(jobs, pl.col("end") < start, "finish before start", path)
            jobs = intake.bad.screen(jobs, pl.col("end") == start, "duration of zero", path)
            jobs = jobs.with_columns((pl.col("end") - start).alias("duration"))
        if "id" in mapping:
            jobs = intake.without_duplicates(jobs, "id", path)
        if "censored" in mapping:
            jobs = jobs.with_columns(
                pl.col("censored").str.to_lowercase().is_in(["true", "1", "yes", "t", "y"]).fill_null(False)
            )
            if not intake.keep:
                jobs = intake.leave_out(jobs, pl.col("censored"), "jobs not seen to their end")
        yield jobs


def read(intake: Intake) -> Reading:
    unit = str(intake.options.get("time_unit", "s"))
    if unit not in UNITS and unit != "iso":
        raise InputError(f"{unit!r} is no unit of time", remedy=f"use one of {', '.join(UNITS)}, iso")
    mapping = _mapping(intake)
    resources = tuple(name.removeprefix(DEMAND) for name in mapping if name.startswith(DEMAND))
    meta = TraceMeta(
        source=plain_suffix(intake.paths[0]).lstrip(".") or "csv",
        resources=resources,
        units=dict.fromkeys(resources, "as in the source"),
        clock="Unix time" if unit == "iso" else "the source's own clock",
    )
    return Reading(meta, _jobs(intake, mapping, unit))


FORMATS = [
    Format("csv", "CSV with a header, its columns named by --map", read, options=("map", "time_unit")),
    Format("parquet", "Parquet, its columns named by --map", read, options=("map", "time_unit")),
]

"""Any table with named columns, CSV or Parquet: say which column is what.

The option `map` is a mapping from the schema's names to the table's: `arrival`, then `duration` or `end`,
`demand.<resource>` for each resource, and any of the optional columns. If jobs waited before they ran, `end` needs
`start` beside it. Without it the table's columns must bear the schema's names. `time_unit` is s (default), ms, us, ns,
min, h, d, `iso` for times such as 2024-01-31T12:00:00+02:00, or a format such as `%d/%m/%Y %H:%M`. `separator` is what
stands between the fields of a CSV (default `,`; `tab` for a tab).

An empty `end` means that the job still ran at the last moment that the table knows of: it is kept with the time
until then, marked as censored. An empty `start` means that it never ran: it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from slotwise.errors import InputError
from slotwise.model.units import SECONDS
from slotwise.workloads.traces import times
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.records import RecordField, plain_suffix, read_records
from slotwise.workloads.traces.schema import DEMAND, OPTIONAL, UNKNOWN_UNIT, TraceMeta
from slotwise.workloads.traces.tables import ColumnRule, blocks, fields_of, header_of

UNITS = SECONDS | {"us": 1e-6, "ns": 1e-9}
TIMES = ("arrival", "start", "end")
NOTHING = ("NULL", "null", "None", "NaN", "nan", "NaT", "N/A", "NA", "\\N")  # ways to write an empty field
OTHER_SEPARATORS = {";": "';'", "\t": "tab", "|": "'|'"}


def _is_parquet(path: Path) -> bool:
    return plain_suffix(path) == ".parquet"


def _schema(path: Path) -> pl.Schema:
    try:
        return pl.Schema(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise InputError(f"is not a Parquet file ({str(problem).splitlines()[0]})", where=str(path)) from problem


def _peek(path: Path, intake: Intake, separator: str) -> tuple[list[str], dict[str, str]]:
    """Return the names of a table's columns, and of a CSV the fields of its first row."""
    if _is_parquet(path):
        return list(_schema(path)), {}
    first = next(blocks(path, intake.bad, size=1 << 16), None)
    if first is None:
        return [], {}
    names = header_of(first[1], separator)
    rows = first[1].split(b"\n", 2)
    row = fields_of(rows[1].decode("utf-8", "replace").rstrip("\r"), separator) if len(rows) > 1 else []
    return names, dict(zip(names, row, strict=False))


def _other_separator(names: list[str], separator: str) -> str:
    """Return what to say where the header looks as if something else stands between its names."""
    if len(names) == 1:
        for other, spelt in OTHER_SEPARATORS.items():
            if other != separator and other in names[0]:
                return f"its columns seem to be separated by {spelt}: give --option separator={spelt}"
    return ""


def _mapping(intake: Intake, names: list[str], separator: str) -> dict[str, str]:
    """Return the column name of each schema name."""
    known = {*TIMES, "duration", *OPTIONAL}
    given: Mapping[str, str] = intake.options.get("map", {})
    for name in given:
        if name not in known and not name.startswith(DEMAND):
            raise InputError(
                f"a trace has no column {name!r}",
                where="map",
                remedy=f"it has {', '.join(sorted(known))}, demand.*",
            )
    taken = set(given.values())
    mapping = {n: n for n in names if (n in known or n.startswith(DEMAND)) and n not in taken and n not in given}
    mapping.update(given)
    where, hint = str(intake.paths[0]), _other_separator(names, separator)
    shown = f"its columns are {', '.join(names[:30])}"
    if "arrival" not in mapping or not mapping.keys() & {"duration", "end"}:
        lacks = "arrival" if "arrival" not in mapping else "duration or end"
        remedy = hint or f"say which it is with --map {lacks.split()[0]}=COLUMN; {shown}"
        raise InputError(f"has no column for {lacks}", where=where, remedy=remedy)
    if not any(name.startswith(DEMAND) for name in mapping):
        remedy = hint or f"say which are with --map demand.cpu=COLUMN; {shown}"
        raise InputError("has no column of demands", where=where, remedy=remedy)
    if hint:
        raise InputError(f"has no column {mapping['arrival']!r}", where=where, remedy=hint)
    return mapping


def _check_dates(intake: Intake, mapping: dict[str, str], row: dict[str, str], unit: str) -> None:
    """Refuse dates in place of numbers, and dates that can be read in two ways. Say what to do instead."""
    for name in TIMES:
        text = row.get(mapping.get(name, ""), "").strip()
        if unit in UNITS and times.looks_like_a_date(text):
            way = "--time-unit iso" if times.is_iso(text) else "--time-unit with its format, such as '%d/%m/%Y'"
            raise InputError(
                f"column {mapping[name]!r} holds dates ({text!r})",
                where=f"{intake.paths[0]}:2",
                remedy=f"give {way}",
            )
        if unit == "iso" and times.looks_like_a_date(text) and not times.is_iso(text):
            raise InputError(
                f"column {mapping[name]!r} holds {text!r}, which is not the ISO form",
                where=f"{intake.paths[0]}:2",
                remedy="say how to read it, such as --time-unit '%d/%m/%Y' (day first) or '%m/%d/%Y' (month first)",
            )


def _fields(mapping: dict[str, str], texts: set[str]) -> list[RecordField]:
    fields = []
    for name, column in mapping.items():
        if name in TIMES:
            spec = ColumnRule(name, str if name in texts else float, required=name == "arrival")
        elif name == "duration":
            spec = ColumnRule(name, float)
        elif name.startswith(DEMAND):
            spec = ColumnRule(name, float, low=0)
        elif name in ("batch", "priority"):
            spec = ColumnRule(name, int, required=False)
        else:
            spec = ColumnRule(name, str, required=False)
        fields.append(RecordField(spec, (column,)))
    return fields


def _read(intake: Intake, path: Path, mapping: dict[str, str], unit: str, separator: str) -> pl.DataFrame:
    """Return the rows of one file, times and durations in seconds, null where a time is not told."""
    texts = set() if unit in UNITS else set(TIMES)
    ready: set[str] = set()  # columns of a type that has its own unit
    if _is_parquet(path):
        schema = _schema(path)
        ready = {n for n, c in mapping.items() if c in schema and schema[c].is_temporal()}
        texts = {n for n in texts if schema.get(mapping.get(n, ""), pl.Null()) == pl.String}
    jobs = read_records(intake, path, _fields(mapping, texts), separator, NOTHING)
    for name in (n for n in (*TIMES, "duration") if n in mapping and n not in ready):
        if jobs[name].dtype == pl.String:
            time = times.seconds(name, unit)
            bad = pl.col(name).is_not_null() & time.is_null()
            jobs = intake.bad.screen(jobs, bad, f"not a time of the form {unit!r} (column {mapping[name]!r})", path)
            if unit == "iso" and jobs.height and not jobs.select(times.has_offset(name).all()).item():
                note = "times without an offset are read as UTC"
                intake.notes += [note] if note not in intake.notes else []
            jobs = jobs.with_columns(time.alias(name))
        else:
            jobs = jobs.with_columns(pl.col(name) * UNITS.get(unit, 1.0))
    return jobs


def _jobs(intake: Intake, mapping: dict[str, str], unit: str, separator: str) -> Iterator[pl.DataFrame]:
    running: list[pl.DataFrame] = []
    last = float("-inf")
    for path in intake.paths:
        jobs = _read(intake, path, mapping, unit, separator)
        if "start" in mapping:
            jobs = intake.leave_out(jobs, pl.col("start").is_null(), "jobs that never started")
        start = pl.col("start" if "start" in mapping else "arrival")
        if "duration" in mapping:
            jobs = intake.bad.screen(jobs, pl.col("duration") < 0, "negative duration", path)
            jobs = intake.bad.screen(jobs, pl.col("duration") == 0, "duration of zero", path)
        else:
            jobs = intake.bad.screen(jobs, pl.col("end") < start, "finish before start", path)
            jobs = intake.bad.screen(jobs, pl.col("end") == start, "duration of zero", path)
            jobs = jobs.with_columns((pl.col("end") - start).alias("duration"))
        if "id" in mapping:
            jobs = intake.without_duplicates(jobs, "id", path)
        if "censored" in mapping:
            seen = pl.col("censored").str.to_lowercase().is_in(["true", "1", "yes", "t", "y"]).fill_null(False)
            jobs = jobs.with_columns(seen.alias("censored"))
        elif "end" in mapping and "duration" not in mapping:
            jobs = jobs.with_columns(censored=pl.lit(False))
        times_here = [pl.col(name).max() for name in TIMES if name in mapping]
        if jobs.height:
            last = max(last, jobs.select(pl.max_horizontal(times_here)).item())
        open_end = pl.col("duration").is_null()
        running.append(jobs.filter(open_end))
        yield _without_censored(intake, jobs.filter(~open_end))
    yield _unfinished(intake, pl.concat(running), mapping, last)


def _without_censored(intake: Intake, jobs: pl.DataFrame) -> pl.DataFrame:
    if intake.keep or "censored" not in jobs.columns:
        return jobs
    return intake.leave_out(jobs, pl.col("censored"), "jobs not seen to their end")


def _unfinished(intake: Intake, jobs: pl.DataFrame, mapping: dict[str, str], last: float) -> pl.DataFrame:
    """Return the jobs with no end: they run until the last moment of the table, and longer."""
    if not jobs.height:
        return jobs
    start = pl.col("start" if "start" in mapping else "arrival")
    jobs = jobs.with_columns((last - start).alias("duration"), censored=pl.lit(True))
    jobs = _without_censored(intake, jobs)
    jobs = intake.leave_out(jobs, pl.col("duration") <= 0, "jobs that began at the last moment of the table")
    if jobs.height:
        intake.notes.append(
            f"{jobs.height:,} jobs have no end: read as still running at the last moment of the table (censored);"
            " --interrupted drop leaves them out"
        )
    return jobs


def read(intake: Intake) -> Reading:
    for path in intake.paths:
        if path.is_dir():
            raise InputError("is a directory", where=str(path), remedy="name the files in it")
    unit = str(intake.options.get("time_unit", "s"))
    if unit not in UNITS and unit != "iso" and "%" not in unit:
        raise InputError(f"{unit!r} is no unit of time", remedy=f"use one of {', '.join(UNITS)}, {times.FORMATS}")
    separator = str(intake.options.get("separator", ","))
    separator = "\t" if separator in ("tab", "\\t") else separator
    if len(separator) != 1 or separator in '"\r\n':
        raise InputError(f"{separator!r} is no separator", where="separator", remedy="use one character, or tab")
    names, row = _peek(intake.paths[0], intake, separator)
    mapping = _mapping(intake, names, separator)
    _check_dates(intake, mapping, row, unit)
    resources = tuple(name.removeprefix(DEMAND) for name in mapping if name.startswith(DEMAND))
    meta = TraceMeta(
        source=plain_suffix(intake.paths[0]).lstrip(".") or "csv",
        resources=resources,
        units=dict.fromkeys(resources, UNKNOWN_UNIT),
        clock="the source's own clock" if unit in UNITS else "Unix time",
    )
    return Reading(meta, _jobs(intake, mapping, unit, separator))


OPTIONS = ("map", "time_unit")
FORMATS = [
    Format("csv", "CSV with a header, its columns named by --map", read, options=(*OPTIONS, "separator")),
    Format("parquet", "Parquet, its columns named by --map", read, options=OPTIONS),
]

"""Named records, whatever the container: CSV with a header, JSON lines or Parquet, plain or gzip.

A field may go by several names; a dotted one reaches into a JSON object or a Parquet struct
(`resource_request.cpus`), and in a CSV header stands as it is or with `_` for the dot.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Intake
from slotwise.workloads.traces.tables import ColumnRule, blocks, header_of

JSON_NAMES = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class RecordField:
    """A column under any of `names`; `present` False: a file may do without it."""

    column: ColumnRule
    names: tuple[str, ...]
    present: bool = True


def plain_suffix(path: Path) -> str:
    """Return the suffix under a .gz."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def read_records(
    intake: Intake, path: Path, fields: Sequence[RecordField], separator: str = ",", null_values: Sequence[str] = ()
) -> pl.DataFrame:
    """Return the fields of every record of `path`, typed and checked, with a column `line` (a row number in Parquet).

    A field that is absent from the whole file (and may be) gives a column of nulls.
    """
    suffix = plain_suffix(path)
    if suffix == ".parquet":
        frame = _from_parquet(intake, path, fields)
    elif suffix in JSON_NAMES:
        frame = _from_json(intake, path, fields)
    else:
        frame = _from_csv(intake, path, fields, separator, null_values)
    return frame


def _pick(names: Sequence[str], field: RecordField, path: Path) -> str | None:
    spelt = {name: name for name in names}
    for name in names:
        spelt.setdefault(name.replace(".", "_"), name)
    for name in field.names:
        if (found := spelt.get(name) or spelt.get(name.replace(".", "_"))) is not None:
            return found
    if field.present:
        raise InputError(
            f"has no column {field.names[0]!r}", where=str(path), remedy=f"its columns are {', '.join(names[:30])}"
        )
    return None


def _from_csv(
    intake: Intake, path: Path, fields: Sequence[RecordField], separator: str, null_values: Sequence[str]
) -> pl.DataFrame:
    first = next(blocks(path, intake.bad, size=1 << 16), None)
    if first is None:
        return _empty(fields)
    names = header_of(first[1], separator)
    chosen = [(field.column, _pick(names, field, path)) for field in fields]
    columns = [ColumnRule(name, c.kind, c.required, c.low, c.few) for c, name in chosen if name is not None]
    frame = intake.table(path, columns, header=True, separator=separator, null_values=null_values)
    return frame.select(
        "line",
        *(pl.col(n).alias(c.name) if n is not None else pl.lit(None, c.dtype).alias(c.name) for c, n in chosen),
    )


def _from_parquet(intake: Intake, path: Path, fields: Sequence[RecordField]) -> pl.DataFrame:
    try:
        lazy = pl.scan_parquet(path)
        schema = lazy.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise InputError(f"is not a Parquet file ({str(problem).splitlines()[0]})", where=str(path)) from problem
    names = dict(_flat(dict(schema)))
    picked = [(field.column, _pick(list(names), field, path)) for field in fields]
    frame = lazy.select(
        (names[name] if name is not None else pl.lit(None)).alias(column.name) for column, name in picked
    ).collect()
    frame = frame.with_row_index("line")
    intake.rows += frame.height
    intake.advance(path.stat().st_size)
    for column, _ in picked:
        frame = _typed(intake, frame, column, path)
    return frame


def _flat(schema: dict[str, Any], prefix: str = "", at: pl.Expr | None = None) -> list[tuple[str, pl.Expr]]:
    out: list[tuple[str, pl.Expr]] = []
    for name, dtype in schema.items():
        here = at.struct.field(name) if at is not None else pl.col(name)
        if isinstance(dtype, pl.Struct):
            out += _flat({f.name: f.dtype for f in dtype.fields}, f"{prefix}{name}.", here)
        else:
            out.append((prefix + name, here))
    return out


def _typed(intake: Intake, frame: pl.DataFrame, column: ColumnRule, path: Path) -> pl.DataFrame:
    """Return `frame` with one column cast to its type. A value that does not cast, or is out of range, is a bad
    row."""
    values = pl.col(column.name)
    if isinstance(frame[column.name].dtype, (pl.Datetime, pl.Date)):
        cast = values.dt.epoch("us") / 1e6
    elif isinstance(frame[column.name].dtype, pl.Duration):
        cast = values.dt.total_microseconds() / 1e6
    else:
        cast = values.cast(column.dtype, strict=False)
    lost = cast.is_null() & values.is_not_null()
    frame = intake.bad.screen(frame, lost, f"text in a number (column {column.name!r})", path)
    if column.required:
        frame = intake.bad.screen(frame, values.is_null(), f"missing value (column {column.name!r})", path)
    frame = frame.with_columns(cast.alias(column.name))
    if column.kind is float:
        frame = intake.bad.screen(
            frame, ~values.is_finite(), f"number is not finite (column {column.name!r})", path
        )
    if column.low is not None:
        frame = intake.bad.screen(frame, values < column.low, f"number is too small (column {column.name!r})", path)
    return frame


def _reach(record: Any, name: str) -> Any:
    if isinstance(record, dict) and name in record:
        return record[name]
    for part in name.split("."):
        if not isinstance(record, dict):
            return None
        record = record.get(part)
    return record


def _from_json(intake: Intake, path: Path, fields: Sequence[RecordField]) -> pl.DataFrame:
    lines: list[int] = []
    values: list[list[Any]] = [[] for _ in fields]
    for first, block in blocks(path, intake.bad, intake.advance):
        for number, raw in enumerate(block.split(b"\n"), start=first):
            if not raw.strip():
                continue
            intake.rows += 1
            row = _record(intake, raw, number, path, fields)
            if row is not None:
                lines.append(number)
                for store, value in zip(values, row, strict=True):
                    store.append(value)
    data = {
        field.column.name: pl.Series(field.column.name, store, dtype=field.column.dtype)
        for field, store in zip(fields, values, strict=True)
    }
    return pl.DataFrame({"line": pl.Series("line", lines, dtype=pl.get_index_type()), **data})


def _record(intake: Intake, raw: bytes, number: int, path: Path, fields: Sequence[RecordField]) -> list[Any] | None:
    try:
        record = json.loads(raw)
    except ValueError as problem:
        intake.bad.found("broken JSON", path, number, str(problem))
        return None
    if not isinstance(record, dict):
        intake.bad.found("broken JSON", path, number, "the line is no object")
        return None
    row = []
    for field in fields:
        found = next((v for name in field.names if (v := _reach(record, name)) is not None), None)
        text = "" if found is None else str(found)
        if fault := field.column.fault(text):
            intake.bad.found(fault[0], path, number, fault[1])
            return None
        row.append(field.column.convert(text))
    return row


def _empty(fields: Sequence[RecordField]) -> pl.DataFrame:
    schema: dict[str, Any] = {"line": pl.get_index_type(), **{f.column.name: f.column.dtype for f in fields}}
    return pl.DataFrame(schema=schema)

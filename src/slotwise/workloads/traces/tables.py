"""Text tables, read in blocks: fast where they are clean, exact about the line where they are not.

A block of some 32 MB ends at a line's end. Polars parses it whole; only a block that it refuses, or that breaks a rule
of its columns, is read again line by line to say which line is wrong and why. So memory does not grow with the file,
and good error messages cost no time on good files.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import polars as pl

from slotwise.errors import InputError

BLOCK = 32 << 20
GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
CUT = ("truncated gzip", "damaged gzip")
READ_ON = "give --skip-bad to count and skip such rows"


class BadRowError(InputError):
    """A row that is refused, where reading on without it is possible."""


class BadRows:
    """What to do with a bad row: refuse the import (the default), or count it by kind and read on.

    With `most`, files are read up to so many bytes: enough to see whether anything good is in them.
    """

    def __init__(self, skip: bool = False, most: int | None = None) -> None:
        self.skip = skip
        self.most = most
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def found(self, kind: str, path: str | Path, line: int | None = None, detail: str = "", count: int = 1) -> None:
        where = f"{path}:{line}" if line is not None else str(path)
        what = f"{kind} ({detail})" if detail else kind
        if not self.skip:
            raise BadRowError(what, where=where, remedy=READ_ON)
        self.counts[kind] += count
        self.first.setdefault(kind, f"{where}: {what}")

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def screen(
        self, frame: pl.DataFrame, bad: pl.Expr, kind: str, path: str | Path | Sequence[Path], unit: str = "line"
    ) -> pl.DataFrame:
        """Return `frame` without the rows where `bad` holds. Each of them is reported at its `line` (and `file`)."""
        mask = frame.select(bad.fill_null(False).alias("bad"))["bad"]
        if not (count := int(mask.sum())):
            return frame
        row = frame.row(int(mask.arg_max() or 0), named=True)
        where = path if isinstance(path, (str, Path)) else path[row["file"]]
        self.found(kind, where, row[unit], count=count)
        return frame.filter(~mask)


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """One column of a text table. `kind` is int, float or str; a number may have a least value `low`.

    A text of which there are `few` different ones is kept as a category, 4 bytes a row.
    """

    name: str
    kind: type
    required: bool = True
    low: float | None = None
    few: bool = False

    @property
    def dtype(self) -> pl.DataType:
        if self.few:
            return pl.Categorical()
        return {int: pl.Int64(), float: pl.Float64(), str: pl.String()}[self.kind]

    def fault(self, text: str) -> tuple[str, str] | None:
        """(kind, detail) of what is wrong with this field, None for a good one."""
        if text == "":
            return ("missing value", f"column {self.name!r} is empty") if self.required else None
        if self.kind is str:
            return None
        try:
            value = self.convert(text)
        except ValueError:
            return "text in a number", f"column {self.name!r} holds {text[:40]!r}"
        if self.kind is float and not math.isfinite(value):
            return "number is not finite", f"column {self.name!r} holds {text[:40]!r}"
        if self.kind is int and abs(value) >= 2**63:
            return "number is too large", f"column {self.name!r} holds {text[:40]!r}"
        if self.low is not None and value < self.low:
            return "number is too small", f"column {self.name!r} holds {text[:40]!r}, least is {self.low:g}"
        return None

    def convert(self, text: str) -> Any:
        if self.kind is str:
            return text or None
        if text == "":
            return None
        if "_" in text:  # Python would read 1_000 as a number
            raise ValueError(text)
        return self.kind(text)


def _inflate(raw: IO[bytes], path: Path, bad: BadRows, advance: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the bytes of a gzip file (of any number of members). A file cut short is a bad row at its end."""
    unpack = zlib.decompressobj(31)
    started = False
    try:
        while piece := raw.read(1 << 22):
            advance(len(piece))
            while piece:
                started = True
                yield unpack.decompress(piece, BLOCK)
                if unpack.eof:
                    piece = unpack.unused_data.lstrip(b"\0")  # some tools pad with zeros
                    unpack = zlib.decompressobj(31)
                    started = bool(piece)
                else:
                    piece = unpack.unconsumed_tail
    except zlib.error as problem:
        bad.found("damaged gzip", path, detail=str(problem))
        return
    if started:
        bad.found("truncated gzip", path, detail="the compressed file ends in the middle")


def _plain(raw: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    while piece := raw.read(1 << 22):
        advance(len(piece))
        yield piece


def _first(pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield whole lines of the first `most` bytes."""
    held = b""
    for piece in pieces:
        held += piece
        if len(held) >= most:
            yield held[: held.rfind(b"\n", 0, most) + 1 or most]
            return
    yield held


def blocks(
    path: Path, bad: BadRows, advance: Callable[[int], None] = lambda _: None, size: int = BLOCK
) -> Iterator[tuple[int, bytes]]:
    """(number of its first line, bytes) for blocks of whole lines of a file, gzip or not."""
    line = 1
    seen = False
    held: list[bytes] = []
    cuts = sum(bad.counts[kind] for kind in CUT)
    try:
        with path.open("rb") as raw:
            packed = (head := raw.read(3))[:2] == GZIP_MAGIC
            raw.seek(len(BOM) if head == BOM else 0)
            length = 0
            pieces = _inflate(raw, path, bad, advance) if packed else _plain(raw, advance)
            for piece in pieces if bad.most is None else _first(pieces, bad.most):
                held.append(piece)
                length += len(piece)
                if length >= size:
                    data = b"".join(held)
                    if cut := data.rfind(b"\n") + 1:
                        seen = True
                        yield line, data[:cut]
                        line += data.count(b"\n", 0, cut)
                        data = data[cut:]
                    held = [data]
                    length = len(data)
    except OSError as problem:
        raise InputError(f"cannot be read ({problem.strerror or problem})", where=str(path)) from problem
    if rest := b"".join(held):
        seen = True
        # A last line without its end is a whole line in a whole file, and a torn one in a truncated file.
        torn = sum(bad.counts[kind] for kind in CUT) > cuts
        yield line, rest[: rest.rfind(b"\n") + 1] if torn else rest
    if not seen:
        bad.found("empty file", path)


def fields_of(line: str, separator: str) -> list[str]:
    """Return the fields of one line; a line that cannot be taken apart is one field."""
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return [line]


def header_of(block: bytes, separator: str = ",") -> list[str]:
    """Return the names in the first line of a block."""
    first = block.split(b"\n", 1)[0].decode("utf-8-sig", "replace").rstrip("\r")
    return [name.strip() for name in fields_of(first, separator)]


def without_first_line(block: bytes) -> bytes:
    return block[block.find(b"\n") + 1 :] if b"\n" in block else b""


def parse(
    block: bytes,
    first_line: int,
    columns: Sequence[ColumnRule],
    path: Path,
    bad: BadRows,
    *,
    layout: Sequence[str] | None = None,
    separator: str = ",",
    null_values: Sequence[str] = (),
) -> pl.DataFrame:
    """Return the named columns of one block, typed and checked, with a column `line`.

    `layout` names every column of the file in order (by default: just `columns`); those without a `ColumnRule` are not
    read, but counted: a line with more or fewer fields than the layout is bad.
    """
    names = list(layout) if layout is not None else [column.name for column in columns]
    frame = _fast(block, first_line, columns, names, separator, null_values)
    return (
        frame if frame is not None else _slow(block, first_line, columns, names, path, bad, separator, null_values)
    )


def _fast(
    block: bytes,
    first_line: int,
    columns: Sequence[ColumnRule],
    names: list[str],
    separator: str,
    null_values: Sequence[str],
) -> pl.DataFrame | None:
    if b"\r" in block[:4096] or b'"' in block:  # quotes let a line be split in ways that only the slow path tells
        return None
    by_name = {column.name: column for column in columns}
    schema = {f"c{i}": by_name[name].dtype if name in by_name else pl.String() for i, name in enumerate(names)}
    last = len(names) - 1
    try:
        frame = pl.read_csv(
            block,
            has_header=False,
            separator=separator,
            schema=schema,
            columns=sorted({last, *(names.index(column.name) for column in columns)}),
            null_values=list(null_values) or None,
            quote_char=None,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    # Polars pads a short line with nulls in silence. Where the last column has some, count the separators.
    if frame[f"c{last}"].null_count() and block.count(separator.encode()) != last * frame.height:
        return None
    frame = frame.rename({f"c{i}": name for i, name in enumerate(names) if name in by_name})
    for column in columns:
        values = frame[column.name]
        if column.required and values.null_count():
            return None
        if column.kind is float and not (values.is_finite() | values.is_null()).all():
            return None
        if column.low is not None and (least := values.min()) is not None and least < column.low:  # type: ignore[operator]
            return None
    return frame.select(column.name for column in columns).with_row_index("line", offset=first_line)


def _slow(
    block: bytes,
    first_line: int,
    columns: Sequence[ColumnRule],
    names: list[str],
    path: Path,
    bad: BadRows,
    separator: str,
    null_values: Sequence[str],
) -> pl.DataFrame:
    places = [names.index(column.name) for column in columns]
    empty = set(null_values)
    lines: list[int] = []
    values: list[list[Any]] = [[] for _ in columns]
    for number, raw in enumerate(block.split(b"\n"), start=first_line):
        text = raw.decode("utf-8", "replace").rstrip("\r")
        if not text.strip():
            continue
        fields = fields_of(text, separator)
        if len(fields) != len(names):
            bad.found("wrong column count", path, number, f"{len(fields)} columns, not {len(names)}")
            continue
        texts = ["" if fields[place].strip() in empty else fields[place].strip() for place in places]
        faults = (column.fault(item) for column, item in zip(columns, texts, strict=True))
        if fault := next((f for f in faults if f), None):
            bad.found(fault[0], path, number, fault[1])
            continue
        lines.append(number)
        for store, column, item in zip(values, columns, texts, strict=True):
            store.append(column.convert(item))
    data = {c.name: pl.Series(c.name, v, dtype=c.dtype) for c, v in zip(columns, values, strict=True)}
    return pl.DataFrame({"line": pl.Series("line", lines, dtype=pl.get_index_type()), **data})

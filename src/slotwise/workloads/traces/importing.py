"""Bringing a trace in: the source's files, what to do with bad rows, and the jobs in the order of their arrival.

An importer is a function from an `Intake` (files, options, a place to report to) to a `Reading`. A `Reading` has the
metadata and an iterator of tables of jobs, in any order, with arrivals on the source's clock. This module sorts them,
moves the first arrival to 0 and writes the file. Tables beyond `SPILL` jobs wait on disk and are merged by ranges of
arrival times, so that memory does not grow with the trace.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from slotwise.errors import InputError
from slotwise.files import told, whole
from slotwise.workloads.traces.estimates import Estimates
from slotwise.workloads.traces.schema import METADATA_KEY, Trace, TraceMeta, fault_of, tidy
from slotwise.workloads.traces.tables import (
    BadRowError,
    BadRows,
    ColumnRule,
    blocks,
    header_of,
    parse,
    without_first_line,
)

SPILL = 500_000  # jobs kept in memory, some 50 MB
RANGE = 500_000  # jobs merged at once


@dataclass
class Intake:
    """What an importer works on: its files and options in, its counts out."""

    paths: list[Path]
    bad: BadRows = field(default_factory=BadRows)
    interrupted: str = "keep"
    options: Mapping[str, Any] = field(default_factory=dict)
    advance: Callable[[int], None] = lambda _: None
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    """what the user should know of how the files were read"""
    ids: pl.DataFrame | None = None

    @property
    def keep(self) -> bool:
        """Whether jobs that were not seen to their natural end are kept (as censored ones)."""
        return self.interrupted == "keep"

    def leave_out(self, frame: pl.DataFrame, where: pl.Expr, reason: str) -> pl.DataFrame:
        """Return `frame` without the rows where `where` holds: good data, but no job of this trace; counted by
        reason."""
        mask = frame.select(where.fill_null(False).alias("out"))["out"]
        if count := int(mask.sum()):
            self.left_out[reason] += count
            return frame.filter(~mask)
        return frame

    def table(
        self,
        path: Path,
        columns: Sequence[ColumnRule],
        *,
        layout: Sequence[str] | None = None,
        header: bool | None = False,
        separator: str = ",",
        null_values: Sequence[str] = (),
    ) -> pl.DataFrame:
        """Return a whole text table. `header` None: a first line whose first number is no number is a header."""
        frames = []
        for line, block in blocks(path, self.bad, self.advance):
            if line == 1 and (header or (header is None and _looks_like_header(block, columns, layout, separator))):
                if header:
                    layout = header_of(block, separator)
                    for column in columns:
                        if column.name not in layout:
                            raise InputError(
                                f"has no column {column.name!r}",
                                where=f"{path}:1",
                                remedy=f"its columns are {', '.join(layout[:30])}",
                            )
                block, line = without_first_line(block), 2
                if not block:
                    continue
            bad = self.bad.total
            frames.append(
                parse(
                    block,
                    line,
                    columns,
                    path,
                    self.bad,
                    layout=layout,
                    separator=separator,
                    null_values=null_values,
                )
            )
            self.rows += frames[-1].height + self.bad.total - bad
        if frames:
            return pl.concat(frames)
        empty: dict[str, Any] = {"line": pl.get_index_type(), **{c.name: c.dtype for c in columns}}
        return pl.DataFrame(schema=empty)

    def without_duplicates(self, frame: pl.DataFrame, key: str | list[str], path: Path) -> pl.DataFrame:
        """Return `frame` with the first row of every id. Each later one, in this file or the next, is a bad row."""
        names = [key] if isinstance(key, str) else key
        kind = f"duplicate id in {' and '.join(names)}"
        again = ~pl.struct(names).is_first_distinct() if len(names) > 1 else ~pl.col(names[0]).is_first_distinct()
        frame = self.bad.screen(frame, again, kind, path)
        if self.ids is not None:
            known = frame.join(self.ids, on=names, how="left", maintain_order="left", nulls_equal=True)
            frame = self.bad.screen(known, pl.col("known"), kind, path).drop("known")
        if len(self.paths) > 1:
            ids = frame.select(*names, pl.lit(True).alias("known"))
            self.ids = ids if self.ids is None else pl.concat([self.ids, ids])
        return frame


def _looks_like_header(
    block: bytes, columns: Sequence[ColumnRule], layout: Sequence[str] | None, separator: str
) -> bool:
    names = list(layout) if layout is not None else [column.name for column in columns]
    fields = header_of(block, separator)
    number = next(column for column in columns if column.kind is not str)
    place = names.index(number.name)
    return (
        place < len(fields)
        and fields[place] != ""
        and number.fault(fields[place]) is not None
        and any(character.isalpha() for character in fields[place])
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """What an importer makes of its files: jobs in tables of any order, arrivals on the source's clock."""

    meta: TraceMeta
    chunks: Iterator[pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Format:
    """A format by name: what it is, its reader, and what it does with unfinished jobs unless told otherwise."""

    name: str
    about: str
    read: Callable[[Intake], Reading]
    interrupted: str = "keep"
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Everything that went in, and where each row went."""

    format: str
    rows: int
    jobs: int
    skipped: dict[str, int]
    first_skipped: dict[str, str]
    left_out: dict[str, int]
    seconds: float
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return lines for people. If a row is a job, the counts of the first line add up."""
        out, bad = sum(self.left_out.values()), sum(self.skipped.values())
        first = f"{self.rows:,} rows read, {self.jobs:,} jobs kept"
        if out + bad and self.rows == self.jobs + out + bad:
            first = f"{self.rows:,} rows read: {self.jobs:,} jobs kept, {out:,} left out, {bad:,} skipped as bad"
        return [first, *self._reasons(), *(f"note: {note}" for note in self.notes)]

    def _reasons(self) -> list[str]:
        out = []
        out += [f"left out: {count:,} {reason}" for reason, count in sorted(self.left_out.items())]
        for kind, count in sorted(self.skipped.items()):
            out.append(f"skipped as bad: {count:,} {kind} (first: {self.first_skipped[kind]})")
        return out


class Spool:
    """Jobs on their way to the order of arrival; beyond `spill` of them, on disk."""

    def __init__(self, spill: int = SPILL) -> None:
        self.spill = spill
        self.jobs = 0
        self.held: list[pl.DataFrame] = []
        self.held_jobs = 0
        self.origin = np.inf
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.files: list[Path] = []
        self.arrivals: list[pl.Series] = []

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder is not None:
            self.folder.cleanup()

    def add(self, chunk: pl.DataFrame) -> None:
        if not chunk.height:
            return
        self.jobs += chunk.height
        self.held.append(chunk)
        self.held_jobs += chunk.height
        self.origin = min(self.origin, float(chunk["arrival"].min()))  # type: ignore[arg-type]
        if self.held_jobs >= self.spill:
            self._to_disk()

    def _sorted(self) -> pl.DataFrame:
        return pl.concat(self.held).sort("arrival", maintain_order=True)

    def _to_disk(self) -> None:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="slotwise-")
        frame = self._sorted()
        self.files.append(Path(self.folder.name) / f"{len(self.files):06}.parquet")
        with told(self.files[-1]):
            frame.write_parquet(self.files[-1], compression="lz4", row_group_size=1 << 16)
        self.arrivals.append(frame["arrival"])
        self.held, self.held_jobs = [], 0

    def sorted_frames(self) -> Iterator[pl.DataFrame]:
        """Yield all jobs in the order of arrival (then of the source), the first arrival at 0."""
        moved = pl.col("arrival") - self.origin
        if not self.files:
            if self.held:
                yield self._sorted().with_columns(moved)
            return
        if self.held:
            self._to_disk()
        arrivals = pl.concat(self.arrivals).sort()
        self.arrivals = []
        cuts = [-np.inf, *sorted(set(arrivals[RANGE::RANGE].to_list())), np.inf]
        spooled = [pl.scan_parquet(path) for path in self.files]
        for low, high in pairwise(cuts):
            inside = (pl.col("arrival") >= low) & (pl.col("arrival") < high)
            parts = pl.collect_all([part.filter(inside) for part in spooled])
            yield pl.concat(parts).sort("arrival", maintain_order=True).with_columns(moved)


def size_of(paths: Sequence[Path]) -> int:
    """Return the bytes in files and directories, for a progress bar."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def _prepare(
    form: Format,
    paths: Sequence[str | Path],
    skip_bad: bool,
    interrupted: str | None,
    options: Mapping[str, Any],
    advance: Callable[[int], None] | None,
) -> Intake:
    files = [Path(path) for path in paths]
    if not files:
        raise InputError("no files given", remedy=f"name the {form.name} files or their directory")
    for path in files:
        if not path.exists():
            raise InputError("is not there", where=str(path))
    if len({path.resolve() for path in files}) < len(files):
        twice = next(path for path in files if sum(path.resolve() == other.resolve() for other in files) > 1)
        raise InputError("is given twice", where=str(twice))
    if interrupted not in (None, "keep", "drop"):
        raise InputError(f"{interrupted!r} is no way to treat interrupted jobs", remedy="use keep or drop")
    if unknown := [name for name in options if name not in form.options]:
        raise InputError(
            f"the format {form.name} has no option {unknown[0]!r}",
            remedy=f"it has {', '.join(form.options)}" if form.options else "it has none",
        )
    intake = Intake(files, BadRows(skip_bad), interrupted or form.interrupted, options)
    if advance is not None:
        intake.advance = advance
    return intake


def _finish(form: Format, intake: Intake, jobs: int, start: float) -> ImportReport:
    if not jobs:
        reasons = ", ".join(f"{n:,} {r}" for r, n in [*intake.left_out.items(), *intake.bad.counts.items()])
        raise InputError(
            f"no job found in {intake.rows:,} rows" + (f" ({reasons})" if reasons else ""),
            where=str(intake.paths[0]),
            remedy=f"check that this is the format {form.name}",
        )
    return ImportReport(
        form.name,
        intake.rows,
        jobs,
        dict(intake.bad.counts),
        dict(intake.bad.first),
        dict(intake.left_out),
        time.perf_counter() - start,
        tuple(intake.notes),
    )


def run_import(
    form: Format,
    paths: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    skip_bad: bool = False,
    interrupted: str | None = None,
    options: Mapping[str, Any] | None = None,
    advance: Callable[[int], None] | None = None,
    spill: int = SPILL,
) -> tuple[Trace | None, ImportReport]:
    """Read `paths` as `form`. With `out`, the trace goes straight to that file, in memory that does not grow with
    its length, and only the report comes back; without, the trace comes back."""
    start = time.perf_counter()
    intake = _prepare(form, paths, skip_bad, interrupted, options or {}, advance)
    if out is not None and any(_is_same(path, Path(out)) for path in intake.paths):
        raise InputError("is also what is read", where=f"-o {out}", remedy="give another file")
    try:
        return _run(form, intake, Path(paths[0]).stem, out, start, spill)
    except BadRowError as problem:
        if _anything_good(form, intake):
            raise
        raise InputError(
            problem.what,
            where=problem.where,
            remedy=f"no row can be read: check that this is the format {form.name}",
        ) from problem


LOOK = 4 << 20  # bytes of each file in which a good row is looked for before --skip-bad is advised


def _anything_good(form: Format, intake: Intake) -> bool:
    """Return whether --skip-bad would leave a job, as far as the beginnings of the files say."""
    look = Intake(intake.paths, BadRows(True, LOOK), intake.interrupted, intake.options)
    try:
        return any(chunk.height for chunk in form.read(look).chunks)
    except InputError:
        return False


def _is_same(path: Path, out: Path) -> bool:
    if path.is_dir():
        return out.exists() and path.resolve() in out.resolve().parents
    return path.resolve() == out.resolve()


def _run(
    form: Format, intake: Intake, name: str, out: str | Path | None, start: float, spill: int
) -> tuple[Trace | None, ImportReport]:
    reading = form.read(intake)
    resources = reading.meta.resources
    estimates = Estimates()
    with Spool(spill if out is not None else 1 << 62) as spool:
        for chunk in reading.chunks:
            jobs = tidy(chunk, resources)
            if fault := fault_of(jobs, resources, in_order=False):
                raise InputError(fault, where=str(intake.paths[0]))
            estimates.add(jobs)
            spool.add(jobs)
        intake.notes += estimates.notes()
        report = _finish(form, intake, spool.jobs, start)
        meta = replace(
            reading.meta,
            origin=reading.meta.origin + spool.origin,
            notes=(*reading.meta.notes, *intake.notes),
        )
        if out is None:
            return Trace(pl.concat(spool.sorted_frames()), meta, name), report
        _write(spool, meta, Path(out))
    return None, replace(report, seconds=time.perf_counter() - start)


def _write(spool: Spool, meta: TraceMeta, out: Path) -> None:
    schema = (spool.held[0] if spool.held else pl.read_parquet(spool.files[0], n_rows=0)).schema

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch: int | None
    ) -> Iterator[pl.DataFrame]:
        for frame in spool.sorted_frames():
            yield frame if columns is None else frame.select(columns)

    with whole(out) as place:
        register_io_source(source, schema=dict(schema)).sink_parquet(
            place, metadata={METADATA_KEY: meta.to_json()}, row_group_size=1 << 18
        )

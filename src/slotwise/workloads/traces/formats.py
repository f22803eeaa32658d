"""Every format by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slotwise.errors import InputError
from slotwise.workloads.traces import (
    alibaba,
    azure,
    columns,
    google2011,
    google2019,
    journal,
    kubernetes,
    slurm,
    swf,
)
from slotwise.workloads.traces.importing import Format, ImportReport, run_import
from slotwise.workloads.traces.schema import Trace

FORMATS: dict[str, Format] = {
    form.name: form
    for form in [
        google2011.FORMAT,
        google2019.FORMAT,
        *azure.FORMATS,
        *alibaba.FORMATS,
        swf.FORMAT,
        slurm.FORMAT,
        kubernetes.FORMAT,
        journal.FORMAT,
        *columns.FORMATS,
    ]
}


def format_named(name: str) -> Format:
    if name not in FORMATS:
        raise InputError(f"unknown trace format {name!r}", remedy=f"use one of {', '.join(FORMATS)}")
    return FORMATS[name]


def import_trace(
    format: str,  # noqa: A002 - the word of the command line
    paths: Sequence[str | Path],
    *,
    skip_bad: bool = False,
    interrupted: str | None = None,
    options: Mapping[str, Any] | None = None,
    advance: Callable[[int], None] | None = None,
) -> tuple[Trace, ImportReport]:
    """Read a trace in one of `FORMATS` into memory. `advance` hears of every byte read (compressed ones)."""
    trace, report = run_import(
        format_named(format), paths, skip_bad=skip_bad, interrupted=interrupted, options=options, advance=advance
    )
    assert trace is not None
    return trace, report


def import_to_file(
    format: str,  # noqa: A002
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    skip_bad: bool = False,
    interrupted: str | None = None,
    options: Mapping[str, Any] | None = None,
    advance: Callable[[int], None] | None = None,
) -> ImportReport:
    """Import as `import_trace` does, straight to a Parquet file, in memory that does not grow with the trace."""
    form = format_named(format)
    _, report = run_import(
        form, paths, out=out, skip_bad=skip_bad, interrupted=interrupted, options=options, advance=advance
    )
    return report

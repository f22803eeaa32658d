"""From a `Page` to a folder: index.html that needs nothing else, data/ with CSV and Parquet, manifest.json."""

from __future__ import annotations

import itertools
from pathlib import Path

import jinja2
import polars as pl
from markupsafe import Markup

from slotwise.display.drawing import key_mark
from slotwise.display.numbers import cell
from slotwise.display.palette import label_of
from slotwise.files import filled
from slotwise.report.blocks import ReportPage
from slotwise.report.claims import Standing
from slotwise.report.manifest import Manifest

MARKS = {Standing.HOLDS: "✓", Standing.IN_PART: "◐", Standing.FAILS: "✗", Standing.UNTESTED: "–"}


def write_page(page: ReportPage, folder: Path, manifest: Manifest) -> Path:
    """Write everything and return the path of index.html."""
    with filled(folder) as place:
        (place / "data").mkdir()
        for name, frame in page.data.items():
            _write_data(frame, place / "data" / name)
        manifest.write(place / "manifest.json")
        (place / "index.html").write_text(render(page, manifest), "utf-8")
    return folder / "index.html"


def render(page: ReportPage, manifest: Manifest) -> str:
    """The HTML text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("slotwise.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    numbers = itertools.count(1)
    environment.filters |= {"cell": cell, "label": label_of}
    environment.filters["key"] = lambda policy: Markup(key_mark(policy, f"key{next(numbers)}"))
    tally = {verdict: sum(claim.verdict is verdict for claim in page.claims) for verdict in Standing}
    return environment.get_template("page.html.j2").render(
        page=page,
        manifest=manifest,
        marks=MARKS,
        tally={verdict: count for verdict, count in tally.items() if count},
        markup=Markup,
    )


def _write_data(frame: pl.DataFrame, base: Path) -> None:
    """CSV for people, Parquet for programs; the same bytes for the same figures."""
    flat = frame.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join(" ")
        for name, kind in frame.schema.items()
        if isinstance(kind, pl.List)
    )
    flat.write_csv(base.with_name(base.name + ".csv"))
    frame.write_parquet(base.with_name(base.name + ".parquet"), statistics=False)

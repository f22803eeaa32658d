"""Small tables for notebooks: plain HTML with the few styles that a cell needs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from slotwise.display.numbers import cell, printable
from slotwise.errors import InputError

if TYPE_CHECKING:
    import pandas
    import polars as pl

# dark enough on white and light enough on black
COLOURS = {"good": "#00805c", "bad": "#b8400a", "unsure": "#8a5a00"}
# not every notebook brings its own; figures of neighbouring columns must not touch
PADDING = "padding:.15em .7em .15em 0"


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = (), words: int = 1
) -> str:
    """A table whose first `words` columns are text and whose others are figures; a cell may be (text, kind)."""
    heads = "".join(
        f'<th style="{PADDING};text-align:{_side(n, words)}">{_text(name)}</th>' for n, name in enumerate(columns)
    )
    lines = [
        "<tr>" + "".join(_cell(value, _side(n, words)) for n, value in enumerate(row)) + "</tr>" for row in rows
    ]
    body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>" if columns else ""
    return f"<div><b>{_text(title)}</b>{body}{paragraphs(notes)}</div>"


def paragraphs(lines: Sequence[str]) -> str:
    return "".join(f'<div style="opacity:.8">{_text(line)}</div>' for line in lines)


def _side(n: int, words: int) -> str:
    return "left" if n < words else "right"


def _cell(value: Any, side: str) -> str:
    text, kind = value if isinstance(value, tuple) else (value, "")
    style = f"{PADDING};text-align:{side}" + (f";color:{COLOURS[kind]};font-weight:600" if kind in COLOURS else "")
    return f'<td style="{style}">{_text(cell(text))}</td>'


def _text(text: str) -> str:
    return escape(printable(str(text)))


def to_pandas(frame: pl.DataFrame) -> pandas.DataFrame:
    """The same table for pandas, which is not needed otherwise."""
    try:
        import pandas
    except ImportError:
        raise InputError("pandas is not installed", where="to_pandas", remedy="pip install pandas") from None
    return pandas.DataFrame(frame.to_dict(as_series=False))

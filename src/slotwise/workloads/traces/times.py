"""Times as text: ISO 8601, or a format that the user names. Nothing is guessed.

`01/02/2024` is a day in January or in February, depending on who wrote it, so it is only read where the user says
which: a strptime format such as `%d/%m/%Y`. A time with an offset (`+02:00`) is a moment; one without is read as
UTC.
"""

from __future__ import annotations

import re

import polars as pl

DATE = r"(\d{4}-\d{2}-\d{2})"
CLOCK = r"(?:[T ]+(\d{2}:\d{2})(?::(\d{2}(?:[.,]\d+)?))?)?"
OFFSET = r"\s*(Z|z|UTC|[+-]\d{2}(?::?\d{2})?)?"
ISO = f"^{DATE}{CLOCK}{OFFSET}$"
LIKE_A_DATE = re.compile(r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(\D|$)")
FORMATS = "iso for 2024-01-31T12:00:00, or a format such as '%d/%m/%Y %H:%M'"


def looks_like_a_date(text: str) -> bool:
    """Return whether a field holds a date rather than a number of seconds."""
    return LIKE_A_DATE.match(text.strip().strip('"')) is not None


def is_iso(text: str) -> bool:
    return re.match(ISO, text.strip().strip('"')) is not None


def seconds(column: str, form: str) -> pl.Expr:
    """Return seconds since 1970 of a column of text, null for what is no such time. `form` is `iso` or a strptime
    format."""
    text = pl.col(column).str.strip_chars()
    if form != "iso":
        if "%z" in form:
            return text.str.to_datetime(form, strict=False, time_zone="UTC").dt.epoch("us") / 1e6
        with_clock = any(code in form for code in ("%H", "%I", "%T", "%X", "%R", "%s"))
        if with_clock:
            return text.str.to_datetime(form, strict=False).dt.epoch("us") / 1e6
        return text.str.to_date(form, strict=False).dt.epoch("s").cast(pl.Float64)
    days = text.str.extract(ISO, 1).str.to_date("%Y-%m-%d", strict=False).dt.epoch("s").cast(pl.Float64)
    clock = text.str.extract(ISO, 2).fill_null("00:00")
    hours, minutes = clock.str.slice(0, 2).cast(pl.Int64), clock.str.slice(3, 2).cast(pl.Int64)
    second = text.str.extract(ISO, 3).fill_null("0").str.replace(",", ".", literal=True).cast(pl.Float64)
    zone = text.str.extract(ISO, 4).fill_null("")
    digits = zone.str.replace_all(r"[^0-9]", "").str.pad_end(4, "0")
    off = digits.str.slice(0, 2).cast(pl.Int64) * 3600 + digits.str.slice(2, 2).cast(pl.Int64) * 60
    ahead = pl.when(zone.str.starts_with("-")).then(-off).otherwise(off)
    sane = (hours <= 24) & (minutes < 60) & (second < 61) & (off < 86_400)
    # Whole seconds and their fraction apart, so that each is exact.
    return pl.when(sane).then((days + (hours * 3600 + minutes * 60) - ahead) + second)


def has_offset(column: str) -> pl.Expr:
    return pl.col(column).str.strip_chars().str.extract(ISO, 4).is_not_null()

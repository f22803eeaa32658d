"""Numbers as people read them, the same in tables on the terminal, in notebooks and on report pages."""

from __future__ import annotations

import json
import math
import re
from typing import Any

NONE = "–"  # where there is no figure
LOPSIDED = 0.1  # of half an interval: further off its middle a mean is not said to be ± something


def number(value: float | None, digits: int = 4) -> str:
    """`digits` that matter below a thousand, whole numbers with commas above."""
    if value is None or value != value:
        return NONE
    if value == 0:
        return "0"
    if abs(value) == float("inf"):
        return "unbounded" if value > 0 else "–∞"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}" if size < 1e15 else f"{value:.3g}"
    if size >= 10.0 ** (1 - digits):
        return f"{value:.{digits}g}"
    return f"{value:.2g}" if size >= 1e-4 else f"{value:.1e}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 resource, 2 resources."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def brief(value: float | None) -> str:
    """Three digits that matter: for pages and sentences."""
    return number(value, 3)


def rate(value: float | None) -> str:
    """So many a second: 11 million, 440,000, 21,000, 440. Two digits that matter."""
    if value is None or not math.isfinite(value):
        return NONE
    rounded = float(f"{value:.2g}")
    if rounded >= 1e6:
        return f"{rounded / 1e6:,.1f} million" if rounded < 1e7 else f"{rounded / 1e6:,.0f} million"
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def measured(value: float | None, digits: int = 4) -> str:
    """A wait: infinite where so many still wait that it is not known yet."""
    return "not known" if value == math.inf else number(value, digits)


def cell(value: Any) -> str:
    """Text as it is; numbers with three digits that matter; a dash where there is nothing."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return brief(value)
    return str(value)


def with_band(mean: float | None, low: float | None, high: float | None) -> str:
    """12.3 ± 0.4, or 12.3 [4, 31] where the interval is not symmetric"""
    if mean is None or low is None or high is None or low == high or not math.isfinite(high - low):
        return measured(mean, 3)
    half = (high - low) / 2
    if abs((low + high) / 2 - mean) > LOPSIDED * half:
        return f"{brief(mean)} [{brief(low)}, {brief(high)}]"
    return f"{brief(mean)} ± {brief(half) if half >= 100 else f'{half:.2g}'}"


def printable(text: str) -> str:
    """Return text that is safe to show: control, format and bidi characters are written out, so that they cannot drive a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


# Colours (ESC [ ... m), which stay; and what stays not: control and bidi characters, and bytes that are not UTF-8.
_CONTROL = re.compile(
    r"(\x1b\[[0-9;:]*m)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def terminal_output(piece: bytes) -> bytes:
    """Return output of a job for a terminal. Colours stay; other control sequences, which could drive the terminal, are written out."""
    text = piece.decode("utf-8", "surrogateescape")
    return _CONTROL.sub(lambda found: found[1] or ascii(found[0])[1:-1], text).encode()


def finite(value: Any) -> Any:
    """The same data with None for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_json(value: Any) -> str:
    """How every command prints JSON."""
    return json.dumps(finite(value), indent=2)

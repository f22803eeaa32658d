"""Units of time and of resources: what they are called, and how figures are shown with them.

A scenario counts all its times in one unit, `time_unit`, and each resource in one of its own, `cluster.units`. Both are optional: without
them a figure stands alone.
"""

from __future__ import annotations

import re
from typing import Literal

from slotwise.errors import InputError

TimeUnit = Literal["ms", "s", "min", "h", "d"]
# in one unit of time
SECONDS: dict[str, float] = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_TIME = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]+)\s*")


def time_in(text: str, unit: str | None, *, where: str) -> float:
    """Return a time such as "30min" in `unit`. A plain number is in that unit already."""
    try:
        return float(text)
    except ValueError:
        written = _TIME.fullmatch(text)
    if written is None:
        raise InputError(f"{text!r} is not a number", where=where, remedy="give a limit") from None
    value, own = float(written[1]), written[2]
    if own not in SECONDS:
        raise InputError(
            f"{own!r} is no unit of time", where=where, remedy=f"use one of: {', '.join(SECONDS)}"
        ) from None
    if unit is None:
        raise InputError(
            f"is in {own}, and the scenario does not say its own unit of time",
            where=where,
            remedy='give time_unit = "h", say, at the top of the scenario, or write a plain number',
        ) from None
    return value if own == unit else value * SECONDS[own] / SECONDS[unit]


def with_unit(figure: str, unit: str | None) -> str:
    """Write a number with its unit: 0.5 h."""
    return f"{figure} {unit}" if unit else figure


def labelled(what: str, unit: str | None) -> str:
    """Write a label for heads of columns and for axes: mean wait (h)."""
    return f"{what} ({unit})" if unit else what


def span(figure: str, unit: str | None) -> str:
    """Write a length of time: 64 h, or 64 units of time."""
    return with_unit(figure, unit or "units of time")


def per_time(unit: str | None) -> str:
    """Write the unit of a rate: per h, or per unit of time."""
    return f"per {unit or 'unit of time'}"

"""Numbers as people read them."""

from __future__ import annotations

from typing import Any


def cell(value: Any) -> str:
    """Text as it is; numbers with three or four digits that matter; a dash where there is nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value)
    return str(value)


def number(value: float | None) -> str:
    """Three digits that matter below a thousand, whole numbers with commas above."""
    if value is None or value != value:
        return "–"
    if value == 0:
        return "0"
    if abs(value) == float("inf"):
        return "unbounded" if value > 0 else "–∞"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 0.01:
        return f"{value:.3g}"
    return f"{value:.2g}" if size >= 1e-4 else f"{value:.1e}"


def with_band(mean: float | None, low: float | None, high: float | None) -> str:
    """12.3 ± 0.4"""
    if mean is None or low is None or high is None:
        return number(mean)
    half = (high - low) / 2
    return f"{number(mean)} ± {number(half) if half >= 100 or half == 0 else f'{half:.2g}'}"

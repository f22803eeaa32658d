"""Tables of text without Rich, whose import takes longer than a whole command of the client may take."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from slotwise.display.numbers import printable

GAP = "  "
NARROW = 8  # columns that a folded cell keeps at least


def clock(seconds: float | None) -> str:
    """Return a time of today without its date, another time with it."""
    if seconds is None:
        return "-"
    then = time.localtime(seconds)
    same_day = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", then)


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    less_needed: Sequence[str] = (),
    folded: str | None = None,
) -> None:
    """Print rows in columns. On a terminal that is too narrow, drop the columns of `less_needed`, first to last, and say so.

    If that is not enough, fold the cells of the column `folded` (by default the last one).
    """
    grid = [list(headings), *([printable(cell).replace("\n", " ") for cell in row] for row in rows)]
    columns = list(range(len(headings)))
    widths = [max(width_of(row[i]) for row in grid) for i in columns]
    dropped: list[str] = []
    if sys.stdout.isatty():
        wide = os.get_terminal_size().columns if "COLUMNS" not in os.environ else int(os.environ["COLUMNS"])
        for name in less_needed:
            if sum(widths[i] + len(GAP) for i in columns) - len(GAP) <= wide:
                break
            columns.remove(headings.index(name))
            dropped.append(name)
        excess = sum(widths[i] + len(GAP) for i in columns) - len(GAP) - wide
        if excess > 0:
            last = (
                headings.index(folded)
                if folded in headings and headings.index(folded or "") in columns
                else columns[-1]
            )
            widths[last] = max(NARROW, widths[last] - excess)
    lines = []
    for row in grid:
        lines += _lines([row[i] for i in columns], [widths[i] for i in columns])
    print("\n".join(lines))
    if dropped:
        print(f"not shown, the terminal is too narrow: {', '.join(dropped)}", file=sys.stderr)


def _lines(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return one row as lines: more than one if a cell is wider than its column."""
    if all(width_of(cell) <= width for cell, width in zip(cells, widths, strict=True)):
        return [GAP.join(c + " " * (w - width_of(c)) for c, w in zip(cells, widths, strict=True)).rstrip()]
    pieces = [
        [cell[at : at + width] for at in range(0, max(1, len(cell)), width)]
        for cell, width in zip(cells, widths, strict=True)
    ]
    tallest = max(map(len, pieces))
    filled = [[*piece, *[""] * (tallest - len(piece))] for piece in pieces]
    return [
        GAP.join(c + " " * max(0, w - width_of(c)) for c, w in zip(line, widths, strict=True)).rstrip()
        for line in zip(*filled, strict=True)
    ]

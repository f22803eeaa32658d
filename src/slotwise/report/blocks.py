"""What a page is made of: sections of prose, figures, tables and claims. Plain values; `page` renders them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

from slotwise.display.numbers import cell
from slotwise.report.claims import Claim


@dataclass(frozen=True)
class Panel:
    """One picture of a figure."""

    title: str
    svg: str
    alt: str
    """what the picture shows, in words"""
    wide: str = ""
    """the same for a screen that has the room, where there is one picture only"""


@dataclass(frozen=True, eq=False)
class Figure:
    """Pictures with one legend, one caption and one table of data beside the page."""

    kind: ClassVar[str] = "figure"
    name: str
    """of its data files, and its address on the page"""
    title: str
    caption: str
    panels: Sequence[Panel]
    data: pl.DataFrame
    policies: Sequence[str] = ()
    """for the legend, in this order"""
    open_markers: bool = False
    """some points are open: the legend says what that means"""


@dataclass(frozen=True)
class Cell:
    """A cell of a table that stands out: `kind` is good, bad, unsure or worst; `rows` is how many rows it spans."""

    text: str
    kind: str = ""
    rows: int = 1

    def __str__(self) -> str:
        return self.text


_FIGURE = re.compile(r"^[-–+≥<\d][\d.,%±∞eE+\- –\[\]]*$|^–$|^unbounded$|^not known$|^$")


@dataclass(frozen=True, eq=False)
class Table:
    """A table that can be copied, with its data beside the page."""

    kind: ClassVar[str] = "table"
    name: str
    title: str
    caption: str
    data: pl.DataFrame
    """what is written beside the page"""
    columns: Sequence[str] = ()
    """headings as shown; those of the data where none are given"""
    rows: Sequence[Sequence[Any]] = ()
    """cells as shown; a row may be short where a cell above reaches down into it"""

    @property
    def headings(self) -> Sequence[str]:
        return self.columns or self.data.columns

    @property
    def lines(self) -> list[list[tuple[Any, bool]]]:
        """Every cell as shown, and whether it stands in a column of figures."""
        figures = self.figures
        at = len(self.headings)
        return [
            [(value, figures[at - len(row) + n]) for n, value in enumerate(row)]
            for row in self.rows or self.data.rows()
        ]

    @property
    def figures(self) -> list[bool]:
        """Which columns hold figures only: those are set to the right."""
        width = len(self.headings)
        found = [n > 0 for n in range(width)]
        for row in self.rows or self.data.rows():
            for n, value in enumerate(row, start=width - len(row)):
                found[n] = (
                    found[n] and _FIGURE.match(cell(str(value) if isinstance(value, Cell) else value)) is not None
                )
        return found


@dataclass(frozen=True)
class Prose:
    """A paragraph."""

    kind: ClassVar[str] = "prose"
    text: str
    note: bool = False
    """set apart: a limitation, a warning"""


@dataclass(frozen=True)
class ClaimTable:
    """What the paper says of these results, and what was found."""

    kind: ClassVar[str] = "claims"
    claims: Sequence[Claim]


@dataclass(frozen=True)
class Steps:
    """A walk through a short run, picture by picture."""

    kind: ClassVar[str] = "steps"
    name: str
    title: str
    caption: str
    frames: Sequence[Panel]
    data: pl.DataFrame


Block = Figure | Table | Prose | ClaimTable | Steps


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class ReportPage:
    """The whole report."""

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = field(default=())
    """the few settings a reader wants at the top"""

    @property
    def claims(self) -> list[Claim]:
        """All claims of the page, in order."""
        return [
            claim
            for section in self.sections
            for block in section.blocks
            if isinstance(block, ClaimTable)
            for claim in block.claims
        ]

    @property
    def data(self) -> dict[str, pl.DataFrame]:
        """Every table of data by the name of its files."""
        found: dict[str, pl.DataFrame] = {}
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Figure | Table | Steps):
                    if block.name in found:
                        raise ValueError(f"two blocks are called {block.name!r}")
                    found[block.name] = block.data
        return found

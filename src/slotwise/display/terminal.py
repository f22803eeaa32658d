"""Tables on the terminal: no figure is cut, whatever the width, and nothing from a file reaches it unescaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table

from slotwise.display.numbers import printable

FOLDED = 16  # the least width of a column whose text may be folded, where there is room
LEAST = 8  # and where there is not
_MEASURE = Console(width=1000, emoji=False)


class Clean:
    """What is inside, with control characters written out."""

    def __init__(self, inside: RenderableType) -> None:
        self.inside = inside

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.inside, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def show(renderable: RenderableType | Callable[[int], RenderableType]) -> None:
    """Print it on standard output; what depends on the width of the terminal is a function of it."""
    console = Console(emoji=False)  # names are shown as they are, and no list of all emoji is loaded
    console.print(Clean(renderable(console.width) if callable(renderable) else renderable))


def figures(title: str) -> Table:
    """A table for results, without columns yet."""
    return Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))


def plain(*columns: str, title: str = "") -> Table:
    """A table without rules: names to the left, figures to the right."""
    table = Table(
        box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", padding=(0, 2, 0, 0)
    )
    for i, name in enumerate(columns):
        justify: JustifyMethod = "left" if i == 0 else "right"
        table.add_column(name, justify=justify, header_style="dim", no_wrap=i > 0, overflow="fold")
    return table


def listing(*columns: str, title: str = "") -> Table:
    """A table of words, each column folded where there is no room, none cut."""
    table = Table(box=None, title=title, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def fit(table: Table, width: int, order: Sequence[str]) -> list[str]:
    """Make a table no wider than the terminal, so that no figure is cut. Fold the columns that may be folded, then
    narrow the space between columns, then leave out whole columns in this order, then fold names further. Returns the
    line that says so, if any."""
    narrow = (0, 1, 0, 0) if table.box is None else (0, 0, 0, 0)  # a box has room of its own between columns
    free = [column for column in table.columns if not column.no_wrap]
    left_out: list[str] = []
    waiting = list(order)
    for column in free:
        column.max_width = column.min_width or FOLDED
    while _width(table) > width:
        if table.padding != narrow:
            table.padding = narrow
        elif waiting:
            heading = waiting.pop(0)
            gone = [column for column in table.columns if heading_of(column) == heading]
            table.columns = [column for column in table.columns if column not in gone]
            for place, column in enumerate(table.columns):  # rich reckons the space between columns by it
                column._index = place
            left_out += [heading] if gone else []
        elif any((column.max_width or 0) > LEAST for column in free):
            for column in free:
                column.min_width, column.max_width = LEAST, LEAST
        else:
            break
    for column in free:
        # names keep their room: what is left over is theirs, and rich takes nothing from them
        column.max_width = None if _width(table) < width else column.max_width
    return [f"not shown on a terminal of {width} columns: {', '.join(left_out)}"] if left_out else []


def _width(table: Table) -> int:
    return Measurement.get(_MEASURE, _MEASURE.options, table).maximum


def heading_of(column: Column) -> str:
    return str(column.header).replace("\n", " ").strip()


def headings(table: Table) -> Iterable[str]:
    return map(heading_of, table.columns)

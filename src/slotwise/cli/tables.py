"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.measure import Measurement
from rich.table import Column as RichColumn
from rich.table import Table
from rich.text import Text

from slotwise.simulation.drift import Stability
from slotwise.simulation.result import Result
from slotwise.simulation.statistics import Interval
from slotwise.simulation.workload import window_words

POLICY_WIDTH = FOLDED = 16
"""the least width of a column whose text may be folded"""
WORTH_TELLING = 1e-3
"""share of the jobs that still waited when the run ended"""
NARROW = (0, 0, 0, 0)
_MEASURE = Console(width=1000)


def number(value: float | None) -> str:
    """Four digits that matter; a dash where there is no figure."""
    if value is None or value != value:
        return "-"
    if value == 0:
        return "0"
    if value == float("inf"):
        return "not known"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 0.001 else f"{value:.1e}"


STYLES = {
    Stability.STABLE: "green",
    Stability.GROWS: "bold red",
    Stability.NEVER_STARTS: "bold red",
    Stability.TOO_SHORT: "yellow",
}


def verdict_text(result: Result, more: str = "") -> Text:
    """The verdict in its colour."""
    return Text(f"{result.verdict}{more}", STYLES[result.verdict])


def between(found: Interval) -> str:
    """low to high; a dash where a single run tells no spread."""
    return "-" if found.low is None else f"{number(found.low)} to {number(found.high)}"


def worst(result: Result) -> str:
    """The type that waits longest, and how long."""
    name = result.worst_type
    return "-" if name is None else f"{name} {number(result.wait_by_type[name]['mean'])}"


class Column(NamedTuple):
    """A column of figures."""

    heading: str
    cell: Callable[[Result], RenderableType]


COLUMNS = (
    Column("mean\nqueue", lambda result: number(result.mean_queue.mean)),
    Column("95 %\ninterval", lambda result: between(result.mean_queue)),
    Column("mean\nwait", lambda result: number(result.wait["mean"])),
    Column("p95\nwait", lambda result: number(result.wait["p95"])),
    Column("p99\nwait", lambda result: number(result.wait["p99"])),
    Column("worst type,\nmean wait", lambda result: worst(result)),
    Column("in use\n", lambda result: f"{max(result.utilisation.values()):.0%}"),
    Column("stalled\n", lambda result: f"{result.as_dict()['stalled_fraction']:.1%}"),
    Column("verdict\n", lambda result: verdict_text(result)),
)


def results_table(results: Sequence[Result], width: int) -> RenderableType:
    """One row a policy, and what is to be said below."""
    first, runs = results[0], len(results[0].runs)
    table = figures(
        f"{first.scenario.name}: {runs} run{'s' if runs > 1 else ''} of {first.runs[0].events:,} events"
    )
    table.add_column("policy", overflow="fold", min_width=POLICY_WIDTH)
    for column in COLUMNS:
        justify: JustifyMethod = "left" if column is COLUMNS[-1] else "right"
        table.add_column(column.heading, justify=justify, no_wrap=True)
    for result in results:
        table.add_row(result.policy, *(column.cell(result) for column in COLUMNS))
    left_out = fit(
        table, width, ("stalled", "in use", "p99 wait", "95 % interval", "mean wait", "worst type, mean wait")
    )
    return Group(table, *(Text(note, style="dim") for note in [*_notes(results), *left_out]))


def figures(title: str) -> Table:
    """A table for results, without columns yet."""
    return Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))


def fit(table: Table, width: int, order: Sequence[str]) -> list[str]:
    """Make a table no wider than the terminal, so that no figure is cut: columns that may be folded are, then the space between them
    goes, then whole columns, in this order. Returns the line that says so, if any."""
    free = [column for column in table.columns if not column.no_wrap]
    left_out: list[str] = []
    waiting = list(order)
    for column in free:
        column.max_width = column.min_width or FOLDED
    while Measurement.get(_MEASURE, _MEASURE.options, table).maximum > width:
        if table.padding != NARROW:
            table.padding = NARROW
        elif waiting:
            heading = waiting.pop(0)
            gone = [column for column in table.columns if _plain(column) == heading]
            table.columns = [column for column in table.columns if column not in gone]
            left_out += [heading] if gone else []
        else:
            break
    for column in free:
        column.max_width = None
    return [f"not shown on a terminal of {width} columns: {', '.join(left_out)}"] if left_out else []


def _plain(column: RichColumn) -> str:
    return str(column.header).replace("\n", " ").strip()


def _notes(results: Sequence[Result]) -> list[str]:
    notes = [f"{result.policy}: {result.why}" for result in results if not result.stable]
    for result in results:
        waiting = sum(result.still_waiting.values())
        measured = sum(run.wait_bins.sum() for run in result.runs) + waiting
        if waiting > WORTH_TELLING * measured:
            each = f"{waiting / len(result.runs):,.4g} of the measured jobs still waited when a run ended"
            notes.append(f"{result.policy}: {each}, and count as waiting at least that long")
    if any(result.verdict is Stability.TOO_SHORT for result in results):
        proven = [result.policy for result in results if result.certified]
        if proven:
            notes.append(f"proven to keep the queues bounded at this load: {', '.join(proven)}")
    kinds = {result.bound.kind: result.bound for result in reversed(results)}
    kinds.pop("none", None)
    if "unstable" in kinds:
        notes.append("the load is outside the capacity region: every policy's queue grows without bound")
    elif "srpt" in kinds:
        least = min(result.bound.mean_queue for result in results)
        if least > 0:
            notes.append(f"no policy whatsoever can have a mean queue below {number(least)} on this trace (srpt)")
    elif kinds:
        kind, bound = next(iter(kinds.items()))
        notes.append(f"no size-blind policy can have a mean queue below {number(bound.mean_queue)} ({kind})")
    told = window_words(results[0].scenario)
    notes += [told.replace("this capacity", "the capacity of all servers")] if told else []
    solvers = sorted({result.runs[0].solver for result in results} - {""})
    notes += [f"configurations: {solver}" for solver in solvers]
    notes.append(
        f"{sum(r.events_per_second for r in results) / len(results) / 1e6:.1f} million events a second a core"
    )
    return notes


def show(renderable: RenderableType | Callable[[int], RenderableType]) -> None:
    """Print it on standard output; what depends on the width of the terminal is a function of it."""
    console = Console()
    console.print(renderable(console.width) if callable(renderable) else renderable)

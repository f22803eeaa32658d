"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Group, JustifyMethod, RenderableType
from rich.text import Text

from slotwise.looks.numbers import number
from slotwise.looks.terminal import FOLDED, figures, fit
from slotwise.simulation.result import Result
from slotwise.theory.answer import WORTH_TELLING

POLICY_WIDTH = FOLDED


class Column(NamedTuple):
    """A column of figures."""

    heading: str
    cell: Callable[[Result], RenderableType]


COLUMNS = (
    Column("mean\nqueue", lambda result: number(result.mean_queue.mean)),
    Column("± 95 %\n", lambda result: number(result.mean_queue.half_width)),
    Column("mean\nwait", lambda result: number(result.wait["mean"])),
    Column("p95\nwait", lambda result: number(result.wait["p95"])),
    Column("p99\nwait", lambda result: number(result.wait["p99"])),
    Column("in use\n", lambda result: f"{max(result.utilisation.values()):.0%}"),
    Column("stalled\n", lambda result: f"{result.as_dict()['stalled_fraction']:.1%}"),
    Column("verdict\n", lambda result: Text("stable", "green") if result.stable else Text("grows", "bold red")),
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
    left_out = fit(table, width, ("stalled", "in use", "p99 wait", "mean wait", "± 95 %", "p95 wait"))
    return Group(table, *(Text(note, style="dim") for note in [*_notes(results), *left_out]))


def _notes(results: Sequence[Result]) -> list[str]:
    notes = []
    kinds = {result.bound.kind: result.bound for result in reversed(results)}
    kinds.pop("none", None)
    if "unstable" in kinds:
        notes.append("the load is outside the capacity region: every policy's queue grows without bound")
    elif "srpt" in kinds:
        least = min(result.bound.mean_queue for result in results)
        if least > 0:
            notes.append(f"no policy whatsoever can have a mean queue below {number(least)} on this trace (srpt)")
    elif kinds and next(iter(kinds.values())).mean_queue >= WORTH_TELLING:
        kind, bound = next(iter(kinds.items()))
        notes.append(f"no size-blind policy can have a mean queue below {number(bound.mean_queue)} ({kind})")
    notes.append(
        f"{sum(r.events_per_second for r in results) / len(results) / 1e6:.1f} million events a second a core"
    )
    return notes

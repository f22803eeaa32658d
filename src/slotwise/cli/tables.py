"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Group, JustifyMethod, RenderableType
from rich.text import Text

from slotwise.display.numbers import NONE, measured, number, rate
from slotwise.display.terminal import FOLDED, figures, fit
from slotwise.model import labelled
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.judge.statistics import Interval
from slotwise.simulation.result import Result
from slotwise.simulation.run.sequential import imprecise
from slotwise.simulation.run.workload import window_words
from slotwise.theory.answer import WORTH_TELLING

POLICY_WIDTH = FOLDED
UNENDED = 1e-3  # share of the jobs that still waited when the run ended: told from here on


MANY_SERVERS = 10_000  # from here on it is told how long they took to set up
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
    """low to high, or what both are; a dash where a single run tells no spread."""
    if found.low is None or found.low == found.high:
        return measured(found.low)
    return f"{measured(found.low)} to {measured(found.high)}"


def worst(result: Result) -> str:
    """The type that waits longest, and how long."""
    name = result.worst_type
    return NONE if name is None else f"{name} {number(result.wait_by_type[name]['mean'])}"


class TableColumn(NamedTuple):
    """A column of figures."""

    heading: str
    cell: Callable[[Result], RenderableType]
    is_time: bool = False

    def head(self, unit: str | None) -> str:
        return labelled(self.heading, unit) if self.is_time else self.heading


COLUMNS = (
    TableColumn("mean\nqueue", lambda result: number(result.mean_queue.mean)),
    TableColumn("95 %\ninterval", lambda result: between(result.mean_queue)),
    TableColumn("mean\nwait", lambda result: number(result.wait["mean"]), is_time=True),
    TableColumn("p95\nwait", lambda result: measured(result.wait["p95"]), is_time=True),
    TableColumn("p99\nwait", lambda result: measured(result.wait["p99"]), is_time=True),
    TableColumn("worst type,\nmean wait", lambda result: worst(result), is_time=True),
    TableColumn("in use\n", lambda result: f"{max(result.utilisation.values()):.0%}"),
    TableColumn("stalled\n", lambda result: f"{result.stalled_fraction:.1%}"),
    TableColumn("verdict\n", lambda result: verdict_text(result)),
)
LESS_NEEDED = (7, 6, 4, 1, 2, 5, 3)  # columns that go, in this order, where the terminal is narrow


def results_table(results: Sequence[Result], width: int) -> RenderableType:
    """One row a policy, and what is to be said below."""
    first, runs, unit = results[0], len(results[0].runs), results[0].scenario.time_unit
    table = figures(
        f"{first.scenario.name}: {runs} run{'s' if runs > 1 else ''} of {first.runs[0].events:,} events"
    )
    table.add_column("policy", overflow="fold", min_width=POLICY_WIDTH)
    for column in COLUMNS:
        justify: JustifyMethod = "left" if column is COLUMNS[-1] else "right"
        table.add_column(column.head(unit), justify=justify, no_wrap=True)
    for result in results:
        table.add_row(result.policy, *(column.cell(result) for column in COLUMNS))
    left_out = fit(table, width, [COLUMNS[n].head(unit).replace("\n", " ").strip() for n in LESS_NEEDED])
    return Group(table, *(Text(note, style="dim") for note in [*_notes(results), *left_out]))


def _notes(results: Sequence[Result]) -> list[str]:
    notes = [f"{result.policy}: {result.why}" for result in results if not result.stable]
    notes += [f"{result.policy}: {told}" for result in results if (told := imprecise(result))]
    notes += [
        f"{result.policy}: {found.in_words(result.scenario.time_unit)}"
        for result in results
        if (found := result.queue_over_period)
    ]
    for result in results:
        waiting = sum(result.still_waiting.values())
        jobs = sum(run.wait_bins.sum() for run in result.runs) + waiting
        if waiting > UNENDED * jobs:
            each = f"{number(waiting / len(result.runs))} of the measured jobs still waited when a run ended"
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
    elif kinds and next(iter(kinds.values())).mean_queue >= WORTH_TELLING:
        kind, bound = next(iter(kinds.items()))
        notes.append(f"no size-blind policy can have a mean queue below {number(bound.mean_queue)} ({kind})")
        lucky = [result.policy for result in results if result.mean_queue.mean < result.bound.mean_queue]
        if lucky:
            notes.append(f"by chance these runs show less: {', '.join(lucky)}; longer runs would not")
    if informed := [result.policy for result in results if result.estimated]:
        notes.append(f"use users' estimates of durations (option durations): {', '.join(informed)}")
    if results[0].typed:
        notes.append(results[0].typed)
    load = window_words(results[0].scenario, results[0].source)
    notes += [load.replace("this capacity", "the capacity of all servers")] if load else []
    servers = results[0].scenario.cluster.n_servers
    if servers >= MANY_SERVERS:
        taken = max(result.setup_seconds for result in results)
        notes.append(f"to set up {servers:,} servers took {taken:.2f} s a run")
    notes.append(f"{rate(sum(r.events_per_second for r in results) / len(results))} events a second a core")
    return notes

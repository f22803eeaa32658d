"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from slotwise.simulation.result import Result


def number(value: float | None) -> str:
    """Four digits that matter; a dash where there is no figure."""
    if value is None or value != value:
        return "-"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 0.001 else f"{value:.1e}"


def results_table(results: Sequence[Result]) -> RenderableType:
    """One row a policy, and what is to be said below."""
    first = results[0]
    runs = len(first.runs)
    table = Table(
        title=f"{first.scenario.name}: {runs} run{'s' if runs > 1 else ''} of {first.runs[0].events:,} events",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )
    table.add_column("policy", overflow="fold", min_width=16)
    for heading in ("mean\nqueue", "± 95 %\n", "mean\nwait", "p95\nwait", "p99\nwait", "in use\n", "stalled\n"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict\n", no_wrap=True)
    for result in results:
        queue = result.mean_queue
        half = (queue.high - queue.low) / 2 if queue.low is not None and queue.high is not None else None
        share = max(result.utilisation.values())
        verdict = Text("stable", style="green") if result.stable else Text("grows", style="bold red")
        table.add_row(
            result.policy,
            number(queue.mean),
            number(half),
            number(result.wait["mean"]),
            number(result.wait["p95"]),
            number(result.wait["p99"]),
            f"{share:.0%}",
            f"{result.as_dict()['stalled_fraction']:.1%}",
            verdict,
        )
    notes = []
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
    solvers = sorted({result.runs[0].solver for result in results} - {""})
    notes += [f"configurations: {solver}" for solver in solvers]
    notes.append(
        f"{sum(r.events_per_second for r in results) / len(results) / 1e6:.1f} million events a second a core"
    )
    return Group(table, *(Text(note, style="dim") for note in notes))


def show(renderable: RenderableType) -> None:
    """Print it on standard output."""
    Console().print(renderable)

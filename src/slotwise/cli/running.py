"""What the commands that run simulations share: options, the progress display, the message about compiling."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from slotwise.cli.compiling import shown
from slotwise.cli.completing import scenario_names
from slotwise.errors import InputError
from slotwise.model import Scenario
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.engines import OnProgress

if TYPE_CHECKING:
    from rich.progress import Progress

ScenarioArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        autocompletion=scenario_names,
        help="a scenario file, or a name of `slotwise scenarios`",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="change a key of the scenario, such as run.events=20000; repeatable"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, metavar="N", help="number of threads (default: one a core)")
]
EngineOption = Annotated[
    str, typer.Option("--engine", metavar="ENGINE", help="where runs go: threads, or dask for many machines")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler-address", metavar="ADDRESS", help="address of the Dask scheduler, with --engine dask"
    ),
]

messages = Console(stderr=True)


def with_options(ready: Scenario, names: Sequence[str], settings: Iterable[str]) -> list[Choice]:
    """The policies with their options. Mistakes in them are seen before anything is compiled or run."""
    refuse_idle(ready, names, settings)
    choices = [Choice.of(ready, name) for name in names]
    for choice in choices:
        choice.make()
    return choices


def refuse_idle(ready: Scenario, names: Sequence[str], settings: Iterable[str]) -> None:
    """An option that is set for the scenario's policy, which is not run, would do nothing."""
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key.startswith("policy.") and key != "policy.name" and ready.policy.name not in names:
            raise InputError(
                f"is for the scenario's policy, {ready.policy.name}, which is not run",
                where=f"--set {key}",
                remedy=f"add --set policy.name={names[0]}",
            )


SHOW_AFTER = 1.0  # seconds before a progress display appears


@contextmanager
def progress() -> Iterator[OnProgress]:
    """A callback that shows how far the work is, on standard error and only if it takes a while."""
    begun = time.monotonic()
    display: Progress | None = None

    def report(share: float, policy: str) -> None:
        nonlocal display
        if time.monotonic() - begun > SHOW_AFTER:
            if display is None:
                display = _display()
                display.start()
            display.update(display.task_ids[0], completed=share, description=policy)

    try:
        with shown():
            yield report
    finally:
        if display is not None:
            display.stop()


def _display() -> Progress:
    """What short runs need not import."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    display = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        console=messages,
        transient=True,
    )
    display.add_task("simulating", total=1.0)
    return display


def say(text: str) -> None:
    """A message for the person, apart from the results."""
    print(text, file=sys.stderr)

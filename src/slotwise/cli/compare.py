"""`slotwise compare`: the same workload through several policies; a table, and a report page with --out."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from slotwise.cli.completing import policy_names, scenario_names
from slotwise.cli.output import CsvOption, OutOption, Output, command_line
from slotwise.cli.running import (
    AddressOption,
    EngineOption,
    JsonOption,
    SetOption,
    WorkersOption,
    progress,
    with_options,
)
from slotwise.errors import InputError
from slotwise.model import Scenario, changed, load_scenario
from slotwise.simulation.run.engines import Workers
from slotwise.simulation.simulate import run_policies


def compare(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]",
            autocompletion=scenario_names,
            help="a scenario file, or a name of `slotwise scenarios`",
        ),
    ] = None,
    *,
    policy: Annotated[
        list[str],
        typer.Option(
            "--policy",
            "-p",
            metavar="NAMES",
            autocompletion=policy_names,
            help="two policies or more, separated by commas",
        ),
    ],
    journal: Annotated[
        str | None,
        typer.Option(
            "--journal",
            metavar="STORE",
            help="instead of a scenario: the jobs and servers of a store of `slotwise serve`, or of a backup",
        ),
    ] = None,
    out: OutOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    workers: WorkersOption = None,
    engine: EngineOption = "threads",
    scheduler_address: AddressOption = None,
) -> None:
    """Send the same jobs through several policies and compare queues and waits.

    \b
    Examples:
      slotwise compare table1 --policy algorithm1,best-fit,m14
      slotwise compare mine.toml --policy guarded,best-fit --out report
      slotwise compare --journal slotwise.db --policy guarded,best-fit
    """
    if (scenario is None) == (journal is None):
        raise InputError("give a scenario, or --journal with a store")
    names = list(dict.fromkeys(name.strip() for group in policy for name in group.split(",") if name.strip()))
    if len(names) < 2:
        raise InputError("needs two policies or more", where="--policy", remedy="such as algorithm1,best-fit")
    where = Workers(engine, workers, scheduler_address)
    with ExitStack() as stack:
        if journal is None:
            ready = load_scenario(scenario or "", overrides or [], said="--set")
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slotwise-")))
            ready = recorded(journal, folder, overrides or [])
        choices = with_options(ready, names, overrides or [])
        command = command_line("compare", scenario or f"--journal {journal}", names, overrides or [])
        output = Output(command, json=as_json, csv=as_csv, out=out)
        with progress() as report:
            results = run_policies(ready, choices, where, report)
        output.give(ready, results)


def recorded(source: str, folder: Path, overrides: list[str]) -> Scenario:
    """Return what a service has seen as a scenario, with the changes of --set."""
    from slotwise.live.recorded import scenario_of

    found = scenario_of(source, folder)
    return changed(found, overrides) if overrides else found

"""`slotwise compare`: the same workload through several policies; a table, and a report page with --out."""

from __future__ import annotations

from typing import Annotated

import typer

from slotwise.cli.completing import policy_names
from slotwise.cli.output import CsvOption, OutOption, Output, command_line
from slotwise.cli.running import (
    AddressOption,
    EngineOption,
    JsonOption,
    ScenarioArgument,
    SetOption,
    WorkersOption,
    progress,
    with_options,
)
from slotwise.errors import InputError
from slotwise.model import load_scenario
from slotwise.simulation.run.engines import Engine
from slotwise.simulation.simulate import run_policies


def compare(
    scenario: ScenarioArgument,
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
    """
    ready = load_scenario(scenario, overrides or [], said="--set")
    names = list(dict.fromkeys(name.strip() for group in policy for name in group.split(",") if name.strip()))
    if len(names) < 2:
        raise InputError("needs two policies or more", where="--policy", remedy="such as algorithm1,best-fit")
    choices = with_options(ready, names, overrides or [])
    where = Engine(engine, workers, scheduler_address)
    command = command_line("compare", scenario, names, overrides or [])
    output = Output(command, json=as_json, csv=as_csv, out=out)
    with progress() as report:
        results = run_policies(ready, choices, where, report)
    output.give(ready, results)

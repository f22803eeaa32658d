"""`slotwise simulate`: run policies on a scenario; a table, or one JSON object."""

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
    say,
    with_options,
)
from slotwise.model import load_scenario
from slotwise.simulation.run.engines import Workers
from slotwise.simulation.simulate import InterruptedRunError, run_policies


def simulate(
    scenario: ScenarioArgument,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME",
            autocompletion=policy_names,
            help="a policy; repeatable (default: the scenario's)",
        ),
    ] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    out: OutOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = "threads",
    scheduler_address: AddressOption = None,
) -> None:
    """Simulate a scenario and report queues, waits, utilisation and whether the queues stay bounded.

    Queues are averages over time after the warm-up; waits are those of the jobs that came after it, in the scenario's unit of time. The
    verdict is a statistical test for drift: run long enough before you trust it. If you interrupt it, it shows the replications
    that were finished.

    \b
    Examples:
      slotwise simulate table1
      slotwise simulate table1 -p algorithm1 -p best-fit --set run.events=100000
      slotwise simulate mine.toml --json
      slotwise simulate mine.toml --out report
    """
    ready = load_scenario(scenario, overrides or [], said="--set")
    names = [name for group in policy or [ready.policy.name] for name in group.split(",")]
    choices = with_options(ready, names, overrides or [])
    where = Workers(engine, workers, scheduler_address)
    command = command_line("simulate", scenario, names, overrides or [])
    output = Output(command, json=as_json, csv=as_csv, out=out)
    code = 0
    with progress() as report:
        try:
            results = run_policies(ready, choices, where, report)
        except InterruptedRunError as interruption:
            if not interruption.results:
                raise
            results, code = interruption.results, interruption.exit_code
    output.give(ready, results)
    if code:
        say("slotwise: interrupted; these are the replications that were finished")
        raise typer.Exit(code)

"""`slotwise compare`: the same workload through several policies; a table, and a report page with --out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from slotwise.cli.running import (
    AddressOption,
    EngineOption,
    ScenarioArgument,
    SetOption,
    WorkersOption,
    folder,
    policy_names,
    progress,
    with_options,
)
from slotwise.cli.tables import results_table, show
from slotwise.errors import InputError
from slotwise.model import load_scenario
from slotwise.simulation.engines import Engine
from slotwise.simulation.result import Comparison
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
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="also write a report page there")] = None,
    overrides: SetOption = None,
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
    ready = load_scenario(scenario, overrides or [])
    names = list(dict.fromkeys(name.strip() for group in policy for name in group.split(",") if name.strip()))
    if len(names) < 2:
        raise InputError("needs two policies or more", where="--policy", remedy="such as algorithm1,best-fit")
    choices = with_options(ready, names, overrides or [])
    where = Engine(engine, workers, scheduler_address)
    if out is not None:
        folder(out)
    begun = time.perf_counter()
    with progress() as report:
        results = run_policies(ready, choices, where, report)
    show(lambda width: results_table(results, width))
    if out is not None:
        from slotwise.report.comparison import comparison_page  # Matplotlib is slow to load
        from slotwise.report.manifest import Manifest
        from slotwise.report.page import write_page

        taken = {"simulation": time.perf_counter() - begun}
        settings = " ".join(f"--set {item}" for item in overrides or [])
        command = f"slotwise compare {Path(scenario).name} --policy {','.join(names)} {settings}".strip()
        path = write_page(
            comparison_page(Comparison(tuple(results))), out, Manifest(command, ready.run.seed, taken)
        )
        print(f"report: {path.resolve()}")

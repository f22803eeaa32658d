"""`slotwise capacity`: intensity, headroom, bottleneck prices, and what each policy guarantees."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from slotwise.model import load_scenario
from slotwise.theory.capacity import assess
from slotwise.theory.rendering import render


def capacity(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="a scenario file, or a name of `slotwise scenarios`")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="change a key of the scenario; repeatable", metavar="KEY=VALUE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Say whether the load can be carried, what limits it, how much more fits, and which policies are proven to carry it.

    Nothing is simulated. Example: slotwise capacity table1 --set workload.intensity=0.95
    """
    found = assess(load_scenario(scenario, overrides or []))
    if as_json:
        print(json.dumps(found.as_dict(), indent=2))
    else:
        Console().print(render(found))

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
    scenario: Annotated[str, typer.Argument(help="a scenario file, or the name of one that ships")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, a dotted key of the scenario", metavar="KEY=VALUE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Can the load be carried, what limits it, how much more fits, and which policy is proven to carry it."""
    found = assess(load_scenario(scenario, overrides or []))
    if as_json:
        print(json.dumps(found.as_dict(), indent=2))
    else:
        Console().print(render(found))

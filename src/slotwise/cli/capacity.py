"""`slotwise capacity`: intensity, headroom, bottleneck prices, and what each policy guarantees."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from slotwise.cli.running import JsonOption, ScenarioArgument, SetOption
from slotwise.display.numbers import as_json as to_json
from slotwise.display.terminal import show
from slotwise.model import load_scenario
from slotwise.simulation.run.workload import window_words
from slotwise.theory.capacity import assess
from slotwise.theory.rendering import render


def capacity(
    scenario: ScenarioArgument,
    proofs: Annotated[
        bool,
        typer.Option(
            "--proofs", help="also print the evidence: a mix of configurations, and what is proven of each policy"
        ),
    ] = False,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether the load can be carried, what limits it, how much more fits, and which policies are proven to carry it.

    Nothing is simulated: the intensity comes from a linear program, whose prices name the bottleneck. An intensity of 1 is the most
    that any policy can carry.

    \b
    Examples:
      slotwise capacity mine.toml
      slotwise capacity table1 --set workload.intensity=0.95
      slotwise capacity table1 --proofs
    """
    ready = load_scenario(scenario, overrides or [], said="--set")
    found = assess(ready)
    if as_json:
        print(to_json(found.as_dict()))
    else:
        show(render(found, proofs))
        if told := window_words(ready):
            show(Text(told.replace("this capacity", "the capacity of all servers")))

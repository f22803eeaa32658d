"""`slotwise tradeoff`: proven throughput against measured delay, over beta and the solver."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from slotwise.cli.completing import policy_names
from slotwise.cli.running import (
    JsonOption,
    ScenarioArgument,
    SetOption,
    WorkersOption,
    progress,
    refuse_idle,
    say,
)
from slotwise.cli.tables import between, verdict_text
from slotwise.display.numbers import NONE, measured, number
from slotwise.display.numbers import as_json as to_json
from slotwise.display.terminal import figures, fit, show
from slotwise.errors import InputError
from slotwise.model import labelled, load_scenario
from slotwise.planning.figure import draw
from slotwise.planning.tradeoff import GRID, SOLVERS, Tradeoff
from slotwise.planning.tradeoff import tradeoff as compute


def tradeoff(
    scenario: ScenarioArgument,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME",
            autocompletion=policy_names,
            help="a policy with a beta (default: the scenario's, or algorithm1)",
        ),
    ] = None,
    beta: Annotated[
        str | None,
        typer.Option(
            "--beta",
            metavar="NUMBERS",
            help=f"limits of beta to try, separated by commas (default: {','.join(map(str, GRID))})",
        ),
    ] = None,
    solver: Annotated[
        str | None,
        typer.Option(
            "--solver", metavar="NAMES", help=f"solvers to try, separated by commas (default: {','.join(SOLVERS)})"
        ),
    ] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", metavar="FILE", help="also draw the result: .svg, .png or .pdf")
    ] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    workers: WorkersOption = None,
) -> None:
    """Choose beta and the solver of Algorithm 1 for a workload. Show what is proven and what is measured for each, and recommend one.

    \b
    Examples:
      slotwise tradeoff table1 --figure tradeoff.svg
      slotwise tradeoff mine.toml --beta 0.8,0.95 --solver auto,greedy
    """
    ready = load_scenario(scenario, overrides or [], said="--set")
    refuse_idle(ready, [policy or ready.policy.name], overrides or [])
    betas = _numbers(beta) if beta else GRID
    solvers = tuple(name.strip() for name in solver.split(",")) if solver else SOLVERS
    if figure:
        from slotwise.display.drawing import check_picture  # slow to import

        check_picture(figure)
    with progress() as report:
        found = compute(ready, policy, betas=betas, solvers=solvers, workers=workers, on_progress=report)
    if figure:
        draw(found, figure)
        say(f"wrote {figure}")
    if as_json:
        print(to_json(found.as_dict()))
    else:
        show(lambda width: tradeoff_view(found, width))


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{text!r} is not a list of numbers",
            where="--beta",
            remedy="write numbers with commas, such as 0.8,0.9",
        ) from None


def tradeoff_view(found: Tradeoff, width: int) -> RenderableType:
    """One row a setting, and the recommendation."""
    table = figures(f"{found.scenario.name}, {found.policy}: the load is at intensity {found.intensity:.4g}")
    best = found.recommended
    table.add_column("solver", overflow="fold")
    waits = [labelled(one, found.scenario.time_unit) for one in ("mean\nwait", "p95\nwait")]
    for heading in (best.key, "proven\nbelow", "mean\nqueue", "95 %\ninterval", *waits, "stalled\n"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict\n", no_wrap=True)
    for setting in found.settings:
        result = setting.result
        covers = setting.share is not None and setting.share > found.intensity
        table.add_row(
            setting.solver,
            f"{setting.beta:g}",
            Text(NONE if setting.share is None else f"{setting.share:.3f}", "green" if covers else "yellow"),
            number(result.mean_queue.mean),
            between(result.mean_queue),
            number(result.wait["mean"]),
            measured(result.wait["p95"]),
            f"{result.as_dict()['stalled_fraction']:.1%}",
            verdict_text(result, " <" if setting is best else ""),
            style="bold" if setting is best else "",
        )
    mean, p95 = (one.replace("\n", " ") for one in waits)
    left_out = fit(table, width, ("stalled", mean, "95 % interval", p95))
    unproven = {setting.solver: setting.why for setting in found.settings if setting.share is None}
    notes = [Text(line, "dim") for line in left_out] + [
        Text(f"- {solver}: {why}", "dim") for solver, why in unproven.items()
    ]
    return Group(table, *notes, Text(found.statement))

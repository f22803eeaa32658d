"""`slotwise plan`: the fewest servers, or the cheapest mix, that meet a target."""

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
    messages,
    refuse_idle,
)
from slotwise.cli.tables import between
from slotwise.display.numbers import as_json as to_json
from slotwise.display.numbers import measured, number
from slotwise.display.terminal import figures, fit, show
from slotwise.errors import InputError
from slotwise.model import labelled, load_scenario
from slotwise.planning.plan import InterruptedPlanError, Plan, describe
from slotwise.planning.plan import plan as make_plan
from slotwise.planning.targets import MEANINGS, meaning, parse_targets, shown, unit_of
from slotwise.planning.trials import TargetAnswer
from slotwise.simulation.run.workload import window_words

COLOUR = {
    TargetAnswer.MEETS: "green",
    TargetAnswer.MISSES: "red",
    TargetAnswer.DOUBT: "yellow",
    TargetAnswer.IMPOSSIBLE: "dim",
}


def plan(
    scenario: ScenarioArgument,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="KEY=LIMIT",
            help=f"at most this (waits also like 30min); repeatable; one of {', '.join(MEANINGS)}, or TYPE.KEY of one type",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="NAME",
            autocompletion=policy_names,
            help="the policy to plan for (default: the scenario's)",
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", metavar="SHARE", help="how sure to be that the targets are met")
    ] = 0.95,
    keep: Annotated[
        bool, typer.Option("--keep", help="keep the servers of the scenario, and say how many more are needed")
    ] = False,
    least: Annotated[
        list[str] | None, typer.Option("--min", metavar="CLASS=N", help="at least so many of a class; repeatable")
    ] = None,
    most: Annotated[
        list[str] | None, typer.Option("--max", metavar="CLASS=N", help="at most so many of a class; repeatable")
    ] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    workers: WorkersOption = None,
) -> None:
    """Find the fewest servers that meet the targets. If each class has a price, find the cheapest mix.

    The search begins at the least number of servers that can carry the load. It stops when the targets are met, and fewer servers
    miss them, at the given confidence.

    \b
    Examples:
      slotwise plan table1 --target p95_wait=0.5
      slotwise plan mine.toml -t p95_wait=0.5 -t utilisation=0.8 -p best-fit
      slotwise plan mine.toml -t database.p95_wait=1 --keep --max big=20
    """
    ready = load_scenario(scenario, overrides or [], said="--set")
    targets = parse_targets(target or [], ready.time_unit)
    refuse_idle(ready, [policy or ready.policy.name], overrides or [])
    with messages.status("planning") as status:

        def on_trial(counts: tuple[int, ...], replications: int) -> None:
            status.update(f"{sum(counts):,} servers, {replications} runs")

        try:
            found = make_plan(
                ready,
                targets,
                policy,
                confidence=confidence,
                workers=workers,
                keep=keep,
                least=_counts(least, "--min"),
                most=_counts(most, "--max"),
                on_trial=on_trial,
            )
        except InterruptedPlanError as interruption:
            status.stop()
            for trial in interruption.tried:
                if trial.verdict is not TargetAnswer.IMPOSSIBLE:
                    words = f": {trial.why}" if trial.why else ""
                    print(f"{describe(trial.servers, interruption.class_names)} {trial.verdict}{words}")
            raise
    if as_json:
        print(to_json(found.as_dict()))
    else:
        show(lambda width: plan_view(found, width))


def _counts(texts: list[str] | None, where: str) -> dict[str, int]:
    """From "big=20" and the like."""
    found = {}
    for text in texts or []:
        name, _, count = text.partition("=")
        if not count.strip().isdigit():
            raise InputError(f"{text!r} is not a number of servers", where=where, remedy="write big=20, say")
        found[name.strip()] = int(count)
    return found


def plan_view(found: Plan, width: int) -> RenderableType:
    """What was tried, and the sentence."""
    one = len(found.class_names) == 1
    unit = found.scenario.time_unit
    targets = ", ".join(f"{meaning(key)} ≤ {shown(key, limit, unit)}" for key, limit in found.targets.items())

    def exact(key: str) -> bool:
        return key == "utilisation" and found.firm  # known by Little's law, not measured

    table = figures(f"{found.scenario.name}: servers for {targets}")
    table.add_column("servers", justify="right" if one else "left", overflow="fold", no_wrap=one)
    if found.priced:
        table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("runs", justify="right", no_wrap=True)
    for key in found.targets:
        table.add_column(labelled(meaning(key), unit_of(key, unit)), justify="right", no_wrap=True)
        if not exact(key):
            table.add_column("95 %", justify="right", no_wrap=True)
    table.add_column("verdict", min_width=8)
    for trial in sorted(found.tried, key=lambda trial: trial.cost):
        if trial.verdict is TargetAnswer.IMPOSSIBLE:
            continue  # nothing was run: counted below
        cells: list[str] = []
        for key in found.targets:
            interval = (trial.estimates or {})[key]
            cells += [measured(interval.mean)] if exact(key) else [measured(interval.mean), between(interval)]
        chosen = trial is found.best
        words = Text(f"{trial.verdict}" + (f": {trial.why}" if trial.why else ""), COLOUR[trial.verdict])
        table.add_row(
            f"{trial.servers[0]:,}" if one else describe(trial.servers, found.class_names),
            *([number(trial.cost)] if found.priced else []),
            str(trial.replications),
            *cells,
            words,
            style="bold" if chosen else "",
        )
    least = describe_limit(found)
    left_out = fit(table, width, ("runs", "95 %"))
    return Group(
        Text(least, "dim"),
        table,
        *(Text(line, "dim") for line in left_out),
        Text(found.statement),
        *_warnings(found),
    )


def _warnings(found: Plan) -> list[Text]:
    told = window_words(found.scenario)
    first = (
        [Text(told.replace("this capacity", "the capacity of the scenario's own servers"), "dim")] if told else []
    )
    return first + [Text(f"note: {line}", "yellow") for line in found.warnings]


def describe_limit(found: Plan) -> str:
    """Where the search began."""
    mix = " + ".join(
        f"{number(float(n))} {name}"
        for n, name in zip(found.limit.servers, found.class_names, strict=True)
        if n > 1e-9
    )
    cost = f", cost {number(found.limit.cost)}" if found.priced else ""
    if found.is_trace:
        return f"the average load of the trace fills {mix}{cost} (jobs rounded up to their types); the search begins there"
    if not found.firm:
        return f"the load fills {mix}{cost} on average; servers come and go, so the search only begins there"
    return f"least for the load, by a linear program: {mix}{cost}; with less no policy is stable"

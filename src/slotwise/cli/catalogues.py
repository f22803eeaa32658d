"""`slotwise policies` and `slotwise scenarios`: what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from slotwise.cli.completing import policy_names
from slotwise.display.terminal import listing, show
from slotwise.model import load_scenario, shipped_scenarios


def policies(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", autocompletion=policy_names, help="show the options of this policy"),
    ] = None,
) -> None:
    """List the policies, or the options of one.

    \b
    Examples:
      slotwise policies
      slotwise policies guarded
    """
    from slotwise.policies import (  # with the compiler, for which `scenarios` need not wait
        POLICIES,
        make_policy,
    )

    if name is None:
        table = listing("policy", "what it does")
        for each in POLICIES.values():
            table.add_row(each.name, each.summary)
        show(table)
        return
    policy = make_policy(name)
    table = listing("option", "default", "meaning", title=f"{policy.name}: {policy.summary}")
    for key, field in type(policy).Options.model_fields.items():
        table.add_row(key, "-" if field.default is None else str(field.default), field.description or "")
    show(table)


def scenarios() -> None:
    """List the scenarios that ship with the package.

    Every command that takes a scenario takes one of these names, or the path of a TOML file.
    """
    table = listing("scenario", "servers", "types", "policy")
    table.columns[0].no_wrap = True  # a name that is to be typed stays whole
    for name in shipped_scenarios():
        scenario = load_scenario(name)
        types = str(len(scenario.types)) if scenario.types else scenario.workload.trace or ""
        table.add_row(name, str(scenario.cluster.n_servers), types, scenario.policy.name)
    show(table)

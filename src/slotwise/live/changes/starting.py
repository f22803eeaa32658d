"""A service that starts on a store compares the cluster file with what it had."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

from slotwise.live.changes.plan import ChangePlan, make_plan
from slotwise.live.changes.target import Target
from slotwise.live.engines.protocol import Configurable, Engine
from slotwise.live.ledger import Ledger
from slotwise.live.restart import Setup

log = logging.getLogger(__name__)


class Source(NamedTuple):
    """Where the wanted cluster comes from."""

    file: str | None
    """None: no file was given, and the cluster is what the engine finds"""
    apply: bool = False


def compare(ledger: Ledger, engine: Engine, setup: Setup, source: Source, now: float) -> ChangePlan | None:
    """Tell what differs between the wanted cluster and the one that runs, and apply it if that was asked for. The engine gets the servers that run."""
    running = ledger.what_runs()
    target = wanted(running.target(), engine, setup, source)
    plan = make_plan(running, target, now) if target is not None else None
    if plan is not None and plan.changes:
        name = source.file or "this machine"
        if ledger.seq == 0:  # the first start
            ledger.apply(plan, now)
        elif source.apply:
            ledger.apply(plan, now)
            log.info("%s is applied:\n%s", name, plan.text)
        else:
            command = "`slotwise serve --apply`" if source.file is None else f"`slotwise apply {source.file}`"
            log.warning(
                "%s differs from what runs; the service goes on with what it had. %s applies this:\n%s",
                name,
                command,
                plan.text,
            )
    if isinstance(engine, Configurable):
        engine.set_servers(ledger.servers_up())
    return plan


def wanted(running: Target, engine: Engine, setup: Setup, source: Source) -> Target | None:
    """Return the cluster that the file wants; without a file, the one that runs with the sizes of this machine, if it is the only server."""
    if not isinstance(engine, Configurable):
        if source.file is None:
            return None
        return Target.of_setup(setup, ()).on_servers_of(running)
    found = Target.of_setup(setup, engine.servers())
    if source.file is not None or not running.servers:
        return found
    if dict(running.servers) != dict(found.servers) or not set(running.resources) >= set(found.resources):
        return None
    return replace(
        found.on_servers_of(running),
        classes=found.ordered_like(running),
        types=running.types,
        shares=running.shares,
        quotas=running.quotas,
    ).with_policy(running.policy, running.options)

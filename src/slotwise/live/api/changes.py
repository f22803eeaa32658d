"""Changing the cluster: what a cluster file would change, and changing it."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from pydantic import Field

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.api.common import House, Operator, Reader, RefusedRequest, done
from slotwise.live.api.models import Model
from slotwise.live.changes.plan import ChangePlan, Running, make_plan
from slotwise.live.changes.reshape import changed
from slotwise.live.changes.target import Target
from slotwise.live.engines.protocol import Configurable, Engine
from slotwise.live.ledger import Ledger
from slotwise.live.restart import Setup
from slotwise.live.settings import parse_cluster, servers_of, setup_of
from slotwise.live.spec import Short
from slotwise.model import Cluster
from slotwise.scheduling import Scheduler

LONGEST_FILE = 4_000_000  # characters of a cluster file
COMPILE_SECONDS = 20.0  # how long a request waits for a policy to be compiled: clients wait for an answer for 60 s


class Wanted(Model):
    """The cluster that is wanted: a whole cluster file, or another policy; what is left out stays."""

    toml: str | None = Field(None, max_length=LONGEST_FILE, description="the text of a cluster file")
    policy: Short | None = None
    options: dict[Short, Any] | None = None
    plan: str | None = Field(None, description="refuse with 409 unless these are the changes that were shown")


class ChangeView(Model):
    """One difference."""

    what: str = Field(description="policy, resources, class, type, shares or quota")
    name: str
    action: str = Field(description="add, change or remove")
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    effect: str | None = Field(description="what it means for jobs and servers")


class PlanView(Model):
    """What would change, or has changed."""

    plan: str = Field(description="the same for the same changes; empty where nothing differs")
    changes: list[ChangeView]
    jobs: dict[str, int] = Field(
        description="running, waiting; keep: running jobs that keep an earlier definition; move: waiting jobs that take a new one; start: jobs that start at once"
    )
    servers: dict[str, list[str]] = Field(description="join; leave: at once; drain: leave or change when empty")
    text: str = Field(description="for people")
    applied: bool


class OutdatedError(SlotwiseError):
    """What would change is not what was shown."""


def target_of(wanted: Wanted, running: Target, engine: Engine) -> Target:
    """Return the cluster that a request asks for."""
    if wanted.toml is None:
        target = running
    else:
        if wanted.policy is not None or wanted.options is not None:
            raise InputError("is given beside a policy", where="toml", remedy="give one of them")
        scenario = parse_cluster(wanted.toml)
        target = Target.of_setup(setup_of(scenario.cluster, scenario), servers_of(scenario.cluster))
        if not isinstance(engine, Configurable):
            target = target.on_servers_of(running)
    if wanted.policy is not None or wanted.options is not None:
        target = target.with_policy(wanted.policy, wanted.options)
    if ":" in target.policy and target.policy != running.policy:
        raise InputError(
            f"{target.policy!r} is a file",
            where="policy.name",
            remedy="a policy of your own is loaded at start-up only: slotwise serve FILE --apply",
        )
    return target


def planned(running: Running, target: Target, now: float) -> ChangePlan:
    """Return a plan, with the number of jobs that it would start, found in a copy of the core."""
    plan = make_plan(running, target, now)
    if plan.row is not None and plan.changes:
        _, outcome = changed(Scheduler.from_situation(running.situation), plan.row)
        plan.jobs["start"] = len(outcome.placements)
    return plan


def warm(target: Target) -> None:
    """Compile what the policy of a target needs, so that the loop does not wait for it."""
    classes = tuple(one.model_copy(update={"count": 1}) for one in target.classes)
    cluster = Cluster(resources=target.resources, servers=classes)
    Setup(cluster, target.types, target.policy, dict(target.options)).warm()


class Compiled:
    """Policies that were compiled since the service started."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "slotwise-compile")
        self._begun: dict[str, Future[None]] = {}

    async def wait(self, target: Target) -> None:
        """Compile the policy of a target, once. Answer 503 if that takes long: the caller asks again."""
        key = json.dumps([target.policy, dict(target.options)], sort_keys=True, default=str)
        found = self._begun.get(key)
        if found is None:
            found = self._begun[key] = self._threads.submit(warm, target)
        await asyncio.wait({asyncio.wrap_future(found)}, timeout=COMPILE_SECONDS)
        if not found.done():
            raise RefusedRequest(503, f"policy {target.policy} is being compiled; try again in a moment", 1.0)
        if found.exception() is not None:
            del self._begun[key]
            found.result()


def routes(house: House) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/v1/cluster", tags=["cluster"])
    service, loop = house.service, house.service.loop
    compiled = Compiled()

    async def running() -> tuple[Running, float]:
        return await done(loop.ask(lambda ledger, now: (ledger.what_runs(), now)))

    @router.post("/plan")
    async def plan(wanted: Wanted, caller: Operator) -> PlanView:
        """Show what would change, and change nothing."""
        found, now = await running()
        target = target_of(wanted, found.target(), service.engine)
        make_plan(found, target, now)  # refuse a wrong file before anything is compiled
        await compiled.wait(target)
        made = await asyncio.to_thread(planned, found, target, now)
        return PlanView(**made.as_dict(applied=False))

    @router.post("/apply")
    async def apply(wanted: Wanted, caller: Operator) -> PlanView:
        """Change the cluster; running jobs are not interrupted."""
        found, now = await running()
        target = target_of(wanted, found.target(), service.engine)
        make_plan(found, target, now)
        await compiled.wait(target)

        def act(ledger: Ledger, now: float) -> ChangePlan:
            made = make_plan(ledger.what_runs(), target, now)
            if wanted.plan is not None and wanted.plan != made.fingerprint:
                raise OutdatedError("what would change is not what was shown; look at it again")
            if made.changes:
                ledger.apply(made, now)
            return made

        try:
            made = await done(loop.ask(act))
        except OutdatedError as error:
            raise RefusedRequest(409, str(error)) from None
        return PlanView(**made.as_dict(applied=bool(made.changes)))

    @router.get("/toml", response_class=PlainTextResponse)
    async def toml(caller: Reader) -> str:
        """What runs, as a cluster file."""
        found, _ = await running()
        return found.target().to_toml(service.engine.name)

    return router

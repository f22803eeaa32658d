"""The state of the service on one screen: servers, jobs by state, queues, tenants, and what is wrong."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from fastapi import APIRouter
from pydantic import Field

from slotwise._version import __version__
from slotwise.core.state import CLASS, PRESENT, STATUS
from slotwise.live import quotas
from slotwise.live.api.common import House, Reader, done
from slotwise.live.api.models import Model, ServerView, shown_status
from slotwise.live.auth import EVERYONE, Caller
from slotwise.live.engines.protocol import Troubled
from slotwise.live.ledger import Ledger
from slotwise.live.loop import NotReadyError
from slotwise.live.server_books import AWAY, DRAINING
from slotwise.live.store.records import LOST, STATES, Query, Server
from slotwise.scheduling.figures import Moment

DAY = 86_400.0  # seconds


class Queue(Model):
    """The waiting jobs of one type."""

    type: str
    waiting: int
    running: int
    oldest: float | None = Field(description="seconds since the oldest waiting job was submitted")


class Use(Model):
    """How much of a resource running jobs hold."""

    used: float
    capacity: float


class QuotaUse(Model):
    """How much counts against one amount of a quota."""

    kind: str = Field(description="active: jobs that run or may start; waiting: jobs that wait or are held")
    name: str = Field(description="the resource, or jobs")
    used: float
    quota: float


class Tenant(Model):
    """The jobs of one tenant that have not ended."""

    tenant: str
    waiting: int
    running: int
    quotas: list[QuotaUse] = Field(description="what counts against the quotas of the tenant; empty: it has none")


class Status(Model):
    """Everything on one screen."""

    version: str
    engine: str
    policy: str
    servers: list[ServerView]
    jobs: dict[str, int] = Field(description="how many in each state")
    queues: list[Queue]
    resources: dict[str, Use]
    tenants: list[Tenant]
    trouble: list[str] = Field(description="what is wrong, one line each; empty: nothing")


class StatusCopy(NamedTuple):
    """What the loop copies for a status; the values are worked out elsewhere, so the loop is not delayed."""

    policy: str
    servers: list[Server]
    waiting: dict[str, int]
    moment: Moment
    fault: str | None
    unexpected: int
    quotas: dict[str, list[quotas.QuotaCharge]]
    now: float


def copy(ledger: Ledger, now: float) -> StatusCopy:
    """Copy what a status is made from, in the loop."""
    core = ledger.core
    return StatusCopy(
        core.policy.label,
        list(ledger.servers.values()),
        dict(core.waiting),
        Moment.of(core),
        ledger.fault,
        ledger.lies.total(),
        ledger.quotas.uses(),
        now,
    )


def nowhere(moment: Moment, waiting: dict[str, int]) -> list[str]:
    """Return the types with waiting jobs that no server which takes jobs can hold."""
    classes = moment.rows[moment.rows[:, STATUS] == PRESENT, CLASS]
    return [
        name
        for j, name in enumerate(moment.types)
        if waiting.get(name) and not (len(classes) and moment.most[classes, j].any())
    ]


def troubles(found: StatusCopy, lost: int) -> list[str]:
    """Return what is wrong, in one line each."""
    lines = [f"the policy failed: {found.fault}"] if found.fault else []
    for status, words in ((AWAY, "is lost"), (DRAINING, "takes no jobs")):
        lines += [
            f"server {one.name} {words}" + (f": {one.reason}" if one.reason else "")
            for one in sorted(found.servers)
            if one.status == status
        ]
    lines += [
        f"{found.waiting[name]:,} jobs of type {name} wait, and no server that takes jobs can hold one"
        for name in nowhere(found.moment, found.waiting)
    ]
    if lost:
        lines.append(
            f"jobs lost that were submitted in the last 24 h: {lost:,}; `slotwise jobs --state lost` lists them"
        )
    if found.unexpected:
        lines.append(f"the engine reported {found.unexpected:,} facts that cannot be; see the log")
    return lines


def routes(house: House) -> APIRouter:
    """Return the route."""
    router = APIRouter(prefix="/v1", tags=["health"])
    service = house.service
    loop, store = service.loop, service.store

    def read(caller: Caller, found: StatusCopy | None) -> dict[str, Any]:
        """Return what the store tells, for the tenant of the caller."""
        tenant = None if caller.tenant == EVERYONE else caller.tenant
        counts = store.counts_of(Query(tenant=tenant))
        busy, rows = store.jobs_by_server(), store.jobs_by_tenant()
        oldest = store.oldest_waiting(tenant)
        now = found.now if found is not None else loop.clock.now()
        lost = store.counts_of(Query((LOST,), tenant, since=now - DAY)).get(LOST, 0)
        servers = found.servers if found is not None else store.servers()
        figures = found.moment.figures() if found is not None else None
        names = sorted(
            {*oldest, *(name for name, number in (figures.running if figures else {}).items() if number)}
        )
        return {
            "servers": [shown_status(one, busy.get(one.name, 0)) for one in sorted(servers)],
            "jobs": {state: counts.get(state, 0) for state in STATES},
            "queues": [
                Queue(
                    type=name,
                    waiting=oldest[name][0] if name in oldest else 0,
                    running=figures.running.get(name, 0) if figures else 0,
                    oldest=max(0.0, now - oldest[name][1]) if name in oldest else None,
                )
                for name in names
            ],
            "resources": {
                name: Use(used=figures.used[name], capacity=most) for name, most in figures.capacity.items()
            }
            if figures
            else {},
            "tenants": [
                Tenant(
                    tenant=name,
                    waiting=waiting,
                    running=running,
                    quotas=[
                        QuotaUse(**one._asdict())
                        for one in (found.quotas.get(name, ()) if found is not None else ())
                    ],
                )
                for name, waiting, running in rows
                if caller.sees(name)
            ],
            "trouble": troubles(found, lost) if found is not None else [],
        }

    @router.get("/status")
    async def status(caller: Reader) -> Status:
        """Servers, jobs by state, queues, tenants and trouble, on one screen."""
        found: StatusCopy | None = None
        trouble: list[str] = []
        try:
            found = await done(loop.ask(copy))
        except NotReadyError as error:
            trouble = [str(error)]
        values = await asyncio.to_thread(read, caller, found)
        values["trouble"] = trouble + values["trouble"]
        if caller.tenant == EVERYONE:
            values["trouble"] += service.hooks.troubles()
            if isinstance(service.engine, Troubled):
                values["trouble"] += service.engine.troubles()
        return Status(
            version=__version__,
            engine=service.engine.name,
            policy=found.policy if found is not None else "",
            **values,
        )

    return router

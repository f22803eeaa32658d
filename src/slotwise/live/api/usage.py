"""Accounting: who used how much, from what the store keeps."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from slotwise.errors import InputError
from slotwise.live.api.common import House, Reader, RefusedRequest
from slotwise.live.api.history import When
from slotwise.live.api.models import Model
from slotwise.live.auth import EVERYONE
from slotwise.live.retention import DAY
from slotwise.live.store import history
from slotwise.live.store.usage import UsagePeriod, check_keys, usage


class Waits(Model):
    """Waits in seconds of the jobs that were placed: from when nothing but the queue held a job to its placement."""

    mean: float
    p50: float
    p95: float


class UseRow(Model):
    """What the jobs of one group have used in the window."""

    group: dict[str, str] = Field(description="a value for each key of `by`")
    started: int = Field(description="jobs that were placed")
    ended: int
    retried: int = Field(description="attempts after which the job was executed again")
    wait: Waits | None
    hours: dict[str, float] = Field(description="amount x hours of each resource that the jobs held")
    exit_codes: dict[int, int] = Field(description="how many jobs ended with which exit code")


class Usage(Model):
    """Who used how much."""

    by: list[str]
    since: float
    until: float
    kept_since: float = Field(description="what ended before is not counted: the store does not have it")
    keep_days: float = Field(description="how long ended jobs are kept")
    complete: bool = Field(description="whether the store has all jobs that were there in the window")
    rows: list[UseRow] = Field(description="the largest use of the first resource first")


def routes(house: House) -> APIRouter:
    """Return the route."""
    router = APIRouter(prefix="/v1", tags=["history"])
    store, loop = house.service.store, house.service.loop

    alone = asyncio.Semaphore(1)  # a million jobs take seconds of a CPU: one request at a time

    def sizes() -> dict[str, dict[str, float]]:
        core = loop.ledger.core
        return {
            one.name: dict(zip(core.cluster.resources, map(float, one.demand), strict=True)) for one in core.types
        }

    def answer(by: list[str], since: float | None, until: float | None, tenant: str | None) -> Usage:
        now, keep = loop.clock.now(), loop.retention.jobs
        kept_since = max(history.beginning(store, now), now - keep)
        end = now if until is None else min(until, now)
        begin = min(kept_since, end - 1.0) if since is None else since
        if begin >= end:
            raise InputError(
                "is not before until", where="since", remedy="give a window of the past that has some length"
            )
        found = usage(store, by, UsagePeriod(begin, end, tenant), sizes())
        resources = loop.ledger.core.cluster.resources
        main = resources[0]
        rows = [
            UseRow.model_construct(
                group=dict(zip(by, group, strict=True)),
                started=use.started,
                ended=use.ended,
                retried=use.retried,
                wait=None if use.wait is None else Waits(mean=use.wait[0], p50=use.wait[1], p95=use.wait[2]),
                hours=dict.fromkeys(resources, 0.0) | use.hours,
                exit_codes=dict(sorted(use.exit_codes.items())),
            )
            for group, use in sorted(found.items(), key=lambda one: (-one[1].hours.get(main, 0.0), one[0]))
        ]
        return Usage.model_construct(
            by=by,
            since=begin,
            until=end,
            kept_since=kept_since,
            keep_days=keep / DAY,
            complete=begin >= now - keep,
            rows=rows,
        )

    @router.get("/usage")
    async def use(
        caller: Reader,
        by: Annotated[
            str, Query(max_length=100, description="keys: tenant, type, user, state, name, server; empty: a total")
        ] = "tenant",
        since: When | None = None,
        until: When | None = None,
        tenant: str | None = None,
    ) -> Usage:
        """Resource-hours, starts, ends, waits and exit codes in a window, by tenant, type, user or state.

        By default the window is all that the store keeps.
        """
        if caller.tenant != EVERYONE:
            if tenant not in (None, caller.tenant):
                raise RefusedRequest(403, "this token sees the jobs of its own tenant only")
            tenant = caller.tenant
        keys = check_keys(by)
        async with alone:
            return await asyncio.to_thread(answer, keys, since, until, tenant)

    return router

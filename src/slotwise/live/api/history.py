"""The past, from the store: queues over time, jobs on servers, the journal page by page, and what happened to one job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from slotwise.errors import InputError
from slotwise.live.api.common import House, Number, Reader, done
from slotwise.live.api.models import Model
from slotwise.live.auth import EVERYONE, Caller
from slotwise.live.store import history
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Entry
from slotwise.live.store.records import Query as JobQuery
from slotwise.scheduling.refusals import refusals

When = Annotated[float, Query(ge=0, le=1e11, description="seconds since 1970")]
HOUR = 3600.0  # seconds
MOST_SERVERS = 200  # servers in one request, so that an answer stays small


class SeriesView(Model):
    """One queue over time; each list has a value for each step."""

    name: str
    length: list[int] = Field(description="waiting jobs at the end of the step")
    arrivals: list[int]
    starts: list[int]
    wait: list[float | None] = Field(description="mean wait in seconds of the jobs that were placed in the step")


class QueueHistory(Model):
    """All queues over time."""

    since: float
    step: float = Field(description="seconds")
    series: list[SeriesView]


class SpanView(Model):
    """A job on a server."""

    job: int
    type: str
    tenant: str
    name: str
    state: str
    server: str
    placed: float
    ended: float | None


class Timeline(Model):
    """Jobs on servers in a window of time."""

    since: float
    until: float
    spans: list[SpanView]
    complete: bool = Field(description="false: there were more, and the oldest are missing")


class Row(Model):
    """A row of the journal."""

    seq: int
    time: float
    event: dict[str, Any]
    placements: list[list[Any]]
    note: dict[str, Any] | None


class JournalPage(Model):
    """Rows, newest first."""

    rows: list[Row]
    last: int = Field(description="the newest row that there is")
    next: int | None = Field(description="`before` of the next page; null: there are no older rows")


class RefusalView(Model):
    """Why one server does not take a job now."""

    server: str
    why: str
    free: dict[str, float]
    lacks: dict[str, float]


class RefusalsView(Model):
    """Why no server takes a waiting job now: how many by reason, and those nearest to taking it."""

    state: str = Field(description="of the job; only a waiting job is refused")
    demand: dict[str, float]
    counts: dict[str, int]
    servers: list[RefusalView]


def own_numbers(store: Store, numbers: Sequence[int], tenant: str) -> set[int]:
    """Return which of these jobs are the tenant's."""
    found: set[int] = set()
    for at in range(0, len(numbers), 500):
        asked = JobQuery(ids=tuple(numbers[at : at + 500]), tenant=tenant, limit=500)
        found.update(job.id for job in store.jobs(asked))
    return found


def visible(store: Store, entries: Sequence[Entry], caller: Caller) -> list[Row]:
    """Return the rows that a caller may see: one with a tenant sees rows about its own jobs, without what else they placed."""
    rows = [
        Row.model_construct(
            seq=entry.seq,
            time=entry.time,
            event=json.loads(entry.event),
            placements=json.loads(entry.placements),
            note=None if entry.note is None else json.loads(entry.note),
        )
        for entry in entries
    ]
    if caller.tenant == EVERYONE:
        return rows
    numbers = {row.event["job"] for row in rows if "job" in row.event}
    numbers |= {placement[0] for row in rows for placement in row.placements}
    mine = own_numbers(store, sorted(numbers), caller.tenant)
    seen = []
    for row in rows:
        row.placements = [placement for placement in row.placements if placement[0] in mine]
        if row.event.get("job") in mine:
            seen.append(row)
        elif row.placements:
            row.event, row.note = {"event": row.event["event"], "now": row.event.get("now")}, None
            seen.append(row)
    return seen


def routes(house: House) -> APIRouter:
    """Return the routes about the past."""
    router = APIRouter(prefix="/v1", tags=["history"])
    store, loop = house.service.store, house.service.loop

    def window(since: float | None, until: float | None) -> tuple[float, float]:
        end = loop.clock.now() if until is None else until
        begin = end - HOUR if since is None else since
        if begin >= end:
            raise InputError("is not before until", where="since", remedy="give a window that has some length")
        return begin, end

    def own(caller: Caller) -> str | None:
        return None if caller.tenant == EVERYONE else caller.tenant

    @router.get("/queues/history")
    async def queue_history(
        caller: Reader,
        since: When | None = None,
        until: When | None = None,
        points: Annotated[int, Query(ge=1, le=2000)] = 120,
        by: Literal["type", "tenant"] = "type",
    ) -> QueueHistory:
        """Length, arrivals, starts and mean wait of each queue over time (the last hour by default), by type or by tenant.

        The answer begins with the oldest row of the journal where the store is younger than the window.
        """
        begin, end = window(since, until)
        begin = min(max(begin, await asyncio.to_thread(history.beginning, store, end)), end - 1.0)
        found = await asyncio.to_thread(
            history.queues, store, since=begin, until=end, points=points, by=by, tenant=own(caller)
        )
        series = [SeriesView.model_construct(**one._asdict()) for one in found]
        return QueueHistory.model_construct(since=begin, step=(end - begin) / points, series=series)

    @router.get("/timeline")
    async def timeline(
        caller: Reader,
        server: Annotated[list[str], Query(min_length=1, max_length=MOST_SERVERS)],
        since: When | None = None,
        until: When | None = None,
    ) -> Timeline:
        """The jobs that were on these servers in a window (the last hour by default), newest first."""
        begin, end = window(since, until)
        found = await asyncio.to_thread(history.spans, store, server, since=begin, until=end, tenant=own(caller))
        return Timeline.model_construct(
            since=begin,
            until=end,
            spans=[SpanView.model_construct(**one._asdict()) for one in found],
            complete=len(found) < history.MOST_SPANS,
        )

    @router.get("/journal")
    async def journal(
        caller: Reader,
        before: Number | None = None,
        after: Number | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        kind: Literal["all", "starts", "changes", "trouble"] = "all",
    ) -> JournalPage:
        """Rows of the journal, newest first: those before a row, or the newest; never those up to `after`.

        `kind` chooses rows that start jobs, that change servers or the cluster, or that tell of failures. A page may have fewer rows than `limit`,
        or none, although `next` is not null: a request reads a bounded part of the journal.
        """
        top = loop.ledger.seq
        begin, end = after or 0, top + 1 if before is None else before
        if kind == "all":
            found = await asyncio.to_thread(history.entries_before, store, end, limit=limit)
            kept = [entry for entry in found if entry.seq > begin]
            following = kept[-1].seq if len(kept) == limit and kept[-1].seq > 1 else None
        else:
            kept, following = await asyncio.to_thread(
                history.entries_of_kind, store, kind, end, after=begin, limit=limit
            )
        rows = await asyncio.to_thread(visible, store, kept, caller)
        return JournalPage.model_construct(rows=rows, last=top, next=following)

    @router.get("/jobs/{number}/history")
    async def job_history(number: int, caller: Reader) -> list[Row]:
        """What the journal says of a job, oldest first: submitted, placed, started, requeued, ended."""
        job = await house.job(number, caller)
        entries = await asyncio.to_thread(history.of_job, store, job.id, since=job.submitted, until=job.ended)
        return await asyncio.to_thread(visible, store, entries, caller)

    @router.get("/jobs/{number}/refusals")
    async def job_refusals(number: int, caller: Reader) -> RefusalsView:
        """Why no server takes a waiting job now: how many by reason, and the servers nearest to taking it. Nothing, if the job does not wait."""
        job = await house.job(number, caller)
        if job.state != "waiting":
            return RefusalsView(state=job.state, demand={}, counts={}, servers=[])
        try:
            found = await done(loop.ask(lambda ledger, _: refusals(ledger.core, number)))
        except InputError:  # it has just started, or was cancelled
            job = await house.job(number, caller)
            return RefusalsView(state=job.state, demand={}, counts={}, servers=[])
        return RefusalsView(
            state=job.state,
            demand=found.demand,
            counts=found.counts,
            servers=[
                RefusalView(server=str(one.server), why=one.why.value, free=one.free, lacks=one.lacks)
                for one in found.servers
            ],
        )

    return router

"""What others watch: the event stream, health, and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import generate_latest

from slotwise.live import metrics
from slotwise.live.api.common import House, Number, Reader, RefusedRequest, done
from slotwise.live.api.pages import Pages
from slotwise.live.auth import EVERYONE, Caller

QUIET_SECONDS = 15.0  # a comment is sent so often, so that both sides notice when the other has gone


def described(stream: str, event: str, data: str) -> dict[str, Any]:
    """Return the description of a stream's answer: what the stream holds, the kinds of its events, and their data."""
    parts = {"id": "the sequence number of a row, for Last-Event-ID", "event": event, "data": data}
    properties = {name: {"type": "string", "description": text} for name, text in parts.items()}
    schema = {"type": "object", "properties": properties}
    return {"description": stream, "content": {"text/event-stream": {"schema": schema}}}


DESCRIBED = described(
    "rows of the journal",
    "submit, complete, started, change, ...",
    "JSON: the row, with `placements` and `note`",
)


def routes(house: House) -> APIRouter:
    """All of them."""
    router = APIRouter()
    loop, store = house.service.loop, house.service.store
    pages = Pages(store)

    async def rows_from(seq: int, caller: Caller, follow: bool) -> AsyncIterator[str]:
        with house.streams.one(caller) as counted:
            yield f": from {seq}\n\n"  # a client whose connection ends before the first row comes back with this number
            while counted and house.guard.holds(caller):
                news = house.news.next()
                page = await pages.after(seq)
                if page.last is not None:
                    seq = page.last
                    yield await page.text(caller.tenant) or f": from {seq}\n\n"
                    await asyncio.sleep(house.streams.rest(caller, time.monotonic()))
                elif not follow or loop.ended.is_set():
                    return
                else:
                    yield ": waiting\n\n"
                    with suppress(TimeoutError):
                        await asyncio.wait_for(news.wait(), QUIET_SECONDS)

    @router.get("/v1/events", tags=["events"], response_class=EventStream, responses={200: DESCRIBED})
    async def events(
        request: Request, caller: Reader, after: Number | None = None, follow: bool = True
    ) -> StreamingResponse:
        """The journal as server-sent events, from a row on (`after`, or Last-Event-ID), and on as it grows."""
        house.streams.check(caller)
        resumed = request.headers.get("last-event-id", "")
        first = int(resumed) if resumed.isascii() and resumed.isdigit() and len(resumed) < 17 else after
        seq = loop.ledger.seq if first is None else first
        return EventStream(rows_from(seq, caller, follow))

    @router.get("/healthz", tags=["health"], response_class=PlainTextResponse)
    async def healthz() -> str:
        """The process is there."""
        return "ok\n"

    @router.get("/readyz", tags=["health"], response_class=PlainTextResponse)
    async def readyz() -> PlainTextResponse:
        """Whether requests are taken. The reason is told in answers to callers with a token: it may name paths and hosts."""
        return PlainTextResponse("ready\n") if loop.trouble is None else PlainTextResponse("not ready\n", 503)

    @router.get("/metrics", tags=["health"], response_class=PlainTextResponse)
    async def show_metrics(caller: Reader) -> PlainTextResponse:
        """Figures for Prometheus, of all tenants together."""
        if caller.tenant != EVERYONE:
            raise RefusedRequest(403, "metrics are of all tenants; this token is of one")
        if loop.trouble is None:
            await asyncio.to_thread(await done(loop.ask(metrics.measure)))
            await house.boards.full()  # with its alarms and the observed load
        metrics.INBOX.set(len(loop.inbox))
        metrics.READY.set(loop.trouble is None)
        return PlainTextResponse(generate_latest(metrics.REGISTRY), media_type="text/plain; version=0.0.4")

    return router


class EventStream(StreamingResponse):
    """As browsers and clients know it."""

    media_type = "text/event-stream"

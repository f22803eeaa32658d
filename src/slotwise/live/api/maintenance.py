"""Maintenance windows: plan, list, cancel."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from slotwise.errors import InputError
from slotwise.live.api.common import House, Operator, Reader, RefusedRequest, done
from slotwise.live.api.following import follow
from slotwise.live.api.models import Model
from slotwise.live.ledger import Ledger
from slotwise.live.spec import LONGEST_TIME, Short
from slotwise.live.store.records import ASSUMED, PLANNED, Window

Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False, description="seconds since 1970")]


class NewWindow(Model):
    """A window to plan."""

    server: Short
    begin: Moment
    until: Moment
    reason: str = Field("", max_length=500)
    assumed: float = Field(
        ASSUMED,
        gt=0,
        le=LONGEST_TIME,
        description="seconds that a job is expected to take that has neither a time limit nor an expected duration, and whose type has "
        "too few ended jobs to learn from",
    )
    tenant: str = Field(
        "", max_length=200, description="reserve the server for this tenant; empty: the server takes no jobs"
    )


class WindowView(Model):
    """A window."""

    id: int
    server: str
    begin: float
    until: float
    reason: str
    tenant: str = Field(description="for whom the server is reserved; empty: for maintenance")
    state: str = Field(
        description="planned, closed (its server takes no jobs now, or only those of the tenant), over or cancelled"
    )
    jobs: int = Field(description="that are placed or run on the server now")
    free_at: float | None = Field(
        description="when the last job on the server is expected to have ended; null: it has none"
    )


def shown(ledger: Ledger, window: Window, now: float) -> WindowView:
    """Return a window with what it means now."""
    live = [(job, one) for job, one in ledger.live.items() if one.server == window.server]
    is_planned = window.state == PLANNED
    server = ledger.servers.get(window.server)
    is_closed = is_planned and server is not None and ledger.is_closed(window, now)
    ends = [one.placed + ledger.expected_of(job, window.assumed) for job, one in live] if is_planned else []
    known = {name: value for name, value in window._asdict().items() if name in WindowView.model_fields}
    known["state"] = "closed" if is_closed else window.state
    return WindowView(**known, jobs=len(live) if is_planned else 0, free_at=max(ends, default=None))


def routes(house: House) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1/maintenance", tags=["cluster"])
    store, loop = house.service.store, house.service.loop

    async def asked(act: Any) -> Any:
        try:
            return await done(loop.ask(act))
        except InputError as error:
            raise RefusedRequest(409, str(error)) from None

    @router.get("")
    async def windows(caller: Reader) -> list[WindowView]:
        """Windows that are planned, and those that are over and still kept; the first to begin first."""
        found = await asyncio.to_thread(store.windows)
        views: list[WindowView] = await asked(
            lambda ledger, now: [shown(ledger, ledger.windows.get(one.id, one), now) for one in found]
        )
        return sorted(views, key=lambda one: (one.begin, one.id))

    @router.post("", status_code=201)
    async def plan(new: NewWindow, caller: Operator) -> WindowView:
        """Plan a window. Before it begins, the server takes only jobs that are expected to end by then; from its begin to its end it takes none."""
        if new.server not in loop.ledger.servers:
            raise RefusedRequest(404, f"there is no server {new.server!r}")
        await follow(house.service)
        window = Window(0, new.server, new.begin, new.until, new.reason, new.assumed, tenant=new.tenant)

        def act(ledger: Ledger, now: float) -> WindowView:
            return shown(ledger, ledger.plan(window, now), now)

        made: WindowView = await asked(act)
        return made

    @router.delete("/{number}")
    async def cancel(number: int, caller: Operator) -> WindowView:
        """Cancel a planned window, or end one that has begun: the server takes jobs again."""

        def act(ledger: Ledger, now: float) -> WindowView:
            return shown(ledger, ledger.cancel_window(number, now), now)

        made: WindowView = await asked(act)
        return made

    return router

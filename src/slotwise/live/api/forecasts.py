"""When jobs will start, what would change that, and which free capacity is unusable. A process of its own works it out (`live.forecast`)."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from slotwise.live.api.common import House, Reader
from slotwise.live.api.gate import RefusedRequest
from slotwise.live.api.slots import KeyedSlots, NoSlotError
from slotwise.live.auth import EVERYONE, Caller

NOTHING = {"p10": None, "p50": None, "p90": None, "coverage": None, "of": 0}
Count = Annotated[int, Field(ge=1, le=100_000)]
Factor = Annotated[float, Field(ge=0, lt=1000)]
Part = Annotated[float, Field(gt=0, lt=1)]
SLOW = 60.0  # seconds that a caller waits for a comparison
WAITING, MOST_AT_ONCE = 20, 32  # questions of one token that wait, and of all that are asked at the same time


class Wish(BaseModel):
    """A job that is not submitted yet."""

    model_config = ConfigDict(extra="forbid")
    needs: dict[str, Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]] = Field({}, max_length=100)
    requires: dict[str, list[str]] = Field({}, max_length=100)
    type: str | None = None
    time: Annotated[float, Field(gt=0, le=1e9)] | None = Field(None, description="time limit in seconds")
    tenant: str | None = None


class Question(BaseModel):
    """What would be different."""

    model_config = ConfigDict(extra="forbid")
    add: dict[str, Count] = Field({}, description="servers of each class that join")
    remove: dict[str, Count] = Field({}, description="servers of each class that take no more jobs")
    drain: list[str] = Field([], max_length=10_000, description="servers that take no more jobs")
    policy: str | None = Field(None, description="another policy")
    options: dict[str, Any] = Field({}, description="its options")
    rate: dict[str, Factor] = Field({}, description="a factor for the arrivals of each type")
    share: dict[str, Part] = Field({}, description="the part of the cluster that each tenant is to have")
    hours: Annotated[float, Field(gt=0, le=168)] = Field(4.0, description="how far to look ahead")


def routes(house: House) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/v1", tags=["forecasts"])
    desk = house.service.forecasts

    turns = KeyedSlots(1, WAITING)
    threads = ThreadPoolExecutor(MOST_AT_ONCE, "slotwise-asking")

    async def written(kind: str, caller: Caller, **request: Any) -> bytes:
        """Ask the worker, one question of each token at a time, of operators any. Answers may take a minute: they hold no thread that other requests need."""
        try:
            async with turns.one(caller.token) if caller.role != "operate" else nullcontext():
                return await asyncio.get_running_loop().run_in_executor(
                    threads, lambda: desk.written(kind, **request)
                )
        except NoSlotError as error:
            raise RefusedRequest(429, str(error), 1.0) from None

    async def ask(kind: str, caller: Caller, **request: Any) -> dict[str, Any]:
        """Return an answer of the worker, which must be small: to read it holds up the loop."""
        found: dict[str, Any] = json.loads(await written(kind, caller, **request))
        return found

    @router.get("/forecast/{number}")
    async def forecast(number: int, caller: Reader) -> dict[str, Any]:
        """When a waiting job starts: at 10, 50 and 90 %, in seconds from `as_of`."""
        job = await house.job(number, caller)
        found = await ask("forecast", caller, job=number)
        return NOTHING | {"job": number, "type": job.type, "state": job.state} | found

    @router.post("/forecast")
    async def forecast_of_needs(wish: Wish, caller: Reader) -> dict[str, Any]:
        """When a job would start that is not submitted yet."""
        tenant = wish.tenant if caller.tenant == EVERYONE else caller.tenant
        return NOTHING | await ask("needs", caller, **(wish.model_dump() | {"tenant": tenant}))

    @router.get("/forecasts", response_model=dict[str, Any])
    async def forecasts(
        caller: Reader,
        type: str | None = None,  # noqa: A002 - the name in the URL
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """All waiting jobs, queues by type and by tenant, and the ends of running jobs; a tenant's token sees the jobs of this tenant only."""
        found = await written("forecasts", caller, type=type, limit=limit, tenant=only(caller))
        return Response(found, media_type="application/json")

    @router.get("/forecast-coverage")
    async def coverage(caller: Reader) -> dict[str, Any]:
        """How often 80 % intervals held, overall, by type and by length of the forecast wait."""
        return await ask("coverage", caller)

    @router.post("/whatif")
    async def whatif(question: Question, caller: Reader) -> dict[str, Any]:
        """The next hours as they are and as they would be after a change. Nothing is changed."""
        if caller.tenant != EVERYONE and set(question.share) - {caller.tenant}:
            raise RefusedRequest(
                403, f"a token of tenant {caller.tenant} may ask for the share of this tenant only"
            )
        found = await ask("whatif", caller, patience=SLOW, **question.model_dump())
        if caller.tenant != EVERYONE:
            for side in ("now", "then"):
                if found.get(side):
                    own = found[side]["tenants"].get(caller.tenant)
                    found[side]["tenants"] = {} if own is None else {caller.tenant: own}
        return {"now": None, "then": None} | found

    @router.get("/advice")
    async def advice(caller: Reader) -> dict[str, Any]:
        """Free capacity that no waiting or usual job can use, why, until when, and what a drain would free."""
        return {"servers": [], "drains": []} | await ask("advice", caller, tenant=only(caller))

    return router


def only(caller: Caller) -> str | None:
    """Return the tenant whose jobs the caller may see; None for all jobs."""
    return None if caller.tenant == EVERYONE else caller.tenant

"""Hooks: how far their deliveries are, and a test of one. Nothing here adds or changes a hook: only the operator's file does."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from pydantic import Field

from slotwise.live.api.common import House, Operator, RefusedRequest
from slotwise.live.api.models import Model


class TrialView(Model):
    """An event that is not delivered yet."""

    id: str
    event: str
    since: float
    tries: int
    error: str
    next: float = Field(description="when it is tried again")


class HookView(Model):
    """A hook."""

    name: str
    on: list[str]
    target: str = Field(
        description="without the path of a URL or the arguments of a command: they may hold secrets"
    )
    tenant: str | None
    seq: int = Field(description="the row of the journal up to which all events were delivered or given up")
    behind: int = Field(description="rows of the journal that are not looked at yet")
    delivered: int
    given_up: int
    missed: int = Field(description="rows of the journal that were dropped before the hook came to them")
    last: float | None = Field(description="when an event was last delivered")
    trial: TrialView | None
    failures: list[dict[str, str | float]] = Field(description="the newest events that were given up")
    recent: list[dict[str, str | float]] = Field(description="the newest deliveries since the start")


class Tested(Model):
    """The result of a test."""

    error: str | None = Field(description="null: the test event was delivered")


def routes(house: House) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1/hooks", tags=["hooks"])

    @router.get("")
    async def hooks(caller: Operator) -> list[HookView]:
        """All hooks, with what was delivered and what was not."""
        return [HookView.model_construct(**one) for one in house.service.hooks.views()]

    @router.post("/{name}/test")
    async def test(name: str, caller: Operator) -> Tested:
        """Send a test event to a hook, once."""
        if name not in house.service.hooks.followers:
            raise RefusedRequest(404, f"there is no hook {name!r}")
        return Tested(error=await asyncio.to_thread(house.service.hooks.test, name))

    return router

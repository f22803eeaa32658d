"""What handlers share: who asks, how an answer says no, and how the loop is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse

from slotwise.live.api.connections import PEER_UID
from slotwise.live.api.gate import CALLER, Scope
from slotwise.live.api.gate import RefusedRequest as RefusedRequest
from slotwise.live.api.limits import Limits, Streams
from slotwise.live.api.news import News
from slotwise.live.auth import Caller, Guard
from slotwise.live.dashboard.sessions import Sessions
from slotwise.live.engines.protocol import Attached
from slotwise.live.service import Service
from slotwise.live.store.records import Job
from slotwise.live.time_limits import TimeLimits

if TYPE_CHECKING:
    from slotwise.live.api.board import Boards

T = TypeVar("T")
LARGEST_NUMBER = 2**53
Number = Annotated[int, Query(ge=0, le=LARGEST_NUMBER)]


def problem(status: int, title: str, detail: str, **headers: str) -> JSONResponse:
    """An error in the form of RFC 9457."""
    return JSONResponse(
        {"type": "about:blank", "title": title, "status": status, "detail": detail},
        status,
        headers=headers,
        media_type="application/problem+json",
    )


@dataclass
class House:
    """The service with its guard: what all handlers work with."""

    service: Service
    guard: Guard
    limits: Limits
    sessions: Sessions
    times: TimeLimits = field(default_factory=TimeLimits)
    address: str = ""
    """where browsers reach the service"""
    news: News = field(default_factory=News)
    streams: Streams = field(default_factory=Streams)
    boards: Boards = field(init=False)
    """set by the routes of the board"""

    def check_engine(self, what: str) -> None:
        """Refuse a request that the engine cannot carry out: "submit", "cancel" or "stop"."""
        engine = self.service.engine
        if isinstance(engine, Attached) and what in engine.refuses:
            raise RefusedRequest(409, engine.refuses[what])

    def identify(self, scope: Scope, headers: Mapping[str, str]) -> Caller | None:
        """Return who asks: the holder of a token, the user at the other end of a Unix socket, or the browser of a session."""
        if "authorization" in headers:
            return self.guard.caller(headers["authorization"])
        peer = scope.get("state", {}).get(PEER_UID)
        if peer is not None:
            return self.guard.peer(peer)
        return self.sessions.caller(scope["method"], headers)

    async def job(self, number: int, caller: Caller) -> Job:
        """A job that the caller may see."""
        known = 0 <= number < LARGEST_NUMBER
        job = await asyncio.to_thread(self.service.store.job, number) if known else None
        if job is None or not caller.sees(job.tenant):
            raise RefusedRequest(404, f"there is no job {number}")
        return job


async def done(future: Future[T]) -> T:
    """What the loop answers."""
    return await asyncio.wrap_future(future)


def caller_with(role: str) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that gives the caller, whom the gate has identified, if the role is enough."""

    async def check(request: Request) -> Caller:
        caller: Caller | None = request.scope[CALLER]
        if caller is None:
            raise RefusedRequest(401, "no valid token; send Authorization: Bearer ...")
        if not caller.may(role):
            raise RefusedRequest(403, f"a token of role {caller.role} may not do this; it needs {role}")
        return caller

    return check


Reader = Annotated[Caller, Depends(caller_with("read"))]
Submitter = Annotated[Caller, Depends(caller_with("submit"))]
Operator = Annotated[Caller, Depends(caller_with("operate"))]

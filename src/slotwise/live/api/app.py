"""The API over a running service. Handlers check and translate; what happens, happens in the loop."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from slotwise._version import __version__
from slotwise.errors import InputError
from slotwise.live.api import (
    board,
    changes,
    cluster,
    forecasts,
    graphs,
    history,
    hooks,
    jobs,
    maintenance,
    status,
    stream,
    tokens,
    usage,
)
from slotwise.live.api.common import House, RefusedRequest, problem
from slotwise.live.api.gate import LOOPBACK, Gate
from slotwise.live.api.limits import Limits
from slotwise.live.api.models import Problem
from slotwise.live.api.words import mistake_of
from slotwise.live.auth import Guard
from slotwise.live.dashboard import pages
from slotwise.live.dashboard.sessions import Sessions
from slotwise.live.inbox import FullError
from slotwise.live.loop import NotReadyError, UnsureError
from slotwise.live.quotas import QuotaFullError
from slotwise.live.service import Service
from slotwise.live.store.records import StoreError
from slotwise.live.time_limits import TimeLimits

CODES = (400, 401, 403, 404, 409, 413, 421, 422, 429, 503)


def make_app(
    service: Service,
    guard: Guard,
    hosts: Iterable[str] = LOOPBACK,
    limits: Limits | None = None,
    times: TimeLimits | None = None,
    sessions: Sessions | None = None,
    address: str = "",
) -> FastAPI:
    """The application."""
    app = FastAPI(
        title="Slotwise",
        version=__version__,
        description="Jobs that are not interrupted, on unlike servers: submit, watch, operate.",
        responses={code: {"model": Problem, "content": {"application/problem+json": {}}} for code in CODES},
        docs_url=None,  # pages that load scripts from elsewhere; the description itself is at /openapi.json
        redoc_url=None,
    )
    house = House(
        service,
        guard,
        limits or Limits(service.store.waiting_of),
        sessions or Sessions(guard),
        times or TimeLimits(),
        address,
    )
    app.state.house = house
    service.loop.on_commit = house.news.tell
    guard.on_revoke = house.news.ring
    for part in (
        board,
        graphs,
        history,
        hooks,
        jobs,
        changes,
        cluster,
        maintenance,
        forecasts,
        status,
        usage,
        tokens,
        stream,
        pages,
    ):
        app.include_router(part.routes(house))
    say_errors(app)
    app.add_middleware(Gate, house=house, hosts=list(hosts))
    return app


def say_errors(app: FastAPI) -> None:
    """Every error is one line that says what is wrong, in the form of RFC 9457."""

    @app.exception_handler(RefusedRequest)
    async def refused(_: Request, error: RefusedRequest) -> JSONResponse:
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        if error.retry_after is not None:
            headers["Retry-After"] = str(max(1, round(error.retry_after)))
        return problem(error.status, "refused", error.detail, **headers)

    @app.exception_handler(QuotaFullError)
    async def quota_full(_: Request, error: QuotaFullError) -> JSONResponse:
        return problem(429, "refused", str(error), **{"Retry-After": "10"})

    @app.exception_handler(InputError)
    async def wrong(_: Request, error: InputError) -> JSONResponse:
        return problem(400, "bad input", str(error))

    @app.exception_handler(NotReadyError)
    @app.exception_handler(FullError)
    @app.exception_handler(StoreError)
    async def not_now(_: Request, error: Exception) -> JSONResponse:
        if isinstance(error, UnsureError):
            return problem(504, "not certain", str(error))
        return problem(503, "not ready", str(error), **{"Retry-After": "1"})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(422, "bad input", str(mistake_of(error.errors()[0])))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, "refused", str(error.detail), **(error.headers or {}))

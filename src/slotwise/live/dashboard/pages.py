"""The pages of the dashboard and the way in: static files, the login link, and the codes for it."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, Field

from slotwise.live.api.common import House, Reader, RefusedRequest
from slotwise.live.dashboard.sessions import SESSION_SECONDS, cookie_name

STATIC = Path(__file__).parent / "static"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
OPTIONAL = ("forecasts", "whatif", "advice")  # parts of the API that a page asks for only if they are there
IMPORT_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)
HEADERS = {
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Asset(NamedTuple):
    """A file with what a browser is told about it."""

    content: bytes
    packed: bytes
    kind: str
    tag: str


class LoginCode(BaseModel):
    """A code that opens one session."""

    code: str
    address: str = Field(description="where the service listens, for callers that came through a socket")
    path: str = Field(description="of the login link, below the address of the service")
    expires: float = Field(description="seconds since 1970")


class Who(BaseModel):
    """Who asks."""

    role: str
    tenant: str
    offers: list[str] = Field(description="of forecasts, whatif and advice, those that this service has")


@cache
def assets() -> dict[str, Asset]:
    """Return all files, by their path below `static`. They are read once."""
    found = {}
    for path in sorted(STATIC.rglob("*")):
        if path.suffix in KINDS:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            kind = f"{KINDS[path.suffix]}; charset=utf-8"
            found[path.relative_to(STATIC).as_posix()] = Asset(content, gzip.compress(content, 9), kind, tag)
    return found


@cache
def policy() -> str:
    """Return the Content-Security-Policy of the page: everything from here, and no inline script but the import map."""
    found = IMPORT_MAP.search(assets()["index.html"].content)
    assert found is not None
    import_map = base64.b64encode(hashlib.sha256(found[1]).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{import_map}'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    )


def answer(request: Request, name: str) -> Response:
    """Return a file, packed where the browser takes that, or 304 where the browser has it."""
    asset = assets().get(name)
    if asset is None:
        raise RefusedRequest(404, f"there is no file {name!r}")
    headers = {**HEADERS, "ETag": asset.tag, "Vary": "Accept-Encoding", "Content-Security-Policy": policy()}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=asset.kind)
    return Response(asset.content, headers=headers, media_type=asset.kind)


def routes(house: House) -> APIRouter:
    """Return the routes of the pages and of the login."""
    router = APIRouter(tags=["dashboard"])

    @router.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        """The dashboard. The page itself shows nothing: all data comes from the API."""
        return answer(request, "index.html")

    @router.get("/assets/{name:path}", include_in_schema=False)
    async def asset(name: str, request: Request) -> Response:
        """A script or a style sheet."""
        return answer(request, name)

    @router.get("/login", include_in_schema=False)
    async def login(request: Request, code: Annotated[str, Query(max_length=100)] = "") -> Response:
        """Open a session for the browser that shows a one-time code, and show the cluster."""
        if request.headers.get("sec-fetch-dest", "document") != "document":
            raise RefusedRequest(403, "a login link opens in a window of its own")
        value = house.sessions.redeem(code)
        answered = RedirectResponse("/" if value else "/#/login?wrong", 303, HEADERS)
        if value:
            answered.set_cookie(
                cookie_name(request.headers.get("host", "")),
                value,
                max_age=round(SESSION_SECONDS),
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
        return answered

    @router.post("/logout", status_code=204, include_in_schema=False)
    async def logout(request: Request) -> Response:
        """End the session of this browser."""
        if not house.sessions.comes_from_here(request.method, request.headers):
            raise RefusedRequest(403, "requests from pages of other sites are refused")
        house.sessions.end(request.headers)
        answered = Response(status_code=204)
        answered.delete_cookie(cookie_name(request.headers.get("host", "")), httponly=True, samesite="strict")
        return answered

    @router.post("/v1/login-codes", status_code=201)
    async def login_code(caller: Reader) -> LoginCode:
        """Make a one-time code. The browser that opens its link gets a session with the rights of this token."""
        code, expires = house.sessions.code(caller)
        return LoginCode(code=code, address=house.address, path=f"/login?code={code}", expires=expires)

    @router.get("/v1/me")
    async def me(request: Request, caller: Reader) -> Who:
        """Who asks, in which role, and what the service offers."""
        paths = (await asyncio.to_thread(request.app.openapi))["paths"]
        return Who(
            role=caller.role, tenant=caller.tenant, offers=[name for name in OPTIONAL if f"/v1/{name}" in paths]
        )

    return router

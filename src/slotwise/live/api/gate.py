"""The gate before the API: who asks is known, and may ask, before a body is read or a handler runs.

In this order, for every request:

1. The Host header names this service, and an Origin is this service's own, so that no page of another site can send requests.
2. Who asks: a token, the peer of a Unix socket, or a session. Without a caller no body is read.
3. The rate of the caller, and how many of its requests are handled at the same time.
4. The size of the body: small, except for submissions. Few large bodies are handled at the same time, one for each tenant.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from slotwise.live.api.slots import KeyedSlots, NoSlotError

if TYPE_CHECKING:
    from slotwise.live.api.common import House
    from slotwise.live.api.limits import Limits
    from slotwise.live.auth import Caller

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
LOOPBACK = ("127.0.0.1", "localhost", "::1")
REFUSED = range(400, 500)  # statuses of an answer that blames the request
PORTS = {"http": 80, "https": 443}
# Key in a request's scope: the caller, None without a valid token.
CALLER = "slotwise.caller"

# Bytes of a body. A command line has at most a million characters, of which JSON may write each as six bytes.
SMALL = 64_000
LARGEST = {"/v1/jobs": 8_000_000, "/v1/jobs/bulk": 32_000_000}
LARGEST_OTHER = 1_000_000  # bytes of a request body on every path that is not in LARGEST
# Large bodies that are read, and that are handled, at the same time: a body of 32 MB takes some 300 MB while it is checked.
READ_AT_ONCE, HANDLED_AT_ONCE = 8, 2
BODY_SECONDS = 60.0  # for a whole body: 0.5 MB/s for the largest
AT_ONCE = 8  # requests of one token that are handled at the same time; operators have no limit
WAITING = 1_000  # requests of one token that wait
# Refusals that a caller may provoke again and again: they come after a pause (`Limits.refused`).
SLOWED = (401, 403, 413, 421, 429)
MISTAKES = (400, 422)  # as SLOWED, but not for operators, whose scripts may try names and amounts
REST = 4.0  # seconds for which a tenant sends no further large body, for each second that a refused one took
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)


class RefusedRequest(Exception):  # noqa: N818
    """An answer that is no."""

    def __init__(self, status: int, detail: str, retry_after: float | None = None) -> None:
        self.status, self.detail, self.retry_after = status, detail, retry_after


class Gate:
    """An ASGI middleware."""

    def __init__(self, app: Any, house: House, hosts: Iterable[str]) -> None:
        self.app, self.house = app, house
        self.hosts = {host.lower() for host in hosts}
        self._callers = KeyedSlots(AT_ONCE, WAITING)
        self._tenants = KeyedSlots(1, WAITING)
        self._reading = KeyedSlots(READ_AT_ONCE, WAITING)
        self._handling = KeyedSlots(HANDLED_AT_ONCE, WAITING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        statuses: list[int] = []
        send = slowed(with_headers(send), scope, self.house.limits, statuses)
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            check_origin(headers, scope.get("scheme", "http"), self.hosts)
            caller = scope[CALLER] = self.house.identify(scope, headers)
            length = length_of(headers)
            if length != 0 and caller is None:
                raise RefusedRequest(401, "no valid token; send Authorization: Bearer ...")
            largest = largest_body(scope["path"], caller)
            if length is not None and length > largest:
                raise RefusedRequest(413, f"the request is larger than {largest:,} bytes")
            if caller is None:
                await self.app(scope, receive, send)
                return
            early = self.house.limits.knock(caller)
            if early > 0:
                raise RefusedRequest(
                    429, f"more than {self.house.limits.rate:g} requests a second with this token", early
                )
            async with self._caller_slot(caller) as free:
                send = free_at_answer(send, free)
                if length == 0:
                    await self.app(scope, receive, send)
                elif length is not None and length <= SMALL:
                    await self.app(scope, replay(await read_body(receive, largest), receive), send)
                else:
                    async with self._tenants.one(caller.tenant):
                        async with self._reading.one():
                            body = await read_body(receive, largest)
                        async with self._handling.one():
                            began = time.monotonic()
                            await self.app(scope, replay(body, receive), send)
                            took = time.monotonic() - began
                        if caller.role != "operate" and any(status in REFUSED for status in statuses):
                            await asyncio.sleep(REST * took)
        except RefusedRequest as error:
            await refuse(send, error)
        except NoSlotError as error:
            await refuse(send, RefusedRequest(429, str(error), 1.0))

    @asynccontextmanager
    async def _caller_slot(self, caller: Caller) -> AsyncIterator[Callable[[], None]]:
        if caller.role == "operate":
            yield lambda: None
        else:
            async with self._callers.one(caller.token) as free:
                yield free


def place_of(header: str, scheme: str) -> tuple[str, int | None]:
    """Return host and port of a Host header or of the rest of an Origin; the host is empty if the header is malformed."""
    try:
        parts = urlsplit(f"//{header}")
        clean = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
        return (parts.hostname or "").lower() if clean else "", parts.port or PORTS.get(scheme)
    except ValueError:
        return "", None


def check_origin(headers: MutableMapping[str, str], scheme: str, hosts: set[str]) -> None:
    """Refuse requests of pages of other sites.

    A page can send requests to a service on this machine, and with DNS rebinding even read the answers. It cannot choose the Host header,
    nor leave the Origin out. Behind a proxy that ends TLS, pages have the scheme https, while the service sees http.
    """
    host, port = place_of(headers.get("host", ""), scheme)
    if host not in hosts:
        raise RefusedRequest(
            421, "the Host header names another server; use the address that the service listens on"
        )
    origin = headers.get("origin")
    if origin is None:
        return
    from_scheme, _, rest = origin.partition("://")
    schemes = {scheme} if host in LOOPBACK else {scheme, "https"}
    own = port if port != PORTS.get(scheme) else PORTS.get(from_scheme)
    if from_scheme not in schemes or place_of(rest, from_scheme) != (host, own):
        raise RefusedRequest(403, "requests from pages of other sites are refused")


def length_of(headers: MutableMapping[str, str]) -> int | None:
    """Return the announced length of the body; None if it is not announced."""
    if "transfer-encoding" in headers:
        return None
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise RefusedRequest(400, "Content-Length is no number")
    return int(length)


def largest_body(path: str, caller: Caller | None) -> int:
    """Return how many bytes the caller may send to a path."""
    if caller is None or not caller.may("submit"):
        return SMALL
    return LARGEST.get(path, LARGEST_OTHER)


async def read_body(receive: Receive, largest: int) -> bytes:
    """Read a whole body, within its size and time."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusedRequest(400, "the request ended before its body")
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > largest:
                    raise RefusedRequest(413, f"the request is larger than {largest:,} bytes")
                if not message.get("more_body"):
                    return b"".join(pieces)
    except TimeoutError:
        raise RefusedRequest(408, f"the body took longer than {BODY_SECONDS:g} seconds") from None


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, then what comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def with_headers(send: Send) -> Send:
    """Return a `send` that adds the headers of every answer, except those that a handler has set itself."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", ()))
            names = {name.lower() for name, _ in own}
            message = {**message, "headers": [*own, *(one for one in HEADERS if one[0] not in names)]}
        await send(message)

    return sent


def slowed(send: Send, scope: Scope, limits: Limits, statuses: list[int]) -> Send:
    """Return a `send` that waits before it refuses, so that a caller who tries again and again takes little of the service's time.

    `statuses` gets the status of the answer.
    """

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            status = message["status"]
            statuses.append(status)
            caller: Caller | None = scope.get(CALLER)
            if status in SLOWED or (status in MISTAKES and caller is not None and caller.role != "operate"):
                await asyncio.sleep(limits.refused("" if caller is None else caller.token))
        await send(message)

    return sent


def free_at_answer(send: Send, free: Callable[[], None]) -> Send:
    """Return a `send` that frees the caller's slot when the answer begins: a stream holds none."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            free()
        await send(message)

    return sent


async def refuse(send: Send, error: RefusedRequest) -> None:
    """Answer with an error in the form of RFC 9457. The connection ends: a body that was not read would follow."""
    content = {"type": "about:blank", "title": "refused", "status": error.status, "detail": error.detail}
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""What stands before the API: no request from a web page of elsewhere, none that is too large."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LARGEST = 64_000_000


def host_of(header: str) -> str:
    """The name in a Host header or an Origin, without its port."""
    try:
        return (urlsplit(header if "//" in header else f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


class Gate:
    """An ASGI middleware. A page in a browser can send requests to a service on this machine, and with DNS tricks even read the answers; it
    cannot choose the Host header, nor leave the Origin out."""

    def __init__(self, app: Any, hosts: Iterable[str], largest: int = LARGEST) -> None:
        self.app, self.largest = app, largest
        self.hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if host_of(headers.get(b"host", "")) not in self.hosts:
            await refuse(
                send, 421, "the Host header names another server; use the address that the service listens on"
            )
            return
        origin = headers.get(b"origin")
        if origin is not None and host_of(origin) not in self.hosts:
            await refuse(send, 403, "requests from pages of other sites are refused")
            return
        length = headers.get(b"content-length", "0")
        if not length.isdigit() or int(length) > self.largest:
            await refuse(send, 413, f"the request is larger than {self.largest:,} bytes")
            return
        read = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.largest:
                raise HTTPException(413, f"the request is larger than {self.largest:,} bytes")
            return message

        await self.app(scope, counted, send)


async def refuse(send: Send, status: int, detail: str) -> None:
    """An answer of the gate itself."""
    body = json.dumps({"type": "about:blank", "title": "refused", "status": status, "detail": detail}).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""HTTP/1.1 with JSON to one server, by asyncio alone: kept connections, TLS, and answers that go on for hours (watches).

A general client costs several times the CPU of this one, and a scheduler makes hundreds of requests a second.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from slotwise.errors import SlotwiseError

TIMEOUT = 10.0  # seconds for an answer; less than a lease lasts, so no request outlives the right to make it
KEPT = 64  # idle connections
LARGEST_LINE = 64 << 20  # bytes of one event of a watch
HEADER_LIMIT = 1 << 16

Headers = Callable[[], Awaitable[Mapping[str, str]]]


class HttpError(SlotwiseError):
    """The server cannot be reached, or its answer broke off."""


class StatusError(SlotwiseError):
    """The server refused a request."""

    def __init__(self, status: int, body: Any) -> None:
        told = body if isinstance(body, dict) else {}
        self.status, self.reason = status, str(told.get("reason") or "")
        super().__init__(f"{status} {told.get('message') or body or self.reason}".strip())


class Access(NamedTuple):
    """Where the server is and how to get in."""

    url: str
    tls: ssl.SSLContext | None
    headers: Headers  # asked before each request: tokens change
    server_name: str | None = None


class KeptConnection(NamedTuple):
    """A connection that is kept between requests."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class ApiClient:
    """Requests to one server; for one event loop."""

    def __init__(self, access: Access) -> None:
        parts = urlsplit(access.url)
        self.access, self._host = access, parts.hostname or "localhost"
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path.rstrip("/")
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self._authority = f"{shown}:{self._port}"
        self._idle: list[KeptConnection] = []

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        content: str = "application/json",
        timeout: float = TIMEOUT,
    ) -> Any:
        """Return the JSON of the answer. A refusal raises a StatusError, everything else that goes wrong an HttpError."""
        try:
            async with asyncio.timeout(timeout):
                return await self._call(method, path, body, params, content)
        except TimeoutError:
            raise HttpError(f"{self._authority} does not answer within {timeout:g} s") from None

    async def _call(self, method: str, path: str, body: Any, params: Mapping[str, Any] | None, content: str) -> Any:
        request = await self._request(method, path, body, params, content)
        while True:
            kept = bool(self._idle)
            connection = self._idle.pop() if kept else await self._connect()
            try:
                connection.writer.write(request)
                status, headers = await read_head(connection.reader)
                data = b"".join([piece async for piece in read_body(connection.reader, headers)])
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, ssl.SSLError) as error:
                connection.writer.close()
                if kept and isinstance(error, OSError | EOFError) and method == "GET":
                    continue  # the server had closed an idle connection
                raise HttpError(f"{self._authority}: {type(error).__name__}: {error}") from None
            except BaseException:
                connection.writer.close()
                raise
            break
        if headers.get("connection", "").lower() == "close" or len(self._idle) >= KEPT:
            connection.writer.close()
        else:
            self._idle.append(connection)
        answer = as_json(data)
        if status >= 300:
            raise StatusError(status, answer)
        return answer

    async def lines(self, path: str, params: Mapping[str, Any], silence: float) -> AsyncIterator[bytes]:
        """Yield the lines of an answer as they come. `silence` is how many seconds may pass without one."""
        request = await self._request("GET", path, None, params, "")
        connection = await self._connect()
        try:
            connection.writer.write(request)
            async with asyncio.timeout(TIMEOUT):
                status, headers = await read_head(connection.reader)
            if status >= 300:
                data = b"".join([piece async for piece in read_body(connection.reader, headers)])
                raise StatusError(status, as_json(data))
            rest: list[bytes] = []
            pieces = read_body(connection.reader, headers)
            while True:
                async with asyncio.timeout(silence):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                *whole, last = piece.split(b"\n")
                if whole:
                    yield b"".join([*rest, whole[0]])
                    for line in whole[1:]:
                        yield line
                    rest = []
                rest.append(last)
                if sum(map(len, rest)) > LARGEST_LINE:
                    raise HttpError(f"{self._authority}: a line of more than {LARGEST_LINE:,} bytes")
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, TimeoutError) as error:
            raise HttpError(f"{self._authority}: {type(error).__name__}: {error}") from None
        finally:
            connection.writer.close()

    async def _request(
        self, method: str, path: str, body: Any, params: Mapping[str, Any] | None, content: str
    ) -> bytes:
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        query = f"?{urlencode(params)}" if params else ""
        head = [
            f"{method} {self._base}{path}{query} HTTP/1.1",
            f"Host: {self._authority}",
            "Accept: application/json",
        ]
        head += [f"{name}: {value}" for name, value in (await self.access.headers()).items()]
        if body is not None:
            head += [f"Content-Type: {content}"]
        if body is not None or method != "GET":
            head += [f"Content-Length: {len(data)}"]
        return "\r\n".join([*head, "User-Agent: slotwise", "", ""]).encode("latin-1") + data

    async def _connect(self) -> KeptConnection:
        name = (self.access.server_name or self._host) if self.access.tls is not None else None
        try:
            async with asyncio.timeout(TIMEOUT):
                return KeptConnection(
                    *await asyncio.open_connection(
                        self._host, self._port, ssl=self.access.tls, server_hostname=name, limit=HEADER_LIMIT
                    )
                )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            raise HttpError(f"cannot reach {self._authority}: {error}") from None

    def close(self) -> None:
        """Close the connections that are kept."""
        for one in self._idle:
            one.writer.close()
        self._idle.clear()


def as_json(data: bytes) -> Any:
    """Return an answer as JSON; as text if it is none."""
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data.decode("utf-8", "replace")


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Return status and headers, the latter with lower-case names."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ", 2)[1])
        if status >= 200:  # 1xx: the answer is yet to come
            pairs = (line.partition(":") for line in head[1:] if line)
            return status, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Yield the body in pieces."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            if size:
                yield await reader.readexactly(size)
            await reader.readuntil(b"\r\n")
            if not size:
                return
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while data := await reader.read(1 << 16):
            yield data

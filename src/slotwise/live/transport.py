"""HTTP to the service over TCP, TLS or a Unix socket.

Standard library only: every command of the client imports this module and must start within 0.15 s.
"""

from __future__ import annotations

import json as jsons
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.addresses import Address
from slotwise.live.wire import Response, ServiceConnection

TIMEOUT = 60.0  # seconds without an answer
MOST_IDLE = 8  # connections that are kept


class ServiceError(SlotwiseError):
    """An error that the service answered, or its absence (then the status is 0)."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        self.exit_code = InputError.exit_code if status in (400, 413, 422) else SlotwiseError.exit_code
        super().__init__(message)

    @property
    def passing(self) -> bool:
        """Whether the cause may be over in a moment: the service restarts, or its store is away."""
        return self.status in (0, 503)


class Answer(NamedTuple):
    """What the service answered; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the content, read as JSON."""
        return jsons.loads(self.content)


def problem_of(status: int, reason: str, content: bytes) -> ServiceError:
    """Return the error that an answer tells, in the words of the service."""
    try:
        detail = str(jsons.loads(content)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = content.decode("utf-8", "replace").strip()[:500] or reason
    if status == 401:
        detail += "; set SLOTWISE_TOKEN, or use a profile"
    return ServiceError(detail, status)


def absent(url: str, error: object) -> ServiceError:
    """Return the error of a service that does not answer."""
    said = str(error) or type(error).__name__
    return ServiceError(f"{url}: no service answers ({said}); is `slotwise serve` running?")


class Transport:
    """Requests to one service over kept connections, one for each thread that asks at the same time."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        self._prefix = "" if address.url.startswith("unix:") else urlsplit(address.url).path.rstrip("/")
        self._idle: list[ServiceConnection] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the answer to a request. Raise ServiceError where the service refuses it or is not there."""
        sent = {**self._headers, **(headers or {})}
        data = None
        if json is not None:
            data = jsons.dumps(json).encode()
            sent["Content-Type"] = "application/json"
        response, content = self._exchange(method, self._prefix + with_query(path, params), data, sent)
        if not 200 <= response.status < 300:
            raise problem_of(response.status, response.reason, content)
        return Answer(response.status, response.headers, content)

    def lines(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[str]:
        """Yield the lines of an answer as they arrive, on a connection of their own."""
        try:
            with closing(self._connect()) as connection:
                response = connection.request("GET", self._prefix + with_query(path, params), None, self._headers)
                if response.status != 200:
                    raise problem_of(response.status, response.reason, response.read())
                yield from response.lines()
        except OSError as error:
            raise absent(self.address.url, error) from None

    # -- inside -------------------------------------------------------------------------------------------------

    def _exchange(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[Response, bytes]:
        connection = self._take()
        reused = connection is not None
        try:
            connection = connection or self._connect()
            response = connection.request(method, target, data, headers)
            content = response.read()
        except OSError as error:
            if connection is not None:
                connection.close()
            if reused and method == "GET":  # other methods are not repeated: the service may have acted
                return self._exchange(method, target, data, headers)
            raise absent(self.address.url, error) from None
        with self._lock:
            if response.closes or len(self._idle) >= MOST_IDLE:
                connection.close()
            else:
                self._idle.append(connection)
        return response, content

    def _connect(self) -> ServiceConnection:
        return ServiceConnection(self.address.url, TIMEOUT, secret=self.address.token is not None)

    def _take(self) -> ServiceConnection | None:
        """Return a kept connection that the service has not closed."""
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_stale():
                    return connection
                connection.close()
        return None


def with_query(path: str, params: Mapping[str, Any] | None) -> str:
    """Return a path with a query string; None values are left out, lists are repeated."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in (params or {}).items()
        if value is not None
    }
    return f"{path}?{urlencode(given, doseq=True)}" if given else path

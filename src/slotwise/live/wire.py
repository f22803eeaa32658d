"""HTTP/1.1 as far as a client of the service needs it, over TCP, TLS or a Unix socket.

`http.client` does more, and importing it takes longer than the rest of a command of the client together. One request at a time; bodies with a
length, in chunks, or up to the end of the connection.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from slotwise.live import unix_sockets
from slotwise.live.addresses import is_here
from slotwise.live.listeners import stranger

LONGEST_LINE = 1 << 16  # bytes of a status line or a header
MOST_HEADERS = 200


class WireError(OSError):
    """The other side does not speak HTTP, or ended the connection too early."""


class Response:
    """The head of an answer; the body is read from the connection by `read` or `lines`."""

    def __init__(self, file: BufferedReader, method: str) -> None:
        self._file = file
        version, _, rest = read_line(file).partition(" ")
        number, _, self.reason = rest.partition(" ")
        if not version.startswith("HTTP/1.") or not number.isdigit():
            raise WireError("the answer is not HTTP")
        self.status = int(number)
        self.headers: dict[str, str] = {}
        while line := read_line(file):
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
            if len(self.headers) > MOST_HEADERS:
                raise WireError("the answer has too many headers")
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        self._length = int(length) if length.isdigit() and not self._chunked else None
        if method == "HEAD" or self.status in (204, 304):
            self._length, self._chunked = 0, False
        self.closes = (
            self.headers.get("connection", "").lower() == "close"
            or version == "HTTP/1.0"
            or (self._length is None and not self._chunked)
        )

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives."""
        if self._chunked:
            while size := read_size(self._file):
                yield read_exactly(self._file, size)
                read_line(self._file)
            while read_line(self._file):
                continue  # headers after the body
        elif self._length is not None:
            if self._length:
                yield read_exactly(self._file, self._length)
        else:
            while piece := self._file.read1(1 << 16):
                yield piece

    def read(self) -> bytes:
        """Return the whole body."""
        return b"".join(self.pieces())

    def lines(self) -> Iterator[str]:
        """Yield the lines of the body as they arrive."""
        unread = b""
        for piece in self.pieces():
            *whole, unread = (unread + piece).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace").rstrip("\r")
        if unread:
            yield unread.decode("utf-8", "replace")


def read_line(file: BufferedReader) -> str:
    """Return a line of the head without its end."""
    line = file.readline(LONGEST_LINE + 1)
    if not line.endswith(b"\n"):
        raise WireError("the connection ended early" if len(line) <= LONGEST_LINE else "a header is too long")
    return line.decode("latin-1").rstrip("\r\n")


def read_size(file: BufferedReader) -> int:
    """Return the size of the next chunk."""
    text = read_line(file).partition(";")[0].strip()
    try:
        return int(text, 16)
    except ValueError:
        raise WireError("the answer is not HTTP: a chunk has no size") from None


def read_exactly(file: BufferedReader, size: int) -> bytes:
    """Return so many bytes."""
    data = file.read(size)
    if len(data) < size:
        raise WireError("the connection ended early")
    return data


def open_socket(url: str, timeout: float, *, secret: bool) -> tuple[Any, str]:
    """Connect to a URL, without any proxy; the socket and the Host header. A `secret` is sent to no stranger on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return unix_sockets.connect(Path(unquote(parts.path)), timeout), "localhost"
    host, secure = parts.hostname or "", parts.scheme == "https"
    if secret and not secure and not is_here(host):
        raise WireError("the token would be sent in clear")
    sock = socket.create_connection((host, parts.port or (443 if secure else 80)), timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if secure:
        import ssl

        return ssl.create_default_context().wrap_socket(sock, server_hostname=host), parts.netloc.rpartition("@")[2]
    if secret:  # now that the connection is there, the port cannot change hands before the token is sent
        why = stranger(parts.port or 80)
        if why is not None:
            sock.close()
            raise WireError(why)
    return sock, parts.netloc.rpartition("@")[2]


class ServiceConnection:
    """An open connection to the service."""

    def __init__(self, url: str, timeout: float, *, secret: bool = False) -> None:
        self._socket, self._host = open_socket(url, timeout, secret=secret)
        self._file = self._socket.makefile("rb")

    def request(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        """Send a request; return the head of the answer."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._host}", *(f"{k}: {v}" for k, v in headers.items())]
        if body is not None or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body or b'')}")
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("a line of a request has a line break")
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        return Response(self._file, method)

    def is_stale(self) -> bool:
        """Return whether the service has closed this idle connection: then there is an end of file to read."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()

"""The connection to the service: lines of JSON, one service at a time, never waiting for it."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

VERSION = 2


class Talk:
    """At most one service; a new one takes the place of one that may hang."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._peer: socket.socket | None = None
        self._unread = self._unsent = b""

    def __bool__(self) -> bool:
        return self._peer is not None

    def accept(self, listening: socket.socket) -> None:
        """A service has come."""
        self.hang_up()
        self._peer, _ = listening.accept()
        self._peer.setblocking(False)
        self._epoll.register(self._peer.fileno(), select.EPOLLIN)
        self.tell({"hello": VERSION})

    def hang_up(self) -> None:
        """The service has gone."""
        if self._peer is not None:
            self._epoll.unregister(self._peer.fileno())
            self._peer.close()
        self._peer, self._unread, self._unsent = None, b"", b""

    def tell(self, message: dict[str, Any]) -> None:
        """Say something with the next `send`; nobody hears it where no service is there."""
        if self._peer is not None:
            self._unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def send(self) -> None:
        """As much of what was said as goes out now."""
        if self._peer is None or not self._unsent:
            return
        waited = False
        while self._unsent:
            try:
                sent = self._peer.send(self._unsent)
            except BlockingIOError:
                waited = True
                break
            except OSError:
                self.hang_up()
                return
            self._unsent = self._unsent[sent:]
        self._epoll.modify(self._peer.fileno(), select.EPOLLIN | (select.EPOLLOUT if waited else 0))

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come."""
        while self._peer is not None:
            try:
                data = self._peer.recv(1 << 20)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.hang_up()
                break
            self._unread += data
        if b"\n" not in self._unread:
            return []
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

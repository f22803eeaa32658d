"""Connections of clients: the user at the other end of a Unix socket, and the end of connections that send nothing."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from slotwise.live.unix_sockets import is_peer_confined, peer_of

# Key in a request's state: the number of the user at the other end of a Unix socket, None for any other connection.
PEER_UID = "peer"
HEAD_SECONDS = 10.0  # for the head of a request: a connection that sends nothing, or a byte now and then, is closed
# A peer that has gone without a word, such as a machine that lost its network, is noticed after about two minutes.
KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 20), (socket.TCP_KEEPCNT, 3)) if hasattr(
    socket, "TCP_KEEPIDLE"
) else ()  # fmt: skip
USER_TIMEOUT = 120_000  # milliseconds that sent bytes may stay unacknowledged


def peer_uid(sock: socket.socket) -> int | None:
    """Return the number of the user at the other end of a Unix socket, as the kernel knows it; None for other sockets.

    A confined job has the number of our own user, and must not operate: it needs a token.
    """
    if sock.family != socket.AF_UNIX:
        return None
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    uid = peer_of(sock).uid
    own = os.geteuid()
    return None if uid == own != 0 and is_peer_confined(sock) else uid


def notice_lost_peers(sock: socket.socket) -> None:
    """Let the kernel end connections whose peer is gone. Connections take these options from the socket that listens."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT)


class PeerConnection(H11Protocol):
    """A connection that knows its peer and does not wait for ever for a request."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        sock: Any = transport.get_extra_info("socket")
        # a value of the connection, not of a header: no request can claim to come from a user
        self.app_state = {**self.app_state, PEER_UID: peer_uid(sock) if sock is not None else None}
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Begin to wait for the head of a request, or end that if the head is there."""
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _unwatch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

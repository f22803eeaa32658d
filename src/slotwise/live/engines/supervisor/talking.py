"""The connection to the service: lines of JSON, one service at a time, never waiting for it."""

from __future__ import annotations

import json
import os
import select
import socket
from contextlib import suppress
from signal import NSIG
from sys import float_info
from typing import Any

from slotwise.live.engines.supervisor.limits import MOST
from slotwise.live.engines.supervisor.trees import descends
from slotwise.live.unix_sockets import is_confined, is_peer_confined, peer_of

VERSION = 2  # of the protocol


class Talk:
    """At most one service; a newer one takes the place of one that may hang.

    Each says its epoch first. One that is older than any that was here, because it hung and has woken up, is sent away, also while no
    other is connected. So is one that says what cannot be understood.
    """

    def __init__(self, epoll: select.epoll, epoch: int, *, has_strangers: bool = False) -> None:
        self._epoll, self._has_strangers = epoll, has_strangers
        self._peer: socket.socket | None = None
        self.epoch = epoch
        """the newest that was heard"""
        self._unread = self._unsent = b""
        self._newcomer: socket.socket | None = None
        self._said = b""
        """what the newcomer has said so far"""

    def __bool__(self) -> bool:
        return self._peer is not None or self._newcomer is not None

    def accept(self, listening: socket.socket) -> None:
        """Let a service connect."""
        self._hear_newcomer()  # the one before may have said its epoch meanwhile
        self._send_away()
        newcomer, _ = listening.accept()
        if is_a_job(newcomer, self._has_strangers):
            newcomer.close()
            return
        newcomer.setblocking(False)
        try:
            newcomer.send(line({"hello": VERSION}))
        except OSError:  # it was killed before it was let in
            newcomer.close()
            return
        self._epoll.register(newcomer.fileno(), select.EPOLLIN)
        self._newcomer = newcomer

    def _send_away(self) -> None:
        if self._newcomer is not None:
            self._epoll.unregister(self._newcomer.fileno())
            self._newcomer.close()
        self._newcomer, self._said = None, b""

    def _hear_newcomer(self) -> None:
        """Once it has said its epoch it takes the place of the other, or has to go."""
        if self._newcomer is None:
            return
        data, gone = read(self._newcomer)
        self._said += data
        if b"\n" not in self._said:
            if gone:
                self._send_away()
            return
        first, _, rest = self._said.partition(b"\n")
        try:
            epoch = parse(first).get("epoch", 0)
        except ValueError:
            self._send_away()
            return
        if epoch < self.epoch:
            with suppress(OSError):
                self._newcomer.send(line({"refused": self.epoch}))
            self._send_away()
            return
        newcomer, self._newcomer, self._said = self._newcomer, None, b""
        self.hang_up()
        self._peer, self.epoch, self._unread = newcomer, epoch, rest

    def hang_up(self) -> None:
        """Close the connection to a service that has gone."""
        if self._peer is not None:
            self._epoll.unregister(self._peer.fileno())
            self._peer.close()
        self._peer, self._unread, self._unsent = None, b"", b""

    def tell(self, message: dict[str, Any]) -> None:
        """Add a message to the next `send`. The message is dropped if no service is connected."""
        if self._peer is not None:
            self._unsent += line(message)

    def send(self) -> None:
        """Send as much of the messages as goes out now."""
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
        """Return the messages that have come; those that one service sent before another took its place come first."""
        messages = self._messages()
        before = self._peer
        self._hear_newcomer()
        return messages if self._peer is before else messages + self._messages()

    def _messages(self) -> list[dict[str, Any]]:
        if self._peer is None:
            return []
        data, gone = read(self._peer)
        self._unread += data
        if gone:
            self.hang_up()
        if b"\n" not in self._unread:
            return []
        *lines, self._unread = self._unread.split(b"\n")
        messages = []
        for one in lines:
            try:
                messages.append(parse(one))
            except ValueError:
                self.hang_up()
                break
        return messages


def is_a_job(peer: socket.socket, has_strangers: bool) -> bool:
    """Return whether a job may be at the other end: a process that descends from us.

    Jobs that an earlier supervisor started are strangers: they do not descend from us. Those of them that are confined are known by that.
    """
    return descends(peer_of(peer).pid, os.getpid()) or (
        has_strangers and is_peer_confined(peer) and not is_confined()
    )


def line(message: dict[str, Any]) -> bytes:
    """Return a message as it is sent."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def parse(text: bytes) -> dict[str, Any]:
    """Return a message of a service. Raise ValueError if it is none."""
    try:
        message = json.loads(text)
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(message, dict):
        raise ValueError("no object")
    ok = is_whole(message.get("epoch", 0))
    ok &= all(is_attempt(one) for name in ("settled", "known") for one in a_list(message, name))
    ok &= "known" not in message or is_whole(message.get("id"))
    if "stop" in message:
        stop = message["stop"]
        ok &= isinstance(stop, list) and len(stop) == 3 and is_attempt(stop[:2]) and is_seconds(stop[2])
    ok &= all(is_start(one) for one in a_list(message, "start"))
    if not ok:
        raise ValueError("not understood")
    return message


def a_list(message: dict[str, Any], name: str) -> list[Any]:
    """Return the list that a message has under this name."""
    found = message.get(name, [])
    if not isinstance(found, list):
        raise ValueError(f"{name} is no list")
    return found


def is_whole(one: Any) -> bool:
    """Return whether it is a number as the log and the kernel have them."""
    return type(one) is int and 0 <= one <= MOST


def is_seconds(one: Any) -> bool:
    """Return whether it is a time span."""
    return type(one) in (int, float) and 0 <= one <= float_info.max


def is_attempt(one: Any) -> bool:
    """Return whether it is a job and an attempt."""
    return isinstance(one, list) and len(one) == 2 and all(map(is_whole, one))


def is_warning(one: Any) -> bool:
    """Return whether it is a signal, and the seconds before the end of a time limit at which to send it."""
    return isinstance(one, list) and len(one) == 2 and is_whole(one[0]) and one[0] < NSIG and is_seconds(one[1])


def is_start(one: Any) -> bool:
    """Return whether it says all that a start needs."""
    return (
        isinstance(one, dict)
        and is_attempt([one.get("job"), one.get("attempt")])
        and isinstance(one.get("argv"), list)
        and bool(one["argv"])
        and all(isinstance(word, str) for word in one["argv"])
        and isinstance(one.get("env"), dict)
        and all(isinstance(word, str) for word in one["env"].values())
        and isinstance(one.get("cwd"), str)
        and isinstance(one.get("user", ""), str)
        and all(isinstance(path, str) for name in ("hidden", "fixed") for path in a_list(one, name))
        and is_whole(one.get("output"))
        and all(is_whole(one.get(name) or 0) for name in ("cpu", "gpu", "memory", "files", "processes"))
        and all(isinstance(one.get(name) or [], list) for name in ("cpus", "gpus"))
        and all(is_whole(number) for name in ("cpus", "gpus") for number in one.get(name) or [])
        and all(is_seconds(one.get(name) or 0) for name in ("time", "grace"))
        and (not one.get("warn") or is_warning(one["warn"]))
    )


def read(peer: socket.socket) -> tuple[bytes, bool]:
    """Return all that has come, and whether the other side has gone."""
    parts: list[bytes] = []
    while True:
        try:
            data = peer.recv(1 << 20)
        except BlockingIOError:
            return b"".join(parts), False
        except OSError:
            data = b""
        if not data:
            return b"".join(parts), True
        parts.append(data)

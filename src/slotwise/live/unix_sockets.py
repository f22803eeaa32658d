"""Unix sockets: the way in for users of this machine, whom the kernel names. Standard library only: the client imports this module."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from slotwise.errors import InputError

LONGEST = 100  # bytes of a path that every system takes as the name of a socket
# Where clients look for a service that an administrator runs for all users of this machine.
SYSTEM = Path("/run/slotwise/slotwise.sock")
PEER_PIDFD = 77  # SO_PEERPIDFD, since Linux 6.5


class Peer(NamedTuple):
    """The process at the other end of a Unix socket, as the kernel knows it."""

    pid: int
    """0: a process of another container"""
    uid: int


def peer_of(sock: socket.socket) -> Peer:
    """Return who made a connection."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return Peer(pid, uid)


def is_confined(pid: int | str = "self") -> bool:
    """Return whether a process may be one of a confined job (see `engines.supervisor.confining`). One that has gone may have been."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return any(line.split() == ["NoNewPrivs:", "1"] for line in file)
    except OSError:
        return True


def is_peer_confined(sock: socket.socket) -> bool:
    """Return whether a confined job may have made a connection, also if its process has gone and another has got its number."""
    pid = peer_of(sock).pid
    if not pid:
        return False
    try:
        process = sock.getsockopt(socket.SOL_SOCKET, PEER_PIDFD)
    except OSError as error:
        return error.errno != errno.ENOPROTOOPT or is_confined(pid)
    try:
        confined = is_confined(pid)
        signal.pidfd_send_signal(process, 0)  # type: ignore[attr-defined,unused-ignore]
    except ProcessLookupError:
        return True
    except PermissionError:
        return confined
    finally:
        os.close(process)
    return confined


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Give a name of a socket that is short enough: a long path is reached through a descriptor of its folder."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connect(path: Path, timeout: float | None) -> socket.socket:
    """Return a connection to the service that listens on a socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        with short_name(path) as name:
            sock.connect(name)
    except BaseException:
        sock.close()
        raise
    return sock


def listen(path: Path, *, for_all: bool) -> socket.socket:
    """Return a socket that is bound to a path, for this user only or for all users. Replace the socket of a service that has ended."""
    path.parent.mkdir(mode=0o755 if for_all else 0o700, parents=True, exist_ok=True)
    try:
        connect(path, 1.0).close()
    except OSError:
        with suppress(FileNotFoundError):
            path.unlink()  # no service listens any more
    else:
        raise InputError(
            f"another service listens on {path}", where="--socket", remedy="end it, or name another path"
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # never open to others, not even for a moment
    try:
        with short_name(path) as name:
            sock.bind(name)
    except OSError as error:
        sock.close()
        raise InputError(
            f"cannot listen on {path}: {error.strerror}", where="--socket", remedy="name another path"
        ) from None
    finally:
        os.umask(before)
    if for_all:
        path.chmod(0o666)
    return sock

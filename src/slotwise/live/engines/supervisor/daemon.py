"""Becoming the one supervisor of a folder: the lock, the socket, and detaching from the process that started it."""

from __future__ import annotations

import fcntl
import os
import socket

from slotwise.live.engines.supervisor.rounds import Supervisor


def main(folder: str, *, uses_groups: bool = True) -> None:
    """Become a daemon, unless another one is here already."""
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    # by way of a descriptor: the folder may be moved while its supervisor waits for the next service
    supervisor = Supervisor(f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}")
    listening = listen(folder)
    if os.fork():
        os._exit(0)  # who started us need not wait any longer; the lock is the child's
    os.setsid()
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())  # for people
    supervisor.serve(listening)


def listen(folder: str) -> socket.socket:
    """The socket; its name is given from inside the folder, since such names are short and paths need not be."""
    os.chdir(folder)
    if os.path.exists("socket"):
        os.unlink("socket")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.umask(0o077)
    listening.bind("socket")
    listening.listen(4)
    listening.setblocking(False)
    os.chdir("/")
    return listening

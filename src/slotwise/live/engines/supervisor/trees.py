"""The processes of a job where no control group names them: what descends from its first process.

The supervisor is a subreaper: a process whose parent ends becomes a child of the supervisor, not of the machine's first process. Such an orphan belongs
to the job in whose session it is, or whose claim is in the environment it was started with. An orphan that has left its session and
wiped its environment cannot be told apart; it is ended with the next job that ends. That is the limit of this way.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

# Environment variable that names the job of a process.
CLAIM = "SLOTWISE_CLAIM"
SET_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux
PASSES = 50  # rounds of killing: each ends what the processes killed before had started meanwhile
_libc = ctypes.CDLL(None, use_errno=True)
_page = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    """A line of the process table."""

    pid: int
    state: str
    parent: int
    group: int
    session: int


def become_subreaper() -> None:
    """Become the parent of orphans below us."""
    _libc.prctl(SET_SUBREAPER, 1, 0, 0, 0)


def read(pid: int) -> Process | None:
    """Return a process, None where it has gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Process(pid, words[0].decode(), int(words[1]), int(words[2]), int(words[3]))


def table() -> dict[int, Process]:
    """Return all processes that have not ended."""
    found = (read(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {one.pid: one for one in found if one is not None and one.state not in "ZX"}


def descends(pid: int, ancestor: int) -> bool:
    """Return whether a process descends from another one."""
    while pid and (one := read(pid)) is not None:
        pid = one.parent
        if pid == ancestor:
            return True
    return False


def claim_of(pid: int) -> str:
    """Return the claim in the environment that a process was started with; '' where there is none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return ""
    start = f"{CLAIM}=".encode()
    return next((one[len(start) :].decode("ascii", "replace") for one in variables if one.startswith(start)), "")


def children() -> list[int]:
    """Return our own children."""
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children", encoding="ascii") as file:
            return list(map(int, file.read().split()))
    except FileNotFoundError:  # a kernel without this file
        return [one.pid for one in table().values() if one.parent == own]


def descendants(processes: dict[int, Process], roots: Collection[int]) -> set[int]:
    """Return the roots and all that descends from them."""
    below: dict[int, list[int]] = {}
    for one in processes.values():
        below.setdefault(one.parent, []).append(one.pid)
    found: set[int] = set()
    left = [pid for pid in roots if pid in processes]
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += below.get(pid, ())
    return found


def members(processes: dict[int, Process], first: int, claim: str, orphans: Iterable[int]) -> set[int]:
    """Return the processes of a job by its first process, its session, and its claim in the environment of orphans."""
    own = os.getpid()
    roots = {one.pid for one in processes.values() if first in (one.pid, one.session, one.group)}
    roots |= {pid for pid in orphans if claim and claim_of(pid) == claim}
    return descendants(processes, roots - {own})


def signal_all(pids: Iterable[int], number: int) -> bool:
    """Signal processes; False if none was left."""
    any_left = False
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            any_left = True
    return any_left


def end_orphans(ours: Collection[int], kept: Collection[str], sessions: Collection[int]) -> None:
    """Kill orphans that belong to none of the jobs that run: neither by claim nor by session. Repeat until none is left."""
    own = os.getpid()
    for _ in range(PASSES):
        orphans = [pid for pid in children() if pid not in ours]
        found = [one for one in map(read, orphans) if one is not None and one.state not in "ZX"]
        strays = [one.pid for one in found if one.session not in sessions and claim_of(one.pid) not in kept]
        if not strays:
            return
        signal_all(descendants(table(), strays) - {own}, signal.SIGKILL)


def memory_of(pids: Iterable[int]) -> int:
    """Return the bytes of memory that processes have for themselves: resident and not shared with a file."""
    total = 0
    for pid in pids:
        with suppress(OSError, ValueError), open(f"/proc/{pid}/statm", "rb") as file:
            words = file.read().split()
            total += (int(words[1]) - int(words[2])) * _page
    return total

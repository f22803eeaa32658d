"""Control groups (cgroup v2): one for each attempt, where a part of the hierarchy is delegated to the service.

All processes of a job stay in its group, whatever sessions or parents they have. So the group names them exactly, ends them at once
(`cgroup.kill`), and limits their memory together where the memory controller is available.

A part is delegated if systemd says so (`Delegate=yes`), if its directory belongs to the user of the service, or if the service runs at the root
of what it sees, as in a container.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from slotwise.live.engines.supervisor.claims import Key

ROOT = "/"
# Attributes by which systemd marks a delegated part of the hierarchy.
DELEGATED = ("user.delegate", "trusted.delegate")
PREFIX, SUPERVISOR = "slotwise-", "supervisor"
# The child group to which the processes of our own group move: a group with controllers for its children may hold no
# process itself.
SERVICE = f"{PREFIX}service"
TRIES = 5  # times that a supervisor makes its group, while others that start at the same moment may remove it
CONTROLLERS = ("memory", "pids")
LEAVE_SECONDS = (
    0.2  # how long killed processes may take to leave a group before its directory is left to the next start
)


def own_group() -> tuple[str, str] | None:
    """Return the directory of our own group and its name in the hierarchy; None where cgroup v2 is not mounted."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split() for line in file]
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            names = [line.rstrip("\n")[3:] for line in file if line.startswith("0::")]
    except OSError:
        return None
    points = [words[4] for words in mounts if "cgroup2" in words[words.index("-") + 1 :][:1]]
    if not points or not names:
        return None
    path = os.path.normpath(points[0] + names[0])
    return (path, names[0]) if os.path.isdir(path) else None


def is_delegated(path: str, name: str) -> bool:
    """Return whether groups may be made below a group."""
    if not (os.access(path, os.W_OK) and os.access(os.path.join(path, "cgroup.procs"), os.W_OK)):
        return False
    if name == ROOT or (os.geteuid() != 0 and os.stat(path).st_uid == os.geteuid()):
        return True
    for attribute in DELEGATED:
        with suppress(OSError):
            if os.getxattr(path, attribute) == b"1":
                return True
    return False


def write(path: str, text: str) -> None:
    """Write to a file of a group, in one call."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def processes_in(path: str) -> list[int]:
    """Return the processes of a group; none where the group has gone."""
    try:
        with open(os.path.join(path, "cgroup.procs"), encoding="ascii") as file:
            return [int(line) for line in file]
    except OSError:
        return []


class Groups:
    """The groups of one supervisor. `base` is None where nothing is delegated."""

    def __init__(self, folder: str) -> None:
        found = os.stat(folder)
        self._name = f"{PREFIX}{found.st_dev:x}-{found.st_ino:x}"
        self.base: str | None = None
        self.limits_memory = self.limits_processes = False

    def begin(self) -> None:
        """Find out what is delegated. Called by the process that starts jobs."""
        own = own_group()
        if own is None or not is_delegated(*own):
            return
        path = own[0]
        if os.path.basename(path) == SERVICE:  # an earlier supervisor has put the service there
            path = os.path.dirname(path)
        base = os.path.join(path, self._name)
        try:
            if not enter(base):
                return
        except OSError:
            return
        self.base = base
        for name in os.listdir(path):
            other = os.path.join(path, name)
            # A group of a living supervisor may be empty for a moment: it has just been made for a job.
            if name.startswith(PREFIX) and name != SERVICE and not processes_in(os.path.join(other, SUPERVISOR)):
                remove_empty(other)
        with suppress(OSError):  # without controllers groups still end jobs
            self._enable(path)

    def _enable(self, path: str) -> None:
        """Let groups of jobs limit memory and processes, where the hierarchy has these controllers."""
        with open(os.path.join(path, "cgroup.controllers"), encoding="ascii") as file:
            offered = file.read().split()
        wanted = [name for name in CONTROLLERS if name in offered]
        if "memory" not in wanted or self.base is None:
            return
        text = " ".join(f"+{name}" for name in wanted)
        if os.path.exists(
            os.path.join(path, "cgroup.type")
        ):  # only the root of all may hold processes beside groups
            aside = os.path.join(path, SERVICE)
            os.makedirs(aside, exist_ok=True)
            for pid in processes_in(path):
                with suppress(ProcessLookupError):
                    write(os.path.join(aside, "cgroup.procs"), str(pid))
        write(os.path.join(path, "cgroup.subtree_control"), text)
        write(os.path.join(self.base, "cgroup.subtree_control"), text)
        self.limits_memory = True
        self.limits_processes = "pids" in wanted

    def find(self, key: Key) -> str | None:
        """Return the group of an attempt, if there is one."""
        path = os.path.join(self.base, f"{key[0]}.{key[1]}") if self.base is not None else ""
        return path if path and os.path.isdir(path) else None

    def make(self, key: Key, memory: int | None, processes: int | None) -> str | None:
        """Make the group of an attempt; None where nothing is delegated. Raise OSError if its limit cannot be set."""
        if self.base is None:
            return None
        path = os.path.join(self.base, f"{key[0]}.{key[1]}")
        os.makedirs(path, exist_ok=True)
        if processes and self.limits_processes:
            write(os.path.join(path, "pids.max"), str(processes))
        if memory and self.limits_memory:
            write(os.path.join(path, "memory.max"), str(memory))
            with suppress(OSError):  # a kernel without swap accounting
                write(os.path.join(path, "memory.swap.max"), "0")
            with suppress(OSError):
                write(os.path.join(path, "memory.oom.group"), "1")
        return path


def enter(base: str) -> bool:
    """Make the group of a supervisor and move this process into it, so that no other supervisor removes it; False: the kernel is too old."""
    inside = os.path.join(base, SUPERVISOR)
    for left in reversed(range(TRIES)):
        try:
            os.makedirs(inside, exist_ok=True)
            if not os.path.exists(os.path.join(base, "cgroup.kill")):  # a kernel before 5.14
                remove_empty(base)
                return False
            write(os.path.join(inside, "cgroup.procs"), "0")
        except FileNotFoundError:  # another supervisor has just removed the empty group
            if not left:
                raise
        else:
            break
    return True


def remove_empty(path: str) -> None:
    """Remove a group and the groups below it, as far as they have no process."""
    with suppress(OSError):
        for name in os.listdir(path):
            with suppress(OSError):
                os.rmdir(os.path.join(path, name))
        os.rmdir(path)


def kill(path: str) -> None:
    """Kill all processes of a group, at once."""
    with suppress(OSError):  # the group has gone
        write(os.path.join(path, "cgroup.kill"), "1")


def remove(path: str) -> None:
    """Remove a group whose processes were killed; they leave it within milliseconds."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while True:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return  # a process that cannot be killed now, in a broken file system; the next start removes the group
            time.sleep(0.001)
        else:
            return


def was_out_of_memory(path: str) -> bool:
    """Return whether the kernel killed a process of the group because of its limit."""
    try:
        with open(os.path.join(path, "memory.events"), encoding="ascii") as file:
            events = dict(line.split() for line in file)
    except OSError:
        return False
    return int(events.get("oom_kill", "0")) > 0

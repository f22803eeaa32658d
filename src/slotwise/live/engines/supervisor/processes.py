"""Processes of jobs: made with their limits and on their CPUs, each with a process group of its own, and ended with all of it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from slotwise.live.engines.supervisor.claims import Key, read_log
from slotwise.live.engines.supervisor.outputs import is_held, open_output, output_path, shorten

NOT_FOUND, NOT_EXECUTABLE = 127, 126
DEFAULT_SIGNALS = [signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def start_time(pid: int, *, zombies: bool = False) -> str:
    """When a process began, in the kernel's ticks; '' where there is none, or only a zombie: with the pid it names a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if after_name[0] == b"Z" and not zombies else after_name[19].decode()


class Running:
    """A job that runs."""

    __slots__ = ("cpus", "gpus", "grace", "kill_at", "limit", "pid", "reason", "since", "started")

    def __init__(self, pid: int = 0, since: str = "") -> None:
        self.pid, self.since = pid, since
        self.started = self.kill_at = 0.0
        self.limit = 0
        self.grace: float | None = None
        """seconds between SIGTERM and SIGKILL, if the job says"""
        self.reason = ""
        """why it was ended, if not by a user"""
        self.cpus: list[int] = []
        self.gpus: list[int] = []


class CannotExecuteError(Exception):
    """A command that cannot be executed, with the status that a shell would give."""

    def __init__(self, error: Exception) -> None:
        said = (
            f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else str(error)
        )
        super().__init__(f"cannot be executed: {said}".replace("\n", " "))
        missing = isinstance(error, OSError) and error.errno == errno.ENOENT
        self.status = NOT_FOUND if missing else NOT_EXECUTABLE


class Processes:
    """The processes of one supervisor: its own children, by attempt."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.running: dict[Key, Running] = {}
        self._by_pid: dict[int, Key] = {}
        self._use: dict[str, dict[int, int]] = {"cpu": {}, "gpu": {}}
        self._found: dict[tuple[str, str], str] = {}
        self._cpus = os.sched_getaffinity(0)
        self._environment = dict(os.environ)

    # -- beginning ----------------------------------------------------------------------------------------------

    def start(self, wanted: dict[str, Any]) -> Running:
        """Execute a job that was claimed."""
        key = wanted["job"], wanted["attempt"]
        one = Running()
        one.limit, one.grace = wanted["output"], wanted.get("grace")
        one.cpus, one.gpus = self._choose("cpu", wanted), self._choose("gpu", wanted)
        environment = self._environment | wanted["env"]
        if one.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, one.gpus))
        output = -1
        try:
            output = open_output(output_path(self._folder, *key))
            with self._inherited(wanted, one.cpus):
                one.pid = os.posix_spawn(
                    self._where(wanted["argv"][0], environment.get("PATH", os.defpath)),
                    wanted["argv"],
                    environment,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_DUP2, output, 1),
                        (os.POSIX_SPAWN_DUP2, output, 2),
                    ],
                    setsid=True,
                    setsigmask=[],
                    setsigdef=DEFAULT_SIGNALS,
                )
        except (OSError, ValueError, MemoryError) as error:
            self._release(one)
            raise CannotExecuteError(error) from None
        finally:
            if output >= 0:
                os.close(output)
        one.started, one.since = time.time(), start_time(one.pid, zombies=True)
        self.running[key] = one
        self._by_pid[one.pid] = key
        return one

    @contextmanager
    def _inherited(self, wanted: dict[str, Any], cpus: list[int]) -> Iterator[None]:
        """What a child inherits is set on ourselves for a moment: there is only one thread."""
        limits = [
            (kind, resource.getrlimit(kind), value)
            for kind, value in (
                (resource.RLIMIT_DATA, wanted.get("memory")),
                (resource.RLIMIT_NOFILE, wanted.get("files")),
            )
            if value
        ]
        try:
            os.chdir(wanted["cwd"])
        except OSError as error:
            raise OSError(error.errno, f"no such working directory ({error.strerror})", wanted["cwd"]) from None
        tied = cpus and set(cpus) != self._cpus
        try:
            if tied:
                os.sched_setaffinity(0, cpus)
            for kind, (_, hard), value in limits:
                resource.setrlimit(kind, (value if hard < 0 else min(value, hard), hard))
            yield
        finally:
            for kind, before, _ in limits:
                resource.setrlimit(kind, before)
            if tied:
                os.sched_setaffinity(0, self._cpus)
            os.chdir("/")

    def _choose(self, kind: str, wanted: dict[str, Any]) -> list[int]:
        """The least used of the numbered things (CPUs, GPUs) that a server has, as many as the job asks for."""
        pool, use = wanted.get(kind + "s") or [], self._use[kind]
        chosen = sorted(pool, key=lambda number: (use.get(number, 0), number))[: wanted.get(kind, 0)]
        for number in chosen:
            use[number] = use.get(number, 0) + 1
        return chosen

    def _release(self, one: Running) -> None:
        for kind, numbers in (("cpu", one.cpus), ("gpu", one.gpus)):
            for number in numbers:
                self._use[kind][number] -= 1

    def _where(self, name: str, path: str) -> str:
        """The file that a command means; ours, since posix_spawnp would search our own PATH, not the job's."""
        if "/" in name:
            return name
        found = self._found.get((name, path))
        if found is None or not os.access(found, os.X_OK):
            for folder in path.split(os.pathsep):
                found = os.path.join(folder or ".", name)
                if os.path.isfile(found) and os.access(found, os.X_OK):
                    break
            else:
                raise FileNotFoundError(errno.ENOENT, "no such command", name)
            self._found[name, path] = found
        return found

    # -- ending -------------------------------------------------------------------------------------------------

    def reap(self) -> list[tuple[Key, Running, int]]:
        """Jobs whose first process has ended, with its status; what it left behind of its process group is ended too."""
        gone: list[tuple[Key, Running, int]] = []
        while self._by_pid:
            status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is None:
                break
            pid = status.si_pid
            with suppress(ProcessLookupError, PermissionError):  # none is left
                os.killpg(pid, signal.SIGKILL)  # while the zombie is there, the number is nobody else's
            os.waitpid(pid, 0)
            key = self._by_pid.pop(pid)
            one = self.running.pop(key)
            self._release(one)
            gone.append((key, one, status.si_status if status.si_code == os.CLD_EXITED else -status.si_status))
        return gone

    def shorten_outputs(self) -> None:
        """Keep what running jobs write within their limits."""
        for key, one in self.running.items():
            if one.limit:
                shorten(output_path(self._folder, *key), one.limit)


def ask_to_end(one: Running, grace: float) -> None:
    """SIGTERM now, and SIGKILL after the grace period, by `kill_late`."""
    if signal_group(one, signal.SIGTERM):
        one.kill_at = one.kill_at or time.monotonic() + grace


def kill_late(one: Running, now: float) -> None:
    """SIGKILL to a job that was asked to end and has not."""
    if one.kill_at and now >= one.kill_at:
        signal_group(one, signal.SIGKILL)


def signal_group(one: Running, number: int) -> bool:
    """Signal the process group of a job; False if none of it is left.

    The first process may have gone while others of its group live: the kernel gives its number to no other process until they have gone,
    too. If a process with this number began at another time, the group has gone, and the number is another program's.
    """
    if not one.pid or start_time(one.pid, zombies=True) not in ("", one.since):
        return False
    try:
        os.killpg(one.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def is_alive(folder: str, key: Key, one: Running) -> bool:
    """Whether a job that is not our child still runs: its first process, or any that holds its output."""
    return bool(one.pid and one.since == start_time(one.pid)) or is_held(output_path(folder, *key))


def living_jobs(folder: str) -> set[Key]:
    """Return the attempts that still run from a folder, whether its supervisor is there or not."""
    log = read_log(folder)
    return (
        {key for key, process in log.claimed.items() if is_alive(folder, key, Running(*process))} if log else set()
    )

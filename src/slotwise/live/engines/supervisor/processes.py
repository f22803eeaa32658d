"""Processes of jobs: made with their limits and on their CPUs, and ended with all that they started.

A job is its control group where groups are delegated (`groups`), otherwise what descends from its first process (`trees`).
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from slotwise.live.engines.supervisor import groups, trees
from slotwise.live.engines.supervisor.claims import Key, read_log
from slotwise.live.engines.supervisor.confining import confinement
from slotwise.live.engines.supervisor.groups import Groups
from slotwise.live.engines.supervisor.launching import Launch, account_of, environment_of, launch
from slotwise.live.engines.supervisor.outputs import is_held, open_output, output_path, shorten

NOT_FOUND, NOT_EXECUTABLE = 127, 126
OUT_OF_MEMORY = "used more memory than it may have"
DEFAULT_SIGNALS = [signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def start_time(pid: int, *, zombies: bool = False) -> str:
    """Return when a process began, in the kernel's ticks; '' if there is none, or only a zombie. With the pid it names a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if after_name[0] == b"Z" and not zombies else after_name[19].decode()


class RunningProcess:
    """A job that runs."""

    __slots__ = (
        "claim", "cpus", "gpus", "grace", "group", "kill_at", "limit", "memory", "pid", "reason", "since", "started"
    )  # fmt: skip

    def __init__(self, pid: int = 0, since: str = "") -> None:
        self.pid, self.since = pid, since
        self.started = self.kill_at = 0.0
        self.limit = 0
        self.grace: float | None = None
        """seconds between SIGTERM and SIGKILL, if the job says"""
        self.reason = ""
        """why it was ended, if not by a user"""
        self.claim = ""
        """what its processes have in their environment"""
        self.group: str | None = None
        """its control group"""
        self.memory = 0
        """bytes that its processes may have together, where the control group does not see to it; 0: any"""
        self.cpus: list[int] = []
        self.gpus: list[int] = []


class CannotExecuteError(Exception):
    """A command that cannot be executed, with the status that a shell would give."""

    def __init__(self, error: Exception) -> None:
        said = (
            f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        )
        super().__init__(f"cannot be executed: {said}".replace("\n", " "))
        missing = isinstance(error, OSError) and error.errno == errno.ENOENT
        self.status = NOT_FOUND if missing else NOT_EXECUTABLE


class Processes:
    """The processes of one supervisor: its own children, by attempt."""

    def __init__(self, folder: str, *, uses_groups: bool = True) -> None:
        self._folder, self._uses_groups = folder, uses_groups
        self.running: dict[Key, RunningProcess] = {}
        self._by_pid: dict[int, Key] = {}
        self._use: dict[str, dict[int, int]] = {"cpu": {}, "gpu": {}}
        self._found: dict[tuple[str, str], str] = {}
        self._cpus = os.sched_getaffinity(0)
        self._environment = dict(os.environ)
        self._groups = Groups(folder)

    def begin(self) -> None:
        """Prepare this process, which starts the jobs."""
        trees.become_subreaper()
        if self._uses_groups:
            self._groups.begin()

    def adopt(self, key: Key, one: RunningProcess) -> None:
        """Find the processes of a job that an earlier supervisor started."""
        one.claim, one.group = self._claim_of(key), self._groups.find(key)

    def _claim_of(self, key: Key) -> str:
        found = os.stat(self._folder)
        return f"{found.st_dev:x}.{found.st_ino:x}.{key[0]}.{key[1]}"

    # -- beginning ----------------------------------------------------------------------------------------------

    def start(self, wanted: dict[str, Any]) -> RunningProcess:
        """Execute a job that was claimed."""
        key = wanted["job"], wanted["attempt"]
        one = RunningProcess()
        one.limit, one.grace = wanted["output"], wanted.get("grace")
        one.cpus, one.gpus = self._choose("cpu", wanted), self._choose("gpu", wanted)
        one.claim = self._claim_of(key)
        output = -1
        try:
            account = account_of(wanted["user"]) if wanted.get("user") else None
            environment = self._environment | (environment_of(account, wanted["env"]) if account else wanted["env"])
            environment[trees.CLAIM] = one.claim
            if one.gpus:
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, one.gpus))
            output = open_output(output_path(self._folder, *key))
            if account is not None:
                os.fchown(output, account.uid, account.gid)  # /dev/stdout can be opened by its owner only
            one.group = self._groups.make(key, wanted.get("memory"), wanted.get("processes"))
            if not (one.group and self._groups.limits_memory):
                one.memory = wanted.get("memory") or 0
            hidden = wanted.get("hidden")
            if account is None and one.group is None and not hidden:
                one.pid = self._spawn(wanted, environment, output, one.cpus)
            else:
                one.pid = launch(
                    Launch(
                        wanted["argv"],
                        environment,
                        wanted["cwd"] or (account.home if account and os.path.isdir(account.home) else "/"),
                        output,
                        [(kind, value) for kind, value in self._limits(wanted, one) if value],
                        one.cpus if set(one.cpus) != self._cpus else [],
                        account,
                        one.group,
                        confinement(hidden, wanted.get("fixed") or (), output) if hidden else None,
                    )
                )
        except (OSError, ValueError, MemoryError) as error:
            self._release(one)
            if one.group is not None:
                groups.remove(one.group)
            raise CannotExecuteError(error) from None
        finally:
            if output >= 0:
                os.close(output)
        one.started, one.since = time.time(), start_time(one.pid, zombies=True)
        self.running[key] = one
        self._by_pid[one.pid] = key
        return one

    @staticmethod
    def _limits(wanted: dict[str, Any], one: RunningProcess) -> list[tuple[int, int | None]]:
        """Limits of each process; the control group limits memory better, if it does."""
        memory = one.memory or None
        kinds = (resource.RLIMIT_DATA, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
        return list(zip(kinds, (memory, wanted.get("files"), wanted.get("processes")), strict=True))

    def _spawn(self, wanted: dict[str, Any], environment: dict[str, str], output: int, cpus: list[int]) -> int:
        """Start a job as our own user, without a control group: the fastest way."""
        with self._inherited(wanted, cpus):
            return os.posix_spawn(
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

    @contextmanager
    def _inherited(self, wanted: dict[str, Any], cpus: list[int]) -> Iterator[None]:
        """Set on ourselves for a moment what a child inherits: there is only one thread."""
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
        """Return the least used CPUs or GPUs of a server, as many as the job requests."""
        pool, use = wanted.get(kind + "s") or [], self._use[kind]
        chosen = sorted(pool, key=lambda number: (use.get(number, 0), number))[: wanted.get(kind, 0)]
        for number in chosen:
            use[number] = use.get(number, 0) + 1
        return chosen

    def _release(self, one: RunningProcess) -> None:
        for kind, numbers in (("cpu", one.cpus), ("gpu", one.gpus)):
            for number in numbers:
                self._use[kind][number] -= 1

    def _where(self, name: str, path: str) -> str:
        """Return the file that a command means by the PATH of the job: posix_spawnp would search our own."""
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

    def reap(self) -> list[tuple[Key, RunningProcess, int]]:
        """Return the jobs whose first process has ended, with its status; whatever they left behind is ended, too."""
        gone: list[tuple[Key, RunningProcess, int]] = []
        while True:
            try:
                status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                status = None
            if status is None:
                break
            pid = status.si_pid
            key = self._by_pid.pop(pid, None)
            if key is None:  # an orphan of a job, which became our child
                os.waitpid(pid, 0)
                continue
            with suppress(ProcessLookupError, PermissionError):  # none is left
                os.killpg(pid, signal.SIGKILL)  # while the zombie is there, no other process has its number
            os.waitpid(pid, 0)
            one = self.running.pop(key)
            self._release(one)
            if one.group is not None:
                if groups.was_out_of_memory(one.group):
                    one.reason = one.reason or OUT_OF_MEMORY
                groups.kill(one.group)
                groups.remove(one.group)
            gone.append((key, one, status.si_status if status.si_code == os.CLD_EXITED else -status.si_status))
        if gone and any(one.group is None for _, one, _ in gone):
            left = self.running.values()
            trees.end_orphans(self._by_pid, {one.claim for one in left}, set(self._by_pid))
        return gone

    def watch_memory(self) -> None:
        """Kill jobs whose processes have more memory together than the job may have."""
        limited = [one for one in self.running.values() if one.memory and not one.kill_at]
        if not limited:
            return
        processes = trees.table()
        orphans = [pid for pid in trees.children() if pid not in self._by_pid]
        for one in limited:
            found = (
                groups.processes_in(one.group)
                if one.group is not None
                else trees.members(processes, one.pid, one.claim, orphans)
            )
            used = trees.memory_of(found)
            if used > one.memory:
                one.reason = f"{OUT_OF_MEMORY}: {used / 1e6:.0f} MB of {one.memory / 1e6:.0f} MB"
                signal_tree(one, signal.SIGKILL)

    def shorten_outputs(self) -> None:
        """Keep what running jobs write within their limits."""
        for key, one in self.running.items():
            if one.limit:
                shorten(output_path(self._folder, *key), one.limit)


def ask_to_end(one: RunningProcess, grace: float) -> None:
    """SIGTERM now, and SIGKILL after the grace period, by `kill_late`."""
    if signal_tree(one, signal.SIGTERM):
        one.kill_at = one.kill_at or time.monotonic() + grace


def kill_late(one: RunningProcess, now: float) -> None:
    """SIGKILL to a job that was asked to end and has not."""
    if one.kill_at and now >= one.kill_at:
        signal_tree(one, signal.SIGKILL)


def signal_tree(one: RunningProcess, number: int) -> bool:
    """Signal all processes of a job; False if none is left."""
    if one.group is not None and os.path.isdir(one.group):
        if number == signal.SIGKILL:
            groups.kill(one.group)
            return True
        return trees.signal_all(groups.processes_in(one.group), number)
    is_first = signal_group(one, number)
    processes = trees.table()
    first = one.pid if is_first else 0
    orphans = [pid for pid, process in processes.items() if process.parent in (os.getpid(), 1)]
    rest = [
        pid for pid in trees.members(processes, first or -1, one.claim, orphans) if processes[pid].group != one.pid
    ]
    return trees.signal_all(rest, number) or is_first


def signal_group(one: RunningProcess, number: int) -> bool:
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


def is_alive(folder: str, key: Key, one: RunningProcess) -> bool:
    """Return whether a job that is not our child still runs: its first process, or any that holds its output."""
    return bool(one.pid and one.since == start_time(one.pid)) or is_held(output_path(folder, *key))


def living_jobs(folder: str) -> set[Key]:
    """Return the attempts that still run from a folder, whether its supervisor is there or not."""
    log = read_log(folder)
    return (
        {key for key, process in log.claimed.items() if is_alive(folder, key, RunningProcess(*process))}
        if log
        else set()
    )

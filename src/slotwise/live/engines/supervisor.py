"""The process that executes jobs on this machine. It outlives the service: run as a script, it needs the standard library only.

`python -I -S supervisor.py FOLDER` becomes a daemon that owns FOLDER while it holds the lock on FOLDER/lock, and listens on
FOLDER/socket for one service at a time, in lines of JSON. What it promises, whatever is killed when:

- an attempt of a job is started at most once: FOLDER/log says so, on the disk, before the process exists;
- its end is told once and the same each time: the exit status is on the disk before it is told;
- jobs go on while the service is away; the next one asks what is known.

Many jobs share one process, one log and one fdatasync in each round, which is why an empty job costs about a millisecond here
and not the 50 of a process with its own supervisor.

Lines of the log: `C job attempt` claimed, `P job attempt pid start-time` runs, `E job attempt status time` ended,
`S job attempt` settled: the service has written the end down, it can be forgotten.

The output of a job is one file, which stays locked (flock) as long as any process of the job has it open. So a supervisor that
takes over after a killed one sees which of its jobs still run; how those end cannot be seen any more, and is told as lost.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

VERSION = 1
IDLE_SECONDS = 30.0
"""without a service and without a job it ends itself after this time"""
LOOK_SECONDS = 0.5
"""how often sizes of outputs, adopted jobs and grace periods are looked at"""
COMPACT_BYTES = 4_000_000
NOT_FOUND, NOT_EXECUTABLE = 127, 126
PUNCH_HOLE, KEEP_SIZE = 2, 1

Key = tuple[int, int]


def start_time(pid: int) -> str:
    """When a process began, in the kernel's ticks; '' where there is none, or only a zombie: with the pid it names a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if after_name[0] == b"Z" else after_name[19].decode()


def output_path(folder: str, job: int, attempt: int) -> str:
    """Where the output of an attempt lies."""
    return os.path.join(folder, "output", str(job // 1000), f"{job}.{attempt}")


class Running:
    """A job that runs."""

    __slots__ = ("cpus", "gpus", "kill_at", "limit", "pid", "since", "started")

    def __init__(self, pid: int, since: str, started: float, limit: int, cpus: list[int], gpus: list[int]) -> None:
        self.pid, self.since, self.started, self.limit, self.cpus, self.gpus = (
            pid,
            since,
            started,
            limit,
            cpus,
            gpus,
        )
        self.kill_at = 0.0


class Supervisor:
    """One round after the other: what was asked, what has ended, one write to the log, then processes and answers."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.running: dict[Key, Running] = {}
        self.by_pid: dict[int, Key] = {}
        self.adopted: dict[Key, Running] = {}
        """jobs of a supervisor that was killed: they run, but are not our children"""
        self.ended: dict[Key, tuple[int | None, float, str]] = {}
        """not settled: status (None: not known), time, reason"""
        self.use: dict[str, dict[int, int]] = {"cpu": {}, "gpu": {}}
        self.log = -1
        self.log_size = self.log_base = 0
        self.lines: list[str] = []
        self.claimed: list[dict[str, Any]] = []
        self.untold: list[Key] = []
        self.peer: socket.socket | None = None
        self.unread = b""
        self.unsent = b""
        self.found: dict[tuple[str, str], str] = {}
        self.cpus = os.sched_getaffinity(0)
        self.libc = ctypes.CDLL(None, use_errno=True)

    # -- the log ------------------------------------------------------------------------------------------------

    def open_log(self) -> None:
        """Read what an earlier supervisor wrote, and write it anew without what is settled."""
        path = os.path.join(self.folder, "log")
        claimed: dict[Key, tuple[int, str] | None] = {}
        try:
            with open(path, encoding="ascii") as file:
                text = file.read()
        except FileNotFoundError:
            text = ""
        for line in text[: text.rfind("\n") + 1].splitlines():  # a line without an end was never answered for
            kind, job, attempt, *rest = line.split(" ", 5)
            key = int(job), int(attempt)
            if kind == "C":
                claimed[key] = None
            elif kind == "P":
                claimed[key] = int(rest[0]), rest[1]
            elif kind == "E":
                claimed.pop(key, None)
                status = None if rest[0] == "?" else int(rest[0])
                self.ended[key] = status, float(rest[1]), rest[2] if len(rest) > 2 else ""
            elif kind == "S":
                self.ended.pop(key, None)
        for key, process in claimed.items():
            pid, since = process or (0, "")
            self.adopted[key] = Running(pid, since, 0.0, 0, [], [])
        self.write_log(path)

    def write_log(self, path: str) -> None:
        """A new log of what is not settled, in place of the old one."""
        with open(path + ".new", "w", encoding="ascii") as file:
            for key, one in (*self.running.items(), *self.adopted.items()):
                file.write(f"C {key[0]} {key[1]}\n")
                if one.pid:
                    file.write(f"P {key[0]} {key[1]} {one.pid} {one.since}\n")
            for key, end in self.ended.items():
                file.write(self.end_line(key, *end))
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        if self.log >= 0:
            os.close(self.log)
        self.log = os.open(path, os.O_WRONLY | os.O_APPEND)
        self.log_size = os.fstat(self.log).st_size
        self.log_base = self.log_size

    @staticmethod
    def end_line(key: Key, status: int | None, at: float, reason: str) -> str:
        return f"E {key[0]} {key[1]} {'?' if status is None else status} {at!r}{' ' + reason if reason else ''}\n"

    def write(self, *, sync: bool) -> bool:
        """Append what was gathered; with `sync` it is on the disk afterwards. False where the disk is full: it stays gathered."""
        if self.lines:
            data = "".join(self.lines).encode("ascii", "replace")
            try:
                if os.write(self.log, data) < len(data):
                    raise OSError(errno.ENOSPC, "no space left")
                if sync:
                    os.fdatasync(self.log)
            except OSError:
                os.ftruncate(self.log, self.log_size)  # no half lines
                return False
            self.lines.clear()
            self.log_size += len(data)
        return True

    # -- jobs ---------------------------------------------------------------------------------------------------

    def choose(self, kind: str, wanted: dict[str, Any]) -> list[int]:
        """The least used of the numbered things (CPUs, GPUs) that a server has, as many as the job asks for."""
        pool, use = wanted.get(kind + "s") or [], self.use[kind]
        chosen = sorted(pool, key=lambda number: (use.get(number, 0), number))[: wanted.get(kind, 0)]
        for number in chosen:
            use[number] = use.get(number, 0) + 1
        return chosen

    def release(self, one: Running) -> None:
        for kind, numbers in (("cpu", one.cpus), ("gpu", one.gpus)):
            for number in numbers:
                self.use[kind][number] -= 1

    def where(self, name: str, path: str) -> str:
        """The file that a command means; ours, since posix_spawnp would search our own PATH, not the job's."""
        if "/" in name:
            return name
        found = self.found.get((name, path))
        if found is None or not os.access(found, os.X_OK):
            for folder in path.split(os.pathsep):
                found = os.path.join(folder or ".", name)
                if os.path.isfile(found) and os.access(found, os.X_OK):
                    break
            else:
                raise FileNotFoundError(errno.ENOENT, "no such command", name)
            self.found[name, path] = found
        return found

    def start(self, wanted: dict[str, Any]) -> tuple[Key, Running | str]:
        """Execute a job that was claimed; the reason where it cannot be."""
        key = wanted["job"], wanted["attempt"]
        path = output_path(self.folder, *key)
        cpus, gpus = self.choose("cpu", wanted), self.choose("gpu", wanted)
        environment = {**os.environ, **wanted["env"]}
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        limits = [
            (kind, resource.getrlimit(kind), value)
            for kind, value in (
                (resource.RLIMIT_DATA, wanted.get("memory")),
                (resource.RLIMIT_NOFILE, wanted.get("files")),
            )
            if value
        ]
        one = Running(0, "", 0.0, wanted["output"], cpus, gpus)
        output = -1
        try:
            try:
                output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            fcntl.flock(output, fcntl.LOCK_EX)
            # what a child inherits is set on ourselves for a moment: there is only one thread
            os.chdir(wanted["cwd"])
            if cpus:
                os.sched_setaffinity(0, cpus)
            for kind, (_, hard), value in limits:
                resource.setrlimit(kind, (value if hard < 0 else min(value, hard), hard))
            try:
                one.pid = os.posix_spawn(
                    self.where(wanted["argv"][0], environment.get("PATH", os.defpath)),
                    wanted["argv"],
                    environment,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_DUP2, output, 1),
                        (os.POSIX_SPAWN_DUP2, output, 2),
                    ],
                    setsid=True,
                    setsigmask=[],
                    setsigdef=[signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
                )
            finally:
                for kind, before, _ in limits:
                    resource.setrlimit(kind, before)
                if cpus:
                    os.sched_setaffinity(0, self.cpus)
                os.chdir("/")
        except (OSError, ValueError, MemoryError) as error:
            self.release(one)
            return key, f"cannot be executed: {error}"
        finally:
            if output >= 0:
                os.close(output)
        one.started, one.since = time.time(), start_time(one.pid)
        self.lines.append(f"P {key[0]} {key[1]} {one.pid} {one.since or '-'}\n")
        return key, one

    def reap(self) -> list[Key]:
        """Jobs whose first process has ended; what it left behind of its process group is ended too."""
        gone: list[Key] = []
        while True:
            try:
                status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return gone
            if status is None:
                return gone
            pid = status.si_pid
            with suppress(ProcessLookupError, PermissionError):  # none is left
                os.killpg(pid, signal.SIGKILL)  # while the zombie is there, the number is nobody else's
            os.waitpid(pid, 0)
            key = self.by_pid.pop(pid, None)
            if key is None:
                continue
            one = self.running.pop(key)
            self.release(one)
            code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
            self.end(key, code, "")
            gone.append(key)

    def end(self, key: Key, code: int | None, reason: str) -> None:
        at = time.time()
        self.ended[key] = code, at, reason
        self.lines.append(self.end_line(key, code, at, reason))
        path = output_path(self.folder, *key)
        try:
            if not os.path.getsize(path):
                os.unlink(path)
        except FileNotFoundError:
            pass  # it was never made

    def stop(self, key: Key, grace: float) -> None:
        """Ask a job to end; after the grace period it is killed."""
        one = self.running.get(key) or self.adopted.get(key)
        if one is not None and one.pid and start_time(one.pid):
            try:
                os.killpg(one.pid, signal.SIGTERM)
            except ProcessLookupError:
                return
            one.kill_at = one.kill_at or time.monotonic() + grace

    # -- now and then -------------------------------------------------------------------------------------------

    def look(self) -> list[Key]:
        """Grace periods, sizes of outputs, and jobs that are not our children; those that have gone."""
        now = time.monotonic()
        for key, one in (*self.running.items(), *self.adopted.items()):
            if one.kill_at and now >= one.kill_at and one.pid:
                with suppress(ProcessLookupError):  # it has just ended
                    os.killpg(one.pid, signal.SIGKILL)
            if one.limit:
                self.shorten(output_path(self.folder, *key), one.limit)
        gone = []
        waiting = {(wanted["job"], wanted["attempt"]) for wanted in self.claimed}
        for key, one in list(self.adopted.items()):
            if key not in waiting and not self.alive(key, one):
                del self.adopted[key]
                self.end(key, None, "its supervisor was killed while it ran; the exit status is not known")
                gone.append(key)
        return gone

    def alive(self, key: Key, one: Running) -> bool:
        if one.pid and one.since == start_time(one.pid):
            return True
        try:
            descriptor = os.open(output_path(self.folder, *key), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def shorten(self, path: str, limit: int) -> None:
        """Keep the first and the last half of the limit on the disk; what lies between becomes a hole in the file."""
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return
        if size <= limit:
            return
        half = limit // 2 // 4096 * 4096
        descriptor = os.open(path, os.O_RDWR)
        try:
            end = (size - half) // 4096 * 4096
            if end <= half:
                return
            offset, length = ctypes.c_int64(half), ctypes.c_int64(end - half)
            if self.libc.fallocate(descriptor, PUNCH_HOLE | KEEP_SIZE, offset, length):
                os.ftruncate(
                    descriptor, limit
                )  # a file system without holes: the end is lost instead of the middle
        finally:
            os.close(descriptor)

    # -- talking ------------------------------------------------------------------------------------------------

    def tell(self, message: dict[str, Any]) -> None:
        if self.peer is not None:
            self.unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def send(self) -> None:
        while self.unsent and self.peer is not None:
            try:
                sent = self.peer.send(self.unsent)
            except BlockingIOError:
                return
            except OSError:
                self.hang_up()
                return
            self.unsent = self.unsent[sent:]

    def hang_up(self) -> None:
        if self.peer is not None:
            self.epoll.unregister(self.peer.fileno())
            self.peer.close()
        self.peer, self.unread, self.unsent = None, b"", b""

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come."""
        while self.peer is not None:
            try:
                data = self.peer.recv(1 << 20)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.hang_up()
                break
            self.unread += data
        *lines, self.unread = self.unread.split(b"\n")
        return [json.loads(line) for line in lines]

    def answer(self, messages: list[dict[str, Any]], gone: list[Key]) -> None:
        """One round: claims and ends go to the disk together, then processes are started and everything is told."""
        self.untold += gone
        for message in messages:
            for wanted in message.get("start", ()):
                key = wanted["job"], wanted["attempt"]
                if key in self.ended:
                    self.untold.append(key)
                elif key in self.running:
                    self.tell({"started": [[*key, self.running[key].started]]})
                elif key not in self.adopted:
                    self.adopted[key] = Running(
                        0, "", 0.0, 0, [], []
                    )  # claimed: from here on a second start does nothing
                    self.lines.append(f"C {key[0]} {key[1]}\n")
                    self.claimed.append(wanted)
        if self.write(sync=True):
            self.execute()
            if self.untold:
                self.tell({"ended": [[*key, *self.ended[key]] for key in self.untold if key in self.ended]})
                self.untold.clear()
        for message in messages:
            if "stop" in message:
                job, attempt, grace = message["stop"]
                self.stop((job, attempt), grace)
            for job, attempt in message.get("settled", ()):
                if self.ended.pop((job, attempt), None) is not None:
                    self.lines.append(f"S {job} {attempt}\n")
            if "known" in message:
                self.tell(
                    {"known": [self.told(job, attempt) for job, attempt in message["known"]], "id": message["id"]}
                )
        self.write(sync=False)
        self.send()

    def execute(self) -> None:
        """Start what was claimed."""
        begun, failed = [], False
        for wanted in self.claimed:
            key, one = self.start(wanted)
            del self.adopted[key]
            if isinstance(one, str):
                code = NOT_FOUND if "No such file" in one or "no such command" in one else NOT_EXECUTABLE
                self.end(key, code, one.replace("\n", " "))
                self.untold.append(key)
                failed = True
            else:
                self.running[key] = one
                self.by_pid[one.pid] = key
                begun.append([*key, one.started])
        self.claimed.clear()
        self.write(sync=failed)
        if begun:
            self.tell({"started": begun})

    def told(self, job: int, attempt: int) -> list[Any]:
        key = job, attempt
        if key in self.ended:
            return [job, attempt, "ended", *self.ended[key]]
        one = self.running.get(key) or self.adopted.get(key)
        return [job, attempt, "running", one.started] if one is not None else [job, attempt, "unknown"]

    # -- the loop -----------------------------------------------------------------------------------------------

    def serve(self, listening: socket.socket) -> None:
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        self.epoll = select.epoll()
        self.epoll.register(listening.fileno(), select.EPOLLIN)
        self.epoll.register(wake_read, select.EPOLLIN)
        looked = idle_since = time.monotonic()
        while True:
            busy = bool(self.running or self.adopted or self.lines)
            for descriptor, _ in self.epoll.poll(LOOK_SECONDS if busy else 5.0):
                if descriptor == wake_read:
                    os.read(wake_read, 65536)
                elif descriptor == listening.fileno():
                    self.hang_up()  # a new service takes the place of one that may hang
                    self.peer, _ = listening.accept()
                    self.peer.setblocking(False)
                    self.epoll.register(self.peer.fileno(), select.EPOLLIN)
                    self.tell({"hello": VERSION})
            messages = self.receive()
            gone = self.reap()
            now = time.monotonic()
            if now - looked >= LOOK_SECONDS:
                looked = now
                gone += self.look()
            self.answer(messages, gone)
            if self.unsent and self.peer is not None:
                self.epoll.modify(self.peer.fileno(), select.EPOLLIN | select.EPOLLOUT)
            elif self.peer is not None:
                self.epoll.modify(self.peer.fileno(), select.EPOLLIN)
            if self.log_size - self.log_base > COMPACT_BYTES:
                self.write_log(os.path.join(self.folder, "log"))
            if self.peer is not None or busy:
                idle_since = now
            elif now - idle_since > IDLE_SECONDS:
                return


def main(folder: str) -> None:
    """Become a daemon, unless another one is here already."""
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    supervisor = Supervisor(folder)
    supervisor.open_log()
    os.chdir(folder)  # the name of a socket is short, paths need not be
    if os.path.exists("socket"):
        os.unlink("socket")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.umask(0o077)
    listening.bind("socket")
    listening.listen(4)
    listening.setblocking(False)
    os.chdir("/")
    if os.fork():
        os._exit(0)  # who started us need not wait any longer; the lock is the child's
    os.setsid()
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())  # for people
    supervisor.serve(listening)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))

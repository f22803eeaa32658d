"""Starting a job's first process as another user, in a control group, or confined: what `posix_spawn` cannot do.

The child is a copy of the supervisor, which has one thread. It becomes what the job shall be, step by step, and only then executes the
command; what fails on the way is told through a pipe.

What the child does costs more than what the command `true` does: each page of memory that it touches is copied first. So the supervisor keeps
its signals such that the child has nothing to set: handled signals have their default again once a command is executed, ignored ones
would not (`prepare`).
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import pwd
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

UNHEEDED = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)  # signals that do not end the supervisor
CLONE3, INTO_CGROUP = 435, 0x200000000
_libc = ctypes.CDLL(None, use_errno=True)


def prepare() -> None:
    """Prepare this process for children that are cheap: no signal is blocked or ignored, and no garbage collection touches what is there now."""
    for number in signal.valid_signals():
        if number in UNHEEDED:
            signal.signal(number, lambda number, frame: None)
        elif signal.getsignal(number) == signal.SIG_IGN:  # inherited, as SIGQUIT from a shell's background job
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    gc.collect()
    gc.freeze()


class Account(NamedTuple):
    """A user of this machine."""

    name: str
    uid: int
    gid: int
    groups: list[int]
    home: str
    shell: str


def account_of(name: str) -> Account:
    """Return a user by name. Raise ValueError if there is none."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"no account of this machine is called {name!r}") from None
    groups = os.getgrouplist(name, found.pw_gid)
    return Account(name, found.pw_uid, found.pw_gid, groups, found.pw_dir, found.pw_shell)


class Launch(NamedTuple):
    """All that a first process needs."""

    argv: list[str]
    environment: Mapping[str, str]
    cwd: str
    output: int
    limits: Sequence[tuple[int, int]]
    cpus: Sequence[int]
    account: Account | None
    group: str | None
    confine: Callable[[], None] | None = None


class _CloneArguments(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls", "set_tid", "set_tid_size", "cgroup",
        )
    ]  # fmt: skip


def fork_into(group: str | None) -> tuple[int, bool]:
    """Fork, into a control group if there is one; the child's number, and whether it is in the group."""
    if group is not None:
        directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            arguments = _CloneArguments(flags=INTO_CGROUP, exit_signal=signal.SIGCHLD, cgroup=directory)
            pid = int(_libc.syscall(CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments)))
        finally:
            os.close(directory)
        if pid >= 0:
            return pid, True
    return os.fork(), False


def launch(start: Launch) -> int:
    """Start a job and return the number of its first process. Raise OSError where it cannot be executed."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        pid, is_in_group = fork_into(start.group)
        if pid == 0:
            _become(start, writing, is_in_group)
        os.close(writing)
        writing = -1
        told = b""
        while piece := os.read(reading, 4096):
            told += piece
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
    if told:
        os.waitpid(pid, 0)
        number, said, name = told.decode("utf-8", "replace").split("\0")
        raise OSError(int(number), said, name or None)
    return pid


def _become(start: Launch, writing: int, is_in_group: bool) -> NoReturn:
    """Become the job. Never returns."""
    try:
        gc.disable()
        os.setsid()
        if start.group is not None and not is_in_group:
            with open(os.path.join(start.group, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write("0")
        if start.cpus:
            os.sched_setaffinity(0, start.cpus)
        for kind, value in start.limits:
            _, hard = resource.getrlimit(kind)
            most = value if hard < 0 else min(value, hard)
            resource.setrlimit(kind, (most, most))
        if start.account is not None:
            os.setgroups(start.account.groups)
            os.setresgid(start.account.gid, start.account.gid, start.account.gid)
            os.setresuid(start.account.uid, start.account.uid, start.account.uid)
        try:
            os.chdir(start.cwd)
        except OSError as error:
            raise OSError(error.errno, f"no such working directory ({error.strerror})", start.cwd) from None
        empty = os.open("/dev/null", os.O_RDONLY)
        os.dup2(empty, 0)
        os.dup2(start.output, 1)
        os.dup2(start.output, 2)
        if start.confine is not None:
            start.confine()
        _execute(start)
    except BaseException as error:
        code = error.errno if isinstance(error, OSError) and error.errno else errno.EINVAL
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        name = str(error.filename or "") if isinstance(error, OSError) else ""
        with suppress(OSError):
            os.write(writing, f"{code}\0{said}\0{name}".encode("utf-8", "replace"))
    os._exit(127)


def _execute(start: Launch) -> NoReturn:
    """Execute the command, found by the PATH of the job with the rights of the job."""
    name = start.argv[0]
    if "/" in name:
        os.execve(name, start.argv, start.environment)
    refused: OSError | None = None
    for folder in start.environment.get("PATH", os.defpath).split(os.pathsep):
        try:
            os.execve(os.path.join(folder or ".", name), start.argv, start.environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = error
    raise refused or FileNotFoundError(errno.ENOENT, "no such command", name)


def environment_of(account: Account, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that say who a user is; what the job gives itself wins."""
    who = {"HOME": account.home, "USER": account.name, "LOGNAME": account.name, "SHELL": account.shell or "/bin/sh"}
    return who | dict(given)

"""Keeping a job out of folders of its own user: for jobs of other people that run as the user of the service. Uses Landlock, of Linux 5.13 or later.

Landlock knows what is allowed, not what is forbidden, and a right on a folder is one on all that is below it. So a job gets all rights
on everything beside the way from `/` to a hidden or fixed path. A fixed path it may read and execute. In the folders on the way it may list names, and use what is there when it
starts; it can make nothing new directly in them.

A confined job can also look into no process of another job or of the service (ptrace, most of /proc), and from Linux 6.12 on signal none. It can never
get more rights again, so setuid programs such as `sudo` do not work (`NoNewPrivs`); by this mark `unix_sockets.is_confined` knows it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, with the same numbers on all processors
SHOW_VERSION, PATH_BENEATH = 1, 1
NO_NEW_PRIVILEGES = 38  # of prctl
EXECUTE, WRITE, READ, LIST, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
ALL, READ_ONLY = (1 << 15) - 1, EXECUTE | READ | LIST
FIRST = (1 << 13) - 1  # the rights of version 1
ADDED = {2: 1 << 13, 3: TRUNCATE}  # by later versions: moving files to other folders, shortening files
SIGNALS, SIGNALS_SINCE = 1 << 1, 6  # the version that can keep signals in
_libc = ctypes.CDLL(None, use_errno=True)


class CannotConfineError(OSError):
    """The kernel refuses to confine a job, which therefore must not run."""


def _call(number: int, *arguments: object) -> int:
    """Make a system call. Raise CannotConfineError where it fails."""
    found = int(_libc.syscall(number, *arguments))
    if found < 0:
        code = ctypes.get_errno()
        raise CannotConfineError(code, f"the job cannot be confined ({os.strerror(code)})")
    return found


@cache
def version() -> int:
    """Return the version of Landlock that the kernel has; 0 where it has none."""
    try:
        return _call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(SHOW_VERSION))
    except OSError:
        return 0


def keeps_signals() -> bool:
    """Return whether a confined job can signal its own processes only."""
    return version() >= SIGNALS_SINCE


def present(paths: Iterable[str]) -> list[str]:
    """Return the real names of the paths that there are; what is not there cannot be hidden."""
    return sorted({os.path.realpath(path) for path in paths if os.path.lexists(path)})


def above(paths: Iterable[str]) -> set[str]:
    """Return the folders on the way from `/` to each path, without the path itself."""
    found = {"/"}
    for path in paths:
        while (path := os.path.dirname(path)) != "/":
            found.add(path)
    return found


def rules(
    hidden: Collection[str], fixed: Collection[str], folder: str = "/", rights: int = ALL
) -> Iterator[tuple[str, int]]:
    """Yield which rights a job gets below which paths: none for hidden ones, for fixed ones those to read."""
    barred = above(hidden) if rights == READ_ONLY else above((*hidden, *fixed))
    yield folder, LIST
    for path in entries(folder, (*barred, *fixed)):
        if path not in hidden:
            found = READ_ONLY if path in fixed else rights
            if path in barred:
                yield from rules(hidden, fixed, path, found)
            else:
                yield path, found


def entries(folder: str, known: Iterable[str]) -> list[str]:
    """Return what a folder has, links left out; if it cannot be listed, those of the known paths that it has."""
    try:
        with os.scandir(folder) as found:
            return [entry.path for entry in found if not entry.is_symlink()]
    except OSError:
        return [path for path in known if path != "/" and os.path.dirname(path) == folder]


def confinement(hidden: Iterable[str], fixed: Iterable[str], output: int) -> Callable[[], None]:
    """Return what confines the calling process, and all that it starts. Its output stays open to it."""

    def confine() -> None:
        handled = FIRST
        for since, right in ADDED.items():
            handled |= right if version() >= since else 0
        scoped = SIGNALS if keeps_signals() else 0
        words = (handled, 0, scoped) if keeps_signals() else (handled,)
        attributes = struct.pack(f"={len(words)}Q", *words)
        ruleset = _call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
        of_files = (EXECUTE | WRITE | READ | TRUNCATE) & handled

        def allow(descriptor: int, allowed: int) -> None:
            rule = struct.pack("=Qi", allowed, descriptor)
            _call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0))

        for path, rights in rules(present(hidden), present(fixed)):
            with suppress(FileNotFoundError, PermissionError):  # it has gone, or cannot be reached anyway
                descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    is_folder = os.path.isdir(f"/proc/self/fd/{descriptor}")
                    allow(descriptor, rights & (handled if is_folder else of_files))
                finally:
                    os.close(descriptor)
        allow(output, of_files)  # /dev/stdout is opened by its path
        if _libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            raise CannotConfineError(ctypes.get_errno(), "the job cannot be confined")
        _call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        os.close(ruleset)

    return confine

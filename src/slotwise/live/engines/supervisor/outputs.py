"""The file that a job writes to.

It stays locked (flock) as long as any process of the job has it open. So a supervisor that takes over after a killed one sees which of its
jobs still run.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress

# Free space of the file system that outputs leave to the store and to the log of the supervisor: bytes, and share of small file systems.
RESERVE_BYTES, RESERVE_SHARE = 64_000_000, 0.05
SHORTEST = 100_000  # bytes that an output keeps, however full the disk is
PUNCH_HOLE, KEEP_SIZE = 2, 1
BLOCK = 4096  # bytes: the unit in which a file can be cut out of its middle
_libc = ctypes.CDLL(None, use_errno=True)


def output_path(folder: str, job: int, attempt: int) -> str:
    """Return the path of the output of an attempt."""
    return os.path.join(folder, "output", str(job // 1000), f"{job}.{attempt}")


def open_output(path: str) -> int:
    """Return a new output file. Every process that inherits it holds its lock."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        output = os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        output = os.open(path, flags, 0o600)
    fcntl.flock(output, fcntl.LOCK_EX)
    return output


def drop_if_empty(path: str) -> None:
    """Most jobs write nothing: their files need not stay."""
    try:
        if not os.stat(path).st_size:
            os.unlink(path)
    except FileNotFoundError:
        return  # it was never made


def is_held(path: str) -> bool:
    """Return whether a process of the job still has the output open."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def shorten(path: str, limit: int) -> None:
    """Keep the first and the last half of the limit on the disk; what lies between becomes a hole in the file."""
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return
    half = limit // 2 // BLOCK * BLOCK
    end = (size - half) // BLOCK * BLOCK
    if size <= limit or end <= half:
        return
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:  # the service has dropped it meanwhile
        return
    try:
        offset, length = ctypes.c_int64(half), ctypes.c_int64(end - half)
        if _libc.fallocate(descriptor, PUNCH_HOLE | KEEP_SIZE, offset, length):
            os.ftruncate(descriptor, limit)  # a file system without holes: the end is lost instead of the middle
    finally:
        os.close(descriptor)


def lacks_space(folder: str) -> bool:
    """Return whether the file system has less free space than outputs must leave."""
    found = os.statvfs(folder)
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    return free < min(RESERVE_BYTES, RESERVE_SHARE * size)


def make_space(folder: str) -> bool:
    """Shorten outputs, the largest first, until the file system has its reserve again; return whether it has.

    On a full disk the store cannot write down how jobs end. So outputs give way, even those within their limit.
    """
    if not lacks_space(folder):
        return True
    found = ((entry.st_blocks * 512, path) for path, entry in entries(folder))
    for _, path in sorted((one for one in found if one[0] > SHORTEST + 2 * BLOCK), reverse=True):
        shorten(path, SHORTEST)
        if not lacks_space(folder):
            return True
    return False


def entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the outputs of a folder."""
    for name, _, files in os.walk(os.path.join(folder, "output")):
        for file in files:
            path = os.path.join(name, file)
            with suppress(FileNotFoundError):  # it was empty, and its job has ended
                yield path, os.stat(path)


def sweep(folder: str, limit: int, quota: int, before: float) -> int:
    """Keep the outputs of a folder within their limits; return the bytes that they take on the disk afterwards.

    Each is shortened to `limit` bytes, also after its job has ended: a process that the job has left behind may still write. Outputs of
    ended jobs go if nothing was written to them since `before`, and then, oldest first, until all take at most `quota` bytes.
    """
    found: list[tuple[float, int, str]] = []
    for path, entry in entries(folder):
        if entry.st_size > limit:
            shorten(path, limit)
            with suppress(FileNotFoundError):
                entry = os.stat(path)
        found.append((entry.st_mtime, entry.st_blocks * 512, path))
    total = sum(size for _, size, _ in found)
    for written, size, path in sorted(found):
        if (written < before or total > quota) and not is_held(path):
            with suppress(FileNotFoundError):
                os.unlink(path)
            total -= size
    return total

"""The log: which attempts were claimed, which run, how they ended.

Lines:

    B boot                     the machine's boot
    N epoch                    the newest service
    H job                      the highest job that was claimed
    C job attempt              claimed
    P job attempt pid start    runs, as process `pid` started at `start`
    E job attempt status time  ended
    S job attempt              settled: the service has written the end down, so it can be forgotten
    T job attempt limit        its time limit (see `deadlines`)

A line is written before what it says is acted on, and is synced a little later. That is enough, because there are two kinds of crash:

- Processes are killed, all of them or some. What was written is in the kernel's cache and is there afterwards, synced or not.
- The machine goes down. Then lines may be missing, but every job is dead too, and the boot has another number. An attempt of an earlier
  boot without an end in the log, even one that is not in the log at all, may have run: it is lost, and is not started again.

So nothing runs twice, and a job that ended less than `SYNC_SECONDS` before the machine went down ends as lost if the service has not heard
of its end. Losses that are found are written down too, before they are told.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable

from slotwise.live.engines.supervisor.limits import Limit, finite, whole

Key = tuple[int, int]
# Status (None: not known), time, reason.
End = tuple[int | None, float, str]

COMPACT_BYTES = 4_000_000  # of growth after which the log is written anew: reading it takes well below a second
SYNC_SECONDS = 0.25  # of lines that share one sync of the disk
HIGHEST_PID = 2**22  # of Linux
WENT_DOWN = "the machine went down while it ran, or just before; the exit status is not known"
DAMAGED = "the log of its supervisor is damaged; whether and how it ran is not known"


def boot() -> str:
    """Return the number of the machine's boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def end_line(key: Key, status: int | None, at: float, reason: str) -> str:
    """Return how an end is written. The reason may name a command, so any character may be in it, also the end of a line."""
    shown = "".join(c if " " <= c <= "~" else "?" for c in reason)
    return f"E {key[0]} {key[1]} {'?' if status is None else status} {at!r}{' ' + shown if shown else ''}\n"


class Log:
    """What a log says. Lines that cannot be right are left out; `damaged` tells of the first."""

    def __init__(self) -> None:
        self.boot = ""
        self.epoch = self.highest = 0
        self.ended: dict[Key, End] = {}
        self.claimed: dict[Key, tuple[int, str]] = {}
        self.limits: dict[Key, Limit] = {}
        self.damaged = ""

    def add(self, line: str) -> None:
        """Take one line in. Raise ValueError or IndexError, and take nothing, if it is none."""
        kind, *rest = line.split(" ", 5)
        if kind == "B":
            self.boot = rest[0]
            return
        if kind == "N":
            self.epoch = max(self.epoch, whole(rest[0]))
            return
        if kind == "H":
            self.highest = max(self.highest, whole(rest[0]))
            return
        key = whole(rest[0]), whole(rest[1])
        if kind in "CPT" and key in self.ended:
            raise ValueError("it has ended before")
        if kind == "C":
            self.claimed[key] = 0, ""
        elif kind == "P":
            self.claimed[key] = process(rest[2], rest[3])
        elif kind == "E":
            status = None if rest[2] == "?" else -whole(rest[2][1:]) if rest[2][:1] == "-" else whole(rest[2])
            end = status, finite(rest[3]), rest[4] if len(rest) > 4 else ""
            self.claimed.pop(key, None)
            self.limits.pop(key, None)
            self.ended[key] = end
        elif kind == "S":
            self.ended.pop(key, None)
        elif kind == "T":
            self.limits[key] = Limit.read(line.split(" ", 3)[3])
        else:
            raise ValueError("an unknown kind of line")
        self.highest = max(self.highest, key[0])


def process(pid: str, since: str) -> tuple[int, str]:
    """Return a process and its start time. Raise ValueError for a number that means several processes to the kernel, or init."""
    number = whole(pid, HIGHEST_PID)
    if number == 1 or not (since == "-" or since.isdigit()):
        raise ValueError("no process of a job")
    return number, since


def read_log(folder: str) -> Log | None:
    """Read the log of a folder; None where there is none."""
    try:
        with open(os.path.join(folder, "log"), "rb") as file:  # as text, a carriage return would end a line
            text = file.read().decode("ascii", "backslashreplace")
    except FileNotFoundError:
        return None
    log = Log()
    for number, line in enumerate(
        text[: text.rfind("\n") + 1].split("\n")[:-1], 1
    ):  # what has no end was not acted on
        try:
            log.add(line)
        except (ValueError, IndexError):
            log.damaged = log.damaged or f"line {number} of the log: {line[:80]!r}"
    return log


class Claims:
    """The log of one folder. `claimed` and `ended` are what an earlier supervisor left; from then on `ended` is kept here."""

    def __init__(self, folder: str) -> None:
        self._folder, self._path = folder, os.path.join(folder, "log")
        self._boot = boot()
        log = read_log(folder) or Log()
        self.damaged = log.damaged
        self.ended = log.ended
        """not settled"""
        self.claimed = log.claimed
        """without an end: process and its start time, (0, '') where none is known"""
        self.limits = log.limits
        """time limits of attempts without an end"""
        self.epoch = log.epoch
        """of the newest service that was here"""
        self.highest = log.highest
        """the highest number of a job that was ever claimed"""
        self.gap = log.boot != self._boot or bool(log.damaged)
        """the log may not have all attempts that ran: the machine went down, or lines are damaged or missing"""
        if log.boot != self._boot:
            now = time.time()
            self.ended.update(dict.fromkeys(self.claimed, (None, now, WENT_DOWN)))
            self.claimed, self.limits = {}, {}
        self._lines: list[str] = []
        self._file = -1
        self._size = self._base = 0
        self._unsynced_since: float | None = None
        if log.damaged:
            import shutil  # it has what unpacks archives, and each child of the supervisor would pay for that

            shutil.copy(self._path, f"{self._path}.damaged")  # for people
        self.compact([])

    # -- writing ------------------------------------------------------------------------------------------------

    def claim(self, key: Key) -> None:
        """Claim an attempt that is about to be started. An attempt from before the machine went down is not started any more, so the gap is over."""
        self.close_gap(())
        self.highest = max(self.highest, key[0])
        self._lines.append(f"C {key[0]} {key[1]}\n")

    def runs(self, key: Key, pid: int, since: str) -> None:
        """Note the process of an attempt."""
        self._lines.append(f"P {key[0]} {key[1]} {pid} {since or '-'}\n")

    def limit(self, key: Key, limit: Limit) -> None:
        """Note the time limit of an attempt."""
        self.limits[key] = limit
        self._lines.append(f"T {key[0]} {key[1]} {limit.line()}\n")

    def end(self, key: Key, status: int | None, reason: str) -> None:
        """Note the end of an attempt."""
        self.limits.pop(key, None)
        self.ended[key] = end = status, time.time(), reason
        self._lines.append(end_line(key, *end))

    def settle(self, key: Key) -> None:
        """Forget the end of an attempt."""
        if self.ended.pop(key, None) is not None:
            self._lines.append(f"S {key[0]} {key[1]}\n")

    def close_gap(self, unknown: Iterable[Key]) -> None:
        """End the attempts from before that are not in the log. They are all: the service asks for them first."""
        if self.gap:
            for key in unknown:
                self.end(key, None, DAMAGED if self.damaged else WENT_DOWN)
            self._lines.append(f"B {self._boot}\n")
            self.gap = False

    def begin_epoch(self, epoch: int) -> None:
        """Begin the epoch of a newer service. Requests of older services are refused from now on, whichever service is
        connected."""
        self.epoch = epoch
        self._lines.append(f"N {epoch}\n")

    def write(self) -> bool:
        """Append what was gathered. False where the disk is full: it stays gathered, and nothing of it may be acted on."""
        if self._lines:
            data = "".join(self._lines).encode("ascii", "replace")
            try:
                if os.write(self._file, data) < len(data):
                    raise OSError(errno.ENOSPC, "no space left")
            except OSError:
                os.ftruncate(self._file, self._size)  # no half lines
                return False
            self._lines.clear()
            self._size += len(data)
            if self._unsynced_since is None:
                self._unsynced_since = time.monotonic()
        return True

    def sync(self, now: float) -> bool:
        """Sync what was written, once in `SYNC_SECONDS`. Return False if something is left to be written or synced."""
        if self._unsynced_since is not None and now - self._unsynced_since >= SYNC_SECONDS:
            try:
                os.fdatasync(self._file)
            except OSError:
                return False
            self._unsynced_since = None
        return not self._lines and self._unsynced_since is None

    def grown(self) -> bool:
        """Return whether it is time to write the log anew."""
        return self._size - self._base > COMPACT_BYTES

    def compact(self, running: Iterable[tuple[Key, int, str]]) -> None:
        """Replace the log by a new one of what is not settled."""
        with open(self._path + ".new", "w", encoding="ascii") as file:
            if not self.gap:
                file.write(f"B {self._boot}\n")
            file.write(f"N {self.epoch}\nH {self.highest}\n")
            claimed = [(key, *process) for key, process in self.claimed.items()]
            for key, pid, since in (*claimed, *running):
                file.write(f"C {key[0]} {key[1]}\n")
                if pid:
                    file.write(f"P {key[0]} {key[1]} {pid} {since or '-'}\n")
            for key, limit in self.limits.items():
                file.write(f"T {key[0]} {key[1]} {limit.line()}\n")
            for key, end in self.ended.items():
                file.write(end_line(key, *end))
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._path + ".new", self._path)
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        if self._file >= 0:
            os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = self._base = os.fstat(self._file).st_size

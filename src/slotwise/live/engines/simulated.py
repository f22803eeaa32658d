"""The engine `simulated`: any number of servers, jobs that only take time, at any speed. For demos, load and crash tests.

With a file it is a world of its own: starts are written there. A service that was killed and comes back finds its jobs
running or ended as if they had been real, and a test can count how often each was started. The world obeys the newest
service only. A line of an older service, written after a newer service has come, has no effect.
"""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from slotwise.live.clock import Clock
from slotwise.live.durations import TIME_LIMIT
from slotwise.live.engines.protocol import (
    Attempt,
    Ended,
    Fact,
    Known,
    ServerUp,
    Start,
    Started,
    Tell,
    UnknownAttempt,
)

# Exit code of a job that was stopped: that of a process ended by SIGTERM.
STOPPED = -15
OVER_TIME = (
    -24
)  # the exit code of a job that its time limit ended: SIGXCPU, so that the world tells it from a stopped one
# Words of the world's file: a new service has come; a line was not cut off.
EPOCH, COMPLETE = "epoch", "."
# Seconds that an attempt takes, from job, attempt and spec. Equal arguments give equal seconds.
Durations = Callable[[int, int, Mapping[str, Any]], float]


def exponential(seed: int = 1, mean: Mapping[str, float] | float = 1.0) -> Durations:
    """Exponential durations with a mean for each type; a job's `duration`, where it has one, is kept."""

    def duration(job: int, attempt: int, spec: Mapping[str, Any]) -> float:
        known = spec.get("duration")
        if known is not None:
            return float(known)
        average = mean if isinstance(mean, float | int) else mean.get(spec.get("type") or "", 1.0)
        return Random(f"{seed} {job} {attempt}").expovariate(1.0) * average

    return duration


class Deed(NamedTuple):
    """A start, or a stop (with no server), that had an effect in the world."""

    job: int
    attempt: int
    server: str
    started: float
    ends: float
    exit_code: int

    def line(self, epoch: int) -> str:
        """As the file keeps it."""
        return f"{self.job} {self.attempt} {self.server or '-'} {self.started!r} {self.ends!r} {self.exit_code} {epoch} {COMPLETE}\n"


def deeds(world: Path) -> list[Deed]:
    """What was done in a world. Skip a line that was cut off, since no service was told of it, and a line of an older
    epoch than the newest above it, which came too late."""
    found: list[Deed] = []
    newest = 0
    for line in world.read_text().splitlines() if world.exists() else ():
        words = line.split()
        if words[:1] == [EPOCH]:
            newest = max(newest, int(words[1]))
        elif words[-1:] == [COMPLETE] and int(words[6]) >= newest:
            job, attempt, server, started, ends, code = words[:6]
            named = "" if server == "-" else server
            found.append(Deed(int(job), int(attempt), named, float(started), float(ends), int(code)))
    return found


class SimulatedEngine:
    """See `Engine`. A job that takes d units of time takes d / speed seconds."""

    name = "simulated"

    def __init__(
        self,
        servers: Iterable[ServerUp],
        durations: Durations | None = None,
        *,
        speed: float = 1.0,
        world: Path | None = None,
    ) -> None:
        self._servers = list(servers)
        self._durations = durations or exponential()
        self._speed, self._clock = speed, Clock()
        self._running: dict[Attempt, tuple[float, float, int]] = {}
        """started, ends, exit code"""
        self._ends: list[tuple[float, int, int]] = []
        self._ended: dict[Attempt, Ended] = {}
        self._lock = threading.Condition()
        self._closing = False
        self._tell: Tell = lambda facts: None
        self._thread: threading.Thread | None = None
        self._world, self._file, self._epoch = world, -1, 0

    def open(self, tell: Tell, epoch: int) -> None:
        self._tell, self._epoch = tell, epoch
        if self._world is not None:
            self._file = os.open(self._world, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            # first the new epoch, then a look: what another service writes from now on counts no more
            os.write(self._file, f"\n{EPOCH} {epoch} {COMPLETE}\n".encode())
            for deed in deeds(self._world):
                self._add((deed.job, deed.attempt), deed.started, deed.ends, deed.exit_code)
        self._thread = threading.Thread(target=self._run, name="slotwise-simulated", daemon=True)
        self._thread.start()

    def servers(self) -> list[ServerUp]:
        return self._servers

    def set_servers(self, servers: Sequence[ServerUp]) -> None:
        self._servers = list(servers)

    def start(self, starts: Sequence[Start]) -> None:
        now = self._clock.now()
        begun: list[Fact] = []
        with self._lock:
            lines = []
            for start in starts:
                key = start.job, start.attempt
                if key in self._ended:
                    begun.append(self._ended[key])
                elif key not in self._running:
                    lasts = self._durations(start.job, start.attempt, start.spec)
                    code = int(start.spec.get("exit_code", 0))
                    most = start.spec.get("time")
                    if most is not None and most < lasts:
                        lasts, code = most, OVER_TIME
                    ends = now + lasts / self._speed
                    lines.append(Deed(*key, start.server, now, ends, code).line(self._epoch))
                    self._add(key, now, ends, code)
                    begun.append(Started(*key, now))
            if self._file >= 0 and lines:
                os.write(self._file, "".join(lines).encode())
            self._lock.notify()
        if begun:
            self._tell(begun)

    def stop(self, job: int, attempt: int) -> None:
        with self._lock:
            if (job, attempt) in self._running:
                started, _, _ = self._running[job, attempt]
                now = self._clock.now()
                self._add((job, attempt), started, now, STOPPED)
                if self._file >= 0:
                    deed = Deed(job, attempt, "", started, now, STOPPED)
                    os.write(self._file, deed.line(self._epoch).encode())
                self._lock.notify()

    def known(self, attempts: Sequence[tuple[int, int, str]]) -> dict[Attempt, Known]:
        found: dict[Attempt, Known] = {}
        with self._lock:
            for job, attempt, _ in attempts:
                key = job, attempt
                if key in self._ended:
                    found[key] = self._ended[key]
                else:
                    found[key] = Started(*key, self._running[key][0]) if key in self._running else UnknownAttempt()
        return found

    def settled(self, attempts: Sequence[Attempt]) -> None:
        with self._lock:
            for attempt in attempts:
                self._ended.pop(attempt, None)

    def output(self, job: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int] | None:
        return None

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join()
        if self._file >= 0:
            os.close(self._file)

    # -- inside -------------------------------------------------------------------------------------------------

    def _add(self, key: Attempt, started: float, ends: float, code: int) -> None:
        self._running[key] = started, ends, code
        heapq.heappush(self._ends, (ends, *key))

    def _run(self) -> None:
        """End jobs when their time has come, and tell it."""
        while True:
            ended: list[Fact] = []
            with self._lock:
                if self._closing:
                    return
                now = self._clock.now()
                while self._ends and self._ends[0][0] <= now:
                    at, job, attempt = heapq.heappop(self._ends)
                    one = self._running.get((job, attempt))
                    if one is None or one[1] != at:
                        continue  # it was stopped: another end counts
                    del self._running[job, attempt]
                    over = one[2] == OVER_TIME
                    reason = f"{TIME_LIMIT} exceeded" if over else ""
                    self._ended[job, attempt] = fact = Ended(job, attempt, one[2], at, reason, over_time=over)
                    ended.append(fact)
                if not ended:
                    self._lock.wait(self._ends[0][0] - now if self._ends else None)
                    continue
            self._tell(ended)

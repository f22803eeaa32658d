"""The engine `simulated`: any number of servers, jobs that only take time, at any speed. For demos, load and crash tests.

With a file it is a world of its own: starts are written there, so that a service that was killed and comes back finds its jobs
running or ended as if they had been real, and a test can count how often each was started.
"""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from slotwise.live.clock import Clock
from slotwise.live.engines.protocol import (
    Attempt,
    Ended,
    Fact,
    Known,
    ServerUp,
    Start,
    Started,
    Tell,
    Unknown,
)

STOPPED = -15
"""the exit code of a job that was stopped: SIGTERM, as of a process"""
Durations = Callable[[int, int, Mapping[str, Any]], float]
"""seconds that an attempt takes, from job, attempt and spec: the same each time it is asked"""


def exponential(seed: int = 1, mean: Mapping[str, float] | float = 1.0) -> Durations:
    """Exponential durations with a mean for each type; a job's `duration`, where it has one, is kept."""

    def duration(job: int, attempt: int, spec: Mapping[str, Any]) -> float:
        known = spec.get("duration")
        if known is not None:
            return float(known)
        average = mean if isinstance(mean, float | int) else mean.get(spec.get("type") or "", 1.0)
        return Random(f"{seed} {job} {attempt}").expovariate(1.0) * average

    return duration


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
        self._world, self._file = world, -1

    def open(self, tell: Tell) -> None:
        self._tell = tell
        if self._world is not None:  # not before: until now another service may have written to it
            self._read(self._world)
            self._file = os.open(self._world, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._thread = threading.Thread(target=self._run, name="slotwise-simulated", daemon=True)
        self._thread.start()

    def servers(self) -> list[ServerUp]:
        return self._servers

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
                    ends = now + self._durations(start.job, start.attempt, start.spec) / self._speed
                    code = int(start.spec.get("exit_code", 0))
                    lines.append(f"{start.job} {start.attempt} {start.server} {now!r} {ends!r} {code}\n")
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
                    os.write(self._file, f"{job} {attempt} - {started!r} {now!r} {STOPPED}\n".encode())
                self._lock.notify()

    def known(self, attempts: Sequence[tuple[int, int, str]]) -> dict[Attempt, Known]:
        found: dict[Attempt, Known] = {}
        with self._lock:
            for job, attempt, _ in attempts:
                key = job, attempt
                if key in self._ended:
                    found[key] = self._ended[key]
                else:
                    found[key] = Started(*key, self._running[key][0]) if key in self._running else Unknown()
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

    def _read(self, world: Path) -> None:
        """What was started before; where a line was cut off, the service was killed before it told anybody."""
        text = world.read_text() if world.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            job, attempt, _, started, ends, code = line.split()
            self._add((int(job), int(attempt)), float(started), float(ends), int(code))

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
                    self._ended[job, attempt] = fact = Ended(job, attempt, one[2], at)
                    ended.append(fact)
                if not ended:
                    self._lock.wait(self._ends[0][0] - now if self._ends else None)
                    continue
            self._tell(ended)

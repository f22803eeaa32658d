"""One round after the other: what was asked, what has ended, one write to the log, then processes and answers."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from typing import Any

from slotwise.live.engines.supervisor.claims import Claims, Key
from slotwise.live.engines.supervisor.deadlines import Deadlines
from slotwise.live.engines.supervisor.launching import prepare
from slotwise.live.engines.supervisor.limits import Limit
from slotwise.live.engines.supervisor.outputs import drop_if_empty, make_space, output_path
from slotwise.live.engines.supervisor.processes import (
    CannotExecuteError,
    Processes,
    RunningProcess,
    ask_to_end,
    is_alive,
    kill_late,
)
from slotwise.live.engines.supervisor.talking import Talk

# Seconds without a service and without a job after which the supervisor ends itself.
IDLE_SECONDS = 30.0
# Seconds between two checks of output sizes, adopted jobs and grace periods.
LOOK_SECONDS = 0.5
SPACE_SECONDS = 10.0  # between two searches for outputs to shorten while the disk stays full
# Seconds until a start is reported: a job that ends before then is reported once instead of twice.
SHORT_SECONDS = 0.02
UNSEEN = "its supervisor was killed while it ran; the exit status is not known"


class Supervisor:
    """See the package."""

    def __init__(self, folder: str, *, uses_groups: bool = True) -> None:
        self._folder = folder
        self._claims = Claims(folder)
        self._processes = Processes(folder, uses_groups=uses_groups)
        self._adopted = {key: RunningProcess(pid, since) for key, (pid, since) in self._claims.claimed.items()}
        """jobs of a supervisor that was killed: they run, but are not our children"""
        self._claims.claimed.clear()
        self._deadlines = Deadlines()
        for key, limit in self._claims.limits.items():
            self._deadlines.add(key, limit, time.monotonic())
        self._to_start: dict[Key, dict[str, Any]] = {}
        """claimed, not yet executed"""
        self._begun: dict[Key, float] = {}
        """executed, not yet told, with the time of the monotonic clock"""
        self._untold: list[Key] = []
        """ended, not yet told"""
        self._began: dict[Key, float] = {}
        """when those began whose ends are not settled"""
        self._look_for_space_at = 0.0
        """on the monotonic clock"""

    def serve(self, listening: socket.socket) -> None:
        """Run until there has been no job and no service for a while."""
        self._processes.begin()
        for key, one in self._adopted.items():
            self._processes.adopt(key, one)
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        prepare()
        epoll = select.epoll()
        epoll.register(listening.fileno(), select.EPOLLIN)
        epoll.register(wake_read, select.EPOLLIN)
        talk = Talk(epoll, self._claims.epoch, has_strangers=bool(self._adopted))
        looked = idle_since = time.monotonic()
        while True:
            busy = bool(self._processes.running or self._adopted or self._to_start)
            done = self._claims.sync(time.monotonic())
            wait = SHORT_SECONDS if self._begun else LOOK_SECONDS if busy or not done else 5.0
            wait = self._deadlines.wait(time.monotonic(), wait)
            for descriptor, _ in epoll.poll(wait):
                if descriptor == wake_read:
                    os.read(wake_read, 65536)
                elif descriptor == listening.fileno():
                    talk.accept(listening)
            messages = talk.receive()
            if talk.epoch > self._claims.epoch:
                self._claims.begin_epoch(talk.epoch)
            self._reap()
            now = time.monotonic()
            self._deadlines.enforce(self._processes.running, self._adopted, now)
            if now - looked >= LOOK_SECONDS:
                looked = now
                self._look(now)
            self._round(messages, talk, now)
            if self._claims.grown():
                everything = (*self._processes.running.items(), *self._adopted.items())
                self._claims.compact([(key, one.pid, one.since) for key, one in everything])
            if talk or busy:
                idle_since = now
            elif now - idle_since > IDLE_SECONDS:
                return

    # -- what has happened --------------------------------------------------------------------------------------

    def _reap(self) -> None:
        for key, one, status in self._processes.reap():
            self._began[key] = one.started
            self._end(key, status, one.reason)

    def _look(self, now: float) -> None:
        """Check grace periods, sizes of outputs, and jobs that are not our children and have gone."""
        for one in (*self._processes.running.values(), *self._adopted.values()):
            kill_late(one, now)
        self._processes.watch_memory()
        self._processes.shorten_outputs()
        if now >= self._look_for_space_at and not make_space(self._folder):
            self._look_for_space_at = now + SPACE_SECONDS
        for key, one in list(self._adopted.items()):
            if not is_alive(self._folder, key, one):
                del self._adopted[key]
                if one.reason:  # we ended it ourselves
                    self._end(key, -signal.SIGTERM, one.reason)
                else:
                    self._end(key, None, UNSEEN)

    def _end(self, key: Key, status: int | None, reason: str) -> None:
        self._claims.end(key, status, reason)
        self._begun.pop(key, None)
        self._untold.append(key)
        drop_if_empty(output_path(self._folder, *key))

    # -- what is done about it ----------------------------------------------------------------------------------

    def _round(self, messages: list[dict[str, Any]], talk: Talk, now: float) -> None:
        for message in messages:
            for wanted in message.get("start", ()):
                self._claim(wanted, talk)
            if "known" in message and self._claims.gap:
                self._claims.close_gap(key for key in map(tuple, message["known"]) if not self._has(key))
        if self._claims.write():
            self._execute()
            self._claims.write()
            self._tell(talk, now)
        for message in messages:
            if "stop" in message:
                job, attempt, grace = message["stop"]
                one = self._processes.running.get((job, attempt)) or self._adopted.get((job, attempt))
                if one is not None:
                    ask_to_end(one, grace if one.grace is None else one.grace)
            for job, attempt in message.get("settled", ()):
                self._claims.settle((job, attempt))
                self._began.pop((job, attempt), None)
            if "known" in message:
                known = [self._known(job, attempt) for job, attempt in message["known"]]
                talk.tell({"known": known, "id": message["id"]})
        self._claims.write()
        talk.send()

    def _has(self, key: Key) -> bool:
        return (
            key in self._claims.ended
            or key in self._processes.running
            or key in self._adopted
            or key in self._to_start
        )

    def _claim(self, wanted: dict[str, Any], talk: Talk) -> None:
        key = wanted["job"], wanted["attempt"]
        if key in self._claims.ended:
            self._untold.append(key)
        elif key in self._processes.running:
            talk.tell({"started": [[*key, self._processes.running[key].started]]})
        elif not self._has(key):  # from here on a second start does nothing
            self._claims.claim(key)
            self._to_start[key] = wanted

    def _execute(self) -> None:
        """Start what was claimed."""
        now = time.monotonic()
        for key, wanted in self._to_start.items():
            try:
                one = self._processes.start(wanted)
            except CannotExecuteError as error:
                self._end(key, error.status, str(error))
            else:
                self._claims.runs(key, one.pid, one.since)
                limit = Limit.of(wanted, time.monotonic())
                if limit is not None:
                    self._claims.limit(key, limit)
                    self._deadlines.add(key, limit, now)
                self._begun[key] = now
        self._to_start.clear()

    def _tell(self, talk: Talk, now: float) -> None:
        """Tell the service of ends, and of starts of jobs that go on."""
        ends = self._claims.ended
        if self._untold:
            told = [[*key, *ends[key], self._began.get(key)] for key in self._untold if key in ends]
            talk.tell({"ended": told})
            self._untold.clear()
        running = self._processes.running
        due = [key for key, since in self._begun.items() if now - since >= SHORT_SECONDS]
        if due:
            talk.tell({"started": [[*key, running[key].started] for key in due]})
            for key in due:
                del self._begun[key]

    def _known(self, job: int, attempt: int) -> list[Any]:
        key = job, attempt
        if key in self._claims.ended:
            return [job, attempt, "ended", *self._claims.ended[key], self._began.get(key)]
        one = self._processes.running.get(key) or self._adopted.get(key)
        if one is None and key not in self._to_start:
            return [job, attempt, "unknown"]
        return [job, attempt, "running", one.started if one is not None else 0.0]

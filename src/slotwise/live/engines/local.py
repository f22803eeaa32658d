"""The engine `local`: this machine, or parts of it. A supervisor that outlives the service executes the jobs."""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

from slotwise.errors import SlotwiseError
from slotwise.live.durations import TIME_LIMIT
from slotwise.live.engines.environment import inherited, told
from slotwise.live.engines.machine import Machine
from slotwise.live.engines.protocol import (
    Attempt,
    Ended,
    Fact,
    Known,
    Lost,
    ServerUp,
    Start,
    Started,
    Tell,
    UnknownAttempt,
)
from slotwise.live.engines.supervisor import confining
from slotwise.live.engines.supervisor.deadlines import number_of
from slotwise.live.engines.supervisor.outputs import make_space, output_path, sweep
from slotwise.live.engines.supervisor.talking import VERSION
from slotwise.live.spec import CONFINED

log = logging.getLogger(__name__)
SCRIPT = Path(__file__).with_name("supervisor")
OUTPUT_LIMIT = 10_000_000  # bytes of one output
OUTPUT_QUOTA = 10_000_000_000  # bytes of all outputs together
PROCESSES = (
    8192  # processes and threads of one job, and of one account; more end a machine rather than a computation
)
SWEEP_SECONDS = 10.0  # between two looks at the outputs
GRACE_SECONDS = 10.0
# The account that executes a job whose submitter is no user of this machine.
UNKNOWN_USER = "nobody"
# Seconds for a supervisor to start or to answer: a disk under load delays both.
CONNECT_SECONDS = 60.0
# Seconds until a supervisor that could not be started is tried again.
PAUSE_SECONDS = 1.0


class LocalEngine:
    """See `Engine`. `folder` holds the supervisor's log and the outputs; `servers` are the parts of the machine by name."""

    name = "local"

    def __init__(
        self,
        folder: Path,
        servers: Mapping[str, ServerUp],
        *,
        machine: Machine | None = None,
        output_limit: int = OUTPUT_LIMIT,
        output_quota: int = OUTPUT_QUOTA,
        keep_seconds: float = float("inf"),
        grace: float = GRACE_SECONDS,
        runs_as_submitter: bool = False,
        uses_groups: bool = True,
        hidden: Sequence[Path] = (),
        fixed: Sequence[Path] = (),
        processes: int = PROCESSES,
    ) -> None:
        self.folder = folder
        # What confined jobs must not reach, and what they must not change.
        self._hidden, self._fixed = [str(path) for path in (folder, *hidden)], list(map(str, fixed))
        self.runs_as_submitter, self._uses_groups, self._processes = runs_as_submitter, uses_groups, processes
        self.grace, self.output_limit = grace, output_limit
        self.output_quota, self.keep_seconds = output_quota, keep_seconds
        self._machine = machine or Machine.found()
        self.set_servers(list(servers.values()))
        self._live: dict[Attempt, dict[str, Any] | None] = {}
        """attempts that have not ended, with what to send again if the supervisor has not heard of them (None: it has)"""
        self._stops: set[Attempt] = set()
        """attempts that were asked to end, for a supervisor that takes over from a killed one"""
        self._lock = threading.RLock()
        self._peer: socket.socket | None = None
        self._answers: dict[int, list[Any]] = {}
        self._answered = threading.Condition(self._lock)
        self._numbers = itertools.count(1)
        self._closing = False
        self._epoch = 0
        self._tell: Tell = lambda facts: None
        self._reader: threading.Thread | None = None
        self._sweeper: threading.Thread | None = None
        self._over = threading.Event()

    @property
    def confines(self) -> bool:
        """Return whether jobs can be kept out of files of their own account."""
        return confining.version() > 0

    # -- the protocol -------------------------------------------------------------------------------------------

    def open(self, tell: Tell, epoch: int) -> None:
        self._tell, self._epoch = tell, epoch
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._connect()
        self._reader = threading.Thread(target=self._read_on, name="slotwise-local", daemon=True)
        self._reader.start()
        self._sweeper = threading.Thread(target=self._sweep_on, name="slotwise-outputs", daemon=True)
        self._sweeper.start()

    def _sweep_on(self) -> None:
        """Keep outputs within their quota, and drop those of jobs that are no longer kept."""
        while not self._over.wait(SWEEP_SECONDS):
            try:
                sweep(str(self.folder), self.output_limit, self.output_quota, time.time() - self.keep_seconds)
                make_space(str(self.folder))
            except OSError as error:
                log.warning("cannot look through the outputs: %s", error)

    def servers(self) -> list[ServerUp]:
        return list(self._servers.values())

    def set_servers(self, servers: Sequence[ServerUp]) -> None:
        self._servers = {one.name: one for one in servers}
        self._pools = self._machine.pools(self._servers)

    def start(self, starts: Sequence[Start]) -> None:
        messages = [self._message(start) for start in starts]
        with self._lock:
            for message in messages:
                self._live.setdefault((message["job"], message["attempt"]), message)
            self._send({"start": messages})

    def stop(self, job: int, attempt: int) -> None:
        with self._lock:
            self._stops.add((job, attempt))
            self._send({"stop": [job, attempt, self.grace]})

    def known(self, attempts: Sequence[tuple[int, int, str]]) -> dict[Attempt, Known]:
        found: dict[Attempt, Known] = {}
        for job, attempt, state, *rest in self._ask([(job, attempt) for job, attempt, _ in attempts]):
            found[job, attempt] = UnknownAttempt() if state == "unknown" else _fact(job, attempt, state, rest)
            if state == "running":
                with self._lock:
                    self._live.setdefault((job, attempt), None)
        return found

    def settled(self, attempts: Sequence[Attempt]) -> None:
        with self._lock:
            for attempt in attempts:
                self._live.pop(attempt, None)
                self._stops.discard(attempt)
        self._send({"settled": list(attempts)})

    def output(self, job: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int] | None:
        try:
            descriptor = os.open(output_path(str(self.folder), job, attempt), os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            size = os.fstat(descriptor).st_size
            if offset >= size:
                return b"", offset
            data = os.lseek(descriptor, offset, os.SEEK_DATA) if offset < size else offset
            if data > offset:  # a hole: what was dropped because there was too much
                return f"\n[... {data - offset} bytes dropped ...]\n".encode(), data
            hole = os.lseek(descriptor, offset, os.SEEK_HOLE)
            piece = os.pread(descriptor, min(limit, hole - offset), offset)
            return piece, offset + len(piece)
        except OSError:  # a hole up to the end
            return b"", offset
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with self._answered:
            self._closing = True
            self._answered.notify_all()
            self._hang_up()
        self._over.set()
        for thread in (self._reader, self._sweeper):
            if thread is not None:
                thread.join()
        with self._lock:
            if self._peer is not None:
                self._peer.close()
                self._peer = None

    # -- what is sent -------------------------------------------------------------------------------------------

    def _message(self, start: Start) -> dict[str, Any]:
        spec, pool = start.spec, self._pools.get(start.server)
        message: dict[str, Any] = {
            "job": start.job,
            "attempt": start.attempt,
            "argv": list(spec["argv"]),
            "env": {**spec.get("env", {}), **told(start)},
            "cwd": spec.get("cwd") or ("" if self.runs_as_submitter else os.environ.get("HOME", "/")),
            "output": self.output_limit,
        }
        if self.runs_as_submitter:
            message["user"] = spec.get("user") or UNKNOWN_USER
        if self.confines and spec.get(CONFINED) and message.get("user") in (None, UNKNOWN_USER):
            message |= {"hidden": self._hidden, "fixed": self._fixed}
        if "user" in message or "hidden" in message:
            message["processes"] = self._processes
        if pool is not None:
            message |= {"cpus": pool.cpus, "cpu": ceil(start.demand.get("cpu", 0)), "gpus": pool.gpus}
            message["gpu"] = ceil(start.demand.get("gpu", 0))
            memory = start.demand.get("memory", 0)
            if memory:
                message["memory"] = ceil(memory * pool.memory_unit)
        if spec.get("open_files"):
            message["files"] = spec["open_files"]
        if spec.get("grace") is not None:
            message["grace"] = spec["grace"]
        if spec.get("time"):
            message["time"] = spec["time"]
            if spec.get("warn"):
                message["warn"] = [number_of(spec["warn"]["signal"]), spec["warn"]["before"]]
        return message

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._peer is None:
                return  # when it is there again it is asked, and told what it has not heard
            try:
                self._peer.sendall(data)
            except OSError:
                log.warning("the supervisor has gone; starting another")

    def _ask(self, attempts: Sequence[Attempt]) -> list[Any]:
        with self._answered:
            number = next(self._numbers)
            deadline = time.monotonic() + CONNECT_SECONDS
            while number not in self._answers:
                asked = self._peer
                self._send({"known": list(attempts), "id": number})
                if not self._answered.wait_for(
                    lambda asked=asked: number in self._answers or self._peer is not asked,  # type: ignore[misc]
                    deadline - time.monotonic(),
                ):
                    raise SlotwiseError(f"{self.folder}: the supervisor does not answer")
            return self._answers.pop(number)

    # -- what is heard ------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        while True:
            try:
                self._read()
            except OSError as error:
                log.warning("the connection to the supervisor is lost: %s", error)
            while True:
                with self._lock:
                    if self._closing:
                        return
                try:
                    self._connect()
                    break
                except (OSError, SlotwiseError) as error:  # jobs go on meanwhile, and the cause may go away
                    log.error("cannot reach the supervisor, trying on: %s", error)
                    with self._answered:
                        self._answered.wait_for(lambda: self._closing, PAUSE_SECONDS)
            threading.Thread(target=self._take_up, name="slotwise-local-again", daemon=True).start()

    def _read(self) -> None:
        """Hear facts until the connection ends."""
        peer, unread = self._peer, b""
        assert peer is not None
        while data := peer.recv(1 << 20):
            *lines, unread = (unread + data).split(b"\n")
            facts: list[Fact] = []
            for line in lines:
                message = json.loads(line)
                facts += [Started(*one) for one in message.get("started", ())]
                facts += [_fact(job, attempt, "ended", rest) for job, attempt, *rest in message.get("ended", ())]
                if "known" in message:
                    with self._answered:
                        self._answers[message["id"]] = message["known"]
                        self._answered.notify_all()
                if "refused" in message:
                    log.error("another service has taken over the supervisor of %s", self.folder)
                    with self._lock:
                        self._closing = True
                if message.get("hello", VERSION) != VERSION:
                    log.warning("the supervisor is of version %s, not %s", message["hello"], VERSION)
            self._hear(facts)

    def _hear(self, facts: Sequence[Fact]) -> None:
        with self._lock:
            for fact in facts:
                if isinstance(fact, Started) and (fact.job, fact.attempt) in self._live:
                    self._live[fact.job, fact.attempt] = None
        if facts:
            self._tell(facts)

    def _take_up(self) -> None:
        """After a supervisor was killed: ask the new one about everything that has not ended."""
        with self._lock:
            live = dict(self._live)
        try:
            told = self._ask(list(live))
        except SlotwiseError as error:
            log.warning("%s", error)
            self._hang_up()  # this is tried again with a new connection
            return
        facts: list[Fact] = []
        again = []
        for job, attempt, state, *rest in told:
            message = live[job, attempt]
            if state != "unknown":
                facts.append(_fact(job, attempt, state, rest))
            elif message is not None:
                again.append(message)
            else:
                facts.append(Lost(job, attempt, "the supervisor has lost its log"))
        if again:
            self._send({"start": again})
        with self._lock:
            stops = sorted(self._stops)
        for job, attempt in stops:
            self._send({"stop": [job, attempt, self.grace]})
        self._hear(facts)

    def _connect(self) -> None:
        """Reach the supervisor; start one if none is there."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            peer = self._reach()
            if peer is not None:
                with self._lock:
                    if self._peer is not None:
                        self._peer.close()
                    self._peer = peer
                    self._answered.notify_all()
                    if self._closing:
                        peer.shutdown(socket.SHUT_RDWR)
                return
            environment = inherited() | {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}
            with open(
                os.open(self.folder / "supervisor.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab"
            ) as errors:
                done = subprocess.run(
                    [
                        *(sys.executable, "-I", "-S", str(SCRIPT), str(self.folder)),
                        *(() if self._uses_groups else ("--no-groups",)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    env=environment,
                    start_new_session=True,
                    check=False,
                )
            if done.returncode or time.monotonic() > deadline:
                raise SlotwiseError(f"{self.folder}: the supervisor does not start; see supervisor.err there")

    def _hang_up(self) -> None:
        with self._lock:
            if self._peer is not None:
                with suppress(OSError):  # it has gone
                    self._peer.shutdown(socket.SHUT_RDWR)

    def _reach(self) -> socket.socket | None:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:  # by way of the descriptor, since the name of a socket must be short
            peer.settimeout(CONNECT_SECONDS)
            peer.connect(f"/proc/self/fd/{folder}/socket")
            if not peer.recv(1, socket.MSG_PEEK):  # its greeting; one that is being killed says none
                raise ConnectionResetError
            peer.sendall(json.dumps({"epoch": self._epoch}).encode() + b"\n")
            peer.settimeout(None)
        except OSError:
            peer.close()
            return None
        finally:
            os.close(folder)
        return peer


def _fact(job: int, attempt: int, state: str, rest: Sequence[Any]) -> Started | Ended | Lost:
    if state == "running":
        return Started(job, attempt, rest[0])
    code, at, reason, *began = rest
    if code is None:
        return Lost(job, attempt, reason)
    over = reason.startswith(TIME_LIMIT)
    return Ended(job, attempt, code, at, reason, began[0] if began else None, over_time=over)

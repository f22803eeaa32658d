"""Where the service asks for forecasts: one worker process for all callers, started with the first question.

The worker writes its answers as JSON, and the service hands these bytes on without reading them. To read and write an answer with a thousand jobs again would
hold the interpreter's lock for some milliseconds, and the loop that decides would wait for it.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from pathlib import Path
from typing import IO, Any, NamedTuple

from slotwise.errors import InputError
from slotwise.live.store.protocol import Store

log = logging.getLogger(__name__)
PATIENCE = 15.0  # seconds that a caller waits for an answer
MOST_WAITING = 64  # questions
PAUSE_AFTER_FAILURE = 30.0  # seconds until a worker that has failed is started again
STARTING = "not known yet: the forecaster is starting"


class Reply(NamedTuple):
    """What has become of a question."""

    answer: bytes
    """JSON"""
    error: str | None = None
    """what is wrong with the question"""


def _none(reason: str) -> Reply:
    """Return the reply that says why there is no answer."""
    return Reply(json.dumps({"reason": reason}).encode())


class Desk:
    """Hands questions to the worker. Any thread may ask."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        self._store, self._folder = store, folder
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._waiting: dict[int, Future[Reply]] = {}
        self._ready = threading.Event()
        self._n = 0
        self._not_before = 0.0
        self._failure = ""
        self._closed = False

    def ask(self, kind: str, *, patience: float = PATIENCE, **request: Any) -> dict[str, Any]:
        """Return the answer. If there is none in time, return a `reason` instead. A mistake in the question raises an InputError."""
        answer: dict[str, Any] = json.loads(self.written(kind, patience=patience, **request))
        return answer

    def written(self, kind: str, *, patience: float = PATIENCE, **request: Any) -> bytes:
        """Return the answer as the worker wrote it, JSON; otherwise like `ask`."""
        reply = self._reply(kind, patience, request)
        if reply.error is not None:
            raise InputError(reply.error)
        return reply.answer

    def _reply(self, kind: str, patience: float, request: dict[str, Any]) -> Reply:
        began = time.monotonic()
        with self._lock:
            if reason := self._start():
                return _none(reason)
            if len(self._waiting) >= MOST_WAITING:
                return _none(f"not known now: {MOST_WAITING} questions wait already; ask again later")
        if not self._ready.wait(patience):
            return _none(STARTING)
        with self._lock:
            if self._worker is None or self._worker.stdin is None:
                return _none(self._failure or STARTING)
            self._n += 1
            number, future = self._n, Future[Reply]()
            self._waiting[number] = future
            self._write(self._worker.stdin, {"id": number, "kind": kind} | request)
        try:
            return future.result(max(0.1, patience - (time.monotonic() - began)))
        except NotInTime:
            return _none(f"not known now: no answer within {patience:g} s; ask again later")
        finally:
            with self._lock:
                self._waiting.pop(number, None)

    @property
    def is_ready(self) -> bool:
        """Whether the worker runs, because something has been asked."""
        return self._ready.is_set()

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
        if worker is not None:
            if worker.stdin is not None:
                worker.stdin.close()
            try:
                worker.wait(2.0)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()

    def _start(self) -> str | None:
        """Start the worker where there is none; return why that cannot be now."""
        if self._closed:
            return "the service is ending"
        if self._worker is not None:
            return None
        if time.monotonic() < self._not_before:
            return self._failure
        records = None if self._folder is None else str(self._folder / "forecasts.db")
        self._ready.clear()
        try:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "slotwise.live.forecast.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the service, which then ends the worker
            )
        except OSError as error:
            self._fail(f"the forecaster cannot be started: {error}")
            return self._failure
        assert self._worker.stdin is not None
        # the address of the store may hold a password, so it is not an argument
        self._write(self._worker.stdin, {"store": self._store.url, "records": records})
        threading.Thread(target=self._hear, args=(self._worker,), name="slotwise-forecasts", daemon=True).start()
        return None

    @staticmethod
    def _write(pipe: IO[bytes], message: dict[str, Any]) -> None:
        try:
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()
        except OSError as error:
            log.warning("the forecaster does not listen: %s", error)

    def _hear(self, worker: subprocess.Popen[bytes]) -> None:
        """Hand answers to the waiting requests until the worker ends."""
        assert worker.stdout is not None
        for line in worker.stdout:
            head = json.loads(line)
            if head.get("ready"):
                self._ready.set()
                continue
            answer = worker.stdout.readline()
            with self._lock:
                future = self._waiting.pop(head["id"], None)
            if future is not None and not future.done():
                future.set_result(Reply(answer, head["error"]))
        code = worker.wait()
        with self._lock:
            if self._worker is worker:
                self._worker = None
                self._fail(f"the forecaster has ended (exit code {code}); it is started again later")
            waiting, self._waiting = self._waiting, {}
            self._ready.set()
        for future in waiting.values():
            if not future.done():
                future.set_result(_none(self._failure or STARTING))

    def _fail(self, reason: str) -> None:
        self._failure, self._not_before = reason, time.monotonic() + PAUSE_AFTER_FAILURE
        if not self._closed:
            log.warning("%s", reason)

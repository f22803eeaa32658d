"""Where the service asks for forecasts: one worker process for all who ask, started with the first question."""

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
from typing import IO, Any

from slotwise.errors import InputError
from slotwise.live.store.protocol import Store

log = logging.getLogger(__name__)
PATIENCE = 15.0  # seconds that a caller waits for an answer
MOST_WAITING = 64  # questions
PAUSE_AFTER_FAILURE = 30.0  # seconds until a worker that has failed is started again
STARTING = "not known yet: the forecaster is starting"


class Desk:
    """Hands questions to the worker. Any thread may ask."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        self._store, self._folder = store, folder
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._ready = threading.Event()
        self._n = 0
        self._not_before = 0.0
        self._failure = ""
        self._closed = False

    def ask(self, kind: str, *, patience: float = PATIENCE, **request: Any) -> dict[str, Any]:
        """Return the answer. Where there is none in time, return a `reason` instead; a mistake in the question raises an InputError."""
        began = time.monotonic()
        with self._lock:
            if reason := self._start():
                return {"reason": reason}
            if len(self._waiting) >= MOST_WAITING:
                return {"reason": f"not known now: {MOST_WAITING} questions wait already; ask again later"}
        if not self._ready.wait(patience):
            return {"reason": STARTING}
        with self._lock:
            if self._worker is None or self._worker.stdin is None:
                return {"reason": self._failure or STARTING}
            self._n += 1
            number, future = self._n, Future[dict[str, Any]]()
            self._waiting[number] = future
            self._write(self._worker.stdin, {"id": number, "kind": kind} | request)
        try:
            found = future.result(max(0.1, patience - (time.monotonic() - began)))
        except NotInTime:
            return {"reason": f"not known now: no answer within {patience:g} s; ask again later"}
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if "error" in found:
            raise InputError(found["error"])
        answer: dict[str, Any] = found.get("answer", {"reason": found.get("reason", STARTING)})
        return answer

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
            message = json.loads(line)
            if message.get("ready"):
                self._ready.set()
                continue
            with self._lock:
                future = self._waiting.pop(message["id"], None)
            if future is not None and not future.done():
                future.set_result(message)
        code = worker.wait()
        with self._lock:
            if self._worker is worker:
                self._worker = None
                self._fail(f"the forecaster has ended (exit code {code}); it is started again later")
            waiting, self._waiting = self._waiting, {}
            self._ready.set()
        for future in waiting.values():
            if not future.done():
                future.set_result({"reason": self._failure or STARTING})

    def _fail(self, reason: str) -> None:
        self._failure, self._not_before = reason, time.monotonic() + PAUSE_AFTER_FAILURE
        if not self._closed:
            log.warning("%s", reason)

"""`Executor`: functions as jobs of the service, with the interface of concurrent.futures.

Functions and results travel as files in a folder that the servers see under the same name. One thread submits calls in bulk and asks after
all of them with few requests. Each submission has a key, so a request that is repeated after a restart of the service submits nothing twice.
"""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

from slotwise.errors import InputError, SlotwiseError
from slotwise.live import task
from slotwise.live.addresses import state_folder
from slotwise.live.client import PIECE, Client, Job, Rhythm, dependencies, listed, submission
from slotwise.live.durations import seconds_of
from slotwise.live.needs import parse_needs
from slotwise.live.patience import TOO_MANY, patiently
from slotwise.live.transport import ServiceError

BULK = 1000  # calls in one submission
TAIL = 2000  # bytes of a job's output that an error shows
REFUSED = 409  # status: the job does not wait any more


class JobError(SlotwiseError):
    """A job that ended without a result: cancelled while it ran, killed, over its time limit, or lost."""

    def __init__(self, message: str, job: Job | None = None) -> None:
        super().__init__(message)
        self.job = job


class RemoteTracebackError(Exception):
    """The traceback of a function in its job, as text; the cause of the exception that `result` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Future(futures.Future[Any]):
    """The result of a call. `job` is the number of its job, None until it is submitted."""

    job: int | None = None
    after: dict[str, list[Any]]
    """what the call waits for: futures, or numbers of jobs, by kind"""
    _client: Client

    def cancel(self) -> bool:
        """Withdraw the call if its job does not run yet; return whether it is cancelled."""
        if self.done() or self.running():
            return self.cancelled()
        if self.job is not None:
            try:
                patiently(lambda: self._client.cancel(self.job or 0))
            except ServiceError as error:
                if error.status != REFUSED or self._client.job(self.job).state != "cancelled":
                    return False
        return super().cancel()

    def stop(self) -> None:
        """End the job although it runs: SIGTERM, and SIGKILL after the grace period. `result` raises JobError then."""
        if self.job is not None and not self.done():
            patiently(lambda: self._client.call("POST", "/v1/jobs/cancel", json={"ids": [self.job]}))


class Executor(futures.Executor):
    """Calls functions in jobs of the service. Needs the extra `slotwise[executor]`.

    >>> with Executor(needs="cpu=2,memory=4G", time="1h") as executor:      # doctest: +SKIP
    ...     print(list(executor.map(simulate, range(1000), chunksize=10)))

    Options are those of a submission: needs, time, requires, env, cwd, name, on_loss, retry, ... `using` changes them for single calls. With
    `after`, futures of other calls, a call starts when their jobs are done; it is cancelled if one of them is not.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        profile: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        python: str = sys.executable,
        **options: Any,
    ) -> None:
        pickler()  # complain now, not in a job
        self._calls = Calls(Client(server, profile=profile), Path(folder or state_folder() / "calls"), python)
        self._options = read_options({"cwd": os.getcwd(), "name": None, **options})

    def using(self, **options: Any) -> Executor:
        """Return this executor with other options: `executor.using(needs={"cpu": 8}).submit(f)`. Both are shut down together."""
        other = object.__new__(Executor)
        other._calls, other._options = self._calls, self._options | read_options(options)
        return other

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Submit a call; return its future at once."""
        options = self._options
        if options.get("name") is None:
            options = options | {"name": getattr(fn, "__qualname__", type(fn).__name__)[:200]}
        return self._calls.add((fn, args, kwargs), options)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,
    ) -> Iterator[Any]:
        """Return the results of calls in order. With `chunksize`, one job makes so many calls."""
        if chunksize < 1:
            raise InputError(f"{chunksize} is below 1", where="chunksize", remedy="use 1 or more")
        named = self if self._options.get("name") else self.using(name=getattr(fn, "__qualname__", "map")[:200])
        results = super(Executor, named).map(
            partial(call_each, fn), chunks(zip(*iterables, strict=False), chunksize), timeout=timeout, **more
        )
        return itertools.chain.from_iterable(results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. With `wait`, return when all have ended; with `cancel_futures`, withdraw those that wait."""
        self._calls.close(wait=wait, cancel=cancel_futures)


def pickler() -> Any:
    """Return the module cloudpickle."""
    try:
        import cloudpickle
    except ImportError:
        raise InputError(
            "cloudpickle is not installed", where="Executor", remedy="pip install 'slotwise[executor]'"
        ) from None
    return cloudpickle


def read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the API takes them; needs and times may be texts."""
    read = dict(options)
    if isinstance(read.get("needs"), str):
        read["needs"] = parse_needs(read["needs"])
    for name in ("time", "duration", "grace", "backoff"):
        if isinstance(read.get(name), str):
            try:
                read[name] = seconds_of(read[name])
            except ValueError as error:
                raise InputError(f"{read[name]!r} {error}", where=name) from None
    for name in ("key", "array"):
        if name in read:
            raise InputError("is not an option of an executor", where=name, remedy="leave it out")
    return read


def chunks(rows: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows in lists of a size; the last may be shorter."""
    while chunk := list(itertools.islice(rows, size)):
        yield chunk


def call_each(fn: Callable[..., Any], rows: list[tuple[Any, ...]]) -> list[Any]:
    """Return the results of calls of a function."""
    return [fn(*row) for row in rows]


class Calls:
    """Calls of one executor: a thread submits them and waits for their jobs. The thread ends when no call is left."""

    def __init__(self, client: Client, folder: Path, python: str) -> None:
        self.client, self.python = client, python
        self.run = uuid.uuid4().hex
        self.folder = folder.absolute() / self.run
        self.folder.mkdir(parents=True, mode=0o700)
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._unsent: dict[Future, dict[str, Any]] = {}
        self._sent: dict[int, Future] = {}
        self._thread: threading.Thread | None = None
        self._count, self._closed = 0, False

    def add(self, call: tuple[Any, ...], options: dict[str, Any]) -> Future:
        """Write a call to its file and leave its submission to the thread."""
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._count += 1
            name = f"{self._count}"
        path, result = self.folder / f"{name}.call", self.folder / f"{name}.result"
        path.write_bytes(pickle.dumps([one for one in sys.path if one]) + pickler().dumps(call))
        argv = [self.python, os.path.abspath(task.__file__), str(path), str(result)]
        future = Future()
        future._client = self.client
        future.name = name  # type: ignore[attr-defined]
        after = options.get("after")
        future.after = {}
        if after is not None:
            future.after = {"ok": listed(after)} if not isinstance(after, Mapping) else dict(after)
        body = submission(argv, options | {"key": f"executor-{self.run}-{name}", "after": None})
        with self._lock:
            self._unsent[future] = body
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="slotwise-executor")
                self._thread.start()
        self._news.set()
        return future

    def close(self, *, wait: bool, cancel: bool) -> None:
        """Accept no more calls."""
        with self._lock:
            self._closed = True
            waiting = [*self._unsent, *self._sent.values()] if cancel else []
            thread = self._thread
        for future in waiting:
            future.cancel()
        self._news.set()
        if thread is None:
            self._clean_up()
        elif wait:
            thread.join()

    # -- the thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        rhythm = Rhythm(None)
        while True:
            try:
                happened = self._submit_some()
                happened = self._collect() or happened
                rhythm.answered()
            except ServiceError as error:
                happened = False
                try:
                    if error.status != TOO_MANY:
                        rhythm.bear(error)
                except ServiceError:
                    self._give_up(error)
            except Exception as error:
                self._give_up(error)
            with self._lock:
                if not self._unsent and not self._sent:
                    self._thread = None
                    closed = self._closed
                    break
            self._news.wait(rhythm.pause(happened))
            self._news.clear()
        if closed:
            self._clean_up()

    def _submit_some(self) -> bool:
        with self._lock:
            cancelled = [future for future in self._unsent if future.cancelled()]
            for future in cancelled:
                del self._unsent[future]
            batch = self._next_batch()
        for future in cancelled:
            self._settle_cancelled(future)
        if not batch:
            return bool(cancelled)
        try:
            self._sent_now(list(batch), self.client.submit_many(list(batch.values())))
        except ServiceError as error:
            if error.passing or error.status == TOO_MANY:
                raise
            self._submit_singly(batch)  # one of them was refused: the other ones shall not suffer
        return True

    def _next_batch(self) -> dict[Future, dict[str, Any]]:
        """Return calls that can be submitted now: the jobs that they wait for have numbers. A call that waits for a refused one is withdrawn."""
        batch = {}
        for future, body in self._unsent.items():
            others = [
                one for some in future.after.values() for one in listed(some) if isinstance(one, futures.Future)
            ]
            if any(one.done() and getattr(one, "job", None) is None for one in others):
                futures.Future.cancel(future)
            elif all(getattr(one, "job", None) is not None for one in others):
                after = {
                    kind: [getattr(one, "job", one) for one in listed(some)] for kind, some in future.after.items()
                }
                batch[future] = body | {"after": dependencies(after)} if after else body
            if len(batch) == BULK:
                break
        return batch

    def _submit_singly(self, batch: Mapping[Future, dict[str, Any]]) -> None:
        for future, body in batch.items():
            try:
                self._sent_now([future], self.client.submit_many([body]))
            except ServiceError as error:
                if error.passing or error.status == TOO_MANY:
                    raise
                with self._lock:
                    del self._unsent[future]
                self._fail(future, error)

    def _sent_now(self, batch: list[Future], handles: list[Any]) -> None:
        late = []
        with self._lock:
            for future, handle in zip(batch, handles, strict=True):
                future.job = handle.id
                self._sent[handle.id] = future
                del self._unsent[future]
                if future.cancelled():  # while the request was under way
                    late.append(handle)
        for handle in late:
            handle.cancel()

    def _collect(self) -> bool:
        numbers = sorted(self._sent)
        happened = False
        for at in range(0, len(numbers), PIECE):
            asked = numbers[at : at + PIECE]
            found = {job.id: job for job in self.client.jobs(id=asked)}
            for number in asked:
                happened = self._look_at(number, found.get(number)) or happened
        return happened

    def _look_at(self, number: int, job: Job | None) -> bool:
        """Tell a future what has become of its job; return whether the job has ended."""
        future = self._sent[number]
        if job is not None and not job.has_ended:
            if job.state in ("placed", "running") and not future.running() and not future.cancelled():
                future.set_running_or_notify_cancel()
            return False
        with self._lock:
            del self._sent[number]
        if future.cancelled() or (job is not None and job.state == "cancelled" and not future.running()):
            futures.Future.cancel(future)
            self._settle_cancelled(future)
        else:
            self._settle(future, job)
        for ending in ("call", "result"):
            (self.folder / f"{future.name}.{ending}").unlink(missing_ok=True)  # type: ignore[attr-defined]
        return True

    def _settle(self, future: Future, job: Job | None) -> None:
        """Give a future its result or its exception."""
        try:
            with task.open_own(str(self.folder / f"{future.name}.result")) as file:  # type: ignore[attr-defined]
                ok, value, *rest = pickle.load(file)
        except FileNotFoundError:
            self._fail(future, JobError(self._why(future.job, job), job))
        except Exception as error:
            self._fail(future, JobError(f"job {future.job}: its result cannot be read: {error!r}", job))
        else:
            if ok:
                self._begin(future)
                future.set_result(value)
            else:
                value.__cause__ = RemoteTracebackError(rest[0])
                self._fail(future, value)

    def _why(self, number: int | None, job: Job | None) -> str:
        if job is None:
            return f"job {number} is not known to the service any more"
        how = f", exit code {job.exit_code}" if job.exit_code is not None else ""
        reason = f": {job.reason}" if job.reason else ""
        try:
            written = b"".join(self.client.output(job.id))[-TAIL:].decode("utf-8", "replace").strip()
        except ServiceError as error:
            written = f"(its output cannot be read: {error})"
        return f"job {job.id} {job.state}{how}{reason}; it left no result" + (f"\n{written}" if written else "")

    def _fail(self, future: Future, error: BaseException) -> None:
        if self._begin(future):
            future.set_exception(error)

    @staticmethod
    def _begin(future: Future) -> bool:
        """Let a future that waits run, so that it can take a result; return False if it was cancelled."""
        return future.running() or (not future.done() and future.set_running_or_notify_cancel())

    @staticmethod
    def _settle_cancelled(future: Future) -> None:
        """Wake whatever waits for a cancelled future."""
        if future.cancelled() and future._state == "CANCELLED":  # not told yet
            future.set_running_or_notify_cancel()

    def _give_up(self, error: Exception) -> None:
        """Fail every call: the service has refused requests, or has been away for too long."""
        with self._lock:
            left = [*self._unsent, *self._sent.values()]
            self._unsent.clear()
            self._sent.clear()
        for future in left:
            self._fail(future, error)

    def _clean_up(self) -> None:
        self.client.close()
        shutil.rmtree(self.folder, ignore_errors=True)

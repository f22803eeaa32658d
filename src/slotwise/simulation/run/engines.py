"""Where replications run: on the threads of this machine, or on many machines by Dask.

Every replication is a task of its own whose figures depend on the seed and its numbers only, so any number of workers gives the
same result. Kernels run without the GIL, so threads are as good as processes and share the compiled code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from slotwise.errors import InputError
from slotwise.simulation.measure.measurements import Measurements
from slotwise.simulation.run import ahead
from slotwise.simulation.run.replication import Task, make_store, pieces_of, replicate

PATIENCE = 0.2  # seconds for which Ctrl-C may go unnoticed
OnProgress = Callable[[float, str], None]  # (share of the whole work that is done, the policy at work)


@dataclass(frozen=True, eq=False)
class Replications:
    """Some replications of one policy on one scenario."""

    task: Task
    """as its first replication"""
    replications: Sequence[int]

    def one(self, replication: int) -> Task:
        """Return one of the tasks."""
        return replace(self.task, replication=replication)


@dataclass(frozen=True)
class Finished:
    """The figures of each batch, in order of replication. Interrupted: of those that were finished."""

    runs: list[tuple[Measurements, ...]]
    interrupted: bool = False


@dataclass(frozen=True)
class Workers:
    """Which machines do the work."""

    name: str = "threads"
    workers: int | None = None
    """threads; one a core by default"""
    address: str | None = None
    """of a Dask scheduler; without one Dask uses this machine"""

    def __post_init__(self) -> None:
        if self.name not in ("threads", "dask"):
            raise InputError(f"no engine is called {self.name!r}", where="engine", remedy="use threads or dask")
        if self.address and self.name != "dask":
            raise InputError("is for Dask only", where="scheduler address", remedy="add the engine dask")

    @contextmanager
    def open(self) -> Iterator[Executor]:
        """Open an executor for tasks."""
        if self.name == "threads":
            with ThreadPoolExecutor(max_workers=self.workers or os.cpu_count() or 1) as pool:
                yield pool
            return
        try:
            from distributed import Client
        except ImportError:
            raise InputError(
                "Dask is not installed", where="engine dask", remedy="pip install 'slotwise[dask]'"
            ) from None
        try:
            client = Client(self.address) if self.address else Client(processes=True)
        except (OSError, ValueError) as error:  # ValueError: the address has no port
            raise InputError(
                f"no Dask scheduler answers ({error})",
                where=str(self.address),
                remedy="start one with `dask scheduler`, and give its address, such as tcp://HOST:8786",
            ) from None
        with client:
            yield client.get_executor()


THREADS = Workers()


def run(
    batches: Sequence[Replications], engine: Workers = THREADS, on_progress: OnProgress | None = None
) -> Finished:
    """Run all replications of all batches. Ctrl-C ends it, and what was finished is kept.

    On a trace, replications differ in the policy's own random choices only: where the first made none it is the only one.
    """
    work = _Work(batches, engine, on_progress)
    try:
        if engine.name == "threads":
            ahead.compile_pieces([piece for batch in batches for piece in pieces_of(batch.task)])
        if len({batch.task.choice.policy for batch in batches}) > 1:
            for batch in batches:
                make_store(batch.task, 1)  # refuse a policy that cannot run this before any policy runs
        with engine.open() as pool:
            work.through(pool)
    except KeyboardInterrupt:
        return Finished(work.in_order(), interrupted=True)
    return Finished(work.in_order())


Key = tuple[int, int]  # (batch, replication)


@dataclass
class _Work:
    """What is to be done, what is under way and what is done."""

    batches: Sequence[Replications]
    engine: Workers
    on_progress: OnProgress | None
    done: dict[Key, Measurements] = field(default_factory=dict)
    pending: dict[Future[Measurements], Key] = field(default_factory=dict)
    followers: set[Key] = field(default_factory=set)
    """not begun before the first of their batch is known"""
    stop: threading.Event = field(default_factory=threading.Event)
    shares: dict[Key, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def through(self, pool: Executor) -> None:
        keys = [(n, r) for n, batch in enumerate(self.batches) for r in batch.replications]
        self.shares = dict.fromkeys(keys, 0.0)
        # the longest first, so that no core is left alone with one at the end; then all batches alike
        keys.sort(key=lambda key: (-self.batches[key[0]].task.work, key[1], key[0]))
        self.followers = {(n, r) for n, r in keys if r > 0 and self.batches[n].task.repeats and (n, 0) in keys}
        try:
            for key in keys:
                if key not in self.followers:
                    self.begin(pool, key)
            while self.pending:
                # in short waits: a signal need not wake the main thread where it reaches another one
                for future in wait(self.pending, timeout=PATIENCE, return_when=FIRST_COMPLETED).done:
                    self.close(pool, future)
        except BaseException as error:
            self.stop.set()
            for future in self.pending:
                future.cancel()
            if isinstance(error, KeyboardInterrupt) and self.engine.name == "threads":
                wait(self.pending)
                for future, key in self.pending.items():
                    if not future.cancelled() and future.exception() is None:
                        self.done[key] = future.result()
            raise

    def begin(self, pool: Executor, key: Key) -> None:
        task = self.batches[key[0]].one(key[1])
        if self.engine.name == "threads":
            future = pool.submit(replicate, task, lambda share: self.hear(key, share), self.stop.is_set)
        else:
            future = pool.submit(replicate, task)
        self.pending[future] = key

    def close(self, pool: Executor, future: Future[Measurements]) -> None:
        """Note a finished replication. After the first one of a batch on a trace the rest follow, or are not needed."""
        key = self.pending.pop(future)
        found = self.done[key] = future.result()
        self.hear(key, 1.0)
        for follower in sorted(other for other in self.followers if key == (other[0], 0)):
            self.followers.discard(follower)
            if self.batches[key[0]].task.same_again(found):
                self.hear(follower, 1.0)
            else:
                self.begin(pool, follower)

    def hear(self, key: Key, share: float) -> None:
        """Hear how far a replication is."""
        if self.on_progress is None:
            return
        with self.lock:
            self.shares[key] = min(1.0, share)
            works = {other: self.batches[other[0]].task.work for other in self.shares}
            whole = sum(works.values())
            self.on_progress(
                sum(self.shares[other] * work for other, work in works.items()) / whole,
                self.batches[key[0]].task.choice.name,
            )

    def in_order(self) -> list[tuple[Measurements, ...]]:
        return [
            tuple(self.done[n, r] for r in sorted(batch.replications) if (n, r) in self.done)
            for n, batch in enumerate(self.batches)
        ]

"""The loop: one thread that owns the scheduler. Take what waits, let the ledger decide, commit, and only then answer and act."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from typing import Any

from slotwise.errors import InputError, SlotwiseError
from slotwise.live import metrics
from slotwise.live.bookkeeping import Effects
from slotwise.live.clock import Clock
from slotwise.live.engines.protocol import (
    Arrived,
    Configurable,
    Deposed,
    Ended,
    Engine,
    Fact,
    Lost,
    Refused,
    ServerDrained,
    ServerLost,
    ServerRemoved,
    ServersChanged,
    ServerUp,
    Start,
    Started,
    Withdrawn,
)
from slotwise.live.explaining import why_held
from slotwise.live.inbox import Inbox, Request
from slotwise.live.kept import connect
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob, how_many
from slotwise.live.pieces import Growing, is_large
from slotwise.live.redirect import redirected
from slotwise.live.resolving import Resolver
from slotwise.live.retention import Retention
from slotwise.live.spec import CONFINED, JOBS, MAX_ARRAY, plain
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import (
    FencedError,
    Job,
    Query,
    StoreBrokenError,
    StoreError,
    StoreGoneError,
)
from slotwise.scheduling.events import Placement

log = logging.getLogger(__name__)
# Items of one transaction.
MOST_AT_ONCE = 2_000
INBOX_LIMIT = 100_000  # items; beyond that requests are refused, so that memory stays bounded
RETRY_SECONDS = 0.5  # until a failed commit is tried again
# Seconds between two searches for types without jobs.
LOOK_SECONDS = 3600.0
ANSWER_SECONDS = 5.0  # so long a request waits for a store that cannot be written before its caller is told
NOT_NOW = "the store cannot be written"


class NotReadyError(SlotwiseError):
    """The service cannot do it now; the reason is told, and it may be tried again."""


class UnsureError(NotReadyError):
    """The store has not been written for so long that the caller is told; the request may still be carried out."""


class KeyConflictError(InputError):
    """An idempotency key that was used for another submission."""


def content_of(name: str, body: str, count: int) -> tuple[str, dict[str, Any], int]:
    """Return what a key stands for. Who executes the job is not part of it: another token of the tenant may repeat a submission."""
    spec = plain(body)
    count = spec.pop(JOBS, count)  # of a large array, there may be fewer in the store: see `pieces`
    for key in ("user", CONFINED):
        spec.pop(key, None)
    return name, spec, count


class Loop:
    """Runs the service; `ask` is for requests of any thread."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        engine: Engine,
        *,
        clock: Clock | None = None,
        retention: Retention | None = None,
        seed: int | None = None,
        on_commit: Callable[[int], None] | None = None,
    ) -> None:
        self.store, self.ledger, self.engine = store, ledger, engine
        connect(ledger, store)
        self.clock = clock or Clock(not_before=ledger.core.now)
        self.retention = retention or Retention()
        self.inbox = Inbox(INBOX_LIMIT)
        self._growing = Growing(self)
        self.on_commit = on_commit or (lambda seq: None)
        self.trouble: str | None = None
        """why the service is not ready; None: it is"""
        self.failure: Exception | None = None
        """why the loop has ended, if not because it was asked to"""
        self._declined: dict[tuple[str, str], str] = {}
        """why jobs that came from the engine were not taken, by tenant and key"""
        self._chance = random.Random(seed)
        self._items: Sequence[Request | Fact] = ()
        self._next_tick = float("inf")
        self._next_look = self.clock.now() + LOOK_SECONDS
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slotwise-loop", daemon=True)
        self.ended = threading.Event()

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what was taken and end; jobs go on."""
        self._ending.set()
        self.inbox.wake()
        if self._thread.is_alive():
            self._thread.join()

    # -- asking -------------------------------------------------------------------------------------------------

    def ask(self, act: Callable[[Ledger, float], Any], weight: int = 1) -> Future[Any]:
        """Let the loop do something with the ledger; the future is done when it is durable."""
        if self.trouble is not None:
            raise NotReadyError(self.trouble)
        if self._ending.is_set():
            raise NotReadyError("the service is ending")
        return self.inbox.ask(Request(act, weight))

    def submit(self, jobs: Sequence[NewJob]) -> Future[list[int]]:
        """Submit jobs; a job with a key that is known already is not submitted again, and its number is given."""
        if len(jobs) == 1 and is_large(jobs[0].array, jobs[0].at_once):
            return self._growing.submit(jobs[0], lambda ledger: self._known(ledger, jobs[0]))

        def act(ledger: Ledger, now: float) -> list[int]:
            if not any(job.key for job in jobs):
                return ledger.submit(self._resolve(ledger, jobs, {}), now)
            found = {self._key(job): self._by_key(ledger, job) for job in jobs if job.key is not None}
            first = {self._key(job): at for at, job in reversed(list(enumerate(jobs))) if job.key is not None}
            for job in jobs:
                if job.key is not None:
                    self._check_content(ledger, job, found[self._key(job)], jobs[first[self._key(job)]])
            known = {
                at: found[self._key(job)] for at, job in enumerate(jobs)
                if job.key is not None and (found[self._key(job)] is not None or first[self._key(job)] != at)
            }  # fmt: skip
            made = iter(ledger.submit(self._resolve(ledger, jobs, known), now))
            numbers: list[int] = []
            for at, job in enumerate(jobs):
                mine = known.get(at, ())
                if mine is None:  # the same key stands earlier in this request
                    mine = found[self._key(job)]
                elif at not in known:
                    mine = [next(made) for _ in range(len(job.array or [0]))]
                    if job.key is not None:
                        found[self._key(job)] = mine
                numbers += mine or ()
            return numbers

        return self.ask(act, how_many(jobs))

    def _known(self, ledger: Ledger, job: NewJob) -> int | None:
        """Return the first job that was submitted with the key of a large array; refuse a key of other content."""
        if job.key is None:
            return None
        found = ledger.keys.get(self._key(job))
        kept = self.store.job_by_key(job.tenant, job.key) if found is None else None
        first = found[0] if found is not None else None if kept is None else kept.id
        if first is not None:
            self._check_content(ledger, job, [first], job)
        return first

    def _resolve(
        self, ledger: Ledger, jobs: Sequence[NewJob], known: Mapping[int, Sequence[int] | None]
    ) -> Sequence[NewJob]:
        """Return the jobs that are new, with numbers for what they wait for. `known` has the jobs of places that are not new."""
        if not any(job.after for job in jobs):
            return [job for at, job in enumerate(jobs) if at not in known] if known else jobs
        return Resolver(ledger, jobs, known, self._growing.numbers).resolved()

    @staticmethod
    def _key(job: NewJob) -> tuple[str, str]:
        return job.tenant, job.key or ""

    def _by_key(self, ledger: Ledger, job: NewJob) -> Sequence[int] | None:
        """Return the jobs that were submitted with this key."""
        if job.key is None:
            return None
        found = ledger.keys.get(self._key(job))
        if found is not None:
            return found
        kept = self.store.job_by_key(job.tenant, job.key)
        if kept is None or kept.array_id is None:
            return None if kept is None else [kept.id]
        return [one.id for one in self.store.jobs(Query(array_id=kept.id, limit=MAX_ARRAY, ascending=True))]

    def _check_content(self, ledger: Ledger, job: NewJob, known: Sequence[int] | None, first: NewJob) -> None:
        """Refuse a key that stands for something else already: in the store, in this batch, or earlier in this request."""
        if known is None:
            before = content_of(first.name, first.body, len(first.array or [0]))
        else:
            row = ledger.batch.jobs.get(known[0])
            if row is not None:
                kept = Job(*row)
                body = dict(ledger.batch.specs)[kept.spec]
            else:
                kept, body = self.store.specs([known[0]])[known[0]]
            before = content_of(kept.name, body, len(known))
        if content_of(job.name, job.body, len(job.array or [0])) != before:
            raise KeyConflictError(
                f"{job.key!r} was used for another submission" + (f", job {known[0]}" if known else ""),
                where="key",
                remedy="use a new key for another job",
            )

    # -- the loop -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._plan_tick(self.clock.now())
            while not self._ending.is_set():
                now = self.clock.now()
                wait = min(
                    1.0,
                    max(
                        0.0,
                        min(
                            self._next_tick,
                            self.ledger.next_release,
                            self.ledger.next_maintenance,
                            self.ledger.next_urge,
                        )
                        - now,
                    ),
                )
                self.round(self.inbox.take(MOST_AT_ONCE, wait))
            self.retention.close()
            self.retention.checkpoint(self.store, self.ledger)
        except FencedError as error:
            self._fail(error, "another service has taken over")
        except StoreGoneError as error:
            self._fail(error, "the store is gone")
        except StoreBrokenError as error:
            self._fail(error, "the store is damaged")
        except Exception as error:
            self._fail(error, "the loop failed")
        finally:
            self.retention.close()
            self.inbox.shut(NotReadyError(self.trouble or "the service is ending"), self._items)
            self.ended.set()

    def _fail(self, error: Exception, what: str) -> None:
        self.failure, self.trouble = error, f"{what}: {error}"
        log.critical("%s", self.trouble, exc_info=not isinstance(error, StoreError))

    def round(self, items: Sequence[Request | Fact]) -> None:
        """Apply, commit, answer, act."""
        ledger, now = self.ledger, self.clock.now()
        self._items = items  # so that each waiting request is told if all fails
        answers: list[tuple[Future[Any], Any]] = []
        began = time.perf_counter()
        ledger.maintain(now)  # before anything starts a job: time has passed
        if now >= self._next_tick:
            ledger.tick(now)
            self._plan_tick(now)
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            ledger.retire_types(now)
        for at, item in enumerate(items):
            if isinstance(item, Arrived) and not (at and isinstance(items[at - 1], Arrived)):
                self._make_types(items, at, now)
            if isinstance(item, Request):
                if not item.future.set_running_or_notify_cancel():
                    continue  # its client has gone before the loop came to it; from here on it cannot be cancelled
                before = ledger.seq
                try:
                    answers.append((item.future, item.act(ledger, now)))
                except SlotwiseError as error:
                    answers.append((item.future, error))
                except Exception as error:
                    if ledger.seq != before:
                        raise  # half of it has happened: the books must be read anew from what is durable
                    log.exception("a request failed; it has changed nothing")
                    answers.append((item.future, error))
            else:
                self._hear(item, now)
        ledger.settle(now)
        ledger.release(now)
        ledger.maintain(now)
        ledger.urge(now)
        batch, effects = ledger.take()
        applied = time.perf_counter()
        if not batch:
            self._insist(self.store.hold)  # the ledger may be out of date: another service may have taken over
        else:
            self._insist(lambda: self.store.commit(batch))
            metrics.COMMIT.observe(time.perf_counter() - applied)
            metrics.BATCH.observe(len(batch.entries))
            metrics.count(batch)
            metrics.DECISION.observe((applied - began) / max(1, len(batch.entries)))
        for future, result in answers:
            if future.done():
                continue  # it was told that nothing is certain
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        if batch:
            self.on_commit(ledger.seq)
        if effects:
            self._act(effects)
        self.retention.now_and_then(self.store, ledger, now)

    def _insist(self, act: Callable[[], None]) -> None:
        """Repeat a call of the store until it succeeds: nothing is acknowledged or started before, and nothing is lost."""
        tried, began = 0, time.monotonic()
        while True:
            try:
                act()
                break
            except (FencedError, StoreBrokenError):
                raise
            except StoreError as error:
                if not tried:
                    log.error("cannot write to the store, trying on: %s", error)
                self.trouble = f"{NOT_NOW}: {error}"
                tried += 1
                if time.monotonic() - began >= ANSWER_SECONDS:
                    self._tell_unsure()
                if self._ending.wait(RETRY_SECONDS):
                    raise
        if tried:
            log.warning("the store can be written again")
            self.trouble = None

    def _tell_unsure(self) -> None:
        """Tell the callers that wait how things are: they need not wait in silence until the store can be written."""
        error = UnsureError(
            f"{self.trouble}; the request is kept and will be carried out when the store can be written again, unless the"
            " service ends before: look for its jobs, or repeat it with the same key"
        )
        for item in self._items:
            if isinstance(item, Request) and not item.future.done():
                item.future.set_exception(error)

    def _plan_tick(self, now: float) -> None:
        rate = self.ledger.core.tick_rate
        self._next_tick = now + self._chance.expovariate(rate) if rate > 0 else float("inf")

    # -- facts --------------------------------------------------------------------------------------------------

    def _hear(self, fact: Fact, now: float) -> None:
        """Apply a fact that an engine tells. Whatever it says, the loop goes on."""
        ledger = self.ledger
        lies = ledger.lies.total()
        try:
            match fact:
                case Started():
                    ledger.started(fact, now)
                case Ended():
                    self._recall(fact)
                    ledger.ended(fact, now)
                case Refused():
                    ledger.refused(fact, now)
                case Lost():
                    ledger.lost(fact, now)
                case ServerUp():
                    ledger.server_up(fact, now)
                case ServerDrained():
                    ledger.server_drained(fact, now)
                case ServerLost():
                    ledger.server_lost(fact, now)
                case ServersChanged():
                    ledger.servers_changed(fact, now)
                case ServerRemoved():
                    ledger.server_removed(fact, now)
                case Deposed():
                    raise FencedError(fact.reason)
                case Arrived():
                    self._arrived(fact, now)
                case Withdrawn():
                    self._withdrawn(fact, now)
        except InputError as error:
            ledger.lies["impossible"] += 1
            log.warning("the engine tells what cannot be: %s: %s", fact, error)
        if ledger.lies.total() > lies:
            log.warning("the engine tells what is not expected; it changes nothing: %s", fact)

    def _recall(self, fact: Ended) -> None:
        """Let the ledger remember an end that is in the store: after a restart, engines may tell it again."""
        if fact.job in self.ledger.live:
            return
        kept = self.store.job(fact.job)
        if kept is not None and kept.attempt == fact.attempt and kept.exit_code is not None:
            self.ledger.remember_end(fact.job, fact.attempt, kept.exit_code)

    def _make_types(self, items: Sequence[Request | Fact], at: int, now: float) -> None:
        """Make the types of all jobs that arrive one after the other from place `at` on: each change of types rebuilds the core."""
        jobs = []
        for fact in islice(items, at, None):
            if not isinstance(fact, Arrived):
                break
            jobs.append(self._new_job(fact))
        if len(jobs) > 1:
            with suppress(InputError):  # which job is wrong is found when it is submitted
                self.ledger.make_types(jobs, now)

    def _new_job(self, fact: Arrived) -> NewJob:
        return NewJob(
            tenant=fact.spec.get("tenant", self.engine.name),
            type=None,
            needs=fact.spec.get("needs", {}),
            requires=fact.spec.get("requires", {}),
            name=fact.spec.get("name", ""),
            key=fact.key,
            duration=fact.spec.get("duration"),
            body=fact.spec["body"],
        )

    def _arrived(self, fact: Arrived, now: float) -> None:
        new = self._new_job(fact)
        known = self._by_key(self.ledger, new)
        while known is not None and fact.again and self._has_ended(known[0]):
            new = new._replace(key=f"{fact.key}#{known[0]}")
            known = self._by_key(self.ledger, new)
        if known is not None:
            return
        try:
            self.ledger.submit([new], now, is_there=True)
        except InputError as error:
            self._declined[new.tenant, fact.key] = str(error)
            log.warning(
                "%s cannot be scheduled, and waits until its engine tells of it again: %s",
                new.name or fact.key,
                error,
            )
        else:
            self._declined.pop((new.tenant, fact.key), None)

    def _has_ended(self, number: int) -> bool:
        if number in self.ledger.live:
            return False
        kept = self.store.job(number)
        return kept is not None and kept.ended is not None

    def _waiting_job(self, tenant: str, key: str) -> int | None:
        """Return the newest job that arrived with this key, if it waits."""
        number = None
        while (known := self._by_key(self.ledger, NewJob(tenant, None, {}, {}, key=key))) is not None:
            number = known[0]
            if not self._has_ended(number):
                return number if number not in self.ledger.live else None
            key = f"{key.partition('#')[0]}#{number}"
        return None

    def _withdrawn(self, fact: Withdrawn, now: float) -> None:
        tenant = fact.tenant or self.engine.name
        self._declined.pop((tenant, fact.key), None)
        number = self._waiting_job(tenant, fact.key)
        if number is not None:
            self.ledger.cancel(number, now)

    def why_waits(self, tenant: str, key: str) -> Future[str | None]:
        """Explain why a job that came from the engine waits, or why it was not taken; None if it does not wait."""

        def act(ledger: Ledger, now: float) -> str | None:
            number = self._waiting_job(tenant, key)
            if number is not None and number in ledger.holds:
                return f"held: {why_held(ledger, number, now)}"
            return self._declined.get((tenant, key)) if number is None else str(ledger.core.explain(number))

        return self.ask(act)

    # -- effects ------------------------------------------------------------------------------------------------

    def _act(self, effects: Effects) -> None:
        """Tell the engine what is durable, unless another service has taken over since: that one tells it."""
        starts = self.starts(effects) if effects.starts else []
        self._insist(self.store.hold)
        if effects.reconfigured and isinstance(self.engine, Configurable):
            self.engine.set_servers(self.ledger.servers_up())
        if starts:  # before all that can wait: a server is idle
            self.engine.start(starts)
        if effects.settled:
            self.engine.settled(effects.settled)
        for job, attempt in effects.stops:
            self.engine.stop(job, attempt)

    def starts(self, effects: Effects) -> list[Start]:
        """Return the placements that still hold, with what the engine needs to know."""
        live = self.ledger.live
        placed = [one for one in effects.starts if one.job in live and live[one.job].attempt == one.attempt]
        found = self.store.specs([one.job for one in placed])  # type: ignore[misc]
        sizes = {one.name: one.demand for one in self.ledger.core.types}
        resources = self.ledger.core.cluster.resources
        starts = []
        for one in placed:
            job, body = found[one.job]  # type: ignore[index]
            spec = plain(body)
            live[job.id].on_loss = spec.get("on_loss", "fail")
            if one.attempt == 1 and "after" not in spec:  # a held job has waited for other jobs, not for a server
                metrics.WAIT.labels(job.type).observe(max(0.0, (job.placed or 0.0) - job.submitted))
            size = dict(zip(resources, map(float, sizes[job.type]), strict=True))
            starts.append(start_of(job, one, spec, size))
        return starts


def start_of(job: Job, placed: Placement, spec: dict[str, Any], size: dict[str, float]) -> Start:
    """Return what the engine is told of a placement. A job may use what it was charged (see `ledger.own_demand`)."""
    needs = spec.get("needs") or {}
    if needs and not spec.get("type"):
        main = "cpu" if "cpu" in size else next(iter(size))
        size = {name: min(1.0, amount) if name == main else 0.0 for name, amount in size.items()}
    demand = {**size, **needs}
    if job.array_index is not None:
        spec["array_index"], spec["array_id"] = job.array_index, job.array_id
    if "argv" in spec:
        spec["argv"] = redirected(spec, job.id, placed.attempt, job.array_id, job.array_index)
    spec["type"] = job.type
    return Start(job.id, placed.attempt, str(placed.server), spec, demand)

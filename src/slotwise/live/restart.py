"""Beginning, and beginning again: the newest situation, the rows after it, then what engines know of jobs that have not ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.live.bookkeeping import Effects, Live
from slotwise.live.changes.target import Outgoing
from slotwise.live.deadlines import deadlines_of
from slotwise.live.demands import DIGITS
from slotwise.live.engines.protocol import Engine, ServerUp, UnknownAttempt
from slotwise.live.epoch import go_on_from_facts
from slotwise.live.kept import connect, kept_job
from slotwise.live.ledger import Ledger
from slotwise.live.loop import Loop
from slotwise.live.newjob import After, NewJob
from slotwise.live.quotas import quotas_of
from slotwise.live.replay import CHANGE, WRONG, Difference, Kept, damaged_at, difference, row_of, rows, step
from slotwise.live.server_books import AWAY, BY_ENGINE
from slotwise.live.spec import MAX_ARRAY
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import PLACED, PLANNED, RUNNING, WAITING, Query
from slotwise.live.store.records import Job as JobRow
from slotwise.live.windows import jobs_of, learnt_of
from slotwise.model import Cluster, JobType, Quota, Shares
from slotwise.packing import make_solver, spaces_of
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import (
    Cancel,
    Complete,
    Drain,
    Fail,
    Join,
    Placement,
    Remove,
    Requeue,
    Resume,
    Stop,
    Submit,
    Tick,
)

log = logging.getLogger(__name__)


class Setup(NamedTuple):
    """What a new service begins with."""

    cluster: Cluster
    types: tuple[JobType, ...]
    policy: str = "guarded"
    options: dict[str, Any] = {}  # noqa: RUF012
    seed: int = 1
    shares: Shares | None = None
    quotas: tuple[Quota, ...] = ()

    def core(self) -> Scheduler:
        """A core without servers: they join one by one. (A cluster has at least one to begin with, so that one is taken away.)"""
        first, *others = self.cluster.servers
        classes = (first.model_copy(update={"count": 1}), *(one.model_copy(update={"count": 0}) for one in others))
        cluster = self.cluster.model_copy(update={"servers": classes, "events": ()})
        core = Scheduler(
            cluster, self.types, self.policy, seed=self.seed, digits=DIGITS, shares=self.shares, **self.options
        )
        core.apply(Remove(f"{first.name}-0", core.now))
        return core

    def warm(self) -> None:
        """Compile all kernels that will be needed, in a core that is thrown away, so that no later request waits for
        the compiler."""
        core, first = self.core(), self.cluster.servers[0].name
        # types that come later may need the search for configurations; those of now may have so few that they are listed
        space = spaces_of(self.cluster.servers, core.sizes)[0]
        make_solver("greedy-fill", space).most_jobs()
        core = Scheduler.from_situation(core.situation())
        core.solve()
        core.apply(Join("s", first, 1.0))
        for n, one in enumerate(self.types):
            core.apply(Submit(n, one.name, 1.0, duration=1.0))
        for event in (Drain("s", 1.0), Resume("s", 1.0), Tick(1.0)):
            core.apply(event)
        kinds: tuple[type[Requeue] | type[Stop] | type[Complete], ...] = (Requeue, Stop, Complete)
        for kind in kinds:
            for job in list(core.running)[:1]:
                core.apply(kind(job, 1.0, core.attempt(job)))
        core.apply(Fail("s", 1.0))
        for n in range(len(self.types)):
            with suppress(InputError):  # it has ended above
                core.apply(Cancel(n, 1.0))
        core.apply(Remove("s", 1.0))


def load(store: Store, setup: Setup) -> tuple[Ledger, dict[str, Any]]:
    """The ledger as it was after the last commit, and the settings that were kept with it."""
    checkpoint = store.checkpoint()
    if checkpoint is None:
        return Ledger(setup.core()), {}
    kept = Kept.of(checkpoint)
    core, seq, diverged = kept.core(), checkpoint.seq, None
    made, outgoing, quotas = kept.made, kept.outgoing, kept.quotas
    for entry in rows(store, checkpoint.seq):
        if entry.event.startswith(CHANGE):
            row = row_of(entry)
            made, outgoing = row.get("made", made), row.get("outgoing", outgoing)
            quotas = row.get("quotas", quotas)
        if diverged is None:
            core, outcome = step(core, entry)
            seq = entry.seq
            if outcome is not None:
                diverged = difference(entry, outcome)
    opening: tuple[Placement, ...] = ()
    if diverged is not None:
        log.warning("this version decides otherwise than the one before; the recorded facts hold: %s", diverged)
        core, seq, opening = go_on_from_facts(store, checkpoint, diverged)
    next_job, next_spec = store.next_ids()
    ledger = Ledger(core, seq=seq, next_job=max(next_job, kept.next_job), next_spec=max(next_spec, kept.next_spec))
    ledger.types.made = made
    try:
        if outgoing is not None:
            ledger.outgoing = Outgoing.from_dict(outgoing)
    except WRONG as error:
        raise damaged_at(checkpoint, error) from None
    ledger.servers = {server.name: server for server in store.servers()}
    for one in store.live():
        ledger.live[one.id] = Live(one.server, one.attempt, one.placed, one.state, one.on_loss, one.stop_asked)
    hold_again(store, ledger)
    try:
        ledger.set_quotas(quotas_of(quotas))
    except WRONG as error:
        raise damaged_at(checkpoint, error) from None
    maintain_again(store, ledger)
    if diverged is not None:
        ledger.begin_epoch(diverged_at(diverged), opening, core.now)
    return ledger, kept.settings


def hold_again(store: Store, ledger: Ledger) -> None:
    """Make the books of held jobs, and of jobs that are executed again if they fail, from the rows of the store."""
    connect(ledger, store)
    alike: dict[tuple[str, str], NewJob] = {}

    def job_of(row: JobRow, body: str) -> NewJob:
        known = alike.get((row.tenant, body))
        if known is None:
            known = alike[row.tenant, body] = kept_job(row, body)
        return known

    for row, body in store.retrying():
        ledger.retrying[row.id] = job_of(row, body)
        if row.retries:
            ledger.retried[row.id] = row.retries
    held = [(row, job_of(row, body)) for row, body in store.held()]
    arrays = {row.array_id: job.at_once for row, job in held if row.array_id is not None and job.at_once}
    for array, at_once in arrays.items():
        active = store.jobs(Query((WAITING, PLACED, RUNNING), array_id=array, limit=MAX_ARRAY, ascending=True))
        ledger.holds.throttle(array, at_once, [one.id for one in active])
    after: dict[int, list[After]] = {}
    for need in store.needs(of=sorted({row.array_id or row.id for row, _ in held})):
        after.setdefault(need.job, []).append(After(need.kind, need.other))
    indices: dict[int, list[int | None]] = {}
    for row, _ in held:
        indices.setdefault(row.array_id or row.id, []).append(row.array_index)
    watched = {first: ledger.watch(after.get(first, ()), some) for first, some in indices.items()}
    for row, job in held:
        needs, _ = watched[row.array_id or row.id]
        waits = needs(row.array_index) if not row.attempt else ()  # an attempt has been made: nothing is waited for
        ledger.holds.add(row.id, job, waits, array=row.array_id, attempts=row.attempt, due=row.due)
    for _, keys in watched.values():
        ledger.holds.tidy(keys)


def maintain_again(store: Store, ledger: Ledger) -> None:
    """Make the books of maintenance and of deadlines from the rows of the store."""
    windows = store.windows()
    ledger.next_window = max((one.id for one in windows), default=0) + 1
    ledger.windows = {one.id: one for one in windows if one.state == PLANNED}
    ledger.know_deadlines(deadlines_of(store))
    if ledger.is_followed():
        ledger.know(jobs_of(store), learnt_of(store))


def diverged_at(diverged: Difference) -> dict[str, Any]:
    """What the journal keeps of it."""
    return {"row": diverged.seq, "recorded": diverged.recorded, "decided": diverged.decided}


def take_up(loop: Loop, engine: Engine) -> None:
    """Ask the engine about every job that has not ended, and about its servers; before the loop starts, after the engine is open."""
    ledger = loop.ledger
    live = [(job, one.attempt, one.server) for job, one in ledger.live.items()]
    known = engine.known(live)
    again: list[Placement] = []
    for job, attempt, server in live:
        fact = known.get((job, attempt), UnknownAttempt())
        if isinstance(fact, UnknownAttempt):
            again.append(Placement(job, server, attempt))
        else:
            loop.inbox.tell([fact])
    stops = [(job, one.attempt) for job, one in ledger.live.items() if one.stop_asked]
    starts = loop.starts(Effects(starts=again))
    _match_servers(loop, engine.servers())
    loop.store.hold()
    if starts:
        engine.start(starts)
    for job, attempt in stops:
        engine.stop(job, attempt)


def _match_servers(loop: Loop, found: Sequence[ServerUp]) -> None:
    """Servers that are new join; those that the engine does not have any more take no more jobs."""
    loop.inbox.tell(found)
    names = {one.name for one in found}
    now = loop.clock.now()
    for name, server in list(loop.ledger.servers.items()):
        if name not in names and server.status != AWAY:
            loop.ledger.drain(name, now, f"{BY_ENGINE}does not have it")

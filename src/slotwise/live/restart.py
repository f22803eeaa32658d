"""Beginning, and beginning again: the newest situation, the rows after it, then what engines know of jobs that have not ended."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.live.changes.target import Outgoing
from slotwise.live.demands import DIGITS
from slotwise.live.engines.protocol import Engine, ServerUp, Unknown
from slotwise.live.epoch import go_on_from_facts
from slotwise.live.ledger import AWAY, BY_ENGINE, Effects, Ledger, Live, NewJob
from slotwise.live.loop import Loop
from slotwise.live.replay import CHANGE, Difference, core_of, difference, rows, step
from slotwise.live.spec import AT_ONCE, MAX_ARRAY, plain
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import PLACED, RUNNING, WAITING, Query
from slotwise.live.store.records import Job as JobRow
from slotwise.model import Cluster, JobType
from slotwise.scheduling import Scheduler
from slotwise.scheduling.compact import unpacked
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

    def core(self) -> Scheduler:
        """A core without servers: they join one by one. (A cluster has at least one to begin with, so that one is taken away.)"""
        first, *others = self.cluster.servers
        classes = (first.model_copy(update={"count": 1}), *(one.model_copy(update={"count": 0}) for one in others))
        cluster = self.cluster.model_copy(update={"servers": classes, "events": ()})
        core = Scheduler(cluster, self.types, self.policy, seed=self.seed, digits=DIGITS, **self.options)
        core.apply(Remove(f"{first.name}-0", core.now))
        return core

    def warm(self) -> None:
        """Compile all that will be needed, in a core that is thrown away: nobody shall wait for it later."""
        core, first = self.core(), self.cluster.servers[0].name
        core = Scheduler.from_situation(core.situation())
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
    body = unpacked(checkpoint.body)
    core, seq, diverged = core_of(checkpoint), checkpoint.seq, None
    made: dict[str, float] = body.get("made", {})
    outgoing = body.get("outgoing")
    for entry in rows(store, checkpoint.seq):
        if entry.event.startswith(CHANGE):
            row = json.loads(entry.event)
            made, outgoing = row.get("made", made), row.get("outgoing", outgoing)
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
    ledger = Ledger(
        core, seq=seq, next_job=max(next_job, body["next_job"]), next_spec=max(next_spec, body["next_spec"])
    )
    ledger.types.made = made
    if outgoing is not None:
        ledger.outgoing = Outgoing.from_dict(outgoing)
    ledger.servers = {server.name: server for server in store.servers()}
    for one in store.live():
        ledger.live[one.id] = Live(one.server, one.attempt, one.placed, one.state, one.on_loss, one.stop_asked)
    hold_again(store, ledger)
    if diverged is not None:
        ledger.begin_epoch(diverged_at(diverged), opening, core.now)
    return ledger, body.get("settings", {})


def hold_again(store: Store, ledger: Ledger) -> None:
    """Find held jobs of arrays: jobs that wait in the store and that the core does not know."""
    arrays: dict[int, list[tuple[JobRow, str]]] = {}
    for job, body in store.throttled():
        if job.id not in ledger.core and job.array_id is not None and isinstance(plain(body).get(AT_ONCE), int):
            arrays.setdefault(job.array_id, []).append((job, body))
    for array, held in arrays.items():
        job, body = held[0]
        spec = plain(body)
        expected = [one for one in (spec.get("duration"), spec.get("time")) if one is not None]
        new = NewJob(
            job.tenant,
            spec.get("type"),
            spec.get("needs", {}),
            spec.get("requires", {}),
            duration=min(expected, default=None),
        )
        active = store.jobs(Query((WAITING, PLACED, RUNNING), array_id=array, limit=MAX_ARRAY, ascending=True))
        ledger.throttles.add(
            array,
            spec[AT_ONCE],
            [one.id for one in active if one.id in ledger.core],
            [one.id for one, _ in held],
            new,
        )


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
        fact = known.get((job, attempt), Unknown())
        if isinstance(fact, Unknown):
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

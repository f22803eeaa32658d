"""The books: the core, the journal rows and read-model changes that each event makes, and what is to be done once they are durable.

No thread, no clock, no disk: every method is told the time, gathers rows in `batch` and effects in `effects`, and either does all of what it is
asked or raises an InputError and does nothing. The loop takes both away with `take`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.live.changes.plan import Plan, Running, has_settled, make_plan, rows_of
from slotwise.live.changes.reshape import changed
from slotwise.live.changes.target import Outgoing
from slotwise.live.classes import reclassify
from slotwise.live.demands import checked, exact
from slotwise.live.engines.protocol import (
    Ended,
    Lost,
    Refused,
    ServerDrained,
    ServerLost,
    ServerRemoved,
    ServersChanged,
    ServerUp,
    Started,
)
from slotwise.live.replay import as_json, encode
from slotwise.live.store.records import (
    CANCELLED,
    DONE,
    FAILED,
    LOST,
    PLACED,
    RUNNING,
    WAITING,
    Batch,
    Entry,
    Server,
)
from slotwise.live.throttle import Throttles
from slotwise.live.typebook import TypeBook, Wish
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import (
    Cancel,
    Complete,
    Drain,
    Event,
    Fail,
    Join,
    Outcome,
    Placement,
    Remove,
    Requeue,
    Resume,
    Stop,
    Submit,
    Tick,
)
from slotwise.scheduling.scheduler import NOTHING

log = logging.getLogger(__name__)
UP, DRAINING, AWAY = "up", "draining", "lost"
BY_ENGINE = "engine: "
"""how the reason begins where the engine, not a person, has drained a server: the engine may resume it"""
REFUSALS = 3
"""a server that refuses so many placements in a row is drained: it would refuse them all"""
REMEMBERED = 10_000
ALONE = (None,)
"""the index of a job that is of no array"""


class NewJob(NamedTuple):
    """A job that was checked and is to be submitted."""

    tenant: str
    type: str | None
    needs: Mapping[str, float]
    requires: Mapping[str, Sequence[str]]
    name: str = ""
    key: str | None = None
    duration: float | None = None
    body: str = "{}"
    array: Sequence[int] | None = None
    at_once: int | None = None
    """of an array: so many jobs may be active at the same time; None: all"""


@dataclass(slots=True)
class Live:
    """A job that is placed or runs."""

    server: str
    attempt: int
    placed: float
    state: str = PLACED
    on_loss: str = "fail"
    stop_asked: bool = False

    def when(self, told: float | None, now: float) -> float:
        """The time that an engine tells, by its own clock: not before the placement, and not in the future."""
        return now if told is None else min(now, max(self.placed, told))


@dataclass
class Effects:
    """What engines are told once the batch is durable."""

    starts: list[Placement] = field(default_factory=list)
    stops: list[tuple[int, int]] = field(default_factory=list)
    settled: list[tuple[int, int]] = field(default_factory=list)
    reconfigured: bool = False
    """servers or classes have changed: an engine whose servers come from a cluster file is told"""

    def __bool__(self) -> bool:
        return bool(self.starts or self.stops or self.settled or self.reconfigured)


class Ledger:
    """The core with its books."""

    def __init__(self, core: Scheduler, *, seq: int = 0, next_job: int = 1, next_spec: int = 1) -> None:
        self.core = core
        self.seq, self.next_job, self.next_spec = seq, next_job, next_spec
        self.live: dict[int, Live] = {}
        self.servers: dict[str, Server] = {}
        self.batch, self.effects = Batch(), Effects()
        self.keys: dict[tuple[str, str], range] = {}
        """the jobs of idempotency keys of this batch; older ones are in the store"""
        self.lies: Counter[str] = Counter()
        """what engines said that cannot be, by kind"""
        self.types = TypeBook()
        self.throttles = Throttles()
        self.outgoing = Outgoing()
        self.fault: str | None = None
        """the last thing that the policy did wrong"""
        self._refusals: Counter[str] = Counter()
        self._ends: dict[tuple[int, int], int] = {}
        """exit codes of the last attempts that ended"""

    def take(self) -> tuple[Batch, Effects]:
        """What has gathered; the next batch begins."""
        taken = self.batch, self.effects
        self.batch, self.effects = Batch(), Effects()
        self.keys.clear()
        return taken

    # -- what users ask for -------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[NewJob], now: float) -> list[int]:
        """New jobs, all or none; their numbers. An array is numbered in the order of its indices, and is named by its first job."""
        wishes = list(map(wish_of, jobs))
        types = self._types_for(dict(zip(wishes, jobs, strict=True)), jobs, now)
        specs: dict[str, int] = {}
        alike: dict[tuple[Any, float | None], tuple[str, str, str, Callable[[Hashable], Outcome]]] = {}
        begun = number = self.next_job
        rows, entries = self.batch.jobs, self.batch.entries
        for wish, job in zip(wishes, jobs, strict=True):
            tenant, _, _, _, label, key, duration, body, array, at_once = job
            spec = specs.get(body)
            if spec is None:
                spec = specs[body] = self.next_spec
                self.next_spec += 1
                self.batch.specs.append((spec, body))
            known = alike.get((wish, duration))
            if known is None:  # the same for all but the number: there may be 10,000 of them
                name, demand = types[wish]
                before, _, after = encode(Submit(0, name, now, demand, duration)).partition('"job":0')
                arrive = self.core.arrivals(name, now, demand, duration)
                known = alike[wish, duration] = name, f'{before}"job":', after, arrive
            name, before, after, arrive = known
            first = number
            for index in ALONE if array is None else array if at_once is None else array[:at_once]:
                rows[number] = [
                    number, tenant, name, label, WAITING, None, 0, None, None, 0, now, None, None, None,
                    None if index is None else first, index, key if number == first else None, spec,
                ]  # fmt: skip
                self.next_job = number + 1
                event, outcome = f"{before}{number}{after}", arrive(number)
                if outcome is NOTHING:  # most submissions to a busy cluster
                    self.seq += 1
                    entries.append(Entry(self.seq, now, event, "[]", None))
                else:
                    self._write(event, outcome, now)
                number += 1
            if array is not None and at_once is not None:
                held = range(number, number + len(array) - at_once)
                for number, index in zip(held, array[at_once:], strict=False):
                    rows[number] = [
                        number, tenant, name, label, WAITING, None, 0, None, None, 0, now, None, None, None,
                        first, index, None, spec,
                    ]  # fmt: skip
                number = self.next_job = first + len(array)
                self.throttles.add(first, at_once, range(first, held.start), held, job)
            if key is not None:
                self.keys[tenant, key] = range(first, number)
        return list(range(begun, self.next_job))

    def cancel(self, number: int, now: float) -> None:
        """Withdraw a waiting job."""
        if number in self.live:
            raise InputError(f"job {number} runs", remedy="a running job is not cancelled but stopped")
        if number in self.throttles:
            self.throttles.drop(number)
            self.batch.change(number, state=CANCELLED, ended=now)
            return
        if number not in self.core:
            raise InputError(has_ended(number))
        self._apply(Cancel(number, now))
        self.batch.change(number, state=CANCELLED, ended=now)
        self._fill_array(number, now)

    def _fill_array(self, ended: int, now: float) -> None:
        """A job has ended: submit the next held job of its array to the core."""
        following = self.throttles.next_after(ended)
        if following is None:
            return
        number, job = following
        wish = wish_of(job)
        try:
            name, demand = self._types_for({wish: job}, [job], now)[wish]
        except InputError as error:  # the cluster has changed since: no server can hold it any more
            self.batch.change(number, state=FAILED, ended=now, reason=str(error))
            self._fill_array(number, now)
            return
        self.batch.change(number, type=name)
        self._apply(Submit(number, name, now, demand, job.duration))

    def end(self, number: int, now: float) -> None:
        """Cancel a waiting job; stop one that is placed or runs."""
        if number in self.live:
            self.stop(number, now)
        else:
            self.cancel(number, now)

    def stop(self, number: int, now: float) -> None:
        """A user wants a running job to end; the engine is asked, and tells when it has."""
        live = self.live.get(number)
        if live is None:
            if number not in self.core:
                raise InputError(has_ended(number))
            raise InputError(f"job {number} does not run", remedy="a waiting job is not stopped but cancelled")
        if not live.stop_asked:
            live.stop_asked = True
            self._note({"event": "stop-asked", "job": number, "attempt": live.attempt, "now": now}, now)
            self.batch.change(number, stop_asked=1)
        self.effects.stops.append((number, live.attempt))

    def drain(self, name: str, now: float, reason: str = "asked for") -> None:
        """The server takes no more jobs."""
        server = self._server(name)
        if server.status == UP:
            self._apply(Drain(name, now))
            self._put(server._replace(status=DRAINING, reason=reason))
        elif server.status == DRAINING:
            self._put(server._replace(reason=reason))
        else:
            raise InputError(f"server {name!r} is lost", remedy="it can be removed")

    def resume(self, name: str, now: float) -> None:
        """A draining server takes jobs again."""
        server = self._server(name)
        if server.status == AWAY:
            raise InputError(f"server {name!r} is lost", remedy="it joins again when its engine finds it")
        if name in self.outgoing.servers:
            raise InputError(
                f"server {name!r} drains because of the cluster file",
                remedy="apply a file in which it stays as it is",
            )
        if server.status == DRAINING:
            self._apply(Resume(name, now))
            self._put(server._replace(status=UP, reason=None))
            self._refusals.pop(name, None)

    def remove(self, name: str, now: float) -> None:
        """A server without jobs is forgotten."""
        self._server(name)
        self._apply(Remove(name, now))
        del self.servers[name]
        self.batch.drop_server(name)

    def change(
        self,
        now: float,
        *,
        types: Sequence[JobType] | None = None,
        classes: Sequence[ServerClass] | None = None,
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Other types, server classes or another policy, while jobs run."""
        row: dict[str, Any] = {}
        if types is not None:
            row["types"] = rows_of(types)
        if classes is not None:
            row["classes"] = rows_of(classes)
        if policy is not None:
            row["policy"] = policy
        if options is not None:
            row["options"] = dict(options)
        self._change(now, row)
        if types is not None:
            self.types.name(types)

    def retire_types(self, now: float) -> None:
        """Types that were made for a demand and that nobody has used for long go."""
        if self.outgoing.types:
            running = self.what_runs()
            self.apply(make_plan(running, running.target(), now, strict=False), now)
        left = self.types.without_unused(self.core.types, self._types_in_use, now)
        if left is not None:
            log.info("%d types were not used for long and go", len(self.core.types) - len(left))
            self._change(now, {"types": rows_of(left)})

    def _change(self, now: float, what: dict[str, Any], made: Mapping[str, float] | None = None) -> None:
        row = {"event": "change", "now": now, **what}
        self.core, outcome = changed(self.core, row)
        if "policy" in what:
            self.fault = None  # it was the other one's
        self._write(encode({**row, "made": self.types.made if made is None else made}), outcome, now)

    def what_runs(self) -> Running:
        """Return what a plan is compared with."""
        return Running(self.core.situation(), dict(self.servers), dict(self.types.made), self.outgoing)

    def apply(self, plan: Plan, now: float) -> None:
        """Carry out a plan that was made of what runs now: one journal row."""
        row = plan.row
        if row is None:
            return
        trial = Scheduler.from_situation(self.core.situation()) if {"before", "after"} & row.keys() else self.core
        self.core, outcome = changed(trial, row)
        if "policy" in row:
            self.fault = None
        for job, name in plan.types.items():
            self.batch.change(job, type=name)
        for name, server in plan.servers.items():
            if server is None:
                del self.servers[name]
                self.batch.drop_server(name)
            else:
                self._put(server)
        self.types.made, self.outgoing = dict(plan.made), plan.outgoing
        self.effects.reconfigured = True
        plan.jobs["start"] = len(outcome.placements)
        self._write(encode(row), outcome, now)

    def servers_up(self) -> list[ServerUp]:
        """Return the servers as an engine tells them, each with the class that it has or takes when it is empty."""
        resources = self.core.cluster.resources
        classes = {one.name: one for one in self.core.cluster.servers}
        found = []
        for name, server in self.servers.items():
            one = classes[self.outgoing.servers.get(name) or server.server_class]
            capacity = dict(zip(resources, map(float, one.capacity), strict=True))
            found.append(ServerUp(name, capacity, dict(one.labels), one.name))
        return found

    def settle(self, now: float) -> None:
        """Let servers that drained because of a cluster file leave, or take their new class, once they are empty."""
        if self.outgoing.servers and has_settled(self.outgoing, {one.server for one in self.live.values()}):
            running = self.what_runs()
            self.apply(make_plan(running, running.target(), now, strict=False), now)

    def begin_epoch(self, why: dict[str, Any], opening: Sequence[Placement], now: float) -> None:
        """The core was made anew from recorded facts, and this is what it starts at once."""
        self._write(encode({"event": "epoch", "now": now, **why}), Outcome(tuple(opening)), now)

    def tick(self, now: float) -> None:
        """The policy's own clock has rung."""
        self._apply(Tick(now))

    # -- what engines tell --------------------------------------------------------------------------------------

    def started(self, fact: Started, now: float) -> None:
        """An attempt runs."""
        live = self._meant(fact.job, fact.attempt, "started")
        if live is not None and live.state == PLACED:
            live.state = RUNNING
            self._refusals.pop(live.server, None)
            self._note({"event": "started", "job": fact.job, "attempt": fact.attempt, "now": now}, now)
            self.batch.change(fact.job, state=RUNNING, started=live.when(fact.at, now))

    def ended(self, fact: Ended, now: float) -> None:
        """An attempt has ended."""
        self.effects.settled.append((fact.job, fact.attempt))
        if self._ends.get((fact.job, fact.attempt)) == fact.exit_code:
            return  # told again, as engines may
        live = self._meant(fact.job, fact.attempt, "ended")
        if live is None:
            return
        self._ends[fact.job, fact.attempt] = fact.exit_code
        if len(self._ends) > REMEMBERED:
            del self._ends[next(iter(self._ends))]
        stopped = (live.stop_asked or fact.by_user) and fact.exit_code != 0
        state = CANCELLED if stopped else FAILED if fact.exit_code or fact.over_time else DONE
        del self.live[fact.job]
        self._refusals.pop(live.server, None)
        note: dict[str, Any] = {"state": state, "exit_code": fact.exit_code}
        ended = live.when(fact.at, now)  # before now if the service was away
        columns: dict[str, Any] = {"state": state, "exit_code": fact.exit_code, "ended": ended}
        if ended < now:
            note["ended"] = ended
        if live.state == PLACED:  # so short that its start was not told
            columns["started"] = live.when(fact.started, ended)
        if fact.reason:
            note["reason"] = columns["reason"] = fact.reason
        event = Stop(fact.job, now, live.attempt) if stopped else Complete(fact.job, now, live.attempt)
        self.batch.change(fact.job, **columns)
        self._apply(event, note)
        self._fill_array(fact.job, now)

    def refused(self, fact: Refused, now: float) -> None:
        """A placement was not carried out."""
        live = self._meant(fact.job, fact.attempt, "refused")
        if live is None:
            return
        self._refusals[live.server] += 1
        if self._refusals[live.server] >= REFUSALS and self.servers[live.server].status == UP:
            self.drain(live.server, now, f"refused {REFUSALS} jobs in a row: {fact.reason}")
        self._back(fact.job, live, now, fact.reason)

    def lost(self, fact: Lost, now: float) -> None:
        """Nobody knows how an attempt ended."""
        self.effects.settled.append((fact.job, fact.attempt))
        live = self._meant(fact.job, fact.attempt, "lost")
        if live is None:
            return
        if live.on_loss == "requeue" and not live.stop_asked:
            self._back(fact.job, live, now, fact.reason)
        else:
            self._give_up(fact.job, live, now, fact.reason)

    def server_up(self, fact: ServerUp, now: float) -> None:
        """A server is there."""
        server = self.servers.get(fact.name)
        if server is None or server.status == AWAY:
            server_class = self._class_for(fact, now)
            self._apply(Join(fact.name, server_class, now))
            self._put(Server(fact.name, server_class, UP, None))
        elif server.status == DRAINING and (server.reason or "").startswith(BY_ENGINE):
            self.resume(fact.name, now)

    def servers_changed(self, fact: ServersChanged, now: float) -> None:
        """Move servers whose capacity or labels have changed to classes that have these, with the jobs they hold."""
        for one in fact.servers:
            if one.name not in self.servers or self.servers[one.name].status == AWAY:
                self.server_up(one, now)
        try:
            self._reclassify(fact.servers, now)
        except InputError as error:
            if len(fact.servers) == 1:
                log.warning("server %s keeps its class, drained: %s", fact.servers[0].name, error)
                return
            for one in fact.servers:  # a server that cannot move must not keep the others from it
                self.servers_changed(ServersChanged((one,)), now)

    def _reclassify(self, ups: Sequence[ServerUp], now: float) -> None:
        before = {name: one.server_class for name, one in self.servers.items() if one.status != AWAY}
        cluster = self.core.cluster
        classes, moves = reclassify(cluster.servers, cluster.resources, before, ups)
        opening = [
            one.name for one in ups
            if self.servers[one.name].status == UP or (self.servers[one.name].reason or "").startswith(BY_ENGINE)
        ]  # fmt: skip
        for name in moves:
            self._refusals.pop(name, None)
            if self.servers[name].status == UP:
                self.drain(name, now, f"{BY_ENGINE}its capacity or its labels change")
        if moves or classes != list(cluster.servers):
            row: dict[str, Any] = {"classes": rows_of(classes)}
            self._change(now, row | ({"reclass": moves} if moves else {}))
        for name, server_class in moves.items():
            self._put(self.servers[name]._replace(server_class=server_class))
        for name in opening:
            if self.servers[name].status == DRAINING:
                self.resume(name, now)

    def server_removed(self, fact: ServerRemoved, now: float) -> None:
        """Forget a server that is gone for good."""
        if fact.name in self.servers:
            self.remove(fact.name, now)

    def server_drained(self, fact: ServerDrained, now: float) -> None:
        """The engine wants no more jobs on a server."""
        server = self.servers.get(fact.name)
        if server is not None and server.status == UP:
            self.drain(fact.name, now, BY_ENGINE + fact.reason)

    def server_lost(self, fact: ServerLost, now: float) -> None:
        """A server is gone with what ran on it: jobs that must not run twice end as lost, the others go back to their queues."""
        server = self.servers.get(fact.name)
        if server is None or server.status == AWAY:
            return
        if server.status == UP:
            self._apply(Drain(fact.name, now))
        reason = f"server {fact.name} was lost: {fact.reason}"
        for job, live in [(job, live) for job, live in self.live.items() if live.server == fact.name]:
            if live.on_loss == "fail" or live.stop_asked:
                self._give_up(job, live, now, reason)
        self._apply(Fail(fact.name, now), {"reason": fact.reason})
        self._put(server._replace(status=AWAY, reason=fact.reason))

    # -- inside -------------------------------------------------------------------------------------------------

    def _apply(self, event: Event, note: dict[str, Any] | None = None) -> None:
        """Let the core decide, and write it down."""
        outcome = self.core.apply(event)
        self._write(encode(event), outcome, event.now, note)

    def _note(self, row: dict[str, Any], now: float) -> None:
        """A row of the service's own, which the core need not know."""
        self._write(encode(row), Outcome(), now)

    def _write(self, event: str, outcome: Outcome, now: float, note: dict[str, Any] | None = None) -> None:
        if outcome.fault is not None:
            self.fault = f"{type(outcome.fault).__name__}: {outcome.fault}"
            note = {**(note or {}), "fault": self.fault}
            log.error("the policy failed: %s", self.fault)
        self.seq += 1
        placements = outcome.placements
        decided = as_json(placements) if placements else "[]"
        self.batch.entries.append(Entry(self.seq, now, event, decided, as_json(note) if note else None))
        for job in outcome.requeued:
            self.live.pop(job, None)  # type: ignore[call-overload]
            self.batch.change(job, state=WAITING, server=None, placed=None, started=None)  # type: ignore[arg-type]
        for placement in placements:
            self.live[placement.job] = Live(placement.server, placement.attempt, now)  # type: ignore[index, arg-type]
            self.batch.change(
                placement.job,  # type: ignore[arg-type]
                state=PLACED,
                server=placement.server,
                attempt=placement.attempt,
                placed=now,
            )
            self.effects.starts.append(placement)

    def _back(self, job: int, live: Live, now: float, reason: str) -> None:
        """A placement that came to nothing: back to the queue, unless its user wants it to end."""
        if live.stop_asked:
            self._give_up(job, live, now, reason)
        else:
            self._apply(Requeue(job, now, live.attempt), {"reason": reason})

    def _give_up(self, job: int, live: Live, now: float, reason: str) -> None:
        """It leaves its server and does not come back."""
        del self.live[job]
        state = CANCELLED if live.stop_asked else LOST
        self.batch.change(job, state=state, ended=now, reason=reason)
        self._apply(Stop(job, now, live.attempt), {"state": state, "reason": reason})
        self._fill_array(job, now)

    def _meant(self, job: int, attempt: int, what: str) -> Live | None:
        """The live job that a fact is about; a fact about anything else is counted and changes nothing."""
        live = self.live.get(job)
        if live is None or live.attempt != attempt:
            self.lies["stale attempt" if live is not None else f"{what}: unknown job"] += 1
            return None
        return live

    def _types_for(
        self, wishes: Mapping[Any, NewJob], jobs: Sequence[NewJob], now: float
    ) -> dict[Any, tuple[str, dict[str, str] | None]]:
        """For each wish, of which one job is given, the type, which may be new, and the job's own demand where that is less."""
        if self.core.policy.needs_durations and any(job.duration is None for job in jobs):
            raise InputError(
                "is missing",
                where="duration",
                remedy=f"policy {self.core.policy.label} needs to know it for every job",
            )
        known = {one.name: one for one in self.core.types}
        names = {wish: self._named_type(job, now) for wish, job in wishes.items() if job.type is not None}
        charged = {wish: own_demand(wishes[wish], known[name], self.core.cluster) for wish, name in names.items()}
        free = {wish: job for wish, job in wishes.items() if job.type is None}
        if free:
            assigned = self.types.assign(
                [Wish(job.needs, job.requires, job.tenant) for job in free.values()], self.core.cluster,
                self.core.types, lambda: self._types_in_use() | set(names.values()), now,
            )  # fmt: skip
            if assigned.changed:
                self._change(now, {"types": rows_of(assigned.types)}, made=assigned.made)
            self.types.keep(assigned)
            known = {one.name: one for one in self.core.types}
            for (wish, job), name in zip(free.items(), assigned.names, strict=True):
                names[wish], charged[wish] = name, own_demand(job, known[name], self.core.cluster)
        return {wish: (names[wish], charged[wish]) for wish in wishes}

    def _named_type(self, job: NewJob, now: float) -> str:
        """The type that a job names."""
        known = [one.name for one in self.core.types if one.name not in self.outgoing.types]
        if job.type not in known:
            raise InputError(
                f"no type is called {job.type!r}",
                where="type",
                remedy=f"use one of: {', '.join(known)}; or give needs",
            )
        if job.requires:
            raise InputError("are given beside a type", where="requires", remedy="give needs instead of a type")
        self.types.use(job.type, now)
        return job.type

    def _types_in_use(self) -> set[str]:
        """Types of which jobs wait or run."""
        situation = self.core.situation()
        return {situation.types[at].name for at in {*situation.waiting.type, *situation.running.type}}

    def _class_for(self, fact: ServerUp, now: float) -> str:
        """The class of a server: the one that its engine names, one that is alike, or a new one."""
        names = {one.name for one in self.core.cluster.servers}
        if fact.server_class in names:
            return fact.server_class
        capacity = tuple(fact.capacity.get(resource, 0) for resource in self.core.cluster.resources)
        for one in self.core.cluster.servers:
            if tuple(map(float, one.capacity)) == tuple(map(float, capacity)) and one.labels == dict(fact.labels):
                return one.name
        name = fact.server_class or next(
            f"class-{n}" for n in range(1, len(names) + 2) if f"class-{n}" not in names
        )
        new = ServerClass.model_validate(
            {"name": name, "count": 0, "capacity": [str(x) for x in capacity], "labels": dict(fact.labels)}
        )
        self._change(now, {"classes": rows_of([*self.core.cluster.servers, new])})
        return name

    def _server(self, name: str) -> Server:
        server = self.servers.get(name)
        if server is None:
            raise InputError(f"no server is called {name!r}", remedy="`slotwise servers` lists them")
        return server

    def _put(self, server: Server) -> None:
        self.servers[server.name] = server
        self.batch.put_server(server)


def has_ended(number: int) -> str:
    """Return what is said of a job that cannot be ended any more."""
    return f"job {number} has ended"


def how_many(jobs: Sequence[NewJob]) -> int:
    """With all jobs of arrays."""
    return sum(1 if job.array is None else len(job.array) for job in jobs)


def wish_of(job: NewJob) -> Any:
    """A key: jobs with equal ones are of one type and ask for the same."""
    return f"{job.type} {job.needs} {job.requires} {job.tenant}" if job.needs or job.requires else job.type


def own_demand(job: NewJob, type_: JobType, cluster: Cluster) -> dict[str, str] | None:
    """Return what the core charges a job where it is less than the type's size; None where it is the type's size.

    A job that names a type takes what the type takes, except of resources that the job names. A job without a type takes what it requests.
    """
    size = dict(zip(cluster.resources, type_.demand, strict=True))
    asked: Mapping[str, Decimal] = dict(zip(cluster.resources, exact(job.needs, cluster), strict=True))
    if job.type is not None:
        asked = checked(job.needs, cluster)
        for resource, amount in asked.items():
            if amount > size[resource]:
                raise InputError(
                    f"asks for {amount:f} of {resource}",
                    where="needs",
                    remedy=f"type {type_.name!r} has {size[resource]}; ask for at most that, or give no type",
                )
    return {resource: f"{amount:f}" for resource, amount in asked.items() if amount != size[resource]} or None

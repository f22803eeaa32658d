"""The books of servers, classes and types: what operators ask for and what engines tell of servers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from slotwise.errors import InputError
from slotwise.live.bookkeeping import Bookkeeping
from slotwise.live.changes.plan import ChangePlan, Running, has_settled, make_plan, rows_of
from slotwise.live.changes.reshape import changed
from slotwise.live.classes import plain, reclassify, without_empty
from slotwise.live.engines.protocol import ServerDrained, ServerRemoved, ServersChanged, ServerUp
from slotwise.live.newjob import NewJob, own_demand, wish_of
from slotwise.live.quotas import quotas_of
from slotwise.live.replay import as_json, encode
from slotwise.live.store.records import Server
from slotwise.live.typebook import TypeWish
from slotwise.model import JobType, Quota, ServerClass
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Drain, Join, Remove, Resume

log = logging.getLogger(__name__)
UP, DRAINING, AWAY = "up", "draining", "lost"
BY_ENGINE = "engine: "  # the reason begins so where the engine has drained a server: the engine may resume it


class ServerBooks(Bookkeeping):
    """Servers join, drain and leave; classes, types and the policy change."""

    def drain(self, name: str, now: float, reason: str = "asked for") -> None:
        """Let a server take no more jobs."""
        server = self._server(name)
        if server.status == UP:
            self._apply(Drain(name, now))
            self._put(server._replace(status=DRAINING, reason=reason))
        elif server.status == DRAINING:
            self._put(server._replace(reason=reason))
        else:
            raise InputError(f"server {name!r} is lost", remedy="it can be removed")

    def resume(self, name: str, now: float) -> None:
        """Let a draining server take jobs again."""
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
        """Forget a server without jobs."""
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
        """Drop types that were made for a demand and were not used for long."""
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
        return Running(
            self.core.situation(), dict(self.servers), dict(self.types.made), self.outgoing, self.quotas.limits
        )

    def apply(self, plan: ChangePlan, now: float) -> None:
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
        if "quotas" in row:
            self.set_quotas(quotas_of(row["quotas"]))
        self.effects.reconfigured = True
        plan.jobs["start"] = len(outcome.placements)
        self._write(encode(row), outcome, now)

    def set_quotas(self, limits: Sequence[Quota]) -> None:
        """Let other quotas hold from now on. See `slotwise.live.held_books`."""

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

    def server_up(self, fact: ServerUp, now: float) -> None:
        """Let a server join, or come back."""
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
            for one in fact.servers:  # a server that cannot move must not stop the moves of other servers
                self.servers_changed(ServersChanged((one,)), now)

    def _reclassify(self, ups: Sequence[ServerUp], now: float) -> None:
        before = {name: one.server_class for name, one in self.servers.items() if one.status != AWAY}
        cluster = self.core.cluster
        classes, moves = reclassify(cluster.servers, cluster.resources, before, ups, self.core.types)
        opening = [
            one.name for one in ups
            if self.servers[one.name].status == UP or (self.servers[one.name].reason or "").startswith(BY_ENGINE)
        ]  # fmt: skip
        for name in moves:
            self._refusals.pop(name, None)
            if self.servers[name].status == UP:
                self.drain(name, now, f"{BY_ENGINE}its capacity or its labels change")
        if moves or classes != list(cluster.servers):
            self._change(now, {"classes": rows_of(self._used_classes(classes, moves)), "reclass": moves})
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
        """Drain a server on which the engine wants no more jobs."""
        server = self.servers.get(fact.name)
        if server is not None and server.status == UP:
            self.drain(fact.name, now, BY_ENGINE + fact.reason)

    def _types_in_use(self) -> set[str]:
        """Types of which jobs wait or run."""
        return {name for name, jobs in self.core.jobs_by_type.items() if jobs}

    def _class_for(self, fact: ServerUp, now: float) -> str:
        """Return the class of a server: the one that its engine names, one that is alike, or a new one."""
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
            {
                "name": name,
                "count": 0,
                "capacity": [str(plain(Decimal(str(x)))) for x in capacity],
                "labels": dict(fact.labels),
            }
        )
        classes = self._used_classes([*self.core.cluster.servers, new], {fact.name: name})
        self._change(now, {"classes": rows_of(classes), "reclass": {}})
        return name

    def _used_classes(self, classes: Sequence[ServerClass], moves: Mapping[str, str]) -> list[ServerClass]:
        """Return the classes that servers have after these moves, and those that types need."""
        of = {one.name: one.server_class for one in self.servers.values()} | dict(moves)
        leaving = [*self.outgoing.classes, *(one for one in self.outgoing.servers.values() if one is not None)]
        return without_empty(classes, self.core.types, {*of.values(), *leaving})

    def _server(self, name: str) -> Server:
        server = self.servers.get(name)
        if server is None:
            raise InputError(f"no server is called {name!r}", remedy="`slotwise servers` lists them")
        return server

    def _put(self, server: Server) -> None:
        self.servers[server.name] = server
        self.batch.put_server(server)

    def make_types(self, jobs: Sequence[NewJob], now: float) -> None:
        """Make the types that these jobs will need, by one change. They are made for nothing if the jobs are not submitted after that."""
        self._types_for({wish_of(job): job for job in jobs}, jobs, now)

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
        asked = {
            wish: one
            for wish, job in wishes.items()
            if (one := self._wish(job, known.get(names.get(wish, "")))) is not None
        }
        free = {wish: wishes[wish] for wish in asked}
        if free:
            assigned = self.types.assign(
                list(asked.values()), self.core.cluster,
                self.core.types, lambda: self._types_in_use() | set(names.values()), now,
            )  # fmt: skip
            if assigned.changed:
                self._change(now, {"types": rows_of(assigned.types)}, made=assigned.made)
            self.types.keep(assigned)
            known = {one.name: one for one in self.core.types}
            for (wish, job), name in zip(free.items(), assigned.names, strict=True):
                names[wish], charged[wish] = name, own_demand(job, known[name], self.core.cluster)
        return {wish: (names[wish], charged[wish]) for wish in wishes}

    def _wish(self, job: NewJob, named: JobType | None) -> TypeWish | None:
        """Return what is to be found for a job; None if the type that it names is its type. With shares, a tenant has types of its own."""
        shares = self.core.shares
        owner = job.tenant if shares is not None and job.tenant in shares.names[:-1] else None
        if named is None:
            return TypeWish(job.needs, job.requires, job.tenant, owner)
        if named.tenant == owner or shares is None:
            return None
        if named.tenant is not None:
            raise InputError(
                f"{named.name!r} is a type of tenant {named.tenant!r}", where="type", remedy="give needs instead"
            )
        return TypeWish(job.needs, job.requires, job.tenant, owner, named)

    def _charged(self, name: str, demand: dict[str, str] | None) -> str:
        """Return what a job of this type and demand is charged of each resource, as JSON for the store."""
        size = next(one.demand for one in self.core.types if one.name == name)
        full = dict(zip(self.core.cluster.resources, size, strict=True)) | (demand or {})
        return as_json({resource: float(amount) for resource, amount in full.items()})

    def _named_type(self, job: NewJob, now: float) -> str:
        """Return the type that a job names."""
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

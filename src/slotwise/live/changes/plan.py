"""The difference between the cluster that runs and the one that is wanted, what it means for jobs and servers, and the journal row for it.

The rules:

- A running job keeps the definition of its type until it ends. If the type changes, the earlier definition stays as `NAME@N`.
- A waiting job takes the new definition of its type, unless it asks for more than that itself. A type that is taken away stays until its last job has ended.
- A server whose jobs fit the wanted class takes that class at once. Otherwise the server drains, under the earlier definition (`NAME@N`), and
  takes the wanted class when it is empty. A server that is not wanted leaves when it is empty.
- A plan is refused if a waiting job would fit no server.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotwise.errors import InputError
from slotwise.live import quotas
from slotwise.live.changes import words
from slotwise.live.changes.definition import Amounts, Definitions, amounts, covers, in_order, units
from slotwise.live.changes.target import Outgoing, Target
from slotwise.live.store.records import Server
from slotwise.model import Cluster, JobType, Quota, ServerClass
from slotwise.model.checks import check_cluster, check_types
from slotwise.model.quotas import check_quotas
from slotwise.model.shares import check_shares
from slotwise.scheduling import make_policy
from slotwise.scheduling.events import Drain, Event, Join, Remove, Resume, as_dict
from slotwise.scheduling.situation import Situation

UP, DRAINING, AWAY = "up", "draining", "lost"
# Prefix of the reason of a server that drains because of a cluster file.
BY_FILE = "cluster file: "


@dataclass(frozen=True)
class Running:
    """What runs: the situation of the core, and what the service knows beside it."""

    situation: Situation
    servers: Mapping[str, Server]
    made: Mapping[str, float]
    """types that were made for a demand, with the time of their last use"""
    outgoing: Outgoing
    quotas: tuple[Quota, ...] = ()

    def target(self) -> Target:
        """Return the cluster that runs, without types that were made and without what is outgoing."""
        situation, leaving = self.situation, self.outgoing.servers
        wanted = {name: leaving.get(name, one.server_class) for name, one in self.servers.items()}
        return Target(
            tuple(situation.resources),
            tuple(one for one in situation.classes if one.name not in self.outgoing.classes),
            tuple(
                one for one in situation.types if one.name not in self.made and one.name not in self.outgoing.types
            ),
            situation.policy.name,
            situation.policy.options,
            {name: server_class for name, server_class in wanted.items() if server_class is not None},
            situation.shares,
            self.quotas,
        )


@dataclass(frozen=True)
class ChangeItem:
    """One difference."""

    what: str
    """policy, resources, class, type, shares or quota"""
    name: str
    action: str
    """add, change or remove"""
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    effect: str | None = None


@dataclass
class ChangePlan:
    """What would change, and the journal row that does it. Without `row`, nothing would."""

    changes: list[ChangeItem]
    row: dict[str, Any] | None
    servers: dict[str, Server | None]
    """rows of the read model that change; None: the server has left"""
    types: dict[int, str]
    """jobs that get another type"""
    jobs: dict[str, int]
    joining: list[str]
    leaving: list[str]
    draining: list[str]
    outgoing: Outgoing
    made: dict[str, float]

    @property
    def fingerprint(self) -> str:
        """Return a text that is the same for the same changes, whatever jobs do meanwhile; "" where nothing changes."""
        if not self.changes:
            return ""
        shown = [(one.what, one.name, one.action, one.before, one.after) for one in self.changes]
        return hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).hexdigest()[:16]

    @property
    def text(self) -> str:
        """For people, in several lines."""
        return words.of_plan(self.changes, self.jobs)

    def as_dict(self, *, applied: bool) -> dict[str, Any]:
        """Return the plan as the API and `slotwise apply --json` give it."""
        return {
            "plan": self.fingerprint,
            "changes": [vars(one) for one in self.changes],
            "jobs": self.jobs,
            "servers": {"join": self.joining, "leave": self.leaving, "drain": self.draining},
            "text": self.text,
            "applied": applied,
        }


def apart_from_demand(one: JobType) -> JobType:
    """Return a type without its demand, to compare it. A file of a service need not name rates: then the rate is 1."""
    return one.model_copy(update={"demand": (), "rate": 1 if one.rate is None else one.rate})


@dataclass
class Types:
    """The types after a plan."""

    all: list[JobType] = field(default_factory=list)
    outgoing: dict[str, str] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    """running jobs of the first type get the second"""
    waiting: list[tuple[int, str]] = field(default_factory=list)
    """waiting jobs that get another type"""
    redefined: bool = False
    moved: int = 0
    """waiting jobs that take a new definition"""


class Planner:
    """Compares what runs with a target."""

    def __init__(self, running: Running, target: Target, now: float) -> None:
        self._running, self._target, self._now = running, target, now
        situation = running.situation
        self._old = Definitions(situation.resources, situation.types, situation.classes)
        self._new = Definitions(target.resources, target.types, target.classes)
        self._changes: list[ChangeItem] = []
        self._declared = running.target()
        self._type_names = [one.name for one in situation.types]
        self._on: dict[str, list[tuple[Mapping[str, Sequence[str]], Amounts]]] = {}
        for at, kind in enumerate(situation.running.type):
            name = situation.servers.name[situation.running.server[at]]
            one = situation.types[kind]
            self._on.setdefault(name, []).append((one.requires, self._demand_of(situation.running, at)))
        self._runs = Counter(self._type_names[kind] for kind in situation.running.type)
        self._waits = Counter(self._type_names[kind] for kind in situation.waiting.type)

    def _demand_of(self, table: Any, at: int) -> Amounts:
        situation = self._running.situation
        if table.demand is not None:
            return units(table.demand[at], situation.resources, situation.digits)
        return amounts(situation.resources, situation.types[table.type[at]].demand)

    def plan(self, *, strict: bool) -> ChangePlan:
        """Make the plan; `strict` refuses a plan under which a waiting job would fit no server."""
        target, running = self._target, self._running
        cluster = Cluster(resources=target.resources, servers=target.classes)
        check_cluster(cluster, may_be_empty=True)
        check_types(cluster, target.types)
        check_quotas(target.quotas, target.resources)
        policy = self._policy() | self._shares() | self._quotas()
        if list(target.resources) != running.situation.resources:
            self._add(
                "resources", "", "change", {"names": running.situation.resources}, {"names": [*target.resources]}
            )
        servers = ServerChanges(self._running, self._old, self._new, target, self._on)
        types = self._types()
        self._show_classes(servers)
        if strict:
            self._refuse_stranded(types)
        servers.keep_for([one for one in types.all if not self._fits_new(one)])
        classes = [self._converted_class(one) for one in servers.classes()]
        made = {
            name: at
            for name, at in running.made.items()
            if name not in self._new.types and name in {one.name for one in types.all}
        }
        outgoing = Outgoing(types.outgoing, servers.outgoing_classes, servers.outgoing)
        row: dict[str, Any] = {"event": "change", "now": self._now}
        before, after = servers.events(self._now)
        resources_change = list(target.resources) != running.situation.resources
        takes_over = resources_change or types.redefined or servers.redefined
        if resources_change:
            row["resources"] = list(target.resources)
        if takes_over or types.all != running.situation.types:
            row["types"] = rows_of(types.all)
        if takes_over or classes != running.situation.classes:
            row["classes"] = rows_of(classes)
        row |= policy
        if types.running or types.waiting:
            row["retype"] = {"running": types.running, "jobs": types.waiting}
        if servers.reclass:
            row["reclass"] = servers.reclass
        row |= {"before": before} if before else {}
        row |= {"after": after} if after else {}
        row |= {"takes_over": True} if takes_over else {}
        nothing = len(row) == 2 and outgoing == running.outgoing and made == running.made
        situation = running.situation
        renamed = {
            job: types.running[self._type_names[kind]]
            for job, kind in zip(situation.running.job, situation.running.type, strict=True)
            if self._type_names[kind] in types.running
        }
        return ChangePlan(
            changes=self._changes,
            row=None if nothing else row | {"made": made, "outgoing": outgoing.as_dict()},
            servers=servers.rows(),
            types=renamed | dict(types.waiting),
            jobs={
                "running": len(situation.running.job),
                "waiting": len(situation.waiting.job),
                "keep": len(renamed),
                "move": types.moved,
                "start": 0,
            },
            joining=servers.joining,
            leaving=servers.leaving,
            draining=sorted(set(servers.outgoing) - set(running.outgoing.servers)),
            outgoing=outgoing,
            made=made,
        )

    def _add(
        self, what: str, name: str, action: str, before: Any = None, after: Any = None, effect: str | None = None
    ) -> None:
        self._changes.append(ChangeItem(what, name, action, before, after, effect or None))

    # -- the policy -------------------------------------------------------------------------------------------------

    def _policy(self) -> dict[str, Any]:
        target, before = self._target, self._running.situation.policy
        options = dict(target.options)
        wanted = make_policy(target.policy, **options)
        known = make_policy(before.name, **before.options)
        if wanted.called == known.called and wanted.options == known.options:
            return {}
        defaults = {**wanted.options.model_dump(mode="json"), **known.options.model_dump(mode="json")}
        differ = [
            name
            for name in defaults
            if getattr(wanted.options, name, None) != getattr(known.options, name, None)
            and (name in wanted.options.model_fields_set or name in known.options.model_fields_set)
        ]
        shown_before = {name: getattr(known.options, name) for name in differ if hasattr(known.options, name)}
        shown_after = {name: getattr(wanted.options, name) for name in differ if hasattr(wanted.options, name)}
        self._add(
            "policy",
            target.policy,
            "change",
            {"name": known.called, **shown_before},
            {"name": wanted.called, **shown_after},
            "running jobs go on; the policy takes over the queues as they are and learns anew",
        )
        return {"policy": target.policy, "options": wanted.options.model_dump(mode="json", exclude_unset=True)}

    def _shares(self) -> dict[str, Any]:
        """Fair shares that differ from those of now."""
        before = self._running.situation.shares
        after = self._target.shares if self._target.shares is not None and self._target.shares.tenants else None
        if after is not None:
            check_shares(after)
            if not make_policy(self._target.policy, **self._target.options).honours_shares:
                raise InputError(
                    f"{self._target.policy} cannot honour shares",
                    where="shares",
                    remedy="use policy guarded, or remove the shares",
                )
        if before == after:
            return {}
        old, new = (
            None if one is None else one.model_dump(mode="json", exclude_defaults=True) for one in (before, after)
        )
        action = "add" if before is None else "remove" if after is None else "change"
        self._add("shares", "", action, old, new, "tenants keep what they have used")
        return {"shares": new}

    def _quotas(self) -> dict[str, Any]:
        """Quotas that differ from those of now."""
        old, new = (
            {one["tenant"]: one for one in quotas.rows_of(some)}
            for some in (self._running.quotas, self._target.quotas)
        )
        for tenant in dict.fromkeys((*old, *new)):
            before, after = (
                {key: value for key, value in one.items() if key != "tenant"} if (one := some.get(tenant)) else None
                for some in (old, new)
            )
            if before != after:
                action = "add" if before is None else "remove" if after is None else "change"
                effect = None if after is None else "running jobs go on; waiting jobs beyond the quota are held"
                self._add("quota", tenant, action, before, after, effect)
        return {"quotas": list(new.values())} if old != new else {}

    # -- types --------------------------------------------------------------------------------------------------------

    def _types(self) -> Types:
        running, found = self._running, Types(all=list(self._target.types))
        kept: list[JobType] = []
        taken = {*self._old.types, *self._new.types}
        for name in self._new.types:
            if name not in self._old.types:
                self._add("type", name, "add", None, self._type_shown(self._new, name))
            elif self._old.of_type(name) != self._new.of_type(name):
                kept += self._redefine(name, found, taken)
            elif apart_from_demand(self._old.types[name]) != apart_from_demand(self._new.types[name]):
                shown = self._type_shown(self._old, name), self._type_shown(self._new, name)
                self._add("type", name, "change", *shown, "jobs are not affected")
            elif name in running.outgoing.types or name in running.made:
                self._add(
                    "type", name, "add", None, self._type_shown(self._new, name), "jobs of it are there already"
                )
        for name in self._type_names:
            if name not in self._new.types:
                kept += self._leave_out(name, found)
        found.all += [self._converted_type(one) for one in kept]
        return found

    def _redefine(self, name: str, found: Types, taken: set[str]) -> list[JobType]:
        """Give a type another demand or other requirements. Return its earlier definition if jobs keep that."""
        found.redefined = True
        stay = self._waiting_beyond(name, self._new.demand(name))
        found.moved += self._waits[name] - len(stay)
        effect, kept = [], []
        if self._runs[name] or stay:
            earlier = earlier_name(name, taken)
            found.outgoing[earlier] = name
            if self._runs[name]:
                found.running[name] = earlier
            found.waiting += [(job, earlier) for job in stay]
            kept = [self._old.types[name].model_copy(update={"name": earlier})]
            if self._runs[name]:
                does = words.jobs_do(self._runs[name], "running", "keep")
                effect.append(f"{does} the earlier definition, as type {earlier}, until the end")
            if stay:
                does = words.jobs_do(len(stay), "waiting", "ask")
                effect.append(f"{does} for more than the new definition: as type {earlier}")
        if self._waits[name] > len(stay):
            does = words.jobs_do(self._waits[name] - len(stay), "waiting", "take")
            effect.append(f"{does} the new definition")
        shown = self._type_shown(self._old, name), self._type_shown(self._new, name)
        self._add("type", name, "change", *shown, "; ".join(effect))
        return kept

    def _waiting_beyond(self, name: str, demand: Amounts) -> list[int]:
        """Return the waiting jobs of a type that request less than the type, but more than a demand."""
        situation, table = self._running.situation, self._running.situation.waiting
        if table.demand is None:
            return []
        usual = self._old.demand(name)
        found = []
        for at, kind in enumerate(table.type):
            if self._type_names[kind] == name:
                own = units(table.demand[at], situation.resources, situation.digits)
                if own != usual and not covers(demand, own):
                    found.append(table.job[at])
        return found

    def _leave_out(self, name: str, found: Types) -> list[JobType]:
        """Leave out a type that the target does not name. Return the type if it stays for now."""
        running = self._running
        replaced_by = running.outgoing.types.get(name, "")
        if replaced_by in self._new.types and self._waits[name]:  # jobs that were put back to their queue since
            stay = set(self._waiting_beyond(name, self._new.demand(replaced_by)))
            table = running.situation.waiting
            moved = [
                (job, replaced_by)
                for job, kind in zip(table.job, table.type, strict=True)
                if self._type_names[kind] == name and job not in stay
            ]
            found.waiting += moved
            found.redefined = found.redefined or bool(moved)
            in_use = bool(self._runs[name] or stay)
        else:
            in_use = bool(self._runs[name] or self._waits[name])
        one = self._old.types[name]
        if name in running.made:
            return [one] if in_use or self._fits_new(self._converted_type(one)) else []
        if name not in running.outgoing.types:
            used = [words.jobs(self._runs[name], "running"), words.jobs(self._waits[name], "waiting")]
            counted = " and ".join(text for text in used if text)
            effect = f"stays until the last job of it has ended ({counted})" if in_use else ""
            self._add("type", name, "remove", self._type_shown(self._old, name), None, effect)
        if in_use:
            found.outgoing[name] = replaced_by
        return [one] if in_use else []

    def _type_shown(self, of: Definitions, name: str) -> dict[str, Any]:
        one = of.types[name]
        shown: dict[str, Any] = {"demand": {key: str(x) for key, x in of.demand(name).items()}}
        rest = one.model_dump(mode="json", exclude={"name", "demand", "requires"}, exclude_defaults=True)
        return shown | ({"requires": {k: list(v) for k, v in one.requires.items()}} if one.requires else {}) | rest

    def _converted_type(self, one: JobType) -> JobType:
        demand = in_order(amounts(self._old.resources, one.demand), self._new.resources)
        return one if demand == one.demand else one.model_copy(update={"demand": demand})

    def _fits_new(self, one: JobType) -> bool:
        """Return whether one of the classes that stay holds a job of a type, whose demand is in the new order of resources."""
        demand = amounts(self._new.resources, one.demand)
        return any(self._new.holds(kind, [(one.requires, demand)]) for kind in self._new.classes)

    def _refuse_stranded(self, types: Types) -> None:
        """No waiting job may be left that fits none of the classes that stay."""
        moved = {name for _, name in types.waiting}
        for one in types.all:
            if (self._waits[one.name] or one.name in moved) and not self._fits_new(one):
                raise InputError(
                    f"waiting jobs of type {one.name!r} would fit no server",
                    where="cluster file",
                    remedy="keep a class that holds them, or cancel them first",
                )

    # -- classes ------------------------------------------------------------------------------------------------------

    def _converted_class(self, one: ServerClass) -> ServerClass:
        if one.name in self._new.classes and one is self._new.classes[one.name]:
            return one.model_copy(update={"count": 0})
        capacity = in_order(amounts(self._old.resources, one.capacity), self._new.resources)
        return one.model_copy(update={"capacity": capacity, "count": 0})

    def _show_classes(self, servers: ServerChanges) -> None:
        declared = {one.name for one in self._declared.classes}
        before, after = Counter(self._declared.servers.values()), Counter(self._target.servers.values())
        for name in [*self._new.classes, *(name for name in self._old.classes if name not in self._new.classes)]:
            if name not in declared and name not in self._new.classes:
                continue
            effect = servers.effect(name)
            shown = [
                {"count": count[name], "capacity": {k: str(x) for k, x in of.capacity(name).items()}}
                | ({"labels": dict(of.classes[name].labels)} if of.classes[name].labels else {})
                if name in of.classes
                else None
                for of, count in ((self._old, before), (self._new, after))
            ]
            if name not in declared:
                self._add("class", name, "add", None, shown[1], effect)
            elif name not in self._new.classes:
                self._add("class", name, "remove", shown[0], None, effect)
            elif shown[0] != shown[1] or effect:
                self._add("class", name, "change", shown[0], shown[1], effect)


class ServerChanges:
    """What happens to each server."""

    def __init__(
        self,
        running: Running,
        old: Definitions,
        new: Definitions,
        target: Target,
        on: Mapping[str, Sequence[tuple[Mapping[str, Sequence[str]], Amounts]]],
    ) -> None:
        self._running, self._old, self._new, self._on = running, old, new, on
        self.joining: list[str] = []
        self.leaving: list[str] = []
        self.outgoing: dict[str, str | None] = {}
        self.reclass: dict[str, str] = {}
        self.redefined = any(
            old.of_class(name) != new.of_class(name) for name in new.classes if name in old.classes
        )
        self._kept: dict[str, str] = {}
        """classes whose earlier definition stays, with the name that it gets"""
        self._before: list[Event] = []
        self._after: list[Event] = []
        self._rows: dict[str, Server | None] = {}
        self._effects: dict[str, list[tuple[str, str]]] = {}
        self._taken = {*old.classes, *new.classes}
        for name, server in running.servers.items():
            self._decide(server, target.servers.get(name))
        for name, kind in target.servers.items():
            if name not in running.servers:
                self._join(name, kind)
        used = {self.class_after(name) for name in running.servers if name not in self.leaving}
        self.outgoing_classes = [
            name for name in [*old.classes, *self._kept.values()] if name not in new.classes and name in used
        ]

    def keep_for(self, types: Sequence[JobType]) -> None:
        """Keep the classes that alone can hold jobs of these types."""
        for one in types:
            demand = amounts(self._new.resources, one.demand)
            for name in self._old.classes:
                if (
                    name not in self._new.classes
                    and name not in self.outgoing_classes
                    and self._old.holds(name, [(one.requires, demand)])
                ):
                    self.outgoing_classes.append(name)

    def class_after(self, name: str) -> str:
        """Return the class that a present server has after the plan."""
        row = self._rows.get(name)
        return row.server_class if row is not None else self._running.servers[name].server_class

    def classes(self) -> list[ServerClass]:
        """Return all classes after the plan, the outgoing ones last."""
        earlier = {to: self._old.classes[name].model_copy(update={"name": to}) for name, to in self._kept.items()}
        known = {**self._old.classes, **earlier}
        return [*self._new.classes.values(), *(known[name] for name in self.outgoing_classes)]

    def events(self, now: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return what happens before and after the core is rebuilt."""
        return (
            [as_dict(one._replace(now=now)) for one in self._before],
            [as_dict(one._replace(now=now)) for one in self._after],
        )

    def rows(self) -> dict[str, Server | None]:
        """Return what changes in the read model."""
        return self._rows

    def effect(self, server_class: str) -> str:
        """Return what happens to the servers of a class, in words."""
        groups: dict[str, list[str]] = {}
        for name, what in self._effects.get(server_class, ()):
            groups.setdefault(what, []).append(name)
        return "; ".join(f"{words.names(names)}: {what}" for what, names in groups.items())

    def _tell(self, server_class: str, name: str, what: str) -> None:
        self._effects.setdefault(server_class, []).append((name, what))

    def _join(self, name: str, kind: str) -> None:
        self.joining.append(name)
        self._after.append(Join(name, kind, 0.0))
        self._rows[name] = Server(name, kind, UP, None)
        self._tell(kind, name, "joins")

    def _decide(self, server: Server, wanted: str | None) -> None:
        name, jobs = server.name, self._on.get(server.name, ())
        if wanted is None:
            if jobs:
                self._wait(server, None)
            else:
                self.leaving.append(name)
                self._before.append(Remove(name, 0.0))
                self._rows[name] = None
                if name not in self._running.outgoing.servers:
                    self._tell(server.server_class, name, "leaves")
        elif server.status == AWAY:
            if server.server_class != wanted:
                self._rows[name] = server._replace(server_class=wanted)
                self.reclass[name], self.redefined = wanted, True
        elif not self._new.holds(wanted, jobs):
            self._wait(server, wanted)
        else:
            self._take(server, wanted, bool(jobs))

    def _take(self, server: Server, wanted: str, busy: bool) -> None:
        """Give a server the wanted class from now on."""
        name, status, reason = server.name, server.status, server.reason
        by_file = name in self._running.outgoing.servers
        back = by_file and (reason or "").startswith(BY_FILE)
        if server.server_class != wanted and not busy:
            self._before.append(Remove(name, 0.0))
            self._after.append(Join(name, wanted, 0.0))
            if status == DRAINING and not back:
                self._after.append(Drain(name, 0.0))
        else:
            if server.server_class != wanted:
                self.reclass[name] = wanted
                self.redefined = True
            if back:
                self._after.append(Resume(name, 0.0))
        if back:
            status, reason = UP, None
        if (server.server_class, server.status) != (wanted, status):
            self._rows[name] = Server(name, wanted, status, reason)
            if back:
                self._tell(wanted, name, "takes jobs again")
            elif server.server_class != wanted:
                self._tell(wanted, name, f"leaves class {server.server_class} for this one, with its jobs")

    def _wait(self, server: Server, wanted: str | None) -> None:
        """Let a server drain under its present definition. When it is empty, it leaves or takes the wanted class."""
        name, kind = server.name, server.server_class
        self.outgoing[name] = wanted
        then = "leaves" if wanted is None else f"takes the new definition of class {wanted}"
        changes = kind in self._new.classes and self._old.of_class(kind) != self._new.of_class(kind)
        if changes and not self._new.holds(kind, self._on[name]):
            if kind not in self._kept:
                self._kept[kind] = earlier_name(kind, self._taken)
            self.reclass[name] = self._kept[kind]
        after = server._replace(server_class=self.reclass.get(name, kind))
        if server.status == UP:
            self._before.append(Drain(name, 0.0))
        if server.status == UP or (server.reason or "").startswith(BY_FILE):
            after = after._replace(status=DRAINING, reason=f"{BY_FILE}{then} when it is empty")
        if after != server:
            self._rows[name] = after
        if self._running.outgoing.servers.get(name, "") != wanted:
            running = words.jobs(len(self._on[name]), "running")
            self._tell(wanted or kind, name, f"drains ({running}) and {then} when it is empty")


def earlier_name(name: str, taken: set[str]) -> str:
    """Return a name for the earlier definition of a type or class, and take it."""
    found = next(one for n in itertools.count(1) if (one := f"{name}@{n}") not in taken)
    taken.add(found)
    return found


def rows_of(parts: Sequence[JobType | ServerClass]) -> list[dict[str, Any]]:
    """Types or classes as the journal keeps them."""
    return [one.model_dump(mode="json", exclude_defaults=True) for one in parts]


def make_plan(running: Running, target: Target, now: float, *, strict: bool = True) -> ChangePlan:
    """Compare what runs with a target. A plan under which a waiting job would fit no server is refused, unless it is not `strict`."""
    return Planner(running, target, now).plan(strict=strict)


def has_settled(outgoing: Outgoing, busy: Container[str]) -> bool:
    """Return whether a server that was to leave or change when it is empty holds no job any more."""
    return any(name not in busy for name in outgoing.servers)

"""The core after a `change` row of the journal.

Keys of the row, all optional: `before` and `after` are events that happen before and after the core is rebuilt.
`types`, `classes`, `resources`, `policy`, `options` and `shares` (null: none) replace those of the core. `retype` and `reclass` give jobs
another type and servers another class. `place` puts waiting jobs on servers that drain. With `takes_over` the policy forgets what it knew, because it was about other
sizes: it finds the servers with the jobs on them, as another policy would.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slotwise.live.classes import moved
from slotwise.model import Cluster, JobType, ServerClass, Shares, integers
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Outcome, Placement, from_dict
from slotwise.scheduling.situation import PolicyState, RunningTable, Situation, WaitingTable

# Keys of a row that make the core be rebuilt.
REBUILT = ("types", "classes", "resources", "policy", "options", "shares", "retype", "reclass", "place")


def changed(core: Scheduler, row: Mapping[str, Any]) -> tuple[Scheduler, Outcome]:
    """Return the core that goes on with what a `change` row says, and what is decided at once. Events in `before` change the given core."""
    outcomes = [core.apply(from_dict(one)) for one in row.get("before", ())]
    if any(name in row for name in REBUILT):
        situation = core.situation()
        if "place" in row:
            places = row["place"]
            for place in [places] if isinstance(places, Mapping) else places:  # rows of earlier versions have one
                situation, placement = with_placement(situation, place, float(row["now"]))
                outcomes.append(Outcome((placement,)))
        core = rebuilt(situation, row)
        outcomes.append(core.opening)
    outcomes += [core.apply(from_dict(one)) for one in row.get("after", ())]
    return core, together(outcomes)


def rebuilt(situation: Situation, row: Mapping[str, Any]) -> Scheduler:
    """Return a core that goes on from a situation with what a row replaces."""
    if row.get("takes_over"):
        return Scheduler.from_situation(reshape(situation, row), takes_over=True, shares=shares_of(row))
    options = row.get("options") or {}
    policy = row.get("policy")
    if policy is None and options:
        policy = situation.policy.name
    classes = classes_of(row["classes"]) if "classes" in row else None
    if "reclass" in row:  # of servers that are drained: the policy knows nothing of them
        situation = moved(situation, classes or situation.classes, row["reclass"])
    return Scheduler.from_situation(
        situation,
        types=types_of(row["types"]) if "types" in row else None,
        classes=classes,
        policy=policy,
        shares=shares_of(row),
        **options,
    )


def with_placement(situation: Situation, place: Mapping[str, Any], now: float) -> tuple[Situation, Placement]:
    """Return the situation with a waiting job on a server that drains: the policy is not asked. The caller has seen that the job fits."""
    waits, runs = situation.waiting, situation.running
    at, server = waits.job.index(place["job"]), situation.servers.name.index(place["server"])
    if situation.servers.status[server] != "draining":
        raise LookupError(f"server {place['server']!r} does not drain")
    attempts = 1 + (0 if waits.attempts is None else waits.attempts[at])
    own = {"attempts": attempts, "server": server, "started": now}
    sizes: list[list[int]] | None = None
    if waits.demand is not None or runs.demand is not None:
        cluster = Cluster(resources=tuple(situation.resources), servers=tuple(situation.classes))
        sizes = integers(cluster, situation.types, situation.digits).demand.tolist()
    place_at = bisect(runs.sequence, waits.sequence[at])  # running jobs stand in the order of their arrival
    joined: dict[str, Any] = {}
    for name in RunningTable.__dataclass_fields__:
        rows, values = getattr(runs, name), getattr(waits, name, None)
        value = own[name] if name in own else None if values is None else values[at]
        if name == "demand" and sizes is not None:
            rows = rows or [sizes[kind] for kind in runs.type]
            value = value or sizes[waits.type[at]]
        elif rows is None and value is not None:
            rows = [None] * len(runs.job)
        joined[name] = None if rows is None else [*rows[:place_at], value, *rows[place_at:]]
    left: dict[str, Any] = {
        name: None if (rows := getattr(waits, name)) is None else [*rows[:at], *rows[at + 1 :]]
        for name in WaitingTable.__dataclass_fields__
    }
    placed = replace(
        situation, now=max(situation.now, now), waiting=WaitingTable(**left), running=RunningTable(**joined)
    )
    return placed, Placement(place["job"], place["server"], attempts)


def shares_of(row: Mapping[str, Any]) -> Shares | None:
    """Return the shares of a row, without tenants where it takes them away; None where the row says nothing of them."""
    if "shares" not in row:
        return None
    return Shares(half_life=1.0) if row["shares"] is None else Shares.model_validate(row["shares"])


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of several events as one."""
    return Outcome(
        tuple(placement for one in outcomes for placement in one.placements),
        tuple(job for one in outcomes for job in one.requeued),
        next((one.fault for one in outcomes if one.fault is not None), None),
    )


def types_of(rows: Iterable[Any]) -> list[JobType]:
    """Return types as a row keeps them."""
    return [JobType.model_validate(one) for one in rows]


def classes_of(rows: Iterable[Any]) -> list[ServerClass]:
    """Return classes as a row keeps them."""
    return [ServerClass.model_validate(one) for one in rows]


def reshape(situation: Situation, row: Mapping[str, Any]) -> Situation:
    """Return the situation with the types, classes, resources and policy of a row. The policy knows nothing of the servers any more."""
    types = types_of(row["types"]) if "types" in row else situation.types
    classes = classes_of(row["classes"]) if "classes" in row else situation.classes
    resources = list(row.get("resources", situation.resources))
    finest = dict(zip(situation.resources, situation.digits, strict=True))
    cluster = Cluster(resources=tuple(resources), servers=tuple(classes))
    sizes = integers(cluster, types, [finest.get(name, max(situation.digits)) for name in resources])
    jobs = RetypedJobs(
        situation, types, resources, list(sizes.digits), sizes.demand.tolist(), row.get("retype", {})
    )
    reclass = row.get("reclass", {})
    class_at = {one.name: at for at, one in enumerate(classes)}
    old_class = [one.name for one in situation.classes]
    servers = situation.servers
    n = len(servers.name)
    before = situation.policy
    return replace(
        situation,
        now=max(situation.now, float(row["now"])),
        resources=resources,
        classes=classes,
        types=types,
        digits=list(sizes.digits),
        servers=replace(
            servers,
            server_class=[
                class_at[reclass.get(name, old_class[at])]
                for name, at in zip(servers.name, servers.server_class, strict=True)
            ],
        ),
        waiting=jobs.waiting(),
        running=jobs.running(),
        policy=PolicyState(
            name=row.get("policy", before.name),
            options=row.get("options") or {} if "policy" in row or "options" in row else before.options,
            random=before.random,
            mode=[0] * n,
            slots=[[0] * len(types) for _ in range(n)],
            filed=[],
            learnt={},
        ),
    )


class RetypedJobs:
    """The jobs of a situation under other types."""

    def __init__(
        self,
        situation: Situation,
        types: Sequence[JobType],
        resources: Sequence[str],
        digits: Sequence[int],
        demand: list[list[int]],
        retype: Mapping[str, Any],
    ) -> None:
        self._situation, self._demand, self._retype = situation, demand, retype
        self._at = {one.name: at for at, one in enumerate(types)}
        self._names = [one.name for one in situation.types]
        old = Cluster(resources=tuple(situation.resources), servers=tuple(situation.classes))
        self._old_demand = integers(old, situation.types, situation.digits).demand.tolist()
        place = {name: at for at, name in enumerate(situation.resources)}
        self._factors = [
            (place[name], 10 ** (digits[at] - situation.digits[place[name]])) if name in place else (0, 0)
            for at, name in enumerate(resources)
        ]
        self._own = dict(retype.get("jobs", ()))

    def waiting(self) -> WaitingTable:
        """The waiting jobs; queues are common until the policy shares them out."""
        table = self._situation.waiting
        kinds = self._types(table, self._retype.get("waiting", {}))
        return replace(table, type=kinds, demand=self._demands(table, kinds), queue=None)

    def running(self) -> RunningTable:
        """The running jobs."""
        table = self._situation.running
        kinds = self._types(table, self._retype.get("running", {}))
        return replace(table, type=kinds, demand=self._demands(table, kinds))

    def _types(self, table: WaitingTable | RunningTable, moved: Mapping[str, str]) -> list[int]:
        to = [self._at.get(moved.get(name, name), -1) for name in self._names]
        kinds = [to[at] for at in table.type]
        if self._own:
            for at, job in enumerate(table.job):
                if job in self._own:
                    kinds[at] = self._at[self._own[job]]
        if -1 in kinds:
            name = self._names[table.type[kinds.index(-1)]]
            raise LookupError(f"there are jobs of type {name!r}, which is not there any more")
        return kinds

    def _demands(self, table: WaitingTable | RunningTable, kinds: list[int]) -> list[list[int]] | None:
        """A job that demanded what its type did takes the demand of its new type; another keeps its own."""
        if table.demand is None:
            return None
        return [
            self._demand[new] if row == self._old_demand[old] else [row[at] * by for at, by in self._factors]
            for row, old, new in zip(table.demand, table.type, kinds, strict=True)
        ]

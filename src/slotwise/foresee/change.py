"""What if: a situation as it would be after a change, made by the scheduler's own events, so that policies hear of it as they would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotwise.errors import InputError
from slotwise.model import JobType, Shares, Tenant
from slotwise.model.shares import OTHERS
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Drain, Join
from slotwise.scheduling.situation import Situation

HALF_LIFE = 86_400.0  # seconds; of the use of tenants, where nothing is known of service times


@dataclass(frozen=True)
class ClusterChange:
    """What would be different."""

    add: Mapping[str, int] = field(default_factory=dict)
    """servers of each class that join"""
    remove: Mapping[str, int] = field(default_factory=dict)
    """servers of each class that take no more jobs, those with the fewest jobs first"""
    drain: Sequence[str] = ()
    """servers that take no more jobs"""
    policy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    rate: Mapping[str, float] = field(default_factory=dict)
    """a factor for the arrivals of each type"""
    share: Mapping[str, float] = field(default_factory=dict)
    """the part of the cluster that each tenant is to have"""

    def __bool__(self) -> bool:
        return bool(
            self.add
            or self.remove
            or self.drain
            or self.policy is not None
            or self.options
            or self.rate
            or self.share
        )


def changed(situation: Situation, change: ClusterChange, half_life: float = HALF_LIFE) -> Situation:
    """Return the situation after the change; jobs that it starts at once run. `half_life` is that of new shares, where there are none yet."""
    _check(situation, change)
    policy = (change.policy or situation.policy.name) if change.policy is not None or change.options else None
    if change.share:
        shares = shares_after(situation.shares, change.share, half_life)
        types = [*situation.types, *own_types(situation, change)]
        core = Scheduler.from_situation(
            situation, types=types, policy=policy, shares=shares, takes_over=True, **dict(change.options)
        )
    elif policy is not None:
        core = Scheduler.from_situation(situation, policy=policy, **dict(change.options))
    else:
        core = Scheduler.from_situation(situation)
    now = situation.now
    for name, count in change.add.items():
        for n in range(count):
            core.apply(Join(_free_name(situation, name, n), name, now))
    for server in [*change.drain, *_fewest_jobs(situation, change)]:
        core.apply(Drain(server, now))
    return core.situation()


def shares_after(before: Shares | None, parts: Mapping[str, float], half_life: float) -> Shares:
    """Return the shares with which these tenants have these parts of the cluster while all tenants have waiting jobs. All other shares keep their relations.

    A tenant of a group leaves it, because its part is one of the whole cluster.

    >>> after = shares_after(None, {"physics": 0.5, "web": 0.25}, 3600.0)
    >>> [(one.name, one.share) for one in after.tenants], after.others
    ([('physics', 2.0), ('web', 1.0)], 1.0)
    """
    known = before if before is not None else Shares(half_life=half_life)
    kept = tuple(one for one in known.tenants if one.name not in parts)
    groups = tuple(one for one in known.groups if any(tenant.group == one.name for tenant in kept))
    rest = sum(one.share for one in groups) + sum(one.share for one in kept if one.group is None)
    rest += 0.0 if OTHERS in parts else known.others
    left = 1.0 - sum(parts.values())
    if left <= 1e-9 and rest > 0:
        raise InputError(
            f"parts add up to {sum(parts.values()):g}", where="share", remedy="leave a part for all other tenants"
        )
    whole = rest / left if rest > 0 else 1.0
    return known.model_copy(
        update={
            "tenants": (
                *kept,
                *(Tenant(name=name, share=part * whole) for name, part in parts.items() if name != OTHERS),
            ),
            "groups": groups,
            "others": parts[OTHERS] * whole if OTHERS in parts else known.others,
        }
    )


def own_types(situation: Situation, change: ClusterChange) -> list[JobType]:
    """Return the types of tenants that get a share and had none: types of other jobs are charged to all other tenants, as in the service."""
    listed = [] if situation.shares is None else situation.shares.names
    taken = {one.name for one in situation.types}
    return [
        one.model_copy(update={"name": f"{tenant}/{one.name}", "tenant": tenant})
        for tenant in change.share
        if tenant != OTHERS and tenant not in listed
        for one in situation.types
        if one.tenant is None and f"{tenant}/{one.name}" not in taken
    ]


def _check(situation: Situation, change: ClusterChange) -> None:
    classes = [one.name for one in situation.classes]
    for where, names in (("add", change.add), ("remove", change.remove)):
        for name, count in names.items():
            if name not in classes:
                raise InputError(
                    f"no server class is called {name!r}", where=where, remedy=f"there are: {', '.join(classes)}"
                )
            if count < 1:
                raise InputError(f"{count} servers of {name}", where=where, remedy="give 1 or more")
    there = [
        str(name)
        for name, status in zip(situation.servers.name, situation.servers.status, strict=True)
        if status == "present"
    ]
    for server in change.drain:
        if server not in there:
            raise InputError(
                f"no server that takes jobs is called {server!r}",
                where="drain",
                remedy=f"there are: {', '.join(there[:10])}{' ...' if len(there) > 10 else ''}",
            )
    types = [one.name for one in situation.types]
    for name, factor in change.rate.items():
        if name not in types:
            raise InputError(f"no type is called {name!r}", where="rate", remedy=f"there are: {', '.join(types)}")
        if not 0 <= factor < 1000:
            raise InputError(f"is {factor:g} for {name}", where="rate", remedy="give a factor such as 1.5")
    for name, part in change.share.items():
        if not 0 < part < 1:
            raise InputError(
                f"is {part:g} for {name}", where="share", remedy="give a part of the cluster such as 0.5"
            )


def _free_name(situation: Situation, name: str, n: int) -> str:
    taken = set(map(str, situation.servers.name))
    found = f"whatif-{name}-{n}"
    while found in taken:
        found += "-"
    return found


def _fewest_jobs(situation: Situation, change: ClusterChange) -> list[Any]:
    """Return the servers that `remove` means."""
    table = situation.servers
    jobs = [0] * len(table.name)
    for server in situation.running.server:
        jobs[server] += 1
    found: list[Any] = []
    for name, count in change.remove.items():
        own = [
            at
            for at, (c, status) in enumerate(zip(table.server_class, table.status, strict=True))
            if situation.classes[c].name == name and status == "present" and table.name[at] not in change.drain
        ]
        if len(own) < count:
            raise InputError(
                f"{count} servers of {name}", where="remove", remedy=f"{len(own)} of them take jobs now"
            )
        found += [table.name[at] for at in sorted(own, key=lambda at: (jobs[at], at))[:count]]
    return found

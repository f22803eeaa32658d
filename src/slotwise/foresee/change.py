"""What if: a situation as it would be after a change, made by the scheduler's own events, so that policies hear of it as they would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotwise.errors import InputError
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Drain, Join
from slotwise.scheduling.situation import Situation


@dataclass(frozen=True)
class Change:
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

    def __bool__(self) -> bool:
        return bool(self.add or self.remove or self.drain or self.policy is not None or self.options or self.rate)


def changed(situation: Situation, change: Change) -> Situation:
    """Return the situation after the change; jobs that it starts at once run."""
    _check(situation, change)
    if change.policy is not None or change.options:
        core = Scheduler.from_situation(
            situation, policy=change.policy or situation.policy.name, **dict(change.options)
        )
    else:
        core = Scheduler.from_situation(situation)
    now = situation.now
    for name, count in change.add.items():
        for n in range(count):
            core.apply(Join(_free_name(situation, name, n), name, now))
    for server in [*change.drain, *_fewest_jobs(situation, change)]:
        core.apply(Drain(server, now))
    return core.situation()


def _check(situation: Situation, change: Change) -> None:
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


def _free_name(situation: Situation, name: str, n: int) -> str:
    taken = set(map(str, situation.servers.name))
    found = f"whatif-{name}-{n}"
    while found in taken:
        found += "-"
    return found


def _fewest_jobs(situation: Situation, change: Change) -> list[Any]:
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

"""Types that come and go with demand: which types were made for demands, for which tenant, and when each was last used.

A job that names no type joins a type that is no larger than the type that would be made for it alone (see `demands`); if there is none, that
type is made. A made type that no job has used for long is dropped. Types that an operator has named stay.

Each type costs the policy time, so types are limited: to `max_types` in all, and to `max_own` for one tenant once half of `max_types` are
taken. At a limit, the type that has been idle for longest is dropped. If no type is idle, the job joins a type that covers it with more waste;
for jobs that no type covers, a tenant has `max_own` types more, each as large as a server. So a tenant with many odd demands changes the types of its own jobs only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from slotwise.errors import InputError
from slotwise.live.demands import FoundType, Requires, find_type
from slotwise.model import Cluster, JobType

MAX_TYPES = 48  # made for demands: the search for configurations slows down with more
MAX_OWN = 12  # a quarter of MAX_TYPES
UNUSED_SECONDS = 7 * 86_400.0
# A type makes room for another only after so long without use: each change of types rebuilds the core, and other tenants wait for it.
IDLE_SECONDS = 60.0

# Names of the types that have waiting or running jobs.
Used = Callable[[], set[str]]


class TypeWish(NamedTuple):
    """What a job without a type requests, and its tenant."""

    needs: Mapping[str, float]
    requires: Requires
    tenant: str = ""
    owner: str | None = None
    """with shares: the tenant to which the type belongs; None: jobs of all other tenants share it"""
    like: JobType | None = None
    """the type that the job names, which belongs to no tenant"""


@dataclass
class Assigned:
    """The outcome of `TypeBook.assign`, which `TypeBook.keep` takes over once the core has accepted the types."""

    types: list[JobType]
    made: dict[str, float]
    """types that were made for demands, with the time of their last use"""
    owners: dict[str, str]
    """the tenants for which types were made"""
    names: list[str] = field(default_factory=list)
    """the type of each wish"""
    changed: bool = False
    """whether `types` are others than before"""

    def drop(self, name: str) -> None:
        """Drop a type."""
        self.types = [one for one in self.types if one.name != name]
        del self.made[name]
        self.owners.pop(name, None)
        self.changed = True

    def add(self, new: JobType, tenant: str, now: float) -> str:
        """Add a type, under a name that is free."""
        taken, name = {one.name for one in self.types}, new.name
        numbers = itertools.count(2)
        while name in taken:  # by a type of another size that an operator has named so
            name = f"{new.name}-{next(numbers)}"
        self.types.append(new.model_copy(update={"name": name}))
        self.made[name], self.owners[name] = now, tenant
        self.changed = True
        return name


class TypeBook:
    """What is known of types beside their sizes."""

    def __init__(self, max_types: int = MAX_TYPES, unused: float = UNUSED_SECONDS, max_own: int = MAX_OWN) -> None:
        self.max_types, self.unused, self.max_own = max_types, unused, max_own
        self.made: dict[str, float] = {}
        """types that were made for demands, with the time of their last use"""
        self._owners: dict[str, str] = {}
        """the tenants for which types were made; forgotten at a restart"""

    def assign(
        self, wishes: Sequence[TypeWish], cluster: Cluster, types: Sequence[JobType], used: Used, now: float
    ) -> Assigned:
        """Find the type of each wish. Nothing is remembered before `keep`, so a refused request leaves no trace."""
        found = Assigned(list(types), dict(self.made), dict(self._owners))
        used = cache(used)
        for wish in wishes:
            name = self._find(wish, cluster, found, used, now)
            found.names.append(name)
            if name in found.made:
                found.made[name] = now
        return found

    def keep(self, assigned: Assigned) -> None:
        """Remember what was assigned."""
        self.made, self._owners = assigned.made, assigned.owners

    def use(self, name: str, now: float) -> None:
        """Note that a job named this type itself."""
        if name in self.made:
            self.made[name] = now

    def name(self, types: Sequence[JobType]) -> None:
        """Note that an operator has named these types: they stay until an operator drops them."""
        for one in types:
            self.made.pop(one.name, None)
            self._owners.pop(one.name, None)

    def without_unused(self, types: Sequence[JobType], used: Used, now: float) -> list[JobType] | None:
        """Drop the types that no job has used for long; return the types that are left, or None if all stay."""
        old = {name for name, at in self.made.items() if now - at > self.unused}
        old -= used() if old else set()
        left = [one for one in types if one.name not in old]
        if len(left) == len(types) or not left:
            return None
        for name in old:
            del self.made[name]
            self._owners.pop(name, None)
        return left

    # -- inside -------------------------------------------------------------------------------------------------

    def _find(self, wish: TypeWish, cluster: Cluster, found: Assigned, used: Used, now: float) -> str:
        """Return the type of one wish, which may be new."""
        fitting = _fitting(wish, cluster, found.types)
        if not fitting.made:
            return fitting.type.name
        own = {name for name, tenant in found.owners.items() if tenant == wish.tenant}
        if len(own) >= self.max_own and len(found.types) >= self.max_types // 2:
            limited = own
        elif len(found.types) >= self.max_types:
            limited = set(found.made)
        else:
            return found.add(fitting.type, wish.tenant, now)
        idle = {name for name in limited if found.made.get(name, now) <= now - IDLE_SECONDS} - set(found.names)
        idle -= used() if idle else set()
        if idle:
            found.drop(min(idle, key=lambda name: (found.made[name], name)))
            return found.add(fitting.type, wish.tenant, now)
        wider = _fitting(wish, cluster, found.types, wasteful=True)
        if not wider.made:
            return wider.type.name
        if len(own) >= self.max_types // 2 + self.max_own:
            raise InputError(
                f"tenant {wish.tenant!r} has jobs of {len(own)} types that differ in what they need or require",
                where="needs",
                remedy="use fewer different amounts and requirements",
            )
        return found.add(wider.type, wish.tenant, now)


def _fitting(wish: TypeWish, cluster: Cluster, types: Sequence[JobType], *, wasteful: bool = False) -> FoundType:
    """Return the type of a wish among the types of its owner, or a new type of the owner."""
    own = [one for one in types if one.tenant == wish.owner]
    if wish.like is not None:
        made = wish.like.model_copy(update={"name": owned(wish.owner, wish.like.name), "tenant": wish.owner})
        same = [one for one in own if (one.demand, one.requires) == (made.demand, made.requires)]
        return FoundType(same[0], made=False) if same else FoundType(made, made=True)
    found = find_type(wish.needs, wish.requires, cluster, own, wasteful=wasteful)
    if not found.made or wish.owner is None:
        return found
    name = owned(wish.owner, found.type.name)
    return FoundType(found.type.model_copy(update={"name": name, "tenant": wish.owner}), made=True)


def owned(owner: str | None, name: str) -> str:
    """Return the name of a tenant's type.

    >>> owned("physics", "cpu2")
    'physics/cpu2'
    """
    return name if owner is None else f"{owner}/{name}"

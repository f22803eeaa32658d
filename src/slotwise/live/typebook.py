"""Types that come and go with demand: which of them were made here, who used them last, and which demands were seen.

A job that comes with a demand only joins the covering type of least waste; where none covers it, a type is made. A type that was made so
and that nobody has used for long goes again. Where there are more than `max_types`, covers of what was seen are chosen anew, wasting the
least, and the types that nobody uses at that moment make room for them. Types that an operator has named stay.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from slotwise.live.demands import Requires, covers, exact, find_type, named, sorted_requires
from slotwise.model import Cluster, JobType
from slotwise.model.labels import matches
from slotwise.workloads.covers import assign, choose_covers
from slotwise.workloads.fitting import split_to_fit

MAX_TYPES = 48
UNUSED_SECONDS = 7 * 86_400.0
SEEN = 300
"""different demands that are remembered, the newest of them"""
TRIES = 4
"""of the search for covers: users wait for it"""

Wish = tuple[Mapping[str, float], Requires]
Used = Callable[[], set[str]]
"""the names of types of which jobs wait or run"""
Seen = tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[Decimal, ...]]


class TypeBook:
    """What is known of types beside their sizes."""

    def __init__(self, max_types: int = MAX_TYPES, unused: float = UNUSED_SECONDS) -> None:
        self.max_types, self.unused = max_types, unused
        self.made: dict[str, float] = {}
        """types that were made here, with the time of their last use"""
        self._seen: dict[Seen, int] = {}

    def assign(
        self, wishes: Sequence[Wish], cluster: Cluster, types: Sequence[JobType], used: Used, now: float
    ) -> tuple[list[str], list[JobType] | None]:
        """The type of each wish by name, and all types if they are to change."""
        for needs, requires in wishes:
            self._see(exact(needs, cluster), requires)
        known = list(types)
        names = [self._find(wish, cluster, known) for wish in wishes]
        made = [one for one in known if one.name not in {old.name for old in types}]
        if made and len(known) > self.max_types:
            known = self._choose_anew(cluster, types, used)
            names = [self._find(wish, cluster, known) for wish in wishes]
            made = [one for one in known if one.name not in {old.name for old in types}]
        gone = {one.name for one in types} - {one.name for one in known}
        self.made = {name: at for name, at in self.made.items() if name not in gone}
        self.made |= dict.fromkeys((one.name for one in made), now)
        for name in names:
            if name in self.made:
                self.made[name] = now
        return names, known if made or gone else None

    def use(self, name: str, now: float) -> None:
        """A job named this type itself."""
        if name in self.made:
            self.made[name] = now

    def name(self, types: Sequence[JobType]) -> None:
        """An operator has named these: they stay until an operator says otherwise."""
        for one in types:
            self.made.pop(one.name, None)

    def without_unused(self, types: Sequence[JobType], used: Used, now: float) -> list[JobType] | None:
        """The types that are left when those go that nobody has used for long; None where all stay."""
        old = {name for name, at in self.made.items() if now - at > self.unused}
        old -= used() if old else set()
        left = [one for one in types if one.name not in old]
        if len(left) == len(types) or not left:
            return None
        for name in old:
            del self.made[name]
        return left

    # -- inside -------------------------------------------------------------------------------------------------

    def _find(self, wish: Wish, cluster: Cluster, known: list[JobType]) -> str:
        found = find_type(*wish, cluster, known)
        if not found.made:
            return found.type.name
        taken, name = {one.name for one in known}, found.type.name
        numbers = itertools.count(2)
        while name in taken:  # by a type that an operator has named so, and made otherwise
            name = f"{found.type.name}-{next(numbers)}"
        known.append(found.type.model_copy(update={"name": name}))
        return name

    def _see(self, demand: tuple[Decimal, ...], requires: Requires) -> None:
        key = sorted_requires(requires), demand
        self._seen[key] = self._seen.pop(key, 0) + 1
        if len(self._seen) > SEEN:
            del self._seen[next(iter(self._seen))]

    def _choose_anew(self, cluster: Cluster, types: Sequence[JobType], used: Used) -> list[JobType]:
        """Types that stay, and covers of all demands that were seen, and of types whose demands were seen so long ago that they are forgotten."""
        busy = used()
        stay = [one for one in types if one.name not in self.made or one.name in busy]
        points = Counter(self._seen)
        known_by = [
            find_type(dict(zip(cluster.resources, map(float, d), strict=True)), dict(r), cluster, types)
            for r, d in points
        ]
        remembered = {found.type.name for found in known_by}
        for one in types:
            if one.name in self.made and one.name not in remembered:
                points[sorted_requires(one.requires), tuple(one.demand)] += 1
        groups: dict[Any, list[tuple[tuple[Decimal, ...], int]]] = {}
        for (requires, demand), count in points.items():
            groups.setdefault(requires, []).append((demand, count))
        named_here = sum(one.name not in self.made for one in types)
        room = max(len(groups), self.max_types - named_here)
        known = {one.name for one in stay}
        for requires, group in groups.items():
            most = max(1, room * len(group) // max(1, len(points)))
            for one in covers_of(group, dict(requires), cluster, most):
                if one.name not in known:
                    known.add(one.name)
                    stay.append(one)
        return stay


def covers_of(
    group: Sequence[tuple[tuple[Decimal, ...], int]],
    requires: dict[str, tuple[str, ...]],
    cluster: Cluster,
    most: int,
) -> list[JobType]:
    """At most so many types that cover these demands, wasting the least; more where no server could hold a cover of two that it can hold."""
    holds = [one.capacity for one in cluster.servers if matches(requires, one.labels)]
    fit = [(demand, count) for demand, count in group if any(covers(size, demand) for size in holds)]
    if not fit:
        return []
    largest = [max(size[r] for size in holds) or Decimal(1) for r in range(len(cluster.resources))]
    shares = [{float(demand[r] / largest[r]): demand[r] for demand, _ in fit} for r in range(len(largest))]
    """a cover has the coordinates of demands, so that each share leads back to the exact amount"""
    points = np.array([[float(x / c) for x, c in zip(demand, largest, strict=True)] for demand, _ in fit])
    chosen = choose_covers(points, np.array([float(count) for _, count in fit]), most, tries=TRIES)
    rooms = [[float(c / most) for c, most in zip(size, largest, strict=True)] for size in holds]
    sizes, _ = split_to_fit(chosen, assign(points, chosen).astype(np.int32), points, rooms)
    return [named([shares[r][x] for r, x in enumerate(row)], requires, cluster) for row in sizes.tolist()]

"""Maintenance windows, and what is expected of jobs while there is one.

A server with a window ahead takes a job only if the job is expected to end before the window begins. The core knows servers that take jobs and
servers that take none. So the server is closed (drained) while a job waits that it could hold and that would not end in time. Otherwise it is open.
A job that arrives closes the server before the core is told of the job. So no policy starts a job that is expected to reach into the window. Short
jobs use the server up to the window unless longer jobs wait.

A window may reserve the server for a tenant. Then jobs of this tenant need not end before the window, and in the window they are placed on the server,
which is closed for all other jobs.

What is expected of a job: its time limit, else the duration that its user expects, else what was learnt of its type, else what the operator assumes.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from slotwise.live.store.protocol import Store
from slotwise.model import JobType, ServerClass
from slotwise.model.labels import matches

LEARNT_SHARE = 95  # percent of the jobs of a type that end within its learnt duration
LEAST_ENDED = 20  # jobs of a type of which a duration is learnt


class PlacementKey(NamedTuple):
    """What decides whether a server can hold a job."""

    type: str
    demand: str | None
    """JSON: what the job is charged; None: not known, it may fit anywhere"""
    tenant: str = ""


class Expected:
    """How long jobs take that the core knows, and the longest that waits. `waits` says whether a job waits."""

    def __init__(self, waits: Callable[[int], bool]) -> None:
        self._waits = waits
        self._of: dict[int, tuple[PlacementKey, float | None]] = {}
        self._given: dict[PlacementKey, list[tuple[float, int]]] = {}
        """heaps of waiting jobs whose durations are given, longest first; also of some that no longer wait"""
        self._others: dict[PlacementKey, list[tuple[float, int]]] = {}
        """the same of jobs whose durations are not given"""
        self.learnt: Mapping[str, float] = {}

    def add(self, number: int, group: PlacementKey, seconds: float | None) -> None:
        """A job waits, or runs. `seconds` is its time limit or expected duration."""
        self._of[number] = group, seconds
        self.waits_again(number)

    def waits_again(self, number: int) -> None:
        """A job is back in its queue."""
        if number in self._of:
            group, seconds = self._of[number]
            heaps = self._others if seconds is None else self._given
            heapq.heappush(heaps.setdefault(group, []), (-(seconds or 0.0), number))

    def drop(self, number: int) -> None:
        """A job has ended."""
        self._of.pop(number, None)

    def known(self, number: int) -> tuple[PlacementKey, float | None]:
        """Return group and expectation of a job."""
        return self._of.get(number, (PlacementKey("", None), None))

    def seconds(self, group: PlacementKey, given: float | None, assumed: float) -> float:
        """Return how long a job takes."""
        return self.learnt.get(group.type, assumed) if given is None else given

    def longest(self, fits: Callable[[PlacementKey], bool], assumed: float) -> float:
        """Return how long the longest waiting job takes of those that a server can hold; 0: none waits."""
        most = 0.0
        for heaps in (self._given, self._others):
            for group in list(heaps):
                top = self._top(heaps, group)
                if top is not None and fits(group):
                    most = max(most, self.seconds(group, -top if heaps is self._given else None, assumed))
        return most

    def waiting_of(self, tenant: str) -> list[tuple[int, PlacementKey]]:
        """Return the waiting jobs of a tenant, by number."""
        found = {
            number: group
            for heaps in (self._given, self._others)
            for group, heap in heaps.items()
            if group.tenant == tenant
            for _, number in heap
            if number in self._of and self._waits(number)
        }
        return sorted(found.items())

    def _top(self, heaps: dict[PlacementKey, list[tuple[float, int]]], group: PlacementKey) -> float | None:
        """Return the key of the first job of a group that still waits; forget those before it."""
        heap = heaps[group]
        while heap:
            key, number = heap[0]
            if number in self._of and self._waits(number):
                return key
            heapq.heappop(heap)
        del heaps[group]
        return None


def can_hold(
    group: PlacementKey, types: Mapping[str, JobType], server_class: ServerClass, resources: Iterable[str]
) -> bool:
    """Return whether an empty server of a class could hold a job of a group."""
    found = types.get(group.type)
    if found is not None and not matches(found.requires, server_class.labels):
        return False
    if group.demand is None:
        return True
    charged: dict[str, float] = json.loads(group.demand)
    has = dict(zip(resources, map(float, server_class.capacity), strict=True))
    return all(amount <= has.get(resource, 0.0) for resource, amount in charged.items())


def jobs_of(store: Store) -> list[tuple[int, PlacementKey, float | None]]:
    """Return the jobs that the core knows, each with its time limit or the duration that its user expects."""
    rows = store.ask(
        "SELECT job.id, job.type, job.spec, spec.demand, tenant, spec.body FROM job JOIN spec ON spec.id = job.spec"
        " WHERE state IN ('waiting', 'placed', 'running')"
    )
    bodies: dict[int, float | None] = {}
    for _, _, spec, _, _, body in rows:
        if spec not in bodies:
            bodies[spec] = given(json.loads(body))
    return [
        (int(number), PlacementKey(kind, demand, tenant), bodies[spec])
        for number, kind, spec, demand, tenant, _ in rows
    ]


def given(spec: Mapping[str, Any]) -> float | None:
    """Return the time limit of a submission, else the duration that its user expects."""
    found = spec.get("time", spec.get("duration"))
    return None if found is None else float(found)


def learnt_of(store: Store) -> dict[str, float]:
    """Return for each type the time within which `LEARNT_SHARE` percent of its jobs have ended, of types with enough of them."""
    rows = store.ask(
        "SELECT type, max(n), max(CASE WHEN place = (n * ? + 99) / 100 THEN took END) FROM (SELECT type, took,"
        " row_number() OVER (PARTITION BY type ORDER BY took) AS place, count(*) OVER (PARTITION BY type) AS n"
        " FROM (SELECT type, ended - started AS took FROM job WHERE state IN ('done', 'failed') AND started IS NOT NULL"
        ") AS ran) AS ranked GROUP BY type",
        [LEARNT_SHARE],
    )
    return {kind: float(took) for kind, count, took in rows if count >= LEAST_ENDED}

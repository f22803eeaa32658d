"""Held jobs: jobs that the store has and the core does not know yet.

A job is held for up to three reasons. Jobs that it waits for have not ended. The back-off before its next attempt is not over. Its array has as
many active jobs as it may have. When no reason is left, the job is ready, and the ledger submits it to the core, unless the quota of its tenant
holds it (`slotwise.live.quotas`). A job that can never become ready is doomed, and the ledger ends it.

The books follow from the rows of the store alone: `slotwise.live.restart` makes them anew. So a job that is ready or doomed may be left for a
later transaction, as happens where one end releases thousands of jobs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from slotwise.live.store.records import DONE

if TYPE_CHECKING:
    from slotwise.live.newjob import NewJob


class Key(NamedTuple):
    """What a job waits for: a job, or with `whole` all jobs of the array of this number."""

    number: int
    whole: bool


class KeyMembers:
    """The jobs that a key means."""

    __slots__ = ("bad", "left", "waiting")

    def __init__(self) -> None:
        self.left: set[int] = set()
        """jobs that have not ended"""
        self.bad: tuple[int, str] | None = None
        """the first job that was not done, and its state"""
        self.waiting: list[tuple[int, str]] = []
        """held jobs, each with the kind of its dependency"""

    def verdict(self, kind: str) -> bool | None:
        """Return whether a dependency of a kind is fulfilled; None: that is not known yet."""
        if kind == "ok" and self.bad is not None:
            return False
        if self.left:
            return None
        return kind != "failed" or self.bad is not None


class Held:
    """A held job. `attempts` counts its placements so far, `due` is when its back-off is over."""

    __slots__ = ("attempts", "due", "is_doomed", "is_ready", "job", "open")

    def __init__(self, job: NewJob, attempts: int, due: float | None) -> None:
        self.job, self.attempts, self.due = job, attempts, due
        self.open: list[tuple[Key, str]] = []
        """dependencies that are not fulfilled"""
        self.is_ready = self.is_doomed = False


class Slots:
    """An array of which only so many jobs may be active: known to the core, or ready."""

    __slots__ = ("active", "at_once", "held", "queue")

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.active: set[int] = set()
        self.held: set[int] = set()
        """jobs that are held, also those that are ready"""
        self.queue: list[int] = []
        """a heap of held jobs that wait for nothing else; also some that have ended"""


class Holds:
    """All held jobs."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._groups: dict[Key, KeyMembers] = {}
        self._keys_of: dict[int, list[Key]] = {}
        """groups of a job that has not ended"""
        self._slots: dict[int, Slots] = {}
        self._array_of: dict[int, int] = {}
        """of active and held jobs of arrays with slots"""
        self._due: list[tuple[float, int]] = []
        self._ready: deque[int] = deque()
        self._doomed: deque[tuple[int, str]] = deque()

    def __contains__(self, number: object) -> bool:
        return number in self._held

    def __len__(self) -> int:
        return len(self._held)

    def numbers(self) -> list[int]:
        """Return all held jobs."""
        return list(self._held)

    # -- what becomes held ----------------------------------------------------------------------------------------

    def knows(self, key: Key) -> bool:
        """Return whether jobs wait for a key already, so that its members are known."""
        return key in self._groups

    def watch(self, key: Key, members: Iterable[tuple[int, str, bool]]) -> None:
        """Follow jobs that others will wait for: each with its state, and whether it has ended."""
        group = self._groups[key] = KeyMembers()
        for number, state, has_ended in members:
            if not has_ended:
                group.left.add(number)
                self._keys_of.setdefault(number, []).append(key)
            elif state != DONE and group.bad is None:
                group.bad = number, state

    def throttle(self, array: int, at_once: int, active: Iterable[int]) -> None:
        """Limit the active jobs of an array. Jobs that are held from now on with this array count."""
        slots = self._slots.get(array)
        if slots is None:
            slots = self._slots[array] = Slots(at_once)
        for number in active:
            slots.active.add(number)
            self._array_of[number] = array

    def add(
        self,
        number: int,
        job: NewJob,
        needs: Sequence[tuple[Key, str]] = (),
        *,
        array: int | None = None,
        attempts: int = 0,
        due: float | None = None,
    ) -> None:
        """Hold a job until its needs are fulfilled and its back-off is over. All keys are watched already."""
        held = self._held[number] = Held(job, attempts, due)
        array = self._array_of.get(number, array)
        slots = None if array is None else self._slots.get(array)
        if slots is not None and array is not None:
            self._array_of[number] = array
            slots.active.discard(number)
            slots.held.add(number)
            self._fill(slots)  # a job that is to be executed again has left its slot
        if due is not None:
            heapq.heappush(self._due, (due, number))
        for key, kind in needs:
            group = self._groups[key]
            verdict = group.verdict(kind)
            if verdict is None:
                group.waiting.append((number, kind))
                held.open.append((key, kind))
            elif not verdict:
                self._doom(number, held, key, kind, group)
        self._look_at(number, held)

    # -- what happens ---------------------------------------------------------------------------------------------

    def ended(self, number: int, state: str) -> None:
        """A job has ended, whatever it was before: release what waited for it, and give its slot to the next job of its array."""
        self._held.pop(number, None)
        array = self._array_of.pop(number, None)
        slots = None if array is None else self._slots.get(array)
        if slots is not None and array is not None:
            slots.active.discard(number)
            slots.held.discard(number)
            self._fill(slots)
            self._tidy_slots(array, slots)
        for key in self._keys_of.pop(number, ()):
            group = self._groups.get(key)
            if group is not None:
                group.left.discard(number)
                is_first = state != DONE and group.bad is None
                if is_first:
                    group.bad = number, state
                if is_first or not group.left:
                    self._settle(key, group)

    def wake(self, now: float) -> None:
        """Let jobs go whose back-off is over."""
        while self._due and self._due[0][0] <= now:
            due, number = heapq.heappop(self._due)
            held = self._held.get(number)
            if held is not None and held.due == due:
                held.due = None
                self._look_at(number, held)

    @property
    def next_due(self) -> float:
        """When the next back-off is over; 0 where jobs are ready or doomed now."""
        if self._ready or self._doomed:
            return 0.0
        return self._due[0][0] if self._due else float("inf")

    def take_doomed(self) -> tuple[int, str] | None:
        """Return a job that is to be ended, with the reason. It stays held until `ended` is called."""
        while self._doomed:
            number, reason = self._doomed.popleft()
            if number in self._held:
                return number, reason
        return None

    def next_ready(self) -> int | None:
        """Return a job that is to be submitted to the core, once. It stays held until `take` is called."""
        while self._ready:
            number = self._ready.popleft()
            held = self._held.get(number)
            if held is not None and held.is_ready:
                return number
        return None

    def offer_again(self) -> None:
        """Let `next_ready` return all jobs that are ready, also those that it has returned and that are still held."""
        self._ready = deque(sorted(number for number, held in self._held.items() if held.is_ready))

    def take(self, number: int) -> Held:
        """Return a ready job, which is held no longer."""
        held = self._held.pop(number)
        array = self._array_of.get(number)
        if array is not None:
            self._slots[array].held.discard(number)
            self._tidy_slots(array, self._slots[array])
        return held

    # -- why ------------------------------------------------------------------------------------------------------

    def open_needs(self, number: int) -> list[tuple[Key, str, int, int]]:
        """Return what a held job waits for: key, kind, how many of its jobs have not ended, and the first of them."""
        groups = [(key, kind, self._groups[key].left) for key, kind in self._held[number].open]
        return [(key, kind, len(left), min(left)) for key, kind, left in groups]

    def due_of(self, number: int) -> float | None:
        """Return when the back-off of a held job is over."""
        return self._held[number].due

    def at_once(self, number: int) -> int | None:
        """Return how many jobs of the array of a held job may be active."""
        array = self._array_of.get(number)
        return None if array is None else self._slots[array].at_once

    # -- inside ---------------------------------------------------------------------------------------------------

    def _look_at(self, number: int, held: Held) -> None:
        """Make a job ready if nothing holds it but its array, and the array has a slot."""
        if held.open or held.due is not None or held.is_doomed or held.is_ready:
            return
        array = self._array_of.get(number)
        slots = None if array is None else self._slots[array]
        if slots is None:
            held.is_ready = True
            self._ready.append(number)
        else:
            heapq.heappush(slots.queue, number)
            self._fill(slots)

    def _fill(self, slots: Slots) -> None:
        while slots.queue and len(slots.active) < slots.at_once:
            number = heapq.heappop(slots.queue)
            held = self._held.get(number)
            if held is not None:
                held.is_ready = True
                slots.active.add(number)
                self._ready.append(number)

    def _tidy_slots(self, array: int, slots: Slots) -> None:
        """Forget an array without held jobs: so few are left that all of them may be active."""
        if not slots.held:
            del self._slots[array]
            for number in slots.active:
                self._array_of.pop(number, None)

    def _settle(self, key: Key, group: KeyMembers) -> None:
        """Tell held jobs that wait for a group what is known now."""
        waiting: list[tuple[int, str]] = []
        for number, kind in group.waiting:
            verdict = group.verdict(kind)
            held = self._held.get(number)
            if held is None:
                continue
            if verdict is None:
                waiting.append((number, kind))
                continue
            held.open.remove((key, kind))
            if verdict:
                self._look_at(number, held)
            else:
                self._doom(number, held, key, kind, group)
        group.waiting = waiting
        self._tidy(key, group)

    def _doom(self, number: int, held: Held, key: Key, kind: str, group: KeyMembers) -> None:
        if not held.is_doomed:
            held.is_doomed = True
            self._doomed.append((number, never(key, kind, group.bad)))

    def tidy(self, keys: Iterable[Key]) -> None:
        """Forget groups that no job waits for."""
        for key in keys:
            if key in self._groups:
                self._tidy(key, self._groups[key])

    def _tidy(self, key: Key, group: KeyMembers) -> None:
        if not group.waiting:
            del self._groups[key]
            for number in group.left:
                keys = self._keys_of[number]
                keys.remove(key)
                if not keys:
                    del self._keys_of[number]


def never(key: Key, kind: str, bad: tuple[int, str] | None) -> str:
    """Return why a job will never start.

    >>> never(Key(7, True), "ok", (9, "failed"))
    'never starts: it was to start after ok:7, and job 9 is failed'
    """
    how = f"job {bad[0]} is {bad[1]}" if bad is not None and kind == "ok" else f"{key.number} is done"
    return f"never starts: it was to start after {kind}:{key.number}, and {how}"

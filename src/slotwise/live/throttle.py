"""Arrays of which only so many jobs may be active at the same time (`--array 1-1000%4`).

The other jobs of the array are held: the store has them as waiting, the core does not know them. When an active job has ended, the first
held job of its array is submitted to the core.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotwise.live.ledger import NewJob


class Throttle:
    """One array."""

    def __init__(self, at_once: int, held: Iterable[int], job: NewJob) -> None:
        self.at_once, self.job = at_once, job
        self.held = dict.fromkeys(held)
        """in order; a dictionary, since jobs in its middle are cancelled"""


class Throttles:
    """All arrays that have held jobs."""

    def __init__(self) -> None:
        self._arrays: dict[int, Throttle] = {}
        self._array_of: dict[int, int] = {}
        """of active and held jobs"""

    def __contains__(self, number: object) -> bool:
        """Return whether a job is held."""
        array = self._array_of.get(number) if isinstance(number, int) else None
        return array is not None and number in self._arrays[array].held

    def add(self, array: int, at_once: int, active: Iterable[int], held: Iterable[int], job: NewJob) -> None:
        """Hold jobs of an array; `job` tells how each is submitted."""
        throttle = Throttle(at_once, held, job)
        if throttle.held:
            self._arrays[array] = throttle
            self._array_of |= dict.fromkeys((*active, *throttle.held), array)

    def at_once(self, number: int) -> int:
        """Return how many jobs of a held job's array may be active."""
        return self._arrays[self._array_of[number]].at_once

    def drop(self, number: int) -> None:
        """Forget a held job: it was cancelled."""
        array = self._array_of.pop(number)
        del self._arrays[array].held[number]
        self._tidy(array)

    def next_after(self, number: int) -> tuple[int, NewJob] | None:
        """A job has ended: return the held job that becomes active instead, if there is one."""
        array = self._array_of.pop(number, None)
        if array is None or array not in self._arrays:
            return None
        throttle = self._arrays[array]
        following = next(iter(throttle.held))
        del throttle.held[following]
        self._tidy(array)
        return following, throttle.job

    def _tidy(self, array: int) -> None:
        """Forget an array without held jobs."""
        if not self._arrays[array].held:
            del self._arrays[array]
            self._array_of = {job: one for job, one in self._array_of.items() if one != array}

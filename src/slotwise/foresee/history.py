"""What was observed: a row for each job that was submitted, as columns in order of submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class History:
    """Jobs in order of submission; times in one unit, counted from one origin."""

    types: tuple[str, ...]
    submitted: F8
    started: F8
    """NaN: not started"""
    ended: F8
    """NaN: not ended"""
    completed: Flags
    """whether the job ended by itself; False: it was stopped, or has not ended"""
    type: I8
    """positions in `types`"""
    owner: I8
    """a number for each submitter; jobs of one submitter tend to be alike"""
    limit: F8
    """time limit or user's estimate, an upper bound of the duration; NaN: none"""
    demand: F8 | None = None
    """(n, R); None: jobs demand what their types do"""

    def __len__(self) -> int:
        return len(self.submitted)

    def until(self, now: float) -> History:
        """Return what was known at `now`: later submissions are left out, later starts and ends are unknown."""
        n = int(np.searchsorted(self.submitted, now, side="right"))
        started, ended = self.started[:n], self.ended[:n]
        return History(
            self.types,
            self.submitted[:n],
            np.where(started <= now, started, np.nan),
            np.where(ended <= now, ended, np.nan),
            self.completed[:n] & (ended <= now),
            self.type[:n],
            self.owner[:n],
            self.limit[:n],
            None if self.demand is None else self.demand[:n],
        )

    def last(self, n: int) -> History:
        """Return the last n jobs only."""
        rows = slice(max(0, len(self) - n), None)
        return History(
            self.types,
            self.submitted[rows],
            self.started[rows],
            self.ended[rows],
            self.completed[rows],
            self.type[rows],
            self.owner[rows],
            self.limit[rows],
            None if self.demand is None else self.demand[rows],
        )

    def types_as(self, names: Sequence[str]) -> I8:
        """Return the type of each job as a position in `names`; -1 for a type that is not there."""
        place = {name: at for at, name in enumerate(names)}
        return np.array([place.get(name, -1) for name in self.types], np.int64)[self.type]


def empty(types: Sequence[str]) -> History:
    """Return a history in which nothing has happened."""
    none, whole = np.zeros(0), np.zeros(0, np.int64)
    return History(tuple(types), none, none, none, np.zeros(0, np.bool_), whole, whole, none)

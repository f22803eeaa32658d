"""The names of jobs and servers, beside their numbers in the state, and what the state does not hold."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class Extra:
    """What is kept of few jobs only."""

    earlier: int = 0
    """how often it was placed before"""
    demand: NDArray[np.int64] | None = None
    """what it really asks for, where the state does not keep that"""
    duration: float | None = None
    """how long it is expected to run, likewise"""


@dataclass
class Register:
    """Tables by job number and by server."""

    jobs: dict[Hashable, int] = field(default_factory=dict)
    job_of: dict[int, Hashable] = field(default_factory=dict)
    submitted: list[float] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    extras: dict[int, Extra] = field(default_factory=dict)
    servers: dict[Hashable, int] = field(default_factory=dict)
    server_of: dict[int, Hashable] = field(default_factory=dict)
    unused: list[int] = field(default_factory=list)
    """numbers that servers had which were removed: a heap"""

    def make_room(self, max_jobs: int) -> None:
        """For job numbers below."""
        self.submitted += [0.0] * (max_jobs - len(self.submitted))
        self.started += [0.0] * (max_jobs - len(self.started))

    def extra(self, i: int) -> Extra:
        """Of job i, to be written."""
        return self.extras.setdefault(i, Extra())

    def earlier(self, i: int) -> int:
        """How often job i was placed before."""
        extra = self.extras.get(i)
        return 0 if extra is None else extra.earlier

    def forget_job(self, job: Hashable) -> None:
        """It has left; its number may be another's."""
        i = self.jobs.pop(job)
        del self.job_of[i]
        self.extras.pop(i, None)

    def number_for(self, server: Hashable, places: int) -> int:
        """Return a number for a new server: the lowest that is free. It depends on the present servers only."""
        number = heapq.heappop(self.unused) if self.unused else places
        self.servers[server], self.server_of[number] = number, server
        return number

    def forget_server(self, server: Hashable) -> None:
        """It is gone for good."""
        number = self.servers.pop(server)
        del self.server_of[number]
        heapq.heappush(self.unused, number)

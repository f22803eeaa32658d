"""The names of jobs and servers, beside their numbers in the state, and what the state does not hold."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class Extra:
    """What only few jobs have."""

    earlier: int = 0
    """placements before the present one"""
    demand: NDArray[np.int64] | None = None
    """its own demand, if the state keeps only demands of types"""
    duration: float | None = None
    """its expected duration, if the state keeps none"""


@dataclass
class Register:
    """Names and numbers of jobs and servers."""

    jobs: dict[Hashable, int] = field(default_factory=dict)
    job_of: dict[int, Hashable] = field(default_factory=dict)
    submitted: list[float] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    extras: dict[int, Extra] = field(default_factory=dict)
    servers: dict[Hashable, int] = field(default_factory=dict)
    server_of: dict[int, Hashable] = field(default_factory=dict)
    unused: list[int] = field(default_factory=list)
    """numbers of removed servers: a heap"""

    def make_room(self, max_jobs: int) -> None:
        """Make the tables long enough for job numbers below `max_jobs`."""
        self.submitted += [0.0] * (max_jobs - len(self.submitted))
        self.started += [0.0] * (max_jobs - len(self.started))

    def extra(self, i: int) -> Extra:
        """Return the entry of job i, made if there is none."""
        return self.extras.setdefault(i, Extra())

    def earlier(self, i: int) -> int:
        """Return how often job i was placed before."""
        extra = self.extras.get(i)
        return 0 if extra is None else extra.earlier

    def forget_job(self, job: Hashable) -> None:
        """Forget a job that has left. Its number may be given to another job."""
        i = self.jobs.pop(job)
        del self.job_of[i]
        self.extras.pop(i, None)

    def number_for(self, server: Hashable, places: int) -> int:
        """Return the lowest free number for a new server. It depends on the present servers only."""
        number = heapq.heappop(self.unused) if self.unused else places
        self.servers[server], self.server_of[number] = number, server
        return number

    def forget_server(self, server: Hashable) -> None:
        """Forget a removed server."""
        number = self.servers.pop(server)
        del self.server_of[number]
        heapq.heappush(self.unused, number)

"""Who is who: the names of jobs and servers beside the numbers that they have in the state, and what the state has no room for."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class Register:
    """Tables by job number (a list has an entry for every number, a mapping for few) and by server."""

    jobs: dict[Hashable, int] = field(default_factory=dict)
    job_of: dict[int, Hashable] = field(default_factory=dict)
    submitted: list[float] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    earlier: dict[int, int] = field(default_factory=dict)
    """how often a job was placed before; those that never were are not in it"""
    demands: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    """what jobs really ask for, where the state does not keep it"""
    durations: dict[int, float] = field(default_factory=dict)
    """how long jobs are expected to run, likewise"""
    servers: dict[Hashable, int] = field(default_factory=dict)
    server_of: dict[int, Hashable] = field(default_factory=dict)
    unused: list[int] = field(default_factory=list)
    """numbers that servers had which were removed: a heap"""

    def make_room(self, max_jobs: int) -> None:
        """For job numbers below."""
        self.submitted += [0.0] * (max_jobs - len(self.submitted))
        self.started += [0.0] * (max_jobs - len(self.started))

    def forget_job(self, job: Hashable) -> None:
        """It has left; its number may be another's."""
        i = self.jobs.pop(job)
        del self.job_of[i]
        if self.earlier:
            self.earlier.pop(i, None)
        if self.demands:
            self.demands.pop(i, None)
        if self.durations:
            self.durations.pop(i, None)

    def number_for(self, server: Hashable, places: int) -> int:
        """A number for a new server: the lowest that nobody has. It depends on who is there, and on nothing else."""
        number = heapq.heappop(self.unused) if self.unused else places
        self.servers[server], self.server_of[number] = number, server
        return number

    def forget_server(self, server: Hashable) -> None:
        """It is gone for good."""
        number = self.servers.pop(server)
        del self.server_of[number]
        heapq.heappush(self.unused, number)

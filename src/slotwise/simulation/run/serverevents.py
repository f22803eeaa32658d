"""What happens to servers during a run: joins, drains and failures at known times, and random failures with repairs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.model import Cluster
from slotwise.simulation.run.churn import DRAIN, FAIL, JOIN
from slotwise.workloads.laws import generator

MOST_FAILURES = 10_000.0  # between two jobs, of all servers of a class
AT_A_TIME = 16  # as many are drawn from a server's stream
KINDS = {"join": JOIN, "drain": DRAIN, "fail": FAIL}


def check_pace(cluster: Cluster, rate: float) -> None:
    """Refuse servers that fail so often that a run would hardly ever come to its next job."""
    for i, server in enumerate(cluster.servers):
        if server.failures is None or not server.count:
            continue
        turn = server.failures.mean_time_between + server.failures.mean_repair
        often = server.count / turn / max(rate, 1e-300)
        if often > MOST_FAILURES:
            raise InputError(
                f"servers fail {often:.3g} times between two jobs",
                where=f"cluster.servers[{i}] ({server.name}).failures",
                remedy="use longer times, or another unit of time for rates",
            )


class Present(NamedTuple):
    """A server that is there from the start."""

    number: int
    server_class: int
    takes_jobs: bool


class ServerEvents:
    """Servers are numbered by class, in the cluster's order, and those that join later come after all others.

    The n-th server of a class fails and is repaired at times of its own stream, so failures do not depend on what a
    policy does. `drain` and `fail` at known times hit the lowest numbers of the class that were not hit before, and
    for good: such a server is not repaired.
    """

    def __init__(
        self, cluster: Cluster, seed: SeedSequence, present: Sequence[Present] | None = None, places: int = 0
    ) -> None:
        """Prepare the events. `present` are servers other than the cluster's own at the beginning, with numbers
        below `places`."""
        counts = [server.count for server in cluster.servers]
        if present is None:
            self.classes = np.repeat(np.arange(len(counts)), counts)
            """of the servers that are there from the start"""
            self.numbers = np.arange(len(self.classes))
            takes_jobs, places = np.ones(len(self.classes), np.bool_), len(self.classes)
        else:
            self.classes = np.array([one.server_class for one in present], np.int64)
            self.numbers = np.array([one.number for one in present], np.int64)
            takes_jobs = np.array([one.takes_jobs for one in present], np.bool_)
        self.max_servers = places
        self._queue: list[tuple[float, int, int, int]] = []
        """(time, server, kind, class)"""
        self._streams: dict[int, np.random.Generator] = {}
        self._gone: dict[int, float] = {}
        """when a server is drained, or fails, for good"""
        self._drawn: dict[int, list[float]] = {}
        """of each server's stream, the next numbers, the last first"""
        self._turns = [
            (server.failures.mean_time_between, server.failures.mean_repair) if server.failures else None
            for server in cluster.servers
        ]
        self._seed = seed
        for c, server in enumerate(cluster.servers):
            if server.failures is not None:
                for number in self.numbers[(self.classes == c) & takes_jobs].tolist():
                    heapq.heappush(self._queue, (self._stay(number, c, FAIL), number, FAIL, c))
        named = {event.servers for event in cluster.events}
        numbers: dict[str, list[int]] = {
            server.name: self.numbers[(self.classes == c) & takes_jobs].tolist()
            for c, server in enumerate(cluster.servers)
            if server.name in named
        }
        order = [server.name for server in cluster.servers]
        for event in sorted(cluster.events, key=lambda event: event.at):
            c = order.index(event.servers)
            for _ in range(event.count):
                if event.action == "join":
                    number = self.max_servers
                    self.max_servers += 1
                    numbers[event.servers].append(number)
                elif numbers[event.servers]:
                    number = numbers[event.servers].pop(0)
                    self._gone[number] = event.at
                else:
                    continue  # there are no more of this class
                heapq.heappush(self._queue, (event.at, number, KINDS[event.action], c))

    @property
    def any(self) -> bool:
        """Whether there will ever be one."""
        return bool(self._queue)

    def next(self, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the next events, this many or all that are left: when they are due, and what happens (kind,
        server, class). After the last event comes one that is never due."""
        found: list[tuple[float, int, int, int]] = []
        queue, turns, stay = self._queue, self._turns, self._stay
        while len(found) < count and self.next_time < np.inf:
            event = at, number, kind, c = queue[0]
            found.append(event)
            if kind != DRAIN and turns[c] is not None:
                other = JOIN if kind == FAIL else FAIL
                heapq.heapreplace(queue, (at + stay(number, c, other), number, other, c))
            else:
                heapq.heappop(queue)
        if len(found) < count:
            found.append((np.inf, 0, DRAIN, 0))
        times, numbers, kinds, classes = zip(*found, strict=True)
        return np.array(times), np.array([kinds, numbers, classes], np.int64).T.copy()

    @property
    def next_time(self) -> float:
        """When the next event is due; infinite where none is left."""
        queue, gone = self._queue, self._gone
        while gone and queue and queue[0][0] > gone.get(queue[0][1], np.inf):
            heapq.heappop(queue)
        return queue[0][0] if queue else np.inf

    def _stay(self, number: int, c: int, kind: int) -> float:
        """Draw the time until a server of class c fails, or has been repaired."""
        drawn = self._drawn.get(number)
        if not drawn:
            if number not in self._streams:
                self._streams[number] = generator(self._seed, number)
            drawn = self._drawn[number] = self._streams[number].standard_exponential(AT_A_TIME)[::-1].tolist()
        turns = self._turns[c]
        assert turns is not None
        return turns[kind == JOIN] * drawn.pop()

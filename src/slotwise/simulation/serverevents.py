"""What happens to servers during a run: joins, drains and failures at known times, and random failures with repairs."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from slotwise.model import Cluster
from slotwise.simulation.loop import DRAIN, FAIL, JOIN
from slotwise.workloads.laws import generator

KINDS = {"join": JOIN, "drain": DRAIN, "fail": FAIL}


class Columns(NamedTuple):
    """Server events in order of time, as the loop takes them."""

    time: NDArray[np.float64]
    kind: NDArray[np.int64]
    server: NDArray[np.int64]
    server_class: NDArray[np.int64]


class ServerEvents:
    """Servers are numbered by class, in the cluster's order, and those that join later come after all others.

    The n-th server of a class fails and is repaired at times of its own stream, so failures do not depend on what a
    policy does. `drain` and `fail` at known times hit the lowest numbers of the class that were not hit before, and
    for good: such a server is not repaired.
    """

    def __init__(self, cluster: Cluster, seed: SeedSequence) -> None:
        self.initial: list[int] = []
        """the class of each server that is there from the start"""
        numbers: dict[str, list[int]] = {server.name: [] for server in cluster.servers}
        for c, server in enumerate(cluster.servers):
            numbers[server.name] = list(range(len(self.initial), len(self.initial) + server.count))
            self.initial += [c] * server.count
        self.max_servers = len(self.initial)
        self._queue: list[tuple[float, int, int, int]] = []
        """(time, server, kind, class)"""
        self._streams: dict[int, np.random.Generator] = {}
        self._gone: dict[int, float] = {}
        """when a server is drained, or fails, for good"""
        self._cluster, self._seed = cluster, seed
        for number, c in enumerate(self.initial):
            self._draw(number, c, FAIL, 0.0)
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

    def until(self, time: float) -> Columns:
        """All events up to a time that were not handed out yet."""
        rows = []
        while self._queue and self._queue[0][0] <= time:
            at, number, kind, c = heapq.heappop(self._queue)
            if at > self._gone.get(number, np.inf):
                continue
            rows.append((at, kind, number, c))
            if kind != DRAIN:
                self._draw(number, c, JOIN if kind == FAIL else FAIL, at)
        columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        whole = columns[1:].astype(np.int64)
        return Columns(np.ascontiguousarray(columns[0]), *(np.ascontiguousarray(column) for column in whole))

    def _draw(self, number: int, c: int, kind: int, since: float) -> None:
        """The next turn of a server that fails or is repaired at random."""
        failures = self._cluster.servers[c].failures
        if failures is not None:
            stream = self._streams.setdefault(number, generator(self._seed, number))
            mean = failures.mean_time_between if kind == FAIL else failures.mean_repair
            heapq.heappush(self._queue, (since + float(stream.exponential(mean)), number, kind, c))

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
    policy does. `drain` and `fail` at known times hit the lowest numbers of the class that were not hit before.
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
        self._streams: dict[int, tuple[np.random.Generator, float, float]] = {}
        order = [server.name for server in cluster.servers]
        for c, server in enumerate(cluster.servers):
            if server.failures is None:
                continue
            for number in numbers[server.name]:
                stream = generator(seed, number)
                self._streams[number] = (stream, server.failures.mean_time_between, server.failures.mean_repair)
                first = stream.exponential(server.failures.mean_time_between)
                heapq.heappush(self._queue, (float(first), number, FAIL, c))
        for event in sorted(cluster.events, key=lambda event: event.at):
            c = order.index(event.servers)
            for _ in range(event.count):
                if event.action == "join":
                    number = self.max_servers
                    self.max_servers += 1
                    numbers[event.servers].append(number)
                elif numbers[event.servers]:
                    number = numbers[event.servers].pop(0)
                else:
                    continue  # there are no more of this class
                heapq.heappush(self._queue, (event.at, number, KINDS[event.action], c))

    def until(self, time: float) -> Columns:
        """All events up to a time that were not handed out yet."""
        rows = []
        while self._queue and self._queue[0][0] <= time:
            at, number, kind, c = heapq.heappop(self._queue)
            rows.append((at, kind, number, c))
            if number in self._streams:
                stream, up, down = self._streams[number]
                wait = stream.exponential(down if kind == FAIL else up)
                heapq.heappush(self._queue, (at + float(wait), number, JOIN if kind == FAIL else FAIL, c))
        columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        whole = columns[1:].astype(np.int64)
        return Columns(np.ascontiguousarray(columns[0]), *(np.ascontiguousarray(column) for column in whole))

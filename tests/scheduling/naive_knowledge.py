"""What `guarded` knows, a second time: sizes, prices, gains and what it learns of types. `naive_guarded` decides by it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from naive import Configuration, XorShift, capped_of

Sizes = tuple[int, ...]


@dataclass
class Server:
    """A server: its kind, whether it packs, turns or drains, its slots while it turns, its jobs."""

    kind: int
    state: str = "packs"
    slots: Configuration = ()
    jobs: list[Hashable] = field(default_factory=list)
    short: float = (
        0.0  # how much of its best weight it lacks, since which event, and what its turn has lost by that
    )
    since: int = 0
    lost: float = 0.0
    tries: int = 0
    ran: int = 0  # how many jobs ran when its turn began
    goal: int = -1  # the type for which it drains, since which arrival, and in how many it should be over
    began: int = 0
    expected: float = 1.0


class NaiveKnowledge:
    """The cluster, its jobs and what is known of their types."""

    def __init__(
        self,
        capacity: Sequence[Sizes],
        demand: Sequence[Sizes],
        candidates: Sequence[Sequence[Configuration]],
        beta: Callable[[int, int, int], float],
        options: Any,
        seed: int,
    ) -> None:
        self.capacity, self.demand, self.candidates, self.beta = capacity, demand, candidates, beta
        self.c, self.exponent, self.power = options.tightness, options.size_exponent, options.scarcity
        self.capped = capped_of(options)
        self.random = XorShift(seed)
        self.types, self.resources = range(len(demand)), range(len(capacity[0]))
        self.largest = [max(c[r] for c in capacity) for r in self.resources]
        self.by_size = sorted(
            self.types, key=lambda j: (-max(self.shares(demand[j])), -sum(self.shares(demand[j])))
        )
        self.resource_price = [1.0] * len(self.largest)
        self.servers: dict[int, Server] = {}
        self.places = self.lasted = 0
        self.lines: list[list[Hashable]] = [[] for _ in demand]
        self.size: dict[Hashable, Sizes] = {}
        self.type_of: dict[Hashable, int] = {}
        self.age: dict[Hashable, int] = {}
        self.as_types = True
        self.patience, self.overdue = options.patience, options.overdue
        self.guessed = options.durations == "estimate"
        self.drain_share, self.drain_limit = options.drain_share, options.drain_limit
        self.mean_queue = self.credit = 0.0
        self.stretch, self.next_drain, self.next_overdue = 1.0, 0, 0
        self.drained = self.hopeless = self.overdue_first = self.went_on = self.past_heads = 0
        self.persistence, self.floor, self.standing = options.persistence, options.floor, options.standing
        self.kept: dict[int, int] = {}  # on which server the standing slot of a type is
        self.went_first = self.ever_kept = self.slots_taken = 0
        self.clock = self.next_look = 0
        self.turns = self.given_up = 0
        self.pace, self.ended, self.counted = [1.0 for _ in demand], [0 for _ in demand], [0 for _ in demand]
        self.common = [1.0 for _ in demand]
        self.next_estimate, self.estimates, self.arrived = 256, 0, 0
        self.flood, self.flooded, self.long_mean, self.floods = options.flood, False, 0.0, 0
        self.core_turns: Callable[[int], bool] = lambda number: True
        self.told: list[tuple[Hashable, int]] = []
        self.values: dict[Any, float] = {}

    # -- sizes, prices, weights -------------------------------------------------------------------------------------

    def shares(self, size: Sizes) -> list[float]:
        return [size[r] / max(self.largest[r], 1) for r in self.resources]

    def present(self) -> dict[int, Server]:
        return {n: server for n, server in self.servers.items() if server.state != "drains"}

    def alone(self, kind: int, j: int) -> int:
        """How many of the type fit an empty server of that kind."""
        return min(self.capacity[kind][r] // self.demand[j][r] for r in self.resources if self.demand[j][r])

    def slots(self, j: int) -> int:
        return sum(self.alone(server.kind, j) for server in self.present().values())

    def gain(self, j: int) -> float:
        exponent = 0.0 if self.flooded else self.exponent
        return float(math.pow(max(len(self.present()), 1) / max(self.slots(j), 1), exponent) * self.pace[j])

    def notice_arrival(self) -> None:
        """Every 16th arrival counts the running jobs."""
        self.arrived += 1
        if self.arrived % 16 == 0:
            for k in self.types:
                self.counted[k] += sum(self.holds(number)[k] for number in self.servers)
            self.notice_flood()

    def notice_flood(self) -> None:
        waiting, servers = sum(map(len, self.lines)), len(self.present())
        self.long_mean += (waiting - self.long_mean) / min(4096, self.arrived // 16)
        many = max(self.flood * max(30, self.all_running()), 1.5 * self.long_mean)
        if waiting and not servers:
            return  # queues are very long
        if self.flooded:
            self.flooded = waiting >= 0.5 * many
        elif waiting > many and not any(self.takes_server(j) for j in self.types):
            self.flooded = True
            self.floods += 1

    def takes_server(self, j: int) -> bool:
        return 0 < 0.75 * self.slots(j) < len(self.present())

    def fills_server(self, j: int) -> bool:
        """Whether a job takes nine tenths of some resource, in the mean over the servers that can hold it."""
        shares = [
            max(self.demand[j][r] / self.capacity[server.kind][r] for r in self.resources if self.demand[j][r])
            for server in self.present().values()
            if self.alone(server.kind, j)
        ]
        return bool(shares) and sum(shares) >= 0.9 * len(shares)

    def notice_end(self, j: int) -> None:
        """Learn how long jobs run, whenever the completions have doubled."""
        self.ended[j] += 1
        total = sum(self.ended)
        if total >= self.next_estimate:
            self.next_estimate, self.estimates = 2 * total, self.estimates + 1
            mean = sum(self.counted) / total
            for k in self.types:
                own = (self.counted[k] + 10 * mean) / (self.ended[k] + 10)
                octaves = math.floor(math.log2(mean / own) + 0.5) if own else 0
                self.pace[k] = math.sqrt(2.0 ** max(-10, min(10, octaves)))

            used = [n / max(self.slots(k), 1) for k, n in enumerate(self.counted)]
            for k in self.types:
                share = max(self.counted[k] / sum(self.counted), used[k] / sum(used)) if sum(used) else 1.0
                self.common[k] = min(1.0, math.ceil(4 * len(used) * share / 0.3) / 4)

    def price(self, j: int) -> float:
        return sum(
            self.resource_price[r] * self.demand[j][r] / self.largest[r] for r in self.resources if self.largest[r]
        )

    def scarcity(self, j: int) -> float:
        """How much more room all servers have than those that can hold the type."""
        rooms = [
            (sum(c / m for c, m in zip(self.capacity[server.kind], self.largest, strict=True) if m), server.kind)
            for server in self.present().values()
        ]
        able = sum(room for room, kind in rooms if self.alone(kind, j))
        return sum(room for room, _ in rooms) / able if able else 1.0

    def weights(self) -> list[float]:
        return [self.gain(j) * len(self.lines[j]) + self.c * self.price(j) * self.scarcity(j) for j in self.types]

    def free(self, number: int) -> Sizes:
        server = self.servers[number]
        taken = [self.size[job] for job in server.jobs]
        taken += [self.demand[j] for j, holder in self.kept.items() if holder == number]
        return tuple(self.capacity[server.kind][r] - sum(size[r] for size in taken) for r in self.resources)

    def holds(self, number: int) -> list[int]:
        return [sum(self.type_of[job] == j for job in self.servers[number].jobs) for j in self.types]

    def usable(self, room: Sizes) -> float:
        """V(room), by trying everything."""
        prices = tuple(self.common[j] * self.price(j) for j in self.types)
        if (room, prices) not in self.values:
            most = [min(room[r] // w[r] for r in self.resources if w[r]) for w in self.demand]
            self.values[room, prices] = max(
                sum(n * p for n, p in zip(k, prices, strict=True))
                for k in itertools.product(*(range(n + 1) for n in most))
                if all(
                    sum(n * w[r] for n, w in zip(k, self.demand, strict=True)) <= room[r] for r in self.resources
                )
            )
        return self.values[room, prices]

    def spoilt(self, number: int, job: Hashable) -> float:
        room, size = self.free(number), self.size[job]
        left = tuple(a - b for a, b in zip(room, size, strict=True))
        j = self.type_of[job]
        return self.usable(room) - self.common[j] * self.price(j) - self.usable(left)

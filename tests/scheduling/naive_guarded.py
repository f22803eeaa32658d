"""`guarded` a second time: lists, loops and brute force, straight from what docs/theory/guarded.md says it does.

It is told which placements the core made and says whether they are right. Where servers are equally good any of them is; there
it goes on with the core's choice. What two people must agree on beyond the document:

- Types from large to small: by the largest share of the largest capacities, then by the sum of the shares, then by number.
- Fillings: by size, by weight, by weight per share of the server, the last two from high to low and as by size where they
  are equal. Of fillings of equal worth the first is taken. A filling takes the types in its order, each as often as its next
  in line fits, and is started in the order of sizes.
- A job that may go to several turning servers goes to the one with the lowest number; to a packing one where it costs others least. Where the best fit (least
  room left, in shares of the largest capacities) spoils nothing and is not sought by others, it goes there.
- Types below their floors go first, and keep their standing slots, in the order of sizes.
- A server drains for the first in line of the oldest waiting job's type. What may stay is counted from the largest type down. H_k is ln k + 0.5772156649 + 1/2k - 1/12k^2. Of
  servers whose drain costs the same, the one with the lowest number.
- Once a filling has started, whoever still fits goes in, from old to young; and so does an arriving job that is not first in line, where it would go if it were.
- Among configurations of equal weight as Algorithm 1 does (`naive`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from instances import put_back
from naive import Configuration, XorShift, capped_of

Sizes = tuple[int, ...]
NEAR = 1e-7


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


class NaiveGuarded:
    """The policy as it is described."""

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
        elif waiting > many and all(0.75 * self.slots(j) >= servers for j in self.types):
            self.flooded = True
            self.floods += 1

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

    # -- placing ----------------------------------------------------------------------------------------------------

    def start(self, j: int, numbers: Sequence[int]) -> int:
        """Start the head of line on the server among these that the core has taken."""
        assert self.told, f"the core has started nothing where type {j} must start on one of {numbers}"
        job, number = self.told.pop(0)
        assert job == self.lines[j][0], f"the core has started {job}, not {self.lines[j][0]}"
        assert number in numbers, f"the core has started {job} on {number}, not on one of {numbers}"
        self.lines[j].pop(0)
        self.servers[number].jobs.append(job)
        return number

    def start_job(self, job: Hashable, numbers: Sequence[int]) -> None:
        """Start this job, wherever in line it stands."""
        assert self.told, f"the core has started nothing where {job} must start"
        told, number = self.told.pop(0)
        assert told == job, f"the core has started {told}, not {job}"
        assert number in numbers, f"the core has started {job} on {number}, not on one of {numbers}"
        self.lines[self.type_of[job]].remove(job)
        self.servers[number].jobs.append(job)
        self.past_heads += 1

    def fits(self, number: int, size: Sizes) -> bool:
        return all(a >= b for a, b in zip(self.free(number), size, strict=True))

    def place_heads(self, j: int) -> None:
        while self.lines[j]:
            job = self.lines[j][0]
            turning = [
                n
                for n, server in self.present().items()
                if server.state == "turns" and self.holds(n)[j] < server.slots[j] and self.fits(n, self.demand[j])
            ]
            if turning:
                self.start(j, [min(turning)])
                continue
            best = self.best_servers(job)
            if not best:
                if self.kept.pop(j, None) is None:
                    return
                self.slots_taken += 1
                continue
            self.start(j, best)

    def best_servers(self, job: Hashable, but: int = -1) -> list[int]:
        """The packing servers, but one, on which the job costs others least."""
        packing = [
            n
            for n, server in self.present().items()
            if n != but and server.state == "packs" and self.fits(n, self.size[job])
        ]
        left = {n: sum(self.shares(self.free(n))) for n in packing}
        best_fit = [n for n in packing if left[n] < min(left.values()) + NEAR]
        if not self.as_types:
            return best_fit
        costs = {n: self.spoilt_and_sought(n, job) for n in packing}
        lasts = self.lasts(self.type_of[job])
        if (nothing := [n for n in best_fit if costs[n] < NEAR]) and not lasts:
            return nothing
        self.lasted += lasts and len(packing) > 1
        for n in packing:
            costs[n] += 0.75 * self.price(self.type_of[job]) * (self.free_part(n) + lasts * n / self.places)
        return [n for n in packing if costs[n] < min(costs.values()) + NEAR]

    def lasts(self, j: int) -> bool:
        """Whether jobs of the type run at least twice as long as others who take whole servers, and take less."""
        whole = {k for k in self.types if 0.75 * self.slots(k) < len(self.present())}
        return j not in whole and any(self.pace[k] ** 2 > 1.5 * self.pace[j] ** 2 for k in whole)

    def spoilt_and_sought(self, number: int, job: Hashable) -> float:
        """What the job spoils, unless a larger one waits that may run wherever it may; and what it costs those who must go to this server."""
        j, kind = self.type_of[job], self.servers[number].kind
        h = self.scarcity(j)
        larger = False
        for k in self.by_size:
            if self.lines[k]:
                if self.price(k) <= self.price(j):
                    break
                larger = larger or self.scarcity(k) <= h
        most = max(self.scarcity(k) for k in self.types if self.alone(kind, k))
        return (0.0 if larger else self.spoilt(number, job)) + 2.0 * self.price(j) * max(0.0, 1.0 - h / most)

    def free_part(self, number: int) -> float:
        """How much of the server is free, in prices of resources."""
        parts = zip(self.resource_price, self.shares(self.free(number)), strict=True)
        return sum(price * share for price, share in parts) / sum(self.resource_price)

    def settle(self) -> None:
        for j in self.types:
            self.place_heads(j)

    # -- fillings ---------------------------------------------------------------------------------------------------

    def fillings(self, number: int) -> list[tuple[list[int], float, float]]:
        """For each order of the types: how many of each, what the server then weighs, and what that is worth."""
        w, whole = self.weights(), self.capacity[self.servers[number].kind]

        def density(j: int) -> float:
            share = max((self.demand[j][r] / whole[r] for r in self.resources if whole[r]), default=0.0)
            return w[j] / share if share > 0 else w[j]

        found = []
        for value in (lambda j: 0.0, lambda j: -w[j], lambda j: -density(j)):
            rest, counts = list(self.free(number)), [0 for _ in self.types]
            for j in sorted(self.by_size, key=value):
                for job in self.lines[j]:
                    if any(self.size[job][r] > rest[r] for r in self.resources):
                        break
                    rest = [a - b for a, b in zip(rest, self.size[job], strict=True)]
                    counts[j] += 1
            held = sum(w[j] * (n + counts[j]) for j, n in enumerate(self.holds(number)))
            found.append((counts, held, held + (self.c * self.usable(tuple(rest)) if self.as_types else 0.0)))
        return found

    def best_filling(self, number: int) -> tuple[list[int], float]:
        """Where worths are the same to the last digits, the one that the core has started."""
        found = self.fillings(number)
        top = max(worth for *_, worth in found)
        near = [(counts, held) for counts, held, worth in found if worth > top - NEAR]
        agreed = [n for n, (counts, _) in enumerate(near) if self.is_told(number, counts)]
        return near[max(agreed, key=lambda n: sum(near[n][0]), default=0)]

    def is_told(self, number: int, counts: list[int]) -> bool:
        jobs = [(job, number) for j in self.by_size for job in self.lines[j][: counts[j]]]
        return self.told[: len(jobs)] == jobs

    def start_filling(self, number: int, counts: list[int]) -> None:
        for j in self.by_size:
            for _ in range(counts[j]):
                self.start(j, [number])
        while fitting := [job for job in self.waiting() if self.fits(number, self.size[job])]:
            self.start_job(fitting[0], [number])
        self.settle()

    def waiting(self) -> list[Hashable]:
        """All who wait, from old to young."""
        return sorted(itertools.chain(*self.lines), key=self.age.__getitem__)

    def release(self, number: int) -> None:
        self.kept = {j: holder for j, holder in self.kept.items() if holder != number}

    def runs(self, j: int) -> int:
        return sum(self.holds(number)[j] for number in self.servers)

    def low(self, j: int) -> bool:
        came = [self.ended[k] + self.runs(k) + len(self.lines[k]) for k in self.types]
        seldom = came[j] * len(came) <= 0.3 * sum(came)
        return seldom and (self.runs(j) + 1) * len(self.demand) <= self.floor * self.slots(j)

    def serve_floors(self, number: int) -> None:
        if not self.servers[number].jobs:
            self.release(number)
            return
        for j in self.by_size:
            while self.lines[j] and self.low(j) and self.fits(number, self.size[self.lines[j][0]]):
                self.start(j, [number])
                self.went_first += 1
        for j in self.by_size:
            wanted = len(self.demand) <= self.standing * self.slots(j) and self.low(j) and not self.lines[j]
            known = self.ended[j] or self.runs(j)
            kinds = {server.kind for server in self.present().values() if self.alone(server.kind, j)}
            sought = self.sought(self.servers[number].kind, j) and not all(self.sought(kind, j) for kind in kinds)
            if wanted and known and not sought and j not in self.kept and self.fits(number, self.demand[j]):
                self.kept[j] = number
                self.ever_kept += 1

    def sought(self, kind: int, j: int) -> bool:
        """Whether somebody waits for servers of this kind who can go to fewer than type j."""
        return any(
            self.lines[k] and self.alone(kind, k) and self.scarcity(k) > self.scarcity(j) for k in self.types
        )

    def refill(self, number: int) -> None:
        self.serve_floors(number)
        turning = sum(server.state == "turns" for server in self.servers.values())
        share = self.beta(sum(map(len, self.lines)), turning, len(self.present()))
        counts, held = self.best_filling(number)
        if share > 0:
            weighed = self.weighed(number)
            if held < share * max(weighed):
                self.turn(number, weighed)
                return
        self.start_filling(number, counts)

    # -- turning ----------------------------------------------------------------------------------------------------

    def weighed(self, number: int) -> list[float]:
        """The weights of all candidates."""
        w = self.weights()
        return [sum(w[j] * k[j] for j in self.types) for k in self.candidates[self.servers[number].kind]]

    def turn(self, number: int, weighed: list[float]) -> None:
        server = self.servers[number]
        table = self.candidates[server.kind]
        tied = [k for k, weight in zip(table, weighed, strict=True) if weight == max(weighed)]
        server.slots = tied[0]
        if len(tied) > 1:
            within = [k for k in tied if self.within(number, k)] if server.jobs else []
            among = within or tied
            server.slots = among[self.random.below(len(among))]
        self.begin_turn(number)

    def begin_turn(self, number: int) -> None:
        server = self.servers[number]
        server.state, server.short, server.lost, server.ran = "turns", 0.0, 0.0, self.all_running()
        self.release(number)
        self.turns += 1
        self.go_on_turning(number)

    def within(self, number: int, k: Configuration) -> bool:
        return all(n <= k[j] for j, n in enumerate(self.holds(number)))

    def go_on_turning(self, number: int) -> None:
        server = self.servers[number]
        for j in self.by_size:
            while (
                self.holds(number)[j] < server.slots[j]
                and self.lines[j]
                and self.fits(number, self.size[self.lines[j][0]])
            ):
                self.start(j, [number])
        if any(self.lines) and not self.within(number, server.slots) and not self.has_drained(number):
            w, best = self.weights(), max(self.weighed(number))
            held = sum(w[j] * n for j, n in enumerate(self.holds(number)))
            self.lose(server)
            server.short = 1.0 - held / best if best > 0 else 0.0
            self.settle()
            return
        server.tries = 0
        self.end_turn(number)

    def end_turn(self, number: int) -> None:
        self.end_drain(self.servers[number])
        self.servers[number].state, self.servers[number].slots = "packs", ()
        if any(self.lines):
            self.start_filling(number, self.best_filling(number)[0])

    def lose(self, server: Server) -> None:
        server.lost += server.short * (self.clock - server.since)
        server.since = self.clock

    def look_at_turns(self) -> None:
        """Every now and then: give up the turns that have lost too much, and the drains that take too long."""
        running = self.all_running()
        if self.clock < self.next_look or not any(server.state == "turns" for server in self.servers.values()):
            return
        self.next_look = self.clock + 1 + running // 4
        for number, server in sorted(self.servers.items()):
            if server.state != "turns":
                continue
            self.lose(server)
            if server.goal >= 0:
                if len(self.age) - server.began > self.drain_limit * max(1.0, self.stretch) * server.expected:
                    server.tries += 1
                    self.hopeless += 1
                    self.end_turn(number)
                continue
            enough = self.persistence * 2**server.tries * max(server.ran, self.all_running())
            near = abs(server.lost - enough) < NEAR
            if (server.lost >= enough and not near) or (near and not self.core_turns(number)):
                server.tries += 1
                self.given_up += 1
                self.end_turn(number)

    # -- drains -----------------------------------------------------------------------------------------------------

    def all_running(self) -> int:
        return sum(len(server.jobs) for server in self.servers.values())

    def notice_queue(self) -> None:
        if self.arrived % 16 == 0:
            self.mean_queue += (sum(map(len, self.lines)) - self.mean_queue) / min(256, self.arrived // 16)
            self.credit = min(
                self.credit + self.drain_share * len(self.present()) * 16, 2.0 * (self.all_running() + 1)
            )

    def mean_stay(self) -> float:
        return float(self.mean_queue + self.all_running())

    def overdue_age(self, job: Hashable) -> float:
        pace = self.pace[self.type_of[job]]
        return float(self.overdue * (self.mean_queue + max(1.0, 1.0 / (pace * pace)) * self.all_running()))

    def lateness(self, job: Hashable) -> float:
        return (len(self.age) - self.age[job]) / max(self.overdue_age(job), 1e-9)

    def serve_overdue(self, number: int) -> None:
        if len(self.age) < self.next_overdue:
            return
        while any(self.lines):
            job = max((line[0] for line in self.lines if line), key=self.lateness)
            ratio = self.lateness(job)
            if ratio < 1.0:
                self.next_overdue = len(self.age) + int(0.5 * self.overdue * self.mean_stay() * (1.0 - ratio))
                return
            if not self.fits(number, self.size[job]):
                return
            self.start(self.type_of[job], [number])
            self.overdue_first += 1

    def go_on_with(self, number: int, j: int) -> None:
        if self.servers[number].jobs or not self.lines[j] or self.waiting()[0] != self.lines[j][0]:
            return
        if self.runs(j) and not self.others_gain_less(number, j):
            return
        if self.fits(number, self.size[self.lines[j][0]]):
            self.start(j, [number])
            self.went_on += 1

    def others_gain_less(self, number: int, j: int) -> bool:
        """Whether n S_j max(1, S_j / S) <= Q_j S H_n, for the n others of the best filling."""
        counts = [0 if k == j else n for k, n in enumerate(self.best_filling(number)[0])]
        n = sum(counts)
        if n == 0:
            return False
        time = sum(count / self.pace[k] ** 2 for k, count in enumerate(counts)) / n
        mine = 1.0 / self.pace[j] ** 2
        return n * mine * max(1.0, mine / time) <= len(self.lines[j]) * time * harmonic(n)

    def has_drained(self, number: int) -> bool:
        server = self.servers[number]
        j = server.goal
        return j >= 0 and (self.holds(number)[j] >= server.slots[j] or not self.lines[j])

    def end_drain(self, server: Server) -> None:
        if server.goal >= 0:
            took = len(self.age) - server.began
            self.stretch += 0.125 * (took / server.expected - self.stretch)
            self.credit -= took
            server.goal = -1

    def plan(self, number: int, goal: int) -> tuple[list[int], float, float]:
        """What may stay beside one job of the type, the mean time S of those who must leave, and S H_k."""
        kind, on = self.servers[number].kind, self.holds(number)
        room = [a - b for a, b in zip(self.capacity[kind], self.demand[goal], strict=True)]
        stay, leave, time = [0 for _ in self.types], 0, 0.0
        for j in self.by_size:
            size = self.demand[j]
            stay[j] = min([on[j], *(room[r] // size[r] for r in self.resources if size[r])])
            room = [a - stay[j] * b for a, b in zip(room, size, strict=True)]
            leave += on[j] - stay[j]
            time += (on[j] - stay[j]) / (self.pace[j] * self.pace[j])
        stay[goal] += 1
        if not leave:
            return stay, 0.0, 0.0
        return stay, time / leave, time / leave * harmonic(leave)

    def cost(self, number: int, goal: int) -> float:
        whole, size = self.capacity[self.servers[number].kind], self.demand[goal]
        largest = max((r for r in self.resources if whole[r]), key=lambda r: size[r] / whole[r])
        part = min(1.0, self.free(number)[largest] / size[largest])
        _, mean, time = self.plan(number, goal)
        return max(1.0, self.stretch) * (time - mean * (1.0 - part))

    def choose_drain(self) -> None:
        if self.clock < self.next_drain:
            return
        self.next_drain = self.clock + 1 + self.all_running() // 4
        turning = sum(server.state == "turns" for server in self.servers.values())
        if not any(self.lines) or self.capped(turning, len(self.present())):
            return
        oldest = self.waiting()[0]
        goal, waited = self.type_of[oldest], len(self.age) - self.age[oldest]
        overdue = self.credit > 0 and waited >= 2 * self.overdue_age(oldest)
        if any(server.goal == goal for server in self.servers.values()) or (self.runs(goal) and not overdue):
            return
        able = [
            (self.cost(n, goal), n)
            for n, server in sorted(self.servers.items())
            if server.state == "packs"
            and self.alone(server.kind, goal)
            and (overdue or not any(held and self.lines[j] for j, held in enumerate(self.holds(n))))
        ]
        if not able:
            return
        least, number = min(able)
        others = sum(map(len, self.lines)) - len(self.lines[goal])
        if not overdue and waited < self.patience * least * (1 + others) * self.all_running():
            return
        server = self.servers[number]
        stay, _, time = self.plan(number, goal)
        server.slots, server.goal, server.began = tuple(stay), goal, len(self.age)
        server.expected = max(time, 0.1) * max(self.all_running(), 1)
        self.drained += 1
        self.begin_turn(number)

    # -- events -----------------------------------------------------------------------------------------------------

    def arrive(self, job: Hashable) -> None:
        j = self.type_of[job]
        self.notice_arrival()
        self.notice_queue()
        self.clock += 1
        if self.size[job] != self.demand[j]:
            self.as_types = False
        self.look_at_turns()
        if self.lines[j][:1] == [job]:
            kept = self.kept.get(j)
            self.place_heads(j)
            if self.kept.get(j) != kept:
                self.settle()
        elif job in self.lines[j] and (best := self.best_servers(job)):
            self.start_job(job, best)

    def submit(self, job: Hashable, j: int, size: Sizes) -> None:
        self.type_of[job], self.size[job], self.age[job] = j, size, len(self.age)
        self.lines[j].append(job)
        self.arrive(job)

    def complete(self, job: Hashable) -> None:
        self.end(job, learns=True)

    def stop(self, job: Hashable) -> None:
        self.end(job, learns=False)

    def requeue(self, job: Hashable) -> None:
        self.end(job, learns=False, again=True)
        if job in self.lines[self.type_of[job]]:
            self.arrive(job)

    def end(self, job: Hashable, *, learns: bool, again: bool = False) -> None:
        number = next(n for n, server in self.servers.items() if job in server.jobs)
        server = self.servers[number]
        server.jobs.remove(job)
        if again:
            self.put_back(job)
        if server.state == "drains":
            return
        if learns:
            self.notice_end(self.type_of[job])
        self.clock += 1
        if not server.jobs:
            self.release(number)
        self.make_use(number, self.type_of[job])

    def make_use(self, number: int, j: int) -> None:
        if self.servers[number].state == "turns":
            self.go_on_turning(number)
        elif any(self.lines):
            self.serve_overdue(number)
            self.go_on_with(number, j)
            self.refill(number)
            self.choose_drain()
        self.look_at_turns()

    def put_back(self, job: Hashable) -> None:
        put_back(self.lines[self.type_of[job]], job, self.age)

    def cancel(self, job: Hashable) -> None:
        self.lines[self.type_of[job]].remove(job)
        self.place_heads(self.type_of[job])

    def add_server(self, number: int, kind: int) -> None:
        self.servers[number] = Server(kind)
        self.places = max(self.places, number + 1)

    def join(self, number: int, kind: int) -> None:
        self.add_server(number, kind)
        if any(self.lines):
            self.refill(number)

    def resume(self, number: int) -> None:
        self.servers[number].state, self.servers[number].tries = "packs", 0
        if any(self.lines):
            self.refill(number)

    def drain(self, number: int) -> None:
        self.end_drain(self.servers[number])
        self.servers[number].state, self.servers[number].slots = "drains", ()
        self.release(number)

    def remove(self, number: int) -> None:
        del self.servers[number]

    def fail(self, number: int) -> None:
        self.release(number)
        self.end_drain(self.servers[number])
        lost = sorted(self.servers.pop(number).jobs, key=self.age.__getitem__)
        for job in reversed(lost):
            self.put_back(job)
        for job in lost:
            if job in self.lines[self.type_of[job]]:
                self.arrive(job)


def harmonic(k: int) -> float:
    """1 + 1/2 + ... + 1/k, to a hundredth."""
    return math.log(k) + 0.5772156649 + 0.5 / k - 1 / (12 * k * k)

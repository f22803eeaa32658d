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
from collections.abc import Hashable, Sequence

from instances import put_back
from naive import Configuration
from naive_knowledge import NaiveKnowledge, Server, Sizes

NEAR = 1e-7


class NaiveGuarded(NaiveKnowledge):
    """The policy as it is described."""

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
        """Whether jobs of the type run at least four times as long as others who fill servers, as far as is known, and take less."""
        whole = {k for k in self.types if self.fills_server(k)}
        return j not in whole and any(self.pace[k] > 1.9 * self.pace[j] for k in whole)

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

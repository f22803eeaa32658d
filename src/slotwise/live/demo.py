"""A living cluster to look at: `slotwise serve --demo`.

Servers of four classes, five types of jobs from four tenants, on a simulated engine at any speed. Load rises and falls; now and then a burst of
large jobs comes, a server is drained and resumed, and one server fails and is repaired. All of it goes through the loop like real
requests and facts, so that everything a dashboard shows has happened. Times are in units of the demo: one unit takes 1 / speed seconds.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from slotwise.errors import SlotwiseError
from slotwise.live.engines.protocol import ServerLost, Start
from slotwise.live.engines.simulated import Durations, SimulatedEngine
from slotwise.live.newjob import NewJob
from slotwise.live.restart import Setup
from slotwise.live.service import Service
from slotwise.live.settings import servers_of
from slotwise.live.spec import body_of
from slotwise.model import Cluster, JobType, ServerClass

log = logging.getLogger(__name__)
Act = Callable[[], None]
SEED = 1  # of the demo, which is the same each time
DAY = 600.0  # units: a demo day is ten minutes, so that a visitor sees the load rise and fall
BURST_EVERY, BURST_JOBS = 240.0, 24
FAIL_EVERY, REPAIR_AFTER = 150.0, 45.0
DRAIN_EVERY, RESUME_AFTER = 200.0, 60.0
BEFORE = 30.0  # units until the first of these

CLUSTER = Cluster(
    resources=("cpu", "memory", "gpu"),
    servers=(
        ServerClass(name="std", count=24, capacity=("32", "128", "0")),
        ServerClass(name="mem", count=8, capacity=("32", "512", "0")),
        ServerClass(name="gpu", count=6, capacity=("48", "256", "8"), labels={"gpu": "a100"}),
        ServerClass(name="edge", count=10, capacity=("8", "16", "0")),
    ),
)


class DemoType(NamedTuple):
    """A type of jobs with how often they come, how long they take, and whose they are."""

    type: JobType
    rate: float
    """per unit of time, on average over the demo day"""
    mean: float
    spread: float
    """standard deviation of the logarithm of the duration"""
    tenants: tuple[str, ...]
    names: tuple[str, ...]


def _kind(
    name: str, demand: Sequence[str], rate: float, mean: float, spread: float, tenants: str, names: str
) -> DemoType:
    made = JobType(name=name, demand=tuple(demand))
    return DemoType(made, rate, mean, spread, tuple(tenants.split()), tuple(names.split()))


# The mean load has intensity 0.82, and 1.07 at high tide: queues grow for some minutes, and empty again.
KINDS = (
    _kind("web", ("1", "2", "0"), 3.8, 40.0, 0.5, "shop shop search", "frontend checkout index-shard"),
    _kind("batch", ("4", "8", "0"), 1.4, 75.0, 0.9, "physics search genomics", "simulate reduce align merge"),
    _kind("memory", ("4", "96", "0"), 0.27, 110.0, 0.7, "genomics physics", "assemble pagerank"),
    _kind("train", ("8", "48", "2"), 0.165, 120.0, 0.8, "search physics", "finetune train-encoder"),
    _kind("large", ("32", "64", "0"), 0.085, 90.0, 0.5, "physics genomics", "lattice-qcd fold"),
)
FAIL_SHARE = 0.04  # of jobs end with an exit code that is not 0


def setup() -> Setup:
    """Return what the service begins with."""
    return Setup(CLUSTER, tuple(kind.type for kind in KINDS), "guarded")


def durations(seed: int = SEED) -> Durations:
    """Return log-normal durations with the mean of each type."""
    by_name = {kind.type.name: kind for kind in KINDS}

    def duration(job: int, attempt: int, spec: Mapping[str, Any]) -> float:
        known = spec.get("duration")
        if known is not None:
            return float(known)
        kind = by_name.get(spec.get("type") or "", KINDS[0])
        chance = Random(f"{seed} {job} {attempt}")
        return kind.mean * math.exp(chance.gauss(-(kind.spread**2) / 2, kind.spread))

    return duration


class DemoEngine(SimulatedEngine):
    """The simulated engine with servers that fail, and with jobs that write something."""

    def __init__(self, *, speed: float = 1.0, world: Path | None = None) -> None:
        super().__init__(servers_of(CLUSTER), durations(), speed=speed, world=world)
        self._on: dict[tuple[int, int], tuple[str, str]] = {}
        """server and name of each running attempt"""

    def start(self, starts: Sequence[Start]) -> None:
        with self._lock:
            for one in starts:
                self._on[one.job, one.attempt] = one.server, str(next(iter(one.spec.get("argv") or ()), "job"))
        super().start(starts)

    def settled(self, attempts: Sequence[tuple[int, int]]) -> None:
        super().settled(attempts)
        if len(self._on) > 20_000:  # what ended long ago is not asked for any more
            with self._lock:
                self._on = {key: on for key, on in self._on.items() if key in self._running}

    def fail(self, server: str, reason: str) -> None:
        """Let a server fail with all that runs on it."""
        with self._lock:
            for key in [key for key, (on, _) in self._on.items() if on == server and key in self._running]:
                del self._running[key]
        self._tell([ServerLost(server, reason)])

    def repair(self, server: str) -> None:
        """Bring a failed server back."""
        self._tell([one for one in self.servers() if one.name == server])

    def output(self, job: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int] | None:
        with self._lock:
            running, on = self._running.get((job, attempt)), self._on.get((job, attempt))
        if on is None:
            return None
        done = 20
        if running is not None:
            started, ends, _ = running
            done = min(19, int(20 * (self._clock.now() - started) / max(1e-9, ends - started)))
        text = "".join(f"{on[1]}: {5 * step:3d} % done\n" for step in range(done + 1)).encode()
        return text[offset : offset + limit], min(len(text), max(0, offset) + limit)


class Visitor(threading.Thread):
    """What happens to the cluster from outside: jobs come, servers fail and are repaired, drained and resumed."""

    def __init__(self, service: Service, engine: DemoEngine, *, speed: float, seed: int = SEED) -> None:
        super().__init__(name="slotwise-demo", daemon=True)
        self._service, self._engine, self._speed = service, engine, speed
        self._chance = Random(seed)
        self._over = threading.Event()
        self._numbers = itertools.count(1)

    def run(self) -> None:
        """Act until `stop`; a request that the service refuses now is dropped, as visitors do."""
        for pause, act in self._script():
            if self._over.wait(pause / self._speed) or self._service.loop.ended.is_set():
                return
            try:
                act()
            except SlotwiseError as error:
                log.info("the demo was refused: %s", error)

    def stop(self) -> None:
        """End soon."""
        self._over.set()
        if self.is_alive():
            self.join()

    # -- inside -------------------------------------------------------------------------------------------------

    def _script(self) -> Iterator[tuple[float, Act]]:
        """Pauses, each with what happens after it, in the order of time."""
        now, order = 0.0, itertools.count()
        agenda: list[tuple[float, int, str, str]] = []

        def plan(after: float, what: str, name: str = "") -> None:
            heappush(agenda, (now + after, next(order), what, name))

        for kind in KINDS:
            plan(self._chance.expovariate(kind.rate), "arrive", kind.type.name)
        for at, what in enumerate(("fail", "drain", "burst"), 1):
            plan(at * BEFORE, what)
        while True:
            at_, _, what, name = heappop(agenda)
            pause, now = at_ - now, at_
            match what:
                case "arrive":
                    kind = next(one for one in KINDS if one.type.name == name)
                    plan(self._chance.expovariate(kind.rate * tide(now)), "arrive", name)
                    yield pause, partial(self._submit, kind)
                case "burst":
                    plan(BURST_EVERY, "burst")
                    yield pause, partial(self._submit, KINDS[1], BURST_JOBS, "burst")
                case "fail":
                    name = f"std-{self._chance.randrange(24)}"
                    plan(REPAIR_AFTER, "repair", name)
                    plan(FAIL_EVERY, "fail")
                    yield pause, partial(self._engine.fail, name, "power supply failed")
                case "repair":
                    yield pause, partial(self._engine.repair, name)
                case "drain":
                    name = f"mem-{self._chance.randrange(8)}"
                    plan(RESUME_AFTER, "resume", name)
                    plan(DRAIN_EVERY, "drain")
                    yield pause, partial(self._drain, name)
                case "resume":
                    yield pause, partial(self._resume, name)

    def _job(self, kind: DemoType, name: str | None = None) -> NewJob:
        number, chance = next(self._numbers), self._chance
        called = f"{name or chance.choice(kind.names)}-{number}"
        code = 1 if chance.random() < FAIL_SHARE else 0
        body = body_of({"argv": [called.rsplit("-", 1)[0], str(number)], "name": called, "on_loss": "requeue"})
        if code:
            body = body[:-1] + ',"exit_code":1}'
        return NewJob(chance.choice(kind.tenants), kind.type.name, {}, {}, called, body=body)

    def _submit(self, kind: DemoType, count: int = 1, name: str | None = None) -> None:
        self._service.loop.submit([self._job(kind, name) for _ in range(count)])

    def _drain(self, server: str) -> None:
        self._service.loop.ask(lambda ledger, now: ledger.drain(server, now, "kernel update"))

    def _resume(self, server: str) -> None:
        self._service.loop.ask(lambda ledger, now: ledger.resume(server, now))


def tide(now: float) -> float:
    """Return how the load stands to its mean at a time of the demo day: from 0.7 to 1.3."""
    return 1.0 + 0.3 * math.sin(2 * math.pi * now / DAY)

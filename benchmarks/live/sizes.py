"""`python -m benchmarks.live sizes`: jobs of many sizes on servers of 12 classes, so that types are made while jobs arrive and wait.

The decisions alone are measured, without a store, a network and an engine: how long the service is busy with the longest event, and with all of them.
"""

from __future__ import annotations

import random
import time
from decimal import Decimal
from typing import Any

from slotwise.live.engines.protocol import Ended, ServerUp
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.restart import Setup
from slotwise.model import Cluster, JobType, ServerClass

RESOURCES = ("cpu", "memory", "pods", "gpu")
JOBS, SERVERS_OF_A_CLASS, RUNNING, TENANTS = 1000, 4, 250, 4
# CPUs, MiB and thousandths of GPUs of nodes in the clusters of Alibaba's traces
CAPACITIES = [
    (96, 393_216, 8000), (104, 524_288, 2000), (16, 122_880, 2000), (32, 262_144, 0), (96, 524_288, 0), (96, 786_432, 8000),
    (64, 524_288, 0), (96, 393_216, 0), (32, 65_536, 0), (128, 786_432, 8000), (64, 262_144, 2000), (64, 262_144, 0),
]  # fmt: skip
CPUS, MIB_A_CPU, GPUS = (
    (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32),
    (1024, 2048, 4096, 7680),
    (0, 0, 200, 500, 1000, 2000),
)


def sizes(rng: random.Random) -> dict[str, float]:
    """Return what a job requests."""
    cpu = rng.choice(CPUS)
    found = {"cpu": float(cpu), "memory": float(cpu * rng.choice(MIB_A_CPU)), "pods": 1.0}
    gpu = rng.choice(GPUS)
    return {**found, "gpu": float(gpu)} if gpu else found


def ledger_of(classes: int) -> Ledger:
    """Return the books of a service with so many classes of servers."""
    capacities = [(cpu, memory, 250, gpu) for cpu, memory, gpu in CAPACITIES[:classes]]
    servers = tuple(
        ServerClass(name=f"class-{n}", count=1, capacity=tuple(map(Decimal, one)))
        for n, one in enumerate(capacities, 1)
    )
    first = JobType(name="first", demand=tuple(map(Decimal, ("1", "64", "1", "0"))))
    made = Ledger(Setup(Cluster(resources=RESOURCES, servers=servers), (first,)).core())
    for n, one in enumerate(capacities * SERVERS_OF_A_CLASS):
        made.server_up(ServerUp(f"n{n}", dict(zip(RESOURCES, map(float, one), strict=True)), {}), 0.0)
    return made


def play(ledger: Ledger, jobs: int) -> list[float]:
    """Return the CPU seconds of each event: jobs arrive, and once `RUNNING` have, one completes for each that arrives."""
    rng, took = random.Random(1), []

    def timed(act: Any, *arguments: Any) -> None:
        began = time.process_time()
        act(*arguments)
        took.append(time.process_time() - began)

    for n in range(jobs):
        now = float(n + 1)
        timed(ledger.submit, [NewJob(f"tenant-{n % TENANTS}", None, sizes(rng), {})], now)
        if n >= RUNNING and ledger.live:
            job = next(iter(ledger.live))
            timed(ledger.ended, Ended(job, ledger.live[job].attempt, 0, now, ""), now)
        ledger.take()
    return took


def run() -> list[dict[str, Any]]:
    """The figures of 12 classes."""
    play(ledger_of(2), 2 * RUNNING)  # kernels are loaded
    ledger = ledger_of(len(CAPACITIES))
    took = sorted(play(ledger, JOBS))
    types, waiting = len(ledger.core.types), sum(ledger.core.waiting.values())
    detail = f"{JOBS} jobs of {types} types on {len(CAPACITIES)} classes, {waiting} wait at the end"
    return [
        {"name": "many sizes: all decisions", "value": sum(took), "unit": "s", "detail": detail},
        {"name": "many sizes: the longest decision", "value": took[-1] * 1000, "unit": "ms", "detail": detail},
        {
            "name": "many sizes: decisions over 50 ms",
            "value": sum(one > 0.05 for one in took),
            "unit": "of them",
            "detail": f"of {len(took)}",
        },
    ]

"""What /metrics shows is what a plain count gives."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from prometheus_client import generate_latest

from slotwise.live import metrics
from slotwise.live.engines.protocol import Ended, ServerUp
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.restart import Setup
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling.figures import Moment

SIZES = {"one": (1.0, 0.0), "fast": (2.5, 300.0), "all": (4.0, 1000.0)}
SERVERS = {"small": (4.0, 1000.0), "large": (16.0, 2000.0)}
SETUP = Setup(
    Cluster(
        resources=("cpu", "memory"),
        servers=(
            ServerClass(name="small", count=2, capacity=("4", "1000")),  # type: ignore[arg-type]
            ServerClass(name="large", count=1, capacity=("16", "2000"), labels={"disk": "fast"}),  # type: ignore[arg-type]
        ),
    ),
    (
        JobType(name="one", demand=("1", "0")),  # type: ignore[arg-type]
        JobType(name="fast", demand=("2.5", "300"), requires={"disk": ["fast"]}),  # type: ignore[arg-type]
        JobType(name="all", demand=("4", "1000")),  # type: ignore[arg-type]
    ),
    policy="best-fit",
)


@pytest.mark.parametrize("seed", range(3))
def test_figures(seed: int) -> None:
    chance, ledger = random.Random(seed), Ledger(SETUP.core())
    kind_of = {"a": "small", "b": "small", "c": "large"}
    for name, kind in kind_of.items():
        ledger.server_up(ServerUp(name, {}, server_class=kind), 1.0)
    type_of: dict[int, str] = {}
    for step in range(60):
        now = 2.0 + step
        if chance.random() < 0.6 or not ledger.live:
            wish = chance.choice(list(SIZES))
            type_of |= dict.fromkeys(ledger.submit([NewJob("t", wish, {}, {})], now), wish)
        elif chance.random() < 0.8:
            job = chance.choice(list(ledger.live))
            ledger.ended(Ended(job, 1, 0, now), now)
        else:
            name = chance.choice(list(kind_of))
            (ledger.drain if ledger.servers[name].status == "up" else ledger.resume)(name, now)
        found = Moment.of(ledger.core).figures()
        counts = Counter(type_of[job] for job in ledger.live)
        assert found.running == {name: counts[name] for name in SIZES}
        held = {name: [0.0, 0.0] for name in kind_of}
        for job, live in ledger.live.items():
            for r in range(2):
                held[live.server][r] += SIZES[type_of[job]][r]
        assert found.used == pytest.approx(
            {n: sum(h[r] for h in held.values()) for r, n in enumerate(("cpu", "memory"))}
        )
        assert found.capacity == {"cpu": 24.0, "memory": 4000.0}
        for name, size in SIZES.items():
            more = 0
            for server, kind in kind_of.items():
                if ledger.servers[server].status != "up" or (name == "fast" and kind != "large"):
                    continue
                left, n = list(SERVERS[kind]), 0
                left = [left[r] - held[server][r] for r in range(2)]
                while all(left[r] >= size[r] * (n + 1) - 1e-9 for r in range(2)):
                    n += 1
                more += n
            assert found.room[name] == more, (name, step)


def test_jobs_count_with_what_they_request() -> None:
    """Not with the larger demand of the type that was made for them."""
    ledger = Ledger(SETUP.core())
    ledger.server_up(ServerUp("a", {}, server_class="small"), 1.0)
    ledger.submit([NewJob("t", None, {"cpu": 0.9, "memory": 190.0}, {})] * 5, 2.0)
    assert len(ledger.live) == 4
    found = Moment.of(ledger.core).figures()
    assert found.used == pytest.approx({"cpu": 3.6, "memory": 760.0})
    ledger.drain("a", 3.0)
    assert Moment.of(ledger.core).figures().used == found.used


def test_all_that_was_promised_is_shown() -> None:
    ledger = Ledger(SETUP.core())
    ledger.server_up(ServerUp("a", {}, server_class="small"), 1.0)
    ledger.submit([NewJob("t", "one", {}, {})] * 5, 2.0)
    ledger.ended(Ended(99, 1, 0, 2.0), 2.0)
    metrics.count(ledger.batch)
    metrics.measure(ledger, 3.0)()
    text = generate_latest(metrics.REGISTRY).decode()
    for line in (
        'slotwise_waiting_jobs{type="one"} 1.0',
        'slotwise_running_jobs{type="one"} 4.0',
        'slotwise_headroom_jobs{type="one"} 0.0',
        'slotwise_used{resource="cpu"} 4.0',
        'slotwise_capacity{resource="memory"} 1000.0',
        "slotwise_turning_servers 0.0",
        'slotwise_servers{status="up"} 1.0',
        'slotwise_unexpected_facts{kind="ended: unknown job"} 1.0',
        "slotwise_decision_seconds_count",
        "slotwise_commit_seconds_count",
        "slotwise_policy_fault 0.0",
    ):
        assert line in text, line

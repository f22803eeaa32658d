"""A small service for tests of faults, and what must hold after each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from slotwise.live.engines.protocol import (
    ServerUp,
)
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.loop import Loop
from slotwise.live.newjob import NewJob
from slotwise.live.replay import replay
from slotwise.live.restart import Setup
from slotwise.live.store import Query, open_store
from slotwise.model import Cluster, JobType, ServerClass

Until = Callable[[Loop, Callable[[], Any]], None]
SERVERS = [ServerUp(name, {"cpu": 4, "memory": 1000}, server_class="a") for name in ("x", "y")]
SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=2, capacity=("4", "1000")),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1", "0")), JobType(name="all", demand=("4", "0"))),  # type: ignore[arg-type]
    policy="best-fit",
)
ONE = NewJob("t", "one", {}, {}, body=json.dumps({"argv": ["x"]}))


def simulated() -> SimulatedEngine:
    return SimulatedEngine(SERVERS, exponential(1, 0.001))


def exact(url: str, jobs: int) -> None:
    """All jobs are done, once each, and the journal replays."""
    store = open_store(url)
    assert store.counts() == {"done": jobs}
    assert all(job.attempt == 1 for job in store.jobs(Query(limit=10**6)))
    assert replay(store).differences == []
    store.close()

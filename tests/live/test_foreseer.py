"""Forecasts from a store: a service is played in virtual time, its journal is followed, and what was foretold is compared with what happened."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from slotwise.foresee.change import ClusterChange
from slotwise.live.engines.protocol import Ended, ServerLost, ServerUp
from slotwise.live.forecast.foreseer import FEWEST, Foreseer
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.restart import Setup
from slotwise.live.retention import Retention
from slotwise.live.store import open_store
from slotwise.live.store.protocol import Store
from slotwise.model import Cluster, JobType, ServerClass

TYPES = (JobType(name="small", demand=(1, 1)), JobType(name="large", demand=(6, 4)))
CLUSTER = Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=3, capacity=(8, 16)),))


class Play:
    """A service without threads: jobs come and end in virtual time."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.rng = store, np.random.default_rng(seed)
        store.become_writer()
        self.ledger = Ledger(Setup(CLUSTER, TYPES).core())
        for n in range(3):
            self.ledger.server_up(ServerUp(f"a-{n}", {"cpu": 8.0, "memory": 16.0}, {}, "a"), 0.0)
        self.commit()
        Retention().checkpoint(store, self.ledger)
        self.ends: list[tuple[float, int, int]] = []
        self.now, self.next = 0.0, 0.0

    def commit(self) -> None:
        batch, effects = self.ledger.take()
        if batch:
            self.store.commit(batch)
        for placement in effects.starts:
            mean = 400.0 if self.rng.random() < 0.3 else 100.0
            end = self.now + float(self.rng.exponential(mean))
            heapq.heappush(self.ends, (end, placement.job, placement.attempt))  # type: ignore[misc]

    def until(self, now: float, gap: float) -> None:
        """Go on; jobs come `gap` seconds apart on average."""
        while min(self.next, self.ends[0][0] if self.ends else np.inf) <= now:
            if self.ends and self.ends[0][0] <= self.next:
                self.now, job, attempt = heapq.heappop(self.ends)
                self.ledger.ended(Ended(job, attempt, 0, self.now), self.now)
            else:
                self.now = self.next
                kind = "large" if self.rng.random() < 0.25 else "small"
                tenant = "physics" if self.rng.random() < 0.5 else "web"
                self.ledger.submit([NewJob(tenant, kind, {}, {})], self.now)
                self.next += float(self.rng.exponential(gap))
            self.commit()
        self.now = now


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    yield Play(store, 3)
    store.close()


def test_before_jobs_have_completed_nothing_is_said(play: Play) -> None:
    foreseer = Foreseer(play.store, clock=lambda: play.now)
    play.until(30.0, 1.0)
    waiting = play.ledger.core.situation().waiting.job
    assert waiting
    found = foreseer.forecast(waiting[-1])
    assert found["p50"] is None
    assert "not known yet" in found["reason"]
    assert str(FEWEST) in found["reason"]


def test_without_servers_nothing_is_said(play: Play) -> None:
    foreseer = Foreseer(play.store, clock=lambda: play.now)
    play.until(2_000.0, 20.0)
    for n in range(3):
        play.ledger.server_lost(ServerLost(f"a-{n}", "power"), play.now)
    play.ledger.submit([NewJob("web", "small", {}, {})], play.now)
    play.commit()
    waiting = play.ledger.core.situation().waiting.job
    for found in (
        foreseer.forecast(waiting[-1]),
        foreseer.of_needs(job_type="small"),
        foreseer.what_if(ClusterChange(add={"a": 1}), 1.0),
        foreseer.advice(),
    ):
        assert found["reason"] == "not known: no server is up"


def test_intervals_hold_about_as_often_as_they_say(play: Play, tmp_path: Path) -> None:
    records = tmp_path / "forecasts.db"
    foreseer = Foreseer(play.store, records, clock=lambda: play.now, runs=8)
    play.until(4_000.0, 22.0)
    while play.now < 12_000.0:
        play.until(play.now + 200.0, 22.0)
        foreseer.sight(fresh=True)
    told = foreseer.coverage()
    assert told["all"]["of"] > 100
    assert 0.65 <= told["all"]["coverage"] <= 0.92
    assert told["at_once"] > 20
    # what was learnt outlives the process
    again = Foreseer(play.store, records, clock=lambda: play.now, runs=8)
    assert again.coverage()["all"]["of"] >= told["all"]["of"]
    whatif = again.what_if(ClusterChange(add={"a": 2}), 1.0)
    assert whatif["then"]["queue"]["mean"]["p50"] < whatif["now"]["queue"]["mean"]["p50"]
    assert set(whatif["now"]["types"]) == {"small", "large"}
    assert set(whatif["now"]["tenants"]) <= {"physics", "web"}
    at_once = again.of_needs(job_type="small")
    assert at_once["p90"] is not None
    play.ledger.submit([NewJob("physics", "large", {}, {}), *[NewJob("web", "large", {}, {})] * 9], play.now)
    play.commit()
    again.sight(fresh=True)
    found = again.forecasts()
    waiting = {row["tenant"]: row["waiting"] for row in found["tenants"]}
    assert set(waiting) == {"physics", "web"}
    assert sum(waiting.values()) == sum(row["waiting"] for row in found["queues"]) == len(found["jobs"])
    own = again.forecasts(tenant="physics")
    assert [row["tenant"] for row in own["tenants"]] == ["physics"]
    assert len(own["jobs"]) == waiting["physics"], "of another tenant, no job is shown"
    assert {row["job"] for row in own["running"]} < {row["job"] for row in found["running"]}
    held = {job for row in again.advice("physics")["servers"] for job in row["jobs"]}
    assert held <= {row["job"] for row in own["running"]}
    last = max(row["p50"] for row in found["jobs"])
    assert max(row["p50"] for row in found["tenants"]) >= 0.5 * last


def test_a_result_rests_for_longer_than_it_took(play: Play) -> None:
    """So constant questions leave most of a CPU alone, and a look ahead that takes longer than callers wait is not made in vain."""
    foreseer = Foreseer(play.store, clock=lambda: play.now, runs=2)
    play.until(2_000.0, 20.0)
    first = foreseer.sight()
    first.seconds = 100.0  # a look ahead on a busy machine, made a minute ago
    first.made -= 60.0
    play.until(2_100.0, 20.0)
    assert foreseer.sight() is first
    first.seconds = 1.0
    assert foreseer.sight() is not first, "the state has moved"

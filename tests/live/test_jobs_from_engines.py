"""Jobs that come from the engine: their types are made together, and what is not taken is explained."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rounds import Rounds

from slotwise.live.engines.protocol import Arrived, ServerUp, Withdrawn
from slotwise.live.restart import Setup
from slotwise.live.store.records import Entry
from slotwise.model import Cluster, JobType, ServerClass

SERVER = ServerClass(name="server", count=1, capacity=(Decimal(64), Decimal(64_000)))
CLUSTER = Cluster(resources=("cpu", "memory"), servers=(SERVER,))
TYPE = JobType(name="one", demand=(Decimal(1), Decimal(1000)))


@pytest.fixture
def rounds(tmp_path: Path) -> Rounds:
    return Rounds(f"sqlite:///{tmp_path}/store.db", Setup(CLUSTER, (TYPE,)))


def arrived(key: str, cpu: float, memory: float = 100.0, tenant: str = "t") -> Arrived:
    needs = {"cpu": cpu, "memory": memory}
    return Arrived(
        key, {"tenant": tenant, "needs": needs, "name": key, "body": json.dumps({"argv": [key], "needs": needs})}
    )


def changes(rounds: Rounds) -> list[Entry]:
    return [one for one in rounds.store.entries(0, limit=10_000) if '"event":"change"' in one.event]


def why(rounds: Rounds, key: str) -> Any:
    future = rounds.loop.why_waits("t", key)
    rounds.round()
    return future.result()


def test_jobs_that_come_together_change_the_types_once(rounds: Rounds) -> None:
    rounds.loop.inbox.tell([arrived(f"pod-{n}", float(2**n)) for n in range(6)])
    rounds.round()
    assert len(rounds.jobs()) == 6
    assert len({job.type for job in rounds.jobs().values()}) == 6
    assert len(changes(rounds)) == 1
    rounds.loop.inbox.tell([arrived(f"more-{n}", float(2**n)) for n in range(6)])
    rounds.round()
    assert len(changes(rounds)) == 1, "all types are there"


def test_types_are_those_that_one_arrival_after_the_other_makes(rounds: Rounds, tmp_path: Path) -> None:
    apart = Rounds(f"sqlite:///{tmp_path}/other.db", Setup(CLUSTER, (TYPE,)))
    facts = [arrived(f"pod-{n}", 1.0 + n * 7 % 23, 300.0 * (1 + n % 7)) for n in range(40)]
    rounds.loop.inbox.tell(facts)
    rounds.round()
    for fact in facts:
        apart.loop.inbox.tell([fact])
        apart.round()
    assert [job.type for job in rounds.jobs().values()] == [job.type for job in apart.jobs().values()]
    assert len(changes(rounds)) == 1 < len(changes(apart))


def test_one_job_that_fits_nowhere_holds_up_no_other_and_is_explained(rounds: Rounds) -> None:
    rounds.loop.inbox.tell([arrived("small", 2.0), arrived("huge", 65.0), arrived("large", 30.0)])
    rounds.round()
    assert {job.name for job in rounds.jobs().values()} == {"small", "large"}
    assert "no server can hold a job that needs cpu=65" in why(rounds, "huge")
    assert why(rounds, "small") is None, "it runs"
    rounds.loop.inbox.tell([ServerUp("larger", {"cpu": 128.0, "memory": 64_000.0})])
    rounds.loop.inbox.tell([arrived("huge", 65.0)])
    rounds.round()
    assert {job.name for job in rounds.jobs().values()} == {"small", "large", "huge"}
    assert why(rounds, "huge") is None


def test_a_job_that_was_not_taken_is_forgotten_when_it_is_withdrawn(rounds: Rounds) -> None:
    rounds.loop.inbox.tell([arrived("huge", 65.0)])
    rounds.round()
    assert why(rounds, "huge")
    rounds.loop.inbox.tell([Withdrawn("huge", "t")])
    rounds.round()
    assert why(rounds, "huge") is None

"""Deadlines: a job that would be late goes first, within a budget; all of it replays, and the books are the same after a restart."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from house import House
from rounds import Rounds

from slotwise.live.deadlines import BY_DEADLINE, deadlines_of
from slotwise.live.engines.protocol import Ended, ServerLost, ServerUp
from slotwise.live.newjob import NewJob
from slotwise.live.replay import difference, rows, step
from slotwise.live.restart import Setup
from slotwise.live.retries import Retry
from slotwise.model import Cluster, JobType

SETUP = Setup(
    Cluster.model_validate({"resources": ["cpu"], "servers": [{"name": "a", "count": 2, "capacity": ["4"]}]}),
    tuple(JobType.model_validate({"name": f"cpu{n}", "demand": [n]}) for n in (1, 2, 4)),
    policy="best-fit",
)


def job(cpu: int, limit: float | None = None, deadline: float | None = None, **more: Any) -> NewJob:
    spec = {"type": f"cpu{cpu}", "time": limit, "deadline": deadline}
    body = json.dumps({key: value for key, value in spec.items() if value is not None})
    return NewJob("x", f"cpu{cpu}", {}, {}, body=body, duration=limit, limit=limit, deadline=deadline, **more)


class Yard(Rounds):
    """Two servers of four CPUs."""

    def __init__(self, url: str, setup: Setup = SETUP) -> None:
        super().__init__(url, setup)
        self.ledger.follow_jobs()
        self.loop.inbox.tell([ServerUp("t", {"cpu": 4}, server_class="a")])
        self.round()

    def go(self, seconds: float) -> None:
        self.clock.time += seconds
        self.round()

    def reserved(self) -> dict[str, int]:
        return {
            name: int((one.reason or "").removeprefix(BY_DEADLINE).partition(",")[0])
            for name, one in self.ledger.servers.items()
            if (one.reason or "").startswith(BY_DEADLINE)
        }

    def check_replay(self) -> None:
        core = SETUP.core()
        for entry in rows(self.store, 0):
            core, outcome = step(core, entry)
            assert outcome is None or difference(entry, outcome) is None, entry
        assert core.situation().to_dict() == self.ledger.core.situation().to_dict()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(f"sqlite:///{tmp_path}/x.db")
    yield made
    made.store.close()


def test_a_job_that_would_be_late_goes_first(yard: Yard) -> None:
    yard.submit(*[job(1, 100.0) for _ in range(8)])
    waiting = yard.submit(*[job(1, 100.0) for _ in range(40)])
    (large,) = yard.submit(job(4, 10.0, deadline=500.0))
    for _ in range(2):
        assert yard.reserved() == {}, "there is time for another round of jobs"
        assert yard.clock.time < yard.ledger.next_urge < float("inf")
        yard.clock.time += 100.0
        ended = [Ended(number, 1, 0, yard.clock.time) for number in yard.ledger.live]
        yard.loop.inbox.tell(ended)
        yard.round()
    assert list(yard.reserved().values()) == [large]
    (name,) = yard.reserved()
    (other,) = {"s", "t"} - {name}
    del waiting[:16]
    mine = [number for number, live in yard.ledger.live.items() if live.server == name]
    for number in mine[:3]:
        yard.end(number)
    assert yard.state(waiting[0]) == "waiting", "the server is kept free"
    yard.end(next(number for number, live in yard.ledger.live.items() if live.server == other))
    assert yard.state(waiting[0]) == "placed", "on the other server, jobs go on"
    yard.end(mine[3])
    assert (yard.state(large), yard.ledger.live[large].server) == ("placed", name)
    assert yard.ledger.servers[name].status == "up"
    assert yard.reserved() == {}
    yard.end(large)
    assert yard.ledger.next_urge == float("inf"), "no job with a deadline is left: the loop may sleep"
    assert len([one for one in yard.ledger.live.values() if one.server == name]) == 4
    yard.check_replay()


def test_a_budget_and_the_most_urgent_first(yard: Yard) -> None:
    yard.submit(*[job(1, 100.0) for _ in range(8)])
    yard.submit(*[job(1, 100.0) for _ in range(20)])
    later, sooner = yard.submit(job(4, 10.0, deadline=300.0), job(4, 10.0, deadline=280.0))
    yard.go(1.0)
    assert list(yard.reserved().values()) == [sooner], "one server at a time: the budget is 5 % and at least one"
    yard.ledger.budget = 0.0
    yard.ask(lambda ledger, now: ledger.cancel(sooner, now))
    assert yard.reserved() == {}, "it is given back"
    yard.go(5.0)
    assert yard.reserved() == {}, "without a budget no job goes first"
    yard.ledger.budget = 1.0
    yard.go(5.0)
    assert list(yard.reserved().values()) == [later]


def test_a_job_that_is_late_anyway_costs_nothing(yard: Yard) -> None:
    yard.submit(*[job(1, 1000.0) for _ in range(8)])
    (late,) = yard.submit(job(4, 10.0, deadline=200.0))
    (warned,) = yard.ask(lambda ledger, now: ledger.late([late], now))
    assert (
        warned
        == f"job {late} will probably end 15 min 10 s after its deadline: the first server has room for it in 16 min 40 s"
    )
    yard.go(80.0)
    assert yard.reserved() == {} or yard.clock.time < 190.0
    yard.go(11.0)
    assert yard.reserved() == {}, "now it cannot end in time even if it started"
    assert yard.state(late) == "waiting"
    yard.check_replay()


def test_an_operator_who_resumes_a_reserved_server_decides(yard: Yard) -> None:
    yard.submit(*[job(1, 100.0) for _ in range(9)])
    yard.submit(job(4, 10.0, deadline=210.0))
    (name,) = yard.reserved()
    yard.ask(lambda ledger, now: ledger.drain(name, now, "mine"))
    yard.go(1.0)
    assert yard.ledger.servers[name].reason == "mine"
    assert name not in yard.reserved()


def test_placed_jobs_keep_attempts_demands_and_the_order_of_their_arrival(yard: Yard) -> None:
    yard.submit(*[job(2, 50.0) for _ in range(3)])
    (retried,) = yard.submit(job(2, 50.0, retry=Retry(3, 0.0), deadline=1000.0))
    yard.end(retried, 1)
    yard.round()
    assert yard.ledger.live[retried].attempt == 2
    own = NewJob(
        "x",
        None,
        {"cpu": 1.5},
        {},
        body='{"needs": {"cpu": 1.5}, "time": 20.0, "deadline": 180.0}',
        duration=20.0,
        limit=20.0,
        deadline=180.0,
    )
    (odd,) = yard.submit(own)
    assert yard.state(odd) == "waiting"
    yard.go(10.0)
    assert list(yard.reserved().values()) == [odd]
    (name,) = yard.reserved()
    yard.end(next(number for number, live in yard.ledger.live.items() if live.server == name))
    assert yard.ledger.live[odd].server == name
    yard.check_replay()
    (row,) = [entry for entry in rows(yard.store, 0) if '"place"' in entry.event]
    assert json.loads(row.placements) == [[odd, name, 1]]
    assert deadlines_of(yard.store) == {retried: 1000.0, odd: 180.0}


@pytest.mark.parametrize("policy", ["best-fit", "guarded"])
def test_random_histories_replay(tmp_path: Path, policy: str) -> None:
    setup = SETUP._replace(policy=policy)
    yard, chance = Yard(f"sqlite:///{tmp_path}/x.db", setup), random.Random(5)
    yard.ledger.budget = 0.5
    placed = 0
    for _ in range(250):
        yard.clock.time += chance.choice([1.0, 5.0, 20.0])
        act = chance.random()
        if act < 0.55:
            limit = chance.choice([10.0, 50.0, 200.0])
            deadline = (
                yard.clock.time + limit + chance.choice([20.0, 100.0, 300.0]) if chance.random() < 0.4 else None
            )
            yard.submit(job(chance.choice([1, 1, 2, 4]), limit, deadline))
        elif act < 0.95 and yard.ledger.live:
            number = chance.choice(list(yard.ledger.live))
            yard.loop.inbox.tell([Ended(number, yard.ledger.live[number].attempt, 0, yard.clock.time)])
            yard.round()
        else:
            yard.loop.inbox.tell([ServerLost("t", "power"), ServerUp("t", {"cpu": 4}, server_class="a")])
            yard.round()
        assert len(yard.reserved()) <= 1
        on = {number: yard.ledger.core.running[number] for number in yard.ledger.live}
        assert on == {number: live.server for number, live in yard.ledger.live.items()}
    core = setup.core()
    for entry in rows(yard.store, 0):
        core, outcome = step(core, entry)
        assert outcome is None or difference(entry, outcome) is None, entry
        placed += '"place"' in entry.event
    assert placed >= 3
    yard.store.close()


def test_the_api(tmp_path: Path) -> None:
    house = House(tmp_path)
    now = house.service.loop.clock.now()
    refused = house.call("POST", "/v1/jobs", json={"argv": ["x"], "time": 100.0, "deadline": now + 50.0})
    assert refused.status_code == 400
    assert "deadline: cannot be met: a job that takes 1 min 40 s and starts now ends 50" in refused.json()["detail"]
    refused = house.call("POST", "/v1/jobs", json={"argv": ["x"], "deadline": now + 50.0})
    assert "deadline: needs a time limit or an expected duration; add --time" in refused.json()["detail"]
    for _ in range(4):
        house.submit(time=5000.0, duration=500_000.0)
    made = house.call("POST", "/v1/jobs", json={"argv": ["x"], "time": 100.0, "deadline": now + 1000.0}).json()
    assert len(made["warnings"]) == 1
    assert "after its deadline" in made["warnings"][0]
    assert house.call("GET", f"/v1/jobs/{made['id']}").json()["deadline"] == pytest.approx(now + 1000.0)
    house.service.close()
    again = House(tmp_path)
    assert again.service.loop.ledger.deadlines == {made["id"]: pytest.approx(now + 1000.0)}
    assert again.service.loop.ledger.expected_of(made["id"], 1.0) == 100.0
    again.service.close()

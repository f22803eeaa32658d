"""Maintenance windows: no job that would reach into a window is started on its server, whatever happens; the journal replays; the store keeps it all."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from house import House
from rounds import Rounds

from slotwise.errors import InputError
from slotwise.live.engines.protocol import Ended, Refused, ServerLost, ServerUp
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import After, NewJob
from slotwise.live.replay import difference, rows, step
from slotwise.live.restart import Setup, load
from slotwise.live.store.records import ASSUMED, Window
from slotwise.live.windows import Expected, PlacementKey, can_hold, jobs_of, learnt_of
from slotwise.model import Cluster, JobType

CLASSES = [
    {"name": "a", "count": 1, "capacity": ["4", "0"]},
    {"name": "b", "count": 1, "capacity": ["4", "2"], "labels": {"gpu": "x"}},
]
TYPES = {"one": ("1", "0"), "two": ("2", "0"), "gpu": ("1", "1")}
SETUP = Setup(
    Cluster.model_validate({"resources": ["cpu", "gpu"], "servers": CLASSES}),
    tuple(
        JobType.model_validate(
            {"name": name, "demand": demand} | ({"requires": {"gpu": ["x"]}} if name == "gpu" else {})
        )
        for name, demand in TYPES.items()
    ),
    policy="best-fit",
)
ENGINE = {
    "s": ServerUp("s", {"cpu": 4, "gpu": 0}, server_class="a"),
    "t": ServerUp("t", {"cpu": 4, "gpu": 2}, server_class="b"),
}


def job(kind: str = "one", limit: float | None = None, duration: float | None = None, **more: Any) -> NewJob:
    spec = {"type": kind, "time": limit, "duration": duration, "on_loss": more.pop("on_loss", "fail")}
    body = json.dumps({key: value for key, value in spec.items() if value is not None})
    return NewJob("x", kind, {}, {}, body=body, duration=duration or limit, limit=limit, **more)


class Yard(Rounds):
    """Two servers; the loop keeps track of the jobs that were started although they reach into a window."""

    def __init__(self, folder: Path) -> None:
        self.windows: list[Window] = []
        super().__init__(f"sqlite:///{folder}/x.db", SETUP)
        self.loop.inbox.tell([ENGINE["t"]])
        self.round()

    def plan(self, server: str, begin: float, until: float, assumed: float = ASSUMED, tenant: str = "") -> Window:
        """As the API does it."""
        self.ledger.follow_jobs()
        found, learnt = jobs_of(self.store), learnt_of(self.store)

        def act(ledger: Any, now: float) -> Window:
            ledger.know(found, learnt)
            made: Window = ledger.plan(Window(0, server, begin, until, "new disk", assumed, tenant=tenant), now)
            return made

        made: Window = self.ask(act)
        self.windows.append(made)
        return made

    def go(self, seconds: float) -> None:
        self.clock.time += seconds
        self.round()

    def on(self, server: str) -> list[int]:
        return sorted(number for number, live in self.ledger.live.items() if live.server == server)

    def status(self, server: str) -> str:
        return self.ledger.servers[server].status

    def check_replay(self) -> None:
        core = SETUP.core()
        for entry in rows(self.store, 0):
            core, outcome = step(core, entry)
            assert outcome is None or difference(entry, outcome) is None, entry


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.store.close()


def test_only_jobs_that_end_in_time_start_before_a_window(yard: Yard) -> None:
    window = yard.plan("t", 1100.0, 2000.0)
    (gpu,) = yard.submit(job("gpu", limit=900.0))
    assert yard.on("t") == [gpu], "1,000 seconds are left"
    (late,) = yard.submit(job("gpu", limit=1001.0))
    assert (yard.state(late), yard.status("t")) == ("waiting", "draining")
    (short,) = yard.submit(job("gpu", limit=10.0))
    assert yard.state(short) == "waiting", "the server is closed while a longer job waits"
    yard.ask(lambda ledger, now: ledger.cancel(late, now))
    assert yard.on("t") == [gpu, short]
    yard.end(short)
    yard.submit(job("two", limit=5000.0))
    assert (len(yard.on("s")), yard.status("t")) == (1, "up"), (
        "a long job goes elsewhere, and the server is open again"
    )
    yard.go(99.0)
    assert yard.status("t") == "up"
    yard.end(gpu)
    (waits,) = yard.submit(job("gpu", limit=800.0))
    assert yard.on("t") == [waits]
    yard.go(901.0)
    assert yard.ledger.servers["t"].reason == (
        "maintenance window 1, 1970-01-01 00:18 to 1970-01-01 00:33 UTC: new disk"
    )
    assert yard.on("t") == [waits], "a job that runs is not interrupted"
    (later,) = yard.submit(job("gpu", limit=1.0))
    with pytest.raises(InputError, match="closed for maintenance window 1; slotwise maintenance cancel 1"):
        yard.ask(lambda ledger, now: ledger.resume("t", now))
    yard.go(window.until - yard.clock.time)
    assert (yard.status("t"), yard.ledger.servers["t"].reason) == ("up", None)
    assert later in yard.on("t")
    assert [one.state for one in yard.store.windows()] == ["over"]
    yard.check_replay()


def test_a_reserved_server_takes_jobs_of_its_tenant_only(yard: Yard) -> None:
    def of(tenant: str, limit: float = 5000.0, kind: str = "gpu") -> NewJob:
        return job(kind, limit=limit)._replace(tenant=tenant)

    window = yard.plan("t", 200.0, 400.0, tenant="y")
    (early,) = yard.submit(of("y"))
    assert yard.on("t") == [early], "jobs of the tenant need not end before the window"
    (other, late) = yard.submit(of("x"), of("y"))
    assert (yard.on("t"), yard.status("t")) == ([early], "draining"), "the other job would reach into the window"
    yard.go(101.0)
    assert yard.ledger.servers["t"].reason == (
        "reservation window 1, 1970-01-01 00:03 to 1970-01-01 00:06 UTC, for tenant y: new disk"
    )
    assert yard.on("t") == [early, late]
    (wide, short) = yard.submit(of("y", kind="two"), of("x", limit=1.0))
    assert (yard.on("s"), yard.state(short)) == ([wide], "waiting")
    (third, fourth) = yard.submit(of("y"), of("y"))
    yard.end(early)
    assert yard.on("t") == [late], "the next placement comes within a second"
    yard.go(1.0)
    assert yard.on("t") == [late, third]
    yard.loop.retention.checkpoint(yard.store, yard.ledger)
    ledger = load(yard.store, SETUP)[0]
    assert (ledger.windows, ledger.core.situation()) == (yard.ledger.windows, yard.ledger.core.situation())
    yard.end(late)
    yard.go(1.0)
    assert yard.on("t") == [third, fourth]
    with pytest.raises(InputError, match="closed for reservation window 1"):
        yard.ask(lambda ledger, now: ledger.resume("t", now))
    yard.end(third)
    yard.go(window.until - yard.clock.time)
    assert (yard.status("t"), yard.on("t")) == ("up", [other, fourth])
    yard.check_replay()


def test_policies_with_slots_reserve_nothing() -> None:
    ledger = Ledger(SETUP._replace(policy="m14").core())
    ledger.server_up(ENGINE["s"], 1.0)
    with pytest.raises(InputError, match="does not go by free capacity; use another policy"):
        ledger.plan(Window(0, "s", 2.0, 3.0, "", tenant="y"), 1.0)


def test_a_window_far_ahead_closes_nothing_and_time_closes_it(yard: Yard) -> None:
    for _ in range(4):
        yard.submit(job("gpu", limit=100.0))
    waiting = yard.on("t")[2:]
    assert not waiting, "two of them run, two wait"
    yard.plan("t", 1000.0, 2000.0)
    assert yard.status("t") == "up"
    assert yard.ledger.next_maintenance == 900.0, "from then on a waiting job would reach into the window"
    yard.go(800.0)
    assert yard.status("t") == "up"
    yard.go(1.0)
    assert yard.status("t") == "draining"


def test_what_is_learnt_and_what_is_assumed(yard: Yard) -> None:
    for _ in range(20):
        (one,) = yard.submit(job("gpu"))
        yard.clock.time += 50.0
        yard.end(one)
    begin = yard.clock.time + 60.0
    yard.plan("t", begin, begin + 100.0)
    (first,) = yard.submit(job("gpu"))
    assert first in yard.on("t"), "the type was learnt to take 50 s"
    yard.plan("s", begin, begin + 100.0, assumed=30.0)
    yard.submit(*[job("one") for _ in range(3)])
    assert len(yard.on("s")) == 3, "of this type nothing is known: 30 s are assumed"
    yard.go(31.0)
    yard.submit(*[job("one") for _ in range(9)])
    assert len(yard.on("s")) == 3
    yard.check_replay()


def test_jobs_that_come_back_are_looked_at_too(yard: Yard) -> None:
    """A refused placement, a lost server, a released job: each would be started at once on the open server."""
    yard.submit(*[job("one", limit=10.0) for _ in range(4)])
    (long,) = yard.submit(job("two", limit=10_000.0))
    assert yard.on("t") == [long]
    yard.plan("s", 1000.0, 2000.0)
    for number in yard.on("s"):
        yard.end(number)
    yard.loop.inbox.tell([Refused(long, 1, "no")])
    yard.round()
    assert yard.on("t") == [long]
    assert yard.status("s") == "up"
    (other,) = yard.submit(job("two", limit=10_000.0, on_loss="requeue"))
    assert yard.on("t") == [long, other]
    yard.loop.starts(yard.loop.ledger.effects)
    yard.ledger.live[other].on_loss = "requeue"
    (held,) = yard.submit(job("two", limit=9_000.0, after=(After("any", long),)))
    yard.loop.inbox.tell([ServerLost("t", "power")])
    yard.round()
    assert [yard.state(one) for one in (long, other, held)] == ["lost", "waiting", "waiting"]
    assert (yard.on("s"), yard.status("s")) == ([], "draining")
    yard.check_replay()


def test_a_server_that_comes_back_waits_for_the_end_of_its_window(yard: Yard) -> None:
    yard.plan("t", 50.0, 500.0)
    (waits,) = yard.submit(job("gpu", limit=5.0))
    yard.loop.inbox.tell([ServerLost("t", "reboot")])
    yard.go(10.0)
    yard.loop.inbox.tell([ENGINE["t"]])
    yard.go(10.0)
    assert (yard.status("t"), yard.state(waits)) == ("lost", "waiting")
    yard.go(400.0)
    assert (yard.status("t"), yard.on("t")) == ("up", [waits])
    yard.check_replay()


def test_what_is_refused(yard: Yard) -> None:
    yard.plan("s", 500.0, 600.0)
    for window, message in (
        (("x", 1e6, 2e6), "no server is called 'x'"),
        (("s", 2e6, 1e6), "until: is not after from"),
        (("s", 1.0, 2.0), "until: is in the past"),
        (("s", 599.0, 700.0), "s: overlaps window 1; cancel it: slotwise maintenance cancel 1"),
    ):
        with pytest.raises(InputError) as told:
            yard.plan(*window)
        assert message in str(told.value)
    with pytest.raises(InputError, match="there is no planned window 7"):
        yard.ask(lambda ledger, now: ledger.cancel_window(7, now))
    yard.ask(lambda ledger, now: ledger.drain("t", now, "mine"))
    yard.plan("t", 150.0, 200.0)
    yard.go(100.0)
    yard.go(100.0)
    assert (yard.status("t"), yard.ledger.servers["t"].reason) == ("draining", "mine"), "an operator drained it"


@pytest.mark.parametrize("seed", range(4))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    yard, chance = Yard(tmp_path), random.Random(seed)
    limits: dict[int, float] = {}
    seen: set[tuple[int, float]] = set()
    reaching = 0

    def look() -> None:
        nonlocal reaching
        for number, live in yard.ledger.live.items():
            if (number, live.placed) in seen:
                continue
            seen.add((number, live.placed))
            for window in yard.windows:
                if window.server == live.server and window.made <= live.placed < window.until:
                    assert live.placed + limits[number] <= window.begin, (number, live, window)
                    reaching += 1

    class Made(Window):
        """With the time at which the window was planned, or at which it was cancelled."""

        made = 0.0

    planned: list[Made] = []
    yard.windows = planned  # type: ignore[assignment]
    for _ in range(400):
        yard.clock.time += chance.choice([0.0, 1.0, 5.0, 20.0])
        now, act = yard.clock.time, chance.random()
        if act < 0.35:
            limit = chance.choice([5.0, 20.0, 60.0, 200.0])
            kind = chance.choice(["one", "two", "gpu"])
            new = job(kind, limit=limit, on_loss=chance.choice(["fail", "requeue"]))
            future = yard.loop.submit([new])
            yard.loop.round(yard.loop.inbox.take(10**6, 0))
            limits[future.result()[0]] = limit
        elif act < 0.85 and yard.ledger.live:
            number = chance.choice(list(yard.ledger.live))
            live = yard.ledger.live[number]
            if chance.random() < 0.2:
                yard.loop.inbox.tell([Refused(number, live.attempt, "no")])
            else:
                yard.loop.inbox.tell([Ended(number, live.attempt, 0, now)])
        elif act < 0.9:
            name = chance.choice(["s", "t"])
            yard.loop.inbox.tell([ServerLost(name, "power"), *([ENGINE[name]] if chance.random() < 0.7 else [])])
        elif act < 0.92:
            yard.loop.inbox.tell(list(ENGINE.values()))
        elif act < 0.97:
            begin = now + chance.choice([0.0, 30.0, 150.0, 400.0])
            try:
                window = yard.plan(chance.choice(["s", "t"]), begin, begin + chance.choice([10.0, 60.0]))
            except InputError:
                continue
            yard.windows.pop()
            made = Made(*window)
            made.made = now
            planned.append(made)
        else:
            yard.round()
            if not yard.ledger.windows:
                continue
            number = chance.choice(list(yard.ledger.windows))
            yard.ask(lambda ledger, now, number=number: ledger.cancel_window(number, now))
            for one in planned:
                if one.id == number:
                    one.made = float("inf")
        yard.round()
        for name in ("s", "t"):  # a server that refused too much was drained: an operator lets it take jobs again
            if yard.ledger.servers[name].status == "draining" and (
                yard.ledger.servers[name].reason or ""
            ).startswith("refused"):
                yard.ask(lambda ledger, now, name=name: ledger.resume(name, now))
        look()
    assert reaching > 3, "jobs were started before windows"
    yard.check_replay()
    yard.store.close()


def test_a_restart_knows_windows_and_jobs(tmp_path: Path) -> None:
    house = House(tmp_path)
    now = house.service.loop.clock.now()
    wanted = {"server": "s", "begin": now + 1000.0, "until": now + 2000.0, "reason": "disk"}
    made = house.call("POST", "/v1/maintenance", json=wanted)
    assert made.status_code == 201, made.text
    assert made.json()["state"] == "planned"
    for _ in range(4):
        house.submit(time=500.0, duration=500_000.0)
    waiting = house.submit(time=1500.0)
    assert house.call("GET", f"/v1/jobs/{waiting}").json()["state"] == "waiting"
    (window,) = house.call("GET", "/v1/maintenance").json()
    assert (window["state"], window["jobs"]) == ("closed", 4)
    assert window["free_at"] == pytest.approx(now + 500.0, abs=60.0)
    assert house.call("POST", "/v1/servers/s/resume").status_code == 409
    house.service.close()
    again = House(tmp_path)
    (window,) = again.call("GET", "/v1/maintenance").json()
    assert (window["state"], window["jobs"]) == ("closed", 4)
    overlapping = again.call("POST", "/v1/maintenance", json=wanted)
    assert (overlapping.status_code, "overlaps window 1" in overlapping.text) == (409, True)
    assert again.call("POST", "/v1/maintenance", json={**wanted, "server": "nowhere"}).status_code == 404
    assert again.call("DELETE", "/v1/maintenance/1").json()["state"] == "cancelled"
    assert again.call("GET", "/v1/servers/s").json()["status"] == "up"
    assert again.call("DELETE", "/v1/maintenance/1").status_code == 409
    again.service.close()


def test_groups() -> None:
    types = {one.name: one for one in SETUP.types}
    a, b = SETUP.cluster.servers
    resources = SETUP.cluster.resources
    assert [can_hold(PlacementKey("gpu", None), types, one, resources) for one in (a, b)] == [False, True]
    assert [can_hold(PlacementKey("one", '{"cpu": 1, "gpu": 1}'), types, one, resources) for one in (a, b)] == [
        False,
        True,
    ]
    assert not can_hold(PlacementKey("one", '{"cpu": 5}'), types, b, resources)
    assert can_hold(PlacementKey("gone", None), types, a, resources)


def test_the_longest_waiting_job() -> None:
    waiting = {1, 2, 3, 4}
    found = Expected(lambda number: number in waiting)
    found.learnt = {"two": 70.0}
    one, two = PlacementKey("one", None), PlacementKey("two", None)
    for number, group, seconds in ((1, one, 10.0), (2, one, 50.0), (3, two, None), (4, one, None)):
        found.add(number, group, seconds)
    both = lambda group: True  # noqa: E731
    assert found.longest(both, 900.0) == 900.0
    waiting.discard(4)
    assert found.longest(both, 900.0) == 70.0
    assert found.longest(lambda group: group == one, 900.0) == 50.0
    waiting.discard(2)
    assert found.longest(lambda group: group == one, 900.0) == 10.0
    waiting.add(2)
    found.waits_again(2)
    assert found.longest(lambda group: group == one, 900.0) == 50.0
    for number in (1, 2, 3):
        found.drop(number)
    assert found.longest(both, 900.0) == 0.0

"""Quotas: running work never exceeds them, waiting work beyond them is refused, they change while jobs run, and all of it survives restarts."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from house import SLOW, House

from slotwise import simulate
from slotwise.errors import InputError
from slotwise.live.changes.plan import ChangePlan, make_plan
from slotwise.live.changes.target import Target
from slotwise.live.engines.protocol import Ended, Lost, Refused, Started
from slotwise.live.explaining import explained
from slotwise.live.hooks.events import name_of
from slotwise.live.kept import connect
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import After, NewJob
from slotwise.live.quotas import QuotaFullError
from slotwise.live.replay import replay
from slotwise.live.restart import Setup, load
from slotwise.live.retention import Retention
from slotwise.live.retries import Retry
from slotwise.live.settings import parse_cluster, servers_of, setup_of
from slotwise.live.store import open_store
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Query
from slotwise.model.quotas import Quota
from slotwise.workloads.traces.journal import Tale

FILE = """
[cluster]
resources = ["cpu", "memory"]
servers = [{ name = "node", count = 4, capacity = [4, 100] }]

[policy]
name = "best-fit"

[[types]]
name = "one"
demand = [1, 1]

[[quotas]]
tenant = "physics"
active = { cpu = 6, jobs = 5 }
waiting = { jobs = 8 }

[[quotas]]
tenant = "*"
active = { memory = 150 }
"""
BARE = FILE.split("[[quotas]]")[0]
TENANTS = ("physics", "biology", "chemistry")


def of_file(text: str) -> tuple[Setup, Target]:
    scenario = parse_cluster(text)
    setup = setup_of(scenario.cluster, scenario)
    return setup, Target.of_setup(setup, servers_of(scenario.cluster))


def begin(text: str = FILE) -> Ledger:
    setup, target = of_file(text)
    made = Ledger(setup.core())
    made.apply(make_plan(made.what_runs(), target, 0.5), 0.5)
    return made


def apply(ledger: Ledger, text: str, now: float) -> ChangePlan:
    plan = make_plan(ledger.what_runs(), of_file(text)[1], now)
    ledger.apply(plan, now)
    return plan


def job(tenant: str, cpu: float = 1.0, **more: object) -> NewJob:
    return NewJob(tenant, None, {"cpu": cpu}, {}, **more)  # type: ignore[arg-type]


def done(ledger: Ledger, number: int, now: float, code: int = 0) -> None:
    ledger.ended(Ended(number, ledger.live[number].attempt, code, now), now)
    ledger.release(now)


def test_jobs_over_the_quota_are_held_and_go_in_order() -> None:
    ledger = begin()
    ledger.submit([job("physics", 3.0), job("physics", 2.0), job("physics", 2.0), job("physics")], 1.0)
    ledger.submit([job("biology", 3.0)], 1.0)
    ledger.release(1.0)
    assert set(ledger.live) == {1, 2, 5}  # 5 of 6 CPUs; job 4 would fit, and does not overtake job 3
    assert explained(ledger, 3, 1.0) == (
        "job 3 is held: tenant 'physics' has 5 of its quota of 6 cpu in active jobs, and the job asks for 2"
    )
    assert "1 of its jobs go before this one, and the first of them, job 3, asks for 2" in explained(ledger, 4, 1.0)
    ledger.cancel(3, 2.0)
    ledger.release(2.0)
    assert set(ledger.live) == {1, 2, 4, 5}
    (use,) = [one for one in ledger.quotas.uses()["physics"] if one.name == "cpu"]
    assert (use.kind, use.used, use.quota) == ("active", 6.0, 6.0)


def test_a_submission_beyond_a_quota_is_refused_as_a_whole() -> None:
    ledger = begin()
    with pytest.raises(InputError, match=r"asks for 7 cpu.*quota of tenant 'physics' is 6 cpu"):
        ledger.submit([job("physics"), job("physics", 7.0)], 1.0)
    with pytest.raises(QuotaFullError, match="9 jobs of tenant 'physics' would wait, and its quota is 8"):
        ledger.submit([job("physics", array=range(9))], 1.0)
    assert ledger.next_job == 1
    ledger.submit([job("physics", array=range(8))], 1.0)
    ledger.release(1.0)  # 5 of them start
    ledger.submit([job("physics", array=range(5))], 1.0)
    with pytest.raises(QuotaFullError):
        ledger.submit([job("physics")], 1.0)
    ledger.submit([job("biology", array=range(50))], 1.0)
    (pod,) = ledger.submit([job("physics")], 1.0, is_there=True)
    ledger.release(1.0)
    assert pod in ledger.holds, "what an engine has already is held, and not refused"


def test_quotas_change_while_jobs_run(tmp_path: Path) -> None:
    ledger, store = begin(BARE), open_store(f"sqlite:///{tmp_path}/x.db")
    connect(ledger, store)

    def commit(now: float) -> None:
        ledger.release(now)
        store.commit(ledger.take()[0])

    ledger.submit([job("physics", array=range(30)), job("biology")], 1.0)
    commit(1.0)
    assert len(ledger.live) == 16  # and all others wait in the core
    plan = apply(ledger, FILE, 2.0)
    assert [(one.what, one.name, one.action) for one in plan.changes] == [
        ("quota", "physics", "add"),
        ("quota", "*", "add"),
    ]
    assert "+ quota physics (active cpu 6, jobs 5; waiting jobs 8)" in plan.text
    commit(2.0)
    assert (len(ledger.live), ledger.core.waiting, len(ledger.holds)) == (16, {"one": 0, "cpu1": 1}, 14)
    assert make_plan(ledger.what_runs(), of_file(FILE)[1], 2.0).changes == []
    assert of_file(ledger.what_runs().target().to_toml("simulated"))[1].quotas == of_file(FILE)[1].quotas
    for number in range(1, 13):
        done(ledger, number, 3.0)
    assert len(ledger.live) == 6  # 5 of physics, and that of biology, which waited behind them
    done(ledger, 13, 4.0)
    tenants = Counter(store.job(one).tenant for one in ledger.live)  # type: ignore[union-attr]
    assert tenants == {"physics": 5, "biology": 1}
    commit(4.0)
    apply(ledger, BARE, 5.0)
    commit(5.0)
    assert (len(ledger.live), len(ledger.holds)) == (16, 0)
    store.close()


def test_random_sequences_never_exceed_a_quota_and_replay(tmp_path: Path) -> None:
    """Through restarts, retries, dependencies, throttled arrays, refusals, lost jobs, cancellations and changes of quotas."""
    for seed in range(6):
        store = open_store(f"sqlite:///{tmp_path}/{seed}.db")
        Random(store, seed).run()
        assert replay(store).differences == []
        store.close()


class Random:
    """A random sequence of requests and facts."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.chance, self.now = store, random.Random(seed), 1.0
        self.ledger, self.retention = begin(), Retention()
        connect(self.ledger, store)
        self.commit()
        self.retention.checkpoint(store, self.ledger)
        self.limit = 6.0  # CPUs of physics
        self.over: set[int] = set()  # jobs that ran when the quota became smaller
        self.held = 0

    def run(self) -> None:
        for _ in range(150):
            self.now += self.chance.random()
            self.step(self.chance.random())
            self.commit()
            self.check()
        assert self.held > 30, "nothing was held"
        while self.ledger.live or len(self.ledger.holds) or sum(self.ledger.core.waiting.values()):
            self.now += 1.0
            for number in list(self.ledger.live):
                self.ledger.ended(Ended(number, self.ledger.live[number].attempt, 0, self.now), self.now)
            self.commit()
            self.check()
        assert {one.used for some in self.ledger.quotas.uses().values() for one in some} == {0.0}

    def step(self, kind: float) -> None:
        ledger, chance, now = self.ledger, self.chance, self.now
        if kind < 0.4:
            self.submit()
        elif kind < 0.8 and ledger.live:
            self.tell()
        elif kind < 0.87:
            active = [one.id for one in self.store.jobs(Query(("held", "waiting"), limit=1000))]
            if active:
                ledger.end(chance.choice(active), now)
        elif kind < 0.93:
            before, self.limit = self.limit, chance.choice([2.0, 6.0, 9.0])
            apply(ledger, FILE.replace("cpu = 6", f"cpu = {self.limit:g}"), now)
            if self.limit < before:
                self.over = set(ledger.live)
        else:
            if chance.random() < 0.5:
                self.retention.checkpoint(self.store, ledger)
            uses, situation = ledger.quotas.uses(), ledger.core.situation()
            self.ledger = load(self.store, of_file(FILE)[0])[0]
            assert self.ledger.core.situation() == situation
            assert no_zeros(self.ledger.quotas.uses()) == no_zeros(uses)

    def submit(self) -> None:
        chance, ledger = self.chance, self.ledger
        tenant, cpu = chance.choice(TENANTS), chance.choice([0.5, 1.0, 2.0])
        known = [one.id for one in self.store.jobs(Query(limit=5))]
        shapes = [
            {},
            {"array": range(chance.randint(1, 6))},
            {"array": range(5), "at_once": 2, "body": '{"at_once": 2}'},
            {"retry": Retry(2, 1.0), "body": '{"retry": 2, "backoff": 1.0}'},
            {"after": [After("one-any", chance.choice(known))]} if known else {},
        ]
        with suppress(QuotaFullError):  # no job asks for more than the smallest quota
            ledger.submit([job(tenant, cpu, **chance.choice(shapes))], self.now)

    def tell(self) -> None:
        chance, ledger, now = self.chance, self.ledger, self.now
        number = chance.choice(list(ledger.live))
        attempt, kind = ledger.live[number].attempt, chance.random()
        if kind < 0.1:
            ledger.refused(Refused(number, attempt, "no"), now)
        elif kind < 0.2:
            ledger.lost(Lost(number, attempt, "gone"), now)
        else:
            ledger.started(Started(number, attempt, now), now)
            ledger.ended(Ended(number, attempt, chance.choice([0, 0, 1]), now), now)

    def commit(self) -> None:
        self.ledger.release(self.now)
        batch, _ = self.ledger.take()
        if batch:
            self.store.commit(batch)

    def check(self) -> None:
        """Count what the store says and compare."""
        ledger, used = self.ledger, Counter[str]()
        self.held += len(ledger.holds)
        self.over &= set(ledger.live)
        rows = self.store.jobs(Query(("waiting", "placed", "running"), limit=10_000))
        for row in rows:
            if row.tenant == "physics" and row.id not in self.over:
                used["cpu"] += Decimal(row.type.removeprefix("cpu") or 1)  # type: ignore[assignment]
                used["jobs"] += 1
        shown = {one.name: one.used for one in ledger.quotas.uses()["physics"] if one.kind == "active"}
        if not self.over:
            assert shown["jobs"] == used["jobs"] <= 5
            assert shown["cpu"] <= self.limit
        waits = self.store.counts_of(Query(("held", "waiting"), tenant="physics"))
        (waiting,) = [one.used for one in ledger.quotas.uses()["physics"] if one.kind == "waiting"]
        assert waiting == sum(waits.values())


def no_zeros(uses: dict[str, list[object]]) -> dict[str, list[object]]:
    return {tenant: some for tenant, some in uses.items() if any(one.used for one in some)}  # type: ignore[attr-defined]


def test_a_waiting_job_that_is_held_again_is_told_as_no_cancelled_job() -> None:
    told = {"event": "cancel", "job": 1, "now": 2.0}
    assert (name_of("cancel", told), name_of("cancel", told | {"held": "quota"})) == ("job.cancelled", None)
    ledger = begin()
    tale = Tale(ledger.core.situation().to_dict())
    for now, row, note in (
        (1.0, {"event": "submit", "type": "one"}, {}),
        (2.0, {"event": "cancel"}, {"held": "quota"}),
        (3.0, {"event": "submit", "type": "one"}, {}),
    ):
        tale.happen(now, {**row, "job": 1, "now": now}, [], note)
    assert (tale.jobs[1].arrival, tale.retried) == (3.0, [])


def test_through_the_api(tmp_path: Path) -> None:
    house = House(tmp_path)  # a server of 4 CPUs
    try:
        text = house.call("GET", "/v1/cluster/toml").text
        quotas = '\n[[quotas]]\ntenant = "physics"\nactive = { cpu = 2 }\nwaiting = { jobs = 600 }\n'
        assert house.call("POST", "/v1/cluster/apply", "submit", json={"toml": text + quotas}).status_code == 403
        assert house.call("POST", "/v1/cluster/apply", json={"toml": text + quotas}).json()["applied"]
        first = house.submit("operate", tenant="physics", duration=SLOW, array="1-4")
        other = house.submit("operate", tenant="biology", duration=SLOW)
        house.until_placed(other)
        assert house.call("GET", f"/v1/jobs/{first + 2}").json()["state"] == "held"
        assert "quota of 2 cpu" in house.call("GET", f"/v1/jobs/{first + 2}/explain").json()["text"]
        many = {"argv": ["x"], "tenant": "physics", "array": "1-5000"}
        answer = house.call("POST", "/v1/jobs", json=many)
        assert (answer.status_code, "retry-after" in answer.headers) == (429, True)
        assert "5,002 jobs of tenant 'physics' would wait, and its quota is 600" in answer.json()["detail"]
        tenants = {one["tenant"]: one for one in house.call("GET", "/v1/status").json()["tenants"]}
        assert tenants["physics"]["quotas"] == [
            {"kind": "active", "name": "cpu", "used": 2.0, "quota": 2.0},
            {"kind": "waiting", "name": "jobs", "used": 2.0, "quota": 600.0},
        ]
        assert tenants["biology"]["quotas"] == []
    finally:
        house.service.close()


def test_wrong_quotas_are_refused_in_one_line() -> None:
    for wrong, told in (
        ("active = { gpu = 1 }", "no resource is called 'gpu'"),
        ("", "limits nothing"),
        ('active = { cpu = 1 }\n[[quotas]]\ntenant = "a"\nwaiting = { cpu = 1 }', "'a' is listed twice"),
    ):
        with pytest.raises(InputError, match=told):
            of_file(BARE + f'[[quotas]]\ntenant = "a"\n{wrong}\n')
    with pytest.raises(InputError, match="quotas: are not simulated"):
        simulate(parse_cluster(FILE))
    assert Quota(tenant="a", active={"cpu": Decimal(1)}).waiting == {}

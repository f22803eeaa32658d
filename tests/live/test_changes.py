"""Applying a cluster file: the plan says what happens, running jobs are not interrupted, nothing is lost, every journal row replays."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from house import House
from processes import Process

from slotwise.errors import InputError
from slotwise.live.changes.plan import BY_FILE, ChangePlan, make_plan
from slotwise.live.changes.target import Target
from slotwise.live.engines.protocol import Ended, Lost, Started
from slotwise.live.epoch import go_on_from_facts
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.replay import Difference, replay
from slotwise.live.restart import Setup, load
from slotwise.live.retention import Retention
from slotwise.live.server_books import AWAY, DRAINING, UP
from slotwise.live.settings import servers_of
from slotwise.live.store import open_store
from slotwise.live.store.protocol import Store
from slotwise.model import Cluster, JobType, ServerClass

RESOURCES = ("cpu", "memory")
SEQUENCES = int(os.environ.get("SLOTWISE_SEQUENCES", "3"))


def target(
    classes: dict[str, Any],
    types: dict[str, Any],
    policy: str = "best-fit",
    resources: tuple[str, ...] = RESOURCES,
    **options: Any,
) -> Target:
    """Classes as {name: (count, capacity, labels)}, types as {name: (demand, requires)}."""
    cluster = Cluster(
        resources=resources,
        servers=tuple(
            ServerClass(name=name, count=count, capacity=capacity, labels=labels[0] if labels else {})
            for name, (count, capacity, *labels) in classes.items()
        ),
    )
    kinds = tuple(
        JobType(name=name, demand=demand, requires=requires[0] if requires else {})
        for name, (demand, *requires) in types.items()
    )
    setup = Setup(cluster, kinds, policy, options)
    return Target.of_setup(setup, servers_of(cluster))


FIRST = target({"a": (2, ("4", "1000"))}, {"small": [("1", "0")], "large": [("4", "500")]})


def begin(first: Target) -> Ledger:
    cluster = Cluster(
        resources=first.resources, servers=tuple(one.model_copy(update={"count": 1}) for one in first.classes)
    )
    made = Ledger(Setup(cluster, first.types, first.policy, dict(first.options)).core())
    made.apply(make_plan(made.what_runs(), first, 0.5), 0.5)
    return made


@pytest.fixture
def ledger() -> Ledger:
    made = begin(FIRST)
    made.take()
    return made


def apply(ledger: Ledger, wanted: Target, now: float) -> ChangePlan:
    plan = make_plan(ledger.what_runs(), wanted, now)
    ledger.apply(plan, now)
    return plan


def shown(plan: ChangePlan) -> dict[tuple[str, str], str]:
    return {(one.what, one.name): one.action for one in plan.changes}


def job(kind: str, **needs: float) -> NewJob:
    return NewJob("t", kind, needs, {})


def test_the_same_file_changes_nothing(ledger: Ledger) -> None:
    ledger.submit([job("small")] * 20, 1.0)
    ledger.take()
    plan = apply(ledger, FIRST, 2.0)
    assert plan.changes == []
    assert plan.fingerprint == ""
    assert not ledger.take()[0]


def test_a_demand_that_changes(ledger: Ledger) -> None:
    """Running jobs keep what they hold, waiting jobs take the new demand, and no server is overcommitted."""
    ledger.submit([job("small")] * 9, 1.0)  # 8 run
    ledger.submit([job("small", cpu=0.5)], 1.0)
    wanted = target({"a": (2, ("4", "1000"))}, {"small": [("2", "0")], "large": [("4", "500")]})
    plan = apply(ledger, wanted, 2.0)
    assert shown(plan) == {("type", "small"): "change"}
    assert plan.jobs == {"running": 8, "waiting": 2, "keep": 8, "move": 2, "start": 0}
    situation = ledger.core.situation()
    names = [one.name for one in situation.types]
    assert {names[at] for at in situation.running.type} == {"small@1"}
    assert {names[at] for at in situation.waiting.type} == {"small"}
    batch, _ = ledger.take()
    assert batch.jobs[1][2] == "small@1"  # the read model says so too
    ledger.ended(Ended(1, 1, 0, 3.0), 3.0)
    assert 9 not in ledger.live  # one CPU is free, and job 9 demands two by now
    ledger.ended(
        Ended(next(job for job in ledger.live if ledger.live[job].server == ledger.live[2].server), 1, 0, 4.0), 4.0
    )
    for number in [number for number in ledger.live if number <= 8]:
        ledger.ended(Ended(number, 1, 0, 5.0), 5.0)
    assert {9, 10} <= set(ledger.live)
    with pytest.raises(InputError, match="small@1"):
        ledger.submit([job("small@1")], 6.0)


def test_a_waiting_job_that_asks_for_more_than_the_new_type(ledger: Ledger) -> None:
    ledger.submit([job("large")] * 2, 1.0)
    ledger.submit([job("large", memory=300.0), job("large")], 1.0)
    wanted = target({"a": (2, ("4", "1000"))}, {"small": [("1", "0")], "large": [("4", "200")]})
    plan = apply(ledger, wanted, 2.0)
    assert plan.jobs["move"] == 1
    waiting = ledger.core.situation().waiting
    names = [one.name for one in ledger.core.types]
    assert dict(zip(waiting.job, (names[at] for at in waiting.type), strict=True)) == {3: "large@1", 4: "large"}


def test_a_capacity_below_what_runs(ledger: Ledger) -> None:
    """The server whose jobs do not fit drains under the earlier definition, takes no job, and comes back when it is empty."""
    ledger.submit([job("small")] * 4, 1.0)
    full, empty = ledger.live[1].server, next(name for name in ledger.servers if name != ledger.live[1].server)
    wanted = target({"a": (2, ("3", "1000"))}, {"small": [("1", "0")]})
    plan = apply(ledger, wanted, 2.0)
    assert plan.draining == [full]
    assert "drains (4 running jobs) and takes the new definition of class a when it is empty" in plan.text
    assert (ledger.servers[full].status, ledger.servers[full].server_class) == (DRAINING, "a@1")
    assert ledger.servers[full].reason.startswith(BY_FILE)
    assert ledger.servers[empty] == (empty, "a", UP, None)
    ledger.submit([job("small")] * 6, 3.0)
    assert Counter(one.server for one in ledger.live.values()) == {full: 4, empty: 3}
    with pytest.raises(InputError, match="cluster file"):
        ledger.resume(full, 3.0)
    for number in (1, 2, 3, 4):
        ledger.ended(Ended(number, 1, 0, 4.0), 4.0)
        ledger.settle(4.0)
    assert ledger.servers[full] == (full, "a", UP, None)
    assert Counter(one.server for one in ledger.live.values()) == {full: 3, empty: 3}
    assert [one.name for one in ledger.core.cluster.servers] == ["a"]
    assert not ledger.outgoing.servers


def test_a_class_that_goes(ledger: Ledger) -> None:
    ledger.submit([job("large")] * 3, 1.0)
    wanted = target({"b": (1, ("8", "2000"))}, {"small": [("1", "0")], "large": [("4", "500")]})
    plan = apply(ledger, wanted, 2.0)
    assert shown(plan) == {("class", "b"): "add", ("class", "a"): "remove"}
    assert plan.jobs["start"] == 1
    assert ledger.live[3].server == "b-0"
    assert {name: one.status for name, one in ledger.servers.items()} == {
        "a-0": DRAINING,
        "a-1": DRAINING,
        "b-0": UP,
    }
    for number in (1, 2):
        ledger.ended(Ended(number, 1, 0, 3.0), 3.0)
    ledger.settle(3.0)
    assert list(ledger.servers) == ["b-0"]
    assert [one.name for one in ledger.core.cluster.servers] == ["b"]


def test_a_type_that_goes_stays_until_its_last_job_has_ended(ledger: Ledger) -> None:
    ledger.submit([job("large")] * 3, 1.0)
    plan = apply(ledger, target({"a": (2, ("4", "1000"))}, {"small": [("1", "0")]}), 2.0)
    assert shown(plan) == {("type", "large"): "remove"}
    with pytest.raises(InputError, match="large"):
        ledger.submit([job("large")], 2.0)
    for number in (1, 2, 3):
        ledger.ended(Ended(number, 1, 0, 3.0), 3.0)
    ledger.retire_types(4.0)
    assert [one.name for one in ledger.core.types] == ["small"]


def test_waiting_jobs_that_would_fit_nowhere_are_refused(ledger: Ledger) -> None:
    ledger.submit([job("large")] * 3, 1.0)
    ledger.take()
    with pytest.raises(InputError, match="waiting jobs of type 'large' would fit no server"):
        apply(ledger, target({"a": (2, ("3", "1000"))}, {"small": [("1", "0")]}), 2.0)
    assert not ledger.take()[0]
    assert len(ledger.live) == 2


def test_labels_policy_options_and_resources(ledger: Ledger) -> None:
    ledger.submit([job("small")] * 9, 1.0)
    wanted = target(
        {"a": (2, ("4", "1000"), {"zone": "x"}), "g": (1, ("4", "0", "2"), {"zone": "y"})}
        | {"a": (2, ("4", "1000", "0"), {"zone": "x"})},
        {
            "small": [("1", "0", "0"), {"zone": ("x",)}],
            "gpu": [("1", "0", "1")],
            "large": [("4", "500", "0")],
        },
        "first-fit",
        ("cpu", "memory", "gpu"),
    )
    plan = apply(ledger, wanted, 2.0)
    assert shown(plan) == {
        ("policy", "first-fit"): "change",
        ("resources", ""): "change",
        ("type", "small"): "change",
        ("type", "gpu"): "add",
        ("class", "a"): "change",
        ("class", "g"): "add",
    }
    assert set(ledger.live) == set(range(1, 9)), "job 9 requires a zone that is full"
    ledger.submit([job("gpu")], 3.0)
    assert ledger.live[10].server == "g-0"
    assert ledger.core.policy.label == "first-fit"
    again = apply(ledger, wanted, 4.0)
    assert again.changes == []


def test_toml_of_what_runs_is_what_runs(ledger: Ledger, tmp_path: Path) -> None:
    from slotwise.live.settings import read_cluster, setup_of

    wanted = target(
        {"a": (2, ("4.5", "1000"), {"zone": "x"})}, {"small": [("0.5", "0"), {"zone": ("x", 'y"\\')}]}, "guarded"
    )
    apply(ledger, wanted, 2.0)
    file = tmp_path / "cluster.toml"
    file.write_text(ledger.what_runs().target().to_toml("simulated"))
    scenario = read_cluster(str(file))
    back = Target.of_setup(setup_of(scenario.cluster, scenario), servers_of(scenario.cluster))
    assert make_plan(ledger.what_runs(), back, 3.0).changes == []


# -- random sequences -------------------------------------------------------------------------------------------------


def a_target(chance: random.Random, policies: list[str]) -> Target:
    """Any cluster of up to three classes and types; types may fit nowhere."""
    classes: dict[str, Any] = {}
    for name in chance.sample("abc", chance.randint(1, 3)):
        labels = chance.choice([{}, {}, {"zone": chance.choice("xy")}])
        classes[name] = (
            chance.randint(0, 3),
            (str(chance.choice([1, 2, 4, 4.5])), str(chance.choice([0, 8]))),
            labels,
        )
    types: dict[str, Any] = {}
    for name in chance.sample(["small", "large", "odd"], chance.randint(1, 3)):
        requires = chance.choice([{}, {}, {}, {"zone": ("x",)}])
        types[name] = [(str(chance.choice([0.5, 1, 2, 3])), str(chance.choice([0, 2]))), requires]
    resources = RESOURCES
    if chance.random() < 0.2:
        resources = ("cpu", "memory", "gpu")
        classes = {name: (n, (*capacity, "1"), labels) for name, (n, capacity, labels) in classes.items()}
        types = {name: [(*demand, "0"), requires] for name, (demand, requires) in types.items()}
    return target(classes, types, chance.choice(policies), resources)


class Run:
    """A ledger on a store, with everything that was asked of it."""

    def __init__(self, url: str, seed: int, policies: list[str]) -> None:
        self.chance, self.policies = random.Random(seed), policies
        self.url, self.now = url, 1.0
        self.store = open_store(url)
        self.store.become_writer()
        self.ledger = begin(FIRST)
        self.wanted = FIRST
        self.retention = Retention()
        self.retention.checkpoint(self.store, self.ledger)
        self.submitted: set[int] = set()
        self.over: set[int] = set()
        self.applied = 0
        self.commit()

    def commit(self) -> None:
        self.ledger.settle(self.now)
        batch, effects = self.ledger.take()
        for placement in effects.starts:
            assert self.ledger.servers[placement.server].status == UP
        if batch:
            self.store.commit(batch)
        self.check()

    def check(self) -> None:
        situation = self.ledger.core.situation()
        assert set(situation.running.job) == set(self.ledger.live)
        assert set(situation.running.job) | set(situation.waiting.job) == self.submitted - self.over
        for name, one in zip(situation.servers.name, situation.servers.server_class, strict=True):
            if self.ledger.servers[name].status != AWAY:
                assert self.ledger.servers[name].server_class == situation.classes[one].name
        used: Counter[tuple[int, int]] = Counter()
        units = [[int(x * 10**d) for x, d in zip(t.demand, situation.digits, strict=True)] for t in situation.types]
        for at, server in enumerate(situation.running.server):
            demand = situation.running.demand[at] if situation.running.demand else units[situation.running.type[at]]
            for r, amount in enumerate(demand):
                used[server, r] += amount
        for (server, r), amount in used.items():
            capacity = situation.classes[situation.servers.server_class[server]].capacity[r]
            assert Decimal(amount).scaleb(-situation.digits[r]) <= capacity

    def step(self) -> None:
        self.now += self.chance.random()
        ledger, chance = self.ledger, self.chance
        kind = chance.random()
        before = {number: (one.server, one.attempt) for number, one in ledger.live.items()}
        if kind < 0.3:
            self.apply()
            assert before.items() <= {n: (one.server, one.attempt) for n, one in ledger.live.items()}.items()
        elif kind < 0.6:
            self.submit()
        elif kind < 0.85 and ledger.live:
            number = chance.choice(list(ledger.live))
            attempt = ledger.live[number].attempt
            if chance.random() < 0.2:
                ledger.live[number].on_loss = "requeue"
                ledger.lost(Lost(number, attempt, "?"), self.now)
            else:
                ledger.started(Started(number, attempt, self.now), self.now)
                ledger.ended(Ended(number, attempt, 0, self.now), self.now)
                self.over.add(number)
        elif kind < 0.9 and ledger.servers:
            name = chance.choice(list(ledger.servers))
            if name not in ledger.outgoing.servers:
                (ledger.drain if chance.random() < 0.5 else ledger.resume)(name, self.now)
        elif kind < 0.95:
            if chance.random() < 0.3:
                self.retention.checkpoint(self.store, ledger)
            self.ledger = load(self.store, Setup(Cluster(resources=RESOURCES, servers=FIRST.classes), FIRST.types))[
                0
            ]
            assert {n: (one.server, one.attempt) for n, one in self.ledger.live.items()} == before
            assert self.ledger.outgoing == ledger.outgoing
        else:
            ledger.retire_types(self.now)
        self.commit()

    def apply(self) -> None:
        wanted = a_target(self.chance, self.policies)
        seq = self.ledger.seq
        try:
            apply(self.ledger, wanted, self.now)
        except InputError:
            assert self.ledger.seq == seq, "a refused plan must change nothing"
        else:
            self.wanted = wanted
            self.applied += 1
            assert make_plan(self.ledger.what_runs(), wanted, self.now).changes == []

    def submit(self) -> None:
        chance = self.chance
        kind = chance.choice([*(one.name for one in self.ledger.core.types), None])
        needs = {"cpu": chance.choice([0.5, 1.0])} if kind is None or chance.random() < 0.3 else {}
        with suppress(InputError):  # the type is on its way out, or no server holds the job
            self.submitted.update(
                self.ledger.submit([NewJob("t", kind, needs, {})] * chance.randint(1, 4), self.now)
            )

    def finish(self) -> None:
        """Let every running job end; what the last file wants is what is there."""
        while self.ledger.live:
            self.now += 1.0
            for number in list(self.ledger.live):
                self.ledger.ended(Ended(number, self.ledger.live[number].attempt, 0, self.now), self.now)
                self.over.add(number)
            for name, one in list(self.ledger.servers.items()):
                if one.status == DRAINING and name not in self.ledger.outgoing.servers:
                    self.ledger.resume(name, self.now)
            self.commit()
        assert self.ledger.outgoing.servers == {}
        assert {name: one.server_class for name, one in self.ledger.servers.items()} == dict(self.wanted.servers)
        assert make_plan(self.ledger.what_runs(), self.wanted, self.now).changes == []


@pytest.mark.parametrize("policies", [["best-fit", "first-fit"], ["guarded", "best-fit"]], ids=["fits", "guarded"])
def test_random_sequences(policies: list[str], tmp_path: Path) -> None:
    applied = 0
    for seed in range(SEQUENCES):
        run = Run(f"sqlite:///{tmp_path}/{seed}.db", seed, policies)
        for _ in range(40):
            run.step()
        run.finish()
        found = replay(run.store)
        assert found.differences == []
        assert found.rows == run.ledger.seq - 1  # the first situation was kept after row 1
        _go_on_from_facts(run.store, run.ledger)
        applied += run.applied
        run.store.close()
    assert applied > 3 * SEQUENCES


def _go_on_from_facts(store: Store, ledger: Ledger) -> None:
    """A version that decides otherwise from the first row on finds the same jobs and servers by bookkeeping."""
    first = store.checkpoint(store.checkpoints()[0][0])
    assert first is not None
    core, seq, opening = go_on_from_facts(store, first, Difference(first.seq + 1, [], []))
    assert seq == ledger.seq
    there, here = core.situation(), ledger.core.situation()
    placed = {placement.job for placement in opening}
    assert set(there.running.job) - placed == set(here.running.job)
    assert {*there.running.job, *there.waiting.job} == {*here.running.job, *here.waiting.job}
    assert [one.model_dump() for one in there.types] == [one.model_dump() for one in here.types]
    assert dict(zip(there.servers.name, there.servers.status, strict=True)) == dict(
        zip(here.servers.name, here.servers.status, strict=True)
    )


def test_one_apply_is_one_row(ledger: Ledger) -> None:
    ledger.submit([job("small")] * 9, 1.0)
    ledger.take()
    apply(ledger, target({"a": (1, ("2", "8")), "b": (2, ("4", "8"))}, {"small": [("2", "0")]}), 2.0)
    batch, _ = ledger.take()
    assert [json.loads(entry.event)["event"] for entry in batch.entries] == ["change"]


# -- the API and the command line --------------------------------------------------------------------------------------

FILE = """
[cluster]
resources = ["cpu", "memory"]
servers = [{ name = "a", count = 1, capacity = [%s, 1000] }]
[[types]]
name = "one"
demand = [%s, 0]
[policy]
name = "%s"
"""


def test_plan_and_apply_through_the_api(tmp_path: Path) -> None:
    house = House(tmp_path)
    try:
        for role, status in (("read", 403), ("submit", 403), ("operate", 200)):
            answer = house.call("POST", "/v1/cluster/plan", role, json={"policy": "first-fit"})
            assert answer.status_code == status
        plan = answer.json()
        assert [(one["what"], one["action"]) for one in plan["changes"]] == [("policy", "change")]
        assert plan["applied"] is False
        assert house.call("GET", "/v1/cluster").json()["policy"] == "best-fit"
        wrong = house.call("POST", "/v1/cluster/apply", json={"policy": "first-fit", "plan": "other"})
        assert wrong.status_code == 409
        done = house.call("POST", "/v1/cluster/apply", json={"policy": "first-fit", "plan": plan["plan"]}).json()
        assert done["applied"] is True
        assert house.call("GET", "/v1/cluster").json()["policy"] == "first-fit"
        whole = house.call("POST", "/v1/cluster/apply", json={"toml": FILE % (8, 2, "best-fit")})
        assert {(one["what"], one["name"]) for one in whole.json()["changes"]} == {
            ("policy", "best-fit"),
            ("type", "one"),
            ("class", "a"),
        }
        assert {one["name"] for one in house.call("GET", "/v1/servers").json()} == {"a-0"}
        assert "capacity = [8, 1000]" in house.call("GET", "/v1/cluster/toml", "read").text
        for body, said in (
            ({"toml": "x ="}, "is not valid TOML"),
            ({"toml": FILE % (1, 2, "best-fit")}, "fits no server"),
            ({"policy": "no-such"}, "no policy is called 'no-such'"),
            ({"policy": "mine.py:Mine"}, "is a file"),
            ({"toml": FILE % (8, 2, "best-fit"), "policy": "best-fit"}, "beside a policy"),
        ):
            answer = house.call("POST", "/v1/cluster/plan", json=body)
            assert answer.status_code == 400, answer.text
            assert said in answer.json()["detail"]
    finally:
        house.service.close()


def test_an_edited_file_is_told_and_applied_on_request(tmp_path: Path, serve: Callable[..., Process]) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(FILE % (4, 1, "best-fit"))
    service = serve(tmp_path, "cluster.toml", "--engine", "simulated", "--speed", "0.001")
    service.command("submit", "--type", "one", "--array", "1-5", "--", "x")
    file.write_text(FILE % (4, 2, "best-fit"))
    shown = json.loads(service.command("apply", "cluster.toml", "--dry-run", "--json").stdout)
    assert [(one["what"], one["name"], one["action"]) for one in shown["changes"]] == [("type", "one", "change")]
    assert shown["jobs"] == {"running": 4, "waiting": 1, "keep": 4, "move": 1, "start": 0}
    refused = service.command("apply", "cluster.toml")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    service.end()
    service.start()
    said = (tmp_path / "errors").read_text()
    assert "cluster.toml differs from what runs" in said
    assert "`slotwise apply cluster.toml`" in said
    assert "demand cpu 1 -> cpu 2" in said
    assert "demand = [1, 0]" in service.command("show", "--toml").stdout
    done = json.loads(service.command("apply", "cluster.toml", "--yes", "--json").stdout)
    assert done["applied"] is True
    assert "demand = [2, 0]" in service.command("show", "--toml").stdout
    assert json.loads(service.command("plan-apply", "cluster.toml", "--json").stdout)["changes"] == []
    service.end()
    file.write_text(FILE % (3, 2, "best-fit"))
    service.options = (*service.options, "--apply")
    service.start()
    servers = json.loads(service.command("servers", "--json").stdout)
    assert [(one["name"], one["server_class"], one["status"]) for one in servers] == [("a-0", "a@1", "draining")]
    service.end(signal.SIGKILL)
    assert service.command("replay").returncode == 0

"""What is simulated is what is run: the simulator's loop and `Scheduler` agree on every placement, server included, for every policy.

The loop is stopped after each event; what has happened is read off its state and told to a scheduler as an event.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from variants import VARIANTS, label

from slotwise.compiler.kernel import JIT
from slotwise.core.state import ABSENT, COUNT, DRAINING, PRESENT, SERVER, STATUS, TYPE
from slotwise.model import Scenario, parse_scenario
from slotwise.scheduling import Complete, Drain, Fail, Join, Scheduler, Submit, Tick, make_policy
from slotwise.simulation.run import churn, replication
from slotwise.simulation.run.agenda import DURATION, stays
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task
from slotwise.simulation.run.serverevents import DRAIN, FAIL, JOIN
from slotwise.simulation.run.workload import jobs_of

pytestmark = pytest.mark.core

EVENTS = 1200 if JIT else 150

CLUSTER: dict[str, Any] = {
    "resources": ["cpu", "memory"],
    "servers": [
        {"name": "a", "count": 3, "capacity": [6, "8.5"]},
        {"name": "b", "count": 2, "capacity": [9, 5], "failures": {"mean_time_between": 6, "mean_repair": 2}},
        {"name": "c", "count": 1, "capacity": [4, 8], "labels": {"gpu": "a100"}},
    ],
    "events": [
        {"at": 2, "action": "join", "servers": "b"},
        {"at": 4, "action": "drain", "servers": "a"},
        {"at": 5, "action": "join", "servers": "a", "count": 2},
    ],
}
TYPES = [
    {"name": "large", "demand": [4, "2.5"], "rate": 2.5},
    {"name": "small", "demand": [1, 1], "rate": 14, "service": {"law": "lognormal", "sigma": 1}},
    {"name": "train", "demand": [2, 4], "rate": 1, "requires": {"gpu": "a100"}},
]
ALONE = {"resources": ["cpu"], "servers": [{**CLUSTER["servers"][1], "capacity": [9], "count": 5}], "events": []}


def scenario_for(name: str) -> Scenario:
    tables = {"cluster": CLUSTER, "types": TYPES}
    if name in ("vqs", "vqs-bf"):
        tables = {"cluster": ALONE, "types": [{**t, "demand": t["demand"][:1]} for t in TYPES[:2]]}
    return parse_scenario(
        {"name": "x", **tables, "run": {"events": EVENTS, "replications": 1, "warmup": 0, "seed": 7}}
    )


class Follower:
    """A scheduler that is told what happens in the loop."""

    def __init__(self, scenario: Scenario, name: str, options: dict[str, Any]) -> None:
        policy = make_policy(name, **options)
        seed = scenario.run.seed
        self.scheduler = Scheduler(scenario.cluster, scenario.types, policy, seed=seed, shares=scenario.shares)
        self.types = [t.name for t in scenario.types]
        self.classes = [c.name for c in scenario.cluster.servers]
        self.job_of: dict[int, int] = {}
        self.n_jobs = self.placements = self.events = 0

    def agree(self, store: Any, outcome: Any, now: float) -> None:
        """The placements of the last event are those that the scheduler made."""
        n, numbers = int(store.state.n_placed), self.scheduler._servers
        loop = [(self.job_of[int(i)], int(server)) for i, server in store.arrays["placed"][:n]]
        assert [(p.job, numbers[p.server]) for p in outcome.placements] == loop, f"event {self.events} at {now}"
        assert outcome.fault is None
        self.placements += n
        self.events += 1

    def job_event(self, ready: Any, before: dict[str, Any], now: float) -> None:
        store, a = ready.store, ready.agenda.record
        rows = store.arrays["jobs"]
        if a.completions > before["completions"]:
            (i,) = np.flatnonzero((before["on"] >= 0) & (rows[: len(before["on"]), SERVER] == -2))
            job = self.job_of.pop(int(i))
            event: Any = Complete(job, now, self.scheduler.attempt(job))
        elif a.arrivals > before["arrivals"]:
            i = before["free_job"]
            self.job_of[i], self.n_jobs = self.n_jobs, self.n_jobs + 1
            demand = None
            if store.state.actual:
                units = zip(store.arrays["job_demand"][i], store.sizes.digits, strict=True)
                sizes = [Decimal(int(size)).scaleb(-digits) for size, digits in units]
                demand = dict(zip(self.scheduler.cluster.resources, sizes, strict=True))
            duration = float(stays(a)[i, DURATION])
            event = Submit(self.job_of[i], self.types[rows[i, TYPE]], now, demand, duration)
        else:
            event = Tick(now)
        self.agree(store, self.scheduler.apply(event), now)

    def server_event(self, store: Any, kind: int, number: int, c: int, status: int, count: int, now: float) -> None:
        name = self.scheduler._server_of.get(number, f"new {number}")
        if kind == JOIN and (status == ABSENT or (status == DRAINING and count == 0)):
            self.agree(store, self.scheduler.apply(Join(name, self.classes[c], now)), now)
            assert self.scheduler._servers[name] == number
        elif kind == DRAIN and status == PRESENT:
            self.agree(store, self.scheduler.apply(Drain(name, now)), now)
        elif kind == FAIL and status != ABSENT:
            self.agree(store, self.scheduler.apply(Fail(name, now)), now)


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_the_loop_and_the_scheduler_agree(
    variant: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    agree(scenario_for(variant[0]), *variant, monkeypatch)


def test_the_loop_and_the_scheduler_agree_on_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = scenario_for("guarded")
    tenants = [{"name": "a", "share": 5}, {"name": "b", "share": 2}]
    types = [
        *({**one, "name": f"{one['name']} of {owner}", "tenant": owner} for one in TYPES[:2] for owner in "abc"),
        {**TYPES[2], "priority": 4.0},
    ]
    tables = {"cluster": CLUSTER, "types": types, "shares": {"half_life": 0.5, "tenants": tenants}}
    agree(parse_scenario({"name": "x", **tables, "run": scenario.run.model_dump()}), "guarded", {}, monkeypatch)


def agree(scenario: Scenario, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(scenario, jobs_of(scenario), Choice(name, options))
    follower = Follower(scenario, name, options)
    ready = replication.prepare(task)
    monkeypatch.setattr(replication, "prepare", lambda _: ready)
    real_run, real_happen, real_churn = churn.run_jobs, churn.happen, getattr(churn.run, "py_func", churn.run)

    def run(state: Any, a: Any, m: Any, *rest: Any) -> int:
        limit = a.limit_events
        while True:
            on = ready.store.arrays["jobs"][:, SERVER].copy()
            before = {"on": on, "free_job": int(state.free_job)}
            before |= {"completions": int(a.completions), "arrivals": int(a.arrivals)}
            events = int(a.events)
            a.limit_events = events + 1 if events < limit else limit
            what = real_run(state, a, m, *rest)
            a.limit_events = limit
            if a.events == events:
                return int(what)
            follower.job_event(ready, before, float(a.now))

    def happen(state: Any, a: Any, m: Any, kind: int, server: int, c: int, at: float, *hooks: Any) -> None:
        row = ready.store.arrays["servers"][server]
        status, count = int(row[STATUS]), int(row[COUNT])
        real_happen(state, a, m, kind, server, c, at, *hooks)
        follower.server_event(ready.store, kind, server, c, status, count, at)

    # the loop around both as plain Python, so that it calls these two
    monkeypatch.setattr(churn, "run_jobs", run)
    monkeypatch.setattr(churn, "happen", happen)
    monkeypatch.setattr(churn, "run", real_churn)
    replication.replicate(task)
    assert follower.events >= EVENTS * 0.9
    assert follower.placements > EVENTS / 10
    assert follower.scheduler.waiting == dict(
        zip(follower.types, ready.store.arrays["queue_length"].tolist(), strict=True)
    )

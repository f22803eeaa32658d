"""Types that come and go with demand: every demand is covered, few types, little waste, and none goes that is in use."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from slotwise.errors import InputError
from slotwise.live.demands import exact, least_demand
from slotwise.live.engines.protocol import Ended, ServerUp
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.replay import encode
from slotwise.live.restart import Setup, load
from slotwise.live.retention import Retention
from slotwise.live.store import open_store
from slotwise.live.typebook import TypeBook, TypeWish
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling.events import Submit

CLUSTER = Cluster(
    resources=("cpu", "memory"),
    servers=(
        ServerClass(name="a", count=1, capacity=("4", "1000")),  # type: ignore[arg-type]
        ServerClass(name="b", count=1, capacity=("64", "100"), labels={"disk": "fast"}),  # type: ignore[arg-type]
    ),
)
NAMED = (JobType(name="one", demand=("1", "0")),)  # type: ignore[arg-type]
SETUP = Setup(CLUSTER, NAMED, policy="best-fit")


def demand(chance: random.Random) -> tuple[dict[str, float], dict[str, tuple[str, ...]]]:
    big, requires = chance.random() < 0.5, chance.choice([{}, {}, {"disk": ("fast",)}])
    if big or requires:
        return {"cpu": float(chance.randrange(1, 65)), "memory": float(chance.randrange(101))}, requires
    return {"cpu": round(chance.uniform(0.1, 4), 1), "memory": float(chance.randrange(1001))}, {}


def covers(one: JobType, needs: dict[str, float]) -> bool:
    return all(float(size) >= needs[name] for size, name in zip(one.demand, CLUSTER.resources, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_every_demand_is_covered_by_few_types(seed: int) -> None:
    chance, book = random.Random(seed), TypeBook(max_types=12, max_own=12)
    types: list[JobType] = list(NAMED)
    for step in range(400):
        needs, requires = demand(chance)
        in_use = {one.name for one in types if chance.random() < 0.2}
        now = 100.0 * step
        assigned = book.assign([TypeWish(needs, requires, "t")], CLUSTER, types, lambda used=in_use: used, now)  # type: ignore[misc]
        assert in_use <= {one.name for one in assigned.types}, "a type went that has jobs"
        assert NAMED[0] in assigned.types, "a type went that an operator has named"
        assert assigned.changed == (assigned.types != types)
        book.keep(assigned)
        types = assigned.types
        assert set(book.made) == {one.name for one in types} - {"one"}
        assert len({one.name for one in types}) == len(types) <= 13
        chosen = next(one for one in types if one.name == assigned.names[0])
        assert covers(chosen, needs)
        assert dict(chosen.requires) == requires
        holds = [s for s in CLUSTER.servers if not requires or s.labels]
        assert any(all(c >= d for c, d in zip(s.capacity, chosen.demand, strict=True)) for s in holds)


def test_the_type_of_a_job_does_not_depend_on_what_others_requested() -> None:
    """After a job of 64 CPUs, jobs of 2, 5 and 33 CPUs get the types that they get without it."""
    alone = [TypeBook().assign([TypeWish({"cpu": n}, {})], CLUSTER, NAMED, set, 1.0) for n in (2.0, 5.0, 33.0)]
    book, types = TypeBook(), list(NAMED)
    for n in (64.0, 63.0, 2.0, 5.0, 33.0):
        assigned = book.assign([TypeWish({"cpu": n}, {})], CLUSTER, types, set, 1.0)
        book.keep(assigned)
        types = assigned.types
        if n < 63:
            assert assigned.names == alone.pop(0).names
    assert not alone
    assert [float(one.demand[0]) for one in types] == [1, 64, 2, 6, 48]


def test_a_refused_request_leaves_no_trace() -> None:
    book = TypeBook()
    with pytest.raises(InputError, match="no server can hold"):
        book.assign([TypeWish({"cpu": 3.0}, {}), TypeWish({"cpu": 99.0}, {})], CLUSTER, NAMED, set, 1.0)
    assert vars(book) == vars(TypeBook())


def test_a_tenant_of_many_odd_demands_changes_its_own_types_only() -> None:
    book, types = TypeBook(max_types=12, max_own=3), list(NAMED)

    def ask(tenant: str, cpu: float, now: float = 1.0, requires: Any = None) -> str:
        nonlocal types
        assigned = book.assign(
            [TypeWish({"cpu": cpu}, requires or {}, tenant)],
            CLUSTER,
            types,
            lambda: {one.name for one in types},
            now,
        )
        book.keep(assigned)
        types = assigned.types
        return assigned.names[0]

    for n in range(1, 65):
        ask("odd", float(n))
    assert len(types) == 1 + 5 + 1, "half of all types, and one that covers the rest"
    assert ask("plain", 24.0) == "cpu24"
    for n in range(3):
        ask("odd", 1.0, requires={"disk": ["fast", f"other-{n}"]})
    with pytest.raises(InputError, match="tenant 'odd' has jobs of 9 types"):
        ask("odd", 1.0, requires={"disk": ["fast", "slow"]})
    assert ask("plain", 48.0) == "cpu48"


def test_a_job_is_charged_what_it_requests() -> None:
    ledger = Ledger(SETUP.core())
    ledger.server_up(ServerUp("x", {}, server_class="a"), 1.0)
    ledger.submit([NewJob("t", None, {"cpu": 1.0, "memory": 900.0}, {})], 2.0)
    ledger.submit([NewJob("t", None, {"memory": 10.0}, {})] * 10, 3.0)
    assert len(ledger.live) == 4, "1 CPU each, where none is named"
    for job in list(ledger.live):
        ledger.ended(Ended(job, 1, 0, 4.0), 4.0)
    while ledger.live:
        for job in list(ledger.live):
            ledger.ended(Ended(job, 1, 0, 5.0), 5.0)
    ledger.submit([NewJob("t", "one", {"cpu": 0.5}, {})] * 20, 6.0)
    assert len(ledger.live) == 8, "half a CPU is half a CPU, of a named type, too"


@pytest.mark.parametrize("kind", ["one", None])
def test_a_job_takes_at_least_a_little(kind: str | None) -> None:
    ledger = Ledger(SETUP.core())
    ledger.server_up(ServerUp("x", {}, server_class="a"), 1.0)
    for amount in (0.0, 0.049):
        with pytest.raises(InputError, match="of cpu is too little"):
            ledger.submit([NewJob("t", kind, {"cpu": amount}, {})], 2.0)
    ledger.submit([NewJob("t", kind, {"cpu": 0.05}, {})] * 200, 3.0)
    assert len(ledger.live) == 80


def test_tiny_amounts_are_rounded_up_and_hurt_no_other_tenant() -> None:
    ledger = Ledger(SETUP.core())
    ledger.server_up(ServerUp("x", {}, server_class="a"), 1.0)
    for power in range(1, 16):
        ledger.submit([NewJob("odd", None, {"cpu": 1.0, "memory": 10.0**-power}, {})], 2.0)
    charged = [json.loads(demand)["memory"] for demand in ledger.batch.demands.values()]
    assert charged == [0.1, 0.01, *[0.001] * 13]
    for n in range(96):
        ledger.submit([NewJob("plain", None, {"cpu": 1 + n % 4, "memory": 10.0 * n}, {})], 3.0)
    assert all(-x.as_tuple().exponent <= 3 for one in ledger.core.types for x in one.demand)  # type: ignore[operator]


def test_without_cpus_the_first_resource_counts() -> None:
    slots = Cluster(resources=("slots",), servers=(ServerClass(name="a", count=1, capacity=("4000",)),))  # type: ignore[arg-type]
    assert exact({}, slots) == (1,) or least_demand(slots) > 1
    with pytest.raises(InputError, match="at least 4"):
        exact({"slots": 3.0}, slots)


def test_types_that_nobody_uses_go() -> None:
    ledger = Ledger(SETUP.core())
    ledger.types.unused = 100.0
    for name, kind in (("x", "a"), ("y", "b")):
        ledger.server_up(ServerUp(name, {}, server_class=kind), 1.0)
    needs = [{"cpu": 2.0, "memory": 500.0}, {"cpu": 3.0, "memory": 900.0}, {"cpu": 40.0}]
    ledger.submit([NewJob("t", None, one, {}) for one in needs], 2.0)
    assert len(ledger.core.types) == 4
    names = [one.name for one in ledger.core.types][1:]
    assert len(ledger.live) == 2  # the first and the third; the second waits
    ledger.ended(Ended(3, 1, 0, 3.0), 3.0)
    ledger.retire_types(90.0)
    assert len(ledger.core.types) == 4
    ledger.retire_types(103.0)
    assert [one.name for one in ledger.core.types][1:] == names[:2], "only the one without jobs goes"
    ledger.ended(Ended(1, 1, 0, 104.0), 104.0)
    ledger.ended(Ended(2, 1, 0, 105.0), 105.0)
    ledger.submit([NewJob("t", names[0], {}, {})], 150.0)  # named by hand: used again
    ledger.ended(Ended(4, 1, 0, 151.0), 151.0)
    ledger.retire_types(210.0)
    assert [one.name for one in ledger.core.types][1:] == names[:1]
    ledger.change(211.0, types=ledger.core.types)  # an operator names it: now it stays
    ledger.retire_types(10_000.0)
    assert len(ledger.core.types) == 2


def test_what_was_made_is_known_after_a_restart(tmp_path: object) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    store.become_writer()
    ledger, retention = Ledger(SETUP.core()), Retention()
    retention.checkpoint(store, ledger)
    ledger.server_up(ServerUp("x", {}, server_class="a"), 1.0)
    ledger.submit([NewJob("t", None, {"cpu": 2.0, "memory": 500.0}, {})], 2.0)
    store.commit(ledger.take()[0])
    assert load(store, SETUP)[0].types.made == ledger.types.made == {"cpu2-memory512": 2.0}
    retention.checkpoint(store, ledger)
    assert load(store, SETUP)[0].types.made == ledger.types.made
    store.close()


def test_a_policy_that_needs_durations_says_so_before_anything_happens() -> None:
    ledger = Ledger(SETUP._replace(policy="easy-backfill").core())
    ledger.server_up(ServerUp("x", {}, server_class="a"), 1.0)
    ledger.take()
    with pytest.raises(InputError, match="duration"):
        ledger.submit([NewJob("t", "one", {}, {}, duration=1.0), NewJob("t", "one", {}, {})], 2.0)
    assert not ledger.batch
    assert ledger.submit([NewJob("t", "one", {}, {}, duration=1.0)], 2.0) == [1]


def test_rows_of_submissions_are_what_encode_gives() -> None:
    ledger = Ledger(SETUP.core())
    jobs = [
        NewJob("t", "one", {}, {}),
        NewJob("t", "one", {"cpu": 0.5}, {}, duration=1e300),
        NewJob("t", None, {"cpu": 2.0}, {}),
    ]
    ledger.submit([*jobs, jobs[0]._replace(array=range(2))], 1e-7)
    found = [entry.event for entry in ledger.batch.entries if "submit" in entry.event]
    kinds = [
        ("one", None, None),
        ("one", {"cpu": "0.5"}, 1e300),
        ("cpu2", None, None),
        *[("one", None, None)] * 2,
    ]
    assert found == [encode(Submit(n, kind, 1e-7, own, took)) for n, (kind, own, took) in enumerate(kinds, 1)]

"""Types that come and go with demand: every demand is covered, few types, little waste, and none goes that is in use."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from slotwise.errors import InputError
from slotwise.live.engines.protocol import Ended, ServerUp
from slotwise.live.ledger import Ledger, NewJob
from slotwise.live.replay import encode
from slotwise.live.restart import Setup, load
from slotwise.live.retention import Retention
from slotwise.live.store import open_store
from slotwise.live.typebook import TypeBook
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
    return {"cpu": round(chance.uniform(0, 4), 1), "memory": float(chance.randrange(1001))}, {}


def covers(one: JobType, needs: dict[str, float]) -> bool:
    return all(float(size) >= needs[name] for size, name in zip(one.demand, CLUSTER.resources, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_every_demand_is_covered_by_few_types(seed: int) -> None:
    chance, book = random.Random(seed), TypeBook(max_types=12)
    types: list[JobType] = list(NAMED)
    most = 0
    for step in range(400):
        needs, requires = demand(chance)
        in_use = {one.name for one in types if chance.random() < 0.2}
        names, changed = book.assign([(needs, requires)], CLUSTER, types, lambda used=in_use: used, float(step))  # type: ignore[misc]
        if changed is not None:
            assert in_use <= {one.name for one in changed}, "a type went that has jobs"
            assert NAMED[0] in changed, "a type went that an operator has named"
            types = changed
        assert len({one.name for one in types}) == len(types)
        chosen = next(one for one in types if one.name == names[0])
        assert covers(chosen, needs)
        assert dict(chosen.requires) == requires
        holds = [s for s in CLUSTER.servers if not requires or s.labels]
        assert any(all(c >= d for c, d in zip(s.capacity, chosen.demand, strict=True)) for s in holds)
        best = min(
            sum(one.demand[r] / s for r, s in enumerate((64, 1000)))
            for one in types
            if covers(one, needs) and dict(one.requires) == requires
        )
        assert sum(chosen.demand[r] / s for r, s in enumerate((Decimal(64), Decimal(1000)))) == best, (
            "not the least waste"
        )
        most = max(most, len(types) - len(in_use))
    assert most <= 2 * 12


def test_covers_are_chosen_from_what_was_seen() -> None:
    """Demands that lie on a few points get types of just these sizes when there are too many types."""
    book, types = TypeBook(max_types=6), list(NAMED)
    points = [{"cpu": c, "memory": m} for c in (1.1, 2.1, 3.1) for m in (10.0, 333.0, 777.0)]
    for needs in points * 3:
        _, changed = book.assign([(needs, {})], CLUSTER, types, set, 1.0)
        types = changed or types
    assert len(types) <= 6
    sizes = {tuple(map(float, one.demand)) for one in types[1:]}
    assert sizes <= {(c, m) for c in (1.1, 2.1, 3.1) for m in (10.0, 333.0, 777.0)}
    assert (3.1, 777.0) in sizes


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
        ("cpu2", {"cpu": "2.0"}, None),
        *[("one", None, None)] * 2,
    ]
    assert found == [encode(Submit(n, kind, 1e-7, own, took)) for n, (kind, own, took) in enumerate(kinds, 1)]

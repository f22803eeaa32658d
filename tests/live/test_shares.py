"""Fair shares in the live service: tenants have types of their own, shares change while jobs run, and the journal replays."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from slotwise.errors import InputError
from slotwise.live.changes.plan import ChangePlan, make_plan
from slotwise.live.changes.starting import Source, wanted
from slotwise.live.changes.target import Target
from slotwise.live.engines.protocol import Ended, Started
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.replay import replay
from slotwise.live.restart import Setup, load
from slotwise.live.retention import Retention
from slotwise.live.settings import parse_cluster, servers_of, setup_of
from slotwise.live.store import open_store
from slotwise.model import Shares

FILE = """
[cluster]
resources = ["cpu"]
servers = [{ name = "node", count = 2, capacity = [4] }]

[shares]
half_life = 20.0
[[shares.groups]]
name = "science"
share = 2
[[shares.tenants]]
name = "physics"
share = 5
group = "science"
[[shares.tenants]]
name = "biology"
share = 3

[[types]]
name = "one"
demand = [1]
"""


def of_file(text: str) -> tuple[Setup, Target]:
    scenario = parse_cluster(text)
    setup = setup_of(scenario.cluster, scenario)
    return setup, Target.of_setup(setup, servers_of(scenario.cluster))


def begin(text: str) -> Ledger:
    setup, target = of_file(text)
    made = Ledger(setup.core())
    made.apply(make_plan(made.what_runs(), target, 0.5), 0.5)
    return made


def apply(ledger: Ledger, target: Target, now: float) -> ChangePlan:
    plan = make_plan(ledger.what_runs(), target, now)
    ledger.apply(plan, now)
    return plan


def job(tenant: str, type_: str | None = None, **needs: float) -> NewJob:
    return NewJob(tenant, type_, needs, {})


def test_a_listed_tenant_has_types_of_its_own() -> None:
    ledger = begin(FILE)
    ledger.submit([job("physics", "one"), job("biology", cpu=1), job("physics", cpu=1), job("guest", "one")], 1.0)
    batch, _ = ledger.take()
    assert [row[2] for row in batch.jobs.values()] == ["physics/one", "biology/cpu1", "physics/one", "one"]
    tenants = {one.name: one.tenant for one in ledger.core.types}
    assert tenants == {"one": None, "physics/one": "physics", "biology/cpu1": "biology"}
    with pytest.raises(InputError, match="a type of tenant 'physics'"):
        ledger.submit([job("biology", "physics/one")], 2.0)
    with pytest.raises(InputError, match="ask for at most that"):
        ledger.submit([job("biology", "one", cpu=2)], 2.0)


def test_a_plan_shows_shares_and_a_policy_that_cannot_honour_them_is_refused() -> None:
    ledger = begin(FILE)
    _, target = of_file(FILE)
    assert make_plan(ledger.what_runs(), target, 1.0).changes == []
    _, other = of_file(FILE.replace("share = 5", "share = 9"))
    plan = apply(ledger, other, 1.0)
    assert [(one.what, one.action) for one in plan.changes] == [("shares", "change")]
    assert "tenants keep what they have used" in plan.text
    assert ledger.core.shares == other.shares
    with pytest.raises(InputError, match="best-fit cannot honour shares"):
        make_plan(ledger.what_runs(), replace(other, policy="best-fit"), 2.0)
    none = replace(other, shares=None)
    assert [(one.what, one.action) for one in apply(ledger, none, 2.0).changes] == [("shares", "remove")]
    assert ledger.core.shares is None
    assert make_plan(ledger.what_runs(), none, 3.0).changes == []


def test_what_runs_is_written_as_a_file_with_shares() -> None:
    text = begin(FILE).what_runs().target().to_toml("simulated")
    assert of_file(text)[1].shares == of_file(FILE)[1].shares


def test_random_sequences_with_shares_replay(tmp_path: Path) -> None:
    """Also through restarts, with and without a kept situation, and through changes of shares."""
    for seed in range(4):
        chance, now = random.Random(seed), 1.0
        ledger, retention = begin(FILE), Retention()
        store = open_store(f"sqlite:///{tmp_path}/{seed}.db")

        def commit(ledger: Ledger, store=store) -> None:  # type: ignore[no-untyped-def]
            batch, _ = ledger.take()
            if batch:
                store.commit(batch)

        commit(ledger)
        retention.checkpoint(store, ledger)
        factors = set()
        for _ in range(120):
            now += chance.random()
            kind = chance.random()
            if kind < 0.5:
                wished = [job(chance.choice(["physics", "biology", "guest"]), cpu=chance.choice([1.0, 2.0, 4.0]))]
                ledger.submit(wished * chance.randint(1, 3), now)
            elif kind < 0.9 and ledger.live:
                number = chance.choice(list(ledger.live))
                attempt = ledger.live[number].attempt
                ledger.started(Started(number, attempt, now), now)
                ledger.ended(Ended(number, attempt, 0, now), now)
            elif kind < 0.95:
                share = chance.choice([1.0, 5.0, 50.0])
                _, target = of_file(FILE.replace("share = 5", f"share = {share}"))
                apply(ledger, target, now)
            else:
                if chance.random() < 0.5:
                    retention.checkpoint(store, ledger)
                before = ledger.core.situation()
                ledger = load(store, of_file(FILE)[0])[0]
                assert ledger.core.situation() == before
            commit(ledger)
            assert isinstance(ledger.core.shares, Shares)
            factors |= {tuple(use) for use in (ledger.core.situation().use or {}).values()}
        assert replay(store).differences == []
        assert len(factors) > 100, "nothing was used"
        store.close()


def test_a_service_without_a_file_keeps_the_shares_and_quotas_that_were_applied() -> None:
    quota = '\n[[quotas]]\ntenant = "physics"\nactive = { cpu = 3 }\n'
    setup, target = of_file(FILE + quota)
    ledger = begin(FILE + quota)
    servers = servers_of(setup.cluster)
    engine = SimulatedEngine(servers, exponential())
    machine = setup._replace(shares=None, quotas=())
    found = wanted(ledger.what_runs().target(), engine, machine, Source(None))
    assert found is not None
    assert (found.shares, found.quotas) == (target.shares, target.quotas)
    assert make_plan(ledger.what_runs(), found, 1.0).changes == []

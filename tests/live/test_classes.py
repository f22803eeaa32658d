"""Servers whose capacity or labels change while they hold jobs."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest

from slotwise.live.classes import reclassify
from slotwise.live.engines.protocol import ServerRemoved, ServersChanged, ServerUp
from slotwise.live.epoch import Books
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.replay import step
from slotwise.live.restart import Setup
from slotwise.live.store.records import Entry
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Complete

RESOURCES = ("cpu", "memory")
CLASSES = (
    ServerClass(name="a", count=1, capacity=(Decimal(8), Decimal(1000)), labels={"disk": "ssd"}),
    ServerClass(name="b", count=1, capacity=(Decimal(4), Decimal(1000)), labels={}),
)
TYPES = (
    JobType(name="small", demand=(Decimal(1), Decimal(10))),
    JobType(name="fast", demand=(Decimal(2), Decimal(10)), requires={"disk": ("ssd",)}),
)


def up(name: str, cpu: float, **labels: str) -> ServerUp:
    return ServerUp(name, {"cpu": cpu, "memory": 1000}, labels)


def test_a_class_gets_labels_that_all_its_servers_get() -> None:
    classes, moves = reclassify(
        CLASSES, RESOURCES, {"x": "b", "y": "b"}, [up("x", 4, zone="1"), up("y", 4, zone="1")]
    )
    assert moves == {}
    assert classes[1].labels == {"zone": "1"}


def test_a_server_moves_to_a_class_that_is_alike_or_to_a_new_one() -> None:
    now = {"x": "b", "y": "b", "z": "b"}
    classes, moves = reclassify(CLASSES, RESOURCES, now, [up("x", 8, disk="ssd"), up("y", 3)])
    assert moves == {"x": "a", "y": "class-1"}
    assert [(one.name, one.capacity[0]) for one in classes] == [("a", 8), ("b", 4), ("class-1", 3)]


def test_nothing_changes_where_all_is_as_told_before() -> None:
    assert reclassify(CLASSES, RESOURCES, {"x": "b"}, [up("x", 4)]) == (list(CLASSES), {})


def replayed(core: Scheduler, entries: list[Entry]) -> Scheduler:
    """Feed rows through a core, and compare every decision."""
    for entry in entries:
        core, outcome = step(core, entry)
        if outcome is not None:
            assert [list(one) for one in outcome.placements] == json.loads(entry.placements), entry
    return core


@pytest.mark.parametrize("policy", ["guarded", "best-fit"])
def test_changes_at_random_moments_keep_jobs_and_replay_exactly(policy: str) -> None:
    setup = Setup(Cluster(resources=RESOURCES, servers=CLASSES), TYPES, policy)
    ledger, rng = Ledger(setup.core()), random.Random(7)
    before = Scheduler.from_situation(ledger.core.situation())
    books = Books(json.loads(before.situation().to_json()))
    rows: list[Entry] = []
    for n in range(4):
        ledger.server_up(up(f"s{n}", 8, disk="ssd"), 1.0)
    for moment in range(2, 160):
        now = float(moment)
        kind = rng.choice(["submit", "submit", "end", "change"])
        live = dict(ledger.live)
        if kind == "submit":
            ledger.submit([NewJob("t", rng.choice(["small", "fast"]), {}, {})], now)
        elif kind == "end" and live:
            job = rng.choice(list(live))
            one = ledger.live.pop(job)
            ledger._apply(Complete(job, now, one.attempt))
        elif kind == "change":
            ups = []
            for name in rng.sample(sorted(ledger.servers), 2):
                held = {
                    r: sum(_demand(ledger, job)[r] for job, one in live.items() if one.server == name)
                    for r in (0, 1)
                }  # type: ignore[misc]
                cpu = max(float(rng.randrange(2, 9)), float(held[0]))  # type: ignore[index]
                ups.append(up(name, cpu, **({"disk": "ssd"} if rng.random() < 0.7 else {})))
            ledger.servers_changed(ServersChanged(tuple(ups)), now)
            for one in ups:
                server = ledger.servers[one.name]
                of = next(c for c in ledger.core.cluster.servers if c.name == server.server_class)
                assert server.status == "up"
                assert (float(of.capacity[0]), of.labels) == (one.capacity["cpu"], dict(one.labels))
            assert {job: one.server for job, one in live.items()}.items() <= {
                job: one.server for job, one in ledger.live.items()
            }.items()
        rows += ledger.take()[0].entries
    again = replayed(before, rows)
    assert json.loads(again.situation().to_json()) == json.loads(ledger.core.situation().to_json())
    for entry in rows:
        books.happen(entry)
    facts, core = books.situation(), ledger.core.situation()
    assert [facts.classes[c].name for c in facts.servers.server_class] == [
        core.classes[c].name for c in core.servers.server_class
    ]


def _demand(ledger: Ledger, job: int) -> Any:
    situation = ledger.core.situation()
    at = situation.running.job.index(job)
    return situation.types[situation.running.type[at]].demand


def test_a_server_that_holds_more_than_it_would_have_stays_drained() -> None:
    ledger = Ledger(Setup(Cluster(resources=RESOURCES, servers=CLASSES), TYPES, "best-fit").core())
    ledger.server_up(up("x", 8, disk="ssd"), 1.0)
    ledger.submit([NewJob("t", "fast", {}, {})], 2.0)
    ledger.servers_changed(ServersChanged((up("x", 1, disk="ssd"),)), 3.0)
    assert ledger.servers["x"].status == "draining"
    assert ledger.servers["x"].server_class == "a"
    assert len(ledger.live) == 1
    ledger.servers_changed(ServersChanged((up("x", 8, disk="ssd"),)), 4.0)
    assert ledger.servers["x"].status == "up"


def test_a_server_that_an_operator_has_drained_moves_and_stays_drained() -> None:
    ledger = Ledger(Setup(Cluster(resources=RESOURCES, servers=CLASSES), TYPES, "best-fit").core())
    ledger.server_up(up("x", 8, disk="ssd"), 1.0)
    ledger.drain("x", 2.0, "repair")
    ledger.servers_changed(ServersChanged((up("x", 4),)), 3.0)
    assert (ledger.servers["x"].status, ledger.servers["x"].server_class) == ("draining", "b")


def test_a_removed_server_is_forgotten_and_an_unknown_one_is_no_matter() -> None:
    ledger = Ledger(Setup(Cluster(resources=RESOURCES, servers=CLASSES), TYPES, "best-fit").core())
    ledger.server_up(up("x", 4), 1.0)
    ledger.server_removed(ServerRemoved("x"), 2.0)
    ledger.server_removed(ServerRemoved("x"), 3.0)
    assert ledger.servers == {}


def test_the_last_server_loses_a_label_that_a_type_requires() -> None:
    ledger = Ledger(Setup(Cluster(resources=RESOURCES, servers=CLASSES), TYPES, "best-fit").core())
    ledger.server_up(up("x", 8, disk="ssd"), 1.0)
    ledger.servers_changed(ServersChanged((up("x", 8),)), 2.0)
    classes = {one.name: one for one in ledger.core.cluster.servers}
    assert classes[ledger.servers["x"].server_class].labels == {}
    assert ledger.servers["x"].status == "up"
    ledger.submit([NewJob("t", "fast", {}, {})], 3.0)
    assert not ledger.live


def test_classes_without_servers_go_unless_a_type_fits_no_other() -> None:
    ledger = Ledger(Setup(Cluster(resources=RESOURCES, servers=CLASSES[:1]), TYPES, "best-fit").core())
    before = Scheduler.from_situation(ledger.core.situation())
    ledger.server_up(up("x", 8, disk="ssd"), 1.0)
    for moment, cpu in enumerate((7, 6, 5, 4, 3), start=2):
        ledger.servers_changed(ServersChanged((up("x", cpu, disk="ssd"),)), float(moment))
    assert [(one.name, one.capacity[0]) for one in ledger.core.cluster.servers] == [("a", 8), ("class-1", 3)]
    ledger.servers_changed(ServersChanged((up("x", 3, zone="1"),)), 7.0)
    near = JobType(name="near", demand=(Decimal(1), Decimal(1)), requires={"zone": ("1",)})
    ledger.change(8.0, types=[*TYPES, near])
    ledger.servers_changed(ServersChanged((up("x", 2),)), 9.0)
    labels = [one.labels for one in ledger.core.cluster.servers]
    assert labels == [{"disk": "ssd"}, {"zone": "1"}, {}]
    again = replayed(before, ledger.take()[0].entries)
    assert json.loads(again.situation().to_json()) == json.loads(ledger.core.situation().to_json())


def test_capacities_are_written_as_people_write_them() -> None:
    ledger = Ledger(Setup(Cluster(resources=RESOURCES, servers=CLASSES), TYPES, "best-fit").core())
    ledger.server_up(up("x", 110.0), 1.0)
    ledger.server_up(up("y", 0.5), 2.0)
    ledger.servers_changed(ServersChanged((up("y", 200.0),)), 3.0)
    found = {one.name: one for one in ledger.core.cluster.servers}
    shown = {name: str(found[server.server_class].capacity[0]) for name, server in ledger.servers.items()}
    assert shown == {"x": "110", "y": "200"}

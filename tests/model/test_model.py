"""Scenarios: exact, immutable, readable in every way they can be given."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from slotwise.errors import InputError
from slotwise.model import (
    Cluster,
    JobType,
    PolicyChoice,
    Run,
    Scenario,
    ServerClass,
    integers,
    load_scenario,
    shipped_scenarios,
)
from slotwise.model.checks import check_cluster, check_types
from slotwise.model.laws import Hyperexponential
from slotwise.packing import Space
from slotwise.scheduling import Scheduler

pytestmark = pytest.mark.core


def one(capacity: object, *demands: object) -> tuple[Cluster, list[JobType]]:
    cluster = Cluster(resources=("r",), servers=(ServerClass(name="s", count=1, capacity=(capacity,)),))
    return cluster, [JobType(name=f"t{j}", demand=(demand,), rate=1) for j, demand in enumerate(demands)]


def test_decimals_are_exact() -> None:
    """17.1 x 5 = 85.5 fits 90 and 17.1 x 6 does not; 0.1 + 0.2 fits 0.3, which floats deny."""
    assert 0.1 + 0.2 > 0.3
    cluster, types = one(0.3, 0.1, 0.2)
    sizes = integers(cluster, types)
    assert sizes.demand.tolist() == [[1], [2]]
    assert Space.additive(sizes.demand, sizes.capacity[0]).feasible((1, 1))
    cluster, types = one(90, 17.1)
    sizes = integers(cluster, types)
    assert (sizes.digits, sizes.demand.tolist(), sizes.capacity.tolist()) == ((1,), [[171]], [[900]])
    assert Space.additive(sizes.demand, sizes.capacity[0]).most(0) == 5
    cluster, types = one("85.5", 17.1)
    assert Space.additive(integers(cluster, types).demand, integers(cluster, types).capacity[0]).most(0) == 5


def test_each_resource_has_its_own_digits() -> None:
    cluster = Cluster(resources=("a", "b"), servers=(ServerClass(name="s", count=1, capacity=("1e3", "0.5")),))
    sizes = integers(cluster, [JobType(name="t", demand=("2.50", "0.125"))])
    assert sizes.digits == (1, 3)
    assert sizes.demand.tolist() == [[25, 125]]
    assert sizes.capacity.tolist() == [[10000, 500]]
    assert integers(cluster, [JobType(name="t", demand=(1, "0.125"))], 2).digits == (2, 3)


def test_exactness_reaches_the_scheduler() -> None:
    cluster, types = one("0.3", "0.1", "0.2")
    scheduler = Scheduler(cluster, types, "best-fit")
    assert scheduler.submit("a", "t0") == [("a", "s-0", 1)]
    assert scheduler.submit("b", "t1") == [("b", "s-0", 1)]
    cluster, types = one(1, 1)
    scheduler = Scheduler(cluster, types, "best-fit", digits=1)
    assert [len(scheduler.submit(n, "t0", demand={"r": 0.1})) for n in range(11)] == [1] * 10 + [0]


def test_what_the_scheduler_refuses_of_a_job() -> None:
    cluster, types = one(1, "0.5")
    scheduler = Scheduler(cluster, types, "best-fit")
    bad = [
        ({"r": 0.6}, "job 'a': asks for 0.6 of r; at most its type's demand, 0.5"),
        ({"r": -0.1}, "job 'a': asks for -0.1 of r; give 0 or more"),
        ({"r": "some"}, "job 'a': asks for some of r; give a number"),
        ({"r": float("nan")}, "job 'a': asks for nan of r; give a number"),
        ({"q": 1}, "job 'a': no resource is called 'q'; use one of: r"),
    ]
    for demand, message in bad:
        with pytest.raises(InputError, match=message):
            scheduler.submit("a", "t0", demand=demand)
    with pytest.raises(InputError, match="no type is called 't9'; there are: t0"):
        scheduler.submit("a", "t9")
    assert scheduler.waiting == {"t0": 0}
    scheduler.submit("a", "t0")
    with pytest.raises(InputError, match="job 'a' is here already; give every job a name of its own"):
        scheduler.submit("a", "t0")
    with pytest.raises(InputError, match="job 'a' runs; only waiting jobs can be cancelled"):
        scheduler.cancel("a")
    scheduler.submit("b", "t0")
    scheduler.submit("c", "t0")
    with pytest.raises(InputError, match="job 'c' has not started; only running jobs end; cancel a waiting one"):
        scheduler.complete("c")
    with pytest.raises(InputError, match="server 's-0' holds 2 jobs; drain it first"):
        scheduler.remove_server("s-0")
    with pytest.raises(InputError, match="server 's-0' is here already"):
        scheduler.add_server("s-0", "s")
    with pytest.raises(InputError, match="no server class is called 'x'; there are: s"):
        scheduler.add_server("s-1", "x")
    scheduler.drain_server("s-0")
    with pytest.raises(InputError, match="server 's-0' drains and holds 2 jobs; resume it, with its jobs"):
        scheduler.add_server("s-0", "s")
    clairvoyant = Scheduler(cluster, types, "easy-backfill")
    with pytest.raises(InputError, match="job 'a': has no duration; easy-backfill is clairvoyant: give duration"):
        clairvoyant.submit("a", "t0", now=0.0)
    for duration in (-1.0, float("nan")):
        with pytest.raises(InputError, match=f"job 'a': lasts {duration}; give a duration of 0 or more"):
            clairvoyant.submit("a", "t0", duration=duration, now=0.0)
    assert clairvoyant.waiting == {"t0": 0}


def test_everything_is_immutable() -> None:
    scenario = load_scenario("table1")
    targets: list[tuple[object, str]] = [
        (scenario, "name"),
        (scenario.cluster, "resources"),
        (scenario.cluster.servers[0], "count"),
        (scenario.types[0], "rate"),
        (scenario.workload, "intensity"),
        (scenario.workload.arrivals, "law"),
        (scenario.run, "seed"),
        (scenario.policy, "name"),
    ]
    for target, key in targets:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(target, key, getattr(target, key))
    for target in (scenario.cluster.servers, scenario.types, scenario.types[0].demand):
        assert isinstance(target, tuple)


@pytest.mark.parametrize("name", shipped_scenarios())
def test_shipped_scenarios_load_and_every_type_fits(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    if scenario.types:
        check_cluster(scenario.cluster)
        check_types(scenario.cluster, scenario.types)
        sizes = integers(scenario.cluster, scenario.types)
        fits = [(sizes.demand[j] <= sizes.capacity).all(axis=1).any() for j in range(len(scenario.types))]
        assert all(fits)


def test_table1_is_the_papers() -> None:
    scenario = load_scenario("table1")
    sizes = integers(scenario.cluster, scenario.types)
    assert sizes.demand.tolist() == [[150, 80, 1690], [171, 65, 420], [70, 200, 1690]]
    # every maximal configuration holds exactly five jobs: at most two are of another type, and the rest are high-memory
    space = Space.additive(sizes.demand, sizes.capacity[0])
    feasible = [k for k in itertools.product(range(6), repeat=3) if space.feasible(k)]
    maximal = [k for k in feasible if not any(np.all(np.array(o) >= k) and o != k for o in feasible)]
    assert {sum(k) for k in maximal} == {5}
    assert {(2, 3, 0), (0, 5, 0), (0, 3, 2)} <= set(maximal)


def test_settings_change_what_they_name() -> None:
    scenario = load_scenario(
        "table1",
        [
            "cluster.servers.standard.count=200",
            "types.high-cpu.rate = 2.5",
            "types.0.demand.1=9.5",
            "run.until=50",
            "policy.name=m14",
            "policy.weights=log",
            "workload.service={ law = 'pareto', shape = 2.5 }",
            "run.warmup=auto",
            "name=mine",
        ],
    )
    assert scenario.cluster.n_servers == 200
    assert scenario.types[2].rate == 2.5
    assert scenario.types[0].demand == (15, Decimal("9.5"), 1690)
    assert (scenario.run.until, scenario.run.events) == (50, None)  # the one asked for replaces the file's
    assert (scenario.policy.name, scenario.policy.options) == ("m14", {"weights": "log"})
    assert scenario.workload.service.law == "pareto"
    assert scenario.run.warmup == "auto"
    assert scenario.name == "mine"


def test_a_file_names_the_scenario_and_anchors_its_trace(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[cluster]\nresources = ["r"]\nservers = [{ name = "s", count = 1, capacity = [1] }]\n'
        '[workload]\ntrace = "data/jobs.parquet"\n'
    )
    scenario = load_scenario(path)
    assert scenario.name == "mine"
    assert scenario.workload.trace == str(tmp_path / "data" / "jobs.parquet")
    assert load_scenario(str(path)) == scenario


def test_scenarios_from_python_are_checked_too() -> None:
    cluster, types = one(1, 2)
    with pytest.raises(InputError, match=r"types\[0\] \(t0\).demand: fits no server: it asks for 2 of r"):
        Scenario(cluster=cluster, types=tuple(types))
    cluster, types = one(1, 1)
    scenario = Scenario(
        cluster=cluster, types=tuple(types), policy=PolicyChoice(name="best-fit"), run=Run(events=5)
    )
    assert Scenario.model_validate(scenario.model_dump()) == scenario
    assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario


def test_a_predicate_of_ones_own_replaces_adding_up() -> None:
    server = ServerClass(name="s", count=1, capacity=(0,), feasible=lambda k: sum(k) <= 2)
    cluster = Cluster(resources=("r",), servers=(server,))
    scheduler = Scheduler(cluster, [JobType(name="t", demand=(5,))], "algorithm1")
    assert [len(scheduler.submit(n, "t")) for n in range(3)] == [1, 1, 0]
    with pytest.raises(
        InputError, match="packs by free resources, but a server class has a predicate of its own; use"
    ):
        Scheduler(cluster, [JobType(name="t", demand=(5,))], "best-fit")


def test_hyperexponential_phases_keep_the_mean_and_the_variation() -> None:
    for law, scv in [
        (Hyperexponential(law="hyperexponential", scv=4.0), 4.0),
        (Hyperexponential(law="hyperexponential", scv=1.0), 1.0),
    ]:
        phases = law.phases()
        assert sum(p for p, _ in phases) == pytest.approx(1)
        assert sum(p * m for p, m in phases) == pytest.approx(1)
        assert sum(p * 2 * m * m for p, m in phases) - 1 == pytest.approx(scv)
    given = Hyperexponential(law="hyperexponential", probabilities=(0.5, 0.5), means=(1, 3)).phases()
    assert given == [(0.5, 0.5), (0.5, 1.5)]

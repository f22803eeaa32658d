"""Capacity with labels and requirements, against a linear program over configurations that are listed one by one.

Nothing here comes from the package but the scenario and the answers: labels are compared, demands added up and configurations listed
anew, and the program is written down in full for HiGHS.
"""

from __future__ import annotations

import heapq
import itertools
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from slotwise.model import Scenario, integers, parse_scenario
from slotwise.packing import Space, spaces_of
from slotwise.policies import make_policy
from slotwise.region.pricing import SearchedPricing
from slotwise.region.ray import Columns
from slotwise.region.region import Mix
from slotwise.theory import headroom_by_type, load_of, locate, region_of, scaled_rates
from slotwise.theory.bounds import best_lower_bound, pools_of
from slotwise.theory.capacity import assess
from slotwise.theory.certificates import CertificateError, verify_separation, verify_witness
from slotwise.theory.erlang import mean_queue
from slotwise.theory.guarantee import Verdict, guarantee
from slotwise.theory.load import columns_of

VALUES = {"gpu": ["none", "a100", "h100"], "zone": ["a", "b"]}


def random_labelled(seed: int) -> Scenario:
    """2 or 3 classes with random labels, 2 to 4 types of which most require something that some class has."""
    rng = random.Random(seed)
    R, C, J = rng.randint(1, 2), rng.randint(2, 3), rng.randint(2, 4)
    servers: list[dict[str, Any]] = []
    for c in range(C):
        labels = {key: rng.choice(values) for key, values in VALUES.items() if rng.random() < 0.8}
        capacity = [rng.randint(5, 9) for _ in range(R)]
        servers.append({"name": f"c{c}", "count": rng.randint(1, 4), "capacity": capacity, "labels": labels})
    types: list[dict[str, Any]] = []
    for j in range(J):
        home = rng.choice(servers)  # the class that surely holds it
        requires: dict[str, Any] = {}
        for key, value in home["labels"].items():
            if rng.random() < 0.6:
                others = rng.sample(VALUES[key], rng.randint(0, len(VALUES[key])))
                requires[key] = value if not others and rng.random() < 0.5 else [*others, value]
        demand = [rng.randint(1, 5) for _ in range(R)]
        types.append({"name": f"t{j}", "demand": demand, "rate": rng.randint(1, 5), "requires": requires})
    return parse_scenario(
        {"cluster": {"resources": [f"r{r}" for r in range(R)], "servers": servers}, "types": types}
    )


def may_run(scenario: Scenario, c: int, j: int) -> bool:
    labels = scenario.cluster.servers[c].labels
    return all(key in labels and labels[key] in wanted for key, wanted in scenario.types[j].requires.items())


def configurations(scenario: Scenario, c: int) -> np.ndarray:
    """Every configuration that class c can hold."""
    capacity, demands = scenario.cluster.servers[c].capacity, [job_type.demand for job_type in scenario.types]
    alone = [
        min(have // need for have, need in zip(capacity, demand, strict=True)) if may_run(scenario, c, j) else 0
        for j, demand in enumerate(demands)
    ]
    rows = itertools.product(*(range(int(most) + 1) for most in alone))
    sizes, room = np.array(demands, float), np.array(capacity, float)  # small whole numbers
    return np.array([row for row in rows if (row @ sizes <= room).all()])


def furthest(scenario: Scenario, base: np.ndarray, direction: np.ndarray) -> float:
    """max t with base + t direction carried by shares of configurations, one column for each of them."""
    tables = [configurations(scenario, c) for c in range(len(scenario.cluster.servers))]
    rows = np.vstack([n.count * table for n, table in zip(scenario.cluster.servers, tables, strict=True)])
    owner = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    answer = linprog(
        np.concatenate([np.zeros(len(rows)), [-1.0]]),
        A_ub=np.hstack([-rows.T, direction[:, None]]),
        b_ub=-base,
        A_eq=np.hstack([(owner == np.arange(len(tables))[:, None]).astype(float), np.zeros((len(tables), 1))]),
        b_eq=np.ones(len(tables)),
    )
    assert answer.status == 0
    return float(answer.x[-1])


@pytest.mark.parametrize("seed", range(24))
def test_intensity_headroom_and_proofs_agree_with_the_program_in_full(seed: int) -> None:
    scenario = random_labelled(seed)
    rho = load_of(scenario)
    true = 1 / furthest(scenario, np.zeros_like(rho), rho)
    region = region_of(scenario)
    assert region.intensity == pytest.approx(true, rel=1e-8)
    assert region.lower == pytest.approx(true, rel=1e-8)
    searched = Columns(
        [SearchedPricing(pricing.space) for pricing in region.columns.pricings], region.columns.counts.tolist()
    )
    assert locate(rho, searched).intensity == pytest.approx(true, rel=1e-8)

    # the prices separate: all servers together hold 1 at most, configuration by configuration
    counts = [server.count for server in scenario.cluster.servers]
    worth = sum(n * (configurations(scenario, c) @ region.prices).max() for c, n in enumerate(counts))
    assert worth == pytest.approx(1, rel=1e-9)
    assert region.prices @ rho == pytest.approx(true, rel=1e-8)
    for c, mix in enumerate(region.witness):
        listed = set(map(tuple, configurations(scenario, c).tolist()))
        assert all(tuple(row) in listed for row in mix.configurations.tolist())
    spaces = spaces_of(scenario.cluster.servers, integers(scenario.cluster, scenario.types))
    assert float(verify_witness(rho, spaces, counts, region.witness)) == pytest.approx(true, rel=1e-8)
    assert float(verify_separation(rho, spaces, counts, region.prices) or 0) == pytest.approx(true, rel=1e-8)

    inside = locate(rho * 0.7 / true, region.columns)
    for room in headroom_by_type(inside):
        unit = (np.arange(len(rho)) == room.type).astype(float)
        assert room.more == pytest.approx(furthest(scenario, inside.rho, unit), rel=1e-7, abs=1e-9)


def test_the_suite_has_types_that_fit_but_may_not_run() -> None:
    """Else the test above would pass without labels."""
    differs = 0
    for seed in range(24):
        scenario = random_labelled(seed)
        free = scenario.model_dump(mode="json", exclude_none=True)
        for job_type in free["types"]:
            del job_type["requires"]
        differs += region_of(parse_scenario(free)).intensity < region_of(scenario).intensity * (1 - 1e-6)
    assert differs > 12


def test_false_proofs_are_refused() -> None:
    spaces = [Space.additive([[1], [2]], [4], [True, False]), Space.additive([[1], [2]], [4])]
    with pytest.raises(CertificateError, match=r"\(0, 1\) does not fit"):
        verify_witness(
            [1, 1], spaces, [1, 1], [Mix(np.array([[0, 1]]), np.ones(1)), Mix(np.array([[2, 1]]), np.ones(1))]
        )
    # type 1 only runs on the second class, which holds two of it: W = 2, not 4
    assert verify_separation([0, 2], spaces, [1, 1], [0, 1]) == 1
    assert verify_separation([1, 1], spaces[:1], [3], [0, 1]) is None


def pools(**workload: Any) -> Scenario:
    """Two pools of one-job servers: "slow" on 6, "quick" on 3, and an empty class that would hold both."""
    one = [1]
    return parse_scenario(
        {
            "cluster": {
                "resources": ["slot"],
                "servers": [
                    {"name": "left", "count": 6, "capacity": one, "labels": {"side": "left"}},
                    {"name": "right", "count": 3, "capacity": one, "labels": {"side": "right"}},
                    {"name": "both", "count": 0, "capacity": one, "labels": {"side": "left"}},
                ],
            },
            "types": [
                {"name": "slow", "demand": one, "rate": 2.5, "mean_service": 2.0, "requires": {"side": "left"}},
                {"name": "quick", "demand": one, "rate": 4.0, "mean_service": 0.5, "requires": {"side": "right"}},
            ],
            "workload": workload,
        }
    )


def test_pools_apart_are_bounded_each_on_its_own() -> None:
    """Two M/M/n queues side by side: the bound is what they have, not less."""
    scenario = pools()
    bound = best_lower_bound(scenario, scaled_rates(scenario))
    assert bound.mean_queue == pytest.approx(mean_queue(6, 5.0) + mean_queue(3, 2.0), rel=1e-12)
    assert bound.kind == "erlang-c"
    assert any(text.startswith("of slow: ") for text in bound.assumptions)
    masks = pools_of(scaled_rates(scenario), columns_of(scenario))
    assert sorted(mask.tolist() for mask in masks) == [[False, True], [True, False]]
    # one server that may hold both makes it one pool
    joined = scenario.model_dump(mode="json", exclude_none=True)
    joined["types"][1]["requires"] = {"side": ["left", "right"]}
    case = parse_scenario(joined)
    assert len(pools_of(scaled_rates(case), columns_of(case))) == 1


def test_batches_over_two_pools() -> None:
    """One server each: M^X/M/1 twice, although every batch brings jobs of both."""
    tables = pools().model_dump(mode="json", exclude_none=True)
    for server in tables["cluster"]["servers"][:2]:
        server["count"] = 1
    for job_type in tables["types"]:
        del job_type["rate"]
        job_type["mean_service"] = 1.0
    batch = {"probability": 1.0, "jobs": {"slow": 2, "quick": 4}}
    tables["workload"] = {"arrivals": {"law": "batch", "rate": 0.2, "batches": [batch]}}
    scenario = parse_scenario(tables)

    def queue(size: int) -> float:
        rho = 0.2 * size
        return rho * (size**2 + size) / (2 * size * (1 - rho)) - rho

    bound = best_lower_bound(scenario, scaled_rates(scenario))
    assert bound.kind == "workload"
    assert bound.mean_queue == pytest.approx(queue(2) + queue(4), rel=1e-9)


def simulated(scenario: Scenario, rates: np.ndarray, seed: int, jobs: int = 3_000) -> float:
    """Mean number waiting, by plain lists: first fit among the servers that may hold a job, oldest first."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(len(rates), size=jobs, p=rates / rates.sum())
    times = np.cumsum(rng.exponential(1 / rates.sum(), jobs))
    lengths = rng.exponential(1.0, jobs) * np.array([t.mean_service for t in scenario.types])[kinds]
    servers = [
        (c, [int(size) for size in each.capacity])
        for c, each in enumerate(scenario.cluster.servers)
        for _ in range(each.count)
    ]
    sizes = [[int(size) for size in t.demand] for t in scenario.types]
    may = [[may_run(scenario, c, j) for j in range(len(rates))] for c in range(len(scenario.cluster.servers))]
    waiting: list[int] = []
    running: list[tuple[float, int, list[int]]] = []
    area, now, i = 0.0, 0.0, 0
    while i < jobs:
        event = min(times[i], running[0][0] if running else np.inf)
        area += len(waiting) * (event - now)
        now = event
        if running and running[0][0] <= now:
            _, n, free = heapq.heappop(running)
            free[:] = [have + size for have, size in zip(free, sizes[kinds[n]], strict=True)]
        else:
            waiting.append(i)
            i += 1
        for n in list(waiting):
            size = sizes[kinds[n]]
            for c, free in servers:
                if may[c][kinds[n]] and all(have >= need for have, need in zip(free, size, strict=True)):
                    free[:] = [have - need for have, need in zip(free, size, strict=True)]
                    heapq.heappush(running, (now + lengths[n], n, free))
                    waiting.remove(n)
                    break
    return area / now


def test_no_bound_is_above_what_a_naive_scheduler_does() -> None:
    useful = 0
    for seed in range(6):
        tables = random_labelled(seed).model_dump(mode="json", exclude_none=True)
        scenario = parse_scenario(tables | {"workload": {"intensity": 0.8}})
        rates = scaled_rates(scenario)
        runs = [simulated(scenario, rates, 10 * seed + n) for n in range(3)]
        bound = best_lower_bound(scenario, rates).mean_queue
        assert bound <= np.mean(runs) + 4 * np.std(runs) / np.sqrt(len(runs)), seed
        useful += bound > 0.1 * np.mean(runs)
    assert useful >= 3


def test_servers_that_hold_other_types_are_not_alike() -> None:
    alike = {
        "cluster": {
            "resources": ["r"],
            "servers": [
                {"name": "a", "count": 2, "capacity": [10], "labels": {"zone": "a"}},
                {"name": "b", "count": 2, "capacity": [10], "labels": {"zone": "b"}},
            ],
        },
        "types": [{"name": "t", "demand": [5], "rate": 1}, {"name": "u", "demand": [2], "rate": 1}],
    }
    for requires, verdict in (({"zone": ["a", "b"]}, Verdict.ASSUMED), ({"zone": "a"}, Verdict.NOT_CERTIFIED)):
        scenario = parse_scenario(
            alike | {"types": [alike["types"][0] | {"requires": requires}, alike["types"][1]]}
        )
        found = guarantee(scenario, scaled_rates(scenario), region_of(scenario), make_policy("best-fit"))
        assert found.verdict is verdict
        own = guarantee(scenario, scaled_rates(scenario), region_of(scenario), make_policy("algorithm1"))
        assert own.verdict is Verdict.ASSUMED


def test_the_record_says_who_can_hold_what() -> None:
    found = assess(pools()).as_dict()
    assert found["types"]["slow"]["requires"] == {"side": ["left"]}
    assert found["types"]["slow"]["servers"] == ["left", "both"]
    assert found["types"]["quick"]["servers"] == ["right"]
    assert Fraction(found["intensity"]).limit_denominator(1000) == Fraction(5, 6)

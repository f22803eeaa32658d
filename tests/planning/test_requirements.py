"""Plans for clusters with labels: only classes that can serve a type are bought, and enough of those it requires.

The policy is algorithm1, which only starts jobs in slots of a configuration that its server may hold.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from slotwise.model import Scenario, parse_scenario
from slotwise.packing import Space
from slotwise.planning import plan
from slotwise.planning.limit import cheapest, serves
from slotwise.region.pricing import pricing_of
from slotwise.region.ray import Columns
from slotwise.region.region import locate
from slotwise.theory import erlang


def cluster(**types: dict[str, Any]) -> Scenario:
    """One-slot servers: a cheap class in zone a, a dear one in zone b, the cheapest of all in zone c."""
    servers = [("cheap", "a", 1.0), ("dear", "b", 3.0), ("cheapest", "c", 0.1)]
    return parse_scenario(
        {
            "name": "zones",
            "cluster": {
                "resources": ["slot"],
                "servers": [
                    {"name": name, "count": 1, "capacity": [1], "price": price, "labels": {"zone": zone}}
                    for name, zone, price in servers
                ],
            },
            "types": [{"name": name, "demand": [1], **about} for name, about in types.items()],
            "policy": {"name": "algorithm1"},
            "run": {"events": 20_000, "seed": 2},
        }
    )


def test_each_pool_gets_what_erlang_says_for_it() -> None:
    """Two M/M/n queues apart: the target is far from the waits of their neighbours."""
    scenario = cluster(
        left={"rate": 3.0, "requires": {"zone": "a"}}, right={"rate": 2.0, "requires": {"zone": "b"}}
    )
    queues = {
        (a, b): erlang.mean_queue(a, 3.0) + erlang.mean_queue(b, 2.0) for a in range(4, 9) for b in range(3, 8)
    }
    target = 1.2
    right = min((mix for mix in queues if queues[mix] <= target), key=lambda mix: mix[0] + 3 * mix[1])
    found = plan(scenario, {"mean_queue": target})
    assert (found.servers["cheap"], found.servers["dear"], found.servers["cheapest"]) == (*right, 0)
    assert found.cheapest
    assert found.limit.cost == pytest.approx(3.0 + 3 * 2.0)


def test_a_class_that_serves_nothing_is_not_bought_to_dilute_the_utilisation() -> None:
    scenario = cluster(only={"rate": 4.0, "requires": {"zone": ["a", "b"]}})
    found = plan(scenario, {"utilisation": 0.5})
    assert found.servers == {"cheap": 8, "dear": 0, "cheapest": 0}
    assert found.limit.cost == pytest.approx(8.0)
    assert all(trial.servers[2] == 0 for trial in found.tried)


def test_what_a_trial_lacks_is_named() -> None:
    scenario = cluster(left={"rate": 0.5, "requires": {"zone": "a"}}, any={"rate": 0.5})
    found = plan(scenario, {"utilisation": 0.9})
    assert found.servers["cheap"] >= 1
    said = {trial.why for trial in found.tried if trial.servers[0] == 0 and any(trial.servers)}
    assert said <= {"no server can hold left"}


@pytest.mark.parametrize("seed", range(8))
def test_no_whole_mix_in_the_region_costs_less(seed: int) -> None:
    """As without labels, with some types barred from some classes."""
    rng = np.random.default_rng(seed)
    J, R, C = int(rng.integers(2, 4)), int(rng.integers(1, 3)), 3
    demand, capacity = rng.integers(1, 5, (J, R)), rng.integers(5, 13, (C, R))
    costs, rho = rng.uniform(0.5, 3, C), rng.uniform(0.2, 2, J)
    allowed = rng.random((C, J)) < 0.5
    allowed[0] = True
    pricings = [pricing_of(Space.additive(demand, capacity[c], allowed[c])) for c in range(C)]
    need = rho @ demand / 0.7 if seed % 2 else np.zeros(R)
    found = cheapest(rho, need, pricings, capacity.astype(float), costs)
    serving = serves(rho, pricings)
    assert serving.tolist() == allowed.any(axis=1).tolist()
    assert (found.servers[~serving] == 0).all()
    assert found.cost == pytest.approx(float(found.servers @ costs), rel=1e-7)
    best = min(
        float(np.array(mix) @ costs)
        for mix in itertools.product(*(range(6) if may else range(1) for may in serving))
        if any(mix)
        and locate(rho, Columns(pricings, mix)).intensity <= 1
        and (np.array(mix) @ capacity >= need - 1e-9).all()
    )
    assert found.cost <= best * (1 + 1e-9)
    assert best <= found.cost + costs.sum() + 1e-9

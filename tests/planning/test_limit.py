"""The linear program of the cheapest servers, against the capacity region and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from slotwise.packing import Space
from slotwise.planning.limit import cheapest
from slotwise.region.pricing import pricing_of
from slotwise.region.ray import Columns
from slotwise.region.region import intensity, locate


def test_one_class_is_the_intensity_times_the_servers() -> None:
    space = Space.additive([[15, 8, 1690], [17, 7, 420], [7, 20, 1690]], [90, 90, 5000])
    rho = np.array([2.0, 11.0, 2.0])
    found = cheapest(rho, np.zeros(3), [pricing_of(space)], np.array([[90.0, 90.0, 5000.0]]), np.array([2.0]))
    assert found.servers[0] == pytest.approx(intensity(rho, [space], [1]).intensity)
    assert found.cost == pytest.approx(2 * found.servers[0])


@pytest.mark.parametrize("seed", range(8))
def test_no_whole_mix_in_the_region_costs_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    J, R, C = int(rng.integers(1, 4)), int(rng.integers(1, 3)), 2
    demand = rng.integers(1, 5, (J, R))
    capacity = rng.integers(5, 13, (C, R))
    costs = rng.uniform(0.5, 3, C)
    rho = rng.uniform(0.2, 2.5, J)
    pricings = [pricing_of(Space.additive(demand, capacity[c])) for c in range(C)]
    allowed = 0.7
    need = rho @ demand / allowed if seed % 2 else np.zeros(R)
    found = cheapest(rho, need, pricings, capacity.astype(float), costs)
    assert found.cost == pytest.approx(float(found.servers @ costs), rel=1e-7)
    scaled = np.round(found.servers * 1e6).astype(int)
    assert locate(rho * 1e6, Columns(pricings, scaled.tolist())).intensity <= 1 + 1e-5
    best = min(
        float(np.array(mix) @ costs)
        for mix in itertools.product(range(8), range(8))
        if any(mix)
        and locate(rho, Columns(pricings, mix)).intensity <= 1
        and (np.array(mix) @ capacity >= need - 1e-9).all()
    )
    assert found.cost <= best * (1 + 1e-9)
    assert best <= found.cost + costs.sum() + 1e-9  # rounding up costs one server of each class at most

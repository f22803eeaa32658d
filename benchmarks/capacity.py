"""How long it takes to find where a load lies: many types, resources, classes and servers; and Erlang C."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from slotwise.model import load_scenario
from slotwise.packing import Space
from slotwise.theory import Region, headroom_by_type, intensity, region_of
from slotwise.theory.certificates import verify_witness
from slotwise.theory.erlang import erlang_c

T = TypeVar("T")

CAPACITY = np.array(
    [[64, 256, 2000, 100], [96, 384, 1000, 100], [32, 512, 4000, 200], [128, 512, 8000, 400], [48, 96, 500, 50]]
)
COUNTS = [1000, 500, 300, 800, 2000]


def cluster(types: int, parts: int, seed: int = 0) -> tuple[np.ndarray, list[Space]]:
    """Loads and feasible sets: demands uniform up to 1 / parts of the largest server, in every resource."""
    rng = np.random.default_rng(seed)
    demand = np.stack([rng.integers(1, int(most) // parts + 1, types) for most in CAPACITY.max(axis=0)], axis=1)
    demand = np.minimum(demand, CAPACITY.min(axis=0))
    return rng.random(types) * 100, [Space.additive(demand, row) for row in CAPACITY]


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def run() -> list[dict[str, Any]]:
    """One row for each figure."""
    rows = []
    region_of(load_scenario("table1"))
    intensity(*cluster(30, 8), COUNTS)  # compiles what is measured below

    def row(name: str, seconds: float, detail: str) -> None:
        rows.append({"name": name, "value": seconds, "unit": "s", "detail": detail})

    _, seconds = timed(lambda: region_of(load_scenario("table1")))
    row("capacity: table1", seconds, "3 types, 3 resources, 1 class")
    for parts in (4, 8, 12, 20, 30):
        rho, spaces = cluster(100, parts)
        region, seconds = timed(lambda rho=rho, spaces=spaces: intensity(rho, spaces, COUNTS))
        proven = float(verify_witness(rho, spaces, COUNTS, region.witness))
        assert abs(proven / region.intensity - 1) < 1e-9
        row(
            f"capacity: 100 types x 4 resources x 5 classes, demands up to 1/{parts}",
            seconds,
            f"{sum(COUNTS)} servers; {_limits(region)}",
        )
    inside = intensity(rho * (0.8 / region.intensity), spaces, COUNTS)
    _, seconds = timed(lambda: headroom_by_type(inside))
    row("capacity: headroom of each of 100 types", seconds, "lower and upper limits")
    erlang_c(10, 5.0)
    value, seconds = timed(lambda: erlang_c(1_000_000, 999_000.0))
    row("erlang C, a million servers", seconds, f"P(wait) = {value:.6f} at load 0.999")
    return rows


def _limits(region: Region) -> str:
    width = 1 - region.lower / region.intensity
    return "exact" if region.exact else f"limits {width:.1e} apart (relative)"


if __name__ == "__main__":
    for line in run():
        print(f"{line['name']:72} {line['value']:10.4f} {line['unit']}  {line['detail']}")

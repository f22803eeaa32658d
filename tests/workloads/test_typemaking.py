"""Types cover their jobs, the paper's rounding is exact, and few covers waste about as little as can be."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.errors import InputError
from slotwise.workloads import covers as covers_module
from slotwise.workloads.covers import assign, choose_covers, fewest_covers
from slotwise.workloads.traces import Trace, TraceMeta
from slotwise.workloads.typemaking import METHODS, make_types, power_exponents


def trace_of(
    demands: list[list[float]], duration: list[float] | None = None, capacity: float | None = 1.0
) -> Trace:
    names = ["cpu", "memory", "disk"][: len(demands[0])]
    frame = pl.DataFrame(
        {
            "arrival": np.arange(len(demands), dtype=np.float64),
            "duration": duration or [1.0] * len(demands),
            **{f"demand.{name}": [row[r] for row in demands] for r, name in enumerate(names)},
        }
    )
    return Trace(frame, TraceMeta("test", tuple(names), {}, dict.fromkeys(names, capacity) if capacity else {}))


def cost(points: np.ndarray, weight: np.ndarray, covers: np.ndarray) -> float:
    """The definition, word for word."""
    total = 0.0
    for point, mass in zip(points, weight, strict=True):
        total += mass * min((c.sum() for c in covers if (c >= point).all()), default=np.inf)
    return total


def best_cost(points: np.ndarray, weight: np.ndarray, K: int) -> float:
    """Every set of K covers whose coordinates are coordinates of points."""
    axes = [np.unique(points[:, r]) for r in range(points.shape[1])]
    grid = [np.array(c) for c in product(*axes)]
    return min(cost(points, weight, np.array(chosen)) for chosen in combinations(grid, min(K, len(grid))))


@pytest.mark.core
@pytest.mark.parametrize("seed", range(24))
def test_covers_in_two_resources_against_every_choice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = np.unique(rng.integers(1, 5, size=(7, 2)).astype(float), axis=0)
    weight = rng.exponential(size=len(points))
    K = 2 + seed % 2
    found = choose_covers(points, weight, K)
    assert len(found) <= K
    assert cost(points, weight, found) <= best_cost(points, weight, K) * (1 + 1e-9)


@pytest.mark.core
@settings(max_examples=25, derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=9), st.integers(1, 4))
def test_covers_in_one_resource_are_optimal(items: list[tuple[int, int]], K: int) -> None:
    points = np.unique([[float(size)] for size, _ in items], axis=0)
    weight = np.array([float(items[i % len(items)][1]) for i in range(len(points))])
    found = choose_covers(points, weight, K)
    assert len(found) <= K
    assert cost(points, weight, found) <= best_cost(points, weight, K) * (1 + 1e-12)


@pytest.mark.core
@pytest.mark.parametrize("resources", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_as_few_covers_as_the_waste_allows(resources: int, seed: int) -> None:
    """Against every choice: in one resource the fewest of all, in two at most one more; never over the limit."""
    rng = np.random.default_rng([seed, resources])
    points = np.unique(rng.integers(1, 5, size=(7, resources)).astype(float), axis=0)
    weight = rng.exponential(size=len(points))
    asked = float((weight[:, None] * points).sum())
    waste = float(rng.choice([0.02, 0.1, 0.3]))
    right = next(K for K in range(1, 8) if len(points) <= K or best_cost(points, weight, K) <= (1 + waste) * asked)
    found = fewest_covers(points, weight, waste, 64)
    assert cost(points, weight, found) <= (1 + waste) * asked * (1 + 1e-9)
    assert right <= len(found) <= right + resources - 1
    assert len(fewest_covers(points, weight, 0.0, 2)) <= 2, "never more than are allowed"


def test_covers_of_many_points_join_near_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    points = np.unique(rng.random((300, 3)).round(2), axis=0)
    weight = rng.exponential(size=len(points))
    free = cost(points, weight, choose_covers(points, weight, 6, tries=5))
    monkeypatch.setattr(covers_module, "MOST_POINTS", 60)
    found = choose_covers(points, weight, 6, tries=5)
    assert (assign(points, found) >= 0).all()
    assert cost(points, weight, found) <= 1.15 * free


def test_assign_takes_the_least_cover_that_dominates() -> None:
    covers = np.array([[4.0, 4.0], [2.0, 1.0], [1.0, 3.0]])
    assert assign(np.array([[1.0, 1.0], [2.0, 2.0], [0.5, 2.0], [5.0, 0.0]]), covers).tolist() == [1, 0, 2, -1]


@pytest.mark.parametrize("method", METHODS)
def test_every_job_is_covered_and_the_waste_adds_up(method: str, small: Trace) -> None:
    types = make_types(small, method)
    demands, held = small.demands(), types.demand[types.type_of]
    assert (held >= demands).all()  # a size of a unit server covers both resources
    assert types.demand.tolist() == [[float(Decimal(text)) for text in row] for row in types.demand_text]
    seconds = small.duration
    for r, name in enumerate(small.resources):
        hold = held[:, min(r, held.shape[1] - 1)]
        assert types.reserved[name] == pytest.approx((hold * seconds).sum() / small.span)
        assert types.waste[name] == pytest.approx((hold * seconds).sum() / (demands[:, r] * seconds).sum() - 1)
    assert types.waste["total"] == pytest.approx(sum(types.reserved.values()) / sum(types.asked.values()) - 1)
    assert types.waste["bottleneck"] == pytest.approx(max(types.reserved.values()) / max(types.asked.values()) - 1)
    table = types.table(small)
    assert table["jobs"].sum() == len(small)
    assert len(set(types.names)) == len(types.names)


def test_powers_of_two_are_exact_at_the_powers() -> None:
    sizes = np.array(
        [1.0, np.nextafter(0.5, 1), 0.5, np.nextafter(0.5, 0), 0.25, 0.24999, 0.0078125, 0.0078124, 1e-9, 0.0]
    )
    assert power_exponents(sizes).tolist() == [0, 0, 1, 1, 2, 2, 7, 7, 7, 7]
    types = make_types(trace_of([[0.3, 0.6], [0.125, 0.01]]), "power-of-two")
    assert types.resources == ("size",)
    assert types.names[:4] == ["1/1", "1/2", "1/4", "1/8"]
    assert types.type_of.tolist() == [0, 3]
    with pytest.raises(InputError, match=r"asks for 2 servers' worth of memory"):
        make_types(trace_of([[0.5, 2.0]]), "power-of-two")


def test_power_of_two_sizes_are_parts_of_the_capacity() -> None:
    types = make_types(trace_of([[32.0], [64.0], [3.0]]), "power-of-two", capacity={"cpu": 64.0})
    assert types.type_of.tolist() == [1, 0, 4]


def test_grid_rounds_up_to_exact_multiples() -> None:
    types = make_types(trace_of([[0.3, 0.1], [0.1, 0.7], [0.0, 0.0]]), "grid", step=0.1)
    assert sorted(map(tuple, types.demand_text)) == [("0.1", "0"), ("0.1", "0.7"), ("0.3", "0.1")]
    types = make_types(trace_of([[0.3, 0.1], [0.1, 0.7]]), "grid", levels=4)
    assert sorted(map(tuple, types.demand_text)) == [("0.25", "0.75"), ("0.5", "0.25")]


def test_exact_keeps_every_demand_and_wastes_nothing() -> None:
    types = make_types(trace_of([[0.1, 0.3], [0.2, 0.2], [0.1, 0.3], [0.0, 0.0]]), "exact")
    assert sorted(map(tuple, types.demand_text)) == [("0.1", "0.3"), ("0.2", "0.2")]
    assert types.waste["total"] == pytest.approx(0.4 / 1.2)  # only the job that asks for nothing
    with pytest.raises(InputError, match="2 different demands; 1 types are allowed"):
        make_types(trace_of([[0.1], [0.2]]), "exact", limit=1)


def test_more_types_waste_less(small: Trace) -> None:
    wastes = [make_types(small, "waste-bounded", types=k).waste["total"] for k in range(1, 7)]
    assert wastes == sorted(wastes, reverse=True)
    assert wastes[-1] == pytest.approx(0.0)  # six different demands


def test_the_number_of_types_follows_from_the_waste(small: Trace) -> None:
    by_number = {k: make_types(small, "waste-bounded", types=k).waste["total"] for k in range(1, 7)}
    for limit in (0.0, 0.05, 0.1, 0.5):
        types = make_types(small, "waste-bounded", waste=limit)
        assert types.waste["total"] <= limit + 1e-12
        assert len(types.names) == min(k for k, waste in by_number.items() if waste <= limit + 1e-12)
        assert f"at most {limit:.0%}" in types.told
        assert f"they add {types.waste['total']:.1%}" in types.told
    assert make_types(small).limit == 0.05
    given = make_types(small, "waste-bounded", types=3)
    assert given.limit is None
    assert given.told.startswith("3 types (waste-bounded): rounding up to them adds ")


def test_where_the_most_types_do_not_do_it_says_so() -> None:
    rng = np.random.default_rng(5)
    trace = trace_of(rng.random((300, 2)).tolist())
    types = make_types(trace, waste=0.001)
    assert len(types.names) <= 64
    assert types.waste["total"] > 0.001
    assert "as many as are chosen at most" in types.told


def test_capacity_weighs_resources() -> None:
    """Rounding what is scarce costs more: with a small memory, the covers split by memory."""
    trace = trace_of([[1.0, 1.0], [1.0, 2.0], [2.0, 1.0], [2.0, 2.0]], capacity=None)
    split = make_types(trace, "waste-bounded", types=2, capacity={"cpu": 1000.0, "memory": 2.0})
    assert sorted(map(tuple, split.demand_text)) == [("2", "1"), ("2", "2")]


def test_refuses_what_makes_no_types(small: Trace) -> None:
    with pytest.raises(InputError, match="unknown way to make types 'magic'"):
        make_types(small, "magic")
    with pytest.raises(InputError, match="unexpected keyword argument 'colour'"):
        make_types(small, "grid", colour=1)
    with pytest.raises(InputError, match="0 types"):
        make_types(small, "waste-bounded", types=0)
    with pytest.raises(InputError, match="a waste of -1"):
        make_types(small, "waste-bounded", waste=-1.0)
    with pytest.raises(InputError, match="grid step"):
        make_types(small, "grid", step=0.0)


@pytest.mark.slow
def test_eight_covers_waste_less_than_half_of_the_papers_rounding(google: Trace) -> None:
    paper, ours = make_types(google, "power-of-two"), make_types(google, "waste-bounded", types=8)
    assert len(ours.names) == len(paper.names) == 8
    for which in ("cpu", "memory", "total", "bottleneck"):
        assert ours.waste[which] < 0.5 * paper.waste[which], which

"""Lower bounds: tight where the true value is known, below simulated policies, silent where they do not apply."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
import pytest

from slotwise.errors import InputError
from slotwise.model import Scenario, load_scenario, parse_scenario
from slotwise.theory import columns_of, region_of, scaled_rates
from slotwise.theory.bounds import best_lower_bound, by_workload, workload_bound, workload_moments
from slotwise.theory.erlang import mean_queue
from slotwise.theory.srpt import srpt_area, srpt_mean_queue


def scenario(
    types: list[dict[str, Any]],
    capacity: int = 1,
    count: int = 1,
    workload: dict[str, Any] | None = None,
    **more: Any,
) -> Scenario:
    cluster = {"resources": ["slots"], "servers": [{"name": "s", "count": count, "capacity": [capacity]}]} | more
    return parse_scenario({"cluster": cluster, "types": types, "workload": workload or {}})


def job(rate: float | None, name: str = "a", demand: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "demand": [demand]} | ({} if rate is None else {"rate": rate}) | more


@pytest.mark.parametrize(
    ("zeta", "expected"), [(0.80, 0.079), (0.85, 0.424), (0.89, 1.446), (0.90, 1.952), (0.95, 9.623)]
)
def test_table1_values(zeta: float, expected: float) -> None:
    case = load_scenario("table1", [f"workload.intensity={zeta}"])
    bound = best_lower_bound(case, scaled_rates(case))
    assert bound.kind == "erlang-c"
    assert round(bound.mean_queue, 3) == expected


def test_tight_on_mmn() -> None:
    case = scenario([job(8.0, mean_service=0.5)], capacity=1, count=5)
    assert best_lower_bound(case, scaled_rates(case)).mean_queue == pytest.approx(mean_queue(5, 4.0))


@pytest.mark.parametrize(
    ("law", "second"),
    [
        ({"law": "deterministic"}, 1.0),
        ({"law": "lognormal", "sigma": 1.0}, math.exp(1.0)),
        ({"law": "hyperexponential", "scv": 4.0}, 5.0),
    ],
)
def test_tight_on_mg1(law: dict[str, Any], second: float) -> None:
    case = scenario([job(0.4, mean_service=2.0)], workload={"service": law})
    bound = best_lower_bound(case, scaled_rates(case))
    assert bound.kind == "workload"
    # Pollaczek and Khinchine: lambda^2 E[S^2] / (2 (1 - rho)), with lambda = 0.4, E[S] = 2 and E[S^2] = 4 second
    assert bound.mean_queue == pytest.approx(0.4**2 * 4 * second / (2 * (1 - 0.8)), rel=1e-9)


def test_tight_on_one_server_with_batches() -> None:
    # M^X/M/1: E[Q] = rho (E[X^2] + E[X]) / (2 E[X] (1 - rho)) - rho
    arrivals = {
        "law": "batch",
        "rate": 0.2,
        "batches": [{"probability": 0.25, "jobs": {"a": 6}}, {"probability": 0.75, "jobs": {"a": 2}}],
    }
    case = scenario([job(None)], workload={"arrivals": arrivals})
    first, second = 3.0, 0.25 * 36 + 0.75 * 4
    rho = 0.2 * first
    expected = rho * (second + first) / (2 * first * (1 - rho)) - rho
    assert best_lower_bound(case, scaled_rates(case)).mean_queue == pytest.approx(expected, rel=1e-9)


def test_unlike_means_are_bounded_type_by_type() -> None:
    types = [job(1.8, "a", mean_service=1.0), job(0.45, "b", mean_service=4.0)]
    case = scenario(types, capacity=1, count=4)
    bound = best_lower_bound(case, scaled_rates(case))
    assert bound.kind != "erlang-c"
    each = mean_queue(4, 1.8) + mean_queue(4, 1.8)
    assert bound.mean_queue >= each * (1 - 1e-12)


def test_prices_are_searched_for() -> None:
    case = load_scenario("example1", ["types.large.rate=0.47", "types.small.rate=3.7"])
    moments = workload_moments(case, scaled_rates(case))
    assert moments is not None
    columns = columns_of(case)
    best = by_workload(moments, columns, region_of(case).prices)
    rng = np.random.default_rng(1)
    for prices in rng.random((200, 2)):
        assert workload_bound(prices, moments, columns) <= best.mean_queue * 1.001
    assert best.prices is not None
    assert workload_bound(best.prices, moments, columns) == pytest.approx(best.mean_queue)
    assert workload_bound(7 * best.prices, moments, columns) == pytest.approx(best.mean_queue)  # only ratios count


@pytest.mark.parametrize(
    "workload",
    [
        {"arrivals": {"law": "lognormal", "sigma": 1.0}},
        {"arrivals": {"law": "deterministic"}},
        {"service": {"law": "pareto", "shape": 1.5}},
        {"arrivals": {"law": "mmpp", "rates": [1, 5], "sojourns": [1, 1]}},
    ],
)
def test_nothing_is_claimed_where_the_laws_do_not_allow_it(workload: dict[str, Any]) -> None:
    case = scenario([job(0.9)], workload=workload)
    assert best_lower_bound(case, scaled_rates(case)).mean_queue == 0


def test_no_erlang_without_exponential_services() -> None:
    case = scenario([job(4.5)], count=5, workload={"service": {"law": "lognormal", "sigma": 0.5}})
    assert best_lower_bound(case, scaled_rates(case)).kind in ("workload", "none")


def test_a_cluster_that_changes_and_a_load_outside() -> None:
    events = [{"at": 5.0, "action": "join", "servers": "s"}]
    case = scenario([job(0.9)], events=events)
    assert best_lower_bound(case, scaled_rates(case)).mean_queue == 0
    case = scenario([job(1.1)])
    assert best_lower_bound(case, scaled_rates(case)).mean_queue == math.inf


def simulate(
    arrival: np.ndarray,
    service: np.ndarray,
    size: np.ndarray,
    servers: int,
    capacity: int,
    end: float,
    shortest: bool,
) -> float:
    """Mean number waiting in [0, end]: first fit, waiting jobs retried in order of arrival (or shortest first)."""
    free = [capacity] * servers
    running: list[tuple[float, int, int]] = []
    waiting: list[int] = []
    area, now, i = 0.0, 0.0, 0
    while True:
        next_arrival = arrival[i] if i < len(arrival) else math.inf
        event = min(next_arrival, running[0][0] if running else math.inf, end)
        area += len(waiting) * (event - now)
        now = event
        if now >= end:
            return area / end
        if next_arrival <= now:
            waiting.append(i)
            i += 1
        else:
            _, done, server = heapq.heappop(running)
            free[server] += int(size[done])
        for one in sorted(waiting, key=lambda k: service[k] if shortest else k):
            for server in range(servers):
                if free[server] >= size[one]:
                    free[server] -= int(size[one])
                    heapq.heappush(running, (now + service[one], one, server))
                    waiting.remove(one)
                    break


def test_srpt_is_below_every_policy_on_the_same_jobs() -> None:
    rng = np.random.default_rng(7)
    useful = 0
    for trial in range(12):
        n = 300
        arrival = np.cumsum(rng.exponential(1.0, n)) * (0.5 if trial % 2 else 1.0)
        size = rng.integers(1, 4, n)
        service = rng.lognormal(0.5, 1.0, n)
        servers, capacity = int(rng.integers(1, 4)), 3
        end = float(arrival[-1])
        simulated = min(simulate(arrival, service, size, servers, capacity, end, s) for s in (True, False))
        for price in (size.astype(float), np.where(size >= 2, 1.0, 0.0)):  # two jobs of size >= 2 share no server
            speed = float(servers * (capacity if price.max() > 1 else 1))
            bound = srpt_mean_queue(arrival, service, price, speed, end=end)
            assert bound <= simulated + 1e-9
            useful += bound > 0.2 * simulated
    assert useful >= 3


def slow_srpt(arrival: np.ndarray, work: np.ndarray, speed: float, start: float, end: float) -> float:
    """The same by plain lists: always serve the least work that is left, from event to event."""
    left: list[float] = []
    coming = [(float(a), float(w)) for a, w in zip(arrival, work, strict=True)]
    now, area = 0.0, 0.0
    while now < end:
        least = min(left) if left else math.inf
        until = min(now + least / speed, coming[0][0] if coming else math.inf, end)
        area += len(left) * max(0.0, until - max(now, start))
        if left:
            left.remove(least)
            rest = least - speed * (until - now)
            if rest > 1e-12:
                left.append(rest)
        now = until
        while coming and coming[0][0] <= now:
            left.append(coming.pop(0)[1])
    return area


@pytest.mark.core
def test_srpt_kernel_against_plain_lists() -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        arrival = np.sort(rng.random(40) * 30)
        work = rng.exponential(2.0, 40)
        for start, end in ((0.0, 30.0), (10.0, 20.0), (5.0, 200.0)):
            expected = slow_srpt(arrival, work, 1.5, start, end)
            assert srpt_area(arrival, work, 1.5, start, end) == pytest.approx(expected, rel=1e-9)


def test_srpt_refuses_what_it_cannot_read() -> None:
    one = np.ones(2)
    with pytest.raises(InputError, match="order of arrival"):
        srpt_mean_queue(np.array([2.0, 1.0]), one, one, 1.0, end=5.0)
    with pytest.raises(InputError, match="start < end"):
        srpt_mean_queue(one, one, one, 1.0, end=0.0)

"""The capacity region against exact brute force, and its proofs checked by other means."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from slotwise.errors import InputError
from slotwise.model import load_scenario, parse_scenario
from slotwise.packing import Space
from slotwise.region.pricing import ListedPricing, SearchedPricing
from slotwise.region.ray import QUICK, Columns
from slotwise.region.region import Mix
from slotwise.theory import headroom_by_type, intensity, load_of, locate, region_of, scaled_rates
from slotwise.theory.certificates import CertificateError, verify_separation, verify_witness

TABLE1 = Space.additive([[150, 80, 1690], [171, 65, 420], [70, 200, 1690]], [900, 900, 5000])


def configurations(space: Space) -> np.ndarray:
    """All that fits, by trying every combination of counts."""
    rows = itertools.product(*(range(int(most) + 1) for most in space.counts))
    return np.array([row for row in rows if space.feasible(row)])


def brute_intensity(rho: list[int], spaces: list[Space], counts: list[int]) -> Fraction:
    """max w.rho / W(w) over every w that can be the normal of a facet of C, in exact integers.

    A facet of a sum of polytopes is spanned by J - 1 directions, each an edge of some summand; as C is closed
    downwards the unit vectors count as edges too. So all normals are among those of J - 1 differences of
    configurations.
    """
    J = len(rho)
    points = [configurations(space) for space in spaces]
    edges = {tuple(a - b) for rows in points for a in rows for b in rows if (a != b).any()}
    edges |= {tuple(row) for row in np.eye(J, dtype=int)}
    best = Fraction(0)
    for chosen in itertools.combinations(sorted(edges), J - 1):
        if J == 2:
            normal = np.array([-chosen[0][1], chosen[0][0]])
        else:
            normal = np.cross(chosen[0], chosen[1])
        for w in (normal, -normal):
            if (w >= 0).all() and w.any():
                worth = sum(count * int((rows @ w).max()) for rows, count in zip(points, counts, strict=True))
                if worth:
                    best = max(best, Fraction(int(w @ rho), worth))
    return best


def random_cluster(rng: np.random.Generator, J: int) -> tuple[list[Space], list[int]]:
    R, C = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    demand = rng.integers(0, 4, (J, R)) + (np.arange(R) == rng.integers(R))
    capacity = rng.integers(3, 7 if J == 2 else 6, (C, R))
    demand = np.minimum(demand, capacity.max(axis=0))
    capacity[0] = capacity.max(axis=0)  # one class holds every type
    allowed = rng.random((C, J)) < 0.8
    allowed[0] = True
    spaces = [Space.additive(demand, *each) for each in zip(capacity, allowed, strict=True)]
    return spaces, [int(n) for n in rng.integers(1, 5, C)]


def test_table1_is_on_the_boundary_with_the_known_witness() -> None:
    rho = np.array([2 / 3, 11 / 3, 2 / 3]) * 20
    region = intensity(rho, [TABLE1], [20])
    assert region.intensity == pytest.approx(1, abs=1e-9)
    assert region.lower == pytest.approx(1, abs=1e-9)
    assert region.exact
    (mix,) = region.witness
    found = {tuple(row): share for row, share in zip(mix.configurations.tolist(), mix.shares, strict=True)}
    assert found == pytest.approx({(2, 3, 0): 1 / 3, (0, 5, 0): 1 / 3, (0, 3, 2): 1 / 3}, abs=1e-9)
    np.testing.assert_allclose(region.prices, [0.01, 0.01, 0.01], atol=1e-12)


@pytest.mark.parametrize("J", [2, 3])
def test_intensity_is_that_of_brute_force_over_all_facets(J: int) -> None:
    rng = np.random.default_rng(J)
    for _ in range(25 if J == 2 else 8):
        spaces, counts = random_cluster(rng, J)
        rho = rng.integers(0, 9, J)
        rho[0] += 1
        exact = brute_intensity(rho.tolist(), spaces, counts)
        region = intensity(rho, spaces, counts)
        assert region.intensity == pytest.approx(float(exact), rel=1e-9)
        assert region.lower == pytest.approx(float(exact), rel=1e-9)


def test_proofs_hold_in_exact_arithmetic() -> None:
    rng = np.random.default_rng(5)
    sides = set()
    for _ in range(25):
        spaces, counts = random_cluster(rng, 3)
        rho = rng.random(3) * 8
        region = intensity(rho, spaces, counts)
        above = verify_witness(rho, spaces, counts, region.witness)
        below = verify_separation(rho, spaces, counts, region.prices)
        assert below is not None
        assert below <= above
        assert float(above) == pytest.approx(region.intensity, rel=1e-12)
        assert float(below) == pytest.approx(region.intensity, rel=1e-9)
        sides.add(below > 1)
        if below > 1:
            assert region.supportable is False
    assert sides == {True, False}


def test_false_proofs_are_refused() -> None:
    rho = [13.0, 73.0, 13.0]
    with pytest.raises(CertificateError, match="does not fit"):
        verify_witness(rho, [TABLE1], [20], [Mix(np.array([[2, 4, 0]]), np.array([1.0]))])
    with pytest.raises(CertificateError, match="not carried"):
        verify_witness(rho, [TABLE1], [20], [Mix(np.array([[0, 5, 0]]), np.array([1.0]))])
    with pytest.raises(CertificateError, match="negative"):
        verify_witness(rho, [TABLE1], [20], [Mix(np.array([[0, 5, 0], [2, 3, 0]]), np.array([-0.5, 1.5]))])
    with pytest.raises(CertificateError, match="negative"):
        verify_separation(rho, [TABLE1], [20], [1.0, -1.0, 1.0])
    with pytest.raises(CertificateError, match="prove nothing"):
        verify_separation(rho, [TABLE1], [20], [0.0, 0.0, 0.0])
    # twice the servers' shares prove no more than all servers do
    twice = [Mix(np.array([[2, 3, 0], [0, 5, 0], [0, 3, 2]]), np.full(3, 2 / 3))]
    assert verify_witness([2 / 3 * 20, 11 / 3 * 20, 2 / 3 * 20], [TABLE1], [20], twice) >= 1 - Fraction(1, 10**9)


def test_search_and_table_agree() -> None:
    rng = np.random.default_rng(11)
    for _ in range(10):
        J, R = int(rng.integers(2, 9)), int(rng.integers(1, 4))
        demand = rng.integers(0, 9, (J, R)) + (np.arange(R) == rng.integers(R))
        spaces = [Space.additive(demand, rng.integers(9, 25, R)) for _ in range(2)]
        counts = [3, 2]
        rho = rng.random(J)
        listed = locate(rho, Columns([ListedPricing(space, configurations(space)) for space in spaces], counts))
        searched = locate(rho, Columns([SearchedPricing(space) for space in spaces], counts))
        assert searched.exact
        assert searched.intensity == pytest.approx(listed.intensity, rel=1e-9)


@pytest.mark.core
def test_search_finds_the_best_configuration_and_its_limit_is_one() -> None:
    rng = np.random.default_rng(2)
    for trial in range(30):
        J, R = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        demand = rng.integers(0, 6, (J, R)) + (np.arange(R) == rng.integers(R))
        space = Space.additive(demand, rng.integers(0 if trial % 5 == 0 else 4, 14, R))
        prices = rng.random(J) * (rng.random(J) < 0.8)
        best = float((configurations(space) @ prices).max())
        pricing = SearchedPricing(space)
        full = pricing.best(prices)
        assert space.feasible(full.configuration)
        assert full.value == pytest.approx(best, rel=1e-12)
        assert full.limit == pytest.approx(best, rel=1e-9)
        cut = pricing.best(prices, effort=1)
        assert cut.value <= best * (1 + 1e-12)
        assert cut.limit >= best * (1 - 1e-12)


def test_limits_stay_honest_where_searches_are_cut_short() -> None:
    class Lazy(SearchedPricing):
        def best(self, prices, effort=0, known=None):  # type: ignore[no-untyped-def]
            return super().best(prices, 3)

    rng = np.random.default_rng(4)
    gaps = []
    for _ in range(8):
        spaces = [Space.additive(rng.integers(3, 9, (4, 2)), [17, 19])]
        rho = rng.random(4)
        true = intensity(rho, spaces, [5]).intensity
        lazy = locate(rho, Columns([Lazy(spaces[0])], [5]))
        assert lazy.lower <= true * (1 + 1e-9)
        assert lazy.intensity >= true * (1 - 1e-9)
        gaps.append(lazy.exact)
    assert not all(gaps)


def test_unlike_servers() -> None:
    region = region_of(load_scenario("example2", ["workload.intensity=1"]))
    assert region.intensity == pytest.approx(1, abs=1e-9)
    assert [mix.configurations.tolist() for mix in region.witness] == [
        [[1, 0, 0, 0]],
        [[0, 1, 0, 0]],
        [[0, 0, 1, 0]],
        [[0, 0, 0, 1]],
    ]
    spaces = [Space.additive([[1], [2], [4], [8]], [size]) for size in (1, 2, 4, 8)]
    assert verify_separation(region.rho, spaces, [1, 1, 1, 1], region.prices) == pytest.approx(1, abs=1e-9)


def test_monotone_predicates() -> None:
    # At most one of type 0 beside others, or three of type 0 alone: not additive, but monotone.
    def fits(k: tuple[int, ...]) -> bool:
        return (k[0] <= 1 and k[1] <= 2) or (k[0] <= 3 and k[1] == 0)

    spaces = [Space.monotone(fits, 2), Space.additive([[2], [1]], [3])]
    for rho in ([4, 3], [1, 8], [9, 1]):
        region = intensity(rho, spaces, [2, 1])
        assert region.intensity == pytest.approx(float(brute_intensity(rho, spaces, [2, 1])), rel=1e-9)
        below = verify_separation(rho, spaces, [2, 1], region.prices)
        assert verify_witness(rho, spaces, [2, 1], region.witness) == pytest.approx(region.intensity, rel=1e-9)
        assert below == pytest.approx(region.intensity, rel=1e-9)


def test_a_type_that_fits_nowhere() -> None:
    spaces = [Space.additive([[2], [5]], [4]), Space.additive([[2], [5]], [6])]
    region = intensity([1, 1], spaces, [3, 0])
    assert region.intensity == np.inf
    assert region.supportable is False
    assert verify_separation([1, 1], spaces, [3, 0], region.prices) is None
    assert intensity([1, 0], spaces, [3, 0]).intensity == pytest.approx(1 / 6)
    assert intensity([0, 0], spaces, [3, 0]).intensity == 0


@pytest.mark.parametrize("rho", [[1.0], [-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_loads_that_are_none_are_refused(rho: list[float]) -> None:
    with pytest.raises(InputError, match="load: is"):
        intensity(rho, [Space.additive([[1], [2]], [4])], [1])


def test_headroom_ends_on_the_boundary() -> None:
    rng = np.random.default_rng(8)
    for _ in range(6):
        spaces, counts = random_cluster(rng, 3)
        rho = rng.random(3)
        rho *= 0.7 / intensity(rho, spaces, counts).intensity
        region = intensity(rho, spaces, counts)
        assert region.headroom == pytest.approx(1 / 0.7 - 1)
        for room in headroom_by_type(region):
            at_the_end = rho + room.more * (np.arange(3) == room.type)
            assert intensity(at_the_end, spaces, counts).intensity == pytest.approx(1, rel=1e-8)
            assert room.limit == pytest.approx(room.more, rel=1e-8)
        for quick, room in zip(headroom_by_type(region, QUICK), headroom_by_type(region), strict=True):
            assert quick.more <= room.more * (1 + 1e-9)
            assert quick.limit >= room.more * (1 - 1e-9)


def test_headroom_of_many_types_is_within_limits_that_cost_nothing() -> None:
    """Beyond 100 types no program is solved for each: what comes with the intensity must still hold the exact figure of each type."""
    rng = np.random.default_rng(9)
    loose = []
    for _ in range(4):
        J = int(rng.integers(4, 9))
        demand = rng.integers(1, 9, (J, 2))
        spaces, counts = [Space.additive(demand, [17, 19]), Space.additive(demand, [25, 12])], [4, 3]
        rho = rng.random(J) * (rng.random(J) < 0.8)
        rho[0] += 0.1
        rho *= rng.uniform(0.4, 0.95) / intensity(rho, spaces, counts).intensity
        region = intensity(rho, spaces, counts)
        for free, quick, exact in zip(
            headroom_by_type(region, ()), headroom_by_type(region, QUICK), headroom_by_type(region), strict=True
        ):
            assert exact.limit == pytest.approx(exact.more, rel=1e-8, abs=1e-9)
            assert free.more <= quick.more * (1 + 1e-9) <= exact.more * (1 + 1e-8)
            assert free.limit >= quick.limit * (1 - 1e-9) >= exact.more * (1 - 1e-8)
            loose.append(free.limit > free.more * (1 + 1e-9))
    assert any(loose)
    assert not all(loose)
    nothing = intensity(np.zeros(3), [Space.additive([[1], [2], [5]], [4])], [3])
    assert [(room.more, room.limit) for room in headroom_by_type(nothing)] == [(12, 12), (6, 6), (0, 0)]


def test_the_same_direction_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of this needs the slow program that begins anew each time."""

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("slotwise.region.ray._from_nothing", never)
    rng = np.random.default_rng(10)
    demand = rng.integers(20, 61, (30, 2))
    columns = Columns([SearchedPricing(Space.additive(demand, [100, 100]))], [50])
    first = locate(np.ones(30), columns)
    known = len(columns)
    again = locate(np.full(30, 0.7 / first.intensity), columns)
    assert again.exact
    assert again.intensity == pytest.approx(0.7, rel=1e-9)
    assert len(columns) == known
    assert all(room.more <= room.limit for room in headroom_by_type(again))


def test_headroom_outside_is_none_and_on_the_boundary_may_be_left_for_some() -> None:
    spaces = [Space.additive([[1], [2]], [1]), Space.additive([[1], [2]], [2])]
    on = intensity([1, 1], spaces, [1, 1])
    assert on.intensity == pytest.approx(1)
    outside = intensity([2, 1], spaces, [1, 1])
    assert outside.supportable is False
    assert [room.more for room in headroom_by_type(outside)] == [0, 0]
    alone = intensity([1, 0], [Space.additive([[1], [9]], [1]), Space.additive([[9], [1]], [1])], [1, 1])
    assert alone.intensity == pytest.approx(1)
    assert [room.more for room in headroom_by_type(alone)] == pytest.approx([0, 1])


def test_rates_are_scaled_to_the_intensity_asked_for() -> None:
    for zeta in (0.8, 0.95, 1.2):
        scenario = load_scenario("table1", [f"workload.intensity={zeta}"])
        assert region_of(scenario).intensity == pytest.approx(zeta, rel=1e-9)
    np.testing.assert_allclose(
        load_of(load_scenario("table1")), np.array([2 / 3, 11 / 3, 2 / 3]) * 20 * 0.89, rtol=1e-9
    )
    np.testing.assert_allclose(scaled_rates(load_scenario("best-fit-trap")), [19, 47.5])


def test_rates_of_batches_and_of_a_type_that_cannot_be_carried() -> None:
    tables = {
        "cluster": {"resources": ["cpu"], "servers": [{"name": "s", "count": 2, "capacity": [4]}]},
        "types": [{"name": "a", "demand": [2], "mean_service": 2.0}, {"name": "b", "demand": [1]}],
        "workload": {
            "intensity": 0.5,
            "arrivals": {
                "law": "batch",
                "rate": 3.0,
                "batches": [
                    {"probability": 0.5, "jobs": {"a": 1}},
                    {"probability": 0.5, "jobs": {"a": 1, "b": 4}},
                ],
            },
        },
    }
    rates = scaled_rates(parse_scenario(tables))
    assert rates[1] / rates[0] == pytest.approx(2)
    assert region_of(parse_scenario(tables)).intensity == pytest.approx(0.5)
    two = {"name": "big", "count": 0, "capacity": [8]}
    stuck = {
        "cluster": {"resources": ["cpu"], "servers": [{"name": "s", "count": 2, "capacity": [4]}, two]},
        "types": [{"name": "a", "demand": [5], "rate": 1}],
        "workload": {"intensity": 0.5},
    }
    with pytest.raises(InputError, match=r"types\[0\] \(a\).*fits no server that is there"):
        scaled_rates(parse_scenario(stuck))


@pytest.mark.parametrize("parts", [3, 12, 30])
def test_many_types_on_small_and_large_servers(parts: int) -> None:
    rng = np.random.default_rng(3)
    capacity = np.array([[64, 256, 100], [96, 384, 100], [32, 512, 200]])
    demand = np.stack([rng.integers(1, capacity[:, r].min() // parts + 2, 30) for r in range(3)], axis=1)
    spaces = [Space.additive(demand, row) for row in capacity]
    rho = rng.random(30) * 100
    region = intensity(rho, spaces, [1000, 700, 1500])
    assert region.exact
    assert float(verify_witness(rho, spaces, [1000, 700, 1500], region.witness)) == pytest.approx(region.intensity)

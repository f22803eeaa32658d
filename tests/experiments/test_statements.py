"""Every claim of section 7 on results made up so that it must hold, and on some where it must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotwise.experiments import statements
from slotwise.experiments.grading import Grade, over_laws, rank_trend
from slotwise.experiments.points import Point, Points
from slotwise.experiments.readings import stall_hours, wins
from slotwise.experiments.showing import points_table
from slotwise.report.blocks import Cell
from slotwise.report.claims import Claim, Standing
from slotwise.simulation.judge.drift import Stability

HOLDS, IN_PART, FAILS = Standing.HOLDS, Standing.IN_PART, Standing.FAILS
LAWS = ("Poisson", "log-normal")
COUNTS = (20.0, 80.0, 140.0, 200.0)
LOADS = (0.80, 0.85, 0.90, 0.95)


def point(policy: str, x: float, mean: float, law: str = "", stable: bool | None = True, **more: float) -> Point:
    """Five runs within one per cent of the mean; where `stable` is None they are too short to tell."""
    runs = tuple(mean * (1 + share / 100) for share in (-1, -0.5, 0, 0.5, 1))
    verdict = {True: Stability.STABLE, False: Stability.GROWS, None: Stability.TOO_SHORT}[stable]
    return Point(policy, x, mean, 0.99 * mean, 1.01 * mean, verdict, law, runs=runs, more=dict(more))


Curve = Callable[[float], float]


def lines(xs: tuple[float, ...], curves: dict[str, Curve], laws: tuple[str, ...] = LAWS) -> list[Point]:
    return [point(p, x, f(x), law, stalled_fraction=0.01) for law in laws for p, f in curves.items() for x in xs]


def verdicts(claims: list[Claim]) -> dict[str, Standing]:
    return {claim.name: claim.verdict for claim in claims}


def with_change(points: list[Point], policy: str, x: float, mean: float, stable: bool | None = True) -> Points:
    """The same points with those of a policy at x replaced."""
    kept = [p for p in points if (p.policy, p.x) != (policy, x)]
    changed = [p for p in points if (p.policy, p.x) == (policy, x)]
    return Points((*kept, *(point(policy, x, mean, p.law, stable, **p.more) for p in changed)))


# -- example 1 -------------------------------------------------------------------------------------------------------


def example1(m14: float, m14_stable: bool, ours: float, ours_stable: bool, swings: float, resets: float) -> Points:
    return Points(
        (
            point("algorithm1", 0, ours, stable=ours_stable, swings=swings, resets=resets, final_queue=ours),
            point("m14", 0, m14, stable=m14_stable, final_queue=2 * m14, swings=0, resets=0),
        )
    )


def test_example1_as_in_the_paper() -> None:
    found = statements.example1(example1(30_000, False, 50, True, 70, 500))
    assert set(verdicts(found).values()) == {HOLDS}
    assert all(not claim.because for claim in found)
    assert "60,000" in found[0].evidence


def test_example1_where_it_is_not_so() -> None:
    found = verdicts(statements.example1(example1(40, True, 50, False, 0, 3)))
    assert found == {"example1-m14": FAILS, "example1-stable": FAILS, "example1-sawtooth": FAILS}


def test_example1_in_part() -> None:
    found = verdicts(statements.example1(example1(400, True, 50, True, 3, 500)))
    assert found == {"example1-m14": IN_PART, "example1-stable": HOLDS, "example1-sawtooth": IN_PART}


@pytest.mark.parametrize(("g16", "verdict"), [(400.0, HOLDS), (60.0, IN_PART), (20.0, FAILS)])
def test_example2(g16: float, verdict: Standing) -> None:
    found = statements.example2(Points((point("algorithm1", 0, 45), point("g16", 0, g16))))
    assert found[0].verdict is verdict
    assert bool(found[0].because) is (verdict is not HOLDS)


# -- servers ---------------------------------------------------------------------------------------------------------

AS_PAPER: dict[str, Curve] = {"algorithm1": lambda x: 800 / x, "m14": lambda x: 700 / x, "g16": lambda x: 10 * x}


def test_servers_as_in_the_paper() -> None:
    found = statements.servers(Points(tuple(lines(COUNTS, AS_PAPER))))
    assert set(verdicts(found).values()) == {HOLDS}, found


def test_servers_where_nothing_is_so() -> None:
    """Algorithm 1 and M14 rise, G16 falls and is best, and the laws differ."""
    points = lines(COUNTS, {"algorithm1": lambda x: x, "m14": lambda x: 5 * x, "g16": lambda x: 20 / x}, LAWS[:1])
    points += lines(
        COUNTS, {"algorithm1": lambda x: 9 * x, "m14": lambda x: 0.5 * x, "g16": lambda x: 20 / x}, LAWS[1:]
    )
    found = verdicts(statements.servers(Points(tuple(points))))
    assert found.pop("servers-as-m14") is FAILS  # five times below, then eighteen times above
    assert set(found.values()) == {FAILS}


def test_servers_with_m14_ahead_says_why() -> None:
    found = statements.servers(Points(tuple(lines(COUNTS, AS_PAPER | {"m14": lambda x: 100 / x}))))
    claim = next(claim for claim in found if claim.name == "servers-as-m14")
    assert claim.verdict is FAILS
    assert "8 times M14's" in claim.because
    assert "1.0% of the servers stalled" in claim.because
    assert claim.finding.startswith("does not hold here, because ")


def test_one_law_is_in_part() -> None:
    points = lines(COUNTS, AS_PAPER, LAWS[:1]) + lines(COUNTS, AS_PAPER | {"m14": lambda x: x}, LAWS[1:])
    claim = next(c for c in statements.servers(Points(tuple(points))) if c.name == "servers-m14")
    assert claim.verdict is IN_PART
    assert claim.because.startswith("under log-normal arrivals")


def test_a_fall_within_chance_is_in_part() -> None:
    noisy = [Point("m14", x, 100 - x / 20, 0, 200, law=LAWS[0], runs=(1, 300, 20, 90, 80 - x)) for x in COUNTS]
    rest = [p for p in lines(COUNTS, AS_PAPER, LAWS[:1]) if p.policy != "m14"]
    claims = statements.servers(Points((*rest, *noisy, *lines(COUNTS, AS_PAPER, LAWS[1:]))))
    assert verdicts(claims)["servers-m14"] is IN_PART


# -- intensity -------------------------------------------------------------------------------------------------------

LOADED: dict[str, Curve] = {
    "algorithm1": lambda x: 2 + 100 * (x - 0.8),
    "m14": lambda x: 1.2 + 300 * (x - 0.8),
    "g16": lambda x: 200 + 100 * (x - 0.8),
}


def loaded() -> list[Point]:
    return list(with_change(lines(LOADS, LOADED), "m14", 0.95, 900, stable=False).all)


def test_intensity_as_in_the_paper() -> None:
    found = statements.intensity(Points(tuple(loaded())))
    assert set(verdicts(found).values()) == {HOLDS}, found


def test_intensity_where_nothing_is_so() -> None:
    points = with_change(loaded(), "algorithm1", 0.95, 5000, stable=False)
    points = with_change(list(points.all), "m14", 0.95, 3)
    points = with_change(list(points.all), "g16", 0.95, 90_000, stable=False)
    points = with_change(list(points.all), "g16", 0.80, 0.5)
    found = verdicts(statements.intensity(points))
    assert found["intensity-bounded"] is IN_PART  # only at the highest load
    assert found["intensity-m14"] is FAILS
    assert found["intensity-stable"] is FAILS
    assert found["intensity-g16"] is FAILS
    assert found["intensity-consistent"] is IN_PART
    everywhere = Points(tuple(point(p.policy, p.x, p.mean, p.law, False, **p.more) for p in loaded()))
    assert verdicts(statements.intensity(everywhere))["intensity-bounded"] is FAILS


def test_runs_that_are_too_short_are_not_called_stable() -> None:
    points = with_change(loaded(), "algorithm1", 0.95, 50, stable=None)
    found = {claim.name: claim for claim in statements.intensity(points)}
    assert found["intensity-bounded"].verdict is IN_PART
    assert "stable in 3 of 4 settings" in found["intensity-bounded"].evidence
    assert "too short to tell at 0.95" in found["intensity-bounded"].because
    assert found["intensity-stable"].verdict is IN_PART
    assert "Algorithm 1 50 (too short)" in found["intensity-stable"].evidence
    assert {row["verdict"] for row in points.frame().to_dicts()} == {"stable", "grows", "too short"}
    waits = {f"wait_{name}": 1.0 for name in ("mean", "p50", "p95", "p99")}
    one = point("fifo", 1, 5, stable=None, stalled_fraction=0.0, **waits)
    assert points_table("a", "b", Points((one,))).rows[0][-1] == Cell("too short", "unsure")


def test_intensity_m14_merely_longer_is_in_part() -> None:
    found = verdicts(statements.intensity(Points(tuple(lines(LOADS, LOADED)))))
    assert found["intensity-m14"] is IN_PART


def test_a_difference_below_one_job_is_no_difference() -> None:
    points = [
        point(
            p.policy, p.x, p.mean / 50 if p.policy == "algorithm1" and p.law == LAWS[1] else p.mean, p.law, **p.more
        )
        for p in lines(COUNTS, AS_PAPER | {"algorithm1": lambda x: 18 / x})
    ]
    assert verdicts(statements.servers(Points(tuple(points))))["servers-robust"] is HOLDS


# -- the trace -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dispersion", "correlation", "verdict"),
    [(2500.0, 0.4, HOLDS), (2500.0, 0.0, IN_PART), (1.1, 0.3, IN_PART), (1.0, 0.0, FAILS), (None, None, FAILS)],
)
def test_arrivals(dispersion: float | None, correlation: float | None, verdict: Standing) -> None:
    assert statements.arrivals(dispersion, correlation)[0].verdict is verdict


TRACE: dict[str, Curve] = {
    "algorithm1": lambda x: 2000 / x,
    "m14": lambda x: 400_000 / x**2,
    "g16": lambda x: 5 * x,
}


def test_google_as_in_the_paper() -> None:
    found = statements.google(Points(tuple(lines((50, 80, 110, 150), TRACE, ("",)))))
    assert set(verdicts(found).values()) == {HOLDS}, found


def test_google_where_it_is_not_so() -> None:
    other: dict[str, Curve] = {"algorithm1": lambda x: 2000 / x, "m14": lambda x: x, "g16": lambda x: 1e4 / x**2}
    found = verdicts(statements.google(Points(tuple(lines((50, 80, 110, 150), other, ("",))))))
    assert found == {"google-best": FAILS, "google-g16": FAILS, "google-m14": FAILS}


def test_google_falling_behind_only() -> None:
    other = TRACE | {"g16": lambda x: 4000 / x**0.5, "m14": lambda x: 3000 / x}
    found = verdicts(statements.google(Points(tuple(lines((50, 80, 110, 150), other, ("",))))))
    assert found == {"google-best": HOLDS, "google-g16": IN_PART, "google-m14": IN_PART}


# -- grading ---------------------------------------------------------------------------------------------------------


def test_rank_trend() -> None:
    assert rank_trend([1, 2, 3, 4]) == pytest.approx(1)
    assert rank_trend([4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_trend([5, 5, 5]) == 0
    assert rank_trend([1, 2]) == 1


def test_over_laws_names_the_law_of_each_reason() -> None:
    points = Points((point("m14", 1, 1, "Poisson"), point("m14", 1, 1, "log-normal")))
    grades = {"Poisson": Grade(FAILS, "e", "this"), "log-normal": Grade(FAILS, "f", "that")}
    found = over_laws(points, lambda law: grades[law])
    assert found.verdict is FAILS
    assert found.because == "under Poisson arrivals this; under log-normal arrivals that"


def test_at_how_many_server_counts_a_reading_is_best() -> None:
    ours = [point("algorithm1", x, mean) for x, mean in zip(COUNTS, (40, 30, 20, 10), strict=True)]
    m14 = [point("m14", x, mean) for x, mean in zip(COUNTS, (50, 30, 15, 9), strict=True)]
    g16 = [point("g16", x, mean) for x, mean in zip(COUNTS, (45, 29, 60, 70), strict=True)]
    assert (wins(ours, [m14]), wins(ours, [g16]), wins(ours, [m14, g16])) == (2, 3, 1)


def test_how_long_a_stall_lasts() -> None:
    """A tenth of 50 servers stalls at any time, over 100 hours with 250 stalls: two hours each."""
    some = point("algorithm1", 50.0, 1.0, stalled_fraction=0.1, stalls=250, simulated_time=100 * 3600.0)
    assert stall_hours(some) == pytest.approx(2.0)
    assert stall_hours(point("m14", 50.0, 1.0, stalled_fraction=0.0, stalls=0, simulated_time=1.0)) is None

"""Service times drawn from observations: censoring, age, limits, pools."""

from __future__ import annotations

import numpy as np
import pytest

from slotwise.foresee.history import History
from slotwise.foresee.services import ServiceTimes


def history(
    durations: list[float], completed: list[bool], owner: list[int] | None = None, limit: list[float] | None = None
) -> History:
    n = len(durations)
    ends = np.array(durations)
    return History(
        ("t",),
        np.zeros(n),
        np.zeros(n),
        ends,
        np.array(completed),
        np.zeros(n, np.int64),
        np.array(owner or [0] * n, np.int64),
        np.array(limit or [np.nan] * n),
    )


def draws(services: ServiceTimes, age: float, n: int = 20_000, owner: int = 0, limit: float = np.nan) -> np.ndarray:
    pools = services.pools_of(np.full(n, owner), np.zeros(n, np.int64), np.full(n, limit))
    return services.draw(pools, np.full(n, age), np.full(n, limit), np.random.default_rng(1))


def test_draws_follow_kaplan_meier() -> None:
    # 1, 2+, 3, 4 (2 is censored): S(1) = 3/4, S(3) = 3/8, S(4) = 0
    services = ServiceTimes(history([1, 2, 3, 4], [True, False, True, True]), 10.0)
    drawn = draws(services, 0.0)
    assert set(np.unique(drawn)) == {1.0, 3.0, 4.0}
    share = [float((drawn == value).mean()) for value in (1.0, 3.0, 4.0)]
    assert share == pytest.approx([0.25, 0.375, 0.375], abs=0.02)


def test_draws_are_longer_than_the_age_and_at_most_the_limit() -> None:
    services = ServiceTimes(history([10, 20, 30, 40], [True] * 4), 100.0)
    assert draws(services, 25.0).min() >= 30.0
    assert draws(services, 25.0, limit=35.0).max() <= 35.0
    beyond = draws(services, 50.0)
    assert beyond.min() > 50.0
    assert np.median(beyond) == pytest.approx(100.0, rel=0.05)


def test_jobs_of_a_known_submitter_are_like_the_submitters_own() -> None:
    many = [10.0] * 50 + [1000.0] * 50
    services = ServiceTimes(history(many, [True] * 100, owner=[0] * 50 + [1] * 50), 2000.0)
    assert np.mean(draws(services, 0.0, owner=1) == 1000.0) > 0.9
    assert np.mean(draws(services, 0.0, owner=7) == 1000.0) == pytest.approx(0.5, abs=0.15)

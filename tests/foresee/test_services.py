"""Service times drawn from observations: censoring, age, limits, pools."""

from __future__ import annotations

import numpy as np
import pytest

from slotwise.foresee import services as laws
from slotwise.foresee.history import History
from slotwise.foresee.services import BATCH_GAP, ServiceTimes


@pytest.fixture
def equal_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old observations count as much as new ones."""
    monkeypatch.setattr(laws, "HALF", 1e9)


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
    pools = services.pools_of(np.full(n, owner), np.zeros(n, np.int64), np.full(n, limit), np.zeros(n))
    return services.draw(pools, np.full(n, age), np.full(n, limit), np.random.default_rng(1))


@pytest.mark.usefixtures("equal_weights")
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
    assert np.median(beyond) == pytest.approx(50.0 * 2.0 ** (1.0 / services.tail), rel=0.05)


@pytest.mark.usefixtures("equal_weights")
def test_jobs_of_a_known_submitter_are_like_the_submitters_own() -> None:
    many = [10.0] * 50 + [1000.0] * 50
    services = ServiceTimes(history(many, [True] * 100, owner=[0] * 50 + [1] * 50), 2000.0)
    assert np.mean(draws(services, 0.0, owner=1) == 1000.0) > 0.9
    assert np.mean(draws(services, 0.0, owner=7) == 1000.0) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("waits", [0.0, 500.0])
def test_jobs_that_run_do_not_push_completed_jobs_out_of_a_pool(waits: float) -> None:
    """One job arrives every 10 s, and each tenth runs 10,000 s: at the end 100 jobs run, all of them long."""
    n = 10_000
    rng = np.random.default_rng(2)
    submitted = 10.0 * np.arange(n)
    durations = np.where(rng.random(n) < 0.1, 10_000.0, 100.0)
    begun = submitted + waits
    now = float(begun[-1])
    ended = begun + durations
    past = History(
        ("t",), submitted, begun, np.where(ended <= now, ended, np.nan), ended <= now, np.zeros(n, np.int64),
        np.zeros(n, np.int64), np.full(n, np.nan),
    )  # fmt: skip
    drawn = draws(ServiceTimes(past, now), 0.0, owner=9)
    assert np.mean(drawn > 1_000.0) == pytest.approx(0.1, abs=0.04)


def test_jobs_of_a_batch_are_drawn_from_one_urn() -> None:
    """200 jobs of a new batch, of which nothing is known: in each run most last equally long, and each alone follows what was observed."""
    rng = np.random.default_rng(3)
    services = ServiceTimes(
        history(np.exp(rng.normal(5, 1, 500)).tolist(), [True] * 500, owner=list(range(500))), 1e4
    )
    n = 200
    own = (np.full(n, 7_000), np.zeros(n, np.int64), np.full(n, np.nan), np.full(n, 1e4))
    pools = services.pools_of(*own)
    assert (services.batches_of(*own) == -1).all(), "a batch that is not in the history has no number"
    batch, age = np.zeros(n, np.int64), np.concatenate([np.full(20, 150.0), np.zeros(n - 20)])
    spread, alone, first = [], [], []
    for seed in range(100):
        drawn = services.draw(pools, age, own[2], np.random.default_rng(seed), batch)
        assert (drawn > age).all()
        spread.append(len(np.unique(drawn)))
        alone.append(len(np.unique(services.draw(pools, age, own[2], np.random.default_rng(seed)))))
        first.append(drawn[:20].mean())
    assert np.mean(spread) < 0.2 * np.mean(alone)
    assert np.std(first) > 100.0, "the mean of a batch differs from run to run"


def test_a_batch_ends_after_a_gap() -> None:
    submitted = np.array([0.0, 100.0, 200.0, 200.0 + 2 * BATCH_GAP, 300.0 + 2 * BATCH_GAP])
    n = len(submitted)
    past = History(
        ("t",), submitted, submitted, submitted + 1.0, np.ones(n, np.bool_), np.zeros(n, np.int64),
        np.zeros(n, np.int64), np.full(n, np.nan),
    )  # fmt: skip
    services = ServiceTimes(past, 1e5)
    zero = np.zeros(n, np.int64)
    found = services.batches_of(zero, zero, np.full(n, np.nan), submitted)
    assert found.tolist() == [0, 0, 0, 1, 1]
    assert services.batches_of(zero[:1] + 1, zero[:1], np.full(1, np.nan), submitted[:1]).tolist() == [-1]

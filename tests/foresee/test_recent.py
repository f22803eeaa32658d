"""Recent waits: quantiles of how much longer jobs waited, against a naive count."""

from __future__ import annotations

import numpy as np
import pytest

from slotwise.foresee.correction import GRID
from slotwise.foresee.history import History
from slotwise.foresee.recent import FEWEST, KEPT, RecentWaits

MIDDLE = int(np.flatnonzero(GRID == 0.0)[0])


def history(waits: dict[str, list[float]]) -> History:
    """Return a history in which jobs of each type came a second apart and waited so long."""
    rows = [(at, wait, kind) for kind, own in enumerate(waits.values()) for at, wait in enumerate(own)]
    rows.sort()
    submitted, wait, kinds = (np.array(column) for column in zip(*rows, strict=True))
    started = submitted + wait
    n = len(rows)
    return History(
        tuple(waits), submitted.astype(float), started, started + 1.0, np.ones(n, np.bool_), kinds, np.zeros(n, np.int64),
        np.full(n, np.nan),
    )  # fmt: skip


def test_the_middle_is_the_median_of_what_longer_waits_had_left() -> None:
    rng = np.random.default_rng(2)
    waits = rng.exponential(100.0, 150)
    found = RecentWaits(history({"a": [*waits], "b": [1e5] * 20}))
    for age in (0.0, 50.0, 120.0):
        left = waits[waits > age] - age
        middle = np.exp(found.curves(np.zeros(1, np.int64), np.array([age]))[0, MIDDLE]) - 1.0
        assert middle == pytest.approx(np.median(left), rel=0.05)


def test_curves_rise_with_the_level_and_old_waits_are_forgotten() -> None:
    found = RecentWaits(history({"a": [5.0] * 300 + [float(x) for x in range(1000, 1000 + KEPT)]}))
    curves = found.curves(np.zeros(2, np.int64), np.array([0.0, 500.0]))
    assert (np.diff(curves, axis=1) >= 0).all()
    assert np.exp(curves[0, 0]) > 300.0, "the waits of 5 s are older than the newest"


def test_few_waits_of_a_type_give_way_to_those_of_all_and_then_to_nothing() -> None:
    found = RecentWaits(history({"a": [100.0] * FEWEST, "b": [1.0] * (FEWEST - 1)}))
    own, others = found.curves(np.array([0, 1]), np.zeros(2))
    assert np.exp(own[MIDDLE]) - 1.0 == pytest.approx(100.0)
    assert np.exp(others[MIDDLE]) - 1.0 > 1.0, "of all types"
    assert np.isnan(found.curves(np.array([0, 7]), np.full(2, 1e6))).all(), "no job waited as long"


def test_jobs_that_started_at_once_do_not_count() -> None:
    found = RecentWaits(history({"a": [0.0] * 50 + [30.0] * FEWEST}))
    assert np.exp(found.curves(np.zeros(1, np.int64), np.zeros(1))[0, MIDDLE]) - 1.0 == pytest.approx(30.0)

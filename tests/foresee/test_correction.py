"""Intervals that are far too narrow, or shifted, hold as often as they say after a while; in every group."""

from __future__ import annotations

import json

import numpy as np
import pytest

from slotwise.foresee.correction import Correction, band_of, keys_of, read
from slotwise.foresee.tracking import Tracker


def play(tracker: Tracker, n: int, spread: dict[str, float], seed: int = 1) -> list[tuple[str, bool]]:
    """Forecast waits that are log-normal with another spread than the runs believe, one after the other."""
    rng = np.random.default_rng(seed)
    held = []
    for job in range(n):
        kind = ("narrow", "wide")[job % 2]
        centre = float(rng.uniform(5.0, 9.0))
        runs = np.exp(centre + 0.3 * rng.standard_normal(32))
        actual = float(np.exp(centre + spread[kind] * rng.standard_normal()))
        median = float(np.median(runs))
        q = tracker.correction.quantiles(runs[:, None], [keys_of(kind, median)])[:, 0]
        now = job * 1e6
        tracker.add(job, now, q, kind, median)
        tracker.started(job, now + actual)
        held.append((kind, bool(q[0] <= actual <= q[2])))
    return held


def test_coverage_tends_to_its_level_in_every_group() -> None:
    tracker = Tracker()
    held = play(tracker, 3_000, {"narrow": 0.1, "wide": 1.0})[500:]
    for kind in ("narrow", "wide"):
        own = [inside for name, inside in held if name == kind]
        assert np.mean(own) == pytest.approx(0.8, abs=0.04), kind
    for row in tracker.summary()["by_wait"]:
        if row["of"] > 200:
            assert row["coverage"] == pytest.approx(0.8, abs=0.05), row


def test_a_job_that_still_waits_teaches() -> None:
    tracker = Tracker()
    tracker.add("a", 0.0, (1.0, 2.0, 3.0), "t", 2.0)
    runs = np.linspace(1.0, 3.0, 32)[:, None]
    before = tracker.correction.quantiles(runs, [keys_of("t", 2.0)])
    tracker.advance(10.0)
    after = tracker.correction.quantiles(runs, [keys_of("t", 2.0)])
    assert (after[:, 0] > before[:, 0]).all()
    assert tracker.coverage() == (0.0, 1)


def test_what_was_learnt_is_plain_data() -> None:
    tracker = Tracker()
    play(tracker, 100, {"narrow": 0.1, "wide": 1.0})
    again = Tracker.from_dict(json.loads(json.dumps(tracker.to_dict())))
    assert again.summary() == tracker.summary()
    assert again.correction.to_dict() == tracker.correction.to_dict()


def test_quantiles_are_read_between_and_beyond_the_runs() -> None:
    runs = np.arange(1.0, 10.0)[:, None]
    assert read(runs, np.zeros(1))[0] == pytest.approx(5.0)
    assert read(runs, np.full(1, 5.0))[0] > 9.0
    assert read(runs, np.full(1, -5.0))[0] < 1.0
    late = np.where(runs > 5, np.inf, runs)
    assert np.isinf(read(late, np.full(1, 2.0))[0]), "most runs end before the job starts"


def test_a_cancelled_job_teaches_nothing() -> None:
    tracker = Tracker()
    learnt = Correction().to_dict()
    tracker.add("a", 0.0, (1.0, 2.0, 3.0), "t", 2.0)
    tracker.dropped("a")
    tracker.advance(10.0)
    assert tracker.correction.to_dict() == learnt
    assert tracker.coverage() == (None, 0)


def test_bands() -> None:
    assert [band_of(x) for x in (0.0, 59.0, 60.0, 1e9)] == [0, 0, 1, 5]

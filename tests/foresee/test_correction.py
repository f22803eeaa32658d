"""Intervals that are far too narrow, or shifted, hold as often as they say after a while; in every group."""

from __future__ import annotations

import json

import numpy as np
import pytest

from slotwise.foresee.correction import GRID, LEVELS, REACH, _quantiles, band_of, curves_of, levels_of, mixed, read
from slotwise.foresee.history import F8
from slotwise.foresee.tracking import Tracker


def quantiles(tracker: Tracker, runs: F8, kind: str, now: float) -> F8:
    """Return the corrected quantiles of one job's runs."""
    return tracker.correction(now).quantiles(curves_of(runs[:, None]), [kind], np.median(runs, keepdims=True))[:, 0]


def play(
    tracker: Tracker, n: int, spread: dict[str, float], shift: float = 0.0, gap: float = 1e6
) -> list[tuple[str, bool]]:
    """Forecast waits that are log-normal with another spread and centre than the runs believe, one every `gap` seconds."""
    rng, held = np.random.default_rng(1), []
    due: list[tuple[float, int]] = []
    for job in range(n):
        now = job * gap
        for when, one in sorted(row for row in due if row[0] <= now):
            tracker.started(one, when)
        due = [row for row in due if row[0] > now]
        kind = ("narrow", "wide")[job % 2]
        centre = float(rng.uniform(5.0, 9.0))
        runs = np.exp(centre + 0.3 * rng.standard_normal(32))
        actual = float(np.exp(centre + shift + spread[kind] * rng.standard_normal()))
        q = quantiles(tracker, runs, kind, now)
        tracker.add(job, now, q, kind, float(np.median(runs)), curves_of(runs[:, None])[0])
        due.append((now + actual, job))
        held.append((kind, bool(q[0] <= actual <= q[2])))
    return held


def test_coverage_tends_to_its_level() -> None:
    """Runs are three times too wide for one type, and half as wide as they should be for the other. Types are held together, so each by itself needs longer."""
    held = play(Tracker(), 300, {"narrow": 0.1, "wide": 0.6})[100:]
    assert np.mean([inside for _, inside in held]) == pytest.approx(0.8, abs=0.08)
    assert np.mean([inside for kind, inside in held if kind == "wide"]) > 0.55


def test_waits_whose_end_is_not_known_yet_count_as_long() -> None:
    """Jobs come so fast that outcomes of short waits are known long before those of long waits: quantiles must not become too early."""
    tracker = Tracker()
    held = play(tracker, 300, {"narrow": 1.0, "wide": 1.0}, shift=1.0, gap=100.0)
    assert np.mean([inside for _, inside in held[150:]]) == pytest.approx(0.8, abs=0.08)


def test_a_job_that_still_waits_teaches() -> None:
    tracker = Tracker()
    runs = np.linspace(1.0, 3.0, 32)
    for job in range(30):
        tracker.add(job, 0.0, (1.0, 2.0, 3.0), "t", 2.0, curves_of(runs[:, None])[0])
    before = quantiles(tracker, runs, "t", 0.0)
    tracker.advance(10.0)
    after = quantiles(tracker, runs, "t", 10.0)
    assert (after > before).all()
    assert tracker.coverage() == (0.0, 30)


def test_quantiles_are_those_of_kaplan_and_meier() -> None:
    """Against a table made by hand: levels 1, 2+, 3, 4 of equal weight, and no prior worth the name."""
    rng = np.random.default_rng(5)
    level = rng.normal(0.0, 1.0, 400)
    limit = rng.normal(0.5, 1.0, 400)
    seen, censored = np.minimum(level, limit), limit < level
    order = np.lexsort((censored, seen))
    stay, curve = 1.0, []
    for place, row in enumerate(order):
        if not censored[row]:
            stay *= 1.0 - 1.0 / (400 - place)
        curve.append(1.0 - stay)
    for tau, found in zip(LEVELS, _quantiles(seen[order], censored[order], np.ones(400)), strict=True):
        naive = next(seen[order][at] for at in range(400) if curve[at] >= tau)
        assert found == pytest.approx(naive, abs=0.05)


def test_levels_are_where_the_runs_are_read() -> None:
    rng = np.random.default_rng(6)
    starts = np.exp(rng.normal(7.0, 1.0, (32, 50)))
    curves = curves_of(starts)
    for logit in (-4.0, -2.2, 0.0, 0.3, 2.2, 5.0):
        waits = read(np.sort(starts, axis=0), np.full(50, logit))
        assert levels_of(curves, waits) == pytest.approx(np.full(50, logit), abs=0.25)
    same = curves_of(np.full((32, 1), 60.0))
    assert levels_of(same, np.array([60.0])) == pytest.approx([0.0], abs=0.3)


def test_what_was_learnt_is_plain_data() -> None:
    tracker = Tracker()
    play(tracker, 100, {"narrow": 0.1, "wide": 1.0})
    again = Tracker.from_dict(json.loads(json.dumps(tracker.to_dict())))
    assert again.summary() == tracker.summary()


def test_what_an_earlier_process_has_forecast_teaches_alike() -> None:
    """A tracker that hears of forecasts and outcomes, and one that reads both later."""
    first, later, rng = Tracker(), Tracker(), np.random.default_rng(2)
    for job in range(80):
        runs, wait = np.exp(6.0 + rng.standard_normal(32)), float(np.exp(7.0 + rng.standard_normal()))
        curve = curves_of(runs[:, None])[0]
        first.add(job, job * 1e6, (0.0, 1.0, np.inf), "t", 1e3, curve)
        first.started(job, job * 1e6 + wait)
        later.remember(job * 1e6, wait, "t", 1e3, curve)
    was, now = first.correction(1e9).reading("t", 2), later.correction(1e9).reading("t", 2)
    assert now == pytest.approx(was)


def test_quantiles_are_read_between_and_beyond_the_runs() -> None:
    runs = np.arange(1.0, 10.0)[:, None]
    assert read(runs, np.zeros(1))[0] == pytest.approx(5.0)
    assert read(runs, np.full(1, 5.0))[0] > 9.0
    assert read(runs, np.full(1, -5.0))[0] < 1.0
    late = np.where(runs > 5, np.inf, runs)
    assert np.isinf(read(late, np.full(1, 2.0))[0]), "most runs end before the job starts"


def test_a_cancelled_job_teaches_nothing() -> None:
    tracker = Tracker()
    runs = np.linspace(1.0, 3.0, 32)
    before = quantiles(tracker, runs, "t", 0.0)
    tracker.add("a", 0.0, (1.0, 2.0, 3.0), "t", 2.0, curves_of(runs[:, None])[0])
    tracker.dropped("a")
    tracker.advance(10.0)
    assert (quantiles(tracker, runs, "t", 10.0) == before).all()
    assert tracker.coverage() == (None, 0)


def test_bands() -> None:
    assert [band_of(x) for x in (0.0, 59.0, 60.0, 1e9)] == [0, 0, 1, 5]


def test_runs_and_recent_waits_are_mixed_where_both_are_known() -> None:
    far, middle = np.full((32, 2), np.inf), int(np.searchsorted(GRID, 0.0))
    waits = curves_of(np.linspace(50.0, 70.0, 32)[:, None].repeat(2, axis=1))
    waits[1] = np.nan
    found = mixed(curves_of(far), waits)
    assert 60.0 < np.exp(found[0, middle]) < REACH, "a start later than the runs went counts as the latest"
    assert found[1] == pytest.approx(curves_of(far)[1]), "there is nothing else"
    same = mixed(waits, waits)
    assert same[0] == pytest.approx(waits[0])

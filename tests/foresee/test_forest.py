"""The forest of similar forecasts against what generated its outcomes."""

from __future__ import annotations

import numpy as np

from slotwise.foresee.correction import GRID
from slotwise.foresee.features import MIDDLES
from slotwise.foresee.forest import FEWEST, LEAF, Forest

LOW, MIDDLE, HIGH = np.searchsorted(GRID, (-2.0, 0.0, 2.0))


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features, of which two matter, and log-waits whose centre and spread depend on them."""
    rng = np.random.default_rng(seed)
    known = rng.standard_normal((n, 12)).astype(np.float32)
    known[:, MIDDLES] = 8.0
    waits = 8.0 + 2.0 * (known[:, 3] > 0) + (0.2 + 0.8 * (known[:, 5] > 0)) * rng.standard_normal(n)
    return known, waits


def test_centre_and_spread_follow_the_features_that_matter() -> None:
    forest = Forest(*drawn(2000, 1))
    known, waits = drawn(1000, 2)
    curves = forest.curves(known)
    assert (np.diff(curves, axis=1) >= 0).all(), "quantiles are in order"
    held = np.mean((waits > curves[:, LOW]) & (waits < curves[:, HIGH]))
    assert 0.7 < held < 0.92, "about 76 % lie between the logits -2 and 2"
    error = np.abs(curves[:, MIDDLE] - (8.0 + 2.0 * (known[:, 3] > 0)))
    assert np.median(error) < 0.35
    width = curves[:, HIGH] - curves[:, LOW]
    assert np.median(width[known[:, 5] > 0.3]) > 1.2 * np.median(width[known[:, 5] < -0.3])


def test_every_leaf_has_enough_outcomes_and_unknown_features_do_no_harm() -> None:
    known, waits = drawn(FEWEST, 3)
    known[:, 0], known[::2, 1] = np.nan, np.nan
    forest = Forest(known, waits)
    nothing = np.full((1, 12), np.nan, np.float32)
    nothing[:, MIDDLES[0]] = 8.0  # runs are always known
    curve = forest.curves(nothing)
    assert np.isfinite(curve).all()
    assert np.isfinite(forest.curves(np.full((1, 12), np.inf, np.float32))).all()
    # each split leaves LEAF outcomes on either side, so no tree can have more leaves than this
    assert len(forest.curves(known)) == FEWEST
    assert forest.leaves <= 40 * (FEWEST // LEAF)


def test_half_of_the_trees_go_on_beyond_what_they_have_seen() -> None:
    known, waits = drawn(400, 5)
    further = known[:1].copy()
    further[:, MIDDLES] = 10.0
    forest = Forest(known, waits)
    assert np.allclose(forest.curves(further)[:, MIDDLE] - forest.curves(known[:1])[:, MIDDLE], 1.0)
    further[:, MIDDLES[1]] = np.nan
    assert np.isfinite(forest.curves(further)).all(), "without recent waits, the runs alone are the middle"


def test_the_same_outcomes_give_the_same_forest() -> None:
    known, waits = drawn(200, 4)
    assert (Forest(known, waits).curves(known) == Forest(known, waits).curves(known)).all()

"""The page of `compare --out`: what it says is what the results say, and it is laid out so that it can be read."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import slotwise
from slotwise.display.drawing import draw_dots, panel, plain_number
from slotwise.report.blocks import Cell, Table
from slotwise.report.comparison import comparison_page, difference_in_words
from slotwise.report.manifest import Manifest
from slotwise.report.page import render
from slotwise.simulation.judge.statistics import Interval
from slotwise.simulation.showing import tail


@pytest.fixture(scope="module")
def comparison() -> slotwise.Comparison:
    return slotwise.compare(
        "best-fit-trap", ["best-fit", "fifo"], overrides={"run.events": 20_000, "run.replications": 3}
    )


@pytest.fixture(scope="module")
def text(comparison: slotwise.Comparison) -> str:
    return render(comparison_page(comparison), Manifest("slotwise compare", 1, {"simulation": 1.0}))


def tables(comparison: slotwise.Comparison) -> dict[str, Table]:
    page = comparison_page(comparison)
    return {b.name: b for section in page.sections for b in section.blocks if isinstance(b, Table)}


@pytest.mark.parametrize(
    ("found", "mean", "reference", "words"),
    [
        (Interval(9.0, 8.0, 10.0), 10.0, 1.0, "10 times as long"),
        (Interval(-9.0, -10.0, -8.0), 1.0, 10.0, "10 times as short"),
        (Interval(0.2, 0.1, 0.3), 1.2, 1.0, "20% longer"),
        (Interval(-0.2, -0.3, -0.1), 0.8, 1.0, "20% shorter"),
        (Interval(0.2, -0.1, 0.5), 1.2, 1.0, "no clear difference: it may be chance"),
        (Interval(0.0, 0.0, 0.0), 1.0, 1.0, "the same"),
        (Interval(1.0, 0.5, 1.5), 1.0, 0.0, "longer"),
        (Interval(1.0, None, None), 2.0, 1.0, "not known: one run shows no spread"),
    ],
)
def test_differences_in_plain_words(found: Interval, mean: float, reference: float, words: str) -> None:
    wide = Interval(mean, 0.0, 100.0), Interval(reference, 0.0, 100.0)
    assert difference_in_words(found, *wide) == words


def test_intervals_that_lie_apart_are_a_difference() -> None:
    doubtful = Interval(971.0, -749.0, 2691.0)
    one, other = Interval(995.0, 177.0, 5591.0), Interval(24.0, 19.4, 28.6)
    assert difference_in_words(doubtful, one, other) == "41.5 times as long"
    doubtful = Interval(-971.0, -2691.0, 749.0)
    assert difference_in_words(doubtful, other, one) == "41.5 times as short"


def test_figures_are_set_to_the_right_and_words_to_the_left(comparison: slotwise.Comparison) -> None:
    shown = tables(comparison)["results"]
    sides = dict(zip(shown.headings, shown.figures, strict=True))
    assert [name for name, right in sides.items() if not right] == ["policy", "verdict", "busiest"]


def test_by_type_is_grouped_and_the_worst_is_marked(comparison: slotwise.Comparison, text: str) -> None:
    rows = tables(comparison)["by-type"].rows
    assert [len(row) for row in rows] == [8, 7, 8, 7]
    assert [row[0].rows for row in rows[::2]] == [2, 2]
    for n, name in enumerate(comparison.results[0].type_names):
        waits = [result.wait_by_type[name]["mean"] or 0.0 for result in comparison]
        marked = [isinstance(row[-5], Cell) and row[-5].kind == "worst" for row in rows[2 * n : 2 * n + 2]]
        assert marked == [wait == max(waits) for wait in waits]
    assert text.count('rowspan="2"') == 2


def test_the_verdict_is_coloured_and_pictures_have_the_whole_width(text: str) -> None:
    assert re.search(r'class="pill (good|bad|unsure)"', text)
    assert text.count('class="panels whole"') == 2
    assert text.count('<div class="wide">') == text.count('<div class="narrow">') == 2


def test_one_scale_for_all_over_time(comparison: slotwise.Comparison) -> None:
    page = comparison_page(comparison)
    figure = next(
        b
        for section in page.sections
        for b in section.blocks
        if b.kind == "series" or getattr(b, "name", "") == "series"
    )
    # the labels of the axis are outlines, drawn alike where the axes are alike
    labels = [re.findall(r'id="time-\d-(ytick_\d+)"', panel.svg) for panel in figure.panels]  # type: ignore[union-attr]
    assert labels[0] == labels[1]
    assert labels[0]


def test_tails_reach_the_longest_wait(comparison: slotwise.Comparison) -> None:
    for result in comparison:
        times, shares = tail(result)
        assert times[-1] == result.wait["max"]
        assert times == sorted(times)
        assert all(a >= b > 0 for a, b in pairwise(shares))


def test_who_still_waits_is_in_the_tail(comparison: slotwise.Comparison) -> None:
    """Of all jobs 5 % wait longer than the 95th percentile, also where some have not started."""
    grown = [result for result in comparison if sum(result.still_waiting.values())]
    assert grown
    for result in grown:
        times, shares = tail(result)
        for name, share in (("p50", 0.5), ("p95", 0.05)):
            assert np.interp(result.wait[name] or 0.0, times, shares) == pytest.approx(share, rel=0.05)


def test_bars_stay_inside_the_axis() -> None:
    rows = [("a", "guarded", 1.0, -5.0, 7.0), ("b", "fifo", 900.0, 1.0, 2500.0)]
    with panel() as (_, axes):
        draw_dots(axes, rows)
        left, right = axes.get_xlim()
        for line in axes.lines:
            assert all(left <= x <= right for x in line.get_xdata())


def test_one_policy_has_a_page_too(comparison: slotwise.Comparison, tmp_path: Path) -> None:
    page = comparison_page(slotwise.Comparison(comparison.results[:1]))
    assert "differences" not in page.data
    assert "best-fit: mean queue" in page.lead[0]
    assert "best-fit-trap: best-fit" in render(page, Manifest("slotwise simulate", 1, {}))


def test_small_numbers_on_axes_are_plain() -> None:
    assert [plain_number(v) for v in (1e-5, 0.0001, 0.5, 2000.0)] == ["0.00001", "0.0001", "0.5", "2,000"]

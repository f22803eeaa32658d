"""The merge against NumPy's sort."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.workloads.merge import merge


def merged(rows: list[list[float]], at_most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All of `rows`, used up row by row: an empty row goes on with inf, as a source does at its end."""
    width = max(map(len, rows)) + 1
    times = np.full((len(rows), width), math.inf)
    for i, row in enumerate(rows):
        times[i, : len(row)] = row
    values = np.arange(times.size, dtype=float).reshape(times.shape)
    position = np.zeros(len(rows), dtype=np.int64)
    size = np.array([max(1, len(row)) for row in rows])
    found: list[tuple[float, int, float]] = []
    while True:
        time, row_of, value = np.empty(at_most), np.empty(at_most, dtype=np.int64), np.empty(at_most)
        filled = merge(times, values, position, size, time, row_of, value, 0)
        found += zip(time[:filled].tolist(), row_of[:filled].tolist(), value[:filled].tolist(), strict=True)
        size[position == size] += 1  # the inf behind the row
        if filled == 0:
            break
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    return np.array(columns[0]), np.array(columns[1]), np.array(columns[2])


def check(rows: list[list[float]], at_most: int) -> None:
    time, row_of, value = merged(rows, at_most)
    width = max(map(len, rows)) + 1
    flat = [(t, i, i * width + k) for i, row in enumerate(rows) for k, t in enumerate(row)]
    order = np.lexsort((np.array([i for _, i, _ in flat], dtype=int), np.array([t for t, _, _ in flat])))
    assert time.tolist() == [flat[k][0] for k in order]
    assert row_of.tolist() == [flat[k][1] for k in order]
    assert value.tolist() == [flat[k][2] for k in order]


row = st.lists(st.integers(0, 6).map(float), max_size=8).map(sorted)


@pytest.mark.core
@settings(max_examples=100, derandomize=True, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=9), at_most=st.integers(1, 20))
def test_ties_and_ends(rows: list[list[float]], at_most: int) -> None:
    """Equal times come in the order of the rows; empty rows never come."""
    check(rows, at_most)


def test_many_rows() -> None:
    rng = np.random.default_rng(1)
    check([np.sort(rng.random(rng.integers(0, 60))).tolist() for _ in range(100)], 64)

"""Plain kernels do what the same Python does, and what is not plain is lowered as Numba does it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core.caching import NullCache
from numpy.typing import NDArray

from slotwise.compiler import lowering
from slotwise.compiler.kernel import JIT
from slotwise.compiler.kernel import kernel as cached_kernel

if not JIT:
    pytest.skip("without the compiler", allow_module_level=True)

Ints = NDArray[np.int64]


def kernel(function: Any) -> Any:
    """A kernel that every process compiles anew."""
    made: Any = cached_kernel(function)
    made._cache = NullCache()
    return made


def is_plain(function: Any) -> bool:
    """Whether it was lowered as a plain kernel, for whatever arguments."""
    return any(found is function.py_func for found, _ in lowering._plain)


@kernel
def _element(a: Ints, i: int) -> int:
    a[i] += 3
    return 10 * a[i] + a[-1] + a[0]


@kernel
def _short_index(a: Ints, at: NDArray[np.int32]) -> int:
    found = 0
    for k in range(len(at)):
        found = 7 * found + a[at[k]]
    return found


@kernel
def _cell(a: NDArray[np.float64], i: int, j: int) -> float:
    a[i, j] = 2 * a[i, j] + a[-1, 0] - a[1, -1]
    a[0, 1] -= 1
    return a[i, j]


@kernel
def _row(a: Ints, i: int) -> Ints:
    return a[i]


@kernel
def _rows(a: Ints, i: int) -> int:
    row, last = a[i], _row(a, -1)
    row[1] = 5
    last[0] += row[1]
    every_second = row[::2]
    return len(row) * 100 + row[-1] + last[0] + every_second[1]


@kernel
def _cube(a: Ints, i: int, j: int, k: int) -> int:
    a[i, j, k] += 1
    return a[i, j, k] + a[i, 0, -1]


@kernel
def _flags(a: NDArray[np.bool_], i: int) -> int:
    a[i] = not a[i]
    return 1 if a[i] else 0


@kernel
def _columns(a: Ints, i: int, j: int) -> int:
    column = a[:, j]
    return column[i] + len(column)


@kernel
def _loops(start: int, stop: int) -> int:
    found = 1
    for i in range(stop):
        found = 3 * found + i
    for i in range(start, stop):
        found = 5 * found + i
        for j in range(i):
            if j == 3:
                break
            found += j
    for i in range(stop, start, -2):
        found = 2 * found - i
    return found % 1_000_003


@kernel
def _pair(a: int, b: float) -> tuple[int, float]:
    return a + 1, b / 2


@kernel
def _pairs(n: int) -> float:
    found = 0.0
    for i in range(n):
        whole, half = _pair(i, found)
        found += whole - half
    return found


GRID = np.arange(12, dtype=np.int64).reshape(3, 4)
PLAIN: list[tuple[Any, list[tuple[Any, ...]]]] = [
    (_element, [(np.arange(5), i) for i in (-5, -1, 0, 4)]),
    (_short_index, [(np.arange(5), np.array(at, np.int32)) for at in ([], [0, -1, 4], [-5, 2])]),
    (_cell, [(GRID.astype(float), i, j) for i in (-3, 0, 2) for j in (-4, 1, 3)]),
    (_rows, [(GRID, i) for i in (-3, -1, 0, 2)]),
    (_cube, [(np.arange(24).reshape(2, 3, 4), i, j, k) for i in (-1, 0) for j in (-3, 2) for k in (-2, 3)]),
    (_flags, [(np.array([True, False]), i) for i in (-2, 1)]),
    (_columns, [(GRID, i, j) for i in (-3, 2) for j in (-1, 0)]),
    (_loops, [(a, b) for a in (-2, 0, 5) for b in (-3, 0, 4, 9)]),
    (_pairs, [(0,), (5,)]),
]


@pytest.mark.parametrize(("function", "given"), PLAIN, ids=[function.py_func.__name__ for function, _ in PLAIN])
def test_a_plain_kernel_does_what_its_python_does(function: Any, given: list[tuple[Any, ...]]) -> None:
    for one in given:
        own, other = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in one] for _ in range(2))
        assert function(*own) == function.py_func(*other)
        for mine, expected in zip(own, other, strict=True):
            np.testing.assert_array_equal(mine, expected)
    assert is_plain(function)


def test_other_orders_of_memory_are_left_to_numba() -> None:
    for a in (np.asfortranarray(GRID), np.repeat(GRID, 2, axis=1)[:, ::2]):
        assert _rows(a.copy(order="K"), 1) == _rows.py_func(a.copy(order="K"), 1)  # type: ignore[attr-defined]
        assert _columns(a, 2, 1) == _columns.py_func(a, 2, 1)  # type: ignore[attr-defined]


@kernel
def _refuses(a: int) -> int:
    if a < 0:
        raise ValueError("a is negative")
    return a


@kernel
def _refuses_too(a: int) -> int:
    return _refuses(a - 1) + 1


@njit
def _others(a: int) -> int:
    return a // 2


@kernel
def _calls_others(a: int) -> int:
    return _others(a)


@kernel
def _steps(a: int) -> int:
    found = 0
    for i in range(0, 10, a):
        found += i
    return found


@kernel
def _makes(n: int) -> Ints:
    return np.arange(n)


@kernel
def _adds(a: Ints) -> int:
    b = a + a
    return b[1]


@kernel
def _fills(a: Ints) -> int:
    a[1:3] = a[:2]
    return a[2]


@kernel
def _uses(n: int) -> int:
    made = _makes(n)
    part = _row(made.reshape(2, -1), 1)
    return part[0]


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        *((_refuses, 3, 3), (_refuses_too, 3, 3), (_calls_others, 9, 4), (_steps, 3, 18)),
        *((_adds, np.arange(3), 2), (_fills, np.arange(3), 1), (_uses, 8, 4)),
    ],
)
def test_what_may_raise_or_allocate_is_not_plain(function: Callable[..., int], given: Any, expected: int) -> None:
    assert function(given) == expected
    assert not is_plain(function)


def test_an_exception_reaches_python() -> None:
    for function, given in ((_refuses, -1), (_refuses_too, 0), (_steps, 0)):
        with pytest.raises(ValueError, match=r"negative|zero"):
            function(given)


def test_nobody_releases_what_somebody_holds() -> None:
    """An array that a kernel is given, or gives, is counted as often as it is held."""
    given = np.arange(8).reshape(2, 4)
    held = sys.getrefcount(given)
    for _ in range(3):
        assert _row(given, 1)[3] == 7
        assert _rows(given, 0) > 0
    assert sys.getrefcount(given) == held
    kept = [_row(np.full((2, 3), n), 1) for n in range(50)]
    made = [_makes(n + 1) for n in range(50)]
    for n in range(50):
        _uses(2 * n + 2)
        assert kept[n].tolist() == [n] * 3
        assert made[n].tolist() == list(range(n + 1))

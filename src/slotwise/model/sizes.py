"""Exact sizes: decimals as a person writes them, integers as the kernels compare them.

A resource r whose sizes have at most d_r digits behind the point is scaled by 10^d_r, so that
`sum of demands <= capacity` is decided in integers and 0.1 + 0.2 fits into 0.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from slotwise.errors import InputError

# Sizes stay exact in floating point too, where scores are computed from them, and a thousand times a size (the
# grid of the fit index) stays below 2^63.
LARGEST = 2**52


def digits_behind_point(sizes: Iterable[Decimal]) -> int:
    """Return the fewest digits behind the point that write every size exactly."""
    most = 0
    for size in sizes:
        exponent = size.normalize().as_tuple().exponent
        if isinstance(exponent, int):
            most = max(most, -exponent)
    return most


def scaled(sizes: Sequence[Sequence[Decimal]], digits: Sequence[int], *, where: str) -> NDArray[np.int64]:
    """Return sizes[i][r] * 10^digits[r] as int64, shape (len(sizes), R)."""
    table = np.zeros((len(sizes), len(digits)), dtype=np.int64)
    for i, row in enumerate(sizes):
        for r, size in enumerate(row):
            value = int(size.scaleb(digits[r]))
            if value >= LARGEST:
                raise InputError(
                    f"{size} with {digits[r]} digits behind the point is too large to be kept exactly",
                    where=f"{where}[{i}]",
                    remedy="use a larger unit (GB for bytes) or fewer digits",
                )
            table[i, r] = value
    return table

"""The event heap: ends of running jobs, the earliest first.

A heap in which every node has four children: half as deep as a binary one, and the four keys that a step compares lie in one
cache line, which is what counts with hundreds of thousands of running jobs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel

Keys = NDArray[np.float64]
Values = NDArray[np.int64]


@kernel
def push(keys: Keys, values: Values, n: int, key: float, value: int) -> None:
    """Add an entry to a heap of n."""
    at = n
    while at > 0:
        parent = (at - 1) >> 2
        if keys[parent] <= key:
            break
        keys[at] = keys[parent]
        values[at] = values[parent]
        at = parent
    keys[at] = key
    values[at] = value


@kernel
def replace_first(keys: Keys, values: Values, n: int, key: float, value: int) -> None:
    """Put an entry in the place of the first one of a heap of n."""
    at = 0
    while True:
        child = 4 * at + 1
        if child >= n:
            break
        least = child
        for other in range(child + 1, min(child + 4, n)):
            if keys[other] < keys[least]:
                least = other
        if keys[least] >= key:
            break
        keys[at] = keys[least]
        values[at] = values[least]
        at = least
    keys[at] = key
    values[at] = value


@kernel
def pop(keys: Keys, values: Values, n: int) -> None:
    """Remove the first entry of a heap of n."""
    last = n - 1
    if last > 0:
        replace_first(keys, values, last, keys[last], values[last])

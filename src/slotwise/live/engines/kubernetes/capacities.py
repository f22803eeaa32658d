"""Capacities of nodes in few sizes: the scheduler plans by class, and nodes that differ in a few bytes should be of one class.

What pods of other schedulers hold is taken off the node's allocatable, so nodes of one kind differ after a while. If there are more than
`MOST` different capacities, all are rounded down to fewer significant bits, until there are few enough. The last level loses a ninth at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

MOST = 12  # different capacities; with 50 classes a decision of `guarded` took 20 times as long as with 5
LEVELS = (0, 10, 7, 5, 4)  # significant bits; 0: exact

Capacity = Mapping[str, Decimal]


def round_down(value: Decimal, bits: int, unit: Decimal = Decimal(1)) -> Decimal:
    """Return a capacity with this many significant bits, in whole units.

    >>> round_down(Decimal("63.93"), 5, Decimal("0.001"))
    Decimal('63.488')
    """
    whole = max(0, int(value / unit))
    excess = whole.bit_length() - bits if bits else 0
    if excess > 0:
        whole = whole >> excess << excess
    return whole * unit


def rounded(capacity: Capacity, bits: int) -> dict[str, Decimal]:
    """Return a capacity with this many significant bits of each resource. CPUs are counted in thousandths."""
    return {
        name: round_down(value, bits, Decimal("0.001") if name == "cpu" else Decimal(1))
        for name, value in capacity.items()
    }


def level_for(capacities: Iterable[Capacity], at_least: int = 0) -> int:
    """Return the first level, from `at_least` on, at which there are at most `MOST` different capacities; else the last level."""
    exact = {tuple(sorted(one.items())) for one in capacities}
    for level in range(at_least, len(LEVELS) - 1):
        if len({tuple(sorted(rounded(dict(one), LEVELS[level]).items())) for one in exact}) <= MOST:
            return level
    return len(LEVELS) - 1

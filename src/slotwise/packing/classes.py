"""The feasible set of each server class of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.model import Integers, ServerClass
from slotwise.packing.space import Space


def spaces_of(servers: Sequence[ServerClass], sizes: Integers) -> list[Space]:
    """In the order of the classes: demands add up, or the class's own predicate says what fits.

    A class holds none of a type whose requirements its labels do not meet.
    """
    allowed = sizes.allowed if sizes.allowed is not None else [None] * len(servers)
    return [
        Space.additive(sizes.demand, sizes.capacity[c], allowed[c])
        if server.feasible is None
        else Space.monotone(server.feasible, len(sizes.demand), allowed=allowed[c])
        for c, server in enumerate(servers)
    ]

"""The lowest-numbered server with enough room: a tournament tree of the largest free amount of each resource.

Node n holds, for each resource, the maximum over the servers below it. A node whose maxima do not cover the demand is
skipped whole; since the maxima of several resources may come from different servers, a promising node can
disappoint, and the search then goes on to the right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling.memory import int_rows
from slotwise.scheduling.state import PRESENT, STATUS, State, free, servers

CLOSED = -1
"""Room of a server that takes no jobs: less than any demand."""


@kernel
def tree(s: State) -> NDArray[np.int64]:
    """(2 leaves, R)."""
    return int_rows(s.at_tree, 2 * s.n_tree, s.n_resources)


@kernel
def update(s: State, server: int) -> None:
    """Bring the server's leaf, and the nodes above it that change, up to date."""
    nodes = tree(s)
    node = s.n_tree + server
    open_ = servers(s)[server, STATUS] == PRESENT
    for r in range(s.n_resources):
        nodes[node, r] = free(s)[server, r] if open_ else CLOSED
    while node > 1:
        node //= 2
        changed = False
        for r in range(s.n_resources):
            largest = max(nodes[2 * node, r], nodes[2 * node + 1, r])
            if nodes[node, r] != largest:
                nodes[node, r] = largest
                changed = True
        if not changed:
            return


@kernel
def _covers(nodes: NDArray[np.int64], node: int, need: NDArray[np.int64]) -> bool:
    for r in range(need.shape[0]):
        if nodes[node, r] < need[r]:
            return False
    return True


@kernel
def first_fit(s: State, need: NDArray[np.int64], start: int) -> int:
    """The lowest-numbered server from `start` on whose free room covers the need, -1 where there is none."""
    nodes, half = tree(s), s.n_tree
    if start >= half:
        return -1
    node = half + start
    while True:
        if _covers(nodes, node, need):
            if node >= half:
                return node - half
            node *= 2
            continue
        # go to the next subtree on the right: up while we are a right child, then over
        while node & 1:
            node >>= 1
            if node <= 1:
                return -1
        node += 1

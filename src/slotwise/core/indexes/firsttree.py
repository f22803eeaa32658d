"""The lowest-numbered server with enough room: a tournament tree of what the servers below each node can take.

Node n holds, for each resource, the largest free amount below it, and a bit for each type of which a job would fit some server
below it. A node is skipped whole unless its maxima cover the demand and it has the bit of the largest type that the
demand covers. For a job as large as its type that bit is exact, so the search goes straight down. For a smaller job
a node may promise in vain; the search then continues to the right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import int_rows, ints
from slotwise.core import state as st

MOST_BITS = 62  # types with a bit of their own in one whole number, whose sign bit stays free
CLOSED = -1  # Room of a server that takes no jobs: less than any demand.


@kernel
def tree(s: st.State) -> NDArray[np.int64]:
    """(2 leaves, R)."""
    return int_rows(s.at_tree, 2 * s.n_tree, s.n_resources)


@kernel
def tree_types(s: st.State) -> NDArray[np.int64]:
    """(2 leaves,): bit j is set where a type-j job would fit some server below the node."""
    return ints(s.at_tree_types, 2 * s.n_tree)


@kernel
def _types_that_fit(s: st.State, server: int) -> int:
    fitting = 0
    for j in range(min(s.n_types, MOST_BITS)):
        fits = not s.restricted or st.allowed(s)[st.servers(s)[server, st.CLASS], j] > 0
        for r in range(s.n_resources):
            fits = fits and st.free(s)[server, r] >= st.demand(s)[j, r]
        if fits:
            fitting |= 1 << j
    return fitting


@kernel
def update(s: st.State, server: int) -> None:
    """Bring the server's leaf, and the nodes above it that change, up to date."""
    nodes, types = tree(s), tree_types(s)
    node = s.n_tree + server
    open_ = st.servers(s)[server, st.STATUS] == st.PRESENT
    for r in range(s.n_resources):
        nodes[node, r] = st.free(s)[server, r] if open_ else CLOSED
    types[node] = _types_that_fit(s, server) if open_ else 0
    while node > 1:
        node //= 2
        fitting = types[2 * node] | types[2 * node + 1]
        changed = types[node] != fitting
        types[node] = fitting
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
def _bit_of(s: st.State, need: NDArray[np.int64]) -> int:
    """Return the bit of the largest type that the need covers. A server without capacity for that type has none for
    the need.

    With requirements only the type itself will do, since others may not run where it may."""
    if s.restricted:
        return 1 << s.need_type if _covered(s, s.need_type, need) else 0
    for n in range(s.n_types):
        j = st.order(s)[0, n]
        if _covered(s, j, need):
            return 1 << j
    return 0


@kernel
def _covered(s: st.State, j: int, need: NDArray[np.int64]) -> bool:
    """Return whether type j has a bit, and the need covers its demand."""
    for r in range(s.n_resources):
        if st.demand(s)[j, r] > need[r]:
            return False
    return bool(j < MOST_BITS)


@kernel
def most_without(s: st.State, server: int, most: NDArray[np.int64]) -> None:
    """Write the largest free amount of each resource over all servers but this one (-1: over all) into `most`."""
    nodes = tree(s)
    if server < 0:
        for r in range(s.n_resources):
            most[r] = nodes[1, r]
        return
    for r in range(s.n_resources):
        most[r] = CLOSED
    node = s.n_tree + server
    while node > 1:
        for r in range(s.n_resources):
            most[r] = max(most[r], nodes[node ^ 1, r])
        node //= 2


@kernel
def first_fit(s: st.State, need: NDArray[np.int64], start: int) -> int:
    """Return the lowest-numbered server from `start` on whose free capacity covers the need, or -1."""
    nodes, types, half = tree(s), tree_types(s), s.n_tree
    if start >= half:
        return -1
    bit = _bit_of(s, need)
    node = half + start
    while True:
        if types[node] & bit == bit and _covers(nodes, node, need):
            if node < half:
                node *= 2
                continue
            if not s.restricted or st.allowed(s)[st.servers(s)[node - half, st.CLASS], s.need_type] > 0:
                return node - half
        # go to the next subtree on the right: up while we are a right child, then over
        while node & 1:
            node >>= 1
            if node <= 1:
                return -1
        node += 1

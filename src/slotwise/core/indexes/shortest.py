"""The shortest queue of each type, where every server has queues of its own (`own_queues`, an option of one policy).

A tournament tree for each type over the lengths of the servers' queues. Server l's queue of type j is row l J + j of `queues`; the last J rows
hold jobs that no present server could take.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import int_rows
from slotwise.core import state as st

LONGEST = 2**60  # jobs; stands for the queue of a server that takes no job of the type


@kernel
def shortest(s: st.State) -> NDArray[np.int64]:
    """(J, 2 leaves): for each type a tournament tree over the servers' queue lengths; only with `own_queues`."""
    return int_rows(s.at_shortest, s.n_types, 2 * s.n_tree)


@kernel
def shortest_queue(s: st.State, j: int) -> int:
    """Return the shortest queue of type j."""
    tree, half = shortest(s), s.n_tree
    if tree[j, 1] >= LONGEST:
        return s.max_servers * s.n_types + j
    node = 1
    while node < half:
        node = 2 * node if tree[j, 2 * node] <= tree[j, 2 * node + 1] else 2 * node + 1
    return (node - half) * s.n_types + j


@kernel
def refresh_server(s: st.State, server: int) -> None:
    """Bring the server's leaves of all types up to date. Without queues of servers, do nothing."""
    if s.own_queues:
        for j in range(s.n_types):
            refresh_shortest(s, j, server)


@kernel
def refresh_shortest(s: st.State, j: int, server: int) -> None:
    """Bring the server's leaf for type j, and the nodes above it, up to date: its queue length, or LONGEST if it takes no job of the type."""
    row = st.servers(s)[server]
    takes = row[st.STATUS] == st.PRESENT and st.most(s)[row[st.CLASS], j] > 0
    tree = shortest(s)[j]
    node = s.n_tree + server
    tree[node] = st.queues(s)[server * s.n_types + j, st.LENGTH] if takes else LONGEST
    while node > 1:
        node //= 2
        tree[node] = min(tree[2 * node], tree[2 * node + 1])

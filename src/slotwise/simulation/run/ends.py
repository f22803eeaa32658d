"""When running jobs end, the earliest first: a tournament tree.

A running job has a leaf with its end; every node holds the earlier of its two children and whose it is, so the root is the
next completion. Compared with a heap, the way from a leaf to the root is known beforehand: nothing has to be
predicted, and cache misses along it overlap. A job that starts when another ends takes over its leaf, which is one way to the root
instead of two.

There is a leaf for each job number, but most jobs wait, and leaves are used from the left. So the root is that of the
first 2^height leaves, the part that was ever used; it rises when these are not enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural

# (2 leaves, 2): the earliest end below each node, and the number of its job. Leaf n is node leaves + n; the node above
# nodes 2 n and 2 n + 1 is n.
Ends = NDArray[np.float64]


def room(max_jobs: int) -> Ends:
    """Return a tree in which no job runs."""
    leaves = 1 << max(1, (int(max_jobs) - 1).bit_length())
    raw = np.full(4 * leaves + 8, np.inf)
    first = -raw.ctypes.data % 64 // 8
    tree = raw[first : first + 4 * leaves].reshape(-1, 2)
    tree[:, 1] = 0.0
    return tree


@kernel
def put(tree: Ends, root: int, at: int, i: int, end: float) -> None:
    """Let node `at`, a leaf, be job i's, which ends then. Infinite: the leaf is free."""
    at, whose = natural(at), float(i)
    tree[at, 0] = end
    tree[at, 1] = whose
    while at > root:
        other, its = tree[at ^ 1, 0], tree[at ^ 1, 1]
        # two selections instead of a branch that the processor cannot predict
        earlier = other < end
        end = other if earlier else end
        whose = its if earlier else whose
        at >>= 1
        tree[at, 0] = end
        tree[at, 1] = whose


@kernel
def insert(tree: Ends, root: int, at: int, i: int, end: float) -> None:
    """Do the work of `put` for a leaf that was free: the way up may end early."""
    at, whose = natural(at), float(i)
    tree[at, 0] = end
    tree[at, 1] = whose
    while at > root:
        if tree[at ^ 1, 0] <= end:
            return  # the node above has an earlier end already
        at >>= 1
        tree[at, 0] = end
        tree[at, 1] = whose


def grown(tree: Ends, max_jobs: int) -> Ends:
    """Return the same ends, at the same leaves, in a larger tree."""
    larger, leaves = room(max_jobs), len(tree) // 2
    for leaf in np.flatnonzero(np.isfinite(tree[leaves:, 0])):
        end, i = tree[leaves + leaf]
        insert(larger, 1, len(larger) // 2 + int(leaf), int(i), float(end))
    return larger

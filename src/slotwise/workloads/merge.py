"""Several ascending sequences become one: a loser tree over their heads.

The leaves of a complete binary tree are the rows. Every inner node is a match that the earlier head wins, or the
lower-numbered row if heads are equal; a node keeps the loser, with its head. When the overall winner moves on, its new
head meets just the losers on its path to the root. These are log2(rows) matches, at addresses known beforehand and
without a branch to guess, which is twice as fast as a tree of winners.

Each step must wait for the match that decided the step before, so that chain is kept short. The head that follows is
read one step ahead. Heads are compared as whole numbers: the bits of floats that are not negative are in the order of
the floats. Of equal heads the left one wins: a head from the right counts as one larger.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural

NEVER = int(np.array(np.inf).view(np.int64))


def merge(
    times: NDArray[np.float64],
    values: NDArray[np.float64],
    position: NDArray[np.int64],
    size: NDArray[np.int64],
    out_time: NDArray[np.float64],
    out_row: NDArray[np.int64],
    out_value: NDArray[np.float64],
    filled: int,
) -> int:
    """Fill the out columns in order of time, from `filled` on; return how far they are filled.

    Row i offers times[i, position[i]:size[i]] (ascending, not negative, inf: never) with the values beside them, and its position
    moves on. It stops when the columns are full, a row is used up (the caller refills it and calls again), or
    nothing is left but inf. No row may be used up at the start.
    """
    leaves = 1 << (len(position) - 1).bit_length()
    tree, winner = np.zeros((4, leaves), np.int64), np.arange(-leaves, leaves)
    keys = times.view(np.int64)
    return int(play(keys, times, values, position, size, out_time, out_row, out_value, filled, tree, winner))


@kernel
def play(
    keys: NDArray[np.int64],
    times: NDArray[np.float64],
    values: NDArray[np.float64],
    position: NDArray[np.int64],
    size: NDArray[np.int64],
    out_time: NDArray[np.float64],
    out_row: NDArray[np.int64],
    out_value: NDArray[np.float64],
    filled: int,
    tree: NDArray[np.int64],
    winner: NDArray[np.int64],
) -> int:
    """Return the loop of `merge`. Its scratch, `tree` and `winner`, comes from Python: compiling how arrays are made would take longer than compiling the loop. `keys` are the
    bits of the times."""
    rows, leaves = len(position), tree.shape[1]
    head, following, loser, loser_head = tree[0], tree[1], tree[2], tree[3]
    # Node n has the children 2n and 2n + 1, the leaves are leaves..2 leaves - 1; those beyond the rows never win.
    for i in range(rows, leaves):
        head[i] = following[i] = NEVER
    for i in range(rows):
        head[i] = keys[i, position[i]]
        following[i] = keys[i, min(position[i] + 1, size[i] - 1)]
    for node in range(leaves - 1, 0, -1):
        left = winner[2 * node]
        right = winner[2 * node + 1]
        right_wins = head[right] < head[left]
        winner[node] = right if right_wins else left
        loser[node] = left if right_wins else right
        loser_head[node] = head[loser[node]]
    row = natural(winner[1])
    key = head[row]
    while filled < len(out_time) and key < NEVER:
        at = natural(position[row])
        filled = natural(filled)
        out_time[filled] = times[row, at]
        out_row[filled] = row
        out_value[filled] = values[row, at]
        filled += 1
        at += 1
        position[row] = at
        if at == size[row]:
            break
        key = following[row]
        following[row] = keys[row, min(at + 1, size[row] - 1)]
        node = natural(leaves + row)
        while node > 1:
            from_right = node & 1
            node >>= 1
            other = natural(loser[node])
            other_head = loser_head[node]
            other_wins = other_head < key + from_right
            loser[node] = row if other_wins else other
            loser_head[node] = key if other_wins else other_head
            row = other if other_wins else row
            key = other_head if other_wins else key
    return filled

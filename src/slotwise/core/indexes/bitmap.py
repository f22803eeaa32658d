"""Sets of server numbers whose lowest member is found in a few steps: hierarchical bitmaps.

Row i is a set. Level 0 has a bit for every server, level 1 a bit for every word of level 0 that is not zero, level
2 likewise. Words have 32 bits, so three levels reach a million servers with a top of 31 words.
Rows 0..J-1: active servers with an empty slot of type j. Rows J..J+C-1: empty servers of class c.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import int_rows, natural, trailing_zeros
from slotwise.core import state as st


def words(n_servers: int) -> tuple[int, int, int]:
    """Return the words of each level for servers 0..n_servers - 1."""
    level_0 = (n_servers + 31) // 32
    level_1 = (level_0 + 31) // 32
    return level_0, level_1, (level_1 + 31) // 32


@kernel
def bits(s: st.State) -> NDArray[np.int64]:
    """(J + C, words of all levels)."""
    return int_rows(s.at_bits, s.n_types + s.n_classes, s.n_words)


@kernel
def add(s: st.State, row: int, server: int) -> None:
    """Put the server into the set."""
    words = bits(s)[natural(row)]
    i, base = natural(server) >> 5, s.n_words_0
    was_empty = words[i] == 0
    words[i] |= 1 << (server & 31)
    if was_empty:
        words[base + (i >> 5)] |= 1 << (i & 31)
        i >>= 5
        words[base + s.n_words_1 + (i >> 5)] |= 1 << (i & 31)


@kernel
def discard(s: st.State, row: int, server: int) -> None:
    """Take the server out of the set, if it is there."""
    words = bits(s)[natural(row)]
    i, base = natural(server) >> 5, s.n_words_0
    words[i] &= ~(1 << (server & 31))
    if words[i] == 0:
        words[base + (i >> 5)] &= ~(1 << (i & 31))
        i >>= 5
        if words[base + i] == 0:
            words[base + s.n_words_1 + (i >> 5)] &= ~(1 << (i & 31))


@kernel
def contains(s: st.State, row: int, server: int) -> bool:
    """Return whether the server is in the set."""
    return bool((bits(s)[row, server >> 5] >> (server & 31)) & 1)


@kernel
def first(s: st.State, row: int) -> int:
    """Return the lowest server number in the set, -1 if it is empty."""
    words = bits(s)[natural(row)]
    top = s.n_words_0 + s.n_words_1
    for i in range(s.n_words_2):
        if words[top + i] != 0:
            i = (i << 5) + trailing_zeros(words[top + i])
            i = (i << 5) + trailing_zeros(words[s.n_words_0 + i])
            return (i << 5) + trailing_zeros(words[i])
    return -1

"""Random numbers of the policies, kept in the state so that a situation holds them.

Marsaglia's xorshift128 on 32-bit words: shifts and exclusive-or only, so compiled and plain Python agree exactly.
Workloads draw from NumPy generators of their own; a policy's ties never change what arrives.
"""

from __future__ import annotations

import numpy as np

from slotwise.compiler.kernel import kernel
from slotwise.core import state as st

MASK = 0xFFFFFFFF  # the lowest 32 bits
POLICY, CLOCK = 1, 3  # which child of a replication's seed is the policy's, and which is that of its clock

Words = tuple[int, int, int, int]


def words_of(seed: int, replication: int = 0, stream: int = POLICY) -> Words:
    """Return where the stream of a policy begins: in a scheduler with this seed, and in each replication of a run with it."""
    begin = np.random.SeedSequence(seed, spawn_key=(replication, stream))
    x, y, z, w = (int(word) for word in begin.generate_state(4, np.uint32))
    return x, y, z, w | 1  # never all zero


def set_words(s: st.State, words: Words) -> None:
    """Go on from here."""
    s.random_x, s.random_y, s.random_z, s.random_w = words


def words(s: st.State) -> Words:
    """Return where in the stream the state is. Before and after a run that drew nothing, the answers are equal."""
    return int(s.random_x), int(s.random_y), int(s.random_z), int(s.random_w)


@kernel
def word(s: st.State) -> int:
    """Return a uniform integer in 0..2^32 - 1."""
    t = (s.random_x ^ (s.random_x << 11)) & MASK
    s.random_x = s.random_y
    s.random_y = s.random_z
    s.random_z = s.random_w
    w = s.random_w ^ (s.random_w >> 19) ^ t ^ (t >> 8)
    s.random_w = w
    return w


@kernel
def below(s: st.State, n: int) -> int:
    """Return a uniform integer in 0..n - 1 for n <= 2^31 (the bias of the product method is under n / 2^32)."""
    return (word(s) * n) >> 32


@kernel
def uniform(s: st.State) -> float:
    """Return a uniform number in [0, 1) with 53 bits."""
    high = word(s) >> 5
    return (high * 67108864.0 + (word(s) >> 6)) / 9007199254740992.0

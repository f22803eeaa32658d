"""Where `guarded` keeps its numbers: places in policy_ints and policy_floats, beside those of `slots` (policy_ints 0 to 6,
policy_floats 0 to 2), whose beta it uses. J types, R resources.
"""

from __future__ import annotations

# policy_ints
SPOILS, SEEN, STALE, CLOCK, NEXT_LOOK, ENDED, NEXT_ESTIMATE, ARRIVED = 8, 9, 10, 11, 12, 13, 14, 15
"""whether V(F) means anything here; completions since prices were set; whether prices are out of date; events so far, and at how many turns
are looked at again; completions that count for gains, at how many they are estimated again, and arrivals"""
WORK = 16
"""from here on: J slots (`gains`), J holders (`floors`); R for a free vector, (J + 1) R and J for the search, MEMO keys of R (`usable`)"""

# policy_floats
BASE, EXPONENT, POWER, PERSISTENCE, HELD, FLOOR, STANDING = 3, 4, 5, 6, 7, 8, 9
"""c; e of the gains; the power of use in prices; P; the weight that a server would hold with the best filling; what all
floors and all standing slots are of the cluster"""
NUMBERS = 10
"""from here on: J gains, J paces, J completions, J counts (`gains`); R sums of use, R prices of resources, J prices of jobs, J + 1 rooms, J R
bounds, MEMO values (`usable`)"""

MEMO = 4096
"""free vectors of which V is remembered"""


def whole_numbers(n_types: int, n_resources: int) -> int:
    """How many policy_ints there are."""
    return WORK + 2 * n_types + n_resources + (n_types + 1) * n_resources + n_types + MEMO * n_resources


def real_numbers(n_types: int, n_resources: int) -> int:
    """How many policy_floats."""
    return NUMBERS + 6 * n_types + 1 + 2 * n_resources + n_types * n_resources + MEMO

"""Types that no best configuration needs, since another may take their place, kept up to date from search to search.

Type i replaces type j if i asks for no more and weighs no less. If both ask for the same, i must weigh more, or two
types would replace each other. Each type j has a list of some types that ask for no more. Then

    beaten_j = #{i in the list of j: i replaces j} + [w_j <= 0] + [the class does not hold j],

and a search needs the types with beaten_j = 0. A type that replaces a fitting type fits, too, so this holds for any
free capacity. From one search to the next few weights change. If w_j changes, only the counts of j, and of the types in
whose lists j is, can change.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural
from slotwise.packing.kernels.fill import F8, I8


@kernel
def _beats(one: float, other: float, less: int) -> int:
    """Return whether a type of weight `one` replaces a type of weight `other` whose demand is no smaller (less = 0:
    equal)."""
    return int(one > other) | (int(one == other) & less)


@kernel
def _count(weights: F8, may: I8, smaller: I8, each: int, j: int) -> int:
    """Count beaten_j. An entry 2 i + 1 of a list is a type i that requests less than j of some resource. An entry 2
    i is a type with the same demand, such as j itself, which fills up the list."""
    mine, found = weights[j], 0
    for e in range(each):
        entry = smaller[natural(j * each + e)]
        found += _beats(weights[natural(entry >> 1)], mine, entry & 1)
    return found + int(mine <= 0.0) + int(may[j] == 0)


@kernel
def unbeaten(
    weights: F8, order: I8, may: I8, smaller: I8, larger_ends: I8, larger: I8, seen: F8, beaten: I8, types: I8
) -> int:
    """Write the types that a search needs, in this order. Return how many. `seen` are the weights for which
    `beaten` was counted, and beaten[J] says whether it was. larger[larger_ends[j] : larger_ends[j + 1]] are the
    types in whose lists j is, as 2 k + 1 or 2 k in the same way."""
    J = len(order)
    each, changed = len(smaller) // J, 0
    for j in range(J):  # here and below: without an unpredictable branch
        types[natural(changed)] = j
        changed += int(weights[j] != seen[j])
    if beaten[J] == 0 or changed * 4 > J:
        beaten[J] = 1
        for j in range(J):
            seen[j] = weights[j]
        for j in range(J):
            beaten[j] = _count(seen, may, smaller, each, j)
    else:
        for n in range(changed):
            j = natural(types[n])
            old, new = seen[j], weights[j]
            for e in range(natural(larger_ends[j]), natural(larger_ends[j + 1])):
                k, less = natural(larger[e] >> 1), larger[e] & 1
                beaten[k] += _beats(new, seen[k], less) - _beats(old, seen[k], less)
            seen[j] = new
            beaten[j] = _count(seen, may, smaller, each, j)
    m = 0
    for n in range(J):
        j = natural(order[n])
        types[natural(m)] = j
        m += int(beaten[j] == 0)
    return m

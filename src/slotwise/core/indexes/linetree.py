"""How the tree of waiting jobs is kept: a crit-bit tree over demand vectors whose bits are taken in turn from each resource.

The key of a leaf is its demand vector, followed by a tie. Each resource is scaled so that its largest capacity fills
the same number of bits. The tie is the type of the jobs; or, if jobs have expected durations, so that no two are alike,
the order of arrival. An inner node parts the keys below it at the highest bit in which they differ; of bits of equal
weight, that of the lower-numbered resource counts. So the tree is a k-d tree whose shape follows from the set of keys
alone. Jobs with the same key stand in one leaf, from old to young.

Types that may run on the same classes share a tree: there is one for each set of classes (`roots`).

A job that arrives and starts at once never enters: the last job to wait is filed when the next one comes, or before
a search (`s.line_last`).

Row layout of `nodes`: UP, LEFT, RIGHT, LEVEL, AXIS, BIT, OLDEST, YOUNGEST. In a leaf LEVEL is -1, LEFT and RIGHT are its first and last
job, and BIT is the tie. Unused rows are chained through UP.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import float_rows, floats, highest_bit, int_rows, ints, short_rows
from slotwise.core import state as st

UP, LEFT, RIGHT, LEVEL, AXIS, BIT, OLDEST, YOUNGEST = 0, 1, 2, 3, 4, 5, 6, 7
NODE_COLUMNS = 8  # a cache line of 64 bytes
LEAF, AFTER, BEFORE = 0, 1, 2  # columns of `links`
LINK_COLUMNS = 4
TIES = 64  # levels below this are bits of the tie
TOP_BIT = 61  # where the highest bit of the largest capacity of each resource is moved to


@kernel
def nodes(s: st.State) -> NDArray[np.int64]:
    """(M, 8)."""
    return int_rows(s.at_line_nodes, s.n_line_nodes, NODE_COLUMNS)


@kernel
def low(s: st.State) -> NDArray[np.int64]:
    """(M, R): the least demand below each node."""
    return int_rows(s.at_line_low, s.n_line_nodes, s.n_resources)


@kernel
def high(s: st.State) -> NDArray[np.int64]:
    """(M, R): the largest demand below each node."""
    return int_rows(s.at_line_high, s.n_line_nodes, s.n_resources)


@kernel
def shortest_time(s: st.State) -> NDArray[np.float64]:
    """(M,): the shortest expected duration below each node; only where each job is a leaf."""
    return floats(s.at_line_time, s.n_line_nodes if s.line_alone else 1)


@kernel
def links(s: st.State) -> NDArray[np.int32]:
    """(N, 4): the leaf of a waiting job, and who stands after and before it there."""
    return short_rows(s.at_line_links, s.max_jobs, LINK_COLUMNS)


@kernel
def roots(s: st.State) -> NDArray[np.int64]:
    """(G,): the root of each tree, -1 where it is empty."""
    return ints(s.at_line_roots, s.n_line_groups)


@kernel
def type_of_group(s: st.State) -> NDArray[np.int64]:
    """(G,): some type of each group."""
    return ints(s.at_line_group_type, s.n_line_groups)


@kernel
def group_of_type(s: st.State) -> NDArray[np.int64]:
    """(J,): in which tree the jobs of each type are."""
    return ints(s.at_line_type_group, s.n_types)


@kernel
def shifts(s: st.State) -> NDArray[np.int64]:
    """(R,): by how much the bits of each resource are moved up to be compared with those of others."""
    return ints(s.at_line_shift, s.n_resources)


@kernel
def stack(s: st.State) -> NDArray[np.int64]:
    """Return scratch memory for a search."""
    return ints(s.at_line_stack, s.n_line_stack)


@kernel
def promises(s: st.State) -> NDArray[np.float64]:
    """(stack, 2): what the nodes on the stack promise."""
    return float_rows(s.at_line_promise, s.n_line_stack, 2)


@kernel
def clear(s: st.State) -> None:
    """Clear the tree: no job waits."""
    s.line_last = -1
    s.line_unused = -1
    s.n_line_used = 0
    for g in range(s.n_line_groups):
        roots(s)[g] = -1


@kernel
def file_last(s: st.State) -> None:
    """File the last job, so that the tree holds all waiting jobs."""
    if s.line_last >= 0:
        i = s.line_last
        s.line_last = -1
        insert(s, i)


@kernel
def oldest_born(s: st.State, never: int) -> int:
    """Return the arrival number of the job that has waited longest, or `never` if no job waits."""
    born = st.sequence(s)[s.line_last] if s.line_last >= 0 else never
    for g in range(s.n_line_groups):
        if roots(s)[g] >= 0:
            born = min(born, nodes(s)[roots(s)[g], OLDEST])
    return born


@kernel
def size_of(s: st.State, i: int) -> NDArray[np.int64]:
    """Return the demand of job i."""
    return st.job_demand(s)[i] if s.actual else st.demand(s)[st.jobs(s)[i, st.TYPE]]


@kernel
def _tie(s: st.State, i: int) -> int:
    return int(st.sequence(s)[i]) if s.line_alone else int(st.jobs(s)[i, st.TYPE])


@kernel
def _difference(s: st.State, leaf: int, size: NDArray[np.int64], tie: int) -> tuple[int, int, int]:
    """Return the highest level at which the leaf's key differs from this one, its axis and its bit. If the keys are
    equal, the level is -1."""
    level, axis, bit = -1, 0, 0
    for r in range(s.n_resources):
        differs = low(s)[leaf, r] ^ size[r]
        if differs != 0:
            at = highest_bit(differs)
            this = TIES + (at + shifts(s)[r]) * s.n_resources + s.n_resources - 1 - r
            if this > level:
                level, axis, bit = this, r, at
    if level < 0:
        differs = nodes(s)[leaf, BIT] ^ tie
        if differs != 0:
            bit = highest_bit(differs)
            level, axis = bit, s.n_resources
    return level, axis, bit


@kernel
def _side(s: st.State, axis: int, bit: int, size: NDArray[np.int64], tie: int) -> int:
    """Return LEFT or RIGHT."""
    value = tie if axis == s.n_resources else size[axis]
    return RIGHT if (value >> bit) & 1 else LEFT


@kernel
def insert(s: st.State, i: int) -> None:
    """File a waiting job."""
    rows, size, tie = nodes(s), size_of(s, i), _tie(s, i)
    g = group_of_type(s)[st.jobs(s)[i, st.TYPE]]
    node = roots(s)[g]
    if node < 0:
        roots(s)[g] = _new_leaf(s, i, size, tie, -1)
        return
    while rows[node, LEVEL] >= 0:
        node = rows[node, _side(s, rows[node, AXIS], rows[node, BIT], size, tie)]
    level, axis, bit = _difference(s, node, size, tie)
    if level < 0:
        _stand_in(s, node, i)
        return
    node, above = roots(s)[g], -1
    while rows[node, LEVEL] > level:
        above, node = node, rows[node, _side(s, rows[node, AXIS], rows[node, BIT], size, tie)]
    inner = _unused(s)
    leaf = _new_leaf(s, i, size, tie, inner)
    side = _side(s, axis, bit, size, tie)
    row = rows[inner]
    row[UP], row[LEVEL], row[AXIS], row[BIT] = above, level, axis, bit
    row[LEFT], row[RIGHT] = (leaf, node) if side == LEFT else (node, leaf)
    rows[node, UP] = inner
    _replace_child(s, g, above, node, inner)
    _gather(s, inner)
    _refresh(s, above)


@kernel
def remove(s: st.State, i: int) -> None:
    """Take a job that does not wait any more out."""
    rows, chain = nodes(s), links(s)
    leaf, after, before = chain[i, LEAF], chain[i, AFTER], chain[i, BEFORE]
    if before >= 0:
        chain[before, AFTER] = after
    else:
        rows[leaf, LEFT] = after
    if after >= 0:
        chain[after, BEFORE] = before
    else:
        rows[leaf, RIGHT] = before
    if rows[leaf, LEFT] < 0:
        _drop(s, group_of_type(s)[st.jobs(s)[i, st.TYPE]], leaf)
    elif before < 0:
        rows[leaf, OLDEST] = st.sequence(s)[after]
        _refresh(s, rows[leaf, UP])


@kernel
def _stand_in(s: st.State, leaf: int, i: int) -> None:
    """Put job i into a leaf, where its arrival puts it: mostly at the end."""
    rows, chain, born = nodes(s), links(s), st.sequence(s)
    before, after = int(rows[leaf, RIGHT]), -1
    if born[before] > born[i]:  # it was thrown back: nearly all came after it
        before, after = -1, int(rows[leaf, LEFT])
        while born[after] < born[i]:
            before, after = after, int(chain[after, AFTER])
    chain[i, LEAF], chain[i, AFTER], chain[i, BEFORE] = leaf, after, before
    if after >= 0:
        chain[after, BEFORE] = i
    else:
        rows[leaf, RIGHT] = i
    if before >= 0:
        chain[before, AFTER] = i
    else:
        rows[leaf, LEFT] = i
        rows[leaf, OLDEST] = born[i]
        _refresh(s, rows[leaf, UP])


@kernel
def _unused(s: st.State) -> int:
    """Return a row that is not in use. There are twice as many rows as jobs."""
    node = s.line_unused
    if node >= 0:
        s.line_unused = nodes(s)[node, UP]
        return node
    s.n_line_used += 1
    return s.n_line_used - 1


@kernel
def _give_back(s: st.State, node: int) -> None:
    nodes(s)[node, UP] = s.line_unused
    s.line_unused = node


@kernel
def _new_leaf(s: st.State, i: int, size: NDArray[np.int64], tie: int, up: int) -> int:
    leaf, born = _unused(s), st.sequence(s)[i]
    row, chain = nodes(s)[leaf], links(s)[i]
    row[UP], row[LEFT], row[RIGHT], row[LEVEL], row[AXIS], row[BIT] = up, i, i, -1, 0, tie
    row[OLDEST], row[YOUNGEST] = born, born
    chain[LEAF], chain[AFTER], chain[BEFORE] = leaf, -1, -1
    for r in range(s.n_resources):
        low(s)[leaf, r] = size[r]
        high(s)[leaf, r] = size[r]
    if s.line_alone:
        shortest_time(s)[leaf] = st.job_times(s)[i, 0]
    return leaf


@kernel
def _replace_child(s: st.State, g: int, above: int, old: int, new: int) -> None:
    rows = nodes(s)
    if above < 0:
        roots(s)[g] = new
    elif rows[above, LEFT] == old:
        rows[above, LEFT] = new
    else:
        rows[above, RIGHT] = new


@kernel
def _drop(s: st.State, g: int, leaf: int) -> None:
    """Remove an empty leaf: its sibling takes the place of both."""
    rows = nodes(s)
    inner = rows[leaf, UP]
    _give_back(s, leaf)
    if inner < 0:
        roots(s)[g] = -1
        return
    sibling = rows[inner, RIGHT] if rows[inner, LEFT] == leaf else rows[inner, LEFT]
    above = rows[inner, UP]
    rows[sibling, UP] = above
    _replace_child(s, g, above, inner, sibling)
    _give_back(s, inner)
    _refresh(s, above)


@kernel
def _refresh(s: st.State, node: int) -> None:
    """Bring this node, and those above it as far as they change, up to date."""
    while node >= 0 and _gather(s, node):
        node = nodes(s)[node, UP]


@kernel
def _gather(s: st.State, node: int) -> bool:
    """Compute what a node knows from its children. Return whether it has changed."""
    rows = nodes(s)
    row = rows[node]
    a, b = row[LEFT], row[RIGHT]
    oldest, youngest = min(rows[a, OLDEST], rows[b, OLDEST]), max(rows[a, YOUNGEST], rows[b, YOUNGEST])
    changed = row[OLDEST] != oldest or row[YOUNGEST] != youngest
    row[OLDEST], row[YOUNGEST] = oldest, youngest
    for r in range(s.n_resources):
        least, most = min(low(s)[a, r], low(s)[b, r]), max(high(s)[a, r], high(s)[b, r])
        changed = changed or low(s)[node, r] != least or high(s)[node, r] != most
        low(s)[node, r] = least
        high(s)[node, r] = most
    if s.line_alone:
        times = shortest_time(s)
        least_time = min(times[a], times[b])
        changed = changed or times[node] != least_time
        times[node] = least_time
    return bool(changed)


def keep(s: st.State, i: int, waits: int) -> None:
    """File waiting job i (1) or take it out (0). `steps` calls this if the policy keeps the line."""
    if waits:
        insert(s, i)
    else:
        remove(s, i)

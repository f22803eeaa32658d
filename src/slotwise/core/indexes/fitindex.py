"""Which server fits a demand best, without looking at every server.

Servers of one class with the same free vector are interchangeable, so they form a *group*, found by hashing. Groups are
filed in the cells of a coarse grid over the free vectors of their class. A search for the least value of a linear
score sum_r a_r free_r + b visits the cells that are not empty. It skips a cell when even its best corner cannot win
or its upper corner does not cover the demand. Its cost depends on the number of distinct free vectors, not on the number
of servers.

Searches see groups in an order that depends on nothing but what there is: by class, by cell, within a cell by free vector. So the
history of the index never decides anything. Within a group the server that was filed last comes first; that order is part of what a
scheduler knows (`slotwise.scheduling.situation`).

Where there is but one server, as in the log of a parallel machine, nothing is filed (`steps.reindex`), and searches look at that one.

Row layout of `groups`: CLASS_OF, FIRST (server), SIZE, NEXT_IN_CELL, PREVIOUS_IN_CELL, CELL, HOME (its place in the table by its hash).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call_at, float_rows, int_rows, ints, trailing_zeros
from slotwise.core import state as st
from slotwise.core.indexes import firsttree

CLASS_OF, FIRST, SIZE, NEXT_IN_CELL, PREVIOUS_IN_CELL, CELL, HOME = 0, 1, 2, 3, 4, 5, 6
GROUP_COLUMNS = 8  # a cache line of 64 bytes
CELLS_PER_CLASS = 1024  # cells of the grid over free capacity, on all axes together
WORDS = CELLS_PER_CLASS // 32
MAX_AXES = 10  # resources that have an axis of the grid: two cells on each make CELLS_PER_CLASS
MARGIN = 1e-9  # by which a bound on scores must be worse, so that rounding decides nothing


def axis_cells(n_resources: int) -> int:
    """Return the steps of the grid along each resource. Only the first ten resources have more than one."""
    return max(2, int(round(CELLS_PER_CLASS ** (1 / min(n_resources, MAX_AXES)), 6)))


def cells_per_class(n_resources: int) -> int:
    """Return the number of cells of the grid of one class."""
    return int(axis_cells(n_resources) ** min(n_resources, MAX_AXES))


def grid(capacity: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(cells, R): which step along each resource a cell is. (C R, steps + 1): where each step begins, in the free room of a class, so that no search
    divides. With x free of a resource, of which a class has c, the step is floor(x steps / (c + 1))."""
    C, R = capacity.shape
    axis, axes = axis_cells(R), min(R, MAX_AXES)
    steps = np.zeros((cells_per_class(R), R), np.int64)
    steps[:, :axes] = np.stack(np.unravel_index(np.arange(len(steps)), (axis,) * axes), axis=1)
    whole = capacity.reshape(-1, 1) + 1
    edges = -(-np.arange(axis + 1) * whole // axis)
    edges[np.arange(C * R) % R >= MAX_AXES, 1:] = whole[np.arange(C * R) % R >= MAX_AXES]
    return steps, np.ascontiguousarray(edges)


@kernel
def groups(s: st.State) -> NDArray[np.int64]:
    """(S + 1, 8); row S heads the chain of unused groups."""
    return int_rows(s.at_groups, s.max_servers + 1, GROUP_COLUMNS)


@kernel
def group_free(s: st.State) -> NDArray[np.int64]:
    """(S, R): the free vector of each group."""
    return int_rows(s.at_group_free, s.max_servers, s.n_resources)


@kernel
def cells(s: st.State) -> NDArray[np.int64]:
    """(C, cells): the first group of each cell, -1 where it is empty."""
    return int_rows(s.at_cells, s.n_classes, s.max_cells)


@kernel
def filled(s: st.State) -> NDArray[np.int64]:
    """(C, 1 + 32): which cells of a class are not empty, 32 to a word; before these words a bit for each that is not zero."""
    return int_rows(s.at_filled, s.n_classes, 1 + WORDS)


@kernel
def steps(s: st.State) -> NDArray[np.int64]:
    """(cells, R): see `grid`."""
    return int_rows(s.at_cell_steps, s.max_cells, s.n_resources)


@kernel
def edges(s: st.State) -> NDArray[np.int64]:
    """(C R, steps + 1): see `grid`."""
    return int_rows(s.at_cell_edges, s.n_classes * s.n_resources, s.n_cell_axis + 1)


@kernel
def hashed(s: st.State) -> NDArray[np.int64]:
    """Return the open-addressing table of group numbers, -1 where empty. Its length is a power of two."""
    return ints(s.at_hash, s.n_slots_hash)


@kernel
def score(s: st.State) -> NDArray[np.float64]:
    """(C, R + 1): for each class the coefficients a_r of the score to be minimised, and b."""
    return float_rows(s.at_score, s.n_classes, s.n_resources + 1)


@kernel
def clear(s: st.State) -> None:
    """Empty the index."""
    chain, slots = groups(s), hashed(s)
    for place in range(s.n_slots_hash):
        slots[place] = -1
    for c in range(s.n_classes):
        for cell in range(s.max_cells):
            cells(s)[c, cell] = -1
        for word in range(1 + WORDS):
            filled(s)[c, word] = 0
    for g in range(s.max_servers):
        chain[g, NEXT_IN_CELL] = g + 1 if g < s.max_servers - 1 else -1
        st.chains(s)[g, st.GROUP] = -1
    chain[s.max_servers, NEXT_IN_CELL] = 0


def refile(s: st.State, server: int, _: int) -> None:
    """File a server anew in the indexes that the policy keeps: what `steps.reindex` calls. A server that was to be filed late goes first, as of equal servers a search
    finds the one that was filed last."""
    late_one = s.unfiled - 1
    s.unfiled = 0
    if late_one >= 0 and late_one != server:
        call_at(s.hook_reindex, s, late_one, 0)
    if s.keeps_fit:
        update(s, server)
    if s.keeps_tree:
        firsttree.update(s, server)


@kernel
def update(s: st.State, server: int) -> None:
    """File the server anew: its free capacity has changed, or whether it takes jobs."""
    if st.chains(s)[server, st.GROUP] >= 0:
        _remove(s, server)
    if _takes_jobs(s, server):
        _insert(s, server)


@kernel
def _takes_jobs(s: st.State, server: int) -> bool:
    """Return whether the server belongs into the index. It does not if its jobs, packed by another policy by their
    actual demands, take more than there is by their types."""
    row, signs = st.servers(s)[server], np.int64(0)
    for r in range(s.n_resources):
        signs |= st.free(s)[server, r]
    return bool(row[st.STATUS] == st.PRESENT and row[st.MODE] != st.STALLED and signs >= 0)


@kernel
def _only_server(s: st.State, need: NDArray[np.int64]) -> int:
    """Return what `best` finds if there is one server only: that server if it takes jobs and has the free capacity,
    else -1."""
    if not _takes_jobs(s, 0) or not st.may_hold(s, st.servers(s)[0, st.CLASS]):
        return -1
    for r in range(s.n_resources):
        if st.free(s)[0, r] < need[r]:
            return -1
    return 0


@kernel
def _home(s: st.State, c: int, room: NDArray[np.int64]) -> int:
    """Return where in the table a free vector of class c belongs."""
    return mixed(c, room) & (s.n_slots_hash - 1)


@kernel
def mixed(c: int, room: NDArray[np.int64]) -> int:
    """Return a hash of a free vector of class c. Each part of it differs for nearly every free vector, also if all
    are multiples of a power of two. Products stay below 2^63. A remainder, instead of the last 32 bits, takes as
    long as all the rest."""
    h = np.int64(c) + 1
    for r in range(room.shape[0]):
        h = (h * 1597334677 + room[r]) & 0xFFFFFFFF
    return int(h + (h >> 10) + (h >> 20))


@kernel
def _same(s: st.State, g: int, c: int, room: NDArray[np.int64]) -> bool:
    if groups(s)[g, CLASS_OF] != c:
        return False
    for r in range(s.n_resources):
        if group_free(s)[g, r] != room[r]:
            return False
    return True


@kernel
def _insert(s: st.State, server: int) -> None:
    row, room, slots = st.chains(s)[server], st.free(s)[server], hashed(s)
    c = st.servers(s)[server, st.CLASS]
    mask = s.n_slots_hash - 1
    home = place = _home(s, c, room)
    while slots[place] >= 0 and not _same(s, slots[place], c, room):
        place = (place + 1) & mask
    g = slots[place]
    if g < 0:
        g = _new_group(s, c, room)
        groups(s)[g, HOME] = home
        slots[place] = g
    group = groups(s)[g]
    row[st.GROUP] = g
    row[st.GROUP_PREVIOUS] = -1
    row[st.GROUP_NEXT] = group[FIRST]
    if group[FIRST] >= 0:
        st.chains(s)[group[FIRST], st.GROUP_PREVIOUS] = server
    group[FIRST] = server
    group[SIZE] += 1


@kernel
def _remove(s: st.State, server: int) -> None:
    rows = st.chains(s)
    row = rows[server]
    g = row[st.GROUP]
    group = groups(s)[g]
    if row[st.GROUP_PREVIOUS] >= 0:
        rows[row[st.GROUP_PREVIOUS], st.GROUP_NEXT] = row[st.GROUP_NEXT]
    else:
        group[FIRST] = row[st.GROUP_NEXT]
    if row[st.GROUP_NEXT] >= 0:
        rows[row[st.GROUP_NEXT], st.GROUP_PREVIOUS] = row[st.GROUP_PREVIOUS]
    row[st.GROUP] = -1
    group[SIZE] -= 1
    if group[SIZE] == 0:
        _drop_group(s, g)


@kernel
def _new_group(s: st.State, c: int, room: NDArray[np.int64]) -> int:
    all_groups = groups(s)
    chain = all_groups[s.max_servers]
    g = chain[NEXT_IN_CELL]
    group = all_groups[g]
    chain[NEXT_IN_CELL] = group[NEXT_IN_CELL]
    group[CLASS_OF] = c
    group[FIRST] = -1
    group[SIZE] = 0
    for r in range(s.n_resources):
        group_free(s)[g, r] = room[r]
    cell = _cell(s, c, room)
    group[CELL] = cell
    # into its place in the cell, in the order of free vectors
    files = cells(s)[c]
    before, after = -1, files[cell]
    if after < 0:
        words = filled(s)[c]
        words[1 + (cell >> 5)] |= 1 << (cell & 31)
        words[0] |= 1 << (cell >> 5)
    while after >= 0 and _precedes(s, after, room):
        before, after = after, all_groups[after, NEXT_IN_CELL]
    group[PREVIOUS_IN_CELL] = before
    group[NEXT_IN_CELL] = after
    if after >= 0:
        all_groups[after, PREVIOUS_IN_CELL] = g
    if before >= 0:
        all_groups[before, NEXT_IN_CELL] = g
    else:
        files[cell] = g
    return int(g)


@kernel
def _precedes(s: st.State, g: int, room: NDArray[np.int64]) -> bool:
    """Return whether the group's free vector comes before `room`, number by number."""
    for r in range(s.n_resources):
        if group_free(s)[g, r] != room[r]:
            return bool(group_free(s)[g, r] < room[r])
    return False


@kernel
def _drop_group(s: st.State, g: int) -> None:
    all_groups, slots = groups(s), hashed(s)
    group = all_groups[g]
    c, mask = group[CLASS_OF], s.n_slots_hash - 1
    # out of the table, closing the gap so that no search stops short of what it looks for
    place = group[HOME]
    while slots[place] != g:
        place = (place + 1) & mask
    hole = place
    while True:
        place = (place + 1) & mask
        other = slots[place]
        if other < 0:
            break
        if (place - all_groups[other, HOME]) & mask >= (place - hole) & mask:
            slots[hole] = other
            hole = place
    slots[hole] = -1
    # out of its cell
    cell, files = group[CELL], cells(s)[c]
    if group[PREVIOUS_IN_CELL] >= 0:
        all_groups[group[PREVIOUS_IN_CELL], NEXT_IN_CELL] = group[NEXT_IN_CELL]
    else:
        files[cell] = group[NEXT_IN_CELL]
    if group[NEXT_IN_CELL] >= 0:
        all_groups[group[NEXT_IN_CELL], PREVIOUS_IN_CELL] = group[PREVIOUS_IN_CELL]
    if files[cell] < 0:
        words = filled(s)[c]
        words[1 + (cell >> 5)] &= ~(1 << (cell & 31))
        if words[1 + (cell >> 5)] == 0:
            words[0] &= ~(1 << (cell >> 5))
    group[NEXT_IN_CELL] = all_groups[s.max_servers, NEXT_IN_CELL]
    all_groups[s.max_servers, NEXT_IN_CELL] = g


@kernel
def _cell(s: st.State, c: int, room: NDArray[np.int64]) -> int:
    cell, axis = 0, s.n_cell_axis
    for r in range(min(s.n_resources, MAX_AXES)):
        cell = cell * axis + room[r] * axis // (st.capacity(s)[c, r] + 1)
    return cell


@kernel
def cell_from(s: st.State, c: int, cell: int) -> int:
    """Return the first cell of the class that is not empty, from this cell on, or -1."""
    words, row = filled(s)[c], cell >> 5
    if row >= WORDS:
        return -1
    word = words[1 + row] >> (cell & 31)
    if word != 0:
        return cell + trailing_zeros(word)
    rows = words[0] >> (row + 1)
    if rows == 0:
        return -1
    row += 1 + trailing_zeros(rows)
    return (row << 5) + trailing_zeros(words[1 + row])


@kernel
def first_group(s: st.State, c: int) -> int:
    """Return the first group of the class in the order of searches, or -1."""
    cell = cell_from(s, c, 0)
    return int(cells(s)[c, cell]) if cell >= 0 else -1


@kernel
def next_group(s: st.State, g: int) -> int:
    """Return the next group of the same class, or -1."""
    group = groups(s)[g]
    if group[NEXT_IN_CELL] >= 0:
        return int(group[NEXT_IN_CELL])
    cell = cell_from(s, group[CLASS_OF], group[CELL] + 1)
    return int(cells(s)[group[CLASS_OF], cell]) if cell >= 0 else -1


@kernel
def first_cell(s: st.State, c: int, need: NDArray[np.int64]) -> int:
    """Return a cell before which all cells have less of the first resource than is needed."""
    axis = s.n_cell_axis
    return int(need[0] * axis // (st.capacity(s)[c, 0] + 1) * axis ** (min(s.n_resources, MAX_AXES) - 1))


@kernel
def columns(s: st.State, c: int, need: NDArray[np.int64]) -> int:
    """Return the cells of a word that may have capacity for the need, if there are two resources and a word has all
    steps of the second."""
    axis, size = s.n_cell_axis, st.capacity(s)[c]
    if s.n_resources != 2 or axis != 32:
        return -1
    return int(np.int64(-1) << (min(need[1], size[1] + 1) * axis // (size[1] + 1)))


@kernel
def group_from(s: st.State, c: int, cell: int, mask: int) -> int:
    """Return the first group of the class in a cell of these columns, from this cell on, or -1."""
    words, row = filled(s)[c], cell >> 5
    if row >= WORDS:
        return -1
    word = (words[1 + row] & mask) >> (cell & 31) << (cell & 31)
    rows = words[0] >> (row + 1) << (row + 1)
    while word == 0 and rows != 0:
        row = trailing_zeros(rows)
        rows &= rows - 1
        word = words[1 + row] & mask
    return int(cells(s)[c, (row << 5) + trailing_zeros(word)]) if word != 0 else -1


@kernel
def group_after(s: st.State, g: int, mask: int) -> int:
    """Return the next group of the same class in such cells, or -1."""
    group = groups(s)[g]
    if group[NEXT_IN_CELL] >= 0:
        return int(group[NEXT_IN_CELL])
    return group_from(s, group[CLASS_OF], group[CELL] + 1, mask)


@kernel
def best(s: st.State, need: NDArray[np.int64]) -> int:
    """Return a server of least score whose free capacity covers the need, or -1."""
    if s.n_places == 1:
        return _only_server(s, need)
    R, all_groups, rooms = s.n_resources, groups(s), group_free(s)
    least, winner = np.inf, -1
    for c in range(s.n_classes):
        if not st.may_hold(s, c):
            continue
        coefficients, size, words = score(s)[c], st.capacity(s)[c], filled(s)[c]
        if need[0] > size[0]:
            continue
        first, mask, begin = first_cell(s, c, need), columns(s, c, need), edges(s)[c * R : c * R + R]
        rest_least = coefficients[R]
        for r in range(1, R):
            rest_least += coefficients[r] * (need[r] if coefficients[r] > 0 else size[r])
        rows = words[0] & (np.int64(-1) << (first >> 5))
        while rows != 0:
            row = trailing_zeros(rows)
            rows &= rows - 1
            word = words[1 + row] & mask
            if row == first >> 5:
                word &= np.int64(-1) << (first & 31)
            if word == 0:
                continue
            if coefficients[0] > 0:
                # what follows has no less of the first resource, and so no better score
                low = begin[0, steps(s)[row << 5, 0]]
                if rest_least + coefficients[0] * max(low, need[0]) > least + MARGIN:
                    break
            while word != 0:
                cell = (row << 5) + trailing_zeros(word)
                word &= word - 1
                # the cell's bounds, resource by resource: does its upper corner cover, what is the best score in it?
                step, bound, covers = steps(s)[cell], coefficients[R], True
                for r in range(R):
                    low, high = begin[r, step[r]], begin[r, step[r] + 1] - 1
                    covers &= high >= need[r]
                    bound += coefficients[r] * (max(low, need[r]) if coefficients[r] > 0 else high)
                g = cells(s)[c, cell] if covers and bound < least else -1
                while g >= 0:
                    value, covers = coefficients[R], True
                    for r in range(R):
                        covers &= rooms[g, r] >= need[r]
                        value += coefficients[r] * rooms[g, r]
                    if covers and value < least:
                        least, winner = value, all_groups[g, FIRST]
                    g = all_groups[g, NEXT_IN_CELL]
    return int(winner)


@kernel
def count(s: st.State, need: NDArray[np.int64], k: int) -> int:
    """Return how many servers cover the need (k < 0), or number k of them, in the order of searches."""
    if s.n_places == 1:
        return 1 + _only_server(s, need) if k < 0 else 0
    seen = 0
    for c in range(s.n_classes):
        words = filled(s)[c]
        rows = words[0] if st.may_hold(s, c) else 0
        while rows != 0:
            row = trailing_zeros(rows)
            rows &= rows - 1
            word = words[1 + row]
            while word != 0:
                g = cells(s)[c, (row << 5) + trailing_zeros(word)]
                word &= word - 1
                while g >= 0:
                    covers = True
                    for r in range(s.n_resources):
                        covers = covers and group_free(s)[g, r] >= need[r]
                    if covers:
                        size = groups(s)[g, SIZE]
                        if 0 <= k - seen < size:
                            server = groups(s)[g, FIRST]
                            for _ in range(k - seen):
                                server = st.chains(s)[server, st.GROUP_NEXT]
                            return int(server)
                        seen += size
                    g = groups(s)[g, NEXT_IN_CELL]
    return int(seen)


@kernel
def filed(s: st.State, order: NDArray[np.int64]) -> int:
    """Write the servers of the index into `order` so that filing them in that order gives the same index; returns how many."""
    if s.n_places == 1:
        order[0] = 0
        return int(_takes_jobs(s, 0))
    n = 0
    for c in range(s.n_classes):
        g = first_group(s, c)
        while g >= 0:
            size, server = groups(s)[g, SIZE], groups(s)[g, FIRST]
            for k in range(size):
                order[n + size - 1 - k] = server
                server = st.chains(s)[server, st.GROUP_NEXT]
            n += size
            g = next_group(s, g)
    return n

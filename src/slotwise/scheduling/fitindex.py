"""Which server fits a demand best, without looking at every server.

Servers of one class with the same free vector are interchangeable, so they form a *group*, found by hashing. Groups are
filed in the cells of a coarse grid over the free vectors of their class. A search for the least value of a linear
score sum_r a_r free_r + b goes over the cells that are not empty and skips a cell when even its best corner cannot win
or its upper corner does not cover the demand. Its cost depends on the number of distinct free vectors, not on the number
of servers.

Row layout of `groups`: CLASS_OF, FIRST (server), SIZE, NEXT_IN_CELL, PREVIOUS_IN_CELL, CELL.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling.memory import float_rows, int_rows, ints
from slotwise.scheduling.state import (
    CLASS,
    GROUP,
    GROUP_NEXT,
    GROUP_PREVIOUS,
    MODE,
    PRESENT,
    STALLED,
    STATUS,
    State,
    capacity,
    chains,
    free,
    servers,
)

CLASS_OF, FIRST, SIZE, NEXT_IN_CELL, PREVIOUS_IN_CELL, CELL = 0, 1, 2, 3, 4, 5
GROUP_COLUMNS = 8
CELLS_PER_CLASS = 1024
MAX_AXES = 10


def axis_cells(n_resources: int) -> int:
    """Steps of the grid along each resource (only the first ten resources have more than one)."""
    return max(2, int(round(CELLS_PER_CLASS ** (1 / min(n_resources, MAX_AXES)), 6)))


def cells_per_class(n_resources: int) -> int:
    """Cells of the grid of one class."""
    return int(axis_cells(n_resources) ** min(n_resources, MAX_AXES))


@kernel
def groups(s: State) -> NDArray[np.int64]:
    """(S + 1, 8); row S heads the chain of unused groups."""
    return int_rows(s.at_groups, s.max_servers + 1, GROUP_COLUMNS)


@kernel
def group_free(s: State) -> NDArray[np.int64]:
    """(S, R): the free vector of each group."""
    return int_rows(s.at_group_free, s.max_servers, s.n_resources)


@kernel
def cells(s: State) -> NDArray[np.int64]:
    """(C cells, 2): the first group of each cell, and its place in the list of cells that are not empty."""
    return int_rows(s.at_cells, s.n_classes * s.max_cells, 2)


@kernel
def cell_list(s: State) -> NDArray[np.int64]:
    """(C, cells + 1): for each class how many cells are not empty, then those."""
    return int_rows(s.at_cell_list, s.n_classes, s.max_cells + 1)


@kernel
def hashed(s: State) -> NDArray[np.int64]:
    """Open-addressing table of group numbers, -1 where empty; its length is a power of two."""
    return ints(s.at_hash, s.n_slots_hash)


@kernel
def score(s: State) -> NDArray[np.float64]:
    """(C, R + 1): for each class the coefficients a_r of the score to be minimised, and b."""
    return float_rows(s.at_score, s.n_classes, s.n_resources + 1)


@kernel
def clear(s: State) -> None:
    """Empty the index."""
    chain, listed, files, slots = groups(s), cell_list(s), cells(s), hashed(s)
    for place in range(s.n_slots_hash):
        slots[place] = -1
    for cell in range(s.n_classes * s.max_cells):
        files[cell, 0] = -1
    for c in range(s.n_classes):
        listed[c, 0] = 0
    for g in range(s.max_servers):
        chain[g, NEXT_IN_CELL] = g + 1 if g < s.max_servers - 1 else -1
        chains(s)[g, GROUP] = -1
    chain[s.max_servers, NEXT_IN_CELL] = 0


@kernel
def update(s: State, server: int) -> None:
    """The server's free room, or whether it takes jobs, has changed: file it anew."""
    row = servers(s)[server]
    if chains(s)[server, GROUP] >= 0:
        _remove(s, server)
    if row[STATUS] == PRESENT and row[MODE] != STALLED:
        _insert(s, server)


@kernel
def _home(s: State, c: int, room: NDArray[np.int64]) -> int:
    """Where in the table a free vector of class c belongs (products stay below 2^63)."""
    h = c + 1
    for r in range(s.n_resources):
        h = (h * 1000003 + room[r]) % 2147483647
    return h & (s.n_slots_hash - 1)


@kernel
def _same(s: State, g: int, c: int, room: NDArray[np.int64]) -> bool:
    if groups(s)[g, CLASS_OF] != c:
        return False
    for r in range(s.n_resources):
        if group_free(s)[g, r] != room[r]:
            return False
    return True


@kernel
def _insert(s: State, server: int) -> None:
    row, room, slots = chains(s)[server], free(s)[server], hashed(s)
    c = servers(s)[server, CLASS]
    mask = s.n_slots_hash - 1
    place = _home(s, c, room)
    while slots[place] >= 0 and not _same(s, slots[place], c, room):
        place = (place + 1) & mask
    g = slots[place]
    if g < 0:
        g = _new_group(s, c, room)
        slots[place] = g
    group = groups(s)[g]
    row[GROUP] = g
    row[GROUP_PREVIOUS] = -1
    row[GROUP_NEXT] = group[FIRST]
    if group[FIRST] >= 0:
        chains(s)[group[FIRST], GROUP_PREVIOUS] = server
    group[FIRST] = server
    group[SIZE] += 1


@kernel
def _remove(s: State, server: int) -> None:
    rows = chains(s)
    row = rows[server]
    g = row[GROUP]
    group = groups(s)[g]
    if row[GROUP_PREVIOUS] >= 0:
        rows[row[GROUP_PREVIOUS], GROUP_NEXT] = row[GROUP_NEXT]
    else:
        group[FIRST] = row[GROUP_NEXT]
    if row[GROUP_NEXT] >= 0:
        rows[row[GROUP_NEXT], GROUP_PREVIOUS] = row[GROUP_PREVIOUS]
    row[GROUP] = -1
    group[SIZE] -= 1
    if group[SIZE] == 0:
        _drop_group(s, g)


@kernel
def _new_group(s: State, c: int, room: NDArray[np.int64]) -> int:
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
    cell = c * s.max_cells + _cell(s, c, room)
    group[CELL] = cell
    file, listed = cells(s)[cell], cell_list(s)[c]
    if file[0] < 0:
        listed[0] += 1
        listed[listed[0]] = cell
        file[1] = listed[0]
    else:
        all_groups[file[0], PREVIOUS_IN_CELL] = g
    group[PREVIOUS_IN_CELL] = -1
    group[NEXT_IN_CELL] = file[0]
    file[0] = g
    return int(g)


@kernel
def _drop_group(s: State, g: int) -> None:
    all_groups, slots = groups(s), hashed(s)
    group = all_groups[g]
    c, mask = group[CLASS_OF], s.n_slots_hash - 1
    # out of the table, closing the gap so that no search stops short of what it looks for
    place = _home(s, c, group_free(s)[g])
    while slots[place] != g:
        place = (place + 1) & mask
    hole = place
    while True:
        place = (place + 1) & mask
        other = slots[place]
        if other < 0:
            break
        home = _home(s, all_groups[other, CLASS_OF], group_free(s)[other])
        if (place - home) & mask >= (place - hole) & mask:
            slots[hole] = other
            hole = place
    slots[hole] = -1
    # out of its cell
    file = cells(s)[group[CELL]]
    if group[PREVIOUS_IN_CELL] >= 0:
        all_groups[group[PREVIOUS_IN_CELL], NEXT_IN_CELL] = group[NEXT_IN_CELL]
    else:
        file[0] = group[NEXT_IN_CELL]
    if group[NEXT_IN_CELL] >= 0:
        all_groups[group[NEXT_IN_CELL], PREVIOUS_IN_CELL] = group[PREVIOUS_IN_CELL]
    if file[0] < 0:
        listed = cell_list(s)[c]
        last = listed[listed[0]]
        listed[file[1]] = last
        cells(s)[last, 1] = file[1]
        listed[0] -= 1
    group[NEXT_IN_CELL] = all_groups[s.max_servers, NEXT_IN_CELL]
    all_groups[s.max_servers, NEXT_IN_CELL] = g


@kernel
def _cell(s: State, c: int, room: NDArray[np.int64]) -> int:
    cell, axis = 0, s.n_cell_axis
    for r in range(min(s.n_resources, MAX_AXES)):
        cell = cell * axis + room[r] * axis // (capacity(s)[c, r] + 1)
    return cell


@kernel
def best(s: State, need: NDArray[np.int64]) -> int:
    """A server of least score whose free room covers the need, -1 where there is none."""
    axis, axes = s.n_cell_axis, min(s.n_resources, MAX_AXES)
    all_groups, rooms = groups(s), group_free(s)
    least, winner = np.inf, -1
    for c in range(s.n_classes):
        listed, coefficients, size = cell_list(s)[c], score(s)[c], capacity(s)[c]
        for n in range(1, listed[0] + 1):
            # the cell's bounds, resource by resource: does its upper corner cover, what is the best score in it?
            rest = listed[n] - c * s.max_cells
            bound, covers = coefficients[s.n_resources], True
            for r in range(s.n_resources - 1, -1, -1):
                low, high = np.int64(0), size[r]
                if r < axes:
                    step = rest % axis
                    rest //= axis
                    low = (step * (size[r] + 1) + axis - 1) // axis
                    high = ((step + 1) * (size[r] + 1) + axis - 1) // axis - 1
                if high < need[r]:
                    covers = False
                    break
                bound += coefficients[r] * (max(low, need[r]) if coefficients[r] > 0 else high)
            if not covers or bound >= least:
                continue
            g = cells(s)[listed[n], 0]
            while g >= 0:
                value, covers = coefficients[s.n_resources], True
                for r in range(s.n_resources):
                    if rooms[g, r] < need[r]:
                        covers = False
                        break
                    value += coefficients[r] * rooms[g, r]
                if covers and value < least:
                    least, winner = value, all_groups[g, FIRST]
                g = all_groups[g, NEXT_IN_CELL]
    return int(winner)


@kernel
def count(s: State, need: NDArray[np.int64], skip: int) -> int:
    """How many servers cover the need (skip < 0), or the server with number `skip` among them, in no special order."""
    seen = 0
    for c in range(s.n_classes):
        listed = cell_list(s)[c]
        for n in range(1, listed[0] + 1):
            g = cells(s)[listed[n], 0]
            while g >= 0:
                covers = True
                for r in range(s.n_resources):
                    covers = covers and group_free(s)[g, r] >= need[r]
                if covers:
                    size = groups(s)[g, SIZE]
                    if 0 <= skip - seen < size:
                        server = groups(s)[g, FIRST]
                        for _ in range(skip - seen):
                            server = chains(s)[server, GROUP_NEXT]
                        return int(server)
                    seen += size
                g = groups(s)[g, NEXT_IN_CELL]
    return int(seen)

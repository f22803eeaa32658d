"""The weights of listed candidates, kept from question to question.

A candidate k of a class weighs S_k = sum_j k_j Q_j. Let Q' be the queues at the last question. A queue changes by one at an event, so few differ, and

    S_k += k_j (Q_j - Q'_j)        for the types j with Q_j != Q'_j and the candidates k with k_j > 0

is all that there is to do, instead of adding up each candidate anew. Sums are kept twice, in 16 bits and in 32.
While queues are short enough for 16 bits, reading all sums takes half the time and half the cache. Each kind has its own Q', and catches up when it is asked. The numbers are whole: the sums are exact, a
nd depend on the queues alone, not on when they were read. So this is for weights that are the lengths of the queues, common to all servers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import half_rows, halves, int_rows, natural, short_rows, shorts, tinies
from slotwise.core import chance
from slotwise.core import state as st

BLOCK, PARTS = 512, 8
# so many sums are looked at together, to find the largest, and where it is, in so many parts
PART = BLOCK // PARTS
LARGEST, LARGEST_HALF = 2**31 - 1, 2**15 - 1  # what a sum has room for, in 32 bits and in 16
PLACES = 2**16  # so many sums have a place that can be listed
# so many candidates one after the other that have the same number of jobs of a type are not listed one by one
RUN = 16
JOBS, FROM, TO, LISTED = 0, 1, 2, 3  # columns of `columns`


class Layout(NamedTuple):
    """What is written down of the candidates of all classes, to follow their weights; see the accessors of the same names."""

    starts: list[int]
    """the first block of each class"""
    sums: NDArray[np.int32]
    first_columns: NDArray[np.int64]
    columns: NDArray[np.int64]
    column_rows: NDArray[np.uint16]
    first_tops: NDArray[np.int64]
    tops: NDArray[np.uint16]


def few(tables: list[NDArray[np.int64]]) -> bool:
    """Return whether the sums have places enough for the candidates of all classes."""
    return sum(len(table) + BLOCK for table in tables) <= PLACES


def lay_out(tables: list[NDArray[np.int64]]) -> Layout:
    """Lay out the sums of the candidates of each class, all 0. The sum of a place without a candidate is never the
    best."""
    starts, firsts, blocks = [], [], 0
    columns: list[tuple[int, int, int, int]] = []
    rows: list[int] = []
    first_tops: list[list[int]] = []
    tops: list[int] = []
    for table in tables:
        starts.append(blocks)
        first = []
        for column in table.T:
            first.append(len(columns))
            for jobs in np.unique(column[column > 0]).tolist():
                having = blocks * BLOCK + np.flatnonzero(column == jobs)
                runs = np.split(having, np.flatnonzero(np.diff(having) > 1) + 1)
                columns += [(jobs, run[0], run[-1] + 1, 0) for run in runs if len(run) >= RUN]
                listed = [row for run in runs if len(run) < RUN for row in run]
                columns.append((jobs, len(rows), len(rows) + len(listed), 1))
                rows += listed
        firsts.append([*first, len(columns)])
        lone = [np.flatnonzero((column == column.max(initial=0)) & (column > 0)) for column in table.T]
        first_tops.append([len(tops), *(len(tops) + np.cumsum([len(one) for one in lone]))])
        tops += np.concatenate(lone).tolist()
        blocks += -(-len(table) // BLOCK)
    sums = np.full(blocks * BLOCK, -1, np.int32)
    for start, table in zip(starts, tables, strict=True):
        sums[start * BLOCK : start * BLOCK + len(table)] = 0
    return Layout(
        *(starts, sums, np.array(firsts), np.array(columns, np.int64).reshape(-1, 4), np.array(rows, np.uint16)),
        *(np.array(first_tops, np.int64), np.array(tops, np.uint16)),
    )


@kernel
def first_columns(s: st.State) -> NDArray[np.int64]:
    """(C, J + 1): where the columns of type j of class c begin; they end where those of the next begin."""
    return int_rows(s.at_first_columns, s.n_classes, s.n_types + 1)


@kernel
def columns(s: st.State) -> NDArray[np.int64]:
    """Return rows of JOBS, FROM and TO: candidates with JOBS jobs of a type have their sums from FROM to TO. If
    LISTED, these places are in `column_rows`."""
    return int_rows(s.at_columns, s.n_columns, 4)


@kernel
def column_rows(s: st.State) -> NDArray[np.uint16]:
    """Return the places of candidates in the sums."""
    return tinies(s.at_column_rows, s.n_column_rows)


@kernel
def first_tops(s: st.State) -> NDArray[np.int64]:
    """(C, J + 1): where those of type j of class c begin in `tops`."""
    return int_rows(s.at_first_tops, s.n_classes, s.n_types + 1)


@kernel
def tops(s: st.State) -> NDArray[np.uint16]:
    """Return the candidates of a class with most jobs of a type, counted from the class's first candidate."""
    return tinies(s.at_tops, s.n_tops)


def follow(s: st.State, server: int, choose: int) -> None:
    """Write the most that a candidate of the server's class weighs into s.listed_best. On request also write such a
    candidate into choice(s)[0]."""
    c, width = natural(st.servers(s)[natural(server), st.CLASS]), natural(s.n_block)
    if (
        choose
        and s.n_waiting == 1
        and st.servers(s)[natural(server), st.COUNT] == 0
        and _take_for_one(s, server, c)
    ):
        return
    # What each candidate weighed for the queues in `then`, -1 where there is none: all, in blocks and in parts of these; and the largest of each block. A class
    # begins with a block. (C, J): `then`, the queues for which the sums of class c were last worked out.
    n, part = s.n_sums, width // PARTS
    if s.n_waiting < s.half_limit:
        at = s.at_half_sums
        views = halves(at, n * width), half_rows(at, n, width), half_rows(at, n * PARTS, part)
        then = int_rows(s.at_half_followed, s.n_classes, s.n_types)
        _follow_sums(s, server, c, choose, views[0], views[1], views[2], halves(s.at_half_peaks, n), then[c])
    else:
        at = s.at_sums
        wide = shorts(at, n * width), short_rows(at, n, width), short_rows(at, n * PARTS, part)
        then = int_rows(s.at_followed, s.n_classes, s.n_types)
        _follow_sums(s, server, c, choose, wide[0], wide[1], wide[2], shorts(s.at_peaks, n), then[c])


@kernel
def _follow_sums(
    s: st.State, server: int, c: int, choose: int, flat: Any, blocks: Any, parts: Any, peaks: Any, then: Any
) -> None:
    """Do the work of `follow` for sums of either kind."""
    changed = _catch_up(s, c, flat, then)
    first, start = natural(st.classes(s)[c, st.SUMS_START]), natural(st.classes(s)[c, st.TABLE_START])
    end = first + (natural(st.classes(s)[c, st.TABLE_END]) - start + BLOCK - 1) // BLOCK
    if first == end:
        s.listed_best = 0.0
        return
    if changed:
        for b in range(first, end):
            peaks[b] = _largest(blocks, b)
    best = _largest_of(peaks, first, end)
    s.listed_best = float(best)
    if not choose:
        return
    ties, where = 0, start - first * BLOCK
    if (
        st.servers(s)[natural(server), st.COUNT] == 0
    ):  # any will do, so they are counted, and one of them is looked for
        for b in range(first, end):
            st.tied(s)[b - first] = _count(blocks, b, best) if peaks[b] == best else 0
            ties += st.tied(s)[b - first]
        pick = chance.below(s, ties) if ties > 1 and s.random_ties else 0
        st.tied(s)[0] = where + _find(s, flat, parts, first, best, pick)
        take_one(s, server, 1)
        return
    for b in range(first, end):
        if peaks[b] == best:
            for part in range(b * PARTS, (b + 1) * PARTS):
                if _largest(parts, part) == best:
                    for n in range(part * PART, (part + 1) * PART):
                        if flat[natural(n)] == best:
                            st.tied(s)[natural(ties)] = where + n
                            ties += 1
    take_one(s, server, ties)


@kernel
def _find(s: st.State, flat: Any, parts: Any, first: int, best: Any, pick: int) -> int:
    """Return the place of a best sum: the one with so many best sums before it from this block on. `tied` has the
    number of best sums of each block."""
    b = 0
    while pick >= st.tied(s)[natural(b)]:
        pick -= st.tied(s)[natural(b)]
        b += 1
    part = (first + b) * PARTS
    while True:
        found = _count(parts, part, best)
        if pick < found:
            break
        pick -= found
        part += 1
    place = natural(part * PART)
    while True:
        pick -= int(flat[place] == best)
        if pick < 0:
            return place
        place += 1


@kernel
def _largest(numbers: Any, row: int) -> Any:
    """Return the largest sum of a row. The row's length must be no constant: a loop of known length is unrolled,
    and then takes one number at a time."""
    row = natural(row)
    largest = numbers[row, 0]
    for n in range(numbers.shape[1]):
        largest = max(largest, numbers[row, n])
    return largest


@kernel
def _largest_of(numbers: Any, first: int, end: int) -> Any:
    """Return the largest sum from the first place on, before the last."""
    largest = numbers[natural(first)]
    for n in range(first, end):
        largest = max(largest, numbers[natural(n)])
    return largest


@kernel
def _count(numbers: Any, row: int, best: Any) -> int:
    """Return how many sums of a row are the best. All is in few bits, so that many sums are compared at a time."""
    row, found = natural(row), np.int16(0)
    for n in range(numbers.shape[1]):
        found = np.int16(found + np.int16(numbers[row, n] == best))
    return int(found)


@kernel
def _catch_up(s: st.State, c: int, flat: Any, then: NDArray[np.int64]) -> bool:
    """Make the sums of class c those of the present queues; returns whether they were not."""
    J, now, changed = natural(s.n_types), st.queue_length(s), st.choice(s)[2]
    rows, first, n = column_rows(s), first_columns(s)[c], 0
    for j in range(J):  # avoids a branch that the processor cannot predict
        changed[natural(n)] = j
        n += int(now[j] != then[j])
    for i in range(n):
        j = natural(changed[i])
        more = now[j] - then[j]
        then[j] = now[j]
        for p in range(natural(first[j]), natural(first[j + 1])):
            by, e, end = more * columns(s)[p, JOBS], natural(columns(s)[p, FROM]), natural(columns(s)[p, TO])
            if not columns(s)[p, LISTED]:
                for row in range(e, end):
                    flat[natural(row)] += by
                continue
            while e + 4 <= end:  # four at a time: the additions do not wait for each other
                k0, k1, k2, k3 = rows[e], rows[e + 1], rows[e + 2], rows[e + 3]
                flat[natural(k0)] += by
                flat[natural(k1)] += by
                flat[natural(k2)] += by
                flat[natural(k3)] += by
                e += 4
            while e < end:
                flat[natural(rows[e])] += by
                e += 1
    return n > 0


@kernel
def _take_for_one(s: st.State, server: int, c: int) -> bool:
    """Take a candidate with most jobs of the type if one job waits and the server is empty: these are the best.
    Most arrivals are such while queues are short, and many candidates tie. Return False if the class has none."""
    j = 0
    while st.queue_length(s)[natural(j)] == 0:
        j += 1
    first, end = natural(first_tops(s)[c, natural(j)]), natural(first_tops(s)[c, natural(j + 1)])
    if first == end:
        return False
    pick = chance.below(s, end - first) if end - first > 1 and s.random_ties else 0
    st.tied(s)[0] = st.classes(s)[c, st.TABLE_START] + tops(s)[first + natural(pick)]
    take_one(s, server, 1)
    s.listed_best = float(st.choice(s)[0, natural(j)])
    return True


@kernel
def take_one(s: st.State, server: int, n: int) -> None:
    """Take one of the n candidates in `tied` at random into choice(s)[0]. Prefer candidates that contain the jobs
    on the server."""
    ties, chosen, pick = st.tied(s), st.choice(s)[0], 0
    if n > 1:
        if st.servers(s)[server, st.COUNT] > 0:
            holding = 0
            for m in range(n):
                if _contains(s, ties[m], server):
                    ties[holding] = ties[m]
                    holding += 1
            n = holding if holding > 0 else n
        pick = chance.below(s, n) if s.random_ties else 0
    for j in range(s.n_types):
        chosen[j] = 0
    k = natural(ties[natural(pick)])
    for e in range(natural(st.table_ends(s)[k]), natural(st.table_ends(s)[k + 1])):
        chosen[natural(st.table_types(s)[e])] = int(st.table_counts(s)[e])


@kernel
def _contains(s: st.State, candidate: int, server: int) -> bool:
    """Return whether the candidate has all jobs that are on the server."""
    on, found, k = st.running(s)[server], 0, natural(candidate)
    for e in range(natural(st.table_ends(s)[k]), natural(st.table_ends(s)[k + 1])):
        found += min(int(on[natural(st.table_types(s)[e])]), int(st.table_counts(s)[e]))
    return bool(found == st.servers(s)[server, st.COUNT])

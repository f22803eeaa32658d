"""Weights of configurations and the (r-)max-weight configuration of a server, as the policies ask for them.

f(k, Q) = sum_j Q_j k_j. The candidates are a table (an argmax over a fixed set) or come from a packing kernel. Ties are
broken by chance, so that identical servers do not act in step; a server that holds jobs prefers, among ties, a
configuration that contains them.

Whether a server is worth too little takes a look at all candidates, and is asked at every completion. Most often a bound answers. Let
B(W) be the best weight for weights W, B(W0) be known, and D_j = max(0, W_j - W0_j). Then

    B(W) <= B(W0) + B(D),        B(D) <= sum_j D_j most_j,        B(D) <= max_j D_j  max_k sum_j k_j,

most_j the jobs of type j alone that fit. B(W0) is worked out anew when the bound is too high to answer.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call_at, floats, ints, natural
from slotwise.core import chance
from slotwise.core import state as st
from slotwise.core.indexes.followed import take_one
from slotwise.packing.kernels import BRANCH_AND_BOUND, TABLE, solve

# Nodes of a search at a decision, some 10 milliseconds. Some weights of 26 types took 3,000 million, half a minute.
MOST_NODES = 1_000_000
FEW_COLUMNS = 6  # with so few a whole row of a table is as quickly added up as its part that is not zero
ROUNDING = 1.0 - 1e-9  # sums of weights that are no whole numbers may be rounded


@kernel
def scratch_floats(s: st.State) -> NDArray[np.float64]:
    """Return scratch numbers for the packing kernels. The last J are for the weights of a server's own queues."""
    return floats(s.at_scratch_floats, s.n_scratch_floats + s.n_types)


@kernel
def weights_at(s: st.State, server: int) -> NDArray[np.float64]:
    """Return the weights that the server sees: of the common queues, or of its own."""
    if not s.own_queues:
        return st.weight(s)
    own = scratch_floats(s)[s.n_scratch_floats :]
    for j in range(s.n_types):
        length = st.queues(s)[server * s.n_types + j, st.LENGTH]
        own[j] = math.log(1.0 + length) if s.log_weights else float(length)
    return own


@kernel
def weight_of(s: st.State, server: int) -> float:
    """Return f(k-tilde, Q) of the server's configuration."""
    server = natural(server)
    slots, w = st.configuration(s)[server], weights_at(s, server)
    total = 0.0
    for j in range(s.n_types):
        total += w[j] * slots[j]
    return total


@kernel
def _weigh(s: st.State, c: int, w: NDArray[np.float64]) -> float:
    """Write f(k, Q) of each candidate k of the class into `table_values`. Return the largest. Leaving out the types
    of which a candidate has none changes no bit of a sum."""
    first, end = natural(st.classes(s)[c, st.TABLE_START]), natural(st.classes(s)[c, st.TABLE_END])
    values, best = st.table_values(s), -1.0
    if s.n_types <= FEW_COLUMNS:
        candidates = st.real_table(s)
        for row in range(first, end):
            total = 0.0
            for j in range(s.n_types):
                total += w[j] * candidates[row, j]
            values[row] = total
            best = max(best, total)
        return best
    ends, types, counts = st.table_ends(s), st.table_types(s), st.table_counts(s)
    e = natural(ends[first])
    for row in range(first, end):
        total = 0.0
        while e < ends[row + 1]:
            total += w[natural(types[e])] * counts[e]
            e += 1
        values[row] = total
        best = max(best, total)
    return best


@kernel
def best_weight(s: st.State, server: int) -> float:
    """Return f(k_r, Q), the weight of the (r-)max-weight configuration of the server."""
    server = natural(server)
    c = natural(st.servers(s)[server, st.CLASS])
    w, about = weights_at(s, server), st.classes(s)[c]
    if about[st.SOLVER] != TABLE:
        _whole_server(s, c)
        return _solve(s, server, 2)
    if _is_followed(s):
        call_at(s.hook_follow, s, server, 0)
        return float(s.listed_best)
    return _weigh(s, c, w)


@kernel
def _is_followed(s: st.State) -> bool:
    """Return whether the weights of listed candidates are kept up to date."""
    return bool(s.n_waiting < s.follow_limit)


@kernel
def best_above(s: st.State, server: int, mine: float, share: float) -> float:
    """Return f(k_r, Q) if share f(k_r, Q) > mine, else -1."""
    c = natural(st.servers(s)[natural(server), st.CLASS])
    bounded, listed = st.most_jobs(s)[c] > 0.0, st.classes(s)[c, st.SOLVER] == TABLE
    lot = (
        0 if listed else _draw(s)
    )  # drawn in any case: what is known of the best must not change what is drawn later
    if bounded and _is_enough(s, c, mine, share):
        return -1.0
    best = best_weight(s, server) if listed else _search(s, server, c, lot)
    if bounded and (listed or not s.gave_up):
        _note_best(s, c, best)
    return best if share * best > mine else -1.0


@kernel
def _is_enough(s: st.State, c: int, mine: float, share: float) -> bool:
    """Return whether the bound says that share f(k, Q) <= mine for every configuration k of class c."""
    known, w, fit = st.watch(s)[c], st.weight(s), st.most(s)[c]
    if known[0] < 0.0:
        return False
    spare = mine / share * ROUNDING - known[0]
    if spare < 0.0:
        return False
    J, total, highest = natural(s.n_types), 0.0, 0.0
    for j in range(J):
        more = w[j] - known[1 + j]
        if more > 0.0:
            total += more * fit[j]
            highest = max(highest, more)
    return min(total, highest * st.most_jobs(s)[c]) <= spare


@kernel
def _note_best(s: st.State, c: int, best: float) -> None:
    """Note that B(W) is at most this now. A kernel that may miss the best says by how much."""
    known, w = st.watch(s)[c], st.weight(s)
    known[0] = best / st.near(s)[c]
    for j in range(s.n_types):
        known[1 + j] = w[j]


@kernel
def best_configuration(s: st.State, server: int) -> float:
    """Write k_r for the server into choice(s)[0] and return its weight. After `MOST_NODES` of a search, the best that it has found counts."""
    row = st.servers(s)[server]
    c, w = row[st.CLASS], weights_at(s, server)
    if st.classes(s)[c, st.SOLVER] == TABLE:
        if _is_followed(s):
            call_at(s.hook_follow, s, server, 1)
            return float(s.listed_best)
        return _from_table(s, c, w, server)
    best = _search(s, server, c, _draw(s))
    _prefer_holding(s, server, best)
    return best


@kernel
def better_configuration(s: st.State, server: int, than: float) -> float:
    """Write a configuration of most weight into choice(s)[0] and return its weight, if it weighs more than `than`; else return -1.

    To know that nothing weighs more is much quicker than to find the best: the search leaves out all that weighs less.
    """
    server = natural(server)
    c = natural(st.servers(s)[server, st.CLASS])
    if st.most_jobs(s)[c] > 0.0 and _is_enough(s, c, than, 1.0):
        return -1.0
    if st.classes(s)[c, st.SOLVER] == TABLE:
        best = best_weight(s, server)
        _note_best(s, c, best)
        return best_configuration(s, server) if best > than else -1.0
    s.floor = than
    best = _search(s, server, c, _draw(s))
    s.floor = 0.0
    if not s.gave_up:
        _note_best(s, c, max(best, than))
    if best <= than:
        return -1.0
    _prefer_holding(s, server, best)
    return best


@kernel
def _search(s: st.State, server: int, c: int, lot: int) -> float:
    """Write a configuration of most weight into choice(s)[0]. Return its weight."""
    _shuffle(s, lot)
    _whole_server(s, c)
    return _solve(s, server, 0)


@kernel
def holds_within(s: st.State, server: int, slots: NDArray[np.int64]) -> bool:
    """Return whether the jobs on the server are a subset of the slots."""
    on = st.running(s)[server]
    for j in range(s.n_types):
        if on[j] > slots[j]:
            return False
    return True


@kernel
def _from_table(s: st.State, c: int, w: NDArray[np.float64], server: int) -> float:
    c = natural(c)
    first, end = natural(st.classes(s)[c, st.TABLE_START]), natural(st.classes(s)[c, st.TABLE_END])
    best = _weigh(s, c, w)
    values, ties = st.table_values(s), 0
    for t in range(first, end):
        if values[t] == best:
            st.tied(s)[natural(ties)] = t
            ties += 1
    take_one(s, server, ties)
    return best


@kernel
def _draw(s: st.State) -> int:
    """Draw a lot for `_shuffle`."""
    return chance.word(s) if s.random_ties else 0


@kernel
def _shuffle(s: st.State, lot: int) -> None:
    """Write the permutation of the types by which ties are broken. It depends on the lot alone: n -> a n + b modulo
    a power of two, a odd, without numbers that are no type."""
    if s.random_ties:
        permutation, J, size = st.order(s)[1], natural(s.n_types), 1
        while size < J:
            size *= 2
        step, place, n = lot & (size - 1) | 1, (lot >> 16) & (size - 1), 0
        while n < J:
            permutation[n] = place
            n += place < J
            place = (place + step) & (size - 1)


@kernel
def _whole_server(s: st.State, c: int) -> None:
    for r in range(s.n_resources):
        st.need(s)[r] = st.capacity(s)[c, r]


@kernel
def _solve(s: st.State, server: int, place: int) -> float:
    """Fill choice(s)[place] with the best configuration for the room in need(s) and the server's weights."""
    call_at(s.hook_solve, s, server, place)
    w, chosen, total = weights_at(s, server), st.choice(s)[place], 0.0
    for j in range(s.n_types):
        total += w[j] * chosen[j]
    return total


def run_solver(s: st.State, server: int, place: int) -> None:
    """Run the packing kernel of the server's class: the late part of `_solve`."""
    c = st.servers(s)[server, st.CLASS]
    about = st.classes(s)[c]
    params_f = floats(s.at_params_floats, s.n_params_floats)[about[st.FLOATS_START] : about[st.FLOATS_END]]
    params_i = ints(s.at_params_ints, s.n_params_ints)[about[st.INTS_START] : about[st.INTS_END]]
    if about[st.SOLVER] == BRANCH_AND_BOUND:
        params_i[s.n_types] = s.most_nodes
        params_f[s.n_types + 1] = s.floor
    found = solve(
        about[st.SOLVER],
        weights_at(s, server),
        st.demand(s),
        st.need(s),
        st.order(s)[1],
        scratch_floats(s),
        ints(s.at_scratch_ints, s.n_scratch_ints),
        params_f,
        params_i,
        st.choice(s)[place],
    )
    s.gave_up = found < 0.0


@kernel
def _prefer_holding(s: st.State, server: int, best: float) -> None:
    """Replace choice(s)[0] by a configuration that contains the server's jobs, if one weighs as much."""
    if st.servers(s)[server, st.COUNT] == 0 or holds_within(s, server, st.choice(s)[0]):
        return
    on, other = st.running(s)[server], st.choice(s)[1]
    if _fill_up(s, server, best) == best:
        for j in range(s.n_types):
            st.choice(s)[0, j] = on[j] + other[j]


@kernel
def may_hold(s: st.State, server: int, enough: float) -> bool:
    """Return whether a configuration of this weight or more may contain the jobs on the server. If enough < 0,
    return True without a search."""
    return enough < 0.0 or _fill_up(s, server, enough) >= enough


@kernel
def _fill_up(s: st.State, server: int, enough: float) -> float:
    """Return the most weight of a configuration that contains the jobs on the server, and write the rest of it into
    choice(s)[1]. If a bound says that it is less than `enough`, return the bound."""
    c, w = natural(st.servers(s)[server, st.CLASS]), weights_at(s, server)
    on, rest = st.running(s)[server], st.need(s)
    held = 0.0
    for r in range(s.n_resources):
        rest[r] = st.capacity(s)[c, r]
    for j in range(s.n_types):
        if on[j] > 0:
            held += on[j] * w[j]
            for r in range(s.n_resources):
                rest[r] -= on[j] * st.demand(s)[j, r]
    bound = held + _most_beside(s, c, w, rest)
    return bound if bound < enough else held + _solve(s, server, 1)


@kernel
def _most_beside(s: st.State, c: int, w: NDArray[np.float64], rest: NDArray[np.int64]) -> float:
    """Return an upper bound on the weight of the jobs that fit into the rest of a server together: the lesser of two.
    One has as many jobs as the smallest demands allow, each as heavy as the heaviest type that fits. The other fills
    the whole rest at the density of the type with most weight for its share of the server."""
    R, fit, sizes, whole = natural(s.n_resources), st.most(s)[c], st.demand(s), st.capacity(s)[c]
    more, left = math.inf, 0.0
    for r in range(R):
        if st.least(s)[c, r] > 0:
            more = min(more, float(rest[r] // st.least(s)[c, r]))
        left += rest[r] / max(1, whole[r])
    heaviest = densest = 0.0
    for j in range(s.n_types):
        if w[j] > 0.0 and fit[j] > 0:
            fits, share = True, 0.0
            for r in range(R):
                fits &= sizes[j, r] <= rest[r]
                share += sizes[j, r] / max(1, whole[r])
            if fits:
                heaviest = max(heaviest, w[j])
                if w[j] > densest * share:
                    densest = w[j] / share
    return min(more * heaviest, densest * left) / ROUNDING


@kernel
def best_filling(s: st.State, server: int, room: NDArray[np.int64]) -> float:
    """Write the max-weight filling of `room` on the server into choice(s)[0]. Return its weight. The solver must
    not be a table."""
    _shuffle(s, _draw(s))
    for r in range(s.n_resources):
        st.need(s)[r] = room[r]
    return _solve(s, server, 0)

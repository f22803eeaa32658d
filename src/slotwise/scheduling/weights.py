"""Weights of configurations and the (r-)max-weight configuration of a server, as the policies ask for them.

f(k, Q) = sum_j Q_j k_j. The candidates are a table (an argmax over a fixed set) or come from a packing kernel. Ties are
broken by chance, so that identical servers do not act in step; a server that holds jobs prefers, among ties, a
configuration that contains them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.packing.kernels import TABLE, solve
from slotwise.scheduling import chance
from slotwise.scheduling.memory import call_at, floats, ints, natural
from slotwise.scheduling.state import (
    CLASS,
    COUNT,
    FLOATS_END,
    FLOATS_START,
    INTS_END,
    INTS_START,
    LENGTH,
    SOLVER,
    TABLE_END,
    TABLE_START,
    State,
    capacity,
    choice,
    classes,
    configuration,
    demand,
    need,
    order,
    queues,
    real_table,
    running,
    servers,
    table,
    weight,
)


@kernel
def scratch_floats(s: State) -> NDArray[np.float64]:
    """Room for the packing kernels, then (the last J) for the weights of a server's own queues."""
    return floats(s.at_scratch_floats, s.n_scratch_floats + s.n_types)


@kernel
def weights_at(s: State, server: int) -> NDArray[np.float64]:
    """The weights that the server sees: of the common queues, or of its own."""
    if not s.own_queues:
        return weight(s)
    own = scratch_floats(s)[s.n_scratch_floats :]
    for j in range(s.n_types):
        length = queues(s)[server * s.n_types + j, LENGTH]
        own[j] = math.log(1.0 + length) if s.log_weights else float(length)
    return own


@kernel
def weight_of(s: State, server: int) -> float:
    """f(k-tilde, Q) of the server's configuration."""
    server = natural(server)
    slots, w = configuration(s)[server], weights_at(s, server)
    total = 0.0
    for j in range(s.n_types):
        total += w[j] * slots[j]
    return total


@kernel
def _value(s: State, w: NDArray[np.float64], row: int) -> float:
    candidates, total = real_table(s), 0.0
    for j in range(s.n_types):
        total += w[j] * candidates[row, j]
    return total


@kernel
def best_weight(s: State, server: int) -> float:
    """f(k_r, Q): the weight of the (r-)max-weight configuration of the server."""
    server = natural(server)
    c = natural(servers(s)[server, CLASS])
    w, about = weights_at(s, server), classes(s)[c]
    if about[SOLVER] != TABLE:
        _whole_server(s, c)
        return _solve(s, server, 1)
    best = -1.0
    for row in range(natural(about[TABLE_START]), about[TABLE_END]):
        best = max(best, _value(s, w, row))
    return best


@kernel
def best_configuration(s: State, server: int) -> float:
    """Write k_r for the server into choice(s)[0] and return its weight."""
    row = servers(s)[server]
    c, w = row[CLASS], weights_at(s, server)
    if classes(s)[c, SOLVER] == TABLE:
        return _from_table(s, c, w, server)
    chosen = choice(s)[0]
    _shuffle(s)
    _whole_server(s, c)
    best = _solve(s, server, 0)
    if row[COUNT] > 0 and not holds_within(s, server, chosen):
        _prefer_holding(s, server, c, w, best)
    return best


@kernel
def holds_within(s: State, server: int, slots: NDArray[np.int64]) -> bool:
    """Whether the jobs on the server are a subset of the slots."""
    on = running(s)[server]
    for j in range(s.n_types):
        if on[j] > slots[j]:
            return False
    return True


@kernel
def _from_table(s: State, c: int, w: NDArray[np.float64], server: int) -> float:
    first, end = classes(s)[c, TABLE_START], classes(s)[c, TABLE_END]
    candidates, chosen = table(s), choice(s)[0]
    best, ties, row = -1.0, 0, first
    for t in range(first, end):
        value = _value(s, w, t)
        if value > best:
            best, ties, row = value, 1, t
        elif value == best:
            ties += 1
    if ties > 1:
        holding = 0
        if servers(s)[server, COUNT] > 0:
            for t in range(row, end):
                if _value(s, w, t) == best and holds_within(s, server, candidates[t]):
                    holding += 1
        pick = chance.below(s, holding if holding > 0 else ties) if s.random_ties else 0
        for t in range(row, end):
            if _value(s, w, t) == best and (holding == 0 or holds_within(s, server, candidates[t])):
                if pick == 0:
                    row = t
                    break
                pick -= 1
    for j in range(s.n_types):
        chosen[j] = candidates[row, j]
    return best


@kernel
def _shuffle(s: State) -> None:
    """A permutation of the types to break ties by, from the random words alone: what it was before does not matter."""
    if s.random_ties:
        permutation = order(s)[1]
        for n in range(s.n_types):
            permutation[n] = n
        for n in range(s.n_types - 1, 0, -1):
            m = chance.below(s, n + 1)
            permutation[n], permutation[m] = permutation[m], permutation[n]


@kernel
def _whole_server(s: State, c: int) -> None:
    for r in range(s.n_resources):
        need(s)[r] = capacity(s)[c, r]


@kernel
def _solve(s: State, server: int, place: int) -> float:
    """Fill choice(s)[place] with the best configuration for the room in need(s) and the server's weights."""
    call_at(s.hook_solve, s, server, place)
    w, chosen, total = weights_at(s, server), choice(s)[place], 0.0
    for j in range(s.n_types):
        total += w[j] * chosen[j]
    return total


def run_solver(s: State, server: int, place: int) -> None:
    """The late part of `_solve`: the packing kernel of the server's class."""
    c = servers(s)[server, CLASS]
    about = classes(s)[c]
    params_f = floats(s.at_params_floats, s.n_params_floats)[about[FLOATS_START] : about[FLOATS_END]]
    params_i = ints(s.at_params_ints, s.n_params_ints)[about[INTS_START] : about[INTS_END]]
    solve(
        about[SOLVER],
        weights_at(s, server),
        demand(s),
        need(s),
        order(s)[1],
        scratch_floats(s),
        ints(s.at_scratch_ints, s.n_scratch_ints),
        params_f,
        params_i,
        choice(s)[place],
    )


@kernel
def _prefer_holding(s: State, server: int, c: int, w: NDArray[np.float64], best: float) -> None:
    """Where a configuration that contains the server's jobs weighs as much, take it."""
    on, other, rest = running(s)[server], choice(s)[1], need(s)
    held = 0.0
    for r in range(s.n_resources):
        rest[r] = capacity(s)[c, r]
        for j in range(s.n_types):
            rest[r] -= on[j] * demand(s)[j, r]
    for j in range(s.n_types):
        held += on[j] * w[j]
    if held + _solve(s, server, 1) == best:
        for j in range(s.n_types):
            choice(s)[0, j] = on[j] + other[j]


@kernel
def best_filling(s: State, server: int, room: NDArray[np.int64]) -> float:
    """The max-weight filling of some room on the server, into choice(s)[0]; needs a solver that is not a table."""
    _shuffle(s)
    for r in range(s.n_resources):
        need(s)[r] = room[r]
    return _solve(s, server, 0)

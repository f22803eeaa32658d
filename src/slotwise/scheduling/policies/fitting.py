"""Policies that pack by what is free: best-fit and its relatives, FIFO, Kubernetes' scores, Tetris, myopic MaxWeight.

Each is a rule for the server of a job (least linear score, lowest number, any) and a rule for the job of a server
(largest type, longest waiting, largest dot product). All are work-conserving but FIFO: after each event no head of
line fits anywhere. Only heads of line are tried, so each type is served first come, first served.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling import chance, firsttree, fitindex
from slotwise.scheduling.moves import start
from slotwise.scheduling.queues import oldest_head
from slotwise.scheduling.state import (
    CLASS,
    HEAD,
    PRESENT,
    STATUS,
    State,
    capacity,
    choice,
    demand,
    free,
    head,
    job_demand,
    need,
    order,
    policy_ints,
    queue_length,
    queues,
    sequence,
    servers,
)
from slotwise.scheduling.weights import best_filling

# policy_ints
SERVER_RULE, JOB_RULE, BLOCKS = 0, 1, 2
LEAST_SCORE, LEAST_DOT, LOWEST_NUMBER, ANY = 0, 1, 2, 3  # SERVER_RULE
LARGEST, OLDEST, DOT, FILLING = 0, 1, 2, 3  # JOB_RULE

TRIES = 32


def arrive(s: State, j: int, i: int) -> None:
    """A type-j job waits; those before it fit nowhere, so only a new head of line can be placed."""
    if head(s, j) != i:
        return
    if policy_ints(s)[BLOCKS]:
        serve_in_order(s)
    else:
        place_heads(s, j)


def complete(s: State, j: int, server: int) -> None:
    """Room on the server: fill it."""
    if s.n_waiting > 0:
        refill(s, server)


def join(s: State, server: int, _: int) -> None:
    """A new server: fill it."""
    if s.n_waiting > 0:
        refill(s, server)


def cancel(s: State, j: int, i: int) -> None:
    """A waiting job has gone; the next in line may be smaller."""
    if s.n_waiting > 0:
        if policy_ints(s)[BLOCKS]:
            serve_in_order(s)
        else:
            place_heads(s, j)


@kernel
def refill(s: State, server: int) -> None:
    """Start waiting jobs on the server by the job rule until none fits."""
    rule = policy_ints(s)[JOB_RULE]
    if policy_ints(s)[BLOCKS]:
        serve_in_order(s)
        return
    if rule == FILLING:
        fill_by_weight(s, server)
    while s.n_waiting > 0:
        j = next_job(s, server, rule)
        if j < 0:
            break
        start(s, j, server)
    if s.actual:
        # a smaller job may have come to the head of its line, and fit where the one before it did not
        for j in range(s.n_types):
            place_heads(s, j)


@kernel
def serve_in_order(s: State) -> None:
    """Strictly first come, first served: the oldest job blocks the others."""
    while s.n_waiting > 0:
        j = oldest_head(s, 0)
        set_need(s, j)
        server = find_server(s, need(s))
        if server < 0:
            return
        start(s, j, server)


@kernel
def place_heads(s: State, j: int) -> None:
    """Place the head of line of type j, and the next, while some server has room."""
    while queues(s)[j, HEAD] >= 0:
        set_need(s, j)
        server = find_server(s, need(s))
        if server < 0:
            return
        start(s, j, server)


@kernel
def set_need(s: State, j: int) -> None:
    """Write what the head of line of type j asks for into need(s)."""
    i = head(s, j)
    for r in range(s.n_resources):
        need(s)[r] = job_demand(s)[i, r] if s.actual else demand(s)[j, r]


@kernel
def find_server(s: State, size: NDArray[np.int64]) -> int:
    """A server with room for the size, by the server rule; -1 where there is none."""
    rule = policy_ints(s)[SERVER_RULE]
    if rule == LOWEST_NUMBER:
        return firsttree.first_fit(s, size, 0)
    if rule == ANY:
        return any_server(s, size)
    if rule == LEAST_DOT:
        _set_dot_score(s, size)
    return fitindex.best(s, size)


@kernel
def any_server(s: State, size: NDArray[np.int64]) -> int:
    """A uniformly random server with room: by trial, and where that keeps failing by counting them."""
    for _ in range(TRIES):
        server = chance.below(s, s.max_servers)
        if servers(s)[server, STATUS] == PRESENT and fits(s, server, size):
            return server
    total = fitindex.count(s, size, -1)
    return fitindex.count(s, size, chance.below(s, total)) if total > 0 else -1


@kernel
def fits(s: State, server: int, size: NDArray[np.int64]) -> bool:
    """Whether the server has that much free."""
    for r in range(s.n_resources):
        if free(s)[server, r] < size[r]:
            return False
    return True


@kernel
def _set_dot_score(s: State, size: NDArray[np.int64]) -> None:
    """Score = - sum_r (demand_r / capacity_r) (free_r / capacity_r): the least is the largest dot product."""
    for c in range(s.n_classes):
        for r in range(s.n_resources):
            whole = float(capacity(s)[c, r])
            fitindex.score(s)[c, r] = -(size[r] / whole) / whole if whole > 0.0 else 0.0


@kernel
def next_job(s: State, server: int, rule: int) -> int:
    """The type whose head of line the server takes next, -1 where none fits."""
    best, value = -1, 0.0
    for n in range(s.n_types):
        j = order(s)[0, n]
        if queue_length(s)[j] == 0:
            continue
        set_need(s, j)
        if not fits(s, server, need(s)):
            continue
        if rule in (LARGEST, FILLING):
            return int(j)
        this = -float(sequence(s)[head(s, j)]) if rule == OLDEST else _dot(s, server)
        if best < 0 or this > value:
            best, value = int(j), this
    return best


@kernel
def _dot(s: State, server: int) -> float:
    whole, total = capacity(s)[servers(s)[server, CLASS]], 0.0
    for r in range(s.n_resources):
        if whole[r] > 0:
            total += (need(s)[r] / whole[r]) * (free(s)[server, r] / whole[r])
    return total


@kernel
def fill_by_weight(s: State, server: int) -> None:
    """Start the max-weight filling of what is free, as far as jobs wait for it."""
    best_filling(s, server, free(s)[server])
    for j in range(s.n_types):
        for _ in range(min(choice(s)[0, j], queue_length(s)[j])):
            start(s, j, server)

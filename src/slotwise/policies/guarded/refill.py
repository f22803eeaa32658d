"""Rule R2, the refill: which waiting jobs a server with free capacity takes, decided before any of them starts.

A refill takes the types in some order, each as often as the next job in its queue fits. Three orders are tried: largest size first, largest weight
first, largest weight per capacity first. The heaviest refill wins, so it weighs at least as much as the one that takes the heaviest type first.
With durations, jobs of one type start in the order of age / duration instead of age. So useless estimates do little harm: all jobs of a type have one weight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural
from slotwise.core.indexes import line
from slotwise.core.indexes.line import SHORTEST
from slotwise.core.state import (
    CLASS,
    NEXT,
    TYPE,
    State,
    allowed,
    demand,
    free,
    head,
    int_table,
    job_demand,
    job_times,
    jobs,
    need,
    order,
    policy_ints,
    sequence,
    servers,
    weight,
)
from slotwise.core.steps import next_waiting, start_job
from slotwise.policies.guarded.memory import CANDIDATES, LISTED
from slotwise.policies.guarded.overdue import delays_overdue, start_beside, start_most_urgent
from slotwise.policies.guarded.services import sizes
from slotwise.policies.guarded.weights import held_weight

BY_SIZE, BY_WEIGHT, BY_DENSITY = 0, 1, 2
ORDERS = 3  # by size, weight and density
LOOKS = 64  # jobs of one type that do not fit, after which a refill goes on to the next type


@kernel
def choose_refill(s: State, server: int) -> float:
    """List the types in the order of the heaviest of the three refills. Return the weight that the server holds after it."""
    m = _list_candidates(s, server)
    best, added = natural(BY_DENSITY), 0.0
    for rule in range(ORDERS if m > 1 else m):  # with one candidate all orders are the same
        this = _weight_of_refill(s, server, m, rule)
        if this >= added:
            best, added = rule, this
    if m > 1 and best != BY_DENSITY:
        _sort(s, m, best)
    policy_ints(s)[LISTED] = m
    return held_weight(s, server) + added


@kernel
def start_refill(s: State, server: int) -> None:
    """Start the refill that `choose_refill` has chosen. If jobs of one type request different amounts, start the oldest job that still fits, until none does."""
    found, room = int_table(s, CANDIDATES), free(s)[server]
    for n in range(policy_ints(s)[LISTED]):
        if s.keeps_times:
            _start_of_type(s, found[n, 1], server)
            continue
        i, looks = head(s, found[n, 1]), LOOKS
        while i >= 0:
            after = int(jobs(s)[i, NEXT])
            if _fits(s, i, room):
                start_job(s, i, server)
            else:
                looks -= 1
                if not s.keeps_line or looks == 0:
                    break
            i = after
    if s.keeps_times:
        start_most_urgent(s, server)
    while s.keeps_line and not s.keeps_times and s.n_waiting > 0:
        i = line.oldest(s, room, servers(s)[server, CLASS])
        if i < 0:
            return
        start_job(s, i, server)


@kernel
def _start_of_type(s: State, j: int, server: int) -> None:
    """With durations: start the job of type j with the largest age / duration that fits and delays no overdue job, until none does. Only the oldest LOOKS jobs are looked at."""
    room = free(s)[server]
    while True:
        best, most, i = natural(0), -1.0, head(s, j)
        for _ in range(LOOKS):
            if i < 0:
                break
            ratio = (s.last_sequence - sequence(s)[i] + 1.0) / max(job_times(s)[i, 0], SHORTEST)
            if ratio > most and _fits(s, i, room) and not delays_overdue(s, i, demand_of(s, i), server):
                best, most = natural(i), ratio
            i = int(jobs(s)[i, NEXT])
        if most < 0.0:
            return
        start_beside(s, best, server)


@kernel
def _fits(s: State, i: int, room: NDArray[np.int64]) -> bool:
    """Return whether job i fits the free capacity."""
    size = demand_of(s, i)
    for r in range(s.n_resources):
        if size[r] > room[r]:
            return False
    return True


@kernel
def demand_of(s: State, i: int) -> NDArray[np.int64]:
    """Return what job i requests."""
    return job_demand(s)[i] if s.actual else demand(s)[jobs(s)[i, TYPE]]


@kernel
def _list_candidates(s: State, server: int) -> int:
    """List the waiting types that the server may hold, largest first. If all jobs of a type are alike, leave out types that do not fit. Return their number."""
    found, m = int_table(s, CANDIDATES), 0
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        may = not s.restricted or allowed(s)[servers(s)[server, CLASS], j] > 0
        if may and (s.keeps_line or _fits(s, head(s, j), free(s)[server])):
            found[m, 0] = j
            m += 1
        n = next_waiting(s, n + 1)
    return m


@kernel
def _weight_of_refill(s: State, server: int, m: int, rule: int) -> float:
    """Return the weight of the jobs that fit if the m candidates are taken in the order of the rule."""
    rest, found, added = need(s), int_table(s, CANDIDATES), 0.0
    _sort(s, m, rule)
    for r in range(s.n_resources):
        rest[r] = free(s)[server, r]
    for n in range(m):
        j = found[n, 1]
        i, looks = head(s, j), LOOKS
        while i >= 0:
            size = demand_of(s, i)
            if _fits(s, i, rest) and not (s.keeps_times and delays_overdue(s, i, size, server)):
                for r in range(s.n_resources):
                    rest[r] -= size[r]
                added += weight(s)[j]
            else:
                looks -= 1
                if not s.keeps_line or looks == 0:
                    break
            i = int(jobs(s)[i, NEXT])
    return added


@kernel
def _sort(s: State, m: int, rule: int) -> None:
    """Put the candidates, which are listed by size, into the order of the rule."""
    found = int_table(s, CANDIDATES)
    for n in range(m):
        j, at = found[n, 0], n
        if rule != BY_SIZE:
            value = _value(s, j, rule)
            while at > 0 and _value(s, found[at - 1, 1], rule) < value:
                found[at, 1] = found[at - 1, 1]
                at -= 1
        found[at, 1] = j


@kernel
def _value(s: State, j: int, rule: int) -> float:
    """Return W_j, or W_j / g_j."""
    return float(weight(s)[j] if rule == BY_WEIGHT else weight(s)[j] / sizes(s)[j])

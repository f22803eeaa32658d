"""Rule R2, the refill: which waiting jobs a server with free capacity takes, decided before any of them starts.

A refill takes the types in some order, each as often as the next job in its queue fits. Three orders are tried: largest size first, largest weight
first, largest weight per capacity first. The heaviest refill wins, so it weighs at least as much as the one that takes the heaviest type first.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural
from slotwise.core.indexes import line
from slotwise.core.moves import start, start_job
from slotwise.core.queues import next_waiting
from slotwise.core.state import (
    CLASS,
    NEXT,
    State,
    allowed,
    choice,
    demand,
    free,
    head,
    int_table,
    job_demand,
    jobs,
    need,
    order,
    policy_floats,
    servers,
    weight,
)
from slotwise.policies.guarded.memory import CANDIDATES, HELD
from slotwise.policies.guarded.weights import held_weight, sizes

BY_SIZE, BY_WEIGHT, BY_DENSITY = 0, 1, 2
ORDERS = 3


@kernel
def choose_refill(s: State, server: int) -> float:
    """Write the heaviest of the three refills into choice(s)[1]. Return the weight that the server then holds."""
    counts, held = choice(s)[1], held_weight(s, server)
    for j in range(s.n_types):
        counts[j] = 0
    m = _find_candidates(s, server)
    best, added = natural(BY_DENSITY), -1.0
    for rule in range(ORDERS if m > 1 else m):  # with one candidate all orders are the same
        this = _fill(s, server, m, rule)
        if this >= added:
            best, added = rule, this
    if m > 1 and best != BY_DENSITY:
        _fill(s, server, m, best)
    policy_floats(s)[HELD] = held + max(added, 0.0)
    return float(policy_floats(s)[HELD])


@kernel
def start_refill(s: State, server: int) -> None:
    """Start the jobs of choice(s)[1]. Then, if jobs of one type request different amounts, start the oldest job that fits, until none does."""
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        for _ in range(choice(s)[1, j]):
            start(s, j, server)
        n = next_waiting(s, n + 1)
    while s.keeps_line and s.n_waiting > 0:
        i = line.oldest(s, free(s)[server], servers(s)[server, CLASS])
        if i < 0:
            return
        start_job(s, i, server)


@kernel
def _requested(s: State, i: int, j: int, r: int) -> int:
    """Return how much of resource r job i of type j takes."""
    return int(job_demand(s)[i, r] if s.actual else demand(s)[j, r])


@kernel
def _find_candidates(s: State, server: int) -> int:
    """List the types whose head of queue fits the server, largest first. Return their number."""
    room, found, m = free(s)[server], int_table(s, CANDIDATES), 0
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        if not s.restricted or allowed(s)[servers(s)[server, CLASS], j]:
            i, fits = head(s, j), True
            for r in range(s.n_resources):
                fits = fits and room[r] >= _requested(s, i, j, r)
            if fits:
                found[m, 0] = j
                m += 1
        n = next_waiting(s, n + 1)
    return m


@kernel
def _fill(s: State, server: int, m: int, rule: int) -> float:
    """Write how many jobs of each of the m candidates fit, in the order of the rule, into choice(s)[1]. Return their weight."""
    counts, rest, found, added = choice(s)[1], need(s), int_table(s, CANDIDATES), 0.0
    _sort(s, m, rule)
    for r in range(s.n_resources):
        rest[r] = free(s)[server, r]
    for n in range(m):
        j = found[n, 1]
        i, counts[j] = head(s, j), 0
        while i >= 0:
            fits = True
            for r in range(s.n_resources):
                fits = fits and rest[r] >= _requested(s, i, j, r)
            if not fits:
                break
            for r in range(s.n_resources):
                rest[r] -= _requested(s, i, j, r)
            counts[j] += 1
            added += weight(s)[j]
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

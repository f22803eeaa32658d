"""`guarded`: packs like best-fit while queues are short, guards itself like Algorithm 1 when they grow.

A server packs work-conservingly by what jobs really ask for. On a completion at server l, with Q taken before any refill, let k'
be what l would hold after its refill. If

    f(k', Q) < beta(Q, s) f(k_r, Q),        beta = h(Q) q(s),   h(Q) = b (p + (1 - p) tanh(z sum Q)),

l stalls: it takes no job until what it holds is a subset of k_r, and is then filled up to k_r and packs again. The refill
is by size (largest first) while beta <= 0, and by weight (the better of several fillings) above. docs/theory/guarded.md has
the proof that this keeps Algorithm 1's guarantee.
"""

from __future__ import annotations

from slotwise._kernel import kernel
from slotwise.scheduling import fitindex
from slotwise.scheduling.moves import reindex, start
from slotwise.scheduling.policies.fitting import set_need
from slotwise.scheduling.policies.slots import beta
from slotwise.scheduling.state import (
    ACTIVE,
    CLASS,
    COUNT,
    HEAD,
    MODE,
    NEXT,
    STALLED,
    State,
    capacity,
    choice,
    demand,
    free,
    head,
    job_demand,
    jobs,
    need,
    order,
    queue_length,
    queues,
    running,
    servers,
    stall_reason,
    weight,
)
from slotwise.scheduling.weights import best_configuration, best_weight, holds_within

# policy_ints beside those of `slots`
FILLS = 8
BY_SIZE, BY_WEIGHT, BY_DENSITY = 0, 1, 2


def arrive(s: State, j: int, i: int) -> None:
    """A new head of line goes where least is left free, among the servers that are not stalled."""
    if head(s, j) == i:
        place_heads(s, j)


def complete(s: State, j: int, server: int) -> None:
    """Refill the server, or stall it where that would hold too little weight."""
    if s.n_waiting > 0:
        consider(s, server)
    elif servers(s)[server, MODE] == STALLED:
        pack_again(s, server)


def join(s: State, server: int, _: int) -> None:
    """A new server packs."""
    servers(s)[server, MODE] = ACTIVE
    if s.n_waiting > 0:
        consider(s, server)


def leave(s: State, server: int, _: int) -> None:
    """A server that goes does not count as stalled."""
    if servers(s)[server, MODE] == STALLED:
        s.n_stalled -= 1
    servers(s)[server, MODE] = ACTIVE


def cancel(s: State, j: int, i: int) -> None:
    """The next in line may be smaller."""
    if s.n_waiting > 0:
        place_heads(s, j)


@kernel
def consider(s: State, server: int) -> None:
    """What to do with the room on a server while jobs wait."""
    row = servers(s)[server]
    if row[MODE] == STALLED:
        if row[COUNT] == 0 or drained(s, server):
            reset(s, server)
        return
    share = beta(s)
    if share <= 0.0:
        plan(s, server, BY_SIZE)
    else:
        mine = best_plan(s, server)
        best = best_weight(s, server)
        if mine < share * best and row[COUNT] > 0:
            reason = stall_reason(s)[server]
            reason[0], reason[1], reason[2] = mine, share, best
            stall(s, server)
            if drained(s, server):
                reset(s, server)
            return
    carry_out(s, server)


@kernel
def best_plan(s: State, server: int) -> float:
    """The weightiest of the fillings, left in choice(s)[1]; returns f(k', Q)."""
    best, rule = -1.0, BY_SIZE
    for other in range(3):
        value = plan(s, server, other)
        if value > best:
            best, rule = value, other
    if rule != 2:
        plan(s, server, rule)
    return best


@kernel
def plan(s: State, server: int, rule: int) -> float:
    """Fill what is free on the server with waiting jobs, on paper: how many of each type, into choice(s)[1].

    Types are taken in the order of the rule, each as often as its next job in line fits. Returns the weight of what the
    server would hold.
    """
    rows, counts, rest, on, w = jobs(s), choice(s)[1], need(s), running(s)[server], weight(s)
    _set_order(s, server, rule)
    for r in range(s.n_resources):
        rest[r] = free(s)[server, r]
    total = 0.0
    for j in range(s.n_types):
        counts[j] = 0
        total += w[j] * on[j]
    for n in range(s.n_types):
        j = order(s)[2, n]
        i = queues(s)[j, HEAD]
        while i >= 0:
            fits = True
            for r in range(s.n_resources):
                fits = fits and rest[r] >= (job_demand(s)[i, r] if s.actual else demand(s)[j, r])
            if not fits:
                break
            for r in range(s.n_resources):
                rest[r] -= job_demand(s)[i, r] if s.actual else demand(s)[j, r]
            counts[j] += 1
            total += w[j]
            i = rows[i, NEXT]
    return total


@kernel
def _set_order(s: State, server: int, rule: int) -> None:
    """Types in the order of a filling: by size, by queue, or by queue per largest share of the server."""
    ranks, whole = order(s), capacity(s)[servers(s)[server, CLASS]]
    for n in range(s.n_types):
        ranks[2, n] = ranks[0, n]
    if rule == BY_SIZE:
        return
    for n in range(1, s.n_types):  # few types, and nearly sorted from call to call
        j = ranks[2, n]
        value, at = _value(s, j, whole, rule), n
        while at > 0 and _value(s, ranks[2, at - 1], whole, rule) < value:
            ranks[2, at] = ranks[2, at - 1]
            at -= 1
        ranks[2, at] = j


@kernel
def _value(s: State, j: int, whole: object, rule: int) -> float:
    if rule == BY_WEIGHT:
        return float(weight(s)[j])
    share = 0.0
    for r in range(s.n_resources):
        if whole[r] > 0:  # type: ignore[index]
            share = max(share, demand(s)[j, r] / whole[r])  # type: ignore[index]
    return float(weight(s)[j] / share) if share > 0.0 else float(weight(s)[j])


@kernel
def carry_out(s: State, server: int) -> None:
    """Start what choice(s)[1] says."""
    for n in range(s.n_types):
        j = order(s)[0, n]
        for _ in range(choice(s)[1, j]):
            start(s, j, server)
    settle(s)


@kernel
def stall(s: State, server: int) -> None:
    """No more jobs for this server until it resets; the index no longer offers it."""
    servers(s)[server, MODE] = STALLED
    s.n_stalled += 1
    s.stalls += 1
    reindex(s, server)


@kernel
def pack_again(s: State, server: int) -> None:
    """The server is stalled no longer."""
    servers(s)[server, MODE] = ACTIVE
    s.n_stalled -= 1
    s.resets += 1
    reindex(s, server)


@kernel
def drained(s: State, server: int) -> bool:
    """Whether what the server holds is a subset of k_r, which is then in choice(s)[0]."""
    best_configuration(s, server)
    return holds_within(s, server, choice(s)[0])


@kernel
def reset(s: State, server: int) -> None:
    """Fill the server up to k_r, then with whatever else fits."""
    if servers(s)[server, COUNT] == 0:
        best_configuration(s, server)
    pack_again(s, server)
    on = running(s)[server]
    for j in range(s.n_types):
        while on[j] < choice(s)[0, j] and queue_length(s)[j] > 0:
            start(s, j, server)
    plan(s, server, BY_SIZE)
    carry_out(s, server)


@kernel
def settle(s: State) -> None:
    """A smaller job may have come to the head of its line, and fit where the one before it did not."""
    if s.actual:
        for j in range(s.n_types):
            place_heads(s, j)


@kernel
def place_heads(s: State, j: int) -> None:
    """Place the head of line of type j, and the next, while some server that is not stalled has room."""
    while queues(s)[j, HEAD] >= 0:
        set_need(s, j)
        server = fitindex.best(s, need(s))
        if server < 0:
            return
        start(s, j, server)

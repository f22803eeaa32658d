"""`guarded`: packs tightly while queues are short, and guards itself as Algorithm 1 does when they grow.

A server packs work-conservingly by what jobs really ask for: an arriving job goes where it spoils least usable room
(`usable`), and a server takes the filling of most worth (`fillings`). On a completion at server l, with weights W of Q
before any refill, let k' be what l would hold after its refill and k_r its max-weight configuration. If

    f(k', W) < beta(Q, s) f(k_r, W),        beta = h(Q) q(s),   h(Q) = b (p + (1 - p) tanh(z sum Q)),

l turns to k_r: it takes only jobs within k_r, as soon as there is room for them, until all it holds is within k_r; then it
packs again. Jobs outside k_r are not interrupted, they are not replaced. Unlike a stalled server of Algorithm 1, a turning
one works all the time. docs/theory/guarded.md has the proof that this keeps Algorithm 1's guarantee.
"""

from __future__ import annotations

import math

from slotwise._kernel import kernel
from slotwise.scheduling import bitmap, fitindex
from slotwise.scheduling.moves import reindex, start
from slotwise.scheduling.policies.fillings import best_filling, by_type, set_room, set_weights
from slotwise.scheduling.policies.fitting import fits, set_need
from slotwise.scheduling.policies.slots import beta
from slotwise.scheduling.policies.usable import SPOILS, TINY, count_server, notice_use, spoilt
from slotwise.scheduling.state import (
    EMPTY,
    HEAD,
    MODE,
    STALLED,
    State,
    choice,
    configuration,
    demand,
    free,
    head,
    job_demand,
    need,
    order,
    policy_ints,
    queue_length,
    queues,
    running,
    servers,
    stall_reason,
)
from slotwise.scheduling.weights import best_configuration, best_weight, holds_within

LOOKS = 256
"""An arriving job looks at so many kinds of servers at most."""


def arrive(s: State, j: int, i: int) -> None:
    """A new head of line is placed if it fits anywhere."""
    if s.actual and policy_ints(s)[SPOILS]:
        # V(F) is about whole jobs of the types; where jobs ask for less than their types it says nothing
        for r in range(s.n_resources):
            if job_demand(s)[i, r] != demand(s)[j, r]:
                policy_ints(s)[SPOILS] = 0
    if head(s, j) == i:
        place_heads(s, j)


def complete(s: State, j: int, server: int) -> None:
    """Room on the server: refill it, or turn it to a better configuration."""
    notice_use(s)
    if servers(s)[server, MODE] == STALLED:
        go_on_turning(s, server)
    elif s.n_waiting > 0:
        refill(s, server)


def join(s: State, server: int, _: int) -> None:
    """A new server packs."""
    count_server(s, server, 1)
    servers(s)[server, MODE] = EMPTY
    if s.n_waiting > 0:
        refill(s, server)


def leave(s: State, server: int, _: int) -> None:
    """A server that goes turns no more."""
    if servers(s)[server, MODE] == STALLED:
        s.n_stalled -= 1
        _forget_slots(s, server)
    servers(s)[server, MODE] = EMPTY
    count_server(s, server, -1)


def cancel(s: State, j: int, i: int) -> None:
    """The next in line may be smaller."""
    if s.n_waiting > 0:
        place_heads(s, j)


@kernel
def refill(s: State, server: int) -> None:
    """Start the best filling on a packing server, or turn the server where that would weigh too little."""
    set_weights(s)
    mine = best_filling(s, server)
    share = beta(s)
    if share > 0.0:
        best = best_weight(s, server)
        if mine < share * best:
            reason = stall_reason(s)[server]
            reason[0], reason[1], reason[2] = mine, share, best
            turn(s, server)
            return
    _start_filling(s, server)


@kernel
def turn(s: State, server: int) -> None:
    """Turn the server to k_r; where it holds nothing else it has turned already."""
    best_configuration(s, server)
    for j in range(s.n_types):
        configuration(s)[server, j] = choice(s)[0, j]
    servers(s)[server, MODE] = STALLED
    s.n_stalled += 1
    s.stalls += 1
    reindex(s, server)
    go_on_turning(s, server)


@kernel
def go_on_turning(s: State, server: int) -> None:
    """Start what the slots admit; end the turn when all that the server holds is within them, or nobody waits."""
    slots, on = configuration(s)[server], running(s)[server]
    for n in range(s.n_types):
        j = order(s)[0, n]
        while on[j] < slots[j] and queue_length(s)[j] > 0:
            set_need(s, j)
            if not fits(s, server, need(s)):
                break
            start(s, j, server)
    if s.n_waiting == 0 or holds_within(s, server, slots):
        _forget_slots(s, server)
        servers(s)[server, MODE] = EMPTY
        s.n_stalled -= 1
        s.resets += 1
        reindex(s, server)
        if s.n_waiting > 0:
            set_weights(s)
            best_filling(s, server)
            _start_filling(s, server)
    else:
        _open_slots(s, server)
        _settle(s)


@kernel
def _open_slots(s: State, server: int) -> None:
    """Which types a turning server takes at once when they arrive."""
    slots, on = configuration(s)[server], running(s)[server]
    for j in range(s.n_types):
        if on[j] < slots[j] and fits(s, server, demand(s)[j]):
            bitmap.add(s, j, server)
        else:
            bitmap.discard(s, j, server)


@kernel
def _forget_slots(s: State, server: int) -> None:
    for j in range(s.n_types):
        bitmap.discard(s, j, server)
        configuration(s)[server, j] = 0


@kernel
def _start_filling(s: State, server: int) -> None:
    """Start what choice(s)[1] says."""
    for n in range(s.n_types):
        j = order(s)[0, n]
        for _ in range(choice(s)[1, j]):
            start(s, j, server)
    _settle(s)


@kernel
def _settle(s: State) -> None:
    """A smaller job may have come to the head of its line, and fit where the one before it did not."""
    if s.actual:
        for j in range(s.n_types):
            place_heads(s, j)


@kernel
def place_heads(s: State, j: int) -> None:
    """Place the head of line of type j, and the next, while some server takes it."""
    while queues(s)[j, HEAD] >= 0:
        server = bitmap.first(s, j)
        if server >= 0:
            start(s, j, server)
            _open_slots(s, server)
            continue
        set_need(s, j)
        server = find_server(s, j)
        if server < 0:
            return
        start(s, j, server)


@kernel
def find_server(s: State, j: int) -> int:
    """The packing server on which the head of line of type j spoils least, then leaves least; -1 where it fits nowhere."""
    winner = fitindex.best(s, need(s))
    if winner < 0:
        return winner
    if s.actual and by_type(s):
        set_room(s, winner, need(s))
        for r in range(s.n_resources):
            if need(s)[r] < demand(s)[j, r]:
                return -1
        return winner
    if not policy_ints(s)[SPOILS]:
        return winner
    least = spoilt(s, free(s)[winner], j, need(s))
    if least < TINY:
        return winner  # nothing spoilt, and the best fit
    rooms, left, looks = fitindex.group_free(s), math.inf, 0
    for c in range(s.n_classes):
        listed, coefficients = fitindex.cell_list(s)[c], fitindex.score(s)[c]
        for n in range(1, listed[0] + 1):
            g = fitindex.cells(s)[listed[n], 0]
            while g >= 0:
                covers, residual = True, 0.0
                for r in range(s.n_resources):
                    covers = covers and rooms[g, r] >= need(s)[r]
                    residual += coefficients[r] * rooms[g, r]
                if covers:
                    looks += 1
                    if looks > LOOKS:
                        return winner
                    here = spoilt(s, rooms[g], j, need(s))
                    if here < least - TINY or (here < least + TINY and residual < left):
                        winner, least, left = int(fitindex.groups(s)[g, fitindex.FIRST]), here, residual
                g = fitindex.groups(s)[g, fitindex.NEXT_IN_CELL]
    return winner

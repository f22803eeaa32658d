"""Algorithm 1 of the paper, and M14 (MaxWeight at local refresh times): servers with fixed configurations of slots.

On a completion at server l, with Q taken before any refill, Algorithm 1 stalls l when

    f(k~, Q) < beta(Q, s) f(k_r, Q),        beta = h(Q) q(s),   h(Q) = b (p + (1 - p) tanh(z sum Q)),

or beta = h(Q) q(s) with h(Q) = 1 - slack / (1 + sum Q / scale)^power, which tends to 1. A stalled server is reset to
k_r when it has drained; with reduced stalls, as soon as its jobs are a subset of k_r. A server that does not stall
refills its slots only. M14 is the same without ever stalling. An empty server has nothing to preempt and so holds no
configuration: it takes k_r at the moment it can next start a job. `faithful` gives the paper's own words back.
"""

from __future__ import annotations

import math

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural
from slotwise.core import state as st
from slotwise.core.contract.memory import Memory
from slotwise.core.indexes import bitmap
from slotwise.core.indexes.weights import (
    FEW_COLUMNS,
    best_above,
    best_configuration,
    holds_within,
    may_hold,
    weight_of,
    weights_at,
)
from slotwise.core.steps import queue_at, start
from slotwise.packing.kernels import TABLE

MEMORY = Memory()
FAITHFUL = MEMORY.count("faithful", kept=False)
REDUCES = MEMORY.count("reduces", kept=False)
STALLS = MEMORY.count("stalls", kept=False)
ADAPTS = MEMORY.count("adapts", kept=False)
SPREADS = MEMORY.count("spreads", kept=False)
CAP_TOP = MEMORY.count("cap_top", kept=False)
CAP_BOTTOM = MEMORY.count("cap_bottom", kept=False)
B = MEMORY.number("b", kept=False)
P = MEMORY.number("p", kept=False)
Z = MEMORY.number("z", kept=False)
SLACK = MEMORY.number("slack", kept=False)
SCALE = MEMORY.number("scale", kept=False)
POWER = MEMORY.number("power", kept=False)
CONSTANT, TO_B, SUBLINEAR = 0, 1, 2  # ADAPTS
KNOWN = 4096
H = MEMORY.block("h", KNOWN)  # h(Q) for sum Q < KNOWN
# weight, beta and best weight, or one that is enough, at the moment the server stalled
BECAUSE = MEMORY.numbers("because", per="server", columns=3)
REMEMBERED = 16  # classes, a power of two
OWN_MEMORY = Memory(MEMORY)  # of the policies whose hooks are here
# the server that last took the best configuration of its class, by the class's number modulo REMEMBERED
LATEST = OWN_MEMORY.servers("latest", per=REMEMBERED)
NAMED = 7  # types with slots on one server: with their number they fill a cache line of 64 bytes
# The number of types with slots on the server, then the types in order. The number is 0 if the types are too many or
# have not been noted.
SLOT_TYPES = OWN_MEMORY.counts("slot_types", per="server", columns=1 + NAMED, kept=False)


def arrive(s: st.State, j: int, i: int) -> None:
    """Start the job on the lowest-numbered active server with an empty slot of its type. Otherwise reset an empty
    server for it."""
    j = natural(j)
    if s.own_queues:
        _arrive_at(s, j, st.jobs(s)[i, st.QUEUE] // s.n_types)
        return
    server = bitmap.first(s, j)
    if server >= 0:
        fill_slot(s, j, server)
    elif not st.policy_ints(s)[FAITHFUL]:
        # once is enough, unless a failure brought back jobs of several types and the best serves another one first
        server = first_empty(s, j)
        while server >= 0 and st.jobs(s)[i, st.SERVER] == st.WAITING:
            reset(s, server)
            server = first_empty(s, j)


@kernel
def _arrive_at(s: st.State, j: int, server: int) -> None:
    if server == s.max_servers:
        return  # no present server takes this type
    if st.servers(s)[server, st.MODE] == st.EMPTY:
        reset(s, server)
        return
    # after a failure jobs come back that are older than this one, and start before it: there may be slots for both
    while st.configuration(s)[server, j] > st.running(s)[server, j] and waits(s, j, server):
        fill_slot(s, j, server)


def complete(s: st.State, j: int, server: int) -> None:
    """Refill the slot, or stall the server, or reset it if it is empty."""
    j, server = natural(j), natural(server)
    row, faithful = st.servers(s)[server], st.policy_ints(s)[FAITHFUL]
    if row[st.COUNT] == 0 and not faithful:
        become_empty(s, server)
        reset(s, server)
        return
    if row[st.MODE] == st.ACTIVE and st.policy_ints(s)[STALLS] and loses(s, server):
        stall(s, server)
    if row[st.MODE] == st.STALLED:
        if row[st.COUNT] == 0 or (st.policy_ints(s)[REDUCES] and may_hold(s, server, _latest_weight(s, server))):
            best_configuration(s, server)
            if row[st.COUNT] == 0 or holds_within(s, server, st.choice(s)[0]):
                activate(s, server)
    elif waits(s, j, server):
        fill_slot(s, j, server)
    else:
        bitmap.add(s, j, server)


def join(s: st.State, server: int, _: int) -> None:
    """Make the new server empty, without a configuration."""
    _come_empty(s, server)


@kernel
def _come_empty(s: st.State, server: int) -> None:
    st.servers(s)[server, st.MODE] = st.EMPTY
    if st.policy_ints(s)[FAITHFUL]:
        best_configuration(s, server)
        activate(s, server)
    else:
        bitmap.add(s, s.n_types + st.servers(s)[server, st.CLASS], server)
        reset(s, server)


def resume(s: st.State, server: int, _: int) -> None:
    """Give a server that may hold jobs a configuration. If its jobs are within the best configuration, the server
    takes that configuration. Otherwise its jobs become its slots, whose weight is judged at its next completion.
    If the jobs do not fit by the demands of their types, because another policy has packed them by their actual
    demands, the server stalls."""
    row, chosen, on = st.servers(s)[server], st.choice(s)[0], st.running(s)[server]
    if row[st.COUNT] == 0:
        _come_empty(s, server)
        return
    best_configuration(s, server)
    if not holds_within(s, server, chosen):
        if not _fits_by_type(s, server):
            stall(s, server)
            return
        for j in range(s.n_types):
            chosen[j] = on[j]
    activate(s, server)


@kernel
def _fits_by_type(s: st.State, server: int) -> bool:
    """Return whether the jobs on the server fit it by the demands of their types."""
    for r in range(s.n_resources):
        taken = 0
        for j in range(s.n_types):
            taken += st.running(s)[server, j] * st.demand(s)[j, r]
        if taken > st.capacity(s)[st.servers(s)[server, st.CLASS], r]:
            return False
    return True


def file(s: st.State, server: int, _: int) -> None:
    """Offer what the server has, from its restored mode and slots."""
    row, slots, on = st.servers(s)[server], st.configuration(s)[server], st.running(s)[server]
    if row[st.STATUS] != st.PRESENT:
        return
    if row[st.MODE] == st.EMPTY:
        bitmap.add(s, s.n_types + row[st.CLASS], server)
    for j in range(s.n_types if row[st.MODE] == st.ACTIVE else 0):
        if on[j] < slots[j]:
            bitmap.add(s, j, server)


def leave(s: st.State, server: int, _: int) -> None:
    """Withdraw all that the server offers. It takes no more jobs."""
    row = st.servers(s)[server]
    _close_slots(s, server)
    if row[st.MODE] == st.STALLED:
        s.n_stalled -= 1
    bitmap.discard(s, s.n_types + row[st.CLASS], server)
    row[st.MODE] = st.EMPTY
    forget_slots(s, server)


@kernel
def beta(s: st.State) -> float:
    """Return beta(Q, s): the share of the best weight that a configuration must be worth."""
    numbers, options = st.policy_floats(s), st.policy_ints(s)
    value = numbers[B]
    if options[ADAPTS]:
        if s.n_waiting < KNOWN:
            value = numbers[H + natural(s.n_waiting)]
        elif options[ADAPTS] == SUBLINEAR:
            value = 1.0 - numbers[SLACK] * math.pow(1.0 + s.n_waiting / numbers[SCALE], -numbers[POWER])
        else:
            value = numbers[B] * (numbers[P] + (1.0 - numbers[P]) * math.tanh(numbers[Z] * s.n_waiting))
    if options[SPREADS] > 0:
        if is_capped(s):
            return 0.0
        if options[SPREADS] == 2:
            value *= 1.0 - s.n_stalled / s.n_servers
    return value


@kernel
def is_capped(s: st.State) -> bool:
    """Return whether as many servers stall as may at a time."""
    options = st.policy_ints(s)
    return bool(options[SPREADS] > 0 and s.n_stalled * options[CAP_BOTTOM] >= options[CAP_TOP] * s.n_servers)


@kernel
def share_of(s: st.State, server: int) -> float:
    """Return beta(Q, s) for this server. A beta that tends to 1 is multiplied by the share r of the best that the
    solver is sure to find. Otherwise two configurations, both as good as the solver promises, could stall a
    server without end."""
    share = beta(s)
    if st.policy_ints(s)[ADAPTS] == SUBLINEAR:
        share *= st.near(s)[st.servers(s)[server, st.CLASS]]
    return share


@kernel
def loses(s: st.State, server: int) -> bool:
    """Return whether f(k~, Q) < beta f(k_r, Q), strictly. If so, note the figures for an explanation. One
    configuration that is worth so much more is enough, such as the one that a server of the class took last."""
    if s.n_waiting == 0:
        return False  # all weights are 0
    share = share_of(s, server)
    if share <= 0.0:
        return False  # weights are not negative
    mine = _slots_weight(s, server)
    best = _latest_weight(s, server)
    if share * best <= mine:
        best = best_above(s, server, mine, share)
    if best >= 0.0:
        note_reason(s, server, mine, share, best)
    return best >= 0.0


@kernel
def _latest_weight(s: st.State, server: int) -> float:
    """Return f(k, Q) of the configuration k that a server of this class took last, if the server still has it.
    Return -1 otherwise, and if the candidates are listed: then the best is found as quickly."""
    c = st.servers(s)[server, st.CLASS]
    latest = st.int_field(s, LATEST)[c & (REMEMBERED - 1)] - 1
    if st.classes(s)[c, st.SOLVER] == TABLE or latest < 0 or st.servers(s)[latest, st.CLASS] != c:
        return -1.0
    return _slots_weight(s, latest)


@kernel
def _named(s: st.State, server: int) -> int:
    """Return how many types with slots are named. With few types none are: looking through all types is as quick."""
    return natural(st.int_table(s, SLOT_TYPES)[natural(server), 0]) if s.n_types > FEW_COLUMNS else 0


@kernel
def _slots_weight(s: st.State, server: int) -> float:
    """Return f(k-tilde, Q) of the server's configuration. Leaving out the types without a slot changes no bit of
    the sum."""
    server = natural(server)
    n = _named(s, server)
    if n == 0:
        return weight_of(s, server)
    slots, w, total = st.configuration(s)[server], weights_at(s, server), 0.0
    for i in range(n):
        j = natural(st.int_table(s, SLOT_TYPES)[server, 1 + i])
        total += w[j] * slots[j]
    return total


@kernel
def note_reason(s: st.State, server: int, weight: float, share: float, best: float) -> None:
    """Note why the server stalls: its weight is less than this share of the best."""
    reason = st.float_table(s, BECAUSE)[server]
    reason[0], reason[1], reason[2] = weight, share, best


@kernel
def stall(s: st.State, server: int) -> None:
    """Stall the server: it takes no job until it resets."""
    _close_slots(s, server)
    st.servers(s)[server, st.MODE] = st.STALLED
    s.n_stalled += 1
    s.stalls += 1


@kernel
def become_empty(s: st.State, server: int) -> None:
    """Take the configuration off a server that has become empty."""
    row = st.servers(s)[server]
    if row[st.MODE] == st.STALLED:
        s.n_stalled -= 1
    else:
        _close_slots(s, server)
    row[st.MODE] = st.EMPTY
    forget_slots(s, server)
    bitmap.add(s, s.n_types + row[st.CLASS], server)


@kernel
def reset(s: st.State, server: int) -> None:
    """Give an empty server the best configuration if that starts a job now; else it stays without one."""
    if not s.own_queues and s.n_waiting == 0:
        return
    if best_configuration(s, server) > 0.0:
        bitmap.discard(s, s.n_types + st.servers(s)[server, st.CLASS], server)
        activate(s, server)


@kernel
def activate(s: st.State, server: int) -> None:
    """Take choice(s)[0] as the configuration and start every waiting job that the new slots admit."""
    row, slots, chosen, on = (
        st.servers(s)[server],
        st.configuration(s)[server],
        st.choice(s)[0],
        st.running(s)[server],
    )
    named, n = st.int_table(s, SLOT_TYPES)[natural(server)], 0
    names = s.n_types > FEW_COLUMNS
    if row[st.MODE] == st.STALLED:
        s.n_stalled -= 1
    row[st.MODE] = st.ACTIVE
    st.int_field(s, LATEST)[row[st.CLASS] & (REMEMBERED - 1)] = server + 1
    s.resets += 1
    forget_slots(s, server)
    for j in range(s.n_types):
        if chosen[j] > 0:
            slots[j] = chosen[j]
            if names:
                named[1 + min(n, NAMED - 1)] = j
                n += 1
            while on[j] < slots[j] and waits(s, j, server):
                start(s, j, server)
            if on[j] < slots[j]:
                bitmap.add(s, j, server)
    if names:
        named[0] = n if n <= NAMED else 0


@kernel
def fill_slot(s: st.State, j: int, server: int) -> None:
    """Start the head of line of type j in one of the server's slots."""
    j, server = natural(j), natural(server)
    start(s, j, server)
    if st.running(s)[server, j] == st.configuration(s)[server, j]:
        bitmap.discard(s, j, server)


@kernel
def waits(s: st.State, j: int, server: int) -> bool:
    """Return whether a type-j job waits for this server."""
    return bool(st.queues(s)[queue_at(s, j, server), st.LENGTH] > 0)


@kernel
def first_empty(s: st.State, j: int) -> int:
    """Return the lowest-numbered empty server that could hold a job of type j, or -1."""
    best = -1
    for c in range(s.n_classes):
        if st.most(s)[c, j] > 0:
            server = bitmap.first(s, s.n_types + c)
            if server >= 0 and (best < 0 or server < best):
                best = server
    return best


@kernel
def forget_slots(s: st.State, server: int) -> None:
    """Remove the server's configuration."""
    n, slots = _named(s, server), st.configuration(s)[natural(server)]
    if n == 0:
        for j in range(s.n_types):
            slots[j] = 0
        return
    named = st.int_table(s, SLOT_TYPES)[natural(server)]
    for i in range(n):
        slots[natural(named[1 + i])] = 0
    named[0] = 0


@kernel
def _close_slots(s: st.State, server: int) -> None:
    n, slots, on = _named(s, server), st.configuration(s)[server], st.running(s)[server]
    for i in range(n if n > 0 else natural(s.n_types)):
        j = natural(st.int_table(s, SLOT_TYPES)[natural(server), 1 + i]) if n > 0 else i
        if slots[j] > on[j]:
            bitmap.discard(s, j, server)

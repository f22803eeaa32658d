"""`guarded`: experimental second version."""

from __future__ import annotations

import math

from slotwise._kernel import kernel
from slotwise.scheduling import bitmap, fitindex
from slotwise.scheduling.moves import reindex, start
from slotwise.scheduling.policies.fitting import fits, set_need
from slotwise.scheduling.queues import oldest_head
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
    configuration,
    demand,
    free,
    head,
    job_demand,
    jobs,
    need,
    order,
    policy_floats,
    policy_ints,
    queue_length,
    queues,
    running,
    sequence,
    servers,
    stall_reason,
    weight,
)
from slotwise.scheduling.weights import best_configuration, best_weight, holds_within

# policy_ints
SOFT, PLANS, SCALE_BY, LOSSES = 0, 1, 2, 3
# policy_floats
B, Z, C, CAP, E = 0, 1, 2, 3, 4
PRICE = 8  # from here: J prices, J R bounds, then the memo of usable room
WORK = 16  # from here: room to work in, then the keys of the memo
MEMO = 4096
NODES = 2000
BY_SIZE, BY_WEIGHT, BY_DENSITY, BY_AGE = 0, 1, 2, 3


def arrive(s: State, j: int, i: int) -> None:
    """A new head of line goes where least is left free."""
    if head(s, j) == i:
        place_heads(s, j)


def complete(s: State, j: int, server: int) -> None:
    """Refill the server, or turn it to another configuration."""
    consider(s, server)


def join(s: State, server: int, _: int) -> None:
    """A new server packs."""
    servers(s)[server, MODE] = ACTIVE
    if s.n_waiting > 0:
        consider(s, server)


def leave(s: State, server: int, _: int) -> None:
    """A server that goes does not count as stalled."""
    if servers(s)[server, MODE] == STALLED:
        s.n_stalled -= 1
        close_slots(s, server)
    servers(s)[server, MODE] = ACTIVE


def cancel(s: State, j: int, i: int) -> None:
    """The next in line may be smaller."""
    if s.n_waiting > 0:
        place_heads(s, j)


@kernel
def scale(s: State) -> float:
    """The unit of queue length."""
    by = policy_ints(s)[SCALE_BY]
    if by == 1:
        return float(max(1, s.n_servers))
    if by == 2:
        return float(max(1, s.n_running))
    if by == 3:
        return math.sqrt(float(max(1, s.n_running)))
    if by == 4:
        return math.sqrt(float(max(1, s.n_servers)))
    if by == 5:
        return float(max(1, s.n_running)) / float(max(1, s.n_servers))
    return 1.0


@kernel
def share_needed(s: State, unit: float) -> float:
    """beta."""
    numbers = policy_floats(s)
    if s.n_stalled >= max(1.0, numbers[CAP] * s.n_servers):
        return 0.0
    return numbers[B] * math.tanh(numbers[Z] * s.n_waiting / unit)


@kernel
def set_weights(s: State, unit: float) -> None:
    """W = Q + c p."""
    c = policy_floats(s)[C] * unit
    for j in range(s.n_types):
        price = policy_floats(s)[PRICE + j]
        weight(s)[j] = price * c + price ** policy_floats(s)[E] * queue_length(s)[j]


@kernel
def usable(s: State, room: object) -> float:
    """V(room): the largest sum of prices of jobs that fit together into the room."""
    J, R = s.n_types, s.n_resources
    ints, reals = policy_ints(s), policy_floats(s)
    h = 1
    for r in range(R):
        h = (h * 1000003 + room[r]) % 2147483647  # type: ignore[index]
    h &= MEMO - 1
    keys, values = WORK + (J + 1) * R + J + h * R, PRICE + J + J * R
    known = reals[values + h] >= 0.0
    for r in range(R):
        known = known and ints[keys + r] == room[r]  # type: ignore[index]
    if not known:
        for r in range(R):
            ints[keys + r] = room[r]  # type: ignore[index]
        reals[values + h] = _most_usable(s, room)
    return float(reals[values + h])


@kernel
def _bound(s: State, n: int) -> float:
    """No filling of the room at depth n with types from there on is worth more."""
    J, R = s.n_types, s.n_resources
    ints, reals = policy_ints(s), policy_floats(s)
    least = math.inf
    for r in range(R):
        rate = reals[PRICE + J + n * R + r]
        if rate < math.inf:
            least = min(least, rate * ints[WORK + n * R + r])
    return least


@kernel
def _most_usable(s: State, room: object) -> float:
    """Depth-first search with a bound, the largest types first and as many as fit; exact within NODES steps."""
    J, R = s.n_types, s.n_resources
    ints, reals = policy_ints(s), policy_floats(s)
    rest, counts = WORK, WORK + (J + 1) * R
    for r in range(R):
        ints[rest + r] = room[r]  # type: ignore[index]
    n, value, best, down = 0, 0.0, 0.0, True
    for _ in range(NODES):
        if down and n < J and value + _bound(s, n) > best * (1.0 + 1e-12):
            j = order(s)[0, n]
            count = 1 << 30
            for r in range(R):
                if demand(s)[j, r] > 0:
                    count = min(count, ints[rest + n * R + r] // demand(s)[j, r])
            ints[counts + n] = count
            for r in range(R):
                ints[rest + (n + 1) * R + r] = ints[rest + n * R + r] - count * demand(s)[j, r]
            value += count * reals[PRICE + j]
            n += 1
            if value > best:
                best = value
            continue
        # back up to the last type of which there is one to give back
        n -= 1
        while n >= 0 and ints[counts + n] == 0:
            n -= 1
        if n < 0:
            break
        j = order(s)[0, n]
        ints[counts + n] -= 1
        value = 0.0
        for m in range(n + 1):
            value += ints[counts + m] * reals[PRICE + order(s)[0, m]]
        for r in range(R):
            ints[rest + (n + 1) * R + r] += demand(s)[j, r]
        n += 1
        down = True
    return best


@kernel
def loss_of(s: State, room: object, j: int, size: object) -> float:
    """How much usable room a job of type j would destroy there, beyond what it takes."""
    rest = choice_room(s)
    for r in range(s.n_resources):
        rest[r] = room[r] - size[r]  # type: ignore[index]
    return usable(s, room) - policy_floats(s)[PRICE + j] - usable(s, rest)


@kernel
def choice_room(s: State) -> object:
    """Room for a free vector."""
    return policy_ints(s)[8 : 8 + s.n_resources]


@kernel
def find_server(s: State, j: int) -> int:
    """The server for need(s): least loss, then least left; -1 where there is none, or where waiting is better."""
    if not policy_ints(s)[LOSSES]:
        return fitindex.best(s, need(s))
    rooms, winner, least, left = fitindex.group_free(s), -1, math.inf, math.inf
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
                    loss = loss_of(s, rooms[g], j, need(s))
                    if loss < 1e-9:
                        loss = 0.0
                    if loss < least or (loss == least and residual < left):
                        winner, least, left = fitindex.groups(s)[g, fitindex.FIRST], loss, residual
                g = fitindex.groups(s)[g, fitindex.NEXT_IN_CELL]
    return winner


@kernel
def consider(s: State, server: int) -> None:
    """What to do with the room on a server while jobs wait."""
    row = servers(s)[server]
    if row[MODE] == STALLED:
        if s.n_waiting == 0 or holds_within(s, server, configuration(s)[server]):
            pack_again(s, server)
        else:
            fill_slots(s, server)
            if s.actual:
                settle(s)
            return
    if s.n_waiting == 0:
        return
    unit = scale(s)
    set_weights(s, unit)
    mine = best_plan(s, server)
    if row[COUNT] > 0:
        share = share_needed(s, unit)
        best = best_weight(s, server) if share > 0.0 else 0.0
        if mine < share * best:
            best_configuration(s, server)
            if not holds_within(s, server, choice(s)[0]):
                reason = stall_reason(s)[server]
                reason[0], reason[1], reason[2] = mine, share, best
                turn(s, server)
                return
            for j in range(s.n_types):
                while running(s)[server, j] < choice(s)[0, j] and queue_length(s)[j] > 0:
                    start(s, j, server)
            set_weights(s, unit)
            best_plan(s, server)
    carry_out(s, server)


@kernel
def turn(s: State, server: int) -> None:
    """From now on only jobs of the configuration in choice(s)[0]."""
    row = servers(s)[server]
    row[MODE] = STALLED
    s.n_stalled += 1
    s.stalls += 1
    for j in range(s.n_types):
        configuration(s)[server, j] = choice(s)[0, j]
    reindex(s, server)
    if policy_ints(s)[SOFT]:
        fill_slots(s, server)
    settle(s)


@kernel
def fill_slots(s: State, server: int) -> None:
    """Start waiting jobs in the slots that have room."""
    if not policy_ints(s)[SOFT]:
        return
    slots, on = configuration(s)[server], running(s)[server]
    for n in range(s.n_types):
        j = order(s)[0, n]
        while on[j] < slots[j] and queue_length(s)[j] > 0:
            set_need(s, j)
            if not fits(s, server, need(s)):
                break
            start(s, j, server)
    open_slots(s, server)


@kernel
def open_slots(s: State, server: int) -> None:
    """Which arrivals the turning server takes: by type, as room for one of that type remains."""
    slots, on = configuration(s)[server], running(s)[server]
    for j in range(s.n_types):
        if on[j] < slots[j] and fits(s, server, demand(s)[j]):
            bitmap.add(s, j, server)
        else:
            bitmap.discard(s, j, server)


@kernel
def close_slots(s: State, server: int) -> None:
    """No more slots."""
    for j in range(s.n_types):
        bitmap.discard(s, j, server)
        configuration(s)[server, j] = 0


@kernel
def pack_again(s: State, server: int) -> None:
    """The server is stalled no longer: fill it up to its configuration, then it packs."""
    slots, on = configuration(s)[server], running(s)[server]
    for j in range(s.n_types):
        while on[j] < slots[j] and queue_length(s)[j] > 0:
            start(s, j, server)
    close_slots(s, server)
    servers(s)[server, MODE] = ACTIVE
    s.n_stalled -= 1
    s.resets += 1
    reindex(s, server)


@kernel
def best_plan(s: State, server: int) -> float:
    """The weightiest of the fillings, left in choice(s)[1]; returns f(k', Q)."""
    best, rule, last = -1.0, BY_SIZE, -1
    for other in range(4):
        if policy_ints(s)[PLANS] >> other & 1:
            value = plan(s, server, other)
            last = other
            if value > best:
                best, rule = value, other
    if rule != last:
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
    c = policy_floats(s)[C] * scale(s)
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
            fit = True
            for r in range(s.n_resources):
                fit = fit and rest[r] >= (job_demand(s)[i, r] if s.actual else demand(s)[j, r])
            if not fit:
                break
            for r in range(s.n_resources):
                rest[r] -= job_demand(s)[i, r] if s.actual else demand(s)[j, r]
            counts[j] += 1
            total += w[j]
            i = rows[i, NEXT]
    if policy_ints(s)[LOSSES]:
        total += c * usable(s, rest)
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
    if rule == BY_AGE:
        i = head(s, j)
        return -float(sequence(s)[i]) if i >= 0 else -math.inf
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
def settle(s: State) -> None:
    """A smaller job may have come to the head of its line, and fit where the one before it did not."""
    if s.actual:
        for j in range(s.n_types):
            place_heads(s, j)


@kernel
def place_heads(s: State, j: int) -> None:
    """Place the head of line of type j, and the next, while some server that is not stalled has room."""
    while queues(s)[j, HEAD] >= 0:
        server = bitmap.first(s, j)
        if server >= 0:
            start(s, j, server)
            open_slots(s, server)
            continue
        set_need(s, j)
        server = find_server(s, j)
        if server < 0:
            return
        start(s, j, server)

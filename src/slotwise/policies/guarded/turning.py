"""`guarded`: packs tightly while queues are short, and guards itself as Algorithm 1 does when they grow.

A server packs work-conservingly by what jobs really ask for: an arriving job goes where it costs others least
(`placing`), and a server takes the filling of most worth (`fillings`). On a completion at server l, with weights W of Q
before any refill, let k' be what l would hold after its refill and k_r its max-weight configuration. If

    f(k', W) < beta(Q, s) f(k_r, W),        beta = h(Q) q(s),   h(Q) = b (p + (1 - p) tanh(z sum Q)),

l turns to k_r: it takes only jobs within k_r, as soon as there is room for them, until all it holds is within k_r; then it
packs again. Jobs outside k_r are not interrupted, they are not replaced. Unlike a stalled server of Algorithm 1, a turning
one works all the time.

A turn loses 1 - f(k, W) / f(k_r, W) with every arrival and completion in the system. One that waits for a very long job loses much
and gains little; it is given up when it has lost P 2^n for each running job, n the turns that l has given up in a row
(in a mean service time two events come for each running job). Types of which few jobs run go before all this, within limits
(`floors`), and so do jobs that have waited very long, for whom servers also turn (`drains`). docs/theory/guarded.md has the proof that this keeps Algorithm 1's guarantee.
"""

from __future__ import annotations

import math

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import call_at
from slotwise.core.indexes import bitmap, line
from slotwise.core.indexes.weights import about_best_weight, best_above, best_configuration, holds_within
from slotwise.core.moves import reindex, start, start_job
from slotwise.core.queues import next_waiting
from slotwise.core.state import (
    CLASS,
    COUNT,
    EMPTY,
    HEAD,
    MODE,
    PRESENT,
    SERVER,
    STALLED,
    STATUS,
    WAITING,
    State,
    choice,
    configuration,
    demand,
    float_table,
    free,
    head,
    int_field,
    job_demand,
    jobs,
    need,
    order,
    policy_floats,
    policy_ints,
    queue_length,
    queues,
    running,
    servers,
)
from slotwise.policies.fit.fitting import fits, set_job_need, set_need, set_type_need
from slotwise.policies.guarded.drains import (
    NOBODY,
    choose_drain,
    drained_for,
    end_drain,
    go_on_with,
    has_drained,
    is_hopeless,
    notice_queue,
    serve_overdue,
)
from slotwise.policies.guarded.fillings import best_filling, by_type, held_weight, refresh_weights
from slotwise.policies.guarded.floors import holders, release_slot, release_slots, serve_floors
from slotwise.policies.guarded.gains import notice_arrival, notice_end, queues_are_long
from slotwise.policies.guarded.memory import (
    CLOCK,
    GO_ON,
    MAKE_USE,
    NEXT_LOOK,
    PERSISTENCE,
    PLACE,
    RAN,
    SETTLED,
    SPOILS,
    TURN,
)
from slotwise.policies.guarded.placing import find_server
from slotwise.policies.guarded.usable import count_servers, notice_use
from slotwise.policies.paper.slots import note_reason, share_of

SHORT, SINCE, LOST, TRIES = 0, 1, 2, 3
"""of TURN, for each server: the share of its best weight that it lacks, since which event, what that
has cost so far, and how many turns in a row it has given up"""


def arrive(s: State, j: int, i: int) -> None:
    """A new head of line is placed if it fits anywhere, and so is one that asks for less than those before it."""
    settled = policy_ints(s)[SETTLED] or s.n_waiting == 1
    policy_ints(s)[SETTLED] = 0  # this one may fit somewhere
    notice_job(s, j, i)
    take_in(s, j, i)
    as_usual = policy_ints(s)[SPOILS] and s.n_moved == 0 and not queues_are_long(s)
    policy_ints(s)[SETTLED] = settled and as_usual


@kernel
def notice_job(s: State, j: int, i: int) -> None:
    """Job i of type j has come: what is counted, and what is looked at every now and then."""
    if notice_arrival(s):
        notice_queue(s)
    policy_ints(s)[CLOCK] += 1
    if s.actual and policy_ints(s)[SPOILS]:
        # V(F) is about whole jobs of the types; where jobs ask for less than their types it says nothing
        for r in range(s.n_resources):
            if job_demand(s)[i, r] != demand(s)[j, r]:
                policy_ints(s)[SPOILS] = 0
    if s.n_stalled > 0:
        look_at_turns(s)


@kernel
def take_in(s: State, j: int, i: int) -> None:
    """Place job i of type j, which has just come, if that can be."""
    if head(s, j) == i:
        kept = holders(s)[j]
        place_heads(s, j)
        if holders(s)[j] != kept:
            _place_smaller(s)
    elif looks_past_heads(s) and jobs(s)[i, SERVER] == WAITING:
        call_at(policy_ints(s)[PLACE], s, j, i + 1)


def complete(s: State, j: int, server: int) -> None:
    """Room on the server: refill it, or turn it to a better configuration."""
    notice_end(s, j)
    notice_use(s)
    call_at(policy_ints(s)[MAKE_USE], s, server, j)


def stop(s: State, j: int, server: int) -> None:
    """The same, but a job that was stopped says nothing about how long jobs run."""
    policy_ints(s)[SETTLED] = 0
    call_at(policy_ints(s)[MAKE_USE], s, server, j)


def make_use(s: State, server: int, j: int) -> None:
    """The late part of both, and of `join`: compiled once. The job that has left was of type j; NOBODY where the server has come."""
    left = j != NOBODY
    if left:
        policy_ints(s)[CLOCK] += 1
        if servers(s)[server, COUNT] == 0:
            release_slots(s, server)
    if servers(s)[server, MODE] == STALLED:
        go_on_turning(s, server)
    elif s.n_waiting > 0:
        if left:
            serve_overdue(s, server)
            go_on_with(s, server, j)
        refill(s, server)
        if left:
            drain(s)
    if left and s.n_stalled > 0:
        look_at_turns(s)


def join(s: State, server: int, _: int) -> None:
    """A new server packs, and so does one that holds jobs."""
    policy_ints(s)[SETTLED] = 0
    notice_server(s, server)
    begin_to_pack(s, server)


@kernel
def begin_to_pack(s: State, server: int) -> None:
    """Start what is best on a server that has come."""
    call_at(policy_ints(s)[MAKE_USE], s, server, NOBODY)


@kernel
def notice_server(s: State, server: int) -> None:
    """The server has come."""
    count_servers(s)
    servers(s)[server, MODE] = EMPTY
    float_table(s, TURN)[server, TRIES] = 0.0


def leave(s: State, server: int, _: int) -> None:
    """A server that goes turns no more."""
    policy_ints(s)[SETTLED] = 0
    forget_server(s, server)


@kernel
def forget_server(s: State, server: int) -> None:
    """The server goes."""
    if servers(s)[server, MODE] == STALLED:
        s.n_stalled -= 1
        _forget_slots(s, server)
    servers(s)[server, MODE] = EMPTY
    release_slots(s, server)
    count_servers(s)


def file(s: State, server: int, _: int) -> None:
    """What is known of the server has been put back: say what it takes."""
    if servers(s)[server, STATUS] == PRESENT and servers(s)[server, MODE] == STALLED:
        _open_slots(s, server)


def cancel(s: State, j: int, i: int) -> None:
    """The next in line may be smaller."""
    policy_ints(s)[SETTLED] = 0
    if s.n_waiting > 0:
        place_heads(s, j)


@kernel
def refill(s: State, server: int) -> None:
    """Start the best filling on a packing server, or turn the server where that would weigh too little."""
    refresh_weights(s)
    serve_floors(s, server)
    mine, share = best_filling(s, server), share_of(s, server)
    best = best_above(s, server, mine, share) if share > 0.0 else -1.0
    if best >= 0.0:
        note_reason(s, server, mine, share, best)
        turn(s, server)
    else:
        _start_filling(s, server)


@kernel
def turn(s: State, server: int) -> None:
    """Turn the server to k_r; where it holds nothing else it has turned already."""
    release_slots(s, server)
    best_configuration(s, server)
    for j in range(s.n_types):
        configuration(s)[server, j] = choice(s)[0, j]
    begin_turn(s, server)


@kernel
def drain(s: State) -> None:
    """Turn a server to a job that has waited long, where that is due."""
    server = choose_drain(s)
    if server >= 0:
        release_slots(s, server)
        begin_turn(s, server)


@kernel
def begin_turn(s: State, server: int) -> None:
    """The server has its slots; it takes nothing else from now on."""
    servers(s)[server, MODE] = STALLED
    s.n_stalled += 1
    s.stalls += 1
    row = float_table(s, TURN)[server]
    row[LOST] = row[SHORT] = 0.0
    int_field(s, RAN)[server] = s.n_running
    reindex(s, server)
    go_on_turning(s, server)


@kernel
def go_on_turning(s: State, server: int) -> None:
    """Start what the slots admit; end the turn when all that the server holds is within them, its drain is over, or nobody waits."""
    call_at(policy_ints(s)[GO_ON], s, server, 0)


@kernel
def give_up_turn(s: State, server: int) -> None:
    """The server packs again, whatever it holds."""
    call_at(policy_ints(s)[GO_ON], s, server, 1)


def go_on(s: State, server: int, give_up: int) -> None:
    """The late part of both: compiled once."""
    slots, on = configuration(s)[server], running(s)[server]
    n = -1 if give_up else next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        while on[j] < slots[j] and queue_length(s)[j] > 0:
            set_need(s, j)
            if not fits(s, server, need(s)):
                break
            start(s, j, server)
        n = next_waiting(s, n + 1)
    done = not give_up and (s.n_waiting == 0 or holds_within(s, server, slots) or has_drained(s, server))
    if done:
        float_table(s, TURN)[server, TRIES] = 0.0
    if done or give_up:
        _end_turn(s, server)
    else:
        refresh_weights(s)
        if drained_for(s, server) < 0:  # what a drain may take was weighed when it began
            best = about_best_weight(s, server)
            lose(s, server, 1.0 - held_weight(s, server) / best if best > 0.0 else 0.0)
        _open_slots(s, server)
        _place_smaller(s)


@kernel
def _end_turn(s: State, server: int) -> None:
    """The server packs again."""
    _forget_slots(s, server)
    servers(s)[server, MODE] = EMPTY
    s.n_stalled -= 1
    s.resets += 1
    reindex(s, server)
    if s.n_waiting > 0:
        refresh_weights(s)
        best_filling(s, server)
        _start_filling(s, server)


@kernel
def look_at_turns(s: State) -> None:
    """Give up the turns that have lost too much, and the drains that take too long: what they lose was weighed before. Seldom enough that looking at
    all servers costs little."""
    whole = policy_ints(s)
    if whole[CLOCK] < whole[NEXT_LOOK]:
        return
    whole[NEXT_LOOK] = whole[CLOCK] + 1 + s.n_running // 4
    for server in range(s.n_places):
        if servers(s)[server, STATUS] == PRESENT and servers(s)[server, MODE] == STALLED:
            row = float_table(s, TURN)[server]
            ran = max(int_field(s, RAN)[server], s.n_running)  # a server that drains may be all there is
            enough = policy_floats(s)[PERSISTENCE] * math.pow(2.0, row[TRIES]) * ran
            lost = lose(s, server, row[SHORT])
            if is_hopeless(s, server) if drained_for(s, server) >= 0 else lost >= enough:
                row[TRIES] += 1.0
                give_up_turn(s, server)


@kernel
def lose(s: State, server: int, short: float) -> float:
    """What a turning server has lost, in events, and from now on it loses `short` of its best weight with each."""
    row, clock = float_table(s, TURN)[server], float(policy_ints(s)[CLOCK])
    row[LOST] += row[SHORT] * (clock - row[SINCE])
    row[SHORT], row[SINCE] = short, clock
    return float(row[LOST])


@kernel
def _open_slots(s: State, server: int) -> None:
    """Which types a turning server takes at once when they arrive."""
    slots, on = configuration(s)[server], running(s)[server]
    for j in range(s.n_types):
        set_type_need(s, j)
        if on[j] < slots[j] and fits(s, server, need(s)):
            bitmap.add(s, j, server)
        else:
            bitmap.discard(s, j, server)


@kernel
def _forget_slots(s: State, server: int) -> None:
    end_drain(s, server)
    for j in range(s.n_types):
        bitmap.discard(s, j, server)
        configuration(s)[server, j] = 0


@kernel
def _start_filling(s: State, server: int) -> None:
    """Start what choice(s)[1] says."""
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        for _ in range(choice(s)[1, j]):
            start(s, j, server)
        n = next_waiting(s, n + 1)
    if looks_past_heads(s):
        _take_others(s, server)
    _place_smaller(s)


@kernel
def looks_past_heads(s: State) -> bool:
    """Whether jobs of a type differ, and those behind the head of line may start before it."""
    return bool(s.keeps_line and not by_type(s))


@kernel
def _take_others(s: State, server: int) -> None:
    """Start whoever still fits on the server, wherever in line, from old to young."""
    while s.n_waiting > 0:
        i = line.oldest(s, free(s)[server], servers(s)[server, CLASS])
        if i < 0:
            return
        start_job(s, i, server)


@kernel
def _place_smaller(s: State) -> None:
    """A smaller job may have come to the head of its line, and fit where the one before it did not.

    Not where all that wait ask for what their types do (SETTLED). Then, after an arrival, no head of line fits on any server that packs, nor into an open slot:
    the one that has come was placed, or fits nowhere, and a completion makes room on one server only, which takes as much as fits, as does each server that
    packs again. So it stays until something else happens than arrivals and completions, such as a failure; and when a job comes while nobody waits, it is so again."""
    if s.actual and not policy_ints(s)[SETTLED]:
        n = next_waiting(s, 0)
        while n >= 0:
            place_heads(s, order(s)[0, n])
            n = next_waiting(s, n + 1)


@kernel
def place_heads(s: State, j: int) -> None:
    """Place the head of line of type j, and the next, while some server takes it."""
    call_at(policy_ints(s)[PLACE], s, j, 0)


def place(s: State, j: int, one: int) -> None:
    """The late part of `place_heads`: compiled once, not anew in all that ask for it. Or, where one > 0, place job one - 1 of type j, which is
    behind others in line: in the same loop, so that `find_server`, most of what is to be compiled, stands here once."""
    while queues(s)[j, HEAD] >= 0:
        if one > 0:
            set_job_need(s, one - 1)
        elif use_slot(s, j):
            continue
        else:
            set_need(s, j)
        server = find_server(s, j)
        if one > 0:
            if server >= 0:
                start_job(s, one - 1, server)
            return
        if server < 0:
            if release_slot(s, j):
                continue  # the room that was kept for this
            return
        start(s, j, server)


@kernel
def use_slot(s: State, j: int) -> bool:
    """Start the head of line of type j in an open slot of a server that turns, if there is one; returns whether it has started."""
    server = bitmap.first(s, j)
    if server < 0:
        return False
    start(s, j, server)
    _open_slots(s, server)
    return True

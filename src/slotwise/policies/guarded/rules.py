"""The rules of `guarded`, in the order in which a job meets them.

- Arrival: the job starts where it fits best, else it waits (`place`).
- Completion: the server takes the heaviest refill (R2, `refill`), or turns (R3). It turns if both are true:

      f(k', W) < max_k f(k, W) - F_l
      F_l / (2 g_l) completions have passed since its last turn

  Here k' is what it would hold after the refill, W are the weights (`weights`), F_l is its margin (`margin`).
- Turn: the server starts only jobs within its target, the configuration of most weight, until all that it holds is within the target.
  No job is interrupted. Then it takes a refill.

So no server that could start a waiting job stands empty (R1). `docs/theory/guarded.md` proves that this keeps queues bounded for every load inside the
capacity region.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.core.indexes import bitmap
from slotwise.core.indexes.weights import best_above, best_configuration, holds_within
from slotwise.core.moves import reindex, start, start_job
from slotwise.core.queues import next_waiting
from slotwise.core.state import (
    EMPTY,
    MODE,
    PRESENT,
    STALLED,
    STATUS,
    State,
    choice,
    configuration,
    float_table,
    head,
    int_field,
    need,
    order,
    policy_floats,
    queue_length,
    running,
    servers,
)
from slotwise.policies.fit.fitting import fits, set_job_need, set_need, set_type_need
from slotwise.policies.guarded.margin import count_completion, count_running, drain_time, largest_size, margin_of
from slotwise.policies.guarded.memory import DRAINS_EXPECTED, NEVER, REASON, SINCE_TURN
from slotwise.policies.guarded.placement import find_server
from slotwise.policies.guarded.refill import choose_refill, start_refill
from slotwise.policies.guarded.weights import weigh

TURNING = STALLED  # the mode in which the indexes leave a server out


def arrive(s: State, j: int, i: int) -> None:
    """Start job i of type j where it fits best, or let it wait."""
    count_running(s)
    if s.keeps_line or head(s, j) == i:
        place(s, j, i)


def complete(s: State, j: int, server: int) -> None:
    """Refill the server, or turn it to a better configuration."""
    count_completion(s, j)
    use_capacity(s, server)


def stop(s: State, j: int, server: int) -> None:
    """Do the same for a job that was stopped, which says nothing about service times."""
    use_capacity(s, server)


def join(s: State, server: int, _: int) -> None:
    """Refill a server that has joined."""
    servers(s)[server, MODE] = EMPTY
    int_field(s, SINCE_TURN)[server] = NEVER
    refill(s, server)


def resume(s: State, server: int, _: int) -> None:
    """Refill a server that takes jobs again."""
    refill(s, server)


def leave(s: State, server: int, _: int) -> None:
    """End the turn of a server that takes no more jobs."""
    if is_turning(s, server):
        end_turn(s, server)


def file(s: State, server: int, _: int) -> None:
    """List the open slots of a turning server that was put back from a situation."""
    if servers(s)[server, STATUS] == PRESENT and is_turning(s, server):
        list_open_slots(s, server)


@kernel
def place(s: State, j: int, i: int) -> None:
    """Start job i in an open slot of a turning server, else on the server that fits best, if there is one."""
    server = bitmap.first(s, j)
    if server >= 0:
        start_job(s, i, server)
        list_open_slots(s, server)
        return
    set_job_need(s, i)
    server = find_server(s, j)
    if server >= 0:
        start_job(s, i, server)


@kernel
def use_capacity(s: State, server: int) -> None:
    """Use the capacity that a job has left."""
    int_field(s, SINCE_TURN)[server] += 1
    if is_turning(s, server):
        continue_turn(s, server)
    elif s.n_waiting > 0:
        weigh(s)
        held = choose_refill(s, server)
        if should_turn(s, server, held):
            begin_turn(s, server)
        else:
            start_refill(s, server)


@kernel
def refill(s: State, server: int) -> None:
    """Start the heaviest refill (R2)."""
    if s.n_waiting > 0:
        weigh(s)
        choose_refill(s, server)
        start_refill(s, server)


@kernel
def should_turn(s: State, server: int, held: float) -> bool:
    """Return whether the server turns (R3): its content after the refill weighs too little, and its last turn was long enough ago."""
    margin = margin_of(s, server)
    if 2.0 * int_field(s, SINCE_TURN)[server] * largest_size(s, server) < margin:
        return False
    best = best_above(s, server, held + margin, 1.0)
    if best < 0.0:
        return False
    reason = float_table(s, REASON)[server]
    reason[0], reason[1], reason[2] = held, best, margin
    return True


@kernel
def is_turning(s: State, server: int) -> bool:
    """Return whether the server is turning."""
    return bool(servers(s)[server, MODE] == TURNING)


@kernel
def begin_turn(s: State, server: int) -> None:
    """Turn the server to its configuration of most weight."""
    policy_floats(s)[DRAINS_EXPECTED] += drain_time(s, server)
    best_configuration(s, server)
    for j in range(s.n_types):
        configuration(s)[server, j] = choice(s)[0, j]
    servers(s)[server, MODE] = TURNING
    s.n_stalled += 1
    s.stalls += 1
    reindex(s, server)
    continue_turn(s, server)


@kernel
def continue_turn(s: State, server: int) -> None:
    """Start waiting jobs within the target. End the turn if the content is within the target, or if no job waits."""
    slots, on = configuration(s)[server], running(s)[server]
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        while on[j] < slots[j] and queue_length(s)[j] > 0:
            set_need(s, j)
            if not fits(s, server, need(s)):
                break
            start(s, j, server)
        n = next_waiting(s, n + 1)
    if s.n_waiting == 0 or holds_within(s, server, slots):
        end_turn(s, server)
        int_field(s, SINCE_TURN)[server] = 0
        s.resets += 1
        reindex(s, server)
        refill(s, server)
    else:
        list_open_slots(s, server)


@kernel
def end_turn(s: State, server: int) -> None:
    """Forget the target."""
    for j in range(s.n_types):
        bitmap.discard(s, j, server)
        configuration(s)[server, j] = 0
    servers(s)[server, MODE] = EMPTY
    s.n_stalled -= 1


@kernel
def list_open_slots(s: State, server: int) -> None:
    """List which types a turning server takes on arrival."""
    slots, on = configuration(s)[server], running(s)[server]
    for j in range(s.n_types):
        set_type_need(s, j)
        if on[j] < slots[j] and fits(s, server, need(s)):
            bitmap.add(s, j, server)
        else:
            bitmap.discard(s, j, server)

"""The rules of `guarded`, in the order in which a job meets them.

- Arrival: the job starts where it fits best, else it waits (`place`).
- Completion: the server takes the heaviest refill (R2, `refill`), or turns (R3). It turns if both are true:

      f(k', W) < max_k f(k, W) - F_l
      since its last turn it has completed jobs whose sizes add up to F_l / 2 at least

  Here k' is what it would hold after the refill, W are the weights (`weights`), F_l is its margin (`margin`).
- Turn: the server starts only jobs within its target, the configuration of most weight, until all that it holds is within the target.
  No job is interrupted. Then it takes a refill.
- After a turn (R4), a completion is first followed by waiting jobs within the target, and then by a refill. The server forgets the target
  when it holds a job outside it, or when those jobs do not bring its weight to max_k f(k, W) - F_l / 2. So a server that was drained for large jobs goes on
  with large jobs.
- With durations (R5), the oldest job gets a reservation once it is overdue (`overdue`).

So no server that could start a waiting job stands empty (R1). `docs/theory/guarded.md` proves that this keeps queues bounded for every load inside the
capacity region.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.core.indexes import bitmap
from slotwise.core.indexes.weights import better_configuration, holds_within
from slotwise.core.state import (
    ACTIVE,
    EMPTY,
    MODE,
    PRESENT,
    STALLED,
    STATUS,
    State,
    choice,
    configuration,
    fits,
    float_field,
    float_table,
    head,
    need,
    order,
    policy_floats,
    queue_length,
    running,
    servers,
    set_job_need,
    set_need,
    set_type_need,
    weight,
)
from slotwise.core.steps import next_waiting, reindex, start, start_job
from slotwise.policies.guarded.margin import drain_time, least_return_time, margin_of, return_time
from slotwise.policies.guarded.memory import DRAINS_EXPECTED, NEVER, REASON, SINCE_TURN
from slotwise.policies.guarded.overdue import (
    count_estimate,
    delays_overdue,
    forget_reservation,
    is_reserved,
    is_waiting,
    note_idle,
    pass_time,
    serve_overdue,
    start_beside,
)
from slotwise.policies.guarded.placement import find_server
from slotwise.policies.guarded.refill import choose_refill, start_refill
from slotwise.policies.guarded.services import count_completion, count_event, size_per_time, sizes
from slotwise.policies.guarded.shares import weigh
from slotwise.policies.guarded.weights import held_weight

TURNING = STALLED  # the mode in which the indexes leave a server out
KEEPING = ACTIVE  # the mode of a server that has turned and has not left its target since
KEEP = 0.5  # of the margin; with 1 queues are longer on logs, with 0 on pools (docs/research/guarded.md)


def arrive(s: State, j: int, i: int) -> None:
    """Start job i of type j where it fits best, or let it wait."""
    if s.keeps_times:
        pass_time(s)
        serve_overdue(s)
        if is_waiting(s, i):
            place(s, j, i)
        note_idle(s)
    elif s.keeps_line or head(s, j) == i:
        place(s, j, i)
    count_event(s)


def complete(s: State, j: int, server: int) -> None:
    """Refill the server, or turn it to a better configuration."""
    count_completion(s, j)
    if s.keeps_times:
        count_estimate(s, j)
    use_capacity(s, j, server)


def stop(s: State, j: int, server: int) -> None:
    """Do the same for a job that was stopped, which says nothing about service times."""
    use_capacity(s, j, server)


def join(s: State, server: int, _: int) -> None:
    """Refill a server that has joined."""
    servers(s)[server, MODE] = EMPTY
    float_field(s, SINCE_TURN)[server] = NEVER
    forget_reservation(s)
    refill(s, server)


def resume(s: State, server: int, _: int) -> None:
    """Refill a server that takes jobs again."""
    refill(s, server)


def leave(s: State, server: int, _: int) -> None:
    """End the turn of a server that takes no more jobs."""
    if is_turning(s, server):
        end_turn(s, server)
    forget_target(s, server)
    forget_reservation(s)


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
    if server < 0:
        return
    if not s.keeps_times:
        start_job(s, i, server)
    elif not delays_overdue(s, i, need(s), server):
        start_beside(s, i, server)


@kernel
def use_capacity(s: State, j: int, server: int) -> None:
    """Use the capacity that a job of type j has left."""
    float_field(s, SINCE_TURN)[server] += sizes(s)[j]
    if s.keeps_times:
        pass_time(s)
        serve_overdue(s)
    use_what_is_free(s, server)
    if s.keeps_times:
        note_idle(s)


@kernel
def use_what_is_free(s: State, server: int) -> None:
    """Go on with a turn or a target, begin a turn, or refill."""
    if is_turning(s, server):
        continue_turn(s, server)
    elif s.n_waiting > 0:
        weigh(s)
        if servers(s)[server, MODE] == KEEPING:
            if keeps_target(s, server):
                start_within_target(s, server)
                refill(s, server)
                return
            forget_target(s, server)
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
    """Return whether the server turns (R3): its content after the refill weighs too little, and its last turn was long enough ago. The target is then in choice(s)."""
    if size_per_time(s) == 0.0:
        return False  # nothing is known yet of what a turn costs
    drain, since = drain_time(s, server), float_field(s, SINCE_TURN)[server]
    # the margin needs the time of the way back, which needs the target; a smaller margin rules out most servers without a search
    margin = margin_of(s, server, held, drain + least_return_time(s))
    if 2.0 * since < margin:
        return False
    best = better_configuration(s, server, held + margin)
    if best < 0.0:
        return False
    margin = margin_of(s, server, held, drain + return_time(s))
    if 2.0 * since < margin or best <= held + margin:
        return False
    reason = float_table(s, REASON)[server]
    reason[0], reason[1], reason[2] = held, best, margin
    return True


@kernel
def keeps_target(s: State, server: int) -> bool:
    """Return whether the server goes on with the target of its last turn (R4): waiting jobs within the target bring it to nearly the best weight."""
    slots, on = configuration(s)[server], running(s)[server]
    if not holds_within(s, server, slots) or (s.keeps_times and is_reserved(s, server)):
        return False
    held, more = held_weight(s, server), 0
    for j in range(s.n_types):
        n = min(slots[j] - on[j], queue_length(s)[j])
        held += n * weight(s)[j]
        more += n
    if more == 0:
        return False
    drain = drain_time(s, server)
    best = better_configuration(s, server, held + KEEP * margin_of(s, server, held, drain + least_return_time(s)))
    if best < 0.0:
        return True
    return bool(held >= best - KEEP * margin_of(s, server, held, drain + return_time(s)))


@kernel
def is_turning(s: State, server: int) -> bool:
    """Return whether the server is turning."""
    return bool(servers(s)[server, MODE] == TURNING)


@kernel
def begin_turn(s: State, server: int) -> None:
    """Turn the server to the configuration of most weight, which `should_turn` has found."""
    policy_floats(s)[DRAINS_EXPECTED] += drain_time(s, server)
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
    start_within_target(s, server)
    if s.n_waiting == 0 or holds_within(s, server, configuration(s)[server]):
        end_turn(s, server)
        servers(s)[server, MODE] = KEEPING
        float_field(s, SINCE_TURN)[server] = 0.0
        s.resets += 1
        reindex(s, server)
        refill(s, server)
    else:
        list_open_slots(s, server)


@kernel
def start_within_target(s: State, server: int) -> None:
    """Start waiting jobs within the target, largest type first."""
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


@kernel
def end_turn(s: State, server: int) -> None:
    """Close the open slots of a turning server."""
    for j in range(s.n_types):
        bitmap.discard(s, j, server)
    s.n_stalled -= 1


@kernel
def forget_target(s: State, server: int) -> None:
    """Forget the target, if the server has one."""
    for j in range(s.n_types):
        configuration(s)[server, j] = 0
    servers(s)[server, MODE] = EMPTY


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

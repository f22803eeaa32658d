"""EASY backfilling: first come, first served, but a job may overtake if it does not delay the first in line.

It needs to know how long each job is expected to run: exactly (clairvoyant), or by its user's estimate. The oldest
waiting job, when it fits nowhere, gets a reservation: the server l* and the time t* at which it can start first if all
running jobs end as expected. Any other waiting job, from old to young, may start now on any server but l*. It may start
on l* if it is expected to end by t*, or takes only what is left over beside the reserved job at t*. It goes to the
lowest-numbered server that it may start on.

With one server this is EASY (Lifka 1995). With several servers the reservation is on one of them, and jobs on others are free.
`reservation` has what it is and how long it stands.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from slotwise.compiler.kernel import kernel
from slotwise.core import state as st
from slotwise.core.contract.learnt import Names
from slotwise.core.contract.memory import Memory
from slotwise.core.contract.policy import FitOptions, Options, Policy
from slotwise.core.contract.reasons import Because
from slotwise.core.contract.view import View
from slotwise.core.indexes import firsttree, line
from slotwise.core.steps import start_job
from slotwise.core.store import Store
from slotwise.policies.backfill import reservation
from slotwise.policies.backfill.reservation import (
    drop,
    holder,
    is_harmless,
    reserve,
    reserved_at,
    reserved_server,
    spare,
    stands,
    take_spare,
)

NONE = -1
MEMORY = Memory()
RESERVATION = reservation.declare(MEMORY)
# the most that is free on any server but l*, resource by resource
ELSEWHERE = MEMORY.counts("elsewhere", per="resource", kept=False)
ROOM = MEMORY.counts("room", per="resource", kept=False)  # what is free on l*


def arrive(s: st.State, j: int, i: int) -> None:
    """Try the new job only: as long as the reservation stands, no earlier job can start."""
    first = line.first_in_line(s)
    if first == i or not stands(s, RESERVATION, first):
        schedule(s)
    else:
        overtake(s, st.sequence(s)[i] - 1)


def complete(s: st.State, j: int, server: int) -> None:
    """Start waiting jobs on the freed capacity."""
    schedule(s)


def join(s: st.State, server: int, _: int) -> None:
    """Reserve anew: a new server may start the oldest job earlier than its reservation."""
    drop(s, RESERVATION)
    schedule(s)


def leave(s: st.State, server: int, _: int) -> None:
    """Make a reservation on this server void."""
    drop(s, RESERVATION)
    schedule(s)


def cancel(s: st.State, j: int, i: int) -> None:
    """Schedule: another job may be first in line now."""
    schedule(s)


@kernel
def schedule(s: st.State) -> None:
    """Serve in order while the first in line fits, then reserve for it and let others overtake."""
    while s.n_waiting > 0:
        i = line.first_in_line(s)
        st.set_job_need(s, i)
        server = firsttree.first_fit(s, st.need(s), 0)
        if server < 0:
            if not stands(s, RESERVATION, i):
                reserve(s, RESERVATION, i)
            overtake(s, NONE)
            return
        start_job(s, i, server)


@kernel
def overtake(s: st.State, after: int) -> None:
    """Start every job that came after `after` and does not delay the reserved one, from old to young."""
    on = reserved_server(s, RESERVATION)
    elsewhere, room, until = st.int_field(s, ELSEWHERE), st.int_field(s, ROOM), reserved_at(s, RESERVATION)
    while s.n_waiting > 0:
        firsttree.most_without(s, on, elsewhere)
        for r in range(s.n_resources):
            room[r] = st.free(s)[on, r] if on >= 0 else -1
        i = line.oldest_harmless(s, after, elsewhere, room, spare(s, RESERVATION), until)
        if i < 0:
            return
        after = st.sequence(s)[i]
        st.set_job_need(s, i)
        server = harmless_server(s, i)
        if server >= 0 and i != holder(s, RESERVATION):
            if server == on:
                take_spare(s, RESERVATION, i)
            start_job(s, i, server)


@kernel
def harmless_server(s: st.State, i: int) -> int:
    """Return the lowest-numbered server that fits need(s) without delaying the reserved job, or -1."""
    server = firsttree.first_fit(s, st.need(s), 0)
    if server < 0 or server != reserved_server(s, RESERVATION) or is_harmless(s, RESERVATION, i):
        return server
    return firsttree.first_fit(s, st.need(s), server + 1)


class EasyOptions(FitOptions):
    """Options of EASY backfilling."""

    durations: Literal["exact", "estimate"] = Field(
        "exact",
        description="in simulations: the true duration of each job, or its user's estimate (column `estimate` of a trace)",
    )


class EasyBackfill(Policy):
    """EASY backfilling."""

    name = "easy-backfill"
    summary = "knows durations: first come, first served, with backfilling that does not delay the first in line"
    Options: ClassVar[type[Options]] = EasyOptions
    memory = MEMORY
    keeps = frozenset({"free", "tree", "lists", "line"})
    needs_durations = True
    compiled = True
    arrive, complete = staticmethod(arrive), staticmethod(complete)
    join, leave, cancel = staticmethod(join), staticmethod(leave), staticmethod(cancel)

    @property
    def uses_estimates(self) -> bool:
        return bool(self.options.durations == "estimate")

    def learnt(self, store: Store, names: Names) -> dict[str, Any]:
        return reservation.learnt(store, RESERVATION, names)

    def recall(self, store: Store, values: dict[str, Any], names: Names) -> None:
        if values:
            # situations of the first version do not say for whom: it was the first in line
            reservation.recall(store, RESERVATION, {"for": store.first_sequence()} | values, names)

    def shifted(self, values: dict[str, Any], by: float) -> dict[str, Any]:
        return reservation.shifted(values, by)

    def why_waits(self, view: View, i: int) -> Because:
        return reservation.why_waits(view, RESERVATION, i) or super().why_waits(view, i)

    def describe(self, view: View, server: int) -> tuple[Because, ...]:
        return (*super().describe(view, server), *reservation.describe(view, RESERVATION, server))

"""Adaptive Quickswap and MSFQ (Chen, Anggraito, Olliaro, Marin, Ajmone Marsan, Berg and Grosof, 2025): drain on purpose, and early, for a class that cannot start.

On one server: the largest class that waits and fits starts first, then what is left is filled with smaller ones. When

    no class in service has a waiting job   and   some waiting class has no job in service,

nothing is lost by draining that would not be lost anyhow, so the server *swaps*: only the largest waiting class may start, until one of it
has started. Room is then not given away to small jobs that keep on coming.

Several servers, several resources (our extension): a class is a type, and the largest is that with the largest share of
any resource. Each server swaps for itself. The classes in service are those of its jobs; the waiting classes are those
that it could hold when empty. No more servers swap to a class than jobs of it wait. A server considers to swap when a
job on it has ended; when an arrival must wait, of the servers that may swap the one that has most free does. A job goes
to the server that it leaves least free on.

With the option `threshold` = l a server swaps only to a class that is larger than all that it holds, once at most l
jobs run on it. For demands 1 and k on one server of k that is MSFQ with its four phases. Large jobs are served until
none is left, then small ones. Once no small job waits and at most l run, no small job may start before a large one has.
"""

from __future__ import annotations

from pydantic import Field

from slotwise.compiler.kernel import kernel
from slotwise.core import state as st
from slotwise.core.contract.claims import PolicyClaim, Unknown
from slotwise.core.contract.memory import Memory
from slotwise.core.contract.policy import FitOptions
from slotwise.core.contract.reasons import Because, Reason
from slotwise.core.contract.view import View
from slotwise.core.steps import reindex, start, start_job
from slotwise.core.store import Store
from slotwise.policies.fit.fitting import (
    LARGEST,
    Fitting,
    find_server,
    refill,
)
from slotwise.policies.fit.fitting import MEMORY as FITTING

MEMORY = Memory(FITTING)
# servers that swap to each type: those whose only slot is of that type
SWAPPING = MEMORY.counts("swapping", per="type", kept=False)
# MSFQ: so many jobs may run when the server swaps; -1: any number
THRESHOLD = MEMORY.count("threshold", kept=False, start=-1)
NONE = -1


def arrive(s: st.State, j: int, i: int) -> None:
    """Start the job where it leaves least free, on a server that swaps to its type, or let it wait. Then a server
    may swap for it."""
    st.set_job_need(s, i)
    server = find_server(s, st.need(s))
    if server >= 0:
        start_job(s, i, server)
        return
    if (
        st.int_field(s, SWAPPING)[j] > 0 and st.head(s, j) == i
    ):  # thrown back, it may be smaller than the first before it
        for other in range(s.n_places):
            if target(s, other) == j and st.jobs(s)[i, st.SERVER] == st.WAITING:
                st.set_job_need(s, i)
                if st.fits(s, other, st.need(s)):
                    use_room(s, other)
    if st.jobs(s)[i, st.SERVER] == st.WAITING:
        swap_one_for(s, j)


def complete(s: st.State, j: int, server: int) -> None:
    """Use the freed capacity."""
    use_room(s, server)


def join(s: st.State, server: int, _: int) -> None:
    """Use the new server, with whatever it holds."""
    st.servers(s)[server, st.MODE] = st.ACTIVE
    use_room(s, server)


def leave(s: st.State, server: int, _: int) -> None:
    """End the swap of a server that leaves."""
    end_swap(s, server)


def cancel(s: st.State, j: int, i: int) -> None:
    """End the swaps to a class that has no waiting job any more."""
    if st.queue_length(s)[j] == 0 and st.int_field(s, SWAPPING)[j] > 0:
        for server in range(s.n_places):
            if target(s, server) == j:
                use_room(s, server)


def file(s: st.State, server: int, _: int) -> None:
    """Count it where it swaps; a type that is not there any more is forgotten."""
    if st.servers(s)[server, st.STATUS] == st.PRESENT and st.servers(s)[server, st.MODE] == st.STALLED:
        j = target(s, server)
        if j >= 0:
            st.int_field(s, SWAPPING)[j] += 1
        else:
            st.servers(s)[server, st.MODE] = st.ACTIVE
            s.n_stalled -= 1
            reindex(s, server)


@kernel
def target(s: st.State, server: int) -> int:
    """Return the type to which the server swaps, or -1."""
    row = st.servers(s)[server]
    if row[st.STATUS] == st.PRESENT and row[st.MODE] == st.STALLED:
        for j in range(s.n_types):
            if st.configuration(s)[server, j] > 0:
                return j
    return NONE


@kernel
def use_room(s: st.State, server: int) -> None:
    """Go on swapping, or fill the server, largest first, and see whether it must swap."""
    j = target(s, server)
    if j >= 0:
        if st.int_field(s, SWAPPING)[j] <= st.queue_length(s)[j]:
            st.set_need(s, j)
            if not st.fits(s, server, st.need(s)):
                return
            end_swap(s, server)
            start(s, j, server)
        else:
            end_swap(s, server)
    if s.n_waiting > 0:
        refill(s, server)
    if s.n_waiting > 0 and may_swap(s, server):
        j = largest_waiting(s, server)
        if j >= 0:
            swap(s, server, j)


@kernel
def may_swap(s: st.State, server: int) -> bool:
    """Return whether the server holds jobs, and no class that it holds has a waiting job."""
    row, on = st.servers(s)[server], st.running(s)[server]
    if row[st.STATUS] != st.PRESENT or row[st.MODE] == st.STALLED or row[st.COUNT] == 0:
        return False
    for j in range(s.n_types):
        if on[j] > 0 and st.queue_length(s)[j] > 0:
            return False
    limit = st.policy_ints(s)[THRESHOLD]
    return bool(limit < 0 or row[st.COUNT] <= limit)


@kernel
def largest_waiting(s: st.State, server: int) -> int:
    """Return the largest waiting type that the server could hold and to which fewer servers swap than jobs of it
    wait, or -1."""
    c = st.servers(s)[server, st.CLASS]
    for n in range(s.n_types):
        j = st.order(s)[0, n]
        if st.policy_ints(s)[THRESHOLD] >= 0 and st.running(s)[server, j] > 0:
            return NONE  # MSFQ: never from large jobs to smaller ones
        if st.queue_length(s)[j] > st.int_field(s, SWAPPING)[j] and st.most(s)[c, j] > 0:
            return int(j)
    return NONE


@kernel
def swap_one_for(s: st.State, j: int) -> None:
    """Swap one server for type j, a job of which must wait: of the servers that may swap, the one with the largest
    free share."""
    if st.queue_length(s)[j] <= st.int_field(s, SWAPPING)[j]:
        return
    best, most_free = NONE, -1.0
    for server in range(s.n_places):
        c = st.servers(s)[server, st.CLASS]
        if st.most(s)[c, j] > 0 and may_swap(s, server) and largest_waiting(s, server) == j:
            share = 0.0
            for r in range(s.n_resources):
                share += st.free(s)[server, r] / max(st.capacity(s)[c, r], 1)
            if share > most_free:
                best, most_free = server, share
    if best >= 0:
        swap(s, best, j)


@kernel
def swap(s: st.State, server: int, j: int) -> None:
    """Let only type j start on the server."""
    st.servers(s)[server, st.MODE] = st.STALLED
    s.n_stalled += 1
    s.stalls += 1
    st.configuration(s)[server, j] = 1
    st.int_field(s, SWAPPING)[j] += 1
    reindex(s, server)


@kernel
def end_swap(s: st.State, server: int) -> None:
    """Let all types start on the server again."""
    for j in range(s.n_types):
        if st.configuration(s)[server, j] > 0:
            st.int_field(s, SWAPPING)[j] -= 1
            st.configuration(s)[server, j] = 0
            st.servers(s)[server, st.MODE] = st.ACTIVE
            s.n_stalled -= 1
            s.resets += 1
            reindex(s, server)


class QuickswapOptions(FitOptions):
    """Options of Adaptive Quickswap."""

    threshold: int | None = Field(
        None,
        ge=0,
        description="MSFQ: a server swaps only to classes larger than all it holds, once at most so many jobs run on it",
    )


class Quickswap(Fitting):
    """Adaptive Quickswap (Chen et al. 2025)."""

    name = "quickswap"
    summary = (
        "largest class first; a server whose classes have no waiting job drains for the largest class that waits"
    )
    Options = QuickswapOptions
    memory = MEMORY
    job_rule = LARGEST
    arrive, complete = staticmethod(arrive), staticmethod(complete)
    join, leave, cancel = staticmethod(join), staticmethod(leave), staticmethod(cancel)
    file = staticmethod(file)

    def prepare(self, store: Store) -> None:
        super().prepare(store)
        limit = self.options.threshold
        store.arrays["policy_ints"][THRESHOLD] = -1 if limit is None else limit

    def claim(self) -> PolicyClaim:
        return Unknown(
            "as published stable inside the whole region of one server with one resource, for demands 1 and k;"
            " nothing is known of this extension",
            "Chen et al. 2025",
        )

    def why_waits(self, view: View, i: int) -> Because:
        swapping = view.with_room(i) & (view.store.arrays["servers"][:, st.MODE] == st.STALLED)
        if swapping.any():
            server = int(swapping.argmax())
            return Because(
                Reason.SWAPS_FIRST, {"server": view.server_of[server], "type": self.target(view, server)}
            )
        return super().why_waits(view, i)

    def describe(self, view: View, server: int) -> tuple[Because, ...]:
        if view.store.arrays["servers"][server, st.MODE] != st.STALLED:
            return super().describe(view, server)
        figures = {"type": self.target(view, server), "holding": view.holding(server)}
        return (Because(Reason.SWAPS, figures),)

    def target(self, view: View, server: int) -> str:
        """Return the name of the type to which the server swaps."""
        return next(iter(view.counts(view.store.configuration[server])))

"""VQS and VQS-BF (Psychas & Ghaderi, 2019; reconstructions): virtual queues by size, for one resource and alike servers.

With the capacity as the unit, sizes are parted into V_2m = (2/3 2^-m, 2^-m] and V_2m+1 = (1/2 2^-m, 2/3 2^-m], m < M;
what is smaller waits in the last. Servers use 4M - 4 configurations. They hold one virtual queue only; or one job of
V_1, for which 2/3 of the server is reserved, beside jobs of one other queue in the last third. A server takes the
configuration of the largest weight when it is empty and keeps it until it is empty again. VQS-BF then fills what is
left by best-fit.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from slotwise.compiler.kernel import kernel
from slotwise.core import state as st
from slotwise.core.contract.claims import PolicyClaim
from slotwise.core.contract.memory import Memory
from slotwise.core.indexes import bitmap, fitindex
from slotwise.core.steps import start, start_job
from slotwise.core.store import Store
from slotwise.errors import InputError
from slotwise.policies.fit.fitting import (
    LARGEST,
    Fitting,
    fill,
    share_of_one_resource,
)
from slotwise.policies.paper.slots import first_empty

MEMORY = Memory()
FILLS = MEMORY.count("fills", kept=False)
QUEUES = MEMORY.counts("virtual_queues", per="type", kept=False)
MAIN, SLOTS, RESERVES = 0, 1, 2  # the one queue, how many of it, and whether 2/3 is reserved for a job of V_1
CONFIGURATIONS = MEMORY.counts(
    "configurations", per=lambda store: len(reduced_configurations(depth_of(store))), columns=3, kept=False
)
CHOSEN = MEMORY.counts("chosen", per="server", start=-1)  # the configuration of a server, -1 where it has none
LARGE = 1  # V_1


def virtual_queues(sizes: list[int], unit: int, depth: int) -> list[int]:
    """Return the virtual queue of each size, in integers: size in (2/3 2^-m, 2^-m] of the unit gives 2m."""
    found = []
    for size in sizes:
        m = 0
        while m < depth - 1 and size * 2 ** (m + 1) <= unit:
            m += 1
        # a size at or below 2^-M waits with the smallest
        found.append(2 * m if 3 * size * 2**m > 2 * unit else 2 * m + 1)
    return found


def reduced_configurations(depth: int) -> list[tuple[int, int, int]]:
    """(main queue, its jobs, whether one job of V_1 comes beside them)."""
    rows = [(2 * m, 2**m, 0) for m in range(depth)]
    rows += [(2 * m + 1, 3 * 2 ** (m - 1), 0) for m in range(1, depth)]
    rows += [(2 * m, 2**m // 3, 1) for m in range(2, depth)]
    rows += [(2 * m + 1, 2 ** (m - 1), 1) for m in range(1, depth)]
    return rows or [(0, 1, 0)]


def depth_of(store: Store) -> int:
    """Return M: sizes down to 2^-M of the capacity have virtual queues of their own."""
    unit = int(store.sizes.capacity[0, 0])
    return max(2, 1 + max((unit // int(size)).bit_length() - 1 for size in store.sizes.demand[:, 0]))


def arrive(s: st.State, j: int, i: int) -> None:
    """Start the job on a server whose configuration admits it, or let an empty server choose anew."""
    server = bitmap.first(s, j)
    if server >= 0:
        refill(s, server)
    server = first_empty(s, j)
    while server >= 0 and st.jobs(s)[i, st.SERVER] == st.WAITING:
        refill(s, server)  # it may choose to serve other jobs that a failure brought back, but then it is not empty
        server = first_empty(s, j)
    if st.policy_ints(s)[FILLS] and st.jobs(s)[i, st.SERVER] == st.WAITING:
        st.set_job_need(s, i)
        server = fitindex.best(s, st.need(s))
        if server >= 0:
            start_job(s, i, server)
            mark(s, server)


def complete(s: st.State, j: int, server: int) -> None:
    """Refill the server by its configuration."""
    refill(s, server)


def join(s: st.State, server: int, _: int) -> None:
    """Make the new server empty."""
    st.int_field(s, CHOSEN)[server] = -1
    refill(s, server)


def leave(s: st.State, server: int, _: int) -> None:
    """Withdraw the server: it admits no more jobs."""
    st.int_field(s, CHOSEN)[server] = -1
    for j in range(s.n_types):
        bitmap.discard(s, j, server)
    bitmap.discard(s, s.n_types + st.servers(s)[server, st.CLASS], server)


def file(s: st.State, server: int, _: int) -> None:
    """Offer what the server has, from its restored configuration."""
    if st.servers(s)[server, st.STATUS] == st.PRESENT:
        mark(s, server)


def cancel(s: st.State, j: int, i: int) -> None:
    """Serve the queue again: a smaller job may have come to its head."""
    if s.actual and st.queue_length(s)[j] > 0:
        server = bitmap.first(s, j)
        if server >= 0:
            refill(s, server)


@kernel
def refill(s: st.State, server: int) -> None:
    """Choose a configuration where the server is empty, start what it admits, then what fits (VQS-BF)."""
    if st.servers(s)[server, st.COUNT] == 0:
        choose(s, server)
    j = admitted(s, server)
    while j >= 0:
        start(s, j, server)
        j = admitted(s, server)
    if st.policy_ints(s)[FILLS] and s.n_waiting > 0:
        fill(s, server, LARGEST)
    mark(s, server)


@kernel
def choose(s: st.State, server: int) -> None:
    """Choose the configuration of the largest weight, or none if no job waits."""
    rows, queues = st.int_table(s, CONFIGURATIONS), st.int_field(s, QUEUES)
    best, weight = -1, 0
    for row in range(rows.shape[0]):
        value = 0
        for j in range(s.n_types):
            if queues[j] == rows[row, MAIN]:
                value += rows[row, SLOTS] * st.queue_length(s)[j]
            elif queues[j] == LARGE and rows[row, RESERVES]:
                value += st.queue_length(s)[j]
        if value > weight:
            best, weight = row, value
    st.int_field(s, CHOSEN)[server] = best


@kernel
def admits(s: st.State, server: int, j: int) -> bool:
    """Return whether the server's configuration, and what it holds, leave capacity for a type-j job of size
    need(s)."""
    row, queues = st.int_field(s, CHOSEN)[server], st.int_field(s, QUEUES)
    if row < 0 or not st.fits(s, server, st.need(s)):
        return False
    chosen, queue = st.int_table(s, CONFIGURATIONS)[row], queues[j]
    if not chosen[RESERVES]:
        return bool(queue == chosen[MAIN])
    large, others = 0, 0
    for k in range(s.n_types):
        if queues[k] == LARGE:
            large += st.running(s)[server, k]
        else:
            others += st.running(s)[server, k] * st.demand(s)[k, 0]
    if queue == LARGE:
        return bool(large == 0)
    # the last third of the server; with actual demands the sizes of the types are an upper limit
    return bool(
        queue == chosen[MAIN] and 3 * (others + st.need(s)[0]) <= st.capacity(s)[st.servers(s)[server, st.CLASS], 0]
    )


@kernel
def admitted(s: st.State, server: int) -> int:
    """Return the type of the longest waiting head of queue that the server admits, or -1."""
    best, age = -1, 0
    for j in range(s.n_types):
        if st.queue_length(s)[j] > 0:
            st.set_need(s, j)
            if admits(s, server, j):
                born = st.sequence(s)[st.head(s, j)]
                if best < 0 or born < age:
                    best, age = j, born
    return best


@kernel
def mark(s: st.State, server: int) -> None:
    """Say in the bitmaps what the server would admit, by the sizes of the types, and whether it is free to choose."""
    row = st.servers(s)[server]
    if row[st.COUNT] == 0:
        st.int_field(s, CHOSEN)[server] = -1
        bitmap.add(s, s.n_types + row[st.CLASS], server)
    else:
        bitmap.discard(s, s.n_types + row[st.CLASS], server)
    for j in range(s.n_types):
        st.set_type_need(s, j)
        if admits(s, server, j):
            bitmap.add(s, j, server)
        else:
            bitmap.discard(s, j, server)


class Vqs(Fitting):
    """Virtual queue scheduling of Psychas & Ghaderi (2019), a reconstruction."""

    name = "vqs"
    summary = "virtual queues by size with 4M - 4 configurations; one resource, alike servers (reconstruction)"
    keeps = frozenset({"free", "fit"})
    memory = MEMORY
    arrive, complete = staticmethod(arrive), staticmethod(complete)
    join, leave, cancel = staticmethod(join), staticmethod(leave), staticmethod(cancel)
    file = staticmethod(file)
    job_rule = LARGEST
    fills: ClassVar[int] = 0

    def check(self, store: Store) -> None:
        sizes = store.sizes
        if store.state.n_resources > 1 or len(np.unique(sizes.capacity)) > 1 or store.state.restricted:
            raise InputError(
                "is for one resource and servers of one size, without requirements",
                where=f"policy {self.name}",
                remedy="use another policy here, such as algorithm1 or best-fit",
            )

    def prepare(self, store: Store) -> None:
        depth, unit = depth_of(store), int(store.sizes.capacity[0, 0])
        demand = [int(size) for size in store.sizes.demand[:, 0]]
        store.arrays["policy_ints"][FILLS] = self.fills
        store.values_of(QUEUES)[:] = virtual_queues(demand, unit, depth)
        store.values_of(CONFIGURATIONS)[:] = reduced_configurations(depth)
        store.put_score(self.coefficients(store.sizes.capacity.astype(np.float64)))

    def claim(self) -> PolicyClaim:
        return share_of_one_resource(2 / 3)


class VqsBf(Vqs):
    """VQS, then best-fit for what is left."""

    name = "vqs-bf"
    summary = "VQS, and best-fit into what its configurations leave free (reconstruction)"
    keeps = frozenset({"free", "fit", "line"})
    fills = 1

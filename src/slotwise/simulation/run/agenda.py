"""What will happen: the clock, when running jobs end, when the policy's clock rings next, and when the run is over.

One record of numbers and array addresses. What is measured on the way stands in `meter`.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import float_rows, ints, natural, prefetch
from slotwise.core import chance
from slotwise.core import state as st
from slotwise.core.records import RecordStore, dtype_of
from slotwise.simulation.run.ends import grown, insert, put, room

NONE = -1  # in place of a leaf of the tree of ends, or of a server: there is none


class Agenda:
    """What the record holds."""

    now: float
    next_tick: float
    # limits, -1 or infinity where there is none
    limit_events: int
    limit_jobs: int
    limit_time: float
    warm_events: int
    warm_jobs: int
    warm_time: float
    # where we are in the columns of jobs
    at_job: int
    n_jobs: int
    # and in those of server events
    at_server_event: int
    n_server_events: int
    # what has happened so far
    events: int
    arrivals: int
    completions: int
    ticks: int
    # the tree of ends, see `slotwise.simulation.run.ends`
    leaves: int
    root: int
    n_leaves: int  # leaves that were ever used
    n_spare: int  # of them, those that hold no job
    # random words of the policy's clock, see `slotwise.core.chance`: a policy's own are for its decisions
    random_x: int
    random_y: int
    random_z: int
    random_w: int
    # sizes and addresses
    max_jobs: int
    at_stays: int
    at_ends: int
    at_spare: int


DTYPE = dtype_of(Agenda)
RECORD = numba.from_dtype(DTYPE)

ARRIVAL, DURATION, LEAF, THROWN_BACK = 0, 1, 2, 3  # columns of `stays`
STAY_COLUMNS = 4


@kernel
def stays(a: Agenda) -> NDArray[np.float64]:
    """(N, 4): when each job arrived, how long it runs, where in the tree of ends it stands while it does, and when a failing server
    threw it back (minus infinity: none did)."""
    return float_rows(a.at_stays, a.max_jobs, STAY_COLUMNS)


@kernel
def ends(a: Agenda) -> NDArray[np.float64]:
    """(2 leaves, 2): when running jobs end; see `slotwise.simulation.run.ends`."""
    return float_rows(a.at_ends, 2 * a.leaves, 2)


@kernel
def spare(a: Agenda) -> NDArray[np.int64]:
    """(leaves,): the first n_spare are leaves of the tree that were used before and are free."""
    return ints(a.at_spare, a.leaves)


@kernel
def expect_end(a: Agenda, i: int, end: float, leaf: int) -> None:
    """Expect the end of job i then. It takes over `leaf` from a job that has just ended; without one it gets
    another leaf."""
    if leaf != NONE:
        put(ends(a), a.root, a.leaves + leaf, i, end)
    else:
        leaf = free_leaf(a)
        insert(ends(a), a.root, a.leaves + leaf, i, end)
    stays(a)[i, LEAF] = leaf


@kernel
def forget_end(a: Agenda, leaf: int) -> None:
    """Free the leaf."""
    put(ends(a), a.root, a.leaves + leaf, 0, math.inf)
    spare(a)[natural(a.n_spare)] = leaf
    a.n_spare += 1


@kernel
def free_leaf(a: Agenda) -> int:
    """Return a free leaf of the tree of ends: a used one, or the next, for which the root may have to rise."""
    if a.n_spare > 0:
        a.n_spare -= 1
        return int(spare(a)[natural(a.n_spare)])
    leaf, tree = a.n_leaves, ends(a)
    a.n_leaves += 1
    while leaf * a.root >= a.leaves:  # below the root are leaves / root of them
        above, root = tree[a.root >> 1], tree[a.root]  # copied one by one: whole rows take seconds to compile
        above[0], above[1] = root[0], root[1]
        a.root >>= 1
    return int(leaf)


@kernel
def look_ahead(s: st.State, a: Agenda, leaf: int) -> None:
    """Prefetch the jobs that end next, after a job has left this leaf of the tree of ends.

    The first job of the sixteenth of the tree around the leaf ends within some sixteen completions, the first of
    its quarter sooner."""
    tree, node = ends(a), natural(a.leaves + leaf)
    while node >= 32 * a.root:
        node >>= 1
    first = natural(int(tree[node, 1]))
    prefetch_job(s, first)
    prefetch(a.at_stays + 8 * STAY_COLUMNS * first)
    prefetch_server(s, natural(int(tree[node >> 2, 1])))


@kernel
def prefetch_job(s: st.State, i: int) -> None:
    """Prefetch the row of a running job that will probably end soon.

    With 100,000 servers the state is larger than the processor's caches, and a completion would wait twice for memory: for
    the job, and then for its server. A driver that looks some completions ahead hides both."""
    prefetch(s.at_jobs + 4 * st.JOB_COLUMNS * i)
    if s.actual:
        prefetch(s.at_job_demand + 8 * s.n_resources * i)


@kernel
def prefetch_server(s: st.State, i: int) -> None:
    """Prefetch the rows of the server of job i, some time after `prefetch_job`."""
    server = st.jobs(s)[i, st.SERVER]
    if server >= 0:
        at = s.at_servers + 4 * s.n_server_columns * server
        prefetch(at)
        prefetch(at + 4 * (st.SERVER_COLUMNS + 2 * s.n_types) - 1)
        if s.keeps_free:
            prefetch(s.at_free + 8 * s.n_resources * server)
        if s.keeps_fit:
            prefetch(s.at_chains + 4 * st.CHAIN_COLUMNS * server)


@kernel
def draw_tick(a: Agenda, rate: float, now: float, ticked: bool) -> None:
    """Draw when the policy's clock rings next. An exponential clock forgets, so it may be drawn anew after every
    event."""
    if rate > 0.0:
        a.next_tick = now - math.log(1.0 - chance.uniform(a)) / rate  # type: ignore[arg-type]
    elif ticked:
        a.next_tick = math.inf  # the policy has stopped its clock


class AgendaStore(RecordStore):
    """The agenda of a run in which nothing has happened yet."""

    def __init__(self, max_jobs: int, random: chance.Words) -> None:
        super().__init__(DTYPE)
        a = self.record
        a.limit_events = a.limit_jobs = -1
        a.limit_time = a.next_tick = np.inf
        chance.set_words(a, random)
        self.grow(max_jobs)

    def grow(self, max_jobs: int) -> None:
        """Make room for job numbers up to max_jobs."""
        a, tree = self.record, self.arrays.get("ends")
        self.put("ends", room(max_jobs) if tree is None else grown(tree, max_jobs))
        leaves = len(self.arrays["ends"]) // 2
        a.root = a.root * leaves // a.leaves if tree is not None else leaves
        a.leaves = leaves
        self.lengthen("stays", np.zeros((max_jobs, STAY_COLUMNS)))
        self.lengthen("spare", np.zeros(leaves, np.int64))
        a.max_jobs = max_jobs

"""Non-preemptive Markovian service rates (nMSR; Chen, Grosof and Berg, 2025): a clock, not the queues, says what a server may hold.

The capacity region knows a mix of configurations, the witness, that carries the load: shares x_k of the servers of each
class, with sum_k x_k k >= rho / zeta per server. On one server a Markov chain walks round these configurations and
stays in each for an exponential time whose mean is `cycle` x_k. The time counts from when no waiting job with a slot
there lacks free capacity. In configuration k only k_j jobs of type j may start. No job is interrupted, so after a step
the surplus jobs run to their end first.

Several servers and classes (our extension). Lay the shares of a class of L servers end to end, x_k L long, and put
server n at n + U. U, one number for all classes, walks from 0 to 1 and begins anew. So each configuration is held by
x_k L servers, rounded up or down, and by x_k L on average over a round. Servers whose configuration does not change are
left alone; if all x_k L are whole numbers, no server ever changes. U steps from one point where a server changes to the
next such point. The time at each point is exponential, with a mean of the step's length times `cycle`. The server with
the fewest jobs that the new configuration has no slot for changes. With L = 1 this is the chain of one server.

With `fill`, other waiting jobs use the capacity that the slots leave over, first come, first served. But if some
waiting job has an open slot on the server and does not fit there, the server drains for it.

A step costs the room that stands empty while jobs run to their end. So `cycle` must be long against that cost over what the load leaves
free, and is no longer than it must be, for queues grow with it. By default it is D / (SPENT (1 - zeta)): steps cost at most the part SPENT of what
the load leaves free. D is what the steps of a round cost a server: of e jobs out of n that must end, with mean m, the
last ends after m (1 + 1/2 + ... + 1/e), of which m e / n was not lost.

What is needed: rates and mean service times. A type without a rate counts as a hundredth of the mean load of all types
with one, so that it starts at all. A class without servers counts as one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import Field

from slotwise.compiler.kernel import kernel
from slotwise.core import state as st
from slotwise.core.contract.claims import PolicyClaim, Unknown
from slotwise.core.contract.learnt import Names, damaged
from slotwise.core.contract.memory import Memory
from slotwise.core.contract.policy import FitOptions
from slotwise.core.contract.reasons import Because, Reason
from slotwise.core.contract.view import View
from slotwise.core.indexes import bitmap, fitindex
from slotwise.core.steps import reindex, start, start_job
from slotwise.core.store import Store
from slotwise.policies.fit.fitting import MEMORY as FITTING
from slotwise.policies.fit.fitting import OLDEST, Fitting, fill
from slotwise.policies.rivals.nmsr_mix import EPSILON, LaidMix, cost_of, mix_of

SPENT = 0.5  # share of the free load that steps may cost
# Bounds on the share that the load is taken to leave free; the upper one holds if no rates are known.
LEAST_FREE, MOST_FREE = 0.02, 0.2
SHORTEST = 5.0  # a round takes at least so many of the longest mean service time


def _rows(store: Store) -> int:
    """Return the most configurations of a mix. A vertex of the linear program has no more than it has constraints:
    one for each type and class."""
    return int(store.state.n_types + store.state.n_classes)


MEMORY = Memory(FITTING)
FILLS = MEMORY.count("fills", kept=False)
# 1: servers were given other slots without being asked to start jobs, which the next tick does
RENEWED = MEMORY.count("renewed")
CYCLE = MEMORY.number("cycle", kept=False)
U = MEMORY.number("u")
MIX = MEMORY.counts("mix", per=_rows, columns="type", kept=False)  # the configurations, class by class
OWNER = MEMORY.counts("owner", per=_rows, kept=False, start=-1)  # the class of each
LOW = MEMORY.numbers("low", per=_rows, kept=False)
HIGH = MEMORY.numbers("high", per=_rows, kept=False)  # where its share of the class begins and ends
GIVEN = MEMORY.counts("given", per=_rows, kept=False)  # how many servers have it
N_TURNING = MEMORY.count("n_turning", kept=False)
# 1 from a change of the server's configuration until no waiting job with a slot there lacks free capacity. U does not
# move meanwhile.
TURNING = MEMORY.counts("turning", per="server")
HAS = MEMORY.counts("has", per="server", kept=False)  # which one a server has, plus 1; 0: none
# 1 where the server has an open slot of the type, and no room
WANTS = MEMORY.counts("wants", per="server", columns="type", kept=False)
WANTED = MEMORY.counts("wanted", per="type", kept=False)  # how many servers want it
# 1 if a job of the type waited when the servers were last updated.
WAITED = MEMORY.counts("waited", per="type", kept=False)


def arrive(s: st.State, j: int, i: int) -> None:
    """Start the job in an open slot, or on capacity that the slots leave over."""
    server = bitmap.first(s, j)
    while (
        server >= 0 and st.jobs(s)[i, st.SERVER] == st.WAITING
    ):  # the head starts, which after a failure may be another
        use_room(s, server)
        server = bitmap.first(s, j)
    if st.policy_ints(s)[FILLS] and st.jobs(s)[i, st.SERVER] == st.WAITING:
        st.set_job_need(s, i)
        server = fitindex.best(s, st.need(s))
        if server >= 0:
            start_job(s, i, server)
            update_offer(s, server)
    settle(s)


def complete(s: st.State, j: int, server: int) -> None:
    """Use the freed capacity."""
    use_room(s, server)
    settle(s)


def join(s: st.State, server: int, _: int) -> None:
    """Give the server, with whatever it holds, the configuration of which most are missing."""
    st.servers(s)[server, st.MODE] = st.ACTIVE
    give_missing(s, server)
    set_clock(s)
    use_room(s, server)
    settle(s)


def leave(s: st.State, server: int, _: int) -> None:
    """Remove the server's slots. At the next tick other servers may take its configuration."""
    take_back(s, server)
    wants, row = st.int_table(s, WANTS)[server], st.servers(s)[server]
    for j in range(s.n_types):
        st.int_field(s, WANTED)[j] -= wants[j]
        wants[j] = 0
        bitmap.discard(s, j, server)
    if row[st.MODE] == st.STALLED:
        s.n_stalled -= 1
    row[st.MODE] = st.ACTIVE
    st.policy_ints(s)[N_TURNING] -= st.int_field(s, TURNING)[server]
    st.int_field(s, TURNING)[server] = 0
    set_clock(s)


def cancel(s: st.State, j: int, i: int) -> None:
    """Update the servers: perhaps none need drain for the job's type any more."""
    settle(s)


def tick(s: st.State, _: int, __: int) -> None:
    """Move U one step on, and change the configurations of servers."""
    if st.policy_ints(s)[N_TURNING] > 0:
        return
    step = next_step(s)
    st.policy_floats(s)[U] = step if step < 1.0 - EPSILON else 0.0
    rebalance(s)
    if st.policy_ints(s)[RENEWED]:
        st.policy_ints(s)[RENEWED] = 0
        for server in range(s.n_places):
            if st.servers(s)[server, st.STATUS] == st.PRESENT:
                use_room(s, server)
    set_clock(s)
    settle(s)


def file(s: st.State, server: int, _: int) -> None:
    """Find the server's configuration from its slots; find what it offers, and whether it drains, from its jobs and the
    waiting jobs."""
    if st.servers(s)[server, st.STATUS] != st.PRESENT:
        return
    for j in range(s.n_types):
        st.int_field(s, WAITED)[j] = 1 if st.queue_length(s)[j] > 0 else 0
    for k in range(len(st.int_field(s, OWNER))):
        if st.int_field(s, OWNER)[k] == st.servers(s)[server, st.CLASS] and _has_slots_of(s, server, k):
            st.int_field(s, HAS)[server] = k + 1
            st.int_field(s, GIVEN)[k] += 1
            break
    st.policy_ints(s)[N_TURNING] += st.int_field(s, TURNING)[server]
    update_offer(s, server)


@kernel
def _has_slots_of(s: st.State, server: int, k: int) -> bool:
    for j in range(s.n_types):
        if st.configuration(s)[server, j] != st.int_table(s, MIX)[k, j]:
            return False
    return True


# -- the chain ----------------------------------------------------------------------------------------------------------


@kernel
def goal(s: st.State, k: int) -> int:
    """Return how many servers have configuration k where U stands: the n with low L <= n + U < high L."""
    c, u = st.int_field(s, OWNER)[k], st.policy_floats(s)[U]
    if c < 0:
        return 0
    many = st.present_by_class(s)[c]
    high = math.ceil(st.float_field(s, HIGH)[k] * many - u - EPSILON)
    return int(high - math.ceil(st.float_field(s, LOW)[k] * many - u - EPSILON))


@kernel
def point(s: st.State, k: int) -> float:
    """Return the point between 0 and 1 at which a server changes from configuration k to the next; 0 also stands
    for 1."""
    if st.int_field(s, OWNER)[k] < 0:
        return 0.0
    end = st.float_field(s, HIGH)[k] * st.present_by_class(s)[st.int_field(s, OWNER)[k]]
    part = end - math.floor(end)
    return part if EPSILON < part < 1.0 - EPSILON else 0.0


@kernel
def next_step(s: st.State) -> float:
    """Return the next point after U at which a server changes, at most 1."""
    step = 1.0
    for k in range(len(st.int_field(s, OWNER))):
        at = point(s, k)
        if st.policy_floats(s)[U] + EPSILON < at < step:
            step = at
    return step


@kernel
def set_clock(s: st.State) -> None:
    """Let ticks come at the rate at which U leaves its place. There are none if nothing would change or some server
    still turns."""
    changes = st.policy_ints(s)[RENEWED] > 0
    for k in range(len(st.int_field(s, OWNER))):
        if point(s, k) > 0.0 or st.int_field(s, GIVEN)[k] != goal(s, k):
            changes = True
    s.tick_rate = 0.0
    if changes and st.policy_ints(s)[N_TURNING] == 0:
        s.tick_rate = 1.0 / (st.policy_floats(s)[CYCLE] * (next_step(s) - st.policy_floats(s)[U]))


@kernel
def rebalance(s: st.State) -> None:
    """Change servers with a configuration that is held too often to one that is not held often enough."""
    for k in range(len(st.int_field(s, OWNER))):
        while st.int_field(s, GIVEN)[k] > goal(s, k):
            to = missing(s, st.int_field(s, OWNER)[k])
            server = cheapest(s, k, to)
            take_back(s, server)
            give(s, server, to)
            s.resets += 1
            st.policy_ints(s)[N_TURNING] += 1 - st.int_field(s, TURNING)[server]
            st.int_field(s, TURNING)[server] = 1
            use_room(s, server)


@kernel
def missing(s: st.State, c: int) -> int:
    """Return the configuration of class c of which most servers are missing, or -1 if the class has none."""
    best, most = -1, np.int64(0)
    for k in range(len(st.int_field(s, OWNER))):
        lacks = goal(s, k) - st.int_field(s, GIVEN)[k]
        if st.int_field(s, OWNER)[k] == c and (best < 0 or lacks > most):
            best, most = k, lacks
    return best


@kernel
def cheapest(s: st.State, k: int, to: int) -> int:
    """Return the server with configuration k that has the fewest jobs without a slot in `to`; of equal servers the
    first."""
    best, least = -1, 0
    for server in range(s.n_places):
        if st.int_field(s, HAS)[server] == k + 1:
            over = 0
            for j in range(s.n_types):
                over += max(0, st.running(s)[server, j] - st.int_table(s, MIX)[to, j])
            if best < 0 or over < least:
                best, least = server, over
    return best


@kernel
def give_missing(s: st.State, server: int) -> None:
    """Give the server the configuration of which most are missing."""
    k = missing(s, st.servers(s)[server, st.CLASS])
    if k >= 0:
        give(s, server, k)


@kernel
def give(s: st.State, server: int, k: int) -> None:
    """Give the server the slots of configuration k."""
    st.int_field(s, HAS)[server] = k + 1
    st.int_field(s, GIVEN)[k] += 1
    for j in range(s.n_types):
        st.configuration(s)[server, j] = st.int_table(s, MIX)[k, j]


@kernel
def take_back(s: st.State, server: int) -> None:
    """Take the slots off the server."""
    k = st.int_field(s, HAS)[server] - 1
    if k >= 0:
        st.int_field(s, GIVEN)[k] -= 1
    st.int_field(s, HAS)[server] = 0
    for j in range(s.n_types):
        st.configuration(s)[server, j] = 0


# -- servers ------------------------------------------------------------------------------------------------------------


@kernel
def use_room(s: st.State, server: int) -> None:
    """Start the jobs that have a slot, large ones first, then fill what is left over."""
    slots, on = st.configuration(s)[server], st.running(s)[server]
    for n in range(s.n_types):
        j = st.order(s)[0, n]
        st.set_type_need(s, j)
        while on[j] < slots[j] and st.queue_length(s)[j] > 0 and st.fits(s, server, st.need(s)):
            start(s, j, server)
    update_offer(s, server)
    if st.policy_ints(s)[FILLS] and st.servers(s)[server, st.MODE] != st.STALLED and s.n_waiting > 0:
        fill(s, server, OLDEST)
        update_offer(s, server)


@kernel
def update_offer(s: st.State, server: int) -> None:
    """Update what the server offers, what it wants, and whether it drains for a waiting job that has a slot there and
    does not fit."""
    slots, on, wants, row = (
        st.configuration(s)[server],
        st.running(s)[server],
        st.int_table(s, WANTS)[server],
        st.servers(s)[server],
    )
    drains = False
    for j in range(s.n_types):
        wanted = 0
        if on[j] < slots[j]:
            st.set_type_need(s, j)
            if st.fits(s, server, st.need(s)):
                bitmap.add(s, j, server)
            else:
                wanted = 1
                bitmap.discard(s, j, server)
        else:
            bitmap.discard(s, j, server)
        st.int_field(s, WANTED)[j] += wanted - wants[j]
        wants[j] = wanted
        if wanted == 1 and st.queue_length(s)[j] > 0:
            drains = True
    if drains != (row[st.MODE] == st.STALLED):
        row[st.MODE] = st.STALLED if drains else st.ACTIVE
        s.n_stalled += 1 if drains else -1
        s.stalls += 1 if drains else 0
        reindex(s, server)
    if st.int_field(s, TURNING)[server] == 1 and not drains:
        st.int_field(s, TURNING)[server] = 0
        st.policy_ints(s)[N_TURNING] -= 1
        if st.policy_ints(s)[N_TURNING] == 0:
            set_clock(s)


@kernel
def settle(s: st.State) -> None:
    """Update the servers that want a type whose queue has become empty, or is empty no more. They drain, or fill
    again, which may empty other queues."""
    again = True
    while again:
        again = False
        for j in range(s.n_types):
            waited = 1 if st.queue_length(s)[j] > 0 else 0
            if waited != st.int_field(s, WAITED)[j]:
                st.int_field(s, WAITED)[j] = waited
                again = True
                for server in range(s.n_places if st.int_field(s, WANTED)[j] > 0 else 0):
                    if st.int_table(s, WANTS)[server, j] == 1:
                        use_room(s, server)


# -- the policy ---------------------------------------------------------------------------------------------------------


class NmsrOptions(FitOptions):
    """Options of nMSR."""

    cycle: float | None = Field(
        None,
        gt=0,
        description="mean time of a round through the configurations, in the longest mean service time; by default long enough for the load",
    )
    fill: bool = Field(True, description="use room that the slots leave over for other waiting jobs, oldest first")


class Nmsr(Fitting):
    """Non-preemptive Markovian service rates (Chen, Grosof and Berg, 2025)."""

    name = "nmsr"
    summary = (
        "a random clock moves servers round the configurations of the mix that carries the load; needs the rates"
    )
    Options = NmsrOptions
    memory = MEMORY
    job_rule = OLDEST
    mix: LaidMix
    arrive, complete = staticmethod(arrive), staticmethod(complete)
    join, leave, cancel = staticmethod(join), staticmethod(leave), staticmethod(cancel)
    tick, file = staticmethod(tick), staticmethod(file)

    def prepare(self, store: Store) -> None:
        super().prepare(store)
        store.arrays["policy_ints"][FILLS] = self.options.fill
        self.put_mix(store)

    def put_mix(self, store: Store) -> None:
        """Write the configurations, their shares and the time of a round into the state."""
        self.mix = mix_of(store)
        store.arrays["policy_floats"][CYCLE] = self.round_of(store)
        n = len(self.mix.rows)
        for field, values in zip((MIX, OWNER, LOW, HIGH), self.mix[:4], strict=True):
            store.values_of(field)[:n] = values
        store.values_of(OWNER)[n:] = -1

    def learnt(self, store: Store, names: Names) -> dict[str, Any]:
        """Return what is kept, and the number of servers of each class for which the mix is made. The present
        servers may be fewer, or more."""
        return {**super().learnt(store, names), "expected": store.counts.tolist()}

    def recall(self, store: Store, values: dict[str, Any], names: Names) -> None:
        """Make the mix for as many servers as before, unless there are other classes."""
        expected = values.pop("expected", None)
        if isinstance(expected, list) and len(expected) == store.state.n_classes:
            if not all(isinstance(count, int) and count >= 0 for count in expected):
                raise damaged(store, "expected", "it is a number of servers for each class")
            store.counts = np.array(expected, np.int64)
            self.put_mix(store)
        super().recall(store, values, names)

    def round_of(self, store: Store) -> float:
        """Return the mean time of a round."""
        longest = float(store.mean_service.max())
        if self.options.cycle is not None:
            return float(self.options.cycle) * longest
        free = min(max(1.0 - self.mix.intensity, LEAST_FREE), MOST_FREE)
        return max(SHORTEST * longest, cost_of(self.mix, store) / (SPENT * free))

    def recalled(self, store: Store) -> None:
        """Give other slots to servers whose slots are not of the mix (types or classes have changed). They use them
        from the next tick on."""
        state: Any = store.state
        for server in np.flatnonzero(store.arrays["servers"][:, st.STATUS] == st.PRESENT).tolist():
            if store.values_of(HAS)[server] == 0:
                give_missing(state, server)
                update_offer(state, server)
                store.arrays["policy_ints"][RENEWED] = 1
        set_clock(state)

    def claim(self) -> PolicyClaim:
        return Unknown(
            "as published stable inside the whole region of one server, for Poisson arrivals and exponential services, if"
            " the clock is slow enough for the load; the default clock rests on an estimate of that, and nothing is known of"
            " this extension to several servers, nor of filling",
            "Chen, Grosof and Berg 2025",
        )

    def why_waits(self, view: View, i: int) -> Because:
        figures = {
            "taken": int(view.store.running[view.present, view.type_of(i)].sum()),
            "stalled": int(view.store.state.n_stalled),
            "servers": int(view.store.state.n_servers),
        }
        return view.no_room(i) or Because(Reason.NO_SLOT, figures)

    def describe(self, view: View, server: int) -> tuple[Because, ...]:
        figures = {"configuration": view.counts(view.store.configuration[server]), "holding": view.holding(server)}
        return (Because(Reason.HAS_SLOTS, figures),)

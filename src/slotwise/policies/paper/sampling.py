"""G16, randomized sampling (a reconstruction): queues sample servers, and tokens hold room for jobs to come.

Queue j has a clock. At a tick it samples a server uniformly; if type j fits beside the jobs and tokens there, the head
of line starts, or with an empty queue a token stays and holds the room. An arrival replaces a token of its type.

    g16            clock rate alpha mu_j (1 + Q_j); tokens live Exp(mu_j)
    g16-retention  clock rate alpha mu_j; w_j = max(f(Q_j), eps f(Q_max)), f(x) = log(1 + x)^(1 - b); at the end of a
                   job or a token the room stays with probability 1 - exp(-w_j)

All clocks are one: ticks come at the sum of the rates, and chance says whose it was. Tokens expire at rate mu_max each and
are spared with probability 1 - mu_j / mu_max, which is Exp(mu_j). `configuration` counts jobs and tokens.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import int_rows
from slotwise.core import chance
from slotwise.core import state as st
from slotwise.core.contract.claims import PolicyClaim, Unknown
from slotwise.core.contract.learnt import Names
from slotwise.core.contract.memory import Memory
from slotwise.core.contract.policy import Options, Policy
from slotwise.core.contract.reasons import Because, Reason
from slotwise.core.contract.view import View
from slotwise.core.indexes import bitmap
from slotwise.core.steps import hold_room, start
from slotwise.core.store import Store

MEMORY = Memory()
RETENTION = MEMORY.count("retention", kept=False)
N_TOKENS = MEMORY.count("n_tokens", kept=False)
ALPHA = MEMORY.number("alpha", kept=False)
EXPONENT = MEMORY.number("exponent", kept=False)
EPSILON = MEMORY.number("epsilon", kept=False)
# of a token: its type, its server, and its neighbours among those of one type on one server
KIND, ON, NEXT_TOKEN, PREVIOUS_TOKEN = 0, 1, 2, 3
COLUMNS = 4  # of a token: see the accessor
# those there are stand in front; a server has never more of them than jobs fit it
TOKENS = MEMORY.counts(
    "tokens", per="server", columns=lambda store: COLUMNS * int(store.arrays["most"].sum(axis=1).max()), kept=False
)
FIRST = MEMORY.counts("first", per="server", columns="type", kept=False, start=-1)


@kernel
def tokens(s: st.State) -> NDArray[np.int64]:
    """(n_tokens, 4): KIND, ON, NEXT_TOKEN, PREVIOUS_TOKEN; one row more, for the next to come."""
    return int_rows(st.policy_fields(s)[TOKENS, st.FIELD_AT], st.policy_ints(s)[N_TOKENS] + 1, COLUMNS)


@kernel
def token_head(s: st.State) -> NDArray[np.int64]:
    """(S, J): the first of the tokens of a type on a server, -1 where there is none."""
    return st.int_table(s, FIRST)


def arrive(s: st.State, j: int, i: int) -> None:
    """Replace a token of the type, if there is one."""
    server = bitmap.first(s, j)
    if server >= 0:
        remove_token(s, j, server)
        begin(s, j, server)
    set_rate(s)


def complete(s: st.State, j: int, server: int) -> None:
    """Release the capacity of the job. With retention its type perhaps keeps it."""
    st.configuration(s)[server, j] -= 1
    if st.policy_ints(s)[RETENTION] and chance.uniform(s) < 1.0 - math.exp(-retention(s, j)):
        st.set_type_need(s, j)
        if st.fits(s, server, st.need(s)):  # not where jobs that another policy has packed tighter are still there
            use_room(s, j, server)
    set_rate(s)


def join(s: st.State, server: int, _: int) -> None:
    """Clear the new server's slots. It waits to be sampled."""
    for j in range(s.n_types):
        st.configuration(s)[server, j] = 0
    set_rate(s)


def resume(s: st.State, server: int, _: int) -> None:
    """Count the jobs on the server as its slots. It waits to be sampled beside them."""
    for j in range(s.n_types):
        st.configuration(s)[server, j] = st.running(s)[server, j]
    set_rate(s)


def file(s: st.State, server: int, _: int) -> None:
    """Offer the tokens of the server."""
    for j in range(s.n_types):
        if token_head(s)[server, j] >= 0:
            bitmap.add(s, j, server)


def leave(s: st.State, server: int, _: int) -> None:
    """Remove the tokens of the server."""
    for j in range(s.n_types):
        while token_head(s)[server, j] >= 0:
            remove_token(s, j, server)
    set_rate(s)


def cancel(s: st.State, j: int, i: int) -> None:
    """Lower the sampling rate of the shorter queue."""
    set_rate(s)


def tick(s: st.State, _: int, __: int) -> None:
    """Let a queue sample a server, or let a token expire."""
    rest = chance.uniform(s) * s.tick_rate
    for j in range(s.n_types):
        rest -= sampling_rate(s, j)
        if rest < 0.0:
            sample(s, j)
            set_rate(s)
            return
    if st.policy_ints(s)[N_TOKENS] > 0:
        expire(s)
        set_rate(s)


@kernel
def sample(s: st.State, j: int) -> None:
    """Let queue j sample one server."""
    if s.n_servers == 0:
        return
    server = chance.below(s, s.n_places)
    while st.servers(s)[server, st.STATUS] != st.PRESENT:
        server = chance.below(s, s.n_places)
    st.set_type_need(s, j)
    if st.fits(s, server, st.need(s)):
        use_room(s, j, server)


@kernel
def use_room(s: st.State, j: int, server: int) -> None:
    """Use free capacity for type j: start the head of the queue, or hold the capacity by a token."""
    if st.queue_length(s)[j] > 0:
        begin(s, j, server)
    else:
        add_token(s, j, server)


@kernel
def begin(s: st.State, j: int, server: int) -> None:
    """Start the head of the queue. Running jobs count as taken slots."""
    st.configuration(s)[server, j] += 1
    start(s, j, server)


@kernel
def expire(s: st.State) -> None:
    """Choose a token, each with the same chance. End it with probability mu_j / mu_max."""
    some = tokens(s)[chance.below(s, st.policy_ints(s)[N_TOKENS])]
    j, server = some[KIND], some[ON]
    if chance.uniform(s) * st.mean_service(s)[j] >= shortest_mean(s):
        return
    remove_token(s, j, server)  # those of one type on one server are interchangeable
    if st.policy_ints(s)[RETENTION] and chance.uniform(s) < 1.0 - math.exp(-retention(s, j)):
        use_room(s, j, server)


@kernel
def add_token(s: st.State, j: int, server: int) -> None:
    """Leave a token of type j on the server."""
    put_token(s, j, server)
    hold_room(s, j, server, 1)
    st.configuration(s)[server, j] += 1
    bitmap.add(s, j, server)


@kernel
def put_token(s: st.State, j: int, server: int) -> None:
    """Put a new token behind all others. It becomes the first of its type on its server."""
    all_tokens, t, heads = tokens(s), st.policy_ints(s)[N_TOKENS], token_head(s)[server]
    all_tokens[t, KIND] = j
    all_tokens[t, ON] = server
    all_tokens[t, NEXT_TOKEN] = heads[j]
    all_tokens[t, PREVIOUS_TOKEN] = -1
    if heads[j] >= 0:
        all_tokens[heads[j], PREVIOUS_TOKEN] = t
    heads[j] = t
    st.policy_ints(s)[N_TOKENS] += 1


@kernel
def remove_token(s: st.State, j: int, server: int) -> None:
    """Take the first token of type j off the server; the last of all tokens takes its place."""
    all_tokens, heads = tokens(s), token_head(s)
    t = heads[server, j]
    heads[server, j] = all_tokens[t, NEXT_TOKEN]
    if heads[server, j] >= 0:
        all_tokens[heads[server, j], PREVIOUS_TOKEN] = -1
    st.policy_ints(s)[N_TOKENS] -= 1
    last = st.policy_ints(s)[N_TOKENS]
    if last != t:
        for column in range(COLUMNS):
            all_tokens[t, column] = all_tokens[last, column]
        after, before = all_tokens[t, NEXT_TOKEN], all_tokens[t, PREVIOUS_TOKEN]
        if after >= 0:
            all_tokens[after, PREVIOUS_TOKEN] = t
        if before >= 0:
            all_tokens[before, NEXT_TOKEN] = t
        else:
            heads[all_tokens[t, ON], all_tokens[t, KIND]] = t
    hold_room(s, j, server, -1)
    st.configuration(s)[server, j] -= 1
    if heads[server, j] < 0:
        bitmap.discard(s, j, server)


@kernel
def retention(s: st.State, j: int) -> float:
    """Return w_j = max(f(Q_j), eps f(Q_max))."""
    longest = 0
    for other in range(s.n_types):
        longest = max(longest, st.queue_length(s)[other])
    power, epsilon = st.policy_floats(s)[EXPONENT], st.policy_floats(s)[EPSILON]
    mine = math.log(1.0 + st.queue_length(s)[j]) ** power
    return max(mine, epsilon * math.log(1.0 + longest) ** power)


@kernel
def sampling_rate(s: st.State, j: int) -> float:
    """Return the rate of queue j's clock."""
    rate = st.policy_floats(s)[ALPHA] / st.mean_service(s)[j]
    return rate if st.policy_ints(s)[RETENTION] else rate * (1.0 + st.queue_length(s)[j])


@kernel
def shortest_mean(s: st.State) -> float:
    """Return 1 / mu_max."""
    least = st.mean_service(s)[0]
    for j in range(s.n_types):
        least = min(least, st.mean_service(s)[j])
    return least


@kernel
def set_rate(s: st.State) -> None:
    """Set the tick rate to the sum of the rates of all clocks."""
    total = st.policy_ints(s)[N_TOKENS] / shortest_mean(s)
    for j in range(s.n_types):
        total += sampling_rate(s, j)
    s.tick_rate = total


class G16Options(Options):
    """Options of G16."""

    alpha: float = Field(
        1.0, gt=0, description="sampling rate, per mean service time (not scaled with the servers)"
    )


class G16(Policy):
    """Ghaderi's randomized sampling, rate form (a reconstruction)."""

    name = "g16"
    summary = "randomized sampling: queues sample servers at rate alpha (1 + Q) and leave tokens (reconstruction)"
    Options: ClassVar[type[Options]] = G16Options
    memory = MEMORY
    keeps = frozenset({"free"})
    compiled = True
    arrive, complete, cancel = staticmethod(arrive), staticmethod(complete), staticmethod(cancel)
    join, leave, resume = staticmethod(join), staticmethod(leave), staticmethod(resume)
    tick, file = staticmethod(tick), staticmethod(file)

    def prepare(self, store: Store) -> None:
        store.arrays["policy_floats"][ALPHA] = self.options.alpha

    def learnt(self, store: Store, names: Names) -> dict[str, Any]:
        """Return the tokens: type, server and, of those of one type on one server, the next."""
        at = dict(zip(names.server_rows, range(len(names.servers)), strict=True))
        rows = tokens(store.state)[:-1].tolist()
        return {"tokens": [[kind, at[on], after] for kind, on, after, _ in rows]}

    def recall(self, store: Store, values: dict[str, Any], names: Names) -> None:
        """Put the tokens back, and hold their room. With other types than before they are gone, as if they had expired."""
        rows = [(int(kind), int(on), int(after)) for kind, on, after in values.get("tokens", [])]
        if list(names.type_rows) != list(range(store.state.n_types)):
            rows = []
        state: Any = store.state
        store.arrays["policy_ints"][N_TOKENS] = len(rows)
        all_tokens = tokens(state)
        store.configuration[:] = store.running
        for t, (kind, on, after) in enumerate(rows):
            server = names.server_rows[on]
            all_tokens[t] = kind, server, after, -1
            store.configuration[server, kind] += 1
            store.arrays["free"][server] -= store.sizes.demand[kind]
        for t, (_, _, after) in enumerate(rows):
            if after >= 0:
                all_tokens[after, PREVIOUS_TOKEN] = t
        for t, (kind, on, _) in enumerate(rows):
            if all_tokens[t, PREVIOUS_TOKEN] < 0:
                token_head(state)[names.server_rows[on], kind] = t

    def recalled(self, store: Store) -> None:
        set_rate(store.state)

    def claim(self) -> PolicyClaim:
        return Unknown(
            "as published stable inside the whole region, for Poisson arrivals and exponential services; this is a"
            " reconstruction, so nothing is claimed for it",
            "Ghaderi 2016",
        )

    def why_waits(self, view: View, i: int) -> Because:
        return Because(Reason.NOT_SAMPLED, {"rate": float(view.store.state.tick_rate)})


class G16RetentionOptions(G16Options):
    """Options of G16 with retention."""

    b: float = Field(0.3, gt=0, lt=1, description="f(x) = log(1 + x)^(1 - b)")
    epsilon: float = Field(1e-4, gt=0, lt=1, description="w_j = max(f(Q_j), epsilon f(Q_max))")


class G16Retention(G16):
    """G16 where room stays with its type with a probability that grows with the queue (a reconstruction)."""

    name = "g16-retention"
    summary = "randomized sampling with retention of room by queue size (reconstruction)"
    Options = G16RetentionOptions

    def prepare(self, store: Store) -> None:
        super().prepare(store)
        store.arrays["policy_ints"][RETENTION] = 1
        store.arrays["policy_floats"][EXPONENT] = 1.0 - self.options.b
        store.arrays["policy_floats"][EPSILON] = self.options.epsilon

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

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling import bitmap, chance
from slotwise.scheduling.memory import int_rows
from slotwise.scheduling.moves import hold_room, start
from slotwise.scheduling.policies.fitting import fits
from slotwise.scheduling.state import (
    AT,
    FREE_TOKEN,
    KIND,
    NEXT_TOKEN,
    ON,
    PLACE,
    PRESENT,
    STATUS,
    TOKEN_COLUMNS,
    State,
    configuration,
    demand,
    mean_service,
    policy_floats,
    policy_ints,
    queue_length,
    servers,
)

# policy_ints (1 is FREE_TOKEN)
RETENTION = 0
# policy_floats
ALPHA, EXPONENT, EPSILON = 0, 1, 2


@kernel
def tokens(s: State) -> NDArray[np.int64]:
    """(most tokens, 5)."""
    return int_rows(s.at_tokens, s.max_tokens, TOKEN_COLUMNS)


@kernel
def token_head(s: State) -> NDArray[np.int64]:
    """(S, J): the first of the tokens of a type on a server, -1 where there is none."""
    return int_rows(s.at_token_head, s.max_servers, s.n_types)


def arrive(s: State, j: int, i: int) -> None:
    """Replace a token of the type, if there is one."""
    server = bitmap.first(s, j)
    if server >= 0:
        remove_token(s, j, server)
        begin(s, j, server)
    set_rate(s)


def complete(s: State, j: int, server: int) -> None:
    """The room is released, or with retention perhaps stays with the type."""
    configuration(s)[server, j] -= 1
    if policy_ints(s)[RETENTION] and chance.uniform(s) < 1.0 - math.exp(-retention(s, j)):
        use_room(s, j, server)
    set_rate(s)


def join(s: State, server: int, _: int) -> None:
    """A new server waits to be sampled."""
    for j in range(s.n_types):
        configuration(s)[server, j] = 0
    set_rate(s)


def leave(s: State, server: int, _: int) -> None:
    """Its tokens go with it."""
    for j in range(s.n_types):
        while token_head(s)[server, j] >= 0:
            remove_token(s, j, server)
    set_rate(s)


def cancel(s: State, j: int, i: int) -> None:
    """A shorter queue samples less often."""
    set_rate(s)


def tick(s: State, _: int, __: int) -> None:
    """A queue samples a server, or a token expires."""
    rest = chance.uniform(s) * s.tick_rate
    for j in range(s.n_types):
        rest -= sampling_rate(s, j)
        if rest < 0.0:
            sample(s, j)
            set_rate(s)
            return
    if s.n_tokens > 0:
        expire(s)
        set_rate(s)


@kernel
def sample(s: State, j: int) -> None:
    """Queue j looks at one server."""
    if s.n_servers == 0:
        return
    server = chance.below(s, s.max_servers)
    while servers(s)[server, STATUS] != PRESENT:
        server = chance.below(s, s.max_servers)
    if fits(s, server, demand(s)[j]):
        use_room(s, j, server)


@kernel
def use_room(s: State, j: int, server: int) -> None:
    """Room for type j: the head of line starts, or a token holds it."""
    if queue_length(s)[j] > 0:
        begin(s, j, server)
    else:
        add_token(s, j, server)


@kernel
def begin(s: State, j: int, server: int) -> None:
    """Start the head of line; jobs count as slots that are taken."""
    configuration(s)[server, j] += 1
    start(s, j, server)


@kernel
def expire(s: State) -> None:
    """Any token, each with the same chance, ends with probability mu_j / mu_max."""
    some = tokens(s)[chance.below(s, s.n_tokens), AT]
    j, server = tokens(s)[some, KIND], tokens(s)[some, ON]
    if chance.uniform(s) * mean_service(s)[j] >= shortest_mean(s):
        return
    remove_token(s, j, server)  # those of one type on one server are interchangeable
    if policy_ints(s)[RETENTION] and chance.uniform(s) < 1.0 - math.exp(-retention(s, j)):
        use_room(s, j, server)


@kernel
def add_token(s: State, j: int, server: int) -> None:
    """Leave a token of type j on the server."""
    all_tokens = tokens(s)
    t = policy_ints(s)[FREE_TOKEN]
    token = all_tokens[t]
    policy_ints(s)[FREE_TOKEN] = token[NEXT_TOKEN]
    token[KIND] = j
    token[ON] = server
    token[NEXT_TOKEN] = token_head(s)[server, j]
    token_head(s)[server, j] = t
    token[PLACE] = s.n_tokens
    all_tokens[s.n_tokens, AT] = t
    s.n_tokens += 1
    hold_room(s, j, server, 1)
    configuration(s)[server, j] += 1
    bitmap.add(s, j, server)


@kernel
def remove_token(s: State, j: int, server: int) -> None:
    """Take a token of type j off the server."""
    all_tokens = tokens(s)
    t = token_head(s)[server, j]
    token = all_tokens[t]
    token_head(s)[server, j] = token[NEXT_TOKEN]
    s.n_tokens -= 1
    last = all_tokens[s.n_tokens, AT]
    all_tokens[token[PLACE], AT] = last
    all_tokens[last, PLACE] = token[PLACE]
    token[NEXT_TOKEN] = policy_ints(s)[FREE_TOKEN]
    policy_ints(s)[FREE_TOKEN] = t
    hold_room(s, j, server, -1)
    configuration(s)[server, j] -= 1
    if token_head(s)[server, j] < 0:
        bitmap.discard(s, j, server)


@kernel
def retention(s: State, j: int) -> float:
    """w_j = max(f(Q_j), eps f(Q_max))."""
    longest = 0
    for other in range(s.n_types):
        longest = max(longest, queue_length(s)[other])
    power, epsilon = policy_floats(s)[EXPONENT], policy_floats(s)[EPSILON]
    mine = math.log(1.0 + queue_length(s)[j]) ** power
    return max(mine, epsilon * math.log(1.0 + longest) ** power)


@kernel
def sampling_rate(s: State, j: int) -> float:
    """The rate of queue j's clock."""
    rate = policy_floats(s)[ALPHA] / mean_service(s)[j]
    return rate if policy_ints(s)[RETENTION] else rate * (1.0 + queue_length(s)[j])


@kernel
def shortest_mean(s: State) -> float:
    """1 / mu_max."""
    least = mean_service(s)[0]
    for j in range(s.n_types):
        least = min(least, mean_service(s)[j])
    return least


@kernel
def set_rate(s: State) -> None:
    """The sum of all clocks."""
    total = s.n_tokens / shortest_mean(s)
    for j in range(s.n_types):
        total += sampling_rate(s, j)
    s.tick_rate = total

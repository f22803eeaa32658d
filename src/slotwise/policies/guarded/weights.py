"""The weight of a type: W_j = g_j (b + Q_j + a D_j).

| symbol | meaning | unit |
|---|---|---|
| g_j | size of type j: the part of a server that one of its jobs makes unusable for all others (`sizes`) | servers |
| Q_j | waiting jobs of type j | jobs |
| D_j | age of the oldest waiting job of type j | arrivals since its own |
| a | `AGE`: what an arrival of age counts beside a waiting job | jobs per arrival |
| b | `tightness`: what a job counts for the capacity that it uses, whatever waits | jobs |

Queue length alone serves types with many short jobs and starves the largest type. The age makes every wait end. In the long run Q_j is D_j times the share of type j in
all arrivals. So the weights are the gradient of a sum of squares of the queues, the Lyapunov function of the proof (docs/theory/guarded.md).
The term b makes a refill that leaves less capacity idle the heavier one while queues are short.
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.core.state import (
    COUNT,
    State,
    head,
    offset,
    order,
    queue_length,
    running,
    sequence,
    servers,
    weight,
)
from slotwise.core.steps import next_waiting
from slotwise.policies.guarded.services import sizes

# In jobs per arrival. With 0.01 instead of 0.003, longest waits on logs are a seventh shorter and queues a seventh longer. With 0 waits have no bound.
AGE = 0.004


@kernel
def weigh(s: State) -> None:
    """Bring the weights of all waiting types up to date. A type without a waiting job always weighs g_j b, its offset."""
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        weight(s)[j] = offset(s)[j] + sizes(s)[j] * (queue_length(s)[j] + AGE * age(s, j))
        n = next_waiting(s, n + 1)


@kernel
def age(s: State, j: int) -> float:
    """Return D_j."""
    return float(s.last_sequence - sequence(s)[head(s, j)])


@kernel
def held_weight(s: State, server: int) -> float:
    """Return f(k, W) of the jobs on the server."""
    on, total, left, j = running(s)[server], 0.0, int(servers(s)[server, COUNT]), 0
    while left > 0:
        if on[j] > 0:
            total += weight(s)[j] * on[j]
            left -= on[j]
        j += 1
    return total

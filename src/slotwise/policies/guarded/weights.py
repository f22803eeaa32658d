"""The weight of a type: W_j = g_j (b + Q_j^(3/4) D_j^(1/4)).

| symbol | meaning | unit |
|---|---|---|
| g_j | demand of type j as a share of the largest server, of the resource of which it takes most | servers |
| Q_j | waiting jobs of type j | jobs |
| D_j | age of the oldest waiting job of type j | arrivals since its own |
| b | `tightness`: what a job counts for the capacity that it uses, whatever waits | jobs |

Queue length alone serves types with many short jobs and starves the largest type; age alone serves in the order of arrival. The exponents are a compromise:
a larger exponent of the age lengthens queues on logs, a smaller one lengthens the waits of jobs that need a whole server (docs/research/guarded.md).
The term b makes a refill that leaves less capacity idle the heavier one while queues are short.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core.queues import next_waiting
from slotwise.core.state import (
    COUNT,
    State,
    float_field,
    head,
    offset,
    order,
    queue_length,
    running,
    sequence,
    servers,
    weight,
)
from slotwise.policies.guarded.memory import SIZES


@kernel
def sizes(s: State) -> NDArray[np.float64]:
    """(J,): g_j."""
    return float_field(s, SIZES)


@kernel
def weigh(s: State) -> None:
    """Bring the weights of all waiting types up to date. A type without a waiting job always weighs g_j b, its offset."""
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        age = s.last_sequence - sequence(s)[head(s, j)]
        weight(s)[j] = offset(s)[j] + sizes(s)[j] * math.sqrt(
            queue_length(s)[j] * math.sqrt(float(queue_length(s)[j]) * age)
        )
        n = next_waiting(s, n + 1)


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

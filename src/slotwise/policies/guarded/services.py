"""Mean service times of the types, learnt relative to each other. Time is counted in arrivals, so that no clock is needed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core.state import State, float_field, policy_floats, policy_ints, running_by_type
from slotwise.policies.guarded.memory import (
    ALL_COMPLETED,
    ALL_SEEN,
    COMPLETED,
    COUNTS,
    DRAINS_EXPECTED,
    DRAINS_TOOK,
    LAST_COUNT,
    SAMPLES,
    SEEN_RUNNING,
    SIZE_COMPLETED,
    SIZES,
)

# Arrivals between two counts of running jobs, at least: counting takes a look at every type. A completion is between them, too, so that thousands
# of jobs that arrive at one moment do not fill the counts with that moment.
SAMPLE_EVERY = 16
PRIOR = 10.0  # completions with the mean of all types that each type begins with
# Completions after which old ones count half, so that service times may change. If more jobs wait, as many: learnt values then become exact
# while a very long queue is worked off, which the proof of shares needs.
WINDOW = float(1 << 20)


@kernel
def sizes(s: State) -> NDArray[np.float64]:
    """(J,): g_j."""
    return float_field(s, SIZES)


@kernel
def count_running(s: State) -> None:
    """Count the running jobs of each type every SAMPLE_EVERY arrivals. By Little's law S_j is to that count as 1 to the completions."""
    policy_ints(s)[SAMPLES] += 1
    if policy_ints(s)[SAMPLES] >= SAMPLE_EVERY:
        policy_ints(s)[SAMPLES] = 0
        dt = max(s.now - policy_floats(s)[LAST_COUNT], 0.0)
        policy_floats(s)[LAST_COUNT] = s.now
        seen = float_field(s, SEEN_RUNNING)
        for j in range(s.n_types):
            seen[j] += dt * running_by_type(s)[j]
        policy_floats(s)[ALL_SEEN] += dt * s.n_running
        if s.n_waiting > 0:
            policy_floats(s)[COUNTS] += dt
        policy_floats(s)[DRAINS_TOOK] += dt * s.n_stalled


@kernel
def count_completion(s: State, j: int) -> None:
    """Count a completion of type j."""
    count_running(s)
    done, seen, both = float_field(s, COMPLETED), float_field(s, SEEN_RUNNING), policy_floats(s)
    done[j] += 1.0
    both[ALL_COMPLETED] += 1.0
    if s.n_waiting > 0:
        both[SIZE_COMPLETED] += sizes(s)[j]
    if both[ALL_COMPLETED] >= max(WINDOW, float(s.n_waiting)):
        both[ALL_COMPLETED] /= 2.0
        both[SIZE_COMPLETED] /= 2.0
        both[ALL_SEEN] /= 2.0
        both[COUNTS] /= 2.0
        both[DRAINS_EXPECTED] /= 2.0
        both[DRAINS_TOOK] /= 2.0
        for k in range(s.n_types):
            done[k], seen[k] = done[k] / 2.0, seen[k] / 2.0


@kernel
def mean_service(s: State, j: int) -> float:
    """Return S_j, the mean service time of type j, in periods between two counts."""
    seen, done = float_field(s, SEEN_RUNNING)[j], float_field(s, COMPLETED)[j]
    return float((seen + PRIOR * _common(s)) / (done + PRIOR))


@kernel
def shortest_service(s: State) -> float:
    """Return the least S_j of all types."""
    seen, done, prior = float_field(s, SEEN_RUNNING), float_field(s, COMPLETED), PRIOR * _common(s)
    shortest = math.inf
    for j in range(s.n_types):
        shortest = min(shortest, (seen[j] + prior) / (done[j] + PRIOR))
    return shortest


@kernel
def _common(s: State) -> float:
    """Return the mean service time of all types, in periods between two counts."""
    both = policy_floats(s)
    return float(both[ALL_SEEN] / max(both[ALL_COMPLETED], 1.0))

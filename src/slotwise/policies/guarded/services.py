"""Mean service times of the types, and how much the cluster completes, learnt by Little's law from counts of running jobs.

| symbol | meaning | unit |
|---|---|---|
| S_j | mean service time of type j: its running jobs, summed over time, per completion | time |
| A | size of the jobs that complete in the cluster while jobs wait | servers per time |

Time is the time of events. Counted in arrivals instead, which come in bursts, drains seem shorter than they are: queues on logs are then 5 % longer in the mean, and 40 % at one point.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core.state import State, float_field, policy_floats, policy_ints, running_by_type
from slotwise.policies.guarded.memory import (
    ALL_COMPLETED,
    ALL_JOB_TIME,
    BUSY_TIME,
    COMPLETED,
    DRAINS_EXPECTED,
    DRAINS_TOOK,
    EVENTS_SINCE,
    JOB_TIME,
    LAST_COUNT,
    NEVER,
    SIZE_COMPLETED,
    SIZES,
)

SAMPLE_EVERY = 16  # events between two counts of running jobs: a count takes a look at every type
PRIOR = 10.0  # completions with the mean of all types that each type begins with
# Completions after which old ones count half, so that service times may change. If more jobs wait, as many: learnt values then become exact
# while a very long queue is worked off, which the proof of shares needs.
WINDOW = float(1 << 20)


@kernel
def sizes(s: State) -> NDArray[np.float64]:
    """(J,): g_j."""
    return float_field(s, SIZES)


@kernel
def count_event(s: State) -> None:
    """Count an arrival or a completion. After SAMPLE_EVERY of them, add the running jobs of each type times the time that has passed."""
    policy_ints(s)[EVENTS_SINCE] += 1
    if policy_ints(s)[EVENTS_SINCE] < SAMPLE_EVERY:
        return
    both, job_time = policy_floats(s), float_field(s, JOB_TIME)
    passed = s.now - both[LAST_COUNT] if both[LAST_COUNT] > -NEVER / 2.0 else 0.0
    policy_ints(s)[EVENTS_SINCE] = 0
    both[LAST_COUNT] = s.now
    for j in range(s.n_types):
        job_time[j] += passed * running_by_type(s)[j]
    both[ALL_JOB_TIME] += passed * s.n_running
    both[DRAINS_TOOK] += passed * s.n_stalled
    if s.n_waiting > 0:
        both[BUSY_TIME] += passed


@kernel
def count_completion(s: State, j: int) -> None:
    """Count a completion of type j."""
    count_event(s)
    done, job_time, both = float_field(s, COMPLETED), float_field(s, JOB_TIME), policy_floats(s)
    done[j] += 1.0
    both[ALL_COMPLETED] += 1.0
    if s.n_waiting > 0:
        both[SIZE_COMPLETED] += sizes(s)[j]
    if both[ALL_COMPLETED] >= max(WINDOW, float(s.n_waiting)):
        both[ALL_COMPLETED] /= 2.0
        both[SIZE_COMPLETED] /= 2.0
        both[ALL_JOB_TIME] /= 2.0
        both[BUSY_TIME] /= 2.0
        both[DRAINS_EXPECTED] /= 2.0
        both[DRAINS_TOOK] /= 2.0
        for k in range(s.n_types):
            done[k], job_time[k] = done[k] / 2.0, job_time[k] / 2.0


@kernel
def size_per_time(s: State) -> float:
    """Return A. A cluster without long queues is idle in part; so only the time while jobs wait counts."""
    both = policy_floats(s)
    return float(both[SIZE_COMPLETED] / both[BUSY_TIME]) if both[BUSY_TIME] > 0.0 else 0.0


@kernel
def mean_service(s: State, j: int) -> float:
    """Return S_j."""
    return float((float_field(s, JOB_TIME)[j] + PRIOR * _common(s)) / (float_field(s, COMPLETED)[j] + PRIOR))


@kernel
def shortest_service(s: State) -> float:
    """Return the least S_j of all types."""
    job_time, done, prior = float_field(s, JOB_TIME), float_field(s, COMPLETED), PRIOR * _common(s)
    shortest = math.inf
    for j in range(s.n_types):
        shortest = min(shortest, (job_time[j] + prior) / (done[j] + PRIOR))
    return shortest


@kernel
def _common(s: State) -> float:
    """Return the mean service time of all jobs; 1 as long as no time has passed."""
    total = policy_floats(s)[ALL_JOB_TIME]
    return float(total / max(policy_floats(s)[ALL_COMPLETED], 1.0)) if total > 0.0 else 1.0

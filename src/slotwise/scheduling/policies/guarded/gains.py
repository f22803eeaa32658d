"""What one waiting job of a type counts for `guarded`: more the more room it needs, less the longer such jobs run.

    g_j = (L / slots for type j on the L servers)^e sqrt(S / S_j),

S_j the mean service time of type j, S that of all jobs. Room and time are what a job keeps others from; of two types that wait
alike, the one that is served sooner shortens the queues sooner.

Nobody tells the policy how long jobs run, and it has no clock. By Little's law the running jobs of type j are, on the average,
S_j times its completions in a unit of time, so that

    S_j / S = (N_j / N) / (D_j / D),

N_j the running jobs of type j added up over many moments, N those of all types, D_j and D the completions. The moments are
arrivals, for Poisson arrivals see what is there on the average over time (completions do not: a job that runs alone is never seen
by them). Each type starts with a few completions of mean length. An estimate is taken when the completions have doubled, later
every WINDOW / 2 of them, and what is older then counts half. With very long queues it is not: gains must not change there, or nothing could be proven.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling.policies.guarded.memory import (
    ARRIVED,
    COUNTED,
    ENDED,
    ENDED_BY_TYPE,
    EXPONENT,
    NEXT_ESTIMATE,
    PACES,
    SLOTS,
    STANDING,
)
from slotwise.scheduling.queues import weight_of_type
from slotwise.scheduling.state import (
    State,
    float_field,
    gain,
    int_field,
    policy_floats,
    policy_ints,
    queue_length,
    running_by_type,
    weight,
)

WINDOW = 1 << 20
LONG = 1000
"""Waiting jobs per server from which on the proof applies: gains stay as they are, and jobs are packed by the demand of their type."""
EVERY = 16
"""arrivals from one moment at which running jobs are counted to the next"""
PRIOR = 10.0
"""completions of mean length with which a type starts"""
MOST = 6.0
"""octaves by which a type may run shorter or longer than the mean; a gain is changed by the factor 8 at most"""

F8 = NDArray[np.float64]


@kernel
def paces(s: State) -> F8:
    """(J,): sqrt(S / S_j), as far as it is known."""
    return float_field(s, PACES)


@kernel
def ended(s: State) -> F8:
    """(J,): D_j."""
    return float_field(s, ENDED_BY_TYPE)


@kernel
def counted(s: State) -> F8:
    """(J,): N_j."""
    return float_field(s, COUNTED)


@kernel
def slots(s: State) -> NDArray[np.int64]:
    """(J,): how many jobs of each type alone all servers could hold."""
    return int_field(s, SLOTS)


@kernel
def is_cheap(s: State, j: int) -> bool:
    """Whether one job of type j takes no more than an even part of `standing` of the cluster."""
    return bool(s.n_types <= policy_floats(s)[STANDING] * slots(s)[j])


@kernel
def queues_are_long(s: State) -> bool:
    """Whether the proof applies."""
    return bool(s.n_waiting > LONG * s.n_servers)


@kernel
def set_gains(s: State) -> None:
    """g_j anew: servers, or paces, have changed."""
    for j in range(s.n_types):
        room = max(s.n_servers, 1) / max(slots(s)[j], 1)
        gain(s)[j] = math.pow(room, policy_floats(s)[EXPONENT]) * paces(s)[j]
        weight(s)[j] = weight_of_type(s, j, queue_length(s)[j])


@kernel
def notice_arrival(s: State) -> bool:
    """A job arrives, and every now and then counts those that run; returns whether it has."""
    whole = policy_ints(s)
    whole[ARRIVED] += 1
    if whole[ARRIVED] % EVERY != 0:
        return False
    for j in range(s.n_types):
        counted(s)[j] += running_by_type(s)[j]
    return True


@kernel
def notice_end(s: State, j: int) -> None:
    """A job of type j has ended."""
    whole = policy_ints(s)
    ended(s)[j] += 1.0
    whole[ENDED] += 1
    if whole[ENDED] >= whole[NEXT_ESTIMATE]:
        if not queues_are_long(s):
            set_paces(s)
            set_gains(s)
        if whole[ENDED] >= WINDOW:
            whole[ENDED] //= 2
            for k in range(s.n_types):
                ended(s)[k] *= 0.5
                counted(s)[k] *= 0.5
        whole[NEXT_ESTIMATE] = 2 * whole[ENDED]


@kernel
def set_paces(s: State) -> None:
    """sqrt(S / S_j) from what was counted, S / S_j rounded to a power of two: types that are alike stay so, whatever chance does."""
    total, completions = 0.0, 0.0
    for j in range(s.n_types):
        total += counted(s)[j]
        completions += ended(s)[j]
    each = total / completions  # running jobs counted for each completion: S, in some unit
    for j in range(s.n_types):
        mean = (counted(s)[j] + PRIOR * each) / (ended(s)[j] + PRIOR)
        octaves = math.floor(math.log2(each / mean) + 0.5) if mean > 0.0 else 0.0
        paces(s)[j] = math.pow(2.0, 0.5 * min(MOST, max(-MOST, octaves)))

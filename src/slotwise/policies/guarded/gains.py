"""What one waiting job of a type counts for `guarded`: more the more room it needs, less the longer such jobs run.

    g_j = (L / slots for type j on the L servers)^e sqrt(S / S_j),

S_j the mean service time of type j, S that of all jobs. Room and time are what a job keeps others from; of two types that wait
alike, the one that is served sooner shortens the queues sooner.

In a flood e is 0: more than `flood` jobs wait for each that runs, and half as many again as in the mean over a long time. It takes many service times to get over
that, and until then most jobs are served if small ones go first. Where some type takes a whole server it is not done: there each
change between small and large jobs costs a drain, and a flood might never end.

A type is rare where it has less than `EVEN` / J both of the running jobs, N_j / sum_k N_k, and of the room that they use, the same with N_j / slots_j for N_j. (N is explained below.)
Room that only jobs of a rare type could use counts less (`usable`). A type comes seldom where it has less than `EVEN` / J of all jobs that have come (`floors`).

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

from slotwise.compiler.kernel import kernel
from slotwise.core.queues import weight_of_type
from slotwise.core.state import (
    State,
    capacity,
    demand,
    float_field,
    gain,
    int_field,
    most,
    policy_floats,
    policy_ints,
    present_by_class,
    queue_length,
    running_by_type,
    weight,
)
from slotwise.policies.guarded.memory import (
    ARRIVED,
    COMMON,
    COUNTED,
    ENDED,
    ENDED_BY_TYPE,
    EXPONENT,
    FLOOD,
    FLOODED,
    LASTING,
    LONG_MEAN,
    NEXT_ESTIMATE,
    PACES,
    SLOTS,
    STALE,
    STANDING,
)

WINDOW = 1 << 20
LONG = 1000
"""Waiting jobs per server from which on the proof applies: gains stay as they are, and jobs are packed by the demand of their type."""
EVERY = 16
"""arrivals from one moment at which running jobs are counted to the next"""
PRIOR = 10.0
"""completions of mean length with which a type starts"""
MOST = 10.0
"""octaves by which a type may run shorter or longer than the mean; a gain is changed by the factor 32 at most"""
EVEN = 0.3
"""a type that has less than this part of an even share is rare"""
STEPS = 4.0
"""how common a type is is a multiple of 1 / STEPS, so that it seldom changes"""
FEW = 30
"""running jobs: with fewer, chance alone makes queues many times as long"""
UNUSUAL = 1.5
"""times the mean queue over a long time"""
MOMENTS = 4096
"""over which that mean is taken"""
MOST_OF_ONE = 0.75
"""of a server, in the mean: a type that takes more needs a whole one"""

NEARLY = 0.9
"""of a resource of a server: a job that takes so much leaves no room worth having beside it"""
LONGER = 2.0
"""paces apart: 4 times as long, as rounded, so more than twice as long"""
TINY = 1e-9

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
def common(s: State) -> F8:
    """(J,): 1 where a type is common, less the rarer it is."""
    return float_field(s, COMMON)


@kernel
def slots(s: State) -> NDArray[np.int64]:
    """(J,): how many jobs of each type alone all servers could hold."""
    return int_field(s, SLOTS)


@kernel
def lasting(s: State) -> NDArray[np.int64]:
    """(J,): 1 where jobs of a type run far longer than those of some type that fills a server alone, and take less themselves."""
    return int_field(s, LASTING)


@kernel
def is_seldom(s: State, j: int) -> bool:
    """Whether fewer jobs of type j than EVEN of an even share have come."""
    came = ended(s)[j] + running_by_type(s)[j] + queue_length(s)[j]
    return bool(came * s.n_types <= EVEN * (policy_ints(s)[ENDED] + s.n_running + s.n_waiting))


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
    """g_j anew, and which types last: servers, or paces, have changed, or a flood has come or gone."""
    exponent, quickest = 0.0 if policy_ints(s)[FLOODED] else policy_floats(s)[EXPONENT], 0.0
    for j in range(s.n_types):
        if _fills_server(s, j):
            quickest = max(quickest, paces(s)[j])
    for j in range(s.n_types):
        lasting(s)[j] = not _fills_server(s, j) and LONGER * paces(s)[j] <= quickest + TINY
        room = max(s.n_servers, 1) / max(slots(s)[j], 1)
        gain(s)[j] = math.pow(room, exponent) * paces(s)[j]
        weight(s)[j] = weight_of_type(s, j, queue_length(s)[j])


@kernel
def _fills_server(s: State, j: int) -> bool:
    """Whether one job of type j fills a server that can hold it: NEARLY all of a resource, in the mean over these servers."""
    number, filled = 0, 0.0
    for c in range(s.n_classes):
        if most(s)[c, j] > 0:
            largest = 0.0
            for r in range(s.n_resources):
                if demand(s)[j, r] > 0:
                    largest = max(largest, demand(s)[j, r] / capacity(s)[c, r])
            number += present_by_class(s)[c]
            filled += present_by_class(s)[c] * largest
    return bool(number > 0 and filled >= NEARLY * number)


@kernel
def notice_arrival(s: State) -> bool:
    """A job arrives, and every now and then counts those that run and those that wait; returns whether it has."""
    whole = policy_ints(s)
    whole[ARRIVED] += 1
    if whole[ARRIVED] % EVERY != 0:
        return False
    for j in range(s.n_types):
        counted(s)[j] += running_by_type(s)[j]
    _notice_flood(s)
    return True


@kernel
def _notice_flood(s: State) -> None:
    """Whether a flood has come, or gone: it is over when half as many wait as make one."""
    whole, numbers = policy_ints(s), policy_floats(s)
    numbers[LONG_MEAN] += (s.n_waiting - numbers[LONG_MEAN]) / min(MOMENTS, whole[ARRIVED] // EVERY)
    many = max(numbers[FLOOD] * max(FEW, s.n_running), UNUSUAL * numbers[LONG_MEAN])
    changed = s.n_waiting < 0.5 * many if whole[FLOODED] else s.n_waiting > many and not _takes_servers(s)
    if changed and not queues_are_long(s):
        whole[FLOODED] = 1 - whole[FLOODED]
        set_gains(s)


@kernel
def _takes_server(s: State, j: int) -> bool:
    """Whether jobs of type j, which fit somewhere, take a whole server, or nearly so."""
    return bool(slots(s)[j] > 0 and MOST_OF_ONE * slots(s)[j] < s.n_servers)


@kernel
def _takes_servers(s: State) -> bool:
    """Whether there is such a type."""
    for j in range(s.n_types):
        if _takes_server(s, j):
            return True
    return False


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
        _set_common(s)
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


@kernel
def _set_common(s: State) -> None:
    """How common each type is, from what was counted."""
    jobs, room = 0.0, 0.0
    for j in range(s.n_types):
        jobs += counted(s)[j]
        room += counted(s)[j] / max(slots(s)[j], 1)
    for j in range(s.n_types):
        share = max(counted(s)[j] / jobs, counted(s)[j] / max(slots(s)[j], 1) / room) if room > 0.0 else 1.0
        now = min(1.0, math.ceil(STEPS * s.n_types * share / EVEN) / STEPS)
        if now != common(s)[j]:
            common(s)[j] = now
            policy_ints(s)[STALE] = 1

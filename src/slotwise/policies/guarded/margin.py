"""The margin: by how much the best configuration must outweigh a server's content before the server turns.

    F_l = c sqrt(G_l (f(k') + F_l)),        G_l = (1 + T) X A a_l (S H(n) + S' H(n'))

| symbol | meaning | unit |
|---|---|---|
| c | `margin`, an option | - |
| f(k') | weight of the content after the refill; f(k') + F_l is the least weight of a target for which the server turns | servers x jobs |
| T | servers that turn already | servers |
| n, n' | jobs on the server now, and in the target | jobs |
| S, S' | the longest mean service time of a type now on the server, and of a type in the target | time |
| H(n) | 1 + 1/2 + ... + 1/n: n jobs with mean S all leave within about S H(n) | - |
| X | how much longer than S H(n) turns have taken so far, at least 1 | - |
| A | size of the jobs that complete in the cluster while jobs wait (`services`) | servers per time |
| a_l | the server's share of the capacity of the cluster | - |
| G_l | size of the jobs that complete on turning servers, and on this one, while it drains now and when it is turned back | servers |

Service times are learnt.

A turn costs about the weight of the target times the time of a drain, for now and for the way back. A server that does not turn loses the gap all the time.
Weights move by about G_l while a server drains, so with a margin F the server turns once every F / G_l drains. The sum of both losses is least
if F is the geometric mean of G_l and the target's weight, as in the economic order quantity. The margin grows with the queues, so turns become rare.
It grows more slowly than the queues, so the loss between turns becomes negligible.
"""

from __future__ import annotations

import math

from slotwise.compiler.kernel import kernel
from slotwise.core.state import (
    CLASS,
    COUNT,
    State,
    capacity,
    choice,
    policy_floats,
    present_by_class,
    running,
    servers,
)
from slotwise.policies.guarded.memory import (
    DRAINS_EXPECTED,
    DRAINS_TOOK,
    MARGIN,
)
from slotwise.policies.guarded.services import mean_service, shortest_service, size_per_time

EULER = 0.5772  # H(n) is about EULER + log(n + 1/2), within 2 % from n = 1 on
MOST_CORRECTION = 100.0  # no drain is taken to last longer than this many times the expected; keeps G_l bounded, as the proof needs
FIRST_DRAINS = 1.0  # drains as long as expected that the correction X begins with


@kernel
def drain_time(s: State, server: int) -> float:
    """Return S H(n): the time that the server takes to drain, if the service times of its jobs are exponential."""
    on, n, longest, j = running(s)[server], int(servers(s)[server, COUNT]), 0.0, 0
    left = n
    while left > 0:
        if on[j] > 0:
            longest = max(longest, mean_service(s, j))
            left -= on[j]
        j += 1
    return longest * harmonic(n)


@kernel
def return_time(s: State) -> float:
    """Return S' H(n'): the time that a server with the configuration in choice(s) takes to drain."""
    n, longest = 0, 0.0
    for j in range(s.n_types):
        if choice(s)[0, j] > 0:
            longest = max(longest, mean_service(s, j))
            n += choice(s)[0, j]
    return longest * harmonic(n)


@kernel
def least_return_time(s: State) -> float:
    """Return a lower bound of `return_time` for every configuration with a job: that of one job of the shortest type."""
    return shortest_service(s) * harmonic(1)


@kernel
def harmonic(n: int) -> float:
    """Return H(n)."""
    return EULER + math.log(n + 0.5) if n > 0 else 0.0


@kernel
def margin_of(s: State, server: int, held: float, time: float) -> float:
    """Return F_l for a server that holds the weight f(k') = held after its refill and drains for this time, the way back included."""
    g = turned_over(s, server, time) * policy_floats(s)[MARGIN] ** 2
    return 0.5 * (g + math.sqrt(g * (g + 4.0 * held)))


@kernel
def turned_over(s: State, server: int, time: float) -> float:
    """Return G_l: the size of the jobs that turning servers, and this one, usually complete in drains of this time."""
    both = policy_floats(s)
    expected = both[DRAINS_EXPECTED] + FIRST_DRAINS * time
    if expected == 0.0:
        return 0.0
    correction = (both[DRAINS_TOOK] + FIRST_DRAINS * time) / expected
    correction = min(max(correction, 1.0), MOST_CORRECTION)
    return float((1.0 + s.n_stalled) * correction * size_per_time(s) * share_of_capacity(s, server) * time)


@kernel
def share_of_capacity(s: State, server: int) -> float:
    """Return a_l, the server's share of the capacity of all servers, as the mean over the resources."""
    c, share, resources = servers(s)[server, CLASS], 0.0, 0
    for r in range(s.n_resources):
        total = 0.0
        for other in range(s.n_classes):
            total += float(present_by_class(s)[other]) * capacity(s)[other, r]
        if total > 0.0:
            share += capacity(s)[c, r] / total
            resources += 1
    return share / max(resources, 1)

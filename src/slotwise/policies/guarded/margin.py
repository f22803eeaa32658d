"""The margin: by how much the best configuration must outweigh a server's content before the server turns.

    F_l = c sqrt(M_l g_l W_l),        M_l = 2 (1 + T) X H(n) S A a_l

| symbol | meaning | unit |
|---|---|---|
| c | `margin`, an option | - |
| T | servers that turn already | servers |
| n | jobs on the server | jobs |
| S | the longest mean service time of the types on the server | time |
| H(n) | 1 + 1/2 + ... + 1/n: n jobs with mean S all leave within about S H(n) | - |
| X | how much longer than S H(n) turns have taken so far, at least 1 | - |
| A | completions in the cluster | per time |
| a_l | the server's share of the capacity of the cluster | - |
| M_l | starts and completions of all turning servers, and of this one, in the time that a drain takes | events |
| g_l | the largest g_j of the types that fit the server | servers |
| W_l | sum of the weights of these types | servers x jobs |

Service times are learnt. Time is counted in arrivals, so that no clock is needed.
While a server drains, weights move by about M_l g_l. The margin is the geometric mean of that and of all weight. It grows with the
queues, so turns become rare. It grows more slowly than the queues, so the loss between turns becomes negligible.
"""

from __future__ import annotations

import math

from slotwise.compiler.kernel import kernel
from slotwise.core.state import (
    CLASS,
    COUNT,
    State,
    capacity,
    float_field,
    most,
    policy_floats,
    policy_ints,
    present_by_class,
    running,
    running_by_type,
    servers,
    weight,
)
from slotwise.policies.guarded.memory import (
    ALL_COMPLETED,
    ALL_SEEN,
    COMPLETED,
    COUNTS,
    DRAINS_EXPECTED,
    DRAINS_TOOK,
    MARGIN,
    SAMPLES,
    SEEN_RUNNING,
)
from slotwise.policies.guarded.weights import sizes

SAMPLE_EVERY = 16  # arrivals between two counts of running jobs: counting takes a look at every type
PRIOR = 10.0  # completions with the mean of all types that each type begins with
EULER = 0.5772  # H(n) is about EULER + log(n + 1/2), within 2 % from n = 1 on
MOST_CORRECTION = 100.0  # no drain is taken to last longer than this many times the expected; keeps M_l bounded, as the proof needs
FIRST_DRAINS = 1.0  # drains as long as expected that the correction of M_l begins with
WINDOW = float(1 << 20)  # completions; then old ones count half, so that service times may change


@kernel
def count_running(s: State) -> None:
    """Count the running jobs of each type at every SAMPLE_EVERY-th arrival. By Little's law S_j is to that count as 1 to the completions."""
    policy_ints(s)[SAMPLES] += 1
    if policy_ints(s)[SAMPLES] % SAMPLE_EVERY == 0:
        seen = float_field(s, SEEN_RUNNING)
        for j in range(s.n_types):
            seen[j] += running_by_type(s)[j]
        policy_floats(s)[ALL_SEEN] += s.n_running
        policy_floats(s)[COUNTS] += 1.0
        policy_floats(s)[DRAINS_TOOK] += s.n_stalled


@kernel
def count_completion(s: State, j: int) -> None:
    """Count a completion of type j."""
    done, seen, both = float_field(s, COMPLETED), float_field(s, SEEN_RUNNING), policy_floats(s)
    done[j] += 1.0
    both[ALL_COMPLETED] += 1.0
    if both[ALL_COMPLETED] >= WINDOW:
        both[ALL_COMPLETED] /= 2.0
        both[ALL_SEEN] /= 2.0
        both[COUNTS] /= 2.0
        both[DRAINS_EXPECTED] /= 2.0
        both[DRAINS_TOOK] /= 2.0
        for k in range(s.n_types):
            done[k], seen[k] = done[k] / 2.0, seen[k] / 2.0


@kernel
def mean_service(s: State, j: int) -> float:
    """Return S_j, the mean service time of type j, in periods between two counts."""
    both = policy_floats(s)
    common = max(both[ALL_SEEN], 1.0) / max(both[ALL_COMPLETED], 1.0)
    seen, done = float_field(s, SEEN_RUNNING)[j], float_field(s, COMPLETED)[j]
    return float((seen + PRIOR * common) / (done + PRIOR))


@kernel
def drain_time(s: State, server: int) -> float:
    """Return S H(n): the periods that the server takes to drain, if the service times of its jobs are exponential."""
    on, left, longest, j = running(s)[server], int(servers(s)[server, COUNT]), 0.0, 0
    if left == 0:
        return 0.0
    harmonic = EULER + math.log(left + 0.5)
    while left > 0:
        if on[j] > 0:
            longest = max(longest, mean_service(s, j))
            left -= on[j]
        j += 1
    return longest * harmonic


@kernel
def drain_events(s: State, server: int) -> float:
    """Return M_l: starts and completions that the server usually makes in the time that it takes to drain."""
    both, expected = policy_floats(s), drain_time(s, server)
    completions = both[ALL_COMPLETED] / max(both[COUNTS], 1.0)
    first = FIRST_DRAINS * expected
    if expected == 0.0:
        return 0.0
    correction = (both[DRAINS_TOOK] + first) / (both[DRAINS_EXPECTED] + first)
    correction = min(max(correction, 1.0), MOST_CORRECTION)
    return float((1.0 + s.n_stalled) * 2.0 * expected * correction * completions * share_of_capacity(s, server))


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


@kernel
def largest_size(s: State, server: int) -> float:
    """Return g_l, the largest g_j of the types that fit the server."""
    fit, largest = most(s)[servers(s)[server, CLASS]], 0.0
    for j in range(s.n_types):
        if fit[j] > 0:
            largest = max(largest, sizes(s)[j])
    return largest


@kernel
def margin_of(s: State, server: int) -> float:
    """Return F_l."""
    fit, total = most(s)[servers(s)[server, CLASS]], 0.0
    for j in range(s.n_types):
        if fit[j] > 0:
            total += weight(s)[j]
    return float(policy_floats(s)[MARGIN] * math.sqrt(drain_events(s, server) * largest_size(s, server) * total))

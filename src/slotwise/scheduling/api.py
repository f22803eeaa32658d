"""What the author of a policy uses; docs/guides/own-policy.md is a worked example.

A policy is a subclass of `Policy` with hooks: functions `hook(s, a, b) -> None` on the state s and two whole numbers.

    arrive(s, j, i)         job i of type j waits in queue j (at its end; after a failure of its server at its front)
    complete(s, j, server)  a type-j job has left the server, which takes jobs
    join(s, server, 0)      the server is there, and empty
    leave(s, server, 0)     the server takes no more jobs; nothing can be started on it
    cancel(s, j, i)         job i has left queue j unserved; i may be used again for another job
    tick(s, 0, 0)           the policy's own clock has rung; set s.tick_rate to be called

Only `start(s, j, server)` moves a job: it starts the head of line of type j on the server and returns the job, or -1 if nobody
waits, the server takes no jobs or has no room; then the event ends with an error that says so. Started jobs stay where they are.
What was started before the error stays started: nothing here is interrupted.

Numbers of the state, to be read: s.n_types, s.n_resources, s.n_classes, s.n_waiting, s.n_running, s.n_servers (those that take
jobs), s.max_servers (server numbers are 0 <= server < s.max_servers, present or not), s.now (only for policies with
`needs_durations`). Arrays, to be read, by accessors:

    queue_length(s)[j]              waiting jobs of type j (Q_j); weight(s)[j] the same as a float
    head(s, j)                      the job at the head of queue j, -1 where none waits
    oldest_head(s, 0)               the type whose head of line has waited longest, -1 where nobody waits
    jobs(s)[i, TYPE]                and SERVER (WAITING where it waits)
    sequence(s)[i]                  its place in the order of arrival
    demand(s)[j], job_demand(s)[i]  demand of a type; of a job (only where s.actual), in whole units of each resource
    capacity(s)[c], most(s)[c, j]   of a server class; how many type-j jobs alone fit one of its servers
    servers(s)[server, CLASS]       and STATUS (ABSENT, PRESENT, DRAINING), COUNT (jobs on it)
    running(s)[server, j]           jobs of type j on the server
    free(s)[server]                 what is left of each resource
    mean_service(s)[j]              of type j, as far as the scenario says

Looking for servers. The first line gives the size to look for, by the type or by what the job really asks for:

    set_need(s, j); need(s)         what the head of line of type j asks for
    takes(s, server, need(s))       whether this server takes jobs and has that much free
    first_fit(s, need(s), start)    the lowest number >= start that does, -1 where none; keeps = {"tree"}
    best_fit(s, need(s))            one of the least score(s)[class] . (free, 1), -1 where none; keeps = {"fit"}
    count_fits(s, need(s), -1)      how many do; with k >= 0 the k-th of them; keeps = {"fit"}

By chance (the numbers come from the state, so runs repeat): below(s, n) in 0..n - 1 and uniform(s) in [0, 1).
The policy's own memory, part of snapshots: policy_ints(s), policy_floats(s) (16 each; more by
store.reserve_policy_numbers in `prepare`) and policy_servers(s)[server] (4 each).

All of these are compiled and can be called from plain Python and from functions under `@numba.njit` alike. A compiled function may
call compiled functions only. In a loop `while queue_length(s)[j] > 0`, leave it when `start` returns -1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling.chance import below, uniform
from slotwise.scheduling.firsttree import first_fit
from slotwise.scheduling.fitindex import best as best_fit
from slotwise.scheduling.fitindex import count as count_fits
from slotwise.scheduling.fitindex import score
from slotwise.scheduling.moves import start
from slotwise.scheduling.policies.fitting import fits, set_need
from slotwise.scheduling.policy import FitOptions, Options, Policy
from slotwise.scheduling.queues import oldest_head
from slotwise.scheduling.state import (
    ABSENT,
    CLASS,
    COUNT,
    DRAINING,
    PRESENT,
    SERVER,
    STATUS,
    TYPE,
    WAITING,
    State,
    capacity,
    demand,
    free,
    head,
    job_demand,
    jobs,
    mean_service,
    most,
    need,
    policy_floats,
    policy_ints,
    policy_servers,
    queue_length,
    running,
    sequence,
    servers,
    weight,
)
from slotwise.scheduling.store import Store


@kernel
def takes(s: State, server: int, size: NDArray[np.int64]) -> bool:
    """Whether the server takes jobs and has that much free."""
    return servers(s)[server, STATUS] == PRESENT and fits(s, server, size)


__all__ = [
    "ABSENT",
    "CLASS",
    "COUNT",
    "DRAINING",
    "PRESENT",
    "SERVER",
    "STATUS",
    "TYPE",
    "WAITING",
    "FitOptions",
    "Options",
    "Policy",
    "State",
    "Store",
    "below",
    "best_fit",
    "capacity",
    "count_fits",
    "demand",
    "first_fit",
    "free",
    "head",
    "job_demand",
    "jobs",
    "mean_service",
    "most",
    "need",
    "oldest_head",
    "policy_floats",
    "policy_ints",
    "policy_servers",
    "queue_length",
    "running",
    "score",
    "sequence",
    "servers",
    "set_need",
    "start",
    "takes",
    "uniform",
    "weight",
]

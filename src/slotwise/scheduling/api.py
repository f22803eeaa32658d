"""What the author of a policy uses; docs/guides/own-policy.md is a worked example.

A policy is a subclass of `Policy` with hooks: functions `hook(s, a, b) -> None` on the state s and two whole numbers.

    arrive(s, j, i)         job i of type j waits in queue j (at its end; after a failure of its server in its old place)
    complete(s, j, server)  a type-j job has ended and left the server, which takes jobs
    stop(s, j, server)      the same for a job that was stopped, or could not be started (else: complete)
    join(s, server, 0)      the server is there, and empty
    resume(s, server, 0)    the server is there, and may hold jobs (else: join): a drained one takes jobs again, or this
                            policy takes over from another one
    leave(s, server, 0)     the server takes no more jobs; nothing can be started on it
    cancel(s, j, i)         job i has left queue j unserved; i may be used again for another job
    tick(s, 0, 0)           the policy's own clock has rung; set s.tick_rate to be called
    file(s, server, 0)      what is kept of the server was put back from a situation: work out what follows from it

Only `start(s, j, server)` moves a job: it starts the head of queue j on the server and returns the job. `start_job(s,
i, server)` starts waiting job i, wherever in its queue it stands. Both return -1 if no job waits, the server takes no
jobs, has too little free capacity or may not hold the type. Then the event ends with an error that says so. Started
jobs stay where they are, those started before the error included: nothing here is interrupted.

Numbers of the state, to be read: s.n_types, s.n_resources, s.n_classes, s.n_waiting, s.n_running, s.n_servers (those that take
jobs), s.n_places (server numbers are 0 <= server < s.n_places, present or not), s.now (only for policies with
`needs_durations`). Arrays, to be read, by accessors:

    queue_length(s)[j]              waiting jobs of type j (Q_j); weight(s)[j] the same as a float
    head(s, j)                      the job at the head of queue j, -1 where none waits
    oldest_head(s, 0)               the type whose head of queue has waited longest, -1 if no job waits
    jobs(s)[i, TYPE]                and SERVER (WAITING where it waits)
    sequence(s)[i]                  its place in the order of arrival
    demand(s)[j], job_demand(s)[i]  demand of a type; of a job (only where s.actual), in whole units of each resource
    capacity(s)[c], most(s)[c, j]   of a server class; how many type-j jobs alone one of its servers holds
    allowed(s)[c, j]                1 where the labels of the class meet what the type requires
    servers(s)[server, CLASS]       and STATUS (ABSENT, PRESENT, DRAINING), COUNT (jobs on it)
    running(s)[server, j]           jobs of type j on the server
    free(s)[server]                 what is left of each resource
    mean_service(s)[j]              of type j, as far as the scenario says

Looking for servers. The first line gives the size to look for, by the type or by what the job really asks for:

    set_need(s, j); need(s)         what the head of line of type j asks for
    takes(s, server, need(s))       whether this server takes jobs, may hold the type and has that much free
    first_fit(s, need(s), start)    the lowest number >= start that does, -1 where none; keeps = {"tree"}
    best_fit(s, need(s))            one of the least score(s)[class] . (free, 1), -1 where none; keeps = {"fit"}
    count_fits(s, need(s), -1)      how many do; with k >= 0 number k of them; keeps = {"fit"}

Looking for jobs, among all that wait and by what each really asks for; keeps = {"line"}. -1 where there is none:

    first_in_line(s)                who has waited longest of all
    oldest_that_fits(s, room, c)    of those that fit the room on a server of class c, such as free(s)[server]
    largest_that_fits(s, room, c, BY_SHARE)   the one with the largest share of a resource; BY_DOT: with the largest dot product
    set_job_need(s, i); need(s)     what waiting job i asks for

By chance (the numbers come from the state, so runs repeat): below(s, n) in 0..n - 1 and uniform(s) in [0, 1).
What the policy remembers is declared in a `Memory`, which is its `memory`:

    MEMORY = Memory()
    SEEN = MEMORY.count("seen")                   policy_ints(s)[SEEN]; `number` for policy_floats(s)
    ENDED = MEMORY.numbers("ended", per="type")   float_field(s, ENDED)[j]; `counts` for int_field; per "type", "resource", "server"
                                                  or so many; with columns=3 float_table(s, field)[j, k] and int_table(s, field)[j, k]
    LAST = MEMORY.servers("last", per="type")     int_field(s, LAST)[j]: a server's number plus 1, 0 for none

What is not declared with kept=False is written into situations by its name, and read back. `prepare(store)` writes options:
store.arrays["policy_ints"][SEEN], store.values_of(ENDED). A decision must depend on nothing but this, the jobs, the servers and the
random numbers: then a scheduler that is written down and rebuilt decides as the one that was not.

All of these are compiled and can be called from plain Python and from functions under `@numba.njit` alike. A compiled function may
call compiled functions only. In a loop `while queue_length(s)[j] > 0`, leave it when `start` returns -1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core.chance import below, uniform
from slotwise.core.contract.memory import Memory
from slotwise.core.contract.policy import FitOptions, Options, Policy
from slotwise.core.indexes.firsttree import first_fit
from slotwise.core.indexes.fitindex import best as best_fit
from slotwise.core.indexes.fitindex import count as count_fits
from slotwise.core.indexes.fitindex import score
from slotwise.core.indexes.line import BY_DOT, BY_SHARE, first_in_line
from slotwise.core.indexes.line import largest as largest_that_fits
from slotwise.core.indexes.line import oldest as oldest_that_fits
from slotwise.core.state import (
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
    allowed,
    capacity,
    demand,
    fits,
    float_field,
    float_table,
    free,
    head,
    int_field,
    int_table,
    job_demand,
    jobs,
    mean_service,
    most,
    need,
    policy_floats,
    policy_ints,
    queue_length,
    running,
    sequence,
    servers,
    set_job_need,
    set_need,
    weight,
)
from slotwise.core.steps import oldest_head, start, start_job
from slotwise.core.store import Store


@kernel
def takes(s: State, server: int, size: NDArray[np.int64]) -> bool:
    """Return whether the server takes jobs and has that much free capacity."""
    return servers(s)[server, STATUS] == PRESENT and fits(s, server, size)


__all__ = [
    "ABSENT",
    "BY_DOT",
    "BY_SHARE",
    "CLASS",
    "COUNT",
    "DRAINING",
    "PRESENT",
    "SERVER",
    "STATUS",
    "TYPE",
    "WAITING",
    "FitOptions",
    "Memory",
    "Options",
    "Policy",
    "State",
    "Store",
    "allowed",
    "below",
    "best_fit",
    "capacity",
    "count_fits",
    "demand",
    "first_fit",
    "first_in_line",
    "float_field",
    "float_table",
    "free",
    "head",
    "int_field",
    "int_table",
    "job_demand",
    "jobs",
    "largest_that_fits",
    "mean_service",
    "most",
    "need",
    "oldest_head",
    "oldest_that_fits",
    "policy_floats",
    "policy_ints",
    "queue_length",
    "running",
    "score",
    "sequence",
    "servers",
    "set_job_need",
    "set_need",
    "start",
    "start_job",
    "takes",
    "uniform",
    "weight",
]

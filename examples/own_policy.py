"""A policy of your own: the longest queue first, on the less busy of a few random servers.

Try it with `slotwise simulate table1 --policy examples/own_policy.py:LongestQueue`.
"""

from __future__ import annotations

import numba
from pydantic import Field

from slotwise.scheduling.api import (
    COUNT,
    FitOptions,
    Memory,
    Policy,
    State,
    Store,
    below,
    first_fit,
    need,
    policy_ints,
    queue_length,
    servers,
    set_need,
    start,
    takes,
)

MEMORY = Memory()
TRIES = MEMORY.count("tries", kept=False)  # the option, in policy_ints(s)


def serve(s: State, _a: int, _b: int) -> None:
    """Start heads of queues, the longest queue first, while one fits anywhere."""
    while True:
        longest, where = -1, -1
        for j in range(s.n_types):
            if queue_length(s)[j] > 0 and (longest < 0 or queue_length(s)[j] > queue_length(s)[longest]):
                set_need(s, j)
                server = first_fit(s, need(s), 0)
                if server >= 0:
                    longest, where = j, server
        if longest < 0:
            return
        set_need(s, longest)
        for _ in range(policy_ints(s)[TRIES]):
            server = below(s, s.n_places)
            if takes(s, server, need(s)) and servers(s)[server, COUNT] < servers(s)[where, COUNT]:
                where = server
        start(s, longest, where)


class LongestQueueOptions(FitOptions):
    """What can be set beside the policy's name in a scenario."""

    tries: int = Field(2, ge=0, description="random servers that are looked at before a job is placed")


class LongestQueue(Policy):
    """In plain Python."""

    name = "longest-queue"
    summary = "the longest queue first, on the less busy of a few random servers"
    Options = LongestQueueOptions
    memory = MEMORY
    keeps = frozenset({"free", "tree"})  # free(s) and first_fit
    arrive = complete = join = cancel = staticmethod(serve)

    def prepare(self, store: Store) -> None:
        """Write the options where the hooks can read them."""
        store.arrays["policy_ints"][TRIES] = self.options.tries


class LongestQueueCompiled(LongestQueue):
    """The same function, compiled: the same placements, some hundred times as fast."""

    name = "longest-queue-compiled"
    arrive = complete = join = cancel = staticmethod(numba.njit(serve))

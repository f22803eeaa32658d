"""`python -m slotwise.simulation.parts PART...`: compile the loop, or all that a policy needs beside it; see `ahead`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from slotwise.model import load_scenario
from slotwise.scheduling.hooks import nothing
from slotwise.scheduling.policy import Policy
from slotwise.simulation import ahead
from slotwise.simulation.choice import Choice
from slotwise.simulation.replication import Task, make_store, prepare, replicate
from slotwise.simulation.workload import jobs_of


class Idle(Policy):
    """Nothing is ever started, and next to nothing compiled."""

    name = "idle"
    compiled = True
    arrive = complete = join = leave = cancel = tick = staticmethod(nothing)


def compile_parts(parts: Sequence[str]) -> None:
    """Each part is the loop or the name of a policy, as `ahead` says."""
    ahead.alone()
    scenario = load_scenario("example1", ["run.events=50", "run.replications=1"])
    jobs = jobs_of(scenario)
    for part in parts:
        if part == ahead.LOOP:
            replicate(Task(scenario, jobs, Choice(Idle)))
        elif part.startswith(ahead.LATE):
            make_store(Task(scenario, jobs, Choice(part.removeprefix(ahead.LATE))), 1)
        else:
            prepare(Task(scenario, jobs, Choice(part)))


if __name__ == "__main__":
    compile_parts(sys.argv[1:])

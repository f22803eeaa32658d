"""Compiles what all experiments need before the first of them, with two processes: one compiler uses one core.

The other process leaves its half in the cache on disk, where this one finds it. `python -m slotwise.experiments.ahead POLICY...` is
that process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from slotwise._kernel import is_compiled
from slotwise.model import load_scenario
from slotwise.simulation.replication import Task, replicate
from slotwise.simulation.workload import jobs_of

HERE = ("algorithm1", "m14", "g16", "g16-retention")
ELSEWHERE = ("guarded", "best-fit")


def compile_ahead() -> None:
    """Compile the policies of the experiments, where this is the first run."""
    if is_compiled("simulation", "loop"):
        return
    # in a session of its own: Ctrl-C is for this process, which then ends the other
    other = subprocess.Popen([sys.executable, "-m", __name__, *ELSEWHERE], start_new_session=True)
    try:
        try_out(HERE)
        other.wait()  # if it failed, nothing is lost but time
    finally:
        other.kill()


def try_out(policies: Sequence[str]) -> None:
    """A short run of each."""
    scenario = load_scenario("example1", ["run.events=200", "run.replications=1"])
    jobs = jobs_of(scenario)
    for policy in policies:
        replicate(Task(scenario, jobs, policy))


if __name__ == "__main__":
    try_out(sys.argv[1:])

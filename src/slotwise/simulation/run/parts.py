"""`python -m slotwise.simulation.run.parts`: a helper that compiles the pieces named on its standard input; see `ahead`."""

from __future__ import annotations

import gc
import sys

import numpy as np

from slotwise.core import state as st
from slotwise.core.contract.hooks import late, nothing
from slotwise.core.contract.policy import Policy
from slotwise.core.steps import start
from slotwise.model import load_scenario
from slotwise.packing.kernels import lattice, settling, simplex
from slotwise.policies.guarded import sizes
from slotwise.scheduling import Scheduler
from slotwise.simulation.run import ahead, ends
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task, replicate
from slotwise.simulation.run.workload import jobs_of
from slotwise.theory import erlang


def begin(s: st.State, j: int, i: int) -> None:
    """Start the job on the first server."""
    if st.servers(s)[0, st.STATUS] == st.PRESENT:
        start(s, j, 0)


class Eager(Policy):
    """Starts every job at once, on the one server that there is."""

    name = "eager"
    compiled = True
    arrive = staticmethod(begin)


class Idle(Policy):
    """Nothing is ever started, and next to nothing compiled."""

    name = "idle"
    compiled = True
    arrive = complete = join = leave = cancel = tick = staticmethod(nothing)


class Filed(Idle):
    """The same, with an index of free room."""

    keeps = frozenset({"free", "fit"})


def compile_piece(piece: str) -> None:
    """Compile it, or find it in the cache."""
    if piece == ahead.LOOP:
        _simulate()
    elif piece == ahead.CHURN:
        _simulate("cluster.events=[{at=0.1,action='drain',servers='server',count=1}]")
    elif piece == ahead.SCHEDULER:
        _schedule()
    elif piece == ahead.REST:
        _rest()
    else:
        late(ahead.function_of(piece))


def _simulate(*settings: str) -> None:
    scenario = load_scenario("example1", ["run.events=50", "run.replications=1", *settings])
    replicate(Task(scenario, jobs_of(scenario), Choice(Idle)))


def _schedule() -> None:
    """Compile every verb."""
    scenario = load_scenario("example1")
    scheduler = Scheduler(scenario.cluster, scenario.types, Eager())
    kind, (server, *_) = scenario.types[0].name, scheduler.servers
    scheduler.submit("runs", kind)
    scheduler.complete("runs")
    scheduler.drain_server(server)
    scheduler.submit("waits", kind)
    scheduler.cancel("waits")
    scheduler.resume_server(server)
    scheduler.submit("waits again", kind)
    scheduler.requeue("waits again")
    scheduler.tick()
    scheduler.fail_server(server)
    scheduler.remove_server(server)


def _rest() -> None:
    """Compile what only large problems need; plain Python does the work of small ones."""
    one, row = np.ones((1, 1), np.int64), np.ones(1, np.int64)
    lattice.walk(one, row, True, 1, row.copy(), row.copy(), one.copy())
    simplex.maximise(np.array([[1, 1], [-1, 0]]), np.arange(2), 1)
    settling.settle(one, np.ones((2, 1), np.int64), 1, np.zeros(1, np.bool_), row.copy())
    sizes.most_usable(row, np.ones(1), np.ones(1), np.ones(2, np.int64), np.zeros(2), np.zeros(2, np.int64), 1)
    ends.insert(np.zeros((2, 2)), 1, 1, 0, 1.0)
    erlang._loss(1, 1.0)
    scenario = load_scenario("example1")
    Scheduler(scenario.cluster, scenario.types, Filed())


def main() -> None:
    """Compile one piece for each line, and answer each with a line."""
    ahead.help_others()
    gc.disable()  # a tenth of the time; a helper does not live long
    for line in sys.stdin:
        compile_piece(line.strip())
        print("done", flush=True)


if __name__ == "__main__":
    main()

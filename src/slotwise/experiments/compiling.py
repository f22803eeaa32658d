"""Compiles what all experiments need before the first of them, on all cores: one compiler uses one."""

from __future__ import annotations

from slotwise.model import load_scenario
from slotwise.simulation import ahead
from slotwise.simulation.choice import Choice
from slotwise.simulation.replication import Task, replicate
from slotwise.simulation.workload import jobs_of

HERE = ("algorithm1", "m14", "g16", "g16-retention")
ELSEWHERE = ("guarded", "best-fit")


def compile_ahead() -> None:
    """Compile the policies of the experiments, where this is the first run."""
    if ahead.compiled():
        return
    with ahead.by_others(*ELSEWHERE):
        scenario = load_scenario("example1", ["run.events=200", "run.replications=1"])
        jobs = jobs_of(scenario)
        for policy in HERE:
            replicate(Task(scenario, jobs, Choice(policy)))
        ahead.wait(*ELSEWHERE)

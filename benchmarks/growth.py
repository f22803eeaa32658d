"""How the simulator's speed changes with the number of types and of resources (with servers: benchmarks/simulator.py).

200 servers of size 100 in every resource, jobs of random whole sizes from 20 to 60, equal rates, intensity 0.89. Algorithm 1 and guarded
look for max-weight configurations among ever more types; best-fit looks for a server with room, in ever more resources.

What counts is how much slower a larger one is than the smallest. The two take turns in one process, so that whatever else the machine does meets both
alike, and of each the least time counts: others only ever slow things down. Where a process has its memory and code makes a difference of up to 20 %
that stays until it ends, so there are several processes, and the median of their ratios counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import slotwise

POLICIES = ("algorithm1", "guarded", "best-fit")
TYPES = (3, 10, 30, 100)
MORE_TYPES = {"guarded": (300,)}
RESOURCES = (1, 2, 4, 8)
# of the speed with 3 types
GOALS = {("algorithm1", 100): 0.4, ("best-fit", 100): 0.4, ("guarded", 100): 0.25, ("guarded", 300): 0.1}
EVENTS = 100_000
PROCESSES, TURNS = 5, 8
ROOT = Path(__file__).resolve().parents[1]


def scenario(types: int, resources: int, events: int, seed: int) -> slotwise.Scenario:
    """So many types over so many resources."""
    sizes = np.random.default_rng(1).integers(20, 61, (types, resources)).tolist()
    return slotwise.parse_scenario(
        {
            "cluster": {
                "resources": [f"r{i}" for i in range(resources)],
                "servers": [{"name": "server", "count": 200, "capacity": [100] * resources}],
            },
            "types": [
                {"name": f"t{j}", "demand": demand, "rate": 1.0, "mean_service": 1.0}
                for j, demand in enumerate(sizes)
            ],
            "workload": {"intensity": 0.89},
            "run": {"events": events, "replications": 1, "seed": seed},
        }
    )


def sizes(policy: str, what: str) -> list[tuple[int, int]]:
    """(types, resources) of each row, the smallest first."""
    if what == "types":
        return [(n, 2) for n in (*TYPES, *MORE_TYPES.get(policy, ()))]
    return [(10, n) for n in RESOURCES]


def work(policy: str, what: str) -> None:
    """A worker: the least seconds of an event of each size, and its solver, as JSON."""
    from slotwise.simulation.run.choice import Choice
    from slotwise.simulation.run.replication import Task, replicate
    from slotwise.simulation.run.workload import jobs_of

    tasks = []
    for types, resources in sizes(policy, what):
        made = scenario(types, resources, EVENTS, 1)
        tasks.append(Task(made, jobs_of(made), Choice(policy)))
    turns = [[replicate(task) for task in tasks] for _ in range(TURNS)]
    seconds = [min(run.seconds / run.events for run in runs) for runs in zip(*turns, strict=True)]
    print(json.dumps([[one, run.solver] for one, run in zip(seconds, turns[0], strict=True)]))


def measure(policy: str, what: str) -> list[dict[str, Any]]:
    """The rows of a policy, from several processes one after the other. The first of all only compiles: each kernel has then a page of its own, which is
    slower than to find all of them in the cache."""
    from slotwise.display.numbers import rate  # here: `beside` has this module with versions that lack it

    command = [sys.executable, "-m", "benchmarks.growth", policy, what]
    done = [
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        for _ in range(1 + PROCESSES)
    ]
    runs, rows = [json.loads(text) for text in done[1:]], []
    for n, size in enumerate(sizes(policy, what)):
        ratios = [run[0][0] / run[n][0] for run in runs]
        size, first = (pair[what == "resources"] for pair in (size, sizes(policy, what)[0]))
        solver = runs[0][n][1]
        found = {
            "name": f"growth: {policy}, {size} {what if size > 1 else what[:-1]}",
            "value": median(ratios),
            "unit": f"of the speed with {first}",
            "detail": f"{min(ratios):.2f} to {max(ratios):.2f}; {rate(1 / median(run[n][0] for run in runs))} events/s"
            + (f"; {solver}" if solver else ""),
        }
        goal = GOALS.get((policy, size)) if what == "types" else None
        rows.append(found if goal is None else found | {"goal": goal, "met": found["value"] >= goal})
    return rows


def run() -> list[dict[str, Any]]:
    """Rows of name, value, unit, detail, and where there is one the goal."""
    return [row for policy in POLICIES for what in ("types", "resources") for row in measure(policy, what)]


def main(arguments: list[str]) -> None:
    """All rows; or those of some policies; or, with a policy and what grows, be a worker."""
    if len(arguments) == 2 and arguments[1] in ("types", "resources"):
        work(*arguments)
        return
    for policy in arguments or POLICIES:
        for what in ("types", "resources"):
            for row in measure(policy, what):
                print(f"{row['name']:40} {row['value']:8.3g} {row['unit']:24} {row['detail']}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

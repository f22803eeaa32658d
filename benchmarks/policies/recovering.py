"""`python -m benchmarks.policies.recovering`: does a policy recover from a backlog?

Each scenario with rates begins with 5,000 waiting jobs per server, at most MOST in all, with types in the proportion of their arrivals.
It runs for TIMES as long as a policy needs that uses all of the capacity. A policy recovers if less than SHARE of the backlog is left then. A policy may be stable
from an empty start and not recover: with long queues it may decide otherwise than with short ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.policies import tables
from benchmarks.policies.families import PARTS, family_entries
from benchmarks.policies.suite import Entry, suite
from slotwise.errors import InputError
from slotwise.model import Scenario
from slotwise.scheduling import Scheduler
from slotwise.simulation.run import takeup
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task, replicate
from slotwise.simulation.run.workload import jobs_of
from slotwise.theory.load import rates_and_region

PER_SERVER = 5_000  # waiting jobs at the start, for each server
MOST = 100_000  # waiting jobs at the start: more only takes longer
TIMES = 2.5  # of the time in which all of the capacity would work off the backlog
SHARE = 0.2  # of the backlog; a policy that loses a tenth of the spare capacity has about a tenth left
MOST_EVENTS = (
    20_000_000  # of a run; at an intensity of .98 a backlog lasts for fifty times its own number of arrivals
)
POLICIES = ("guarded", "algorithm1", "best-fit", "first-fit", "myopic-maxweight", "quickswap")


def backlog(scenario: Scenario, policy: str, rates: np.ndarray) -> tuple[Task, int, float]:
    """Return a run that begins with a backlog, how many jobs wait then, and the intensity."""
    _, region = rates_and_region(scenario)
    waiting = min(PER_SERVER * scenario.cluster.n_servers, MOST)
    zeta = min(region.intensity, 0.99)
    events = min(int(2 * TIMES * waiting * zeta / (1 - zeta) + 2 * waiting), MOST_EVENTS)
    scheduler = Scheduler(scenario.cluster, scenario.types, policy, seed=1)
    names = [t.name for t in scenario.types]
    for n, j in enumerate(np.random.default_rng(1).choice(len(names), waiting, p=rates / rates.sum())):
        scheduler.submit(n, names[int(j)])
    start = takeup.relative(scheduler.situation())
    run = scenario.run.model_copy(update={"events": events, "until": None, "jobs": None, "replications": 1})
    ready = scenario.model_copy(update={"run": run})
    return Task(ready, jobs_of(ready), Choice(policy, {}), start=start), waiting, zeta


def entries(part: str | None) -> Iterator[Entry]:
    """The scenarios that have rates."""
    for entry in family_entries(part) if part else suite():
        if (
            entry.family not in ("traces", "real", "logs", "clouds", "hpc")
            and entry.scenario.workload.trace is None
        ):
            yield entry


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies.recovering", description=__doc__)
    parser.add_argument("--part", choices=PARTS, help="a part of the families instead of the suite")
    parser.add_argument("--only", default="", help="only families or scenarios whose name contains this")
    parser.add_argument("--policies", default=",".join(POLICIES), help="names, with commas between")
    parser.add_argument("--markdown", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    policies = arguments.policies.split(",")
    rows = [["scenario", "waiting at the start", *policies]]
    recovered = dict.fromkeys(policies, 0)
    for entry in entries(arguments.part):
        if arguments.only not in entry.name and arguments.only not in entry.family:
            continue
        rates, cells, waiting = jobs_of(entry.scenario).rates, [], 0
        for policy in policies:
            try:
                task, waiting, _ = backlog(entry.scenario, policy, rates)
                left = int(replicate(task).final_queue.sum())
            except InputError as refused:
                print(f"{entry.name}, {policy}: {refused}", file=sys.stderr)
                cells.append("-")
                continue
            recovered[policy] += left < SHARE * waiting
            cells.append(f"{left / waiting:.1%}" + ("" if left < SHARE * waiting else " does not recover"))
        rows.append([entry.name, f"{waiting:,}", *cells])
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    rows.append(["recovers", "", *(f"{recovered[policy]} of {len(rows) - 1}" for policy in policies)])
    print(tables.aligned(rows))
    if arguments.markdown:
        asked = " ".join(sys.argv[1:])
        head = f"Written by `python -m benchmarks.policies.recovering {asked}`. Share of the backlog that is left."
        arguments.markdown.write_text("\n".join([head, "", *tables.markdown(rows)]) + "\n")


if __name__ == "__main__":
    main()

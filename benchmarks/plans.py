"""`python -m benchmarks.plans`: do plans hold when they are run again, with other seeds and ten times the length?

Random clusters and types as in `benchmarks.verdicts`, at .7 of what their servers carry, with one or two classes and a
random target. A target is a p95 or mean wait from a tenth of to three mean service times, of all jobs or of one type.
`plan` decides on the servers; they are then simulated once more, and the plan holds if the figure that the target
limits is at most the limit. All that is measured is kept as it comes, and a second call goes on where the first one
ended.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import Rows
from benchmarks.verdicts import TRUTH, tables
from slotwise.errors import SlotwiseError
from slotwise.model import parse_scenario
from slotwise.planning import plan
from slotwise.planning.targets import estimate
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task, replicate
from slotwise.simulation.run.workload import jobs_of

LONGER = 10


def planned(n: int, seed: int) -> dict[str, Any]:
    """The n-th plan, and whether it holds."""
    rng = np.random.default_rng([seed, 2, n])
    made = tables(rng, 0.7, seed + n)
    made["cluster"]["servers"] = made["cluster"]["servers"][:2]
    scenario = parse_scenario(made)
    jobs = jobs_of(scenario)
    figure = str(rng.choice(["p95_wait", "mean_wait"]))
    limit = jobs.typical_service * float(10 ** rng.uniform(-1, 0.5))
    name = str(rng.choice([job_type.name for job_type in jobs.types])) if rng.random() < 0.5 else ""
    key = f"{name}.{figure}" if name else figure
    policy = str(rng.choice(["guarded", "best-fit"]))
    begun = time.perf_counter()
    row: dict[str, Any] = {"target": {key: limit}, "policy": policy}
    try:
        found = plan(scenario, {key: limit}, policy, workers=1, mixes=8)
    except SlotwiseError as problem:
        return row | {"holds": None, "why": str(problem)}
    servers = tuple(
        server.model_copy(update={"count": found.servers[server.name]}) for server in scenario.cluster.servers
    )
    cluster = scenario.cluster.model_copy(update={"servers": servers})
    workload = scenario.workload.model_copy(update={"intensity": None})
    types = tuple(
        one.model_copy(update={"rate": float(rate)}) for one, rate in zip(jobs.types, jobs.rates, strict=True)
    )
    run = scenario.run.model_copy(update={"seed": scenario.run.seed + TRUTH})
    again = scenario.model_copy(update={"cluster": cluster, "workload": workload, "types": types, "run": run})
    task = Task(again, jobs_of(again), Choice(policy), events=LONGER * found.best.runs[0].events)
    runs = [replicate(replace(task, replication=r)) for r in range(len(found.best.runs))]
    seen = estimate(runs, key, 0.95, [one.name for one in types]).mean
    said = (found.best.estimates or {})[key]
    return row | {
        "servers": found.servers,
        "intensity": found.facts.intensity,
        "runs": found.best.replications,
        "events": sum(run.events for run in found.best.runs),
        "said": said,
        "seen": seen,
        "holds": seen <= limit,
        "seconds": time.perf_counter() - begun,
    }


def main(arguments: list[str] | None = None) -> None:
    """Run it and print the share that holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=50, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with this one, counted from 0")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path("build/verdicts"),
        metavar="DIR",
        help="for what is measured; it is gone on with",
    )
    given = parser.parse_args(arguments)
    begun = time.perf_counter()
    kept = Rows(given.keep / f"plans-{given.seed}.jsonl")
    names = {str(n): n for n in range(given.first, given.plans)}
    with ThreadPoolExecutor(given.threads) as pool:
        missing = {pool.submit(planned, n, given.seed): name for name, n in names.items() if name not in kept.rows}
        for one in as_completed(missing):
            kept.add(missing[one], one.result())
    rows = [kept.rows[name] for name in names]
    known = [row for row in rows if row["holds"] is not None]
    held = sum(row["holds"] for row in known)
    print(f"{held} of {len(known)} plans at 95 % hold with other seeds and {LONGER} times the length")
    for row in rows:
        if row["holds"] is None:
            print(f"no plan for {row['target']} under {row['policy']}: {row['why']}")
    print(f"{time.perf_counter() - begun:,.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

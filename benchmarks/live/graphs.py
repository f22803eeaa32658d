"""A graph of jobs of depth 100 beside the same jobs without dependencies: time per job, and whether each job began after those that it waits for.

Each job waits for two jobs of the layer above. The engines are `simulated`, whose jobs take 10 ms, and `local`, whose jobs execute `true`.

    python -m benchmarks.live.graphs [--jobs 10000] [--local-jobs 2000]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.protocol import Engine, ServerUp
from slotwise.live.engines.simulated import SimulatedEngine
from slotwise.live.newjob import After, NewJob
from slotwise.live.replay import replay, rows
from slotwise.live.restart import Setup
from slotwise.live.service import Service
from slotwise.live.store import open_store
from slotwise.live.store.protocol import Store
from slotwise.model import Cluster, JobType, ServerClass

DEPTH = 100
CPUS = 64
SETUP = Setup(
    Cluster(resources=("cpu",), servers=(ServerClass(name="a", count=1, capacity=(str(CPUS),)),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1",)),),  # type: ignore[arg-type]
    policy="best-fit",
)


def jobs_of(count: int, depth: int, seed: int = 1) -> list[NewJob]:
    """Return jobs in layers, each after two jobs of the layer above; with depth 1, jobs that wait for nothing."""
    chance, width = random.Random(seed), count // depth
    found = []
    for at in range(width * depth):
        layer = at // width
        above = range((layer - 1) * width, layer * width)
        after = (
            [After("ok", place, is_place=True) for place in sorted(chance.sample(above, min(2, width)))]
            if layer
            else []
        )
        body = json.dumps({"argv": ["true"], "cwd": "/", "type": "one", "at": at})
        found.append(NewJob("t", "one", {}, {}, body=body, after=after))
    return found


def measured(engine: str, jobs: Sequence[NewJob]) -> tuple[float, float, float, Store]:
    """Return the seconds of the submission and of everything, the CPU seconds of the service, and the store afterwards."""
    folder = Path(tempfile.mkdtemp())
    servers = [ServerUp("s", {"cpu": CPUS}, server_class="a")]
    made: Engine = (
        SimulatedEngine(servers, lambda job, attempt, spec: 0.01)
        if engine == "simulated"
        else LocalEngine(folder / "engine", {one.name: one for one in servers})
    )
    service = Service(open_store(f"sqlite:///{folder}/x.db"), made, SETUP)
    began, used = time.perf_counter(), time.process_time()
    service.loop.submit(jobs).result()
    submitted = time.perf_counter() - began
    while (counts := service.store.counts()).get("done", 0) + counts.get("cancelled", 0) + counts.get(
        "failed", 0
    ) < len(jobs):
        # counting 10,000 rows costs a millisecond: 1 % of the time, and of the result, is little
        time.sleep(max(0.05, 0.01 * (time.perf_counter() - began)))
    total, used = time.perf_counter() - began, time.process_time() - used
    service.close()
    return submitted, total, used, open_store(f"sqlite:///{folder}/x.db")


def wrong_order(store: Store) -> Iterator[str]:
    """Yield each job that began before a job that it waits for had ended."""
    begun: dict[int, int] = {}
    over: dict[int, int] = {}
    for entry in rows(store, 0):
        event = json.loads(entry.event)
        if event["event"] == "complete":
            over[event["job"]] = entry.seq
        for job, _, _ in json.loads(entry.placements):
            begun[job] = entry.seq
    for need in store.needs(of=sorted(begun)):
        if begun[need.job] < over[need.other]:  # one row may end a job; what it released has a row of its own
            yield f"job {need.job} began before job {need.other} had ended"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--local-jobs", type=int, default=10_000)
    given = parser.parse_args()
    for engine, count in (("simulated", given.jobs), ("local", given.local_jobs)):
        if not count:
            continue
        for depth in (1, DEPTH):
            jobs = jobs_of(count, depth)
            submitted, total, used, store = measured(engine, jobs)
            wrong, states = list(wrong_order(store)), store.counts()
            print(
                f"{engine:10} {len(jobs):6,} jobs, depth {depth:3}: submitted in {submitted:.2f} s, ended after {total:.2f} s, "
                f"{1e6 * used / len(jobs):.0f} us of CPU a job; {len(wrong)} in wrong order; {states}; replay differs {len(replay(store).differences)} times",
                flush=True,
            )
            store.close()


if __name__ == "__main__":
    main()

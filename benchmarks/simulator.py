"""The simulator: against SimPy and plain Python on the same run, with growing clusters, its memory and its start.

Table 1 of the paper at 0.89, Algorithm 1, Poisson arrivals, exponential service times, one core. Speeds are the best of several
turns, taken in turn, since other people's work on the machine only ever slows things down.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import slotwise
from benchmarks import heapq_table1, simpy_table1
from slotwise.display.numbers import rate

EVENTS = 200_000
TURNS = 8
SIZES = (20, 1_000, 10_000, 100_000)
SIZE_EVENTS = 5_000_000
MEMORY_JOBS = 10_000_000

MEMORY = f"""
import resource, sys
import slotwise
settings = ["run.jobs={MEMORY_JOBS}", "run.replications=1", "cluster.servers.standard.count=1000"]
run = slotwise.simulate("table1", "algorithm1", overrides=settings).runs[0]
assert run.arrivals == {MEMORY_JOBS}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))
"""


def row(name: str, value: float, unit: str, detail: str = "", goal: float | None = None, least: bool = True) -> dict[str, Any]:  # fmt: skip
    """One line of the table; with a goal, whether it is met (`least`: the value shall be at least that)."""
    line = {"name": name, "value": value, "unit": unit, "detail": detail}
    if goal is not None:
        line |= {
            "goal": f"{'at least' if least else 'under'} {goal:g}",
            "met": value >= goal if least else value < goal,
        }
    return line


def simulated(servers: int, events: int, replications: int = 1, seed: int = 1) -> slotwise.Result:
    """This simulator, on one core."""
    settings = [f"run.events={events}", f"run.replications={replications}", f"run.seed={seed}"]
    settings.append(f"cluster.servers.standard.count={servers}")
    return slotwise.simulate("table1", "algorithm1", overrides=settings, workers=1)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.perf_counter()
    return work(), time.perf_counter() - begun


def compile_elsewhere() -> None:
    """Kernels that are not compiled yet are compiled by another process. A process that compiles keeps each kernel on a
    page of its own; it runs a fifth slower than later processes, which load the kernels from the cache, side by
    side."""
    code = "from benchmarks.simulator import simulated; simulated(20, 1000)"
    subprocess.run([sys.executable, "-c", code], check=True)


def against_others() -> list[dict[str, Any]]:
    """Events a second of the three, and whether they find the same mean queue."""
    compile_elsewhere()
    ours = np.array([run.mean_queue for run in simulated(20, EVENTS, 60).runs])
    speeds: dict[str, list[float]] = {"slotwise": [], "heapq": [], "simpy": []}
    found: dict[str, list[float]] = {"heapq": [], "simpy": []}
    for turn in range(TURNS):
        run = simulated(20, 10 * EVENTS, seed=turn).runs[0]
        speeds["slotwise"].append(run.events / run.seconds)
        for name, other in (("heapq", heapq_table1.run), ("simpy", simpy_table1.run)):
            outcome, seconds = timed(lambda other=other, turn=turn: other(20, EVENTS, turn))
            speeds[name].append(outcome.events / seconds)
            found[name].append(outcome.mean_queue)
    for name, queues in found.items():
        distance = abs(np.mean(queues) - ours.mean()) / (ours.std(ddof=1) * math.sqrt(1 / TURNS + 1 / len(ours)))
        assert distance < 4, f"{name} finds a mean queue of {np.mean(queues):.1f}, slotwise {ours.mean():.1f}"
    best = {name: max(speed) for name, speed in speeds.items()}
    queues = f"mean queue {ours.mean():.1f} ± {1.96 * ours.std(ddof=1) / math.sqrt(len(ours)):.1f}"
    return [
        row("simulator: Table 1, 20 servers", best["slotwise"], "events/s", queues),
        row(
            "simulator: SimPy, the same run", best["simpy"], "events/s", f"mean queue {np.mean(found['simpy']):.1f}"
        ),
        row(
            "simulator: heapq, the same run", best["heapq"], "events/s", f"mean queue {np.mean(found['heapq']):.1f}"
        ),
        row("simulator: over SimPy", best["slotwise"] / best["simpy"], "times", "20 servers", 50),
        row("simulator: over plain Python with heapq", best["slotwise"] / best["heapq"], "times", "20 servers"),
    ]


def growth() -> list[dict[str, Any]]:
    """Events a second with ever more servers, at the same intensity."""
    best = dict.fromkeys(SIZES, 0.0)
    for turn in range(TURNS):
        for servers in SIZES:
            run = simulated(servers, SIZE_EVENTS, seed=turn).runs[0]
            best[servers] = max(best[servers], run.events / run.seconds)
    goals = {10_000: 0.4, 100_000: 0.2}
    return [
        row(
            f"simulator: {servers:,} servers",
            best[servers] / best[SIZES[0]],
            f"of the speed with {SIZES[0]}",
            f"{rate(best[servers])} events/s",
            goals.get(servers),
        )
        for servers in SIZES
    ]


def memory() -> list[dict[str, Any]]:
    """Peak memory of a process that simulates ten million jobs."""
    done = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True)
    return [
        row("simulator: 10 million jobs, 1,000 servers", float(done.stdout), "MB", "the whole process", 400, False)
    ]


def run() -> list[dict[str, Any]]:
    """Rows of {name, value, unit, detail} and, where there is one, {goal, met}."""
    return [*against_others(), *growth(), *memory()]

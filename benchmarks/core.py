"""What one decision costs, and that it does not grow with the cluster.

Table 1 of the paper at 0.89 of its capacity, as a closed loop: a random running job ends, then a job of a random type
comes. So the number of jobs in the system stays at 0.89 x 5 for each server. No clock and no event heap: this times the
core alone, through the kernels that the simulator calls. `python -m benchmarks.core` prints a table; goal: at 100,000
servers an arrival and a completion cost at most twice what they cost at 1,000.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np

from slotwise.compiler.whole import WholeCompiler
from slotwise.core import server_steps, steps
from slotwise.core.chance import words_of
from slotwise.core.state import JOB_COLUMNS, SERVER, jobs
from slotwise.core.store import Store
from slotwise.model import integers, load_scenario
from slotwise.packing import Space
from slotwise.scheduling import Scheduler, make_policy
from slotwise.simulation.run.agenda import prefetch_job, prefetch_server

SCALES = (1_000, 10_000, 100_000)
POLICIES = {
    "algorithm1": SCALES,
    "m14": SCALES,
    "best-fit": SCALES,
    "tetris": SCALES,
    "first-fit": SCALES,
}
LOAD = 0.89
EVENTS = 400_000
REPEATS = 5
AHEAD = 8  # completions
WARM_UP = 2.0  # seconds at most


@numba.njit(nogil=True, pipeline_class=WholeCompiler)  # type: ignore[untyped-decorator]
def fill(s: Any, n_servers: int, n_jobs: int, rng: Any, shares: Any, join: Any, arrive: Any) -> None:
    """All servers join, then the jobs come."""
    for server in range(n_servers):
        server_steps.join(s, server, 0, join)
    for _ in range(n_jobs):
        steps.submit(s, np.searchsorted(shares, rng.random()), arrive, False)


@numba.njit(nogil=True, pipeline_class=WholeCompiler)  # type: ignore[untyped-decorator]
def churn(s: Any, n_events: int, rng: Any, shares: Any, arrive: Any, complete: Any) -> None:
    """Half of the events are completions, half are arrivals. Hardly a job number is unused, so chance soon finds a job
    that runs; a list of them would bring cache misses of its own. As in the simulator's loop, the driver knows some completions
    ahead which jobs end, and says so."""
    soon = (rng.random(AHEAD) * s.max_jobs).astype(np.int64)
    for n in range(n_events // 2):
        job = soon[n % AHEAD]
        while jobs(s)[job, SERVER] < 0:
            job = int(rng.random() * s.max_jobs)
        soon[n % AHEAD] = int(rng.random() * s.max_jobs)
        prefetch_job(s, soon[n % AHEAD])
        prefetch_server(s, soon[(n + AHEAD // 2) % AHEAD])
        steps.complete(s, job, complete)
        steps.submit(s, np.searchsorted(shares, rng.random()), arrive, False)


def nanoseconds(name: str, n_servers: int) -> tuple[float, int]:
    """The least time of an event over some repeats, and how many jobs wait in the end."""
    scenario = load_scenario("table1")
    sizes = integers(scenario.cluster, scenario.types)
    options = {} if name in ("algorithm1", "m14") else {"pack_by": "type"}
    policy = make_policy(name, **options)
    n_jobs = int(LOAD * 5 * n_servers)
    store = Store(
        sizes,
        policy,
        max_servers=n_servers,
        spaces=[Space.additive(sizes.demand, sizes.capacity[0])],
        random=words_of(1),
        max_jobs=n_jobs + 1,
    )
    hooks = policy.hooks()
    rng = np.random.default_rng(1)
    rates = np.array([job_type.rate or 0.0 for job_type in scenario.types])
    shares = np.cumsum(rates / rates.sum())
    fill(store.state, n_servers, n_jobs, rng, shares, hooks.join, hooks.arrive)

    def seconds(n_events: int) -> float:
        begin = time.perf_counter()
        churn(store.state, n_events, rng, shares, hooks.arrive, hooks.complete)
        return time.perf_counter() - begin

    seconds(2)  # compiles
    # into the steady state: every job has been replaced a few times, as far as that can be waited for
    spent, done = 0.0, 0
    while done < 4 * n_jobs and spent < WARM_UP:
        spent += seconds(2_000)
        done += 2_000
    n_events = max(2_000, int(min(EVENTS, done / spent * WARM_UP / 4)))
    times = [seconds(n_events) / n_events for _ in range(REPEATS)]
    state: Any = store.state
    assert state.n_running + state.n_waiting == n_jobs
    return min(times) * 1e9, int(state.n_waiting)


@numba.njit(nogil=True, pipeline_class=WholeCompiler)  # type: ignore[untyped-decorator]
def chase(lines: Any, n: int) -> int:
    """Return the time of a read whose address depends on the read before, so that the machine cannot look ahead."""
    place = 0
    for _ in range(n):
        place = lines[place, 0]
    return place


def random_read(n_jobs: int) -> float:
    """Nanoseconds of a random read in as much memory as so many jobs take: none of our doing, but in every event."""
    lines = np.zeros((n_jobs, JOB_COLUMNS), np.int32)
    order = np.random.default_rng(1).permutation(n_jobs)
    lines[order, 0] = np.roll(order, 1)  # one cycle through all of them
    chase(lines, 10)
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        chase(lines, EVENTS)
        times.append(time.perf_counter() - begin)
    return min(times) / EVENTS * 1e9


def from_python(name: str, n_servers: int = 1_000, n_events: int = 4_000) -> float:
    """Microseconds of a decision through `Scheduler`, from plain Python."""
    scenario = load_scenario("table1", [f"cluster.servers.standard.count={n_servers}"])
    scheduler = Scheduler(scenario.cluster, scenario.types, name)
    names, rng = [job_type.name for job_type in scenario.types], np.random.default_rng(1)
    kinds = rng.choice(len(names), 5 * n_servers + n_events, p=[2 / 15, 11 / 15, 2 / 15])
    running = []
    n_jobs = int(LOAD * 5 * n_servers)
    for i in range(n_jobs):
        running += [placement.job for placement in scheduler.submit(i, names[kinds[i]])]
    running += [placement.job for placement in scheduler.complete(running.pop())]  # compiles
    begin = time.perf_counter()
    for i in range(n_jobs, n_jobs + n_events // 2):
        place = int(rng.integers(len(running)))
        running[place], running[-1] = running[-1], running[place]
        running += [placement.job for placement in scheduler.complete(running.pop())]
        running += [placement.job for placement in scheduler.submit(i, names[kinds[i]])]
    return (time.perf_counter() - begin) / n_events * 1e6


def rows() -> Iterator[dict[str, Any]]:
    """Rows of name, value, unit, detail, as they are measured."""
    for name, scales in POLICIES.items():
        cost, waiting = {}, {}
        for n_servers in scales:
            cost[n_servers], waiting[n_servers] = nanoseconds(name, n_servers)
        least, most = scales[0], scales[-1]
        yield {
            "name": f"{name}: an event at {most:,} servers against {least:,}",
            "value": round(cost[most] / cost[least], 2),
            "unit": "ratio",
            "detail": ", ".join(f"{cost[n]:.0f} ns at {n:,} ({waiting[n]:,} wait)" for n in scales),
        }
    reads = {n: random_read(int(LOAD * 5 * n)) for n in SCALES}
    yield {
        "name": "for comparison: one random read among the jobs",
        "value": round(reads[SCALES[-1]] / reads[SCALES[0]], 2),
        "unit": "ratio",
        "detail": ", ".join(f"{reads[n]:.0f} ns at {n:,}" for n in SCALES),
    }
    for name in ("algorithm1", "best-fit"):
        yield {
            "name": f"{name}: a decision from Python",
            "value": round(from_python(name), 1),
            "unit": "us",
            "detail": "Scheduler.submit and .complete at 1,000 servers",
        }


def run() -> list[dict[str, Any]]:
    """Rows of name, value, unit, detail."""
    return list(rows())


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']:60} {row['value']:>8} {row['unit']:6} {row['detail']}", flush=True)

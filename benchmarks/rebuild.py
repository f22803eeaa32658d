"""How long it takes to write a large situation down and to go on from it: 100,000 servers, 1,000,000 waiting jobs."""

from __future__ import annotations

import time
from typing import Any

import slotwise
from slotwise import Scheduler, Situation
from slotwise.scheduling import Submit

SERVERS = 100_000
WAITING = 1_000_000
GOAL = 10.0


def loaded(policy: str, servers: int, waiting: int) -> Scheduler:
    """Table 1 with all servers full and so many jobs waiting."""
    scenario = slotwise.load_scenario("table1", [f"cluster.servers.standard.count={servers}"])
    scheduler = Scheduler(scenario.cluster, scenario.types, policy)
    names = [job_type.name for job_type in scenario.types]
    n = 0
    while sum(scheduler.waiting.values()) < waiting:
        for _ in range(max(1, waiting - sum(scheduler.waiting.values()))):
            scheduler.apply(Submit(f"job-{n}", names[n % 3], float(n)))
            n += 1
    return scheduler


def timed(work: Any) -> tuple[Any, float]:
    begun = time.perf_counter()
    return work(), time.perf_counter() - begun


def run() -> list[dict[str, Any]]:
    """Rows of name, value, unit, detail."""
    found = []
    for policy in ("algorithm1", "guarded"):
        loaded(policy, 10, 10).situation()  # compiles
        scheduler = loaded(policy, SERVERS, WAITING)
        situation, captured = timed(scheduler.situation)
        text, written = timed(situation.to_json)
        again, read = timed(lambda text=text: Situation.from_json(text))
        small = Scheduler.from_situation(loaded(policy, 10, 10).situation())
        assert small.opening.fault is None
        rebuilt, seconds = timed(lambda again=again: Scheduler.from_situation(again))
        assert rebuilt.waiting == scheduler.waiting
        assert len(rebuilt.running) == len(scheduler.running)
        found.append(
            {
                "name": f"rebuild: {policy}, {SERVERS:,} servers, {WAITING:,} waiting",
                "value": read + seconds,
                "unit": "s",
                "goal": f"under {GOAL:g}",
                "met": read + seconds < GOAL,
                "detail": f"{read:.1f} s to read, {seconds:.1f} s to rebuild; {captured:.1f} s to capture, {written:.1f} s to write, "
                f"{len(text) / 1e6:.0f} MB",
            }
        )
    return found


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:60} {row['value']:8.2f} {row['unit']:4} {row['detail']}", flush=True)

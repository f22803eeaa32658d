"""A program that runs jobs on servers, with Slotwise deciding which goes where. Time is simulated with a heap."""

from __future__ import annotations

import heapq
import random

import slotwise


def main() -> None:
    chance = random.Random(1)
    scheduler = slotwise.Scheduler.from_scenario(slotwise.load_scenario("table1"))
    events: list[tuple[float, str, str]] = []
    for n in range(300):
        heapq.heappush(events, (chance.uniform(0, 3), "arrive", f"job {n}"))
    finished = 0
    while events:
        now, what, job = heapq.heappop(events)
        if what == "arrive":
            placements = scheduler.submit(job, chance.choice(["standard", "high-memory", "high-cpu"]))
        else:
            placements = scheduler.complete(job)
            finished += 1
        for placement in placements:  # here a real program starts the job
            heapq.heappush(events, (now + chance.expovariate(1.0), "end", str(placement.job)))
    print(f"{finished} jobs have ended; waiting: {scheduler.waiting}")


if __name__ == "__main__":
    main()

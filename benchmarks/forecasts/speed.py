"""How long a forecast takes for 10,000 waiting jobs on 1,000 servers: `python -m benchmarks.forecasts.speed`."""

from __future__ import annotations

import time

import numpy as np

from slotwise.foresee.correction import curves_of, mixed
from slotwise.foresee.ensemble import Outlook, ensemble
from slotwise.foresee.history import F8, History
from slotwise.foresee.recent import RecentWaits
from slotwise.foresee.tracking import REMEMBERED, Tracker
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Submit
from slotwise.scheduling.situation import Situation

SERVERS, WAITING, PAST = 1_000, 10_000, 20_000
MEAN = 3600.0


def crowded() -> tuple[Situation, History]:
    """Return a full cluster with a long queue, and its past."""
    rng = np.random.default_rng(1)
    cluster = Cluster(
        resources=("cpu", "memory"), servers=(ServerClass(name="a", count=SERVERS, capacity=(16, 64)),)
    )
    types = tuple(JobType(name=f"t{size}", demand=(size, 2 * size)) for size in (1, 2, 4, 8))
    core = Scheduler(cluster, types)
    job, now = 0, 86_400.0 * 3
    while sum(core.waiting.values()) < WAITING:
        core.apply(Submit(job, types[int(rng.integers(4))].name, now))
        job += 1
    submitted = np.sort(rng.uniform(0, now - 2 * MEAN, PAST))
    durations = rng.exponential(MEAN, PAST)
    ended = np.minimum(submitted + durations, now)
    history = History(
        tuple(one.name for one in types), submitted, submitted, ended, ended < now, rng.integers(0, 4, PAST),
        rng.integers(0, 50, PAST), np.full(PAST, np.nan),
    )  # fmt: skip
    return core.situation(), history


def learnt(curves: F8) -> Tracker:
    """Return a tracker that knows as many outcomes as it remembers."""
    rng, tracker = np.random.default_rng(2), Tracker()
    for n in range(REMEMBERED):
        curve = curves[int(rng.integers(len(curves)))]
        tracker.remember(float(n), float(rng.exponential(MEAN)), f"t{n % 4}", MEAN, curve)
    return tracker


def main() -> None:
    """Measure twice: the first time compiles."""
    situation, history = crowded()
    tracker = Tracker()
    for turn in ("compiling", "compiled"):
        began, used = time.monotonic(), time.process_time()
        outlook = Outlook(situation, history)
        ready = time.process_time() - used
        made = ensemble(outlook, 32, budget=1.2)
        kinds = [situation.types[j].name for j in situation.waiting.type]
        medians = np.median(made.starts, axis=0)
        age = situation.now - np.array(situation.waiting.submitted)
        waits = RecentWaits(outlook.history).curves(outlook.history_type[: len(age)], age)
        curves = mixed(curves_of(made.starts), waits)
        tracker.correction(situation.now).quantiles(curves, kinds, medians)
        print(
            f"{turn}: {len(situation.waiting.job):,} waiting, {len(situation.running.job):,} running on {SERVERS:,} servers: "
            f"{time.monotonic() - began:.2f} s, {time.process_time() - used:.2f} s of CPU ({ready:.2f} s to lay out), {len(made.starts)} runs"
        )
        if turn == "compiling":
            tracker = learnt(curves)


if __name__ == "__main__":
    main()

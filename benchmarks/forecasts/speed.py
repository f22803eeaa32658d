"""How long a forecast takes for 10,000 waiting jobs on 1,000 servers: `python -m benchmarks.forecasts.speed`."""

from __future__ import annotations

import time

import numpy as np

from slotwise.foresee.correction import Correction, keys_of
from slotwise.foresee.ensemble import Outlook, ensemble
from slotwise.foresee.history import History
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


def main() -> None:
    """Measure twice: the first time compiles."""
    situation, history = crowded()
    for _ in range(2):
        began, used = time.monotonic(), time.process_time()
        outlook = Outlook(situation, history)
        ready = time.process_time() - used
        made = ensemble(outlook, 32, budget=1.2)
        kinds = [situation.types[j].name for j in situation.waiting.type]
        medians = np.median(made.starts, axis=0)
        Correction().quantiles(made.starts, [keys_of(k, float(m)) for k, m in zip(kinds, medians, strict=True)])
        print(
            f"{len(situation.waiting.job):,} waiting, {len(situation.running.job):,} running on {SERVERS:,} servers: "
            f"{time.monotonic() - began:.2f} s, {time.process_time() - used:.2f} s of CPU ({ready:.2f} s to lay out), {len(made.starts)} runs"
        )


if __name__ == "__main__":
    main()

"""The verdict on the runs of one policy: what the queues did, what theory knows, and whether the runs were long enough to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slotwise.display.numbers import number
from slotwise.model import JobType, span, with_unit
from slotwise.simulation.judge.drift import GROWTH, GROWTH_OF_TYPE, UNKNOWN, Drift, Floats, Stability, drift
from slotwise.simulation.measure.measurements import Measurements
from slotwise.simulation.measure.meter import COUNT, FIRST_COLUMNS

SERVICES = 10.0  # a run shorter than so many of the longest mean service times tells nothing
NEVER = 10  # so many of a type came in the measured part, and none of them started


class Judgement(NamedTuple):
    """The verdict, why, and how the queue moved."""

    verdict: Stability
    why: str
    drift: Drift
    """of all jobs together; its slope per unit of time"""


def judge(
    runs: Sequence[Measurements],
    types: Sequence[JobType],
    *,
    impossible: bool,
    is_trace: bool,
    time_unit: str | None = None,
) -> Judgement:
    """Judge the runs. With `impossible` the load is outside the capacity region, so theory has the last word."""
    tables = _sampled(runs)
    steps = float(tables[0][1, 0] - tables[0][0, 0]) if len(tables[0]) > 1 else 1.0
    total = drift([table[:, 1] for table in tables]) if len(tables[0]) > 1 else UNKNOWN
    total = total._replace(slope=total.slope / steps)
    if impossible:
        return Judgement(Stability.GROWS, "the load is outside what these servers can carry", total)
    for j, job_type in enumerate(types):
        came = sum(float(run.wait_sums[j, COUNT] + run.waiting_bins[j].sum()) for run in runs)
        if came >= NEVER and not any(run.wait_sums[j, COUNT] for run in runs):
            waiting = f"none of {came:,.0f} jobs of {job_type.name} that came after the warm-up has started"
            return Judgement(Stability.NEVER_STARTS, waiting, total)
    ended = min(run.ended for run in runs)
    if not is_trace:
        busy = [job_type for job_type in types if job_type.rate is None or job_type.rate > 0]
        longest = max(busy, key=lambda job_type: job_type.mean_service)
        if ended < SERVICES * longest.mean_service:
            seen, each = span(number(ended), time_unit), with_unit(number(longest.mean_service), time_unit)
            why = f"{seen} were simulated, and {longest.name} runs {each} on average: too short to judge"
            return Judgement(Stability.TOO_SHORT, why, total)
    found = [(total.stability(GROWTH), "")]
    for j, job_type in enumerate(types):
        one = drift([table[:, FIRST_COLUMNS + j] for table in tables])
        found.append((one.stability(GROWTH_OF_TYPE), f" of {job_type.name}"))
    for verdict, whose in found:
        if verdict is Stability.GROWS:
            return Judgement(verdict, f"the queue{whose} grows", total)
    for verdict, whose in found:
        if verdict is Stability.TOO_SHORT:
            return Judgement(verdict, f"the queue{whose} still wanders: too short to tell where it goes", total)
    return Judgement(Stability.STABLE, "the queues keep coming back", total)


def _sampled(runs: Sequence[Measurements]) -> list[Floats]:
    """Return the series of each run after its warm-up, all with the same step. A step doubles with the length of a run,
    so the steps of runs that differ a little may differ by a factor of two."""
    tables = [run.series for run in runs]
    steps = [float(table[1, 0] - table[0, 0]) if len(table) > 1 else 0.0 for table in tables]
    if not min(steps) > 0:
        return [np.zeros((1, tables[0].shape[1])) for _ in tables]
    longest = max(steps)
    thinned = [table[:: round(longest / step)] for table, step in zip(tables, steps, strict=True)]
    return [
        table[table[:, 0] >= max(run.ended - run.measured, run.ended / 4)]
        for table, run in zip(thinned, runs, strict=True)
    ]

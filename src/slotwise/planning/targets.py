"""What a plan must meet: upper limits on waits, queues and utilisation, and how each is read from a run.

Jobs that still wait when a run ends count too. In a quantile they count as waiting for ever, which is never too
kind; the mean wait is the area under the queue per job that came (Little), so the time they waited so far is in it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping

from slotwise.errors import InputError
from slotwise.simulation.histogram import EDGES, quantiles
from slotwise.simulation.measurements import PROBABILITIES, Measurements
from slotwise.simulation.meter import COUNT, LARGEST
from slotwise.simulation.statistics import Interval, student_interval

QUANTILES = {f"{name}_wait": p for name, p in PROBABILITIES.items()}
MEANINGS = {
    "mean_wait": "mean wait",
    "p50_wait": "median wait",
    "p95_wait": "p95 wait",
    "p99_wait": "p99 wait",
    "mean_queue": "mean queue",
    "utilisation": "utilisation",
}
"""the targets there are, in words"""

Targets = dict[str, float]


def parse_targets(texts: Iterable[str]) -> Targets:
    """From "p95_wait=60" and the like."""
    found: Targets = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise InputError("is not a target", where=f"--target {text}", remedy="write it as p95_wait=60, say")
        if key in found:
            raise InputError("is given twice", where=f"--target {key}", remedy="keep one of them")
        try:
            found[key] = float(value)
        except ValueError:
            raise InputError(f"{value!r} is not a number", where=f"--target {key}", remedy="give a limit") from None
    return check_targets(found)


def check_targets(targets: Mapping[str, float]) -> Targets:
    """The same, or the first thing in it that no cluster could mean."""
    if not targets:
        raise InputError("there is no target", where="--target", remedy="give one, such as p95_wait=60")
    for key, limit in targets.items():
        where = f"--target {key}"
        if key not in MEANINGS:
            near = difflib.get_close_matches(key, MEANINGS, 1)
            known = f"did you mean {near[0]}?" if near else f"use one of: {', '.join(MEANINGS)}"
            raise InputError("unknown target", where=where, remedy=known)
        if not math.isfinite(limit):
            raise InputError(f"is {limit}", where=where, remedy="give a finite limit")
        if key == "utilisation" and not 0 < limit <= 1:
            raise InputError(f"is {limit:g}", where=where, remedy="give a share above 0, at most 1")
        if key in QUANTILES and limit < 0:
            raise InputError(f"is {limit:g}", where=where, remedy="no wait is below 0: give 0 or more")
        if key in ("mean_wait", "mean_queue") and limit <= 0:
            raise InputError(
                f"is {limit:g}",
                where=where,
                remedy="no number of servers spares every job the wait: give more than 0",
            )
    return {key: float(limit) for key, limit in targets.items()}


def measure(run: Measurements, key: str) -> float:
    """The figure of one run that a target limits."""
    if key == "mean_queue":
        return run.mean_queue
    if key == "utilisation":
        return float(run.utilisation.max())
    started = float(run.wait_sums[:, COUNT].sum())
    waiting = float(run.final_queue.sum())
    if started == 0:
        return math.inf if waiting else 0.0
    if key == "mean_wait":
        return run.mean_queue * run.measured / (started + waiting)
    share = QUANTILES[key] * (1 + waiting / started)
    if share > 1:
        return math.inf
    largest = float(run.wait_sums[:, LARGEST].max())
    return quantiles(run.wait_bins.sum(axis=0), EDGES, [share], largest)[0] or 0.0


def estimate(runs: Iterable[Measurements], key: str, level: float) -> Interval:
    """Over independent runs, with Student's interval."""
    values = [measure(run, key) for run in runs]
    if not all(map(math.isfinite, values)):
        return Interval(math.inf, math.inf, math.inf)
    found = student_interval(values, level)
    if found.low is None and found.high is None:
        return found
    return Interval(found.mean, max(0.0, found.low or 0.0), found.high)

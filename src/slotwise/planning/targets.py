"""What a plan must meet: upper limits on waits, queues, starvation and utilisation, of all jobs or of one type, and how each is read from
runs.

A target is a figure, `p95_wait`, or that of a type, `train.p95_wait`. Jobs that still wait when a run ends count too: see
`slotwise.simulation.measure.histogram`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from slotwise.errors import InputError
from slotwise.model import time_in, with_unit
from slotwise.simulation.judge.intervals import mean_interval, quantile_interval
from slotwise.simulation.judge.statistics import Interval
from slotwise.simulation.measure.histogram import censored_quantiles
from slotwise.simulation.measure.measurements import PROBABILITIES, Measurements, add_up, mean_wait
from slotwise.simulation.measure.meter import COUNT, LARGEST

QUANTILES = {f"{name}_wait": p for name, p in PROBABILITIES.items()}
# the targets there are, in words
MEANINGS = {
    "mean_wait": "mean wait",
    "p50_wait": "median wait",
    "p95_wait": "p95 wait",
    "p99_wait": "p99 wait",
    "max_wait": "longest wait",
    "mean_queue": "mean queue",
    "starved": "longest wait over mean wait",
    "utilisation": "utilisation",
}

Targets = dict[str, float]


def parts(key: str) -> tuple[str | None, str]:
    """Return the type, if any, and the figure of a target."""
    of_type, _, figure = key.rpartition(".")
    return of_type or None, figure


def meaning(key: str) -> str:
    """Return the target in words."""
    of_type, figure = parts(key)
    return MEANINGS[figure] + (f" of {of_type}" if of_type else "")


def unit_of(key: str, time_unit: str | None) -> str | None:
    """Return the unit of a target's figure, where it has one."""
    return time_unit if key.endswith("_wait") else None


def shown(key: str, figure: float, time_unit: str | None) -> str:
    """Write a target's limit: 0.5 h."""
    return with_unit(f"{figure:g}", unit_of(key, time_unit))


def parse_targets(texts: Iterable[str], time_unit: str | None = None) -> Targets:
    """Parse "p95_wait=60", "train.p95_wait=30min" and the like. Plain numbers are in the scenario's unit of time."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise InputError("is not a target", where=f"--target {text}", remedy="write it as p95_wait=60, say")
        if key in found:
            raise InputError("is given twice", where=f"--target {key}", remedy="keep one of them")
        found[key] = value
    return check_targets(found, time_unit=time_unit)


def _figure(key: str, value: float | str, time_unit: str | None) -> float:
    where = f"--target {key}"
    if not isinstance(value, str):
        return value
    if key.endswith("_wait"):
        return time_in(value, time_unit, where=where)
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{value!r} is not a number", where=where, remedy="give a limit") from None


def check_targets(
    given: Mapping[str, float | str], type_names: Sequence[str] | None = None, time_unit: str | None = None
) -> Targets:
    """Return the targets. Raise an error for the first that no cluster could mean, also for an unknown type if the
    names of the types are given."""
    targets = {key: _figure(key, value, time_unit) for key, value in given.items()}
    if not targets:
        raise InputError("there is no target", where="--target", remedy="give one, such as p95_wait=60")
    for key, limit in targets.items():
        where = f"--target {key}"
        of_type, figure = parts(key)
        if figure not in MEANINGS:
            near = difflib.get_close_matches(figure, MEANINGS, 1)
            known = f"did you mean {near[0]}?" if near else f"use one of: {', '.join(MEANINGS)}"
            raise InputError("unknown target", where=where, remedy=known)
        if of_type is not None and figure == "utilisation":
            raise InputError("is not a matter of one type", where=where, remedy="use utilisation alone")
        if of_type is not None and type_names is not None and of_type not in type_names:
            raise InputError(
                f"no type is called {of_type!r}", where=where, remedy=f"use one of: {', '.join(type_names)}"
            )
        if not math.isfinite(limit):
            raise InputError(f"is {limit}", where=where, remedy="give a finite limit")
        if figure == "utilisation" and not 0 < limit <= 1:
            raise InputError(f"is {limit:g}", where=where, remedy="give a share above 0, at most 1")
        if (figure in QUANTILES or figure == "max_wait") and limit < 0:
            raise InputError(f"is {limit:g}", where=where, remedy="no wait is below 0: give 0 or more")
        if figure == "starved" and limit < 1:
            raise InputError(
                f"is {limit:g}", where=where, remedy="no longest wait is below the mean: give 1 or more"
            )
        if figure in ("mean_wait", "mean_queue") and limit <= 0:
            raise InputError(
                f"is {limit:g}",
                where=where,
                remedy="no number of servers spares every job the wait: give more than 0",
            )
    return {key: float(limit) for key, limit in targets.items()}


def measure(run: Measurements, key: str, type_names: Sequence[str] = ()) -> float:
    """Return the figure of one run that a target limits. It is infinite if so many jobs wait that it is not known
    yet."""
    of_type, figure = parts(key)
    rows = slice(None) if of_type is None else [list(type_names).index(of_type)]
    if figure == "mean_queue":
        return float(run.mean_queue_by_type[rows].sum())
    if figure == "utilisation":
        return float(run.utilisation.max())
    sums, ended, unended = add_up(run.wait_sums[rows]), run.wait_bins[rows].sum(axis=0), run.waiting_bins[rows].sum(axis=0)  # fmt: skip
    if not sums[COUNT]:
        return math.inf if unended.any() else 0.0
    if figure in QUANTILES:
        return censored_quantiles(ended, unended, [QUANTILES[figure]], float(sums[LARGEST]))[0] or 0.0
    longest = float(sums[LARGEST])
    if figure == "max_wait":
        return longest
    mean = mean_wait(sums, ended, unended)
    return mean if figure == "mean_wait" else longest / mean if mean > 0 else 1.0


def estimate(runs: Sequence[Measurements], key: str, level: float, type_names: Sequence[str] = ()) -> Interval:
    """Estimate the figure over independent runs, with an interval. The longest wait is the longest of all runs."""
    values = [measure(run, key, type_names) for run in runs]
    of_type, figure = parts(key)
    if figure == "max_wait":
        longest = max(values)
        return Interval(longest, longest, longest)
    if not all(map(math.isfinite, values)):
        return Interval(math.inf, math.inf, math.inf)
    if figure in QUANTILES and len(runs) > 1:
        rows = slice(None) if of_type is None else [list(type_names).index(of_type)]
        ended = [run.wait_bins[rows].sum(axis=0) for run in runs]
        unended = [run.waiting_bins[rows].sum(axis=0) for run in runs]
        low, high = quantile_interval(ended, unended, QUANTILES[figure], level)
        sums = add_up(np.concatenate([run.wait_sums[rows] for run in runs]))
        pooled = censored_quantiles(
            np.sum(ended, axis=0), np.sum(unended, axis=0), [QUANTILES[figure]], float(sums[LARGEST])
        )[0]
        return Interval(pooled or 0.0, low, high)
    return mean_interval(values, level)

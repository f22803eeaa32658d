"""What the window of a trace sees of the load that its jobs bring.

A trace is a window of time, from its first arrival to its last. With arrivals a_n, durations d_n, demands w_n and the length T:

- offered: sum_n d_n w_n / T, what the jobs keep in use in the long run if they go on coming like this. `capacity` speaks about it.
- mean: sum_n min(d_n, end - a_n) w_n / T, what they keep in use within the window if each starts at once. The jobs that
  run when the window begins count, too; there are none unless `workload.start` is "warm". A simulation of the trace
  sees no more than that.
- peak: the most that is in use at once within the window if each starts at once. So many servers spare every job the wait.

Where durations are short against the window the first two agree. Where they are not, most of the work lies beyond its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TraceWindow:
    """In the units of the demands, by resource."""

    length: float
    offered: Floats
    mean: Floats
    peak: Floats
    outlast: float
    """share of the jobs that are not over when the window ends, were each started at once"""
    work_seen: float
    """share of all jobs' time in service that lies within the window, were each started at once"""
    running: int = 0
    """how many jobs it begins with"""


class JobsAtStart(NamedTuple):
    """Jobs that run when a window begins."""

    left: Floats
    """how much longer each of them does"""
    demand: Floats


def window_of(
    arrival: Floats, duration: Floats, demand: Floats, running: JobsAtStart | None = None
) -> TraceWindow | None:
    """Return the window of jobs in order of arrival, or None if it has no length."""
    length = float(arrival[-1] - arrival[0]) if len(arrival) else 0.0
    if length <= 0:
        return None
    end = float(arrival[-1])
    within = np.minimum(duration, end - arrival)
    left, held = running or JobsAtStart(np.zeros(0), np.zeros((0, demand.shape[1])))
    begin = np.concatenate([np.full(len(left), arrival[0]), arrival])
    times = np.concatenate([begin, begin + np.concatenate([left, duration])])
    changes = np.concatenate([held, demand, -held, -demand])
    order = np.lexsort((np.repeat([1, 0], len(begin)), times))  # who leaves at an instant makes room for who comes
    inside = times[order] <= end
    level = np.cumsum(changes[order], axis=0)[inside]
    return TraceWindow(
        length=length,
        offered=np.asarray(duration @ demand / length),
        mean=np.asarray((within @ demand + np.minimum(left, length) @ held) / length),
        peak=np.asarray(level.max(axis=0)),
        outlast=float(np.mean(arrival + duration > end)),
        work_seen=float(within.sum() / duration.sum()) if duration.sum() > 0 else 1.0,
        running=len(left),
    )


def in_words(window: TraceWindow, capacity: Floats, rounded: Floats | None = None) -> str:
    """Return a sentence that lets the figures of `trace summary`, `capacity`, `simulate` and `plan` explain each other.
    `capacity` is of one server, or of all of them. `rounded` is the offered load when every job asks for what its type
    does."""
    used = np.where(capacity > 0, capacity, np.inf)
    offered, mean, peak = (float((values / used).max()) for values in (window.offered, window.mean, window.peak))
    text = f"jobs bring {offered:.4g} times this capacity of work while they arrive (`trace summary`)"
    if rounded is not None:
        text += (
            f", {float((rounded / used).max()):.4g} times when rounded up to their types (what `capacity` judges)"
        )
    text += (
        f"; started at once they would use {mean:.4g} times it on average within the trace (what `simulate` sees), {peak:.4g} times at"
        " most (what `plan` provides for)"
    )
    if window.outlast > 0.02 or window.work_seen < 0.9:
        begins = f"with {window.running:,} jobs running" if window.running else "empty"
        text += (
            f": the trace begins {begins}, {window.outlast:.0%} of the jobs outlast it, and {1 - window.work_seen:.0%} of their time"
            " in service lies beyond its end"
        )
    return text

"""hpc-like: a made-up log of a parallel machine, in the shape that such logs share, with nothing to download.

A job asks for n of N processors, with log2 n uniform on [0, log2 N]; two of three are rounded to a power of two, and one in fifty
asks for the whole machine. Run times are log-uniform from 30 seconds to a day. A user's estimate is never below the run time: one of the
usual limits (10 minutes, an hour, ...), mostly far above it. Arrivals are Poisson with a daily cycle and a quieter weekend, in bursts of
the same job by one user. The rate is such that N processors have the given load over the whole log.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slotwise.workloads.traces.schema import Trace, TraceMeta

Floats = NDArray[np.float64]
PROCESSORS = 128  # of the made-up machine
LOAD = 0.9  # share of the machine
SHORTEST, LONGEST = 30.0, 86_400.0
# for which users ask
LIMITS = np.array([600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 43_200.0, 86_400.0, 172_800.0])
HOUR, DAY, WEEK = 3600.0, 86_400.0, 604_800.0


def hpc_like(jobs: int = 20_000, seed: int = 1, processors: int = PROCESSORS, load: float = LOAD) -> Trace:
    """Return so many jobs of a machine with so many processors."""
    rng = np.random.default_rng(seed)
    burst = np.repeat(np.arange(jobs), np.minimum(rng.geometric(0.5, jobs), 20))[:jobs]
    size = 2.0 ** rng.uniform(0, np.log2(processors), jobs)
    size = np.where(rng.random(jobs) < 2 / 3, 2.0 ** np.round(np.log2(size)), np.ceil(size))
    size = np.minimum(np.where(rng.random(jobs) < 0.02, processors, size), processors)[burst]
    middle = np.exp(rng.uniform(np.log(SHORTEST), np.log(LONGEST), jobs))[burst]
    run = np.clip(np.round(middle * np.exp(rng.normal(0.0, 0.3, jobs))), SHORTEST, LONGEST)
    wish = middle * np.exp(rng.exponential(1.0, jobs))[burst]
    estimate = np.maximum(LIMITS[np.minimum(np.searchsorted(LIMITS, wish), len(LIMITS) - 1)], run)
    # one burst after the other by a Poisson process in a time that runs faster by day
    span = float(size @ run) / (load * processors)
    starts = np.sort(rng.random(int(burst[-1]) + 1))
    when = _clock(span)(starts)[burst]
    order = np.argsort(when, kind="stable")
    frame = pl.DataFrame(
        {
            "arrival": when[order],
            "duration": run[order],
            "demand.cpu": size[order],
            "batch": burst[order].astype(np.int64),
            "estimate": estimate[order],
        }
    )
    meta = TraceMeta(
        source="hpc-like",
        resources=("cpu",),
        units={"cpu": "processor"},
        capacity={"cpu": float(processors)},
        servers=(),
        origin=0.0,
        clock="seconds after a Monday, midnight",
    )
    return Trace(frame, meta, "hpc-like")


def _clock(span: float) -> Callable[[Floats], Floats]:
    """Return the function from shares of all arrivals to seconds."""
    hours = np.arange(0.0, span + HOUR, HOUR)
    rate = 1.0 + 0.8 * np.sin(2 * np.pi * (hours % DAY) / DAY - np.pi / 2)
    rate = np.where(hours % WEEK >= 5 * DAY, 0.5 * rate, rate) + 0.05
    passed = np.concatenate([[0.0], np.cumsum(rate)[:-1]])
    whole = float(np.interp(span, hours, passed))
    return lambda share: np.asarray(np.interp(share * whole, passed, hours))

"""Jobs of a trace that fit no server, and types that do.

A job w fits a server of capacity C when w_r <= C_r for every resource r. Of those that fit none, `drop` leaves them
out, `cap` cuts them down to the server that cuts them least, `refuse` (the default) names the largest.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slotwise.errors import InputError, SlotwiseWarning
from slotwise.workloads.traces.schema import DEMAND, Trace

WAYS = ("refuse", "drop", "cap")
TOLERANCE = 1e-9  # of a capacity: a demand such as 0.1 + 0.2 fits a server of 0.3


def fits(demands: NDArray[np.float64], capacities: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for demand n and server class k whether the demand fits: bool[n, K]."""
    return np.asarray((demands[:, None, :] <= capacities[None, :, :] * (1 + TOLERANCE)).all(axis=2))


def treat_too_large(
    trace: Trace, capacities: Sequence[Sequence[float]], way: str = "refuse", remedy: str = ""
) -> Trace:
    """Return `trace` with every job fitting some server. How many did not is reported."""
    if way not in WAYS:
        raise InputError(
            f"{way!r} is no way to treat jobs that fit no server", remedy=f"use one of {', '.join(WAYS)}"
        )
    room = np.array(capacities, dtype=np.float64)
    demands = trace.demands()
    out = np.flatnonzero(~fits(demands, room).any(axis=1))
    if not out.size:
        return trace
    # The class that has to be exceeded least, by the resource where it is exceeded most.
    with np.errstate(divide="ignore", invalid="ignore"):
        over = np.where(demands[out][:, None, :] > 0, demands[out][:, None, :] / room[None, :, :], 0.0).max(axis=2)
    nearest = over.argmin(axis=1)
    worst = int(out[over.min(axis=1).argmax()])
    asks = ", ".join(f"{demands[worst, r]:g} {name}" for r, name in enumerate(trace.resources))
    load = trace.duration[out] @ demands[out] / np.maximum(trace.duration @ demands, 1e-300)
    said = f"{out.size:,} of {len(trace):,} jobs fit no server ({load.max():.1%} of the load; the largest asks for {asks})"
    if way == "refuse":
        raise InputError(said, where=trace.name, remedy=remedy or "drop or cap them, or give larger servers")
    if way == "drop":
        if out.size == len(trace):
            raise InputError(said, where=trace.name, remedy="give larger servers")
        warnings.warn(f"{said}: left out", SlotwiseWarning, stacklevel=2)
        keep = np.ones(len(trace), dtype=np.bool_)
        keep[out] = False
        return trace.with_frame(
            trace.frame.filter(pl.Series(keep)), f"left out: {out.size:,} jobs that fit no server"
        )
    warnings.warn(f"{said}: cut down to the largest that fits", SlotwiseWarning, stacklevel=2)
    demands[out] = np.minimum(demands[out], room[nearest])
    if not demands[out].any(axis=1).all():
        raise InputError(said, where=trace.name, remedy="give servers that have what these jobs ask for")
    frame = trace.frame.with_columns(
        pl.Series(DEMAND + name, demands[:, r]) for r, name in enumerate(trace.resources)
    )
    return trace.with_frame(frame, f"cut down: {out.size:,} jobs that fit no server")


def split_to_fit(
    covers: NDArray[np.float64],
    type_of: NDArray[np.int32],
    demands: NDArray[np.float64],
    capacities: Sequence[Sequence[float]],
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Split types so that each fits some server, as each job does.

    A type covers its largest job in every resource, so on unlike servers it may fit no server although each of its jobs
    does. Such a type is parted by the smallest server class that each job fits.
    """
    room = np.array(capacities, dtype=np.float64)
    wrong = np.flatnonzero(~fits(covers, room).any(axis=1))
    if not wrong.size:
        return covers, type_of
    order = np.argsort((room / room.max(axis=0).clip(1e-300)).sum(axis=1), kind="stable")
    new, type_of = list(covers), type_of.copy()
    for j in wrong:
        jobs = np.flatnonzero(type_of == j)
        first = fits(demands[jobs], room[order]).argmax(axis=1)
        for place, k in enumerate(np.unique(first)):
            mine = jobs[first == k]
            cover = demands[mine].max(axis=0)
            if place == 0:
                new[j] = cover
            else:
                type_of[mine] = len(new)
                new.append(cover)
    return np.array(new), type_of

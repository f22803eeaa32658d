"""From actual demands to queue types: a few cover vectors, and the resource-time that rounding up wastes.

Job n asks for w_n and waits in the queue of type j(n), whose demand c_j >= w_n is what a scheduler that only knows
types reserves. With durations d_n and the capacity C_r of one server, rounding reserves in resource r

    reserved_r = sum_n d_n c_{j(n), r} / (C_r T),     asked_r = sum_n d_n w_{n, r} / (C_r T)

servers' worth over the trace's span T. The waste in r is (reserved_r - asked_r) / asked_r: how much more is held than
jobs asked for. What was asked for is the same for every method, so wastes compare as resource-time does. `total` is the
same with the sums over r in place of one r, and `bottleneck` with the maxima over r: the servers that the load fills,
rounded and not.

The paper's rounding knows one resource, the size 2^-e >= max_r w_r / C_r of a unit server. No two jobs may share a part
of it: a job of size s holds s of every resource. That is how its waste is counted here, so it compares with the methods
that round each resource by itself. The jobs keep their actual demands: types are for queues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.workloads.fitting import split_to_fit
from slotwise.workloads.traces.schema import Trace
from slotwise.workloads.typenames import names_by_size

METHODS = ("power-of-two", "grid", "exact", "waste-bounded")
MOST_EXACT = 10_000  # types
COLUMNS = ("jobs", "share", "rate", "mean_duration", "load")
LEAST_EXPONENT = 7  # the smallest size is 2^-7 of a server, as in the paper
TRIES, LEAST_TRIES = 40, 4
# By default the fewest types that waste at most this share of what jobs ask for, and at most so many types.
WASTE, MOST_CHOSEN = 0.05, 64


@dataclass(frozen=True)
class Typing:
    """J types, which job is of which, and what that wastes.

    `demand` is float64[J, R] over `resources`; `demand_text` has the same numbers as exact decimals. `waste` has an
    entry by resource of the trace, and `total` and `bottleneck`; `reserved` and `asked` are in servers' worth of
    load, by resource.
    """

    method: str
    resources: tuple[str, ...]
    names: list[str]
    demand: NDArray[np.float64]
    demand_text: list[list[str]]
    type_of: NDArray[np.int32]
    waste: dict[str, float]
    reserved: dict[str, float]
    asked: dict[str, float]
    limit: float | None = None
    """the waste that the number of types was chosen for; None if the number was given"""

    @property
    def told(self) -> str:
        """How many types there are, why so many, and what they waste."""
        many = f"{len(self.names)} type{'s' if len(self.names) != 1 else ''} ({self.method})"
        wasted = f"{self.waste['total']:.1%}"
        if self.limit is None:
            return f"{many}: rounding up to them adds {wasted} to what jobs ask for"
        if self.waste["total"] > self.limit:
            return f"{many}, as many as are chosen at most: rounding up to them adds {wasted}, more than {self.limit:.0%}"
        return f"{many}, as few as add at most {self.limit:.0%} to what jobs ask for: they add {wasted}"

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.bincount(self.type_of, minlength=len(self.names))

    def fitting(self, trace: Trace, capacities: Sequence[Sequence[float]]) -> Typing:
        """Return these types, with types that fit no server split so that each fits one, as each job does."""
        covers, type_of = split_to_fit(self.demand, self.type_of, trace.demands(), capacities)
        if covers is self.demand:
            return self
        largest = np.array(capacities, dtype=np.float64).max(axis=0)
        texts = [[_text(v) for v in row] for row in covers]
        return replace(_typing(self.method, trace, largest, covers, texts, type_of), limit=self.limit)

    def table(self, trace: Trace) -> pl.DataFrame:
        """Return for each type its jobs, share, arrivals a second, mean duration and load (jobs in service at
        once)."""
        count = self.counts
        busy = np.bincount(self.type_of, weights=trace.duration, minlength=len(self.names))
        span = trace.span or 1.0
        return pl.DataFrame(
            {
                "type": self.names,
                **{name: self.demand[:, r] for r, name in enumerate(self.resources)},
                "jobs": count,
                "share": count / max(len(trace), 1),
                "rate": count / span,
                "mean_duration": busy / np.maximum(count, 1),
                "load": busy / span,
            }
        )

    def dict(self, trace: Trace) -> dict[str, Any]:
        """Return the typing as plain JSON."""
        return {
            "method": self.method,
            "resources": list(self.resources),
            "types": [
                {"name": row["type"], "demand": text, **{k: row[k] for k in COLUMNS}}
                for row, text in zip(self.table(trace).iter_rows(named=True), self.demand_text, strict=True)
            ],
            "waste": self.waste,
            "reserved": self.reserved,
            "asked": self.asked,
            "limit": self.limit,
        }


def capacity_of(trace: Trace, capacity: Mapping[str, float] | None = None) -> NDArray[np.float64]:
    """Return C_r: as given, as the trace's metadata has it, the largest of its servers, or the largest demand."""
    given = {**trace.meta.capacity, **(capacity or {})}
    largest = trace.demands().max(axis=0, initial=0.0)
    out = np.empty(len(trace.resources))
    for r, name in enumerate(trace.resources):
        servers = max((s.capacity[r] for s in trace.meta.servers), default=0.0)
        out[r] = given.get(name) or servers or largest[r] or 1.0
        if not (np.isfinite(out[r]) and out[r] > 0):
            raise InputError(f"a capacity of {out[r]:g} for {name}", remedy="capacities are above 0")
    return out


def _text(value: float) -> str:
    """Return the shortest decimal that is this float, without an exponent."""
    text = format(Decimal(repr(float(value))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _distinct(trace: Trace) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return the different demand vectors (ascending), the job-seconds of each, and which one each job has."""
    demands = trace.demands()
    code = np.zeros(len(demands), dtype=np.int64)
    for column in demands.T:  # column by column: far faster than sorting rows
        values, place = np.unique(column, return_inverse=True)
        _, code = np.unique(code * len(values) + place.reshape(-1), return_inverse=True)
        code = code.reshape(-1)
    first = np.empty(int(code.max()) + 1, dtype=np.int64)
    first[code] = np.arange(len(code))
    seconds = np.bincount(code, weights=trace.duration, minlength=len(first)).astype(np.float64)
    return demands[first], seconds, code


def make_types(
    trace: Trace, method: str = "waste-bounded", *, capacity: Mapping[str, float] | None = None, **options: Any
) -> Typing:
    """Make types for the jobs of `trace`.

    The methods and their options: `power-of-two` (least_exponent = 7). `grid` (levels = 8 per resource, or step =
    {resource: size}). `exact` (limit = 10,000 types). `waste-bounded` (types = the most types, tries = 40 or fewer with
    many types, seed = 0). Without `types` it makes the fewest types, at most 64, that waste no more than `waste` = 0.05
    of what jobs ask for.
    """
    if not len(trace):
        raise InputError("has no jobs to make types of", where=trace.name)
    makers: dict[str, Callable[..., Typing]] = {
        "power-of-two": _power_of_two,
        "grid": _grid,
        "exact": _exact,
        "waste-bounded": _waste_bounded,
    }
    if method not in makers:
        raise InputError(f"unknown way to make types {method!r}", remedy=f"use one of {', '.join(METHODS)}")
    try:
        return makers[method](trace, capacity_of(trace, capacity), **options)
    except TypeError as problem:
        if "keyword argument" not in str(problem):
            raise
        raise InputError(f"{method}: {problem}", where="options of make_types") from problem


def _typing(
    method: str,
    trace: Trace,
    capacity: NDArray[np.float64],
    covers: NDArray[np.float64],
    texts: list[list[str]],
    type_of: NDArray[np.integer],
) -> Typing:
    """Make a typing of covers over the trace's own resources, with what they waste."""
    names = names_by_size(covers.tolist(), trace.resources, trace.meta.units)
    waste, reserved, asked = _waste(trace, capacity, covers[type_of])
    return Typing(method, trace.resources, names, covers, texts, type_of.astype(np.int32), waste, reserved, asked)


def _waste(
    trace: Trace, capacity: NDArray[np.float64], held: NDArray[np.float64]
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    seconds = trace.duration
    span = trace.span or 1.0
    reserved = (seconds @ held) / capacity / span
    asked = (seconds @ trace.demands()) / capacity / span

    def share(held: float, used: float) -> float:
        return float((held - used) / used) if used > 0 else 0.0

    waste = {name: share(reserved[r], asked[r]) for r, name in enumerate(trace.resources)}
    waste["total"] = share(reserved.sum(), asked.sum())
    waste["bottleneck"] = share(reserved.max(), asked.max())
    by_name = {name: float(reserved[r]) for r, name in enumerate(trace.resources)}
    return waste, by_name, {name: float(asked[r]) for r, name in enumerate(trace.resources)}


def power_exponents(size: NDArray[np.float64], least_exponent: int = LEAST_EXPONENT) -> NDArray[np.int32]:
    """Return the largest e <= least_exponent with 2^-e >= size, exactly (no logarithms), for sizes up to 1."""
    mantissa, exponent = np.frexp(size)  # size = mantissa 2^exponent, 1/2 <= mantissa < 1
    e = np.where(mantissa == 0.5, 1 - exponent, -exponent)
    return np.where(size > 0, np.minimum(e, least_exponent), least_exponent).astype(np.int32)


def _power_of_two(trace: Trace, capacity: NDArray[np.float64], *, least_exponent: int = LEAST_EXPONENT) -> Typing:
    if least_exponent < 0:
        raise InputError(f"a least exponent of {least_exponent}", remedy="use 0 or more")
    size = (trace.demands() / capacity).max(axis=1)
    if size.max() > 1:
        r = int(np.argmax((trace.demands() / capacity).max(axis=0)))
        raise InputError(
            f"a job asks for {size.max():g} servers' worth of {trace.resources[r]}",
            where=trace.name,
            remedy="give the capacity of the largest server",
        )
    exponent = power_exponents(size, least_exponent)
    sizes = np.array([2.0**-e for e in range(least_exponent + 1)])
    held = sizes[exponent][:, None] * capacity[None, :]
    waste, reserved, asked = _waste(trace, capacity, held)
    return Typing(
        "power-of-two",
        ("size",),
        [f"1/{2**e}" for e in range(least_exponent + 1)],
        sizes[:, None],
        [[_text(s)] for s in sizes],
        exponent,
        waste,
        reserved,
        asked,
    )


def _grid(
    trace: Trace,
    capacity: NDArray[np.float64],
    *,
    levels: int = 8,
    step: Mapping[str, float] | float | None = None,
) -> Typing:
    if levels < 1:
        raise InputError(f"a grid of {levels} levels", remedy="use 1 or more")
    if step is None:
        steps = [Decimal(repr(float(c))) / levels for c in capacity]
    elif isinstance(step, Mapping):
        if missing := [name for name in trace.resources if name not in step]:
            raise InputError(f"no grid step for {missing[0]}")
        steps = [Decimal(repr(float(step[name]))) for name in trace.resources]
    else:
        steps = [Decimal(repr(float(step)))] * len(capacity)
    if min(steps) <= 0:
        raise InputError(f"a grid step of {min(steps)}", remedy="steps are above 0")
    points, _, of = _distinct(trace)
    # The number of steps, by division and then by comparison with the multiples themselves.
    width = np.array([float(s) for s in steps])
    cells = np.ceil(points / width - 1e-9).astype(np.int64)
    cells += np.array(
        [
            [float(k * s) < p for k, s, p in zip(row, steps, point, strict=True)]
            for row, point in zip(cells.tolist(), points, strict=True)
        ]
    )
    cells[(cells == 0).all(axis=1), 0] = 1  # a type that asks for nothing would fit any number of times
    grid, which = np.unique(cells, axis=0, return_inverse=True)
    texts = [[_text(float(k * s)) for k, s in zip(row, steps, strict=True)] for row in grid.tolist()]
    covers = np.array([[float(text) for text in row] for row in texts])
    return _typing("grid", trace, capacity, covers, texts, which.reshape(-1)[of])


def _exact(trace: Trace, capacity: NDArray[np.float64], *, limit: int = MOST_EXACT) -> Typing:
    points, _, of = _distinct(trace)
    if len(points) > limit:
        raise InputError(
            f"has {len(points):,} different demands; {limit:,} types are allowed",
            where=trace.name,
            remedy="use waste-bounded or grid",
        )
    if len(points) > 1 and not points[0].any():  # asks for nothing: waits with the smallest that asks for something
        points, of = points[1:], np.maximum(of - 1, int(np.argmin((points[1:] / capacity).sum(axis=1))) * (of == 0))
    return _typing("exact", trace, capacity, points, [[_text(v) for v in row] for row in points], of)


def _waste_bounded(
    trace: Trace,
    capacity: NDArray[np.float64],
    *,
    types: int | None = None,
    waste: float = WASTE,
    tries: int | None = None,
    seed: int = 0,
) -> Typing:
    if types is not None and types < 1:
        raise InputError(f"{types} types", remedy="use 1 or more")
    if not (np.isfinite(waste) and waste >= 0):
        raise InputError(f"a waste of {waste:g}", remedy="use a share of 0 or more, such as 0.1")
    points, seconds, of = _distinct(trace)
    scaled = points / capacity
    asks = scaled.any(axis=1)
    from slotwise.workloads.covers import (  # with the compiler: not for commands that make no types
        assign,
        choose_covers,
        fewest_covers,
    )

    if not asks.any():
        covers = scaled[:1]
    elif types is None:
        covers = fewest_covers(scaled[asks], seconds[asks], waste, MOST_CHOSEN)
    else:
        few = (
            min(TRIES, max(LEAST_TRIES, TRIES * 8 // types)) if tries is None else tries
        )  # each takes longer with more types
        covers = choose_covers(scaled[asks], seconds[asks], types, tries=few, seed=seed)
    # Back to the trace's own numbers: a cover's coordinates are coordinates of points, so look them up.
    actual = np.empty_like(covers)
    for r in range(covers.shape[1]):
        order = np.argsort(scaled[:, r], kind="stable")
        actual[:, r] = points[order[np.searchsorted(scaled[order, r], covers[:, r])], r]
    which = assign(scaled, covers)
    texts = [[_text(v) for v in row] for row in actual]
    found = _typing("waste-bounded", trace, capacity, actual, texts, which[of])
    return replace(found, limit=waste if types is None else None)

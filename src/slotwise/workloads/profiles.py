"""Traces that look like a real one: a profile of few numbers, fitted to a trace, and jobs drawn from it.

Jobs come in batches. Batches arrive as a Poisson process whose rate wanders: log rate is an Ornstein-Uhlenbeck
process with standard deviation s and time constant tau. A batch has a size of a heavy-tailed law, all its jobs one
shape (a demand vector), and most of them come at once; a share of them comes later, by exponential delays.
Durations follow the shape's own law, alike within a batch. Sizes and durations are given by their quantile
functions, linear in the logarithm between the fitted points.

Where a few batches hold half of all jobs, independent draws would miss the mix of types by far. So draws are
stratified. Batches are laid end to end in random order on a line as long as the number of jobs, and the line is cut by
the shapes' shares. Within a shape the line is laid again and read as the duration's quantile. The mix and the durations
of the jobs then come out as fitted at every seed, and which batch got what is still random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.workloads.traces.schema import DEMAND, Trace, TraceMeta
from slotwise.workloads.traces.summary import burstiness, counts_in_windows, offered_load

Floats = NDArray[np.float64]

LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 1.0)
BATCH_LEVELS = (0.0, 0.5, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99, 0.997, 0.999, 1.0)
WINDOW = 1200.0  # seconds: 20 minutes, as the paper has it
LATE = 1.0  # Seconds after its batch's first job from which a job counts as late.


@dataclass(frozen=True)
class Shape:
    """A demand, the share of jobs that have it, and the quantiles of their durations at `LEVELS`."""

    demand: tuple[float, ...]
    share: float
    duration: tuple[float, ...]


@dataclass(frozen=True)
class Profile:
    """What is kept of a trace. `tick` is the step of its clock, 0 for a fine one."""

    name: str
    resources: tuple[str, ...]
    units: Mapping[str, str]
    capacity: Mapping[str, float]
    rate: float
    rate_deviation: float
    rate_memory: float
    batch: tuple[float, ...]
    late_share: float
    late_mean: float
    tick: float
    shapes: tuple[Shape, ...]


def _significant(values: Any, digits: int = 4) -> tuple[float, ...]:
    return tuple(float(f"{v:.{digits}g}") for v in values)


def _sizes(demands: Floats, room: Floats) -> NDArray[np.int64]:
    """Return the paper's size class: the exponent of the largest resource, rounded up to a power of 1/2 of `room`."""
    _, exponent = np.frexp((demands / room).max(axis=1) * (1 - 1e-12))
    size: NDArray[np.int64] = np.clip(-exponent, 0, 15).astype(np.int64)
    return size


def _room(trace: Trace) -> Floats:
    largest = trace.demands().max(axis=0)
    return np.array([trace.meta.capacity.get(name) or largest[r] or 1.0 for r, name in enumerate(trace.resources)])


def _group_shapes(trace: Trace, most: int) -> NDArray[np.int64]:
    """Return for each job one of about `most` shapes: its own if it is among the most used, else the nearest of
    these in its size class (of which each keeps at least one)."""
    frame = trace.frame.select(DEMAND + name for name in trace.resources).with_columns(s=trace.frame["duration"])
    columns = frame.columns[:-1]
    weight = (pl.len() / len(trace)).sqrt() * (pl.col("s").sum() / frame["s"].sum()).sqrt()
    shapes = frame.group_by(columns).agg(weight.alias("w")).sort("w", *columns, descending=True)
    points = shapes.select(columns).to_numpy()
    size = _sizes(points, _room(trace))
    first_of_size = np.unique(size, return_index=True)[1]
    kept = np.union1d(np.arange(min(most, len(points))), first_of_size)
    # Ratios matter more than differences, down to a thousandth of the largest demand.
    place = np.log(points / np.maximum(points.max(axis=0), 1e-300) + 1e-3)
    away = np.abs(place[:, None, :] - place[kept][None]).sum(axis=2)
    away[size[:, None] != size[kept][None]] = np.inf
    index = shapes.select(columns).with_columns(shape=pl.Series(away.argmin(axis=1)))
    found = frame.join(index, on=columns, how="left", maintain_order="left")
    return found["shape"].to_numpy().astype(np.int64)


def fit_profile(trace: Trace, name: str, *, shapes: int = 32) -> Profile:
    """Return the profile of a trace; without a `batch` column every job is a batch of its own."""
    if len(trace) < 1000 or trace.span < 8 * WINDOW:
        raise InputError("is too short to fit a profile to", where=trace.name, remedy="1,000 jobs over 3 hours do")
    of = _group_shapes(trace, shapes)
    demands = trace.demands()
    kinds = []
    for shape in range(int(of.max()) + 1):
        rows = np.flatnonzero(of == shape)
        if not rows.size:
            continue
        vectors, counts = np.unique(demands[rows], axis=0, return_counts=True)
        common = vectors[counts.argmax()]
        durations = np.quantile(trace.duration[rows], LEVELS)
        kinds.append(Shape(_significant(common, 6), rows.size / len(trace), _significant(durations)))
    frame = trace.frame
    batch = frame["batch"] if "batch" in frame.columns else pl.Series("batch", np.arange(len(trace)))
    groups = pl.DataFrame({"batch": batch, "arrival": frame["arrival"]}).with_columns(
        first=pl.col("arrival").min().over("batch")
    )
    delay = (groups["arrival"] - groups["first"]).to_numpy()
    late = delay > LATE
    starts = groups.group_by("batch").agg(pl.col("first").first(), pl.len().alias("size"))
    counts = counts_in_windows(np.sort(starts["first"].to_numpy()), WINDOW).astype(np.float64)
    mean, extra = counts.mean(), max(counts.var() - counts.mean(), 1e-9)
    correlation = np.mean((counts[1:] - mean) * (counts[:-1] - mean)) / extra
    steps = np.diff(np.unique(trace.arrival))
    tick = float(steps.min()) if steps.size and steps.min() >= 1 else 0.0
    return Profile(
        name=name,
        resources=trace.resources,
        units=dict(trace.meta.units),
        capacity=dict(trace.meta.capacity),
        rate=len(trace) / trace.span,
        rate_deviation=float(np.sqrt(np.log1p(extra / mean**2))),
        rate_memory=float(-WINDOW / np.log(np.clip(correlation, 0.01, 0.99))),
        batch=_significant(np.quantile(starts["size"].to_numpy(), BATCH_LEVELS)),
        late_share=float(late.mean()),
        late_mean=float(delay[late].mean()) if late.any() else 0.0,
        tick=tick,
        shapes=tuple(kinds),
    )


def _quantile(u: Floats, levels: tuple[float, ...], values: tuple[float, ...]) -> Floats:
    out: Floats = np.exp(np.interp(u, levels, np.log(values)))
    return out


def _batch_sizes(profile: Profile, jobs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return sizes that sum to `jobs`: a stratified sample of the size law, none above a tenth of the trace."""
    cap = max(1, jobs // 10)
    grid = (np.arange(100_000) + 0.5) / 100_000
    law = np.minimum(np.rint(_quantile(grid, BATCH_LEVELS, profile.batch)), cap)
    n = max(1, int(np.ceil(jobs / law.mean())))
    strata = (np.arange(n) + rng.random(n)) / n
    sizes = np.minimum(np.rint(_quantile(strata, BATCH_LEVELS, profile.batch)), cap).astype(np.int64)
    rng.shuffle(sizes)
    excess = int(sizes.sum()) - jobs
    if excess < 0:
        return np.concatenate([sizes, np.ones(-excess, dtype=np.int64)])
    ends = np.cumsum(sizes)
    last = int(np.searchsorted(ends, jobs))
    sizes = sizes[: last + 1]
    sizes[last] -= int(ends[last]) - jobs
    return sizes[sizes > 0]


def _starts(profile: Profile, n: int, span: float, rng: np.random.Generator) -> Floats:
    """Draw n moments in [0, span], in order, of a Poisson process with a wandering rate (given that there are n)."""
    step = max(min(60.0, span / 64), span / 1_000_000)
    cells = int(np.ceil(span / step))
    stay = np.exp(-step / profile.rate_memory)
    shocks = rng.standard_normal(cells) * profile.rate_deviation
    shocks[1:] *= np.sqrt(1 - stay**2)
    log_rate = np.empty(cells)
    level = 0.0
    for i, shock in enumerate(shocks.tolist()):
        level = shock if i == 0 else stay * level + shock
        log_rate[i] = level
    mass = np.concatenate([[0.0], np.cumsum(np.exp(log_rate))])
    moments: Floats = np.interp(np.sort(rng.random(n)) * mass[-1], mass, np.arange(cells + 1) * step)
    return np.minimum(moments, span)


def _lay(sizes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Return the batches end to end in random order: where each begins."""
    order = rng.permutation(len(sizes))
    begin = np.empty(len(sizes))
    begin[order] = np.cumsum(sizes[order]) - sizes[order]
    return begin


def generate(profile: Profile, jobs: int, seed: int) -> Trace:
    """Return a trace of `jobs` jobs with the shape of the profile. Equal seeds give equal traces."""
    if jobs < 1:
        raise InputError(f"{jobs} jobs", remedy="ask for 1 or more")
    rng = np.random.default_rng(seed)
    span = jobs / profile.rate
    sizes = _batch_sizes(profile, jobs, rng)
    starts = _starts(profile, len(sizes), span, rng)
    batch = np.repeat(np.arange(len(sizes)), sizes)
    arrival = starts[batch]
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    later = rng.random(jobs) < profile.late_share * jobs / max(jobs - len(sizes), 1)
    later[first] = False
    arrival[later] += rng.standard_exponential(int(later.sum())) * profile.late_mean
    arrival %= span  # a late job past the end comes round at the beginning, so that the rate is kept
    if profile.tick:
        arrival = np.floor(arrival / profile.tick) * profile.tick

    # The line of all jobs, cut by the shares; a batch that lies on a cut has two shapes.
    shares = np.array([shape.share for shape in profile.shapes])
    cuts = np.cumsum(shares / shares.sum())[:-1]
    line = _lay(sizes, rng)[batch] + (np.arange(jobs) - first[batch])
    kind = np.searchsorted(cuts, (line + 0.5) / jobs, side="right")
    duration = np.empty(jobs)
    for k, shape in enumerate(profile.shapes):
        mine = np.flatnonzero(kind == k)
        _, pieces = np.unique(batch[mine], return_counts=True)
        place = np.repeat(_lay(pieces, rng), pieces) + rng.random(mine.size) * np.repeat(pieces, pieces)
        duration[mine] = _quantile(place / max(mine.size, 1), LEVELS, shape.duration)
    demand = np.array([shape.demand for shape in profile.shapes])[kind]
    order = np.argsort(arrival, kind="stable")
    arrival = arrival[order]
    frame = pl.DataFrame(
        {
            "arrival": arrival - arrival[0],
            "duration": duration[order],
            **{DEMAND + name: demand[order, r] for r, name in enumerate(profile.resources)},
            "batch": batch[order].astype(np.int64),
        }
    )
    meta = TraceMeta(
        source=profile.name,
        resources=profile.resources,
        units=dict(profile.units),
        capacity=dict(profile.capacity),
        notes=(f"made by the generator {profile.name} with seed {seed}; no real jobs",),
    )
    return Trace(frame, meta, profile.name)


def closeness(real: Trace, made: Trace) -> dict[str, Any]:
    """Return how close `made` comes to `real`: ratios (1 is equal) and the distance of the type mixes (0 is equal).

    The mix is over the paper's sizes: the largest resource, rounded up to a power of 1/2 of the largest capacity or
    demand. Its distance is the total variation, the largest difference in the share of any set of types.
    """
    if made.resources != real.resources:
        raise InputError(
            f"has the resources {', '.join(made.resources)}",
            where=made.name,
            remedy=f"{real.name} has {', '.join(real.resources)}",
        )
    room = _room(real)

    def mix(trace: Trace) -> Floats:
        return np.bincount(_sizes(trace.demands(), room), minlength=16) / len(trace)

    levels = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    ratio = np.quantile(made.duration, levels) / np.quantile(real.duration, levels)
    idc_real, idc_made = burstiness(real.arrival)["idc"], burstiness(made.arrival)["idc"]
    load_real, load_made = offered_load(real), offered_load(made)
    return {
        "mix_distance": float(np.abs(mix(real) - mix(made)).sum() / 2),
        "duration_ratio": {f"p{100 * q:g}": float(v) for q, v in zip(levels, ratio, strict=True)},
        "mean_duration_ratio": float(made.duration.mean() / real.duration.mean()),
        "rate_ratio": float(len(made) / made.span / (len(real) / real.span)),
        "load_ratio": {name: load_made[name] / load_real[name] for name in real.resources},
        "idc": {w: [idc_real[w], idc_made[w]] for w in idc_real},
    }

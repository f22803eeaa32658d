"""Traces in the suite: both generators, and the real ones that lie beside the project, on servers that they load to .92 or more.

The load of a trace is what its jobs would hold on endless servers, on the average over the measured part (from a quarter of the
jobs on), as a share of the scarcest resource. Where the servers are alike there are as many as give that load; where
they are given, the arrivals are moved closer together or further apart until they do, the durations staying as they are.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from slotwise.model import Scenario, parse_scenario
from slotwise.workloads.tracejobs import open_trace
from slotwise.workloads.traces import Trace, import_to_file, import_trace, write_trace
from slotwise.workloads.traces.tools import scale, thin, window

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"
GENERATED_JOBS = 100_000
WARMUP = 0.25
UNIT = {"cpu": 1.0, "memory": 1.0}

Servers = list[tuple[int, dict[str, float]]]


@dataclass(frozen=True)
class Real:
    """A real trace, the part of it that is run, and on which servers."""

    name: str
    format: str
    path: str
    servers: Servers
    """how many of which; a count of 0: as many as give the load"""
    options: dict[str, Any] = field(default_factory=dict)
    typing: str = "waste-bounded"
    since: float = 0.0
    """jobs that arrive earlier, in seconds, are left out"""
    batches: float = 1.0
    """this share of the batches is run"""


REAL = (
    Real("azure2017", "azure2017", "azure2017/dev.parquet", [(0, {"cpu": 32, "memory": 128})], batches=0.25),
    Real("alibaba2017", "alibaba2017", "alibaba2017/batch_task.csv.gz", [(12, {"cpu": 64, "memory": 1})]),
    # a fiftieth of its nodes, the kinds with 20 or more; hardly anything arrives in its first 2,600 hours
    Real(
        "alibaba-gpu2023",
        "alibaba-gpu2023",
        "alibaba_gpu2023",
        [
            (11, {"cpu": 96, "memory": 384, "gpu": 8}),
            (8, {"cpu": 104, "memory": 512, "gpu": 2}),
            (3, {"cpu": 32, "memory": 256, "gpu": 0}),
            (2, {"cpu": 16, "memory": 120, "gpu": 2}),
            (1, {"cpu": 96, "memory": 512, "gpu": 0}),
            (1, {"cpu": 128, "memory": 768, "gpu": 8}),
        ],
        since=2600 * 3600.0,
    ),
    # its own servers
    Real(
        "ceritsc2013",
        "swf",
        "ceritsc2013/wagap-2013.swf.gz",
        [(20, {"cpu": 80, "memory": 504.9}), (48, {"cpu": 12, "memory": 89.6})],
        options={"memory": "bytes"},
    ),
    Real(
        "nasa-ipsc1993",
        "swf",
        "nasa_ipsc1993/NASA-iPSC-1993-3.1-cln.swf.gz",
        [(1, {"cpu": 128})],
        typing="exact",
    ),
)


LOAD, HEAVY = 0.92, 0.97


def scenarios() -> Iterator[tuple[str, Callable[[], Scenario]]]:
    """All of them; a line on standard error for each real one that is not there."""
    yield from generated(1, (LOAD, HEAVY))
    yield from real_ones((LOAD, HEAVY), (LOAD,))


def held_out() -> Iterator[tuple[str, Callable[[], Scenario]]]:
    """The generators with another seed, the real traces at other loads."""
    for name, made in generated(2, (LOAD,)):
        yield f"{name}-seed-2", made
    yield from real_ones((0.85,), (0.85, 0.97))


def generated(seed: int, loads: Sequence[float]) -> Iterator[tuple[str, Callable[[], Scenario]]]:
    """What the generators make of a seed."""
    for name, capacity in (("google-like", UNIT), ("azure-like", {"cpu": 32.0, "memory": 128.0})):
        for share in loads:
            yield f"{name}-{share}", partial(_generated, name, capacity, share, seed)


def _generated(name: str, capacity: dict[str, float], share: float, seed: int) -> Scenario:
    trace = open_trace(name, GENERATED_JOBS, seed)
    return scenario(name, [(_enough(trace, capacity, share), capacity)], jobs=GENERATED_JOBS, seed=seed)


def real_ones(
    google_loads: Sequence[float], loads: Sequence[float]
) -> Iterator[tuple[str, Callable[[], Scenario]]]:
    """The traces beside the project."""
    if not (SHARED / "google2011" / "task_events").is_dir():
        print("google2011 is not beside the project: skipped", file=sys.stderr)
    else:
        for share in google_loads:
            yield f"google2011-{share}", partial(google_at, share)
    for real in REAL:
        if not (SHARED / real.path).exists():
            print(f"{real.name} is not beside the project: skipped", file=sys.stderr)
            continue
        for share in loads:
            yield f"{real.name}-{share}", partial(prepared, real, share)


def google_at(share: float) -> Scenario:
    """The Google window on as many unit servers as give this load."""
    google = google_window()
    assert google is not None
    trace = open_trace(str(google), None, 1)
    return scenario(str(google), [(_enough(trace, UNIT, share), UNIT)])


def google_window() -> Path | None:
    """The Google window beside the project as one file, imported when first asked for; None where it is not there."""
    events = SHARED / "google2011" / "task_events"
    if not events.is_dir():
        return None
    out = Path(tempfile.gettempdir()) / "slotwise-google2011.parquet"
    if not out.exists():
        import_to_file("google2011", sorted(events.iterdir()), out)
    return out


def prepared(real: Real, load: float) -> Scenario:
    """A real trace at that load; jobs that fit no server are left out."""
    trace, _ = import_trace(real.format, [SHARED / real.path], skip_bad=True, options=real.options)
    names = list(real.servers[0][1])
    asked = trace.demands()[:, [trace.resources.index(name) for name in names]]
    fits = np.any([(asked <= [c[name] for name in names]).all(axis=1) for _, c in real.servers], axis=0)
    trace = trace.with_frame(trace.frame.filter(pl.Series(fits)), "jobs that fit some server")
    if real.since:
        trace = window(trace, start=real.since)
    if real.batches < 1:
        trace = thin(trace, real.batches, by_batch=True)
    servers = real.servers
    if servers[0][0] == 0:
        servers = [(_enough(trace, servers[0][1], load), servers[0][1])]
    else:
        trace = at_load(trace, servers, load)
    out = Path(tempfile.gettempdir()) / f"slotwise-{real.name}-{load}.parquet"
    write_trace(trace, out)
    open_trace.cache_clear()  # the file may have been another one before
    return scenario(str(out), servers, typing=real.typing)


def scenario(
    trace: str,
    servers: Servers,
    *,
    typing: str = "power-of-two",
    making: dict[str, Any] | None = None,
    jobs: int | None = None,
    seed: int = 1,
) -> Scenario:
    """A trace on such servers; `making` says all about its types."""
    return parse_scenario(
        {
            "name": Path(trace).stem,
            "cluster": {
                "resources": list(servers[0][1]),
                "servers": [
                    {"name": f"server-{n}", "count": count, "capacity": list(capacity.values())}
                    for n, (count, capacity) in enumerate(servers)
                ],
            },
            "workload": {"trace": trace, "typing": making or {"method": typing}},
            "run": ({"jobs": jobs} if jobs else {}) | {"warmup": WARMUP, "seed": seed},
        }
    )


def held(trace: Trace) -> dict[str, float]:
    """How much of each resource the jobs would hold on endless servers, over the measured part."""
    arrival = trace.arrival
    begin, end = arrival[int(WARMUP * len(arrival))], arrival[-1]
    inside = np.minimum(arrival + trace.duration, end) - np.maximum(arrival, begin)
    sums = (trace.demands() * np.maximum(inside, 0.0)[:, None]).sum(axis=0) / (end - begin)
    return dict(zip(trace.resources, map(float, sums), strict=True))


def _enough(trace: Trace, capacity: dict[str, float], load: float) -> int:
    """How many such servers give about that load."""
    sums = held(trace)
    return int(np.ceil(max(sums[name] / c for name, c in capacity.items()) / load))


def at_load(trace: Trace, servers: Servers, load: float) -> Trace:
    """The arrivals closer together or further apart, so that these servers have that load."""
    total = {name: sum(count * c[name] for count, c in servers) for name in servers[0][1]}
    factor = 1.0
    for _ in range(20):  # long jobs reach beyond the end, so it takes a few steps
        sums = held(scale(trace, factor))
        factor *= max(sums[name] / total[name] for name in total) / load
    return scale(trace, factor)

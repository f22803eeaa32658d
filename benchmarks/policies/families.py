"""Families of scenarios in which policies are known to fail, each for a reason of its own; and the part that each seed plays.

| family | what is hard about it |
|---|---|
| pools | some jobs need a whole server (1 to 50 of them, 1 to 3 resources): somebody must drain for them |
| tails | service times with very heavy tails: Pareto 1.3, log-normal with sigma 2, squared coefficient of variation 50 |
| means | mean service times differ up to 1000 to 1 by type |
| labels | types that may run on some classes only, as in `suite`, with other seeds |
| hpc | made-up logs of parallel machines (`slotwise.workloads.hpc`): sizes up to the machine, run times over four decades |
| logs | real logs beside the project, on their own machines |
| clouds | real traces of clouds, and a cluster with two kinds of machines, with 8, 64 and exact types |
| bursts | arrivals in batches and in long bursts |
| mixed | one to three resources, 1 to 4 or 20 to 100 servers, mean service times 10^U(-2, 1.5) by type, intensity .85 to .96 |
| real | real logs beside the project at loads of .80, .86, .90 and .95, with the types that a user gets by default |

Four parts. `tune` and `wide`: what changes to a policy may be tried on. `wide` has many seeds of the made-up families
and nothing else: a fault that one scenario in thirty has does not show in twelve. `decide`: other seeds; a change stays
if it holds there. `last`: again other seeds; looked at once, before a release.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.policies import reality, traces
from benchmarks.policies.suite import Entry, labelled_scenario, random_scenario
from slotwise.model import Scenario, TypeMaking, parse_scenario
from slotwise.workloads.hpc import hpc_like
from slotwise.workloads.traces import import_trace, write_trace
from slotwise.workloads.traces.tools import scale

PARTS = ("tune", "wide", "decide", "last")
SEEDS = {"tune": range(100, 112), "decide": range(200, 212), "last": range(600, 612)}
# how many seeds of each family, from 400 on
REAL_LOADS = {"tune": (0.86,), "decide": (0.80, 0.95), "last": (0.80, 0.86, 0.90, 0.95)}
WIDE = {"mixed": 40, "pools": 80, "labels": 64, "means": 64, "tails": 24, "bursts": 16}
# how the jobs of a log are sorted
TYPES: dict[str, dict[str, Any]] = {
    "8": {"method": "waste-bounded", "types": 8},
    "64": {"method": "waste-bounded", "types": 64},
    "exact": {"method": "exact"},
}


def family_entries(part: str) -> list[Entry]:
    """All scenarios of a part."""
    if part == "wide":
        return [entry for family, count in WIDE.items() for entry in _random(family, range(400, 400 + count))]
    seeds = SEEDS[part]
    found = [*_pools(part, seeds), *_hpc(seeds), *_logs(part), *_clouds(part)]
    for family in {
        "tune": ("tails", "mixed"),
        "decide": ("tails", "means", "labels", "mixed"),
        "last": ("means", "bursts", "mixed"),
    }[part]:
        found += _random(family, seeds)
    return [*found, *_real(part)]


def _random(family: str, seeds: range) -> Iterator[Entry]:
    makers: dict[str, Callable[[int], Scenario]] = {
        "pools": pool,
        "tails": heavy,
        "means": thousand_to_one,
        "labels": labelled_scenario,
        "bursts": in_bursts,
        "mixed": mixed_services,
    }
    for seed in seeds:
        yield Entry(f"{family}-{seed}", partial(makers[family], seed), family)


# -- whole servers ------------------------------------------------------------------------------------------------


def _pools(part: str, seeds: range) -> Iterator[Entry]:
    if part == "tune":
        yield Entry("pool-32", partial(one_or_all, 32, 25.92, 0.09), "pools")
        yield Entry("pool-10", partial(one_or_all, 10, 7.36, 0.184), "pools")
    yield from _random("pools", seeds)


def one_or_all(capacity: int, small: float, large: float) -> Scenario:
    """One server; jobs of size 1 and jobs that take all of it, at these rates."""
    return _synthetic(
        f"pool-{capacity}",
        [[capacity]],
        [1],
        [{"demand": [1], "rate": small}, {"demand": [capacity], "rate": large}],
    )


def pool(seed: int) -> Scenario:
    """Some servers, jobs that take a whole one, and one to three smaller types."""
    rng = np.random.default_rng([seed, 7])
    resources, servers = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 5, 10, 20, 50]))
    capacity = [int(x) for x in rng.integers(8, 65, resources)]
    small = int(rng.integers(1, 4))
    demands = [capacity]
    for _ in range(small):
        share = rng.choice([0.03, 0.1, 0.25, 0.5]) * rng.uniform(0.5, 1.0, resources)
        demands.append([max(1, int(x)) for x in np.round(share * capacity)])
    whole = rng.uniform(0.05, 0.5)
    parts = [whole, *((1 - whole) * rng.dirichlet(np.ones(small)))]
    means = np.ones(1 + small) if rng.random() < 0.5 else rng.uniform(0.3, 3.0, 1 + small)
    types = []
    for demand, part, mean in zip(demands, parts, means, strict=True):
        work = max(d / c for d, c in zip(demand, capacity, strict=True))
        types.append({"demand": demand, "rate": float(part / (work * mean)), "mean_service": float(mean)})
    intensity = float(np.round(rng.uniform(0.8, 0.93), 3))
    return _synthetic(f"pools-{seed}", [capacity], [servers], types, {"intensity": intensity})


def _synthetic(
    name: str,
    capacities: list[list[int]],
    counts: list[int],
    types: list[dict[str, Any]],
    workload: dict[str, Any] | None = None,
) -> Scenario:
    return parse_scenario(
        {
            "name": name,
            "cluster": {
                "resources": [f"r{r}" for r in range(len(capacities[0]))],
                "servers": [
                    {"name": f"c{c}", "count": count, "capacity": capacity}
                    for c, (count, capacity) in enumerate(zip(counts, capacities, strict=True))
                ],
            },
            "types": [{"name": f"t{j}", "mean_service": 1.0} | one for j, one in enumerate(types)],
            "workload": workload or {},
        }
    )


# -- laws ---------------------------------------------------------------------------------------------------------


def _changed(seed: int, name: str, workload: dict[str, Any], means: Any = None) -> Scenario:
    document = random_scenario(seed).model_dump(mode="json", exclude_none=True)
    document["workload"] |= workload
    for job_type, mean in zip(document["types"], means if means is not None else [], strict=means is not None):
        job_type["rate"] *= job_type["mean_service"] / float(mean)
        job_type["mean_service"] = float(mean)
    return parse_scenario({**document, "name": f"{name}-{seed}"})


def heavy(seed: int) -> Scenario:
    """A random scenario with a very heavy tail."""
    laws: list[dict[str, Any]] = [
        {"law": "pareto", "shape": 1.3},
        {"law": "lognormal", "sigma": 2.0},
        {"law": "hyperexponential", "scv": 50.0},
    ]
    return _changed(seed, "tails", {"service": laws[seed % 3], "intensity": 0.85})


def thousand_to_one(seed: int) -> Scenario:
    """A random scenario in which mean service times are spread over three decades, each type with the same load as before."""
    types = len(random_scenario(seed).types)
    rng = np.random.default_rng([seed, 11])
    means = 10.0 ** np.linspace(0.0, 3.0, types)[rng.permutation(types)]
    return _changed(seed, "means", {"intensity": 0.88}, means / means.mean())


def in_bursts(seed: int) -> Scenario:
    """A random scenario with long bursts of twice the mean rate and more."""
    arrivals = {"law": "mmpp", "rates": [3.0, 0.5], "sojourns": [15.0, 60.0]}
    return _changed(seed, "bursts", {"arrivals": arrivals, "intensity": 0.7})


def mixed_services(seed: int) -> Scenario:
    """A few or many servers, demands and shares at random, mean service times that differ up to 3,000 to 1."""
    rng = np.random.default_rng([seed, 77])
    resources = int(rng.choice([1, 1, 2, 3]))
    servers = int(rng.integers(1, 5)) if rng.random() < 0.7 else int(rng.integers(20, 101))
    capacity = [int(x) for x in rng.integers(5, 17, resources)]
    types = int(rng.integers(2, 4))
    demands = [[int(rng.integers(1, c + 1)) for c in capacity] for _ in range(types)]
    means, shares = 10.0 ** rng.uniform(-2.0, 1.5, types), rng.dirichlet(np.ones(types))
    made = [
        {"demand": demand, "rate": float(share / mean), "mean_service": float(mean)}
        for demand, share, mean in zip(demands, shares, means, strict=True)
    ]
    intensity = float(np.round(rng.uniform(0.85, 0.96), 3))
    return _synthetic(f"mixed-{seed}", [capacity], [servers], made, {"intensity": intensity})


# -- logs of parallel machines ------------------------------------------------------------------------------------

HPC_JOBS = 12_000


def _hpc(seeds: range) -> Iterator[Entry]:
    for n, seed in enumerate(list(seeds)[:4]):
        processors, load = (64, 128, 256, 512)[n], (0.92, 0.85, 0.9, 0.95)[n]
        for types in TYPES:
            name = f"hpc-{seed}-x{processors}-{load}-{types}"
            yield Entry(name, partial(hpc, seed, processors, load, types), "hpc", runs=2)


def hpc(seed: int, processors: int, load: float, types: str) -> Scenario:
    """A made-up log on its machine."""
    out = _place(f"hpc-{seed}")
    write_trace(hpc_like(HPC_JOBS, seed, processors, load), out)
    return traces.scenario(str(out), [(1, {"cpu": float(processors)})], making=TYPES[types])


LOGS = {
    "kth": ("kth_sp2/KTH-SP2.swf.gz", 100.0),
    "nasa": ("nasa_ipsc1993/NASA-iPSC-1993-3.1-cln.swf.gz", 128.0),
}


def _logs(part: str) -> Iterator[Entry]:
    load = {"tune": 0.85, "decide": 0.92, "last": 0.9}[part]
    for name, (path, _) in LOGS.items():
        if not (traces.SHARED / path).exists():
            print(f"{name} is not beside the project: skipped", file=sys.stderr)
            continue
        for types in TYPES:
            yield Entry(f"log-{name}-{load}-{types}", partial(log, name, load, types), "logs", runs=2)


def log(name: str, load: float, types: str) -> Scenario:
    """A real log on its machine, its arrivals closer together or further apart for this load over the whole log."""
    path, processors = LOGS[name]
    trace, _ = import_trace("swf", [traces.SHARED / path], skip_bad=True)
    now = float(trace.duration @ trace.demands()[:, 0]) / (processors * trace.span)
    out = _place(f"log-{name}-{load}")
    write_trace(scale(trace, now / load), out)
    return traces.scenario(str(out), [(1, {"cpu": processors})], making=TYPES[types])


def _real(part: str) -> Iterator[Entry]:
    for name in reality.MACHINES:
        if not reality.is_there(name):
            print(f"{name} is not beside the project: skipped", file=sys.stderr)
            continue
        for load in REAL_LOADS[part]:
            yield from reality.entries(name, load, reality.QUICK_NEAR)


# -- traces of clouds ---------------------------------------------------------------------------------------------

# traces of `traces.REAL`, and the Google window, at these loads
CLOUDS = {
    "tune": (("ceritsc2013", 0.85), ("alibaba2017", 0.85)),
    "decide": (("ceritsc2013", 0.92), ("azure2017", 0.92), ("alibaba-gpu2023", 0.92), ("google2011", 0.92)),
    "last": (("ceritsc2013", 0.9), ("alibaba2017", 0.9), ("alibaba-gpu2023", 0.9), ("google2011", 0.9)),
}
# these have about a thousand different demands, and are not run with exact types
MANY_DEMANDS = ("alibaba2017", "google2011")


def _clouds(part: str) -> Iterator[Entry]:
    real = {one.name: one for one in traces.REAL}
    for name, load in CLOUDS[part]:
        path = traces.SHARED / (real[name].path if name in real else "google2011/task_events")
        if not path.exists():
            print(f"{name} is not beside the project: skipped", file=sys.stderr)
            continue
        for types in TYPES:
            if types != "exact" or name not in MANY_DEMANDS:
                yield Entry(f"cloud-{name}-{load}-{types}", partial(cloud, name, load, types), "clouds", runs=2)


def cloud(name: str, load: float, types: str) -> Scenario:
    """A trace of a cloud at this load, with so many types."""
    made = next((one for one in traces.REAL if one.name == name), None)
    scenario = traces.prepared(made, load) if made is not None else traces.google_at(load)
    typing = TypeMaking(**TYPES[types])
    workload = scenario.workload.model_copy(update={"typing": typing})
    return scenario.model_copy(update={"workload": workload, "name": f"cloud-{name}-{load}-{types}"})


def _place(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"slotwise-{name}.parquet"

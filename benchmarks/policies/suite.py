"""The scenarios of the policy suite: the paper's, known traps, and random ones in 1 to 3 resources inside the region.

A random scenario is its seed: the number of types, servers and resources, demands, rates and the intensity (.85 to .97) are drawn
from it. The suite holds every seed of a range, chosen before any policy was run on it, and a list of seeds that a search
(`python -m benchmarks.policies --search`) found to make a common policy diverge.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slotwise.model import Scenario, load_scenario, parse_scenario
from slotwise.workloads.tracejobs import open_trace
from slotwise.workloads.traces import import_to_file

RANDOM = range(1000, 1030)
FOUND = (20009, 20021, 20023, 20026, 20033, 20036, 20043, 20052)
"""seeds of the search: best-fit diverges on 20033 and 20043, first-fit on 20026, m14 or algorithm1 on the others"""
TRACE_JOBS = 100_000
HELD_OUT = range(5000, 5030)
"""never looked at while the policies were made"""


@dataclass(frozen=True)
class Entry:
    """A scenario under a name."""

    name: str
    scenario: Scenario

    def prepared(self, events: int, runs: int) -> Scenario:
        """With so many events and runs; a trace is run once, as a whole."""
        limits = {"replications": 1} if self.scenario.workload.trace else {"events": events, "replications": runs}
        return self.scenario.model_copy(update={"run": self.scenario.run.model_copy(update=limits)})


def paper() -> Iterator[Entry]:
    """The paper's own, at several sizes and intensities."""
    yield Entry("example1", load_scenario("example1"))
    yield Entry("example2", load_scenario("example2"))
    for servers, intensity in ((20, 0.85), (20, 0.89), (20, 0.95), (100, 0.89), (200, 0.95)):
        settings = [f"cluster.servers.standard.count={servers}", f"workload.intensity={intensity}"]
        yield Entry(f"table1-{servers}-{intensity}", load_scenario("table1", settings))


def traps() -> Iterator[Entry]:
    """Where sizes do not match: best-fit and its like waste room that another mix would use."""
    for capacity, first, second, servers, intensity in (
        (10, 5, 2, 20, 0.95),
        (10, 5, 2, 1, 0.9),
        (10, 5, 2, 100, 0.95),
        (9, 4, 3, 20, 0.95),
        (12, 6, 5, 10, 0.92),
        (7, 3, 2, 5, 0.95),
        (6, 4, 1, 10, 0.95),
        (100, 51, 24, 20, 0.9),
    ):
        name = f"trap-{capacity}-{first}-{second}-x{servers}-{intensity}"
        yield Entry(name, two_types(name, capacity, first, second, servers, intensity))


def two_types(name: str, capacity: int, first: int, second: int, servers: int, intensity: float) -> Scenario:
    """Half of the load in servers full of the one type, half in servers full of the other."""
    return parse_scenario(
        {
            "name": name,
            "cluster": {
                "resources": ["units"],
                "servers": [{"name": "server", "count": servers, "capacity": [capacity]}],
            },
            "types": [
                {"name": "first", "demand": [first], "rate": capacity // first, "mean_service": 1.0},
                {"name": "second", "demand": [second], "rate": capacity // second, "mean_service": 1.0},
            ],
            "workload": {"intensity": intensity},
        }
    )


def random_scenario(seed: int) -> Scenario:
    """One of the random scenarios."""
    rng = np.random.default_rng(seed)
    resources = int(rng.integers(1, 4))
    types = int(rng.integers(2, 7))
    classes = int(rng.integers(1, 3))
    counts = [int(rng.choice([1, 2, 5, 10, 20, 50])) for _ in range(classes)]
    capacities = [[int(x) for x in rng.integers(20, 101, resources)] for _ in range(classes)]
    largest = np.max(capacities, axis=0)
    # a type takes between a twelfth and six tenths of the largest server's scarcest resource, and must fit some class
    demands: list[list[int]] = []
    while len(demands) < types:
        share = rng.uniform(1 / 12, 0.6) * rng.uniform(0.2, 1.0, resources)
        demand = np.maximum(1, np.round(share * largest)).astype(int)
        if any((demand <= np.array(capacity)).all() for capacity in capacities):
            demands.append([int(x) for x in demand])
    equal_means = rng.random() < 0.5
    means = np.ones(types) if equal_means else rng.uniform(0.3, 3.0, types)
    shares = rng.dirichlet(np.ones(types))
    return parse_scenario(
        {
            "name": f"random-{seed}",
            "cluster": {
                "resources": [f"r{r}" for r in range(resources)],
                "servers": [
                    {"name": f"c{c}", "count": counts[c], "capacity": capacities[c]} for c in range(classes)
                ],
            },
            "types": [
                {
                    "name": f"t{j}",
                    "demand": demands[j],
                    "rate": float(shares[j] / means[j]),
                    "mean_service": float(means[j]),
                }
                for j in range(types)
            ],
            "workload": {"intensity": float(np.round(rng.uniform(0.85, 0.97), 3))},
        }
    )


def generated_traces() -> Iterator[Entry]:
    """Both generators, each on servers for which the actual demands are 92 and 97 per cent of the scarcest resource."""
    for name, capacity in (("google-like", (1, 1)), ("azure-like", (32, 128))):
        for load in (0.92, 0.97):
            yield Entry(f"{name}-{load}", trace_scenario(name, capacity, load, TRACE_JOBS))


def real_traces() -> Iterator[Entry]:
    """The Google window, where it is."""
    google = google_window()
    if google is not None:
        for load in (0.92, 0.97):
            yield Entry(f"google2011-{load}", trace_scenario(str(google), (1, 1), load))


def trace_scenario(
    trace: str, capacity: tuple[int, int], load: float, jobs: int | None = None, count: int | None = None
) -> Scenario:
    """A trace on as many servers as give that load, by what its jobs really ask for (or on `count` servers)."""
    if count is None:
        opened = open_trace(trace, jobs, 1)
        asked = opened.demands()[:, [opened.resources.index(name) for name in ("cpu", "memory")]]
        busy = (asked * opened.duration[:, None]).sum(axis=0) / opened.span / np.array(capacity)
        count = int(np.ceil(busy.max() / load))
    return parse_scenario(
        {
            "name": trace,
            "cluster": {
                "resources": ["cpu", "memory"],
                "servers": [{"name": "server", "count": count, "capacity": list(capacity)}],
            },
            "workload": {"trace": trace},
            "run": {"jobs": jobs} if jobs else {},
        }
    )


def google_window() -> Path | None:
    """The Google window beside the project as one file, imported when first asked for; None where it is not there."""
    events = Path(__file__).resolve().parents[3] / "shared" / "traces" / "google2011" / "task_events"
    if not events.is_dir():
        return None
    out = Path(tempfile.gettempdir()) / "slotwise-google2011.parquet"
    if not out.exists():
        import_to_file("google2011", sorted(events.iterdir()), out)
    return out


def suite(held_out: bool = False) -> list[Entry]:
    """All of it."""
    found = [*paper(), *traps(), *generated_traces(), *real_traces()] if not held_out else []
    seeds = [*HELD_OUT] if held_out else [*RANDOM, *FOUND]
    return found + [Entry(f"random-{seed}", random_scenario(seed)) for seed in seeds]

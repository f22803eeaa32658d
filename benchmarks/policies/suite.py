"""The scenarios of the policy suite: the paper's, known traps, and random ones in 1 to 3 resources inside the region.

A random scenario is its seed: the number of types, servers and resources, demands, rates and the intensity (.85 to .97) are drawn
from it. The suite holds every seed of a range, chosen before any policy was run on it, and a list of seeds that a search
(`python -m benchmarks.policies --search`) found to make a common policy diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from benchmarks.policies import traces
from slotwise.model import Scenario, load_scenario, parse_scenario
from slotwise.simulation.run.workload import jobs_of

RANDOM = range(1000, 1030)
# seeds of the search: best-fit diverges on 20033 and 20043, first-fit on 20026, m14 or algorithm1 on all other seeds
FOUND = (20009, 20021, 20023, 20026, 20033, 20036, 20043, 20052)
# A run lasts at least so many times the longest mean service time of a type, unless that makes it more than so many
# times as long. If jobs of one type run a thousand times as long as others, a million events are over before a few of
# them have ended.
SERVICES, MOST_LONGER = 500.0, 32
USUAL = 1_000_000  # events of a run
TRACE_RUNS = 8  # of the same jobs, with other lots drawn by the policies that draw any
# nothing was tuned on them; once they decided, against a change (docs/research/guarded.md)
HELD_OUT = range(5000, 5030)

LABELLED = range(7000, 7030)  # random scenarios in which some types may run on some server classes only
LABELS = {"zone": ("a", "b"), "gpu": ("none", "a100", "h100")}


@dataclass(frozen=True)
class Entry:
    """A scenario under a name, made when it is first asked for."""

    name: str
    make: Callable[[], Scenario]
    family: str
    runs: int = TRACE_RUNS
    """of a trace"""

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario itself."""
        return self.make()

    def prepared(self, events: int, runs: int) -> Scenario:
        """With so many events and runs, or more events where `SERVICES` asks for them; a trace is run as a whole."""
        limits = (
            {"replications": self.runs}
            if self.scenario.workload.trace
            else {"events": self._long_enough(events), "replications": runs}
        )
        return self.scenario.model_copy(update={"run": self.scenario.run.model_copy(update=limits)})

    def _long_enough(self, events: int) -> int:
        jobs = jobs_of(self.scenario)
        each = 2.0 * jobs.rate * max(t.mean_service for t in jobs.types)  # an arrival and an end of each job
        longer = max(1.0, events / USUAL)  # where a verdict is in doubt
        return max(events, min(MOST_LONGER * events, round(SERVICES * each * longer)))


def paper() -> Iterator[Entry]:
    """The paper's own, at several sizes and intensities."""
    yield Entry("example1", partial(load_scenario, "example1"), "paper")
    yield Entry("example2", partial(load_scenario, "example2"), "paper")
    for servers, intensity in ((20, 0.85), (20, 0.89), (20, 0.95), (100, 0.89), (200, 0.95)):
        settings = [f"cluster.servers.standard.count={servers}", f"workload.intensity={intensity}"]
        yield Entry(f"table1-{servers}-{intensity}", partial(load_scenario, "table1", settings), "paper")


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
        # a job that needs a whole server: room must be made for it
        (10, 10, 1, 1, 0.85),
        (10, 10, 1, 5, 0.9),
        (40, 40, 1, 1, 0.85),
        (12, 11, 2, 3, 0.9),
    ):
        name = f"trap-{capacity}-{first}-{second}-x{servers}-{intensity}"
        make = partial(two_types, name, capacity, first, second, servers, intensity)
        yield Entry(name, make, "traps")


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


def labelled_scenario(seed: int) -> Scenario:
    """A random scenario of two or three classes with labels, in which two types of three require what some class has."""
    rng = np.random.default_rng([seed, 1])
    document = random_scenario(seed).model_dump(mode="json", exclude_none=True)
    servers = document["cluster"]["servers"]
    servers.append({**servers[0], "name": "more", "count": int(rng.choice([1, 2, 5, 10]))})
    for server in servers:
        server["labels"] = {key: str(rng.choice(values)) for key, values in LABELS.items() if rng.random() < 0.8}
    for job_type in document["types"]:
        sizes = np.array(job_type["demand"], float)
        homes = [server for server in servers if (sizes <= np.array(server["capacity"], float)).all()]
        home = homes[int(rng.integers(len(homes)))]["labels"]
        wanted = [key for key in home if rng.random() < 0.67]
        job_type["requires"] = {key: sorted({home[key], str(rng.choice(LABELS[key]))}) for key in wanted}
    return parse_scenario({**document, "name": f"labelled-{seed}"})


def laws() -> Iterator[Entry]:
    """Heavy-tailed service and bursts, on the best known trap, on Table 1 and on unlike servers with three resources."""
    pareto, hyper = {"law": "pareto", "shape": 1.6}, {"law": "hyperexponential", "scv": 20.0}
    # twice the mean rate for 10 mean service times, then half of it for 20
    bursts = {"law": "mmpp", "rates": [2.0, 0.5], "sojourns": [10.0, 20.0]}
    trap = two_types("trap", 10, 5, 2, 20, 0.9)
    # a request brings 10 jobs of 5, or 25 of 2: as much of both as the trap has at .9
    halves = [{"probability": 0.5, "jobs": {"first": 10}}, {"probability": 0.5, "jobs": {"second": 25}}]
    batches = {"law": "batch", "rate": 3.6, "batches": halves}
    table1, unlike = load_scenario("table1"), unlike_servers()
    yield Entry("unlike", lambda: unlike, "laws")
    for name, scenario, changes in (
        ("trap-pareto", trap, {"service": pareto}),
        ("trap-hyperexponential", trap, {"service": hyper}),
        ("trap-bursts", trap, {"arrivals": bursts, "intensity": 0.85}),
        ("trap-batches", trap, {"arrivals": batches, "intensity": None}),
        ("table1-hyperexponential", table1, {"service": hyper}),
        ("unlike-pareto", unlike, {"service": pareto}),
        ("unlike-bursts", unlike, {"arrivals": bursts, "intensity": 0.85}),
    ):
        document = scenario.model_dump(mode="json", exclude_none=True)
        document["workload"] |= changes
        if changes.get("intensity", 1) is None:
            del document["workload"]["intensity"]
            for job_type in document["types"]:
                del job_type["rate"]
        yield Entry(name, partial(parse_scenario, {**document, "name": name}), "laws")


def unlike_servers() -> Scenario:
    """Three kinds of servers, three resources, five types that lean on different ones."""
    servers = (("balanced", 10, (32, 128, 0)), ("memory", 5, (16, 256, 0)), ("gpu", 4, (48, 192, 8)))
    types = (
        ("small", (2, 4, 0), 12.0, 1.0),
        ("memory", (4, 60, 0), 2.0, 2.0),
        ("cpu", (14, 16, 0), 2.0, 1.0),
        ("gpu", (6, 24, 1), 2.0, 3.0),
        ("gpus", (20, 90, 4), 0.5, 2.0),
    )
    return parse_scenario(
        {
            "name": "unlike",
            "cluster": {
                "resources": ["cpu", "memory", "gpu"],
                "servers": [{"name": name, "count": n, "capacity": list(c)} for name, n, c in servers],
            },
            "types": [
                {"name": name, "demand": list(w), "rate": rate, "mean_service": mean}
                for name, w, rate, mean in types
            ],
            "workload": {"intensity": 0.92},
        }
    )


def suite(held_out: bool = False, labelled: bool = False) -> list[Entry]:
    """All of it; or the scenarios that no policy was tuned on; or clusters with labels."""
    if labelled:
        return [Entry(f"labelled-{seed}", partial(labelled_scenario, seed), "labelled") for seed in LABELLED]
    fixed = [] if held_out else [*paper(), *traps(), *laws()]
    seeds = [*HELD_OUT] if held_out else [*RANDOM, *FOUND]
    named = traces.held_out() if held_out else traces.scenarios()
    return [
        *fixed,
        *(Entry(name, make, "traces") for name, make in named),
        *(Entry(f"random-{seed}", partial(random_scenario, seed), "random") for seed in seeds),
    ]

"""What all experiments share: which policies are shown, how long runs are, and how scenarios are changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slotwise.model import Run, Scenario, load_scenario
from slotwise.policies import POLICIES

PAPER = ("algorithm1", "m14", "g16")  # the three algorithms that the paper compares
# every policy that the figures show, in the order of the legends: the paper's, then what one would run instead
SHOWN = tuple(name for name in (*PAPER, "best-fit", "guarded") if name in POLICIES)
# their sampling ticks count as events, so the paper gives them 400,000
TWICE_THE_EVENTS = frozenset({"g16", "g16-retention"})

# the arrival laws of section 7.2, as shown and as scenarios name them
LAWS = {"Poisson": "poisson", "log-normal": "lognormal"}


@dataclass(frozen=True)
class Scale:
    """How much is run."""

    events: int = 200_000
    replications: int = 5
    trace_jobs: int = 1_000_000
    trace_replications: int = 3
    settings: int = 10
    """points on the x axis of a figure, about"""
    seed: int = 1

    def run(self, policy: str, **changes: Any) -> Run:
        """The run of a policy: first quarter dropped."""
        events = 2 * self.events if policy in TWICE_THE_EVENTS else self.events
        length = {} if changes.keys() & {"jobs", "until"} else {"events": events}
        return Run(**({"warmup": 0.25, "replications": self.replications, "seed": self.seed} | length | changes))

    def thinned(self, values: list[Any]) -> list[Any]:
        """At most `settings` of the values, ends included."""
        if len(values) <= self.settings:
            return values
        last = len(values) - 1
        return [values[round(i * last / (self.settings - 1))] for i in range(self.settings)]


FULL = Scale()
# a minute's look: the shapes, not the figures
QUICK = Scale(events=40_000, replications=3, trace_jobs=60_000, trace_replications=2, settings=4)


def changed(scenario: Scenario, **parts: Any) -> Scenario:
    """The scenario with some of its parts exchanged, checked again."""
    fields = {name: getattr(scenario, name) for name in type(scenario).model_fields}
    return Scenario(**(fields | parts))


def table1(servers: int, intensity: float, law: str = "poisson", **workload: Any) -> Scenario:
    """Table 1 of the paper with so many servers, at this intensity, under this arrival law."""
    settings = [f"cluster.servers.standard.count={servers}", f"workload.intensity={intensity}"]
    settings += [f'workload.arrivals={{law = "{law}"}}']
    settings += [f"workload.{key}={value}" for key, value in workload.items()]
    return load_scenario("table1", settings)

"""`plan`: the fewest servers (with prices: the cheapest mix) that meet targets, with stated confidence.

Theory first: a linear program gives the least that could carry the load at all. Then a bracketing search over
simulated numbers of servers (`search`), each decided by as many replications as it takes (`trials`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slotwise._version import __version__
from slotwise.errors import InputError
from slotwise.looks.notebook import to_pandas
from slotwise.model import Overrides, Scenario
from slotwise.planning import search, showing
from slotwise.planning.limit import Limit, cheapest
from slotwise.planning.targets import MEANINGS, Targets, check_targets
from slotwise.planning.trials import LOOKS, Counts, Question, Trial, Trials
from slotwise.simulation.choice import Choice
from slotwise.simulation.simulate import as_scenario
from slotwise.simulation.statistics import Interval
from slotwise.simulation.workload import jobs_of

if TYPE_CHECKING:
    import pandas
    import polars as pl

    from slotwise.looks.drawing import Picture

MIXES = 40
"""mixes of several server classes that are simulated, at most, to look for a cheaper one"""


@dataclass(frozen=True, repr=False)
class Plan:
    """How many servers, what that rests on, and one sentence that says it."""

    scenario: Scenario
    policy: str
    targets: Targets
    confidence: float
    class_names: tuple[str, ...]
    best: Trial
    limit: Limit
    tried: tuple[Trial, ...]
    """in the order in which they were tried"""
    cheapest: bool
    """no cheaper mix can have been missed, if more servers never do worse"""
    priced: bool
    """server classes have prices"""
    firm: bool
    """theory rules out less than `limit`; not for a trace, nor where servers come and go"""

    @property
    def servers(self) -> dict[str, int]:
        """How many of each class."""
        return dict(zip(self.class_names, self.best.servers, strict=True))

    @property
    def cost(self) -> float:
        """At the prices of the scenario; without prices the number of servers."""
        return self.best.cost

    @property
    def is_trace(self) -> bool:
        """Whether the jobs are those of a trace."""
        return self.scenario.workload.trace is not None

    @property
    def neighbour(self) -> Trial | None:
        """The dearest choice tried that is below the plan in every class and does not meet the targets."""
        below = [
            trial
            for trial in self.tried
            if not trial.meets and all(a <= b for a, b in zip(trial.servers, self.best.servers, strict=True))
        ]
        return max(below, key=lambda trial: trial.cost, default=None)

    @property
    def statement(self) -> str:
        """The result in one plain sentence."""
        return _statement(self)

    def frame(self) -> pl.DataFrame:
        """A row for each choice of servers that was tried."""
        return showing.frame(self)

    def to_pandas(self) -> pandas.DataFrame:
        """`frame` for pandas."""
        return to_pandas(self.frame())

    def plot(self) -> Picture:
        """Each target over the cost of what was tried."""
        return showing.plot(self)

    def _repr_html_(self) -> str:
        return showing.html(self)

    def __repr__(self) -> str:
        return f"<Plan: {self.statement}>"

    def as_dict(self) -> dict[str, Any]:
        """For programs: plain values, null where a number is infinite or not known."""
        return {
            "scenario": self.scenario.name,
            "seed": self.scenario.run.seed,
            "version": __version__,
            "policy": self.policy,
            "targets": self.targets,
            "confidence": self.confidence,
            "servers": self.servers,
            "cost": self.cost,
            "cheapest": self.cheapest,
            "lower_limit": {
                "servers": dict(zip(self.class_names, map(float, self.limit.servers), strict=True)),
                "cost": self.limit.cost,
                "proven": self.firm,
            },
            "tried": [
                {
                    "servers": dict(zip(self.class_names, trial.servers, strict=True)),
                    "cost": trial.cost,
                    "verdict": str(trial.verdict),
                    "why": trial.why,
                    "replications": trial.replications,
                    "estimates": {
                        key: {"mean": _finite(found.mean), "low": _finite(found.low), "high": _finite(found.high)}
                        for key, found in (trial.estimates or {}).items()
                    },
                }
                for trial in self.tried
            ],
            "statement": self.statement,
        }


def plan(
    scenario: str | Path | Scenario,
    targets: Mapping[str, float],
    policy: str | None = None,
    *,
    confidence: float = 0.95,
    overrides: Overrides = (),
    workers: int | None = None,
    looks: int = LOOKS,
    mixes: int = MIXES,
    on_trial: Callable[[Counts, int], None] | None = None,
    **options: Any,
) -> Plan:
    """The fewest servers of the scenario's classes that meet the targets: {"p95_wait": 60} and the like.

    The counts of the scenario matter only where its rates are given by `workload.intensity`. `options` are
    parameters of the policy (the scenario's own by default). `looks`: how often replications are doubled at most.
    `on_trial` is told (servers, replications) before they are run.
    """
    if not 0.5 <= confidence < 1:
        raise InputError(f"is {confidence}", where="confidence", remedy="use a share from 0.5 to less than 1")
    checked = check_targets(targets)
    ready = as_scenario(scenario, overrides)
    choice = Choice.of(ready, policy, **options)
    choice.make()  # so that a mistake is seen before anything runs
    jobs = jobs_of(ready)
    costs, priced = _costs(ready)
    question = Question(ready, jobs, choice, checked, confidence, costs)
    trials = Trials(question, workers, looks, on_trial)
    need = trials.used / checked["utilisation"] if "utilisation" in checked else np.zeros_like(trials.used)
    limit = cheapest(trials.rho, need, trials.pricings, jobs.sizes.capacity.astype(np.float64), np.array(costs))
    mix, start = search.scaled_mix(limit)
    best = search.along(trials, mix, start)
    complete = True
    if len(costs) > 1:
        best, complete = search.cheaper(trials, best, limit, mixes)
    return Plan(
        scenario=ready,
        policy=choice.name,
        targets=checked,
        confidence=confidence,
        class_names=tuple(server.name for server in ready.cluster.servers),
        best=best,
        limit=limit,
        tried=tuple(trials.done.values()),
        cheapest=complete,
        priced=priced,
        firm=question.firm,
    )


def _costs(scenario: Scenario) -> tuple[tuple[float, ...], bool]:
    """The price of one server of each class; 1 each where none is given."""
    servers = scenario.cluster.servers
    if all(server.price is None for server in servers):
        return (1.0,) * len(servers), False
    for i, server in enumerate(servers):
        if not server.price:
            raise InputError(
                "has no price, but others have" if server.price is None else "is 0, so any number would do",
                where=f"cluster.servers[{i}] ({server.name}).price",
                remedy="give every class a price above 0",
            )
    return tuple(float(server.price or 0) for server in servers), True


def describe(counts: Counts, names: Iterable[str]) -> str:
    """3 small + 1 large."""
    return " + ".join(f"{n:,} {name}" for n, name in zip(counts, names, strict=True) if n) or "none"


def in_words(found: Interval) -> str:
    """mean ± half."""
    if not math.isfinite(found.mean):
        return "without limit"
    half = found.half_width
    return f"{found.mean:.4g}" + (f" ± {half:.2g}" if half else "")


def _statement(plan: Plan) -> str:
    one = len(plan.class_names) == 1
    what = describe(plan.best.servers, plan.class_names) + (" servers" if one else "")
    wanted = " and ".join(f"{MEANINGS[key]} at most {limit:g}" for key, limit in plan.targets.items())
    found = ", ".join(in_words(interval) for interval in (plan.best.estimates or {}).values())
    price = f" at a cost of {plan.cost:g}" if plan.priced else ""
    runs = plan.best.replications
    if not plan.is_trace:
        basis = f"measured {found}; {plan.confidence:.0%} confidence, {runs} runs"
    elif runs == 1:
        basis = (
            f"measured {found} on this very trace, where nothing is left to chance; another day's jobs may differ"
        )
    else:
        basis = (
            f"measured {found}, over {runs} runs of this very trace, so the {plan.confidence:.0%} confidence covers the"
            " policy's own random choices, not another day's jobs"
        )
    text = f"{what}{price} meet {wanted} under {plan.policy} ({basis})"
    less = plan.neighbour
    if less is not None:
        fewer = f"{sum(less.servers):,}" if one else describe(less.servers, plan.class_names)
        verdict = {"in doubt": "are in doubt", "misses": "do not"}.get(str(less.verdict), "cannot")
        text += f"; {fewer} {verdict} ({less.why})"
    elif plan.firm and one:
        text += "; fewer are ruled out by theory"
    if not one:
        text += "; no cheaper mix does" if plan.cheapest else "; a cheaper mix was not found, but may exist"
    return text + "."


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None

"""`plan`: the fewest servers (with prices: the cheapest mix) that meet targets, with stated confidence.

Theory first: a linear program gives the least that could carry the load at all. Then a bracketing search over
simulated numbers of servers (`search`), each decided by as many replications as it takes (`trials`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slotwise._version import __version__
from slotwise.display.notebook import to_pandas
from slotwise.display.numbers import finite, number
from slotwise.errors import InputError, SlotwiseError
from slotwise.model import MOST_SERVERS, Overrides, Scenario, span, with_unit
from slotwise.planning import search, showing
from slotwise.planning.limit import CheapestMix, cheapest
from slotwise.planning.targets import Targets, check_targets, estimate, meaning, measure, shown, unit_of
from slotwise.planning.trials import LOOKS, Counts, TargetQuestion, Trial, Trials
from slotwise.region.ray import Columns
from slotwise.region.region import locate
from slotwise.simulation.judge.statistics import Interval
from slotwise.simulation.measure.periods import QueueOverPeriod, queue_over_period
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.serverevents import check_pace
from slotwise.simulation.run.workload import jobs_of
from slotwise.simulation.simulate import InterruptedRunError, as_scenario
from slotwise.theory.guarantee import Verdict as Certainty
from slotwise.theory.guarantee import guarantee

if TYPE_CHECKING:
    import pandas
    import polars as pl

    from slotwise.display.drawing import Picture

MIXES = 40  # mixes of several server classes that are simulated, at most, to look for a cheaper one
UNLIMITED = 1_000_000_000
FAR = 10.0  # a type that waits so many times as long as all jobs do is told of


class Facts(NamedTuple):
    """What one should know of a plan beside its targets."""

    intensity: float | None
    """where the load lies in the capacity region of the servers; None for a trace, or where servers come and go"""
    certified: bool | None
    """whether a theorem says that the policy keeps the queues bounded; None where nothing can be said"""
    mean_wait: float
    worst: tuple[str | None, float, float]
    """the type that waits longest: its name, mean wait, and longest wait over mean wait"""
    over_period: QueueOverPeriod | None = None
    """where rates rise and fall: the mean queue over their period"""


class InterruptedPlanError(SlotwiseError):
    """Ctrl-C: `tried` is what was found out before."""

    exit_code = 130

    def __init__(self, tried: tuple[Trial, ...], class_names: tuple[str, ...]) -> None:
        self.tried, self.class_names = tried, class_names
        super().__init__("interrupted before a plan was found")


@dataclass(frozen=True, repr=False)
class Plan:
    """How many servers, what that rests on, and one sentence that says it."""

    scenario: Scenario
    policy: str
    targets: Targets
    confidence: float
    class_names: tuple[str, ...]
    best: Trial
    limit: CheapestMix
    tried: tuple[Trial, ...]
    """in the order in which they were tried"""
    cheapest: bool
    """no cheaper mix can have been missed, if more servers never do worse"""
    priced: bool
    """server classes have prices"""
    firm: bool
    """theory rules out less than `limit`; not for a trace, nor where servers come and go"""
    least: Counts
    """of each class, those that are there already or must be"""
    facts: Facts
    """what else one should know of the plan"""

    @property
    def servers(self) -> dict[str, int]:
        """How many of each class."""
        return dict(zip(self.class_names, self.best.servers, strict=True))

    @property
    def more(self) -> dict[str, int]:
        """How many more than `least` of each class."""
        return {name: n - a for (name, n), a in zip(self.servers.items(), self.least, strict=True)}

    @property
    def cost(self) -> float:
        """At the prices of the scenario; without prices the number of servers."""
        return self.best.cost

    @property
    def warnings(self) -> list[str]:
        """What the sentence does not say and the reader must not miss."""
        found = []
        if not self.priced and len(self.class_names) > 1:
            found.append(
                "no prices are given, so every server counts as 1, whatever its size: give cluster.servers[].price"
            )
        if self.facts.certified is False:
            at = f" (intensity {self.facts.intensity:.4g})" if self.facts.intensity is not None else ""
            found.append(f"no theorem says that {self.policy} keeps the queues bounded on these servers{at}")
        name, wait, starved = self.facts.worst
        if name and wait > FAR * max(self.facts.mean_wait, 1e-300):
            found.append(
                f"{name} waits {with_unit(f'{wait:.4g}', self.scenario.time_unit)} on average, {wait / self.facts.mean_wait:.3g} times as long as all jobs"
                f" do; its longest wait was {starved:.3g} times its mean"
            )
        return found

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
        """Return a row for each choice of servers that was tried."""
        return showing.frame(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return `frame` for pandas."""
        return to_pandas(self.frame())

    def plot(self) -> Picture:
        """Draw each target over the cost of the tried servers."""
        return showing.plot(self)

    def _repr_html_(self) -> str:
        return showing.html(self)

    def __repr__(self) -> str:
        return f"<Plan: {self.statement}>"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for programs, null for numbers that are infinite or not known."""
        return {
            "scenario": self.scenario.name,
            "seed": self.scenario.run.seed,
            "version": __version__,
            **self.scenario.units,
            "policy": self.policy,
            "targets": self.targets,
            "confidence": self.confidence,
            "servers": self.servers,
            "more": self.more,
            "intensity": self.facts.intensity,
            "certified": self.facts.certified,
            "worst_type": {
                "name": self.facts.worst[0],
                "mean_wait": self.facts.worst[1],
                "starved": self.facts.worst[2],
            },
            "queue_over_period": self.facts.over_period.as_dict() if self.facts.over_period else None,
            "warnings": self.warnings,
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
                        key: finite({"mean": found.mean, "low": found.low, "high": found.high})
                        for key, found in (trial.estimates or {}).items()
                    },
                }
                for trial in self.tried
            ],
            "statement": self.statement,
        }


def plan(
    scenario: str | Path | Scenario,
    targets: Mapping[str, float | str],
    policy: str | None = None,
    *,
    confidence: float = 0.95,
    overrides: Overrides = (),
    workers: int | None = None,
    looks: int = LOOKS,
    mixes: int = MIXES,
    keep: bool = False,
    least: Mapping[str, int] | None = None,
    most: Mapping[str, int] | None = None,
    on_trial: Callable[[Counts, int], None] | None = None,
    **options: Any,
) -> Plan:
    """Return the fewest servers of the scenario's classes that meet the targets: {"p95_wait": 60}, {"p95_wait": "30min"} and the like.

    With `keep` the servers of the scenario are there already: how many more? Without it their counts matter only where its rates are
    given by `workload.intensity`. `least` and `most` bound the number of servers of single classes. `options` are parameters of the policy
    (the scenario's own by default). `looks`: how often replications are doubled at most. `on_trial` is told (servers, replications)
    before they are run. Interrupted, it raises `InterruptedPlanError` with what was tried.
    """
    if not 0.5 <= confidence < 1:
        raise InputError(f"is {confidence}", where="confidence", remedy="use a share from 0.5 to less than 1")
    ready = as_scenario(scenario, overrides)
    bounds = _bounds(ready, keep, least or {}, most or {})
    choice = Choice.of(ready, policy, **options)
    choice.make()  # so that a mistake is seen before anything runs
    jobs = jobs_of(ready)
    check_pace(ready.cluster, jobs.rate)
    checked = check_targets(targets, [job_type.name for job_type in jobs.types], ready.time_unit)
    costs, priced = _costs(ready)
    names = tuple(server.name for server in ready.cluster.servers)
    question = TargetQuestion(ready, jobs, choice, checked, confidence, costs)
    trials = Trials(question, workers, looks, on_trial)
    need = trials.used / checked["utilisation"] if "utilisation" in checked else np.zeros_like(trials.used)
    limit = cheapest(trials.rho, need, trials.pricings, jobs.sizes.capacity.astype(np.float64), np.array(costs))
    mix, start = search.scaled_mix(limit, bounds)
    try:
        best, complete = search.confirmed(trials, mix, start), True
        if len(costs) > 1:
            best, complete = search.cheaper(trials, best, limit, mixes, bounds)
    except InterruptedRunError:
        raise InterruptedPlanError(tuple(trials.done.values()), names) from None
    return Plan(
        scenario=ready,
        policy=choice.name,
        targets=checked,
        confidence=confidence,
        class_names=names,
        best=best,
        limit=limit,
        tried=tuple(trials.done.values()),
        cheapest=complete,
        priced=priced,
        firm=question.firm,
        least=bounds.least,
        facts=_facts(trials, best),
    )


def _bounds(scenario: Scenario, keep: bool, least: Mapping[str, int], most: Mapping[str, int]) -> search.Bounds:
    """Return how many servers of each class there must and may be."""
    servers = scenario.cluster.servers
    names = [server.name for server in servers]
    for where, given in (("--min", least), ("--max", most)):
        for name, n in given.items():
            if name not in names:
                raise InputError(
                    f"no server class is called {name!r}", where=where, remedy=f"use one of: {', '.join(names)}"
                )
            if n < 0:
                raise InputError(f"is {n} for {name}", where=where, remedy="give 0 or more")
            if n > MOST_SERVERS:
                raise InputError(f"is {n:,} for {name}", where=where, remedy=f"give {MOST_SERVERS:,} at most")
    low = tuple(max(least.get(server.name, 0), server.count if keep else 0) for server in servers)
    if not most:
        return search.Bounds(low)
    for name, a in zip(names, low, strict=True):
        if most.get(name, a) < a:
            raise InputError(
                f"is {most[name]} for {name}, and {a} must be there", where="--max", remedy=f"give {a} or more"
            )
    return search.Bounds(low, tuple(most.get(name, UNLIMITED) for name in names))


def _facts(trials: Trials, best: Trial) -> Facts:
    asked = trials.question
    scenario, runs = asked.with_servers(best.servers), best.runs
    intensity, certified = None, None
    if asked.firm:
        columns = Columns(trials.pricings, best.servers)
        region = locate(trials.rho, columns)
        intensity = region.intensity
        rates = asked.jobs.rates
        certified = guarantee(scenario, rates, region, asked.choice.make()).verdict is Certainty.CERTIFIED
    if not runs:
        return Facts(intensity, certified, 0.0, (None, 0.0, 1.0))
    waits = {name: estimate(runs, f"{name}.mean_wait", 0.95, asked.type_names).mean for name in asked.type_names}
    worst = max(waits, key=lambda name: waits[name])
    mean = estimate(runs, "mean_wait", 0.95).mean
    over_period = queue_over_period(runs, asked.jobs.period)
    if not waits[worst] > 0:
        return Facts(intensity, certified, mean, (None, 0.0, 1.0), over_period)
    starved = max(measure(run, f"{worst}.starved", asked.type_names) for run in runs)
    return Facts(intensity, certified, mean, (worst, waits[worst], starved), over_period)


def _costs(scenario: Scenario) -> tuple[tuple[float, ...], bool]:
    """Return the price of one server of each class; 1 each where none is given."""
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
    """Write the servers as "3 small + 1 large"."""
    return " + ".join(f"{n:,} {name}" for n, name in zip(counts, names, strict=True) if n) or "none"


def in_words(found: Interval) -> str:
    """Write an interval as "mean [low, high]"."""
    if not math.isfinite(found.mean):
        return "without limit"
    if found.low is None or found.high is None or found.high == found.low:
        return f"{found.mean:.4g}"
    return f"{found.mean:.4g} [{found.low:.4g}, {found.high:.4g}]"


def _statement(plan: Plan) -> str:
    one = len(plan.class_names) == 1
    what = describe(plan.best.servers, plan.class_names) + (" servers" if one else "")
    if any(plan.least):
        more = describe(tuple(plan.more.values()), plan.class_names)
        what += f" ({more} more than there are)" if any(plan.more.values()) else " (those that are there)"
    unit = plan.scenario.time_unit
    wanted = " and ".join(
        f"{meaning(key)} at most {shown(key, limit, unit)}" for key, limit in plan.targets.items()
    )
    found = ", ".join(
        f"{interval.mean:.4g} by theory"
        if key == "utilisation" and plan.firm
        else with_unit(in_words(interval), unit_of(key, unit))
        for key, interval in (plan.best.estimates or {}).items()
    )
    price = f" at a cost of {plan.cost:g}" if plan.priced else ""
    runs = plan.best.replications
    if not plan.is_trace:
        length = float(np.mean([run.ended for run in plan.best.runs]))
        basis = (
            f"measured {found}; {plan.confidence:.0%} confidence, {runs} fresh runs of {span(number(length), unit)}"
        )
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
        text += "; no cheaper mix was found to" if plan.cheapest else "; not every cheaper mix was tried"
    return text + "." + _beside(plan.facts, plan.policy, unit)


def _beside(facts: Facts, policy: str, unit: str | None) -> str:
    """Write intensity, certificate and worst type, which are always said."""
    text = f" Intensity {facts.intensity:.4g}." if facts.intensity is not None else ""
    if facts.certified is not None:
        text += f" {policy} is {'proven' if facts.certified else 'not proven'} stable there."
    if facts.over_period is not None:
        text += f" {facts.over_period.in_words(unit).capitalize()}."
    name, wait, starved = facts.worst
    if name:
        text += f" Longest waits: {name}, {with_unit(f'{wait:.4g}', unit)} on average, the longest {number(starved, 3)} times that."
    return text

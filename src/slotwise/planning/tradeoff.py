"""Throughput that is proven against delay that is measured, over beta and the solver of a max-weight policy.

A larger beta stalls servers sooner. That proves more (the region r beta C, or beta C^ if the solver is an argmax over a
fixed set) and costs time in which stalled servers drain. A weaker solver is quicker and proves less. Which setting is
best depends on the workload, so each is run on the user's own, all on the same jobs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotwise._version import __version__
from slotwise.core.contract.claims import MaxWeight
from slotwise.display.numbers import with_band
from slotwise.errors import InputError
from slotwise.model import Overrides, Scenario
from slotwise.model.laws import BatchArrivals
from slotwise.policies import POLICIES
from slotwise.region.region import Region, locate
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.result import Result, paired_queues
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.engines import OnProgress, Workers
from slotwise.simulation.simulate import as_scenario, run_policies
from slotwise.theory.guarantee import proven_share
from slotwise.theory.load import columns_of, scaled_rates, with_load
from slotwise.workloads.laws import arrival_law, is_poisson

GRID = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
SOLVERS = ("auto", "greedy", "greedy-fill")
USUAL = "algorithm1"  # tried where the scenario's own policy has no beta


@dataclass(frozen=True)
class Setting:
    """One choice of beta and solver."""

    key: str
    """b (the limit of h(Q)), or beta where the scenario has a constant one"""
    beta: float
    solver: str
    share: float | None
    """proven share of the capacity region in the direction of this load; None: nothing is proven"""
    why: str
    result: Result

    @property
    def name(self) -> str:
        """As it is set."""
        return f"{self.key} = {self.beta:g}, solver = {self.solver}"


@dataclass(frozen=True)
class Tradeoff:
    """All settings, and which one to take."""

    scenario: Scenario
    policy: str
    intensity: float
    settings: tuple[Setting, ...]

    @property
    def proven(self) -> tuple[Setting, ...]:
        """Those that are proven to carry this load (for a trace: if it were Poisson with the same averages)."""
        return tuple(
            s for s in self.settings if s.share is not None and s.share > self.intensity and not s.result.grows
        )

    @property
    def recommended(self) -> Setting:
        """The shortest queue among those proven for this load; of those as short, the one that proves most."""
        stable = tuple(setting for setting in self.settings if not setting.result.grows)
        among = self.proven or stable or self.settings
        shortest = min(among, key=lambda setting: setting.result.mean_queue.mean)
        equal = [setting for setting in among if not _longer(setting.result, shortest.result)]
        return max(equal, key=lambda setting: (setting.share or 0.0, -setting.result.mean_queue.mean))

    @property
    def statement(self) -> str:
        """The recommendation in one plain sentence."""
        best = self.recommended
        queue = best.result.mean_queue
        found = f"mean queue {with_band(*queue)}"
        law = ", were its arrivals Poisson" if not _is_poisson(self.scenario) else ""
        if self.proven:
            ground = f"proven below intensity {best.share:.4g}{law}, with the load at {self.intensity:.4g}"
            rest = "no setting that is proven for this load has a significantly shorter queue"
        else:
            most = max((setting.share or 0.0 for setting in self.settings), default=0.0)
            if most > self.intensity:
                ground = f"settings are proven{law} up to {most:.4g}, with the load at {self.intensity:.4g}, but their queues grew in these runs: run longer"
            else:
                ground = f"no setting is proven at this load{law}: the most is {most:.4g}, the load is at {self.intensity:.4g}"
            rest = "it has the shortest queue" if not best.result.grows else "and every setting's queue grows"
        unsure = ""
        if best.result.verdict is Stability.TOO_SHORT:
            unsure = f" These runs do not tell settings apart yet ({best.result.why}): leave out run.events, or give more."
        return f"Use {best.name} ({ground}): {found}; {rest}.{unsure}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for programs, null for what is not proven or known."""
        return {
            "scenario": self.scenario.name,
            "seed": self.scenario.run.seed,
            "version": __version__,
            **self.scenario.units,
            "policy": self.policy,
            "intensity": self.intensity if math.isfinite(self.intensity) else None,
            "settings": [
                {
                    setting.key: setting.beta,
                    "solver": setting.solver,
                    "guarantee": setting.share,
                    "why": setting.why,
                    "mean_queue": {
                        "mean": setting.result.mean_queue.mean,
                        "ci95": [setting.result.mean_queue.low, setting.result.mean_queue.high],
                    },
                    "wait": setting.result.wait,
                    "stalled_fraction": setting.result.as_dict()["stalled_fraction"],
                    "verdict": str(setting.result.verdict),
                }
                for setting in self.settings
            ],
            "recommended": {self.recommended.key: self.recommended.beta, "solver": self.recommended.solver},
            "statement": self.statement,
        }


def tradeoff(
    scenario: str | Path | Scenario,
    policy: str | None = None,
    *,
    betas: Sequence[float] = GRID,
    solvers: Sequence[str] = SOLVERS,
    overrides: Overrides = (),
    workers: int | None = None,
    on_progress: OnProgress | None = None,
) -> Tradeoff:
    """Run every beta with every solver. The policy is the scenario's own where it has a beta, else algorithm1."""
    ready = as_scenario(scenario, overrides)
    chosen = policy or (ready.policy.name if _max_weight(Choice.of(ready)) else USUAL)
    given = _max_weight(Choice.of(ready, chosen))
    if given is None:
        known = ", ".join(name for name in POLICIES if _max_weight(Choice(name)))
        raise InputError(f"{chosen} has no beta to choose", where="policy", remedy=f"use one of: {known}")
    for beta in betas:
        if not 0 < beta < 1:
            raise InputError(f"is {beta:g}", where="beta", remedy="use numbers between 0 and 1")
    if not betas or not solvers:
        raise InputError("there is nothing to try", where="beta and solver", remedy="give at least one of each")
    key = given.beta_option
    loaded = with_load(ready)
    columns = columns_of(loaded)
    rates = scaled_rates(loaded, columns)
    region: Region = locate(rates * [job_type.mean_service for job_type in loaded.types], columns)
    pairs = [(solver, beta) for solver in solvers for beta in betas]
    choices = [Choice.of(ready, chosen, **{key: beta, "solver": solver}) for solver, beta in pairs]
    shares = [proven_share(region, claim) for choice in choices if (claim := _max_weight(choice))]
    results = run_policies(ready, choices, Workers(workers=workers), on_progress)
    settings = tuple(
        Setting(key, beta, solver, share, why, result)
        for (solver, beta), (share, why), result in zip(pairs, shares, results, strict=True)
    )
    return Tradeoff(ready, chosen, region.intensity, settings)


def _is_poisson(scenario: Scenario) -> bool:
    """Return whether arrivals are as the theorems need them: at a constant rate, one by one or in batches."""
    if scenario.workload.trace is not None or scenario.period is not None:
        return False
    laws = [arrival_law(scenario, j) for j in range(len(scenario.types))]
    return all(isinstance(law, BatchArrivals) or is_poisson(law) for law in laws)


def _max_weight(choice: Choice) -> MaxWeight | None:
    """Return what the policy says of its beta, or None if it has no beta that can be chosen, or no solver."""
    policy = choice.make()
    claim = policy.proven()
    return claim if isinstance(claim, MaxWeight) and claim.beta_option and policy.solver else None


def _longer(one: Result, other: Result) -> bool:
    """Return whether the first has a significantly longer queue, on the same jobs."""
    difference = paired_queues(one, other)
    return difference.mean > 0 if difference.low is None else difference.low > 0

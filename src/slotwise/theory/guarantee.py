"""What is proven about a policy at this load, with the assumptions of the proof checked one by one.

Verdicts: `impossible` (no policy whatsoever: the load is not inside the capacity region C), `certified` (a theorem
says that the queues stay bounded in the mean, and its assumptions hold), `not certified` (nothing known says so;
the policy may well be stable).

For Algorithm 1 with an r-max-weight solver and stalling threshold beta:

- Theorem 1: beta < r supports the interior of r beta C. It holds for hyper-exponential services (corollary 1), for
  Poisson batches (corollary 2), and for beta = h(Q) rising to a limit (corollary 4), which stands for beta then.
- Corollary 3: where the solver is an argmax over a fixed set of configurations, any beta < 1 supports the interior
  of beta C^, with C^ the region of that set. C^ contains r C and is usually much larger, so C^ itself is computed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slotwise.errors import InputError
from slotwise.model import Scenario
from slotwise.model.laws import BatchArrivals
from slotwise.packing import Solver, make_solver
from slotwise.scheduling.policies import POLICIES
from slotwise.theory.bounds import changes_of
from slotwise.theory.pricing import Listed, Vector
from slotwise.theory.ray import Columns
from slotwise.theory.region import Region, locate
from slotwise.workloads.laws import arrival_law, is_exponential, is_hyperexponential, is_poisson, service_law

MARGIN = 1e-9
"""The interior begins this far, relative, from the boundary."""


class Verdict(enum.StrEnum):
    """The three things that can be said."""

    CERTIFIED = "certified"
    NOT_CERTIFIED = "not certified"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True)
class Assumption:
    """Something that a theorem needs. `holds` is None where it is taken on trust, with the reason in `detail`."""

    text: str
    holds: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Guarantee:
    """What is known of one policy at one load."""

    policy: str
    verdict: Verdict
    why: str
    source: str = ""
    """the theorem that says so"""
    share: float | None = None
    """the proven share of the capacity region in the direction of this load: stable below this intensity"""
    assumptions: tuple[Assumption, ...] = ()


@dataclass(frozen=True)
class Case:
    """One question: this load on this cluster under this policy."""

    scenario: Scenario
    rates: Vector
    region: Region
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def busy(self) -> list[int]:
        """The types that arrive."""
        return [int(j) for j in np.flatnonzero(self.rates > 0)]


Rule = Callable[[Case], Guarantee]


def guarantee(
    scenario: Scenario, rates: Vector, region: Region, policy: str, options: Mapping[str, Any] | None = None
) -> Guarantee:
    """The verdict on one policy; `rates` and `region` are those of the load (`scaled_rates`, `region_of`)."""
    case = Case(scenario, rates, region, policy, options or {})
    if region.supportable is False and scenario.workload.trace is not None:
        return _trace_outside(case)
    if region.supportable is False:
        on = abs(region.lower - 1) <= MARGIN
        why = (
            "the load is on the boundary of the capacity region"
            if on
            else "the load is outside the capacity region"
        )
        return Guarantee(policy, Verdict.IMPOSSIBLE, f"{why}, so no policy keeps the queues bounded", "section 2")
    return RULES.get(policy, _nothing_known)(case)


def _trace_outside(case: Case) -> Guarantee:
    """Rounding jobs up to their types may be all that puts a trace outside."""
    why = "the average load, every job rounded up to its type, is outside the capacity region"
    if case.policy in POLICIES and POLICIES[case.policy](**case.options).actual:
        return Guarantee(
            case.policy, Verdict.NOT_CERTIFIED, f"{why}; packing by actual demand may still carry it", "section 2"
        )
    return Guarantee(
        case.policy, Verdict.IMPOSSIBLE, f"{why}: packed by type, queues grow if it goes on like this", "section 2"
    )


def guarantees(scenario: Scenario, rates: Vector, region: Region) -> list[Guarantee]:
    """The scenario's own policy with its options, then every other one with its defaults."""
    own = scenario.policy.name
    others = [name for name in RULES if name != own]
    return [
        guarantee(scenario, rates, region, own, scenario.policy.options),
        *(guarantee(scenario, rates, region, name) for name in others),
    ]


# Algorithm 1


def algorithm1(case: Case) -> Guarantee:
    """Theorem 1 and corollaries 1 to 4."""
    beta, beta_assumption = limit_of_beta(case.options)
    solvers = solvers_of(case)
    r = min(solver.r for solver in solvers)
    share, source, route = _proven_share(case, solvers, beta, r)
    assumptions = [
        _cluster_stays(case),
        _arrivals_poisson(case),
        _services_hyperexponential(case),
        beta_assumption,
        *route,
        *_customizations(case),
    ]
    return _judge(case, share, source, assumptions)


def proven_share(
    scenario: Scenario, rates: Vector, region: Region, options: Mapping[str, Any]
) -> tuple[float | None, str]:
    """(intensity below which Algorithm 1 with these options is stable, which theorem says so or why none does).

    The laws of the workload are not looked at: this is about beta and the solver only.
    """
    case = Case(scenario, rates, region, "algorithm1", options)
    beta, allowed = limit_of_beta(options)
    solvers = solvers_of(case)
    share, source, route = _proven_share(case, solvers, beta, min(solver.r for solver in solvers))
    broken = [one for one in (allowed, *route) if one.holds is False]
    return (None, f"{source} needs: {broken[0].text} ({broken[0].detail})") if broken else (share, source)


def limit_of_beta(options: Mapping[str, Any]) -> tuple[float, Assumption]:
    """The limit of beta(Q) as queues grow, and whether it is one that corollary 4 allows.

    A constant `beta`, or h(Q) = b (p + (1 - p) tanh(z sum Q)) with the options b, p and z.
    """
    beta = options.get("beta")
    if beta is not None:
        value = _number("beta", beta)
        return value, Assumption("0 < beta < 1", 0 < value < 1, f"beta = {value:g}, constant")
    b, p, z = (_number(key, options.get(key, default)) for key, default in (("b", 0.9), ("p", -0.05), ("z", 0.005)))
    rises = p == 1 or (p < 1 and z > 0)
    limit = b if rises else b * p
    return limit, Assumption(
        "beta increases with the queues to a limit between 0 and 1",
        rises and 0 < limit < 1,
        f"h(Q) with b = {b:g}, p = {p:g}, z = {z:g} tends to {limit:g}",
    )


def solvers_of(case: Case) -> list[Solver]:
    """The r-max-weight solver of each server class that has servers."""
    name = str(case.options.get("solver", "auto"))
    epsilon = _number("epsilon", case.options.get("epsilon", 0.05))
    columns = case.region.columns
    return [make_solver(name, columns.pricings[c].space, epsilon=epsilon) for c in columns.classes]


def _proven_share(case: Case, solvers: list[Solver], beta: float, r: float) -> tuple[float, str, list[Assumption]]:
    """(intensity below which the policy is stable, by which theorem, what that theorem asks of the solver)."""
    names = ", ".join(sorted({solver.name for solver in solvers}))
    if not all(solver.fixed_set for solver in solvers):
        needs = Assumption("beta < r", beta < r, f"solver {names}: r = {r:.4g}, limit of beta {beta:.4g}")
        return r * beta, "Theorem 1", [needs]
    subset = _intensity_in_subset(case, solvers)
    ratio = case.region.intensity / subset if subset > 0 else 1.0
    needs = Assumption(
        "the solver is an argmax over a fixed set of configurations",
        True,
        f"solver {names}: its region reaches {min(1.0, ratio):.4g} of the capacity region in this direction",
    )
    return beta * min(1.0, ratio), "Theorem 1, corollary 3", [needs]


def _intensity_in_subset(case: Case, solvers: list[Solver]) -> float:
    """The intensity of the load in C^; of a solver without a table, which searches all configurations, C^ is C."""
    columns = case.region.columns
    if all(solver.r == 1 for solver in solvers):
        return case.region.intensity
    pricings = list(columns.pricings)
    for c, solver in zip(columns.classes, solvers, strict=True):
        if solver.table is not None:
            pricings[c] = Listed(solver.space, solver.table)
    return locate(case.region.rho, Columns(pricings, columns.counts.tolist())).intensity


def _customizations(case: Case) -> list[Assumption]:
    """What the policy does beyond the basic algorithm, and on what grounds it is let pass."""
    found = []
    if case.options.get("faithful", False):
        silent = [case.scenario.types[j].name for j in range(len(case.rates)) if case.rates[j] == 0]
        found.append(
            Assumption(
                "every type arrives",
                not silent,
                f"no {', '.join(silent)}: an empty server set up for it is never looked at again" if silent else "",
            )
        )
    else:
        found.append(
            Assumption(
                "an empty server takes its configuration when it can next start a job",
                None,
                "departs from the paper's words; with nothing to preempt it is a reset without a stall",
            )
        )
        if case.options.get("reduce_stalls", True):
            found.append(
                Assumption(
                    "stalls may end before the server is empty", None, "section 6.3 shortens stalled periods"
                )
            )
    if case.options.get("stall_cap", 0.1) is not None:
        found.append(
            Assumption(
                "few servers stall at once, by a factor q(s) on beta",
                None,
                "section 6.4 says that the proof extends, and leaves it out",
            )
        )
    return found


def guarded(case: Case) -> Guarantee:
    """Algorithm 1's theorem for servers that pack and turn: docs/theory/guarded.md."""
    beta, beta_assumption = limit_of_beta(case.options)
    solvers = solvers_of(case)
    share, source, route = _proven_share(case, solvers, beta, min(solver.r for solver in solvers))
    assumptions = [
        _cluster_stays(case),
        _arrivals_poisson(case),
        _services_hyperexponential(case),
        beta_assumption,
        *route,
        Assumption(
            "demands add up",
            all(server.feasible is None for server in case.scenario.cluster.servers if server.count > 0),
            "the policy packs by free room",
        ),
        Assumption(
            "jobs that ask for less than their type count with their type's demand when queues are very long",
            True,
            "the region is that of the types' demands; packing by actual demands can only be seen to do better",
        ),
        Assumption(
            "few servers turn at once, by a factor q(s) on beta, but some may",
            case.options.get("stall_cap") != 0 or case.options.get("spread") == "off",
            "a server that may not turn yet is counted as one that turns",
        ),
    ]
    return _judge(case, share, f"{source}, for servers that turn without stalling", assumptions)


# Policies from elsewhere


def _best_fit(case: Case) -> Guarantee:
    return _one_resource_share(case, 0.5)


def _virtual_queues(case: Case) -> Guarantee:
    return _one_resource_share(case, 2 / 3)


def _one_resource_share(case: Case, share: float) -> Guarantee:
    """Psychas and Ghaderi 2019: alike servers, one resource, one service rate, no types needed."""
    scenario = case.scenario
    laws = [(service_law(scenario, j), scenario.types[j].mean_service) for j in case.busy]
    servers = [server for server in scenario.cluster.servers if server.count > 0]
    columns = case.region.columns
    held = {tuple(columns.pricings[c].space.fitting.tolist()) for c in columns.classes}
    alike = len({server.capacity for server in servers}) == len(held) == 1 and all(
        s.feasible is None for s in servers
    )
    assumptions = [
        _cluster_stays(case),
        _arrivals_poisson(case),
        Assumption("one resource", len(scenario.cluster.resources) == 1, f"{len(scenario.cluster.resources)} here"),
        Assumption(
            "alike servers, demands add up", alike, "some hold other types than others" if len(held) > 1 else ""
        ),
        Assumption(
            "equal exponential service times",
            all(is_exponential(law) for law, _ in laws) and len({mean for _, mean in laws}) == 1,
        ),
        Assumption("time in slots, geometric services", None, "continuous time here, as the limit of short slots"),
    ]
    return _judge(case, share, "Psychas and Ghaderi 2019", assumptions)


def _m14(case: Case) -> Guarantee:
    return Guarantee(
        case.policy,
        Verdict.NOT_CERTIFIED,
        "refreshing each server on its own has no guarantee, and is unstable in the paper's example 1 (intensity"
        " 0.89); the proof of Maguluri and Srikant 2014 needs all servers empty at once",
        "section 3, remark 2",
    )


def _g16(case: Case) -> Guarantee:
    return Guarantee(
        case.policy,
        Verdict.NOT_CERTIFIED,
        "as published stable inside the whole region, for Poisson arrivals and exponential services; this is a"
        " reconstruction, so nothing is claimed for it",
        "Ghaderi 2016",
    )


def _fifo(case: Case) -> Guarantee:
    return Guarantee(
        case.policy,
        Verdict.NOT_CERTIFIED,
        "the job at the head blocks the others, so room stays empty; no share known",
    )


def _nothing_known(case: Case) -> Guarantee:
    return Guarantee(case.policy, Verdict.NOT_CERTIFIED, "nothing is known of its share of the capacity region")


def _clairvoyant(case: Case) -> Guarantee:
    return Guarantee(
        case.policy,
        Verdict.NOT_CERTIFIED,
        "nothing is known of its share of the capacity region (and it must know service times)",
    )


RULES: dict[str, Rule] = {
    "algorithm1": algorithm1,
    "guarded": guarded,
    "m14": _m14,
    "g16": _g16,
    "g16-retention": _g16,
    "best-fit": _best_fit,
    "vqs": _virtual_queues,
    "vqs-bf": _virtual_queues,
    "first-fit": _nothing_known,
    "worst-fit": _nothing_known,
    "random-fit": _nothing_known,
    "fifo": _fifo,
    "kubernetes-least-allocated": _nothing_known,
    "kubernetes-most-allocated": _nothing_known,
    "tetris": _nothing_known,
    "myopic-maxweight": _nothing_known,
    "easy-backfill": _clairvoyant,
}
"""What is known of each policy; one that rests on Algorithm 1's proof takes its rule."""


# What several theorems ask for


def _judge(case: Case, share: float, source: str, assumptions: list[Assumption]) -> Guarantee:
    zeta = case.region.intensity
    broken = [assumption for assumption in assumptions if assumption.holds is False]
    if broken:
        first = broken[0]
        why = f"{source} needs: {first.text}" + (f" ({first.detail})" if first.detail else "")
        return Guarantee(case.policy, Verdict.NOT_CERTIFIED, why, source, None, tuple(assumptions))
    if zeta >= share * (1 - MARGIN):
        why = f"proven below intensity {share:.4g} in this direction; the load is at {zeta:.4g}"
        return Guarantee(case.policy, Verdict.NOT_CERTIFIED, why, source, share, tuple(assumptions))
    why = f"{source}: stable below intensity {share:.4g}; the load is at {zeta:.4g}"
    return Guarantee(case.policy, Verdict.CERTIFIED, why, source, share, tuple(assumptions))


def _cluster_stays(case: Case) -> Assumption:
    changing = changes_of(case.scenario)
    drains = any(event.action == "drain" for event in case.scenario.cluster.events)
    detail = changing or ("servers drain during the run" if drains else "")
    return Assumption("the servers stay the same", not detail, detail)


def _arrivals_poisson(case: Case) -> Assumption:
    text = "Poisson arrivals, one by one or in bounded batches"
    if case.scenario.workload.trace is not None:
        return Assumption(text, False, "a trace is what it is; on average the load is inside the region")
    if isinstance(case.scenario.workload.arrivals, BatchArrivals):
        return Assumption(text, True, "batches (corollary 2)")
    return _all_types(case, text, lambda j: is_poisson(arrival_law(case.scenario, j)), "arrives as", arrival_law)


def _services_hyperexponential(case: Case) -> Assumption:
    text = "exponential or hyper-exponential service times"
    if case.scenario.workload.trace is not None:
        return Assumption(text, False, "a trace is what it is")
    return _all_types(case, text, lambda j: is_hyperexponential(service_law(case.scenario, j)), "has", service_law)


def _all_types(
    case: Case, text: str, holds: Callable[[int], bool], verb: str, law: Callable[[Scenario, int], Any]
) -> Assumption:
    for j in case.busy:
        if not holds(j):
            return Assumption(text, False, f"type {case.scenario.types[j].name} {verb} {law(case.scenario, j).law}")
    return Assumption(text, True)


def _number(key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise InputError(f"is {value!r}", where=f"policy.{key}", remedy="must be a finite number")
    return number

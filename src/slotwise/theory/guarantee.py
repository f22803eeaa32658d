"""What is proven about a policy at this load, with the assumptions of the proof checked one by one.

Verdicts: `impossible`: the load is not inside the capacity region C, so no policy can carry it. `certified`: a theorem
says that the queues stay bounded in the mean, and its assumptions hold. `certified under assumptions`: as before, but
some assumptions cannot be checked. `not certified`: no known theorem applies; the policy may well be stable.

The policy itself says which proof it goes by, and with which numbers (`Policy.claim`). For one whose servers keep a share
beta of what an r-max-weight solver finds (`MaxWeight`):

- Theorem 1: beta < r supports the interior of r beta C. It holds for hyper-exponential services (corollary 1), for
  Poisson batches (corollary 2), and for beta = h(Q) rising to a limit (corollary 4), which stands for beta then.
- Corollary 3: where the solver is an argmax over a fixed set of configurations, any beta < 1 supports the interior
  of beta C^, with C^ the region of that set. C^ contains r C and is usually much larger, so C^ itself is computed.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slotwise.core.contract.claims import Assumption, FixedShare, MaxWeight, Need, Unknown
from slotwise.core.contract.policy import Policy
from slotwise.core.indexes.weights import MOST_NODES
from slotwise.model import Scenario
from slotwise.packing import Solver, make_solver
from slotwise.packing.kernels import BRANCH_AND_BOUND
from slotwise.policies import POLICIES, make_policy
from slotwise.region.pricing import ListedPricing, Vector
from slotwise.region.ray import Columns
from slotwise.region.region import Region, locate
from slotwise.theory.needs import Case, check

MARGIN = 1e-9  # The interior begins this far, relative, from the boundary.
OF_THEOREM_1 = (Need.SERVERS_STAY, Need.POISSON, Need.HYPEREXPONENTIAL)


class Verdict(enum.StrEnum):
    """What can be said."""

    CERTIFIED = "certified"
    ASSUMED = "certified under assumptions"
    NOT_CERTIFIED = "not certified"
    IMPOSSIBLE = "impossible"


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


def guarantee(scenario: Scenario, rates: Vector, region: Region, policy: Policy) -> Guarantee:
    """Return the verdict on one policy; `rates` and `region` are those of the load (`scaled_rates`, `region_of`)."""
    if region.supportable is False:
        return _outside(scenario, region, policy)
    here = Case(scenario, rates, region)
    shares = _of_shares(scenario, policy)
    if any(one.holds is False for one in shares):
        return Guarantee(policy.label, Verdict.NOT_CERTIFIED, f"{policy.label} cannot honour shares")
    match policy.proven():
        case Unknown() as claim:
            why = claim.why + (" (and it must know service times)" if policy.needs_durations else "")
            return Guarantee(policy.label, Verdict.NOT_CERTIFIED, why, claim.source)
        case FixedShare() as claim:
            assumptions = [*(check(need, here) for need in claim.needs), *claim.assumptions, *shares]
            return _judge(policy, region, claim.share, claim.source, assumptions)
        case MaxWeight() as claim:
            share, source, route = _reach(region, claim)
            assumptions = [
                *(check(need, here) for need in OF_THEOREM_1),
                *route,
                *(check(need, here) for need in claim.needs),
                *claim.assumptions,
                *shares,
            ]
            return _judge(policy, region, share, source, assumptions)


def _of_shares(scenario: Scenario, policy: Policy) -> tuple[Assumption, ...]:
    """Return what a proof needs besides if tenants have shares."""
    if scenario.shares is None or not scenario.shares.tenants:
        return ()
    return policy.claim_with_shares()


def guarantees(scenario: Scenario, rates: Vector, region: Region) -> list[Guarantee]:
    """Return the guarantee of the scenario's own policy with its options, then of every other policy with its
    defaults."""
    own = scenario.policy.name
    mine = guarantee(scenario, rates, region, make_policy(own, **scenario.policy.options))
    others = [policy for name, policy in POLICIES.items() if name != own]
    return [replace(mine, policy=own), *(guarantee(scenario, rates, region, policy()) for policy in others)]


def proven_share(region: Region, claim: MaxWeight) -> tuple[float | None, str]:
    """(intensity below which a policy of this claim is stable, which theorem says so or why none does).

    The workload is not looked at: this is about beta, the solver and what the policy does otherwise.
    """
    share, source, route = _reach(region, claim)
    broken = _broken([*route, *claim.assumptions])
    return (None, _needs(source, broken)) if broken else (share, source)


def _outside(scenario: Scenario, region: Region, policy: Policy) -> Guarantee:
    if scenario.workload.trace is not None:
        # rounding jobs up to their types may be all that puts a trace outside
        why = "the average load, every job rounded up to its type, is outside the capacity region"
        if policy.actual:
            why += "; packing by actual demand may still carry it"
            return Guarantee(policy.label, Verdict.NOT_CERTIFIED, why, "section 2")
        why += ": packed by type, queues grow if it goes on like this"
        return Guarantee(policy.label, Verdict.IMPOSSIBLE, why, "section 2")
    where = "on the boundary of" if abs(region.lower - 1) <= MARGIN else "outside"
    why = f"the load is {where} the capacity region, so no policy keeps the queues bounded"
    return Guarantee(policy.label, Verdict.IMPOSSIBLE, why, "section 2")


def _judge(
    policy: Policy, region: Region, share: float, source: str, assumptions: Sequence[Assumption]
) -> Guarantee:
    zeta, told = region.intensity, tuple(assumptions)
    if broken := _broken(told):
        return Guarantee(policy.label, Verdict.NOT_CERTIFIED, _needs(source, broken), source, None, told)
    if zeta >= share * (1 - MARGIN):
        why = f"proven below intensity {share:.4g} in this direction; the load is at {zeta:.4g}"
        return Guarantee(policy.label, Verdict.NOT_CERTIFIED, why, source, share, told)
    why = f"{source}: stable below intensity {share:.4g}; the load is at {zeta:.4g}"
    if any(one.holds is None for one in told):
        return Guarantee(policy.label, Verdict.ASSUMED, why, source, share, told)
    return Guarantee(policy.label, Verdict.CERTIFIED, why, source, share, told)


def _broken(assumptions: Sequence[Assumption]) -> Assumption | None:
    return next((one for one in assumptions if one.holds is False), None)


def _needs(source: str, broken: Assumption) -> str:
    return f"{source} needs: {broken.text}" + (f" ({broken.detail})" if broken.detail else "")


# Theorem 1


def _reach(region: Region, claim: MaxWeight) -> tuple[float, str, list[Assumption]]:
    """(intensity below which the policy is stable, by which theorem, what that theorem asks of beta and the solver)."""
    columns, beta = region.columns, claim.beta
    solvers = [make_solver(claim.solver, columns.pricings[c].space, epsilon=claim.epsilon) for c in columns.classes]
    limit = claim.limit if 0 < beta < 1 or claim.sublinear else replace(claim.limit, holds=False)
    names = ", ".join(sorted({solver.name for solver in solvers}))
    whole = [
        Assumption("every search for a configuration ends", None, f"solver {names}: it is cut off after {MOST_NODES:,} nodes")
    ] if any(solver.kind == BRANCH_AND_BOUND for solver in solvers) else []  # fmt: skip
    if not all(solver.fixed_set for solver in solvers):
        r = min(solver.r for solver in solvers)
        if claim.sublinear:
            taken = Assumption("beta is taken of r", True, f"solver {names}: r = {r:.4g}, beta tends to r")
            return r * r, f"Theorem 1 with sublinear hysteresis{claim.note}", [limit, taken, *whole]
        below = Assumption("beta < r", beta < r, f"solver {names}: r = {r:.4g}, limit of beta {beta:.4g}")
        return r * beta, f"Theorem 1{claim.note}", [limit, below, *whole]
    subset = _intensity_in_subset(region, solvers)
    ratio = min(1.0, region.intensity / subset) if subset > 0 else 1.0
    fixed = Assumption(
        "the solver is an argmax over a fixed set of configurations",
        True,
        f"solver {names}: its region reaches {ratio:.4g} of the capacity region in this direction",
    )
    theorem = "Theorem 1 with sublinear hysteresis" if claim.sublinear else "Theorem 1, corollary 3"
    return beta * ratio, f"{theorem}{claim.note}", [limit, fixed, *whole]


def _intensity_in_subset(region: Region, solvers: list[Solver]) -> float:
    """Return the intensity of the load in C^; of a solver without a table, which searches all configurations, C^ is C."""
    columns = region.columns
    if all(solver.r == 1 for solver in solvers):
        return region.intensity
    pricings = list(columns.pricings)
    for c, solver in zip(columns.classes, solvers, strict=True):
        if solver.table is not None:
            pricings[c] = ListedPricing(solver.space, solver.table)
    return locate(region.rho, Columns(pricings, columns.counts.tolist())).intensity

"""What `Capacity` says, in a few plain sentences: can it be carried, what limits it, what is proven, what else fits."""

from __future__ import annotations

import numpy as np

from slotwise.display.numbers import brief, number
from slotwise.model import per_time, span, with_unit
from slotwise.region.region import Region
from slotwise.theory.capacity import Capacity
from slotwise.theory.guarantee import Guarantee, Verdict

FULL = 0.98  # a resource that is so full when the load is as large as it can be is the bottleneck
MOST_NAMED = 4
WORTH_TELLING = 0.01  # a lower bound on the mean queue below this is no news


def answer(capacity: Capacity) -> list[str]:
    """Return the answer: one sentence a line, the most important first."""
    lines = [carries(capacity), peak(capacity), bottleneck(capacity)]
    if capacity.region.supportable is not False or capacity.actual is not None:
        lines += [proven(capacity), room(capacity)]
    if (least := capacity.bound.mean_queue) >= WORTH_TELLING and np.isfinite(least):
        lines.append(f"No policy that does not know service times can have a mean queue below {brief(least)}.")
    return [line for line in lines if line]


def carries(capacity: Capacity) -> str:
    """Return whether the load can be carried, and by how much it may grow."""
    region = capacity.region
    if capacity.actual is not None and region.supportable is False:
        return (
            f"Rounded up to its types, this load is outside the capacity region (intensity {_at(region)}):"
            " no policy that packs by type carries it if it goes on like this."
        )
    if not np.isfinite(region.intensity):
        return "No policy can carry this load: a type that arrives fits no server that is there."
    if region.supportable is None:
        return f"Too close to call: the intensity of this load is {_at(region)}, and 1 is the most for any policy."
    if region.supportable:
        return (
            f"The cluster carries this load with {region.headroom:.3g} times as much to spare"
            if region.headroom >= 3
            else f"The cluster carries this load with {region.headroom:.1%} to spare"
        ) + f" (intensity {_at(region)}; 1 is the most for any policy)."
    if abs(region.intensity - 1) <= 1e-9:
        return (
            "This load is exactly on the boundary: the least more is too much, and no policy keeps queues bounded."
        )
    shrink = f"{-region.headroom:.1%}"
    return (
        f"No policy can carry this load (intensity {_at(region)}): it must shrink by {shrink}, or the cluster grow."
    )


def peak(capacity: Capacity) -> str:
    """Say, for rates that rise and fall, how high the load gets and what that means."""
    found, unit = capacity.peak, capacity.scenario.time_unit
    if found is None:
        return ""
    text = (
        f"That is the mean; rates change over {span(f'{found.period:g}', unit)}, and are highest from {found.start:.4g} to"
        f" {with_unit(f'{found.end:.4g}', unit)}: intensity {found.rates:.4g}, or {found.in_service:.4g} of the jobs then in service."
    )
    if capacity.region.supportable and found.in_service >= 1:
        return f"{text} Queues build up then and are worked off later."
    return text


def _at(region: Region) -> str:
    return f"{region.intensity:.4g}" if region.exact else f"between {region.lower:.5g} and {region.intensity:.5g}"


def fills(capacity: Capacity) -> dict[str, float]:
    """Return the share of each resource that would be in use if the whole mix grew to the most that can be carried."""
    cluster, region = capacity.scenario.cluster, capacity.region
    if not (np.isfinite(region.intensity) and region.intensity > 0):
        return {}
    asked = region.rho @ np.array([[float(d) for d in t.demand] for t in capacity.scenario.types])
    there = np.array([server.count for server in cluster.servers]) @ np.array(
        [[float(c) for c in server.capacity] for server in cluster.servers]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(there > 0, asked / there, 0.0) / region.intensity
    return dict(zip(cluster.resources, map(float, share), strict=True))


def bottleneck(capacity: Capacity) -> str:
    """Return what limits the load: a resource, or how the jobs fit together; and which types take most of it."""
    full = fills(capacity)
    if not full:
        return ""
    resource, share = max(full.items(), key=lambda item: item[1])
    used = capacity.region.prices * capacity.region.rho
    used = used / used.sum() if used.sum() > 0 else used
    names = [job_type.name for job_type in capacity.scenario.types]
    order = [int(j) for j in np.argsort(-used, kind="stable") if used[j] >= 0.005]
    takes = ", ".join(f"{names[j]} {used[j]:.0%}" for j in order[:MOST_NAMED])
    more = ", ..." if len(order) > MOST_NAMED else ""
    if share >= FULL:
        return f"{resource} is the bottleneck; of the load on it: {takes}{more}."
    return (
        f"The bottleneck is how jobs fit together: at most {share:.0%} of the {resource} can be in use;"
        f" of the load on it: {takes}{more}."
    )


def proven(capacity: Capacity) -> str:
    """Return what is proven of the scenario's own policy, and of which others."""
    own, *others = capacity.guarantees
    also = [
        one.policy
        + ("" if one.share is None else f" up to {one.share:.4g}")
        + (" (under assumptions)" if one.verdict is Verdict.ASSUMED else "")
        for one in others
        if one.verdict in (Verdict.CERTIFIED, Verdict.ASSUMED)
    ]
    if own.verdict is Verdict.CERTIFIED:
        first = f"{own.policy} is proven to keep queues bounded{_up_to(own)}"
        return f"{first}; {_list(also)}, too." if also else f"{first}; no other policy is."
    if own.verdict is Verdict.ASSUMED:
        first = (
            f"{own.policy} is proven to keep queues bounded{_up_to(own)}, under assumptions that cannot be checked"
        )
        return f"{first}. Also proven: {_list(also)}." if also else f"{first}."
    first = f"{own.policy} is not proven here: {own.why}"
    return f"{first}. Proven: {_list(also)}." if also else f"{first}."


def _up_to(one: Guarantee) -> str:
    return f" up to intensity {one.share:.4g}" if one.share is not None else ""


def _list(names: list[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)


def room(capacity: Capacity) -> str:
    """Return how many more jobs of one type alone can be carried."""
    if capacity.region.supportable is not True:
        return ""
    more = []
    for job_type, head in zip(capacity.scenario.types, capacity.headroom, strict=True):
        about = "" if head.limit - head.more <= 1e-6 * max(1.0, head.limit) else "at least "
        more.append(f"{about}{number(head.more / job_type.mean_service, 3)} {job_type.name}")
    rest = f", ... ({len(more) - MOST_NAMED} more types)" if len(more) > MOST_NAMED else ""
    per = per_time(capacity.scenario.time_unit)
    return f"Room for more arrivals of one type alone, {per}: {', '.join(more[:MOST_NAMED])}{rest}."

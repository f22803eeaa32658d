"""Lower bounds on the mean queue that hold for every non-preemptive policy that does not know service times.

(a) At most n = sum over servers of max_k sum_j k_j jobs are in service at once. With equal service laws the jobs
    are interchangeable, so E[Q] >= that of one queue for n servers: Erlang C when arrivals are Poisson and services
    exponential. The same holds for each type alone, with n_j = the most of it that fits, and those bounds add up.

(b) For prices w >= 0 the work V = sum of w_j * remaining service over all jobs falls at rate W = sum over servers of
max_k w.k at most. So E[V] >= that of a server of speed W, by Pollaczek and Khinchine. Of V, jobs in service hold sum_j
w_j lambda_j E[S_j^2] / 2, waiting ones sum_j w_j E[S_j] E[Q_j], as no policy knows which are long:

    sum_j w_j E[S_j] E[Q_j]  >=  nu E[B^2] / (2 (W - w.rho)) - sum_j w_j lambda_j E[S_j^2] / 2,

    where requests come at rate nu and bring the work B. For single jobs nu E[B^2] = sum_j lambda_j w_j^2 E[S_j^2];
    for batches v with probability p_v, E[B^2] = sum_v p_v ((sum_j v_j w_j E[S_j])^2 + sum_j v_j w_j^2 Var S_j).
    Dividing by max_j w_j E[S_j] bounds E[Q]. Every w gives a true bound, so the search for the best one need not be
    exact.

    Types that share no server with others (by their requirements, or their sizes) are a pool apart: each pool is bounded by
    the better of (a) and (b), and the pools' bounds add up.

(c) SRPT, for one given sequence of jobs: see `srpt`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slotwise.model import Scenario
from slotwise.model.laws import BatchArrivals
from slotwise.region.pricing import Vector, total_value
from slotwise.region.ray import Columns
from slotwise.region.region import locate
from slotwise.theory.erlang import mean_queue
from slotwise.theory.load import columns_of
from slotwise.workloads.laws import (
    arrival_law,
    batch_vectors,
    effective_rates,
    is_exponential,
    is_poisson,
    second_moment,
    service_law,
)

EVALUATIONS = 400  # How many price vectors the search for bound (b) tries.


@dataclass(frozen=True)
class Bound:
    """E[Q] >= mean_queue, where the assumptions hold."""

    mean_queue: float
    kind: str
    """erlang-c, erlang-c-by-type, workload (with + between those of several pools), unstable (outside the region) or none"""
    assumptions: tuple[str, ...]
    prices: Vector | None = None
    """of the `workload` bound"""


SIZE_BLIND = "the policy does not know service times (not for clairvoyant ones)"
NOTHING = Bound(0.0, "none", ("no bound above 0 is known for this load and these laws",))


def best_lower_bound(scenario: Scenario, rates: Vector, columns: Columns | None = None) -> Bound:
    """Return the largest of the bounds that are valid for this scenario at these arrival rates (jobs per unit time)."""
    changing = changes_of(scenario)
    if changing:
        return Bound(0.0, "none", (changing,))
    if scenario.workload.trace is not None:
        return Bound(0.0, "none", ("a trace has no law; a run of it is bounded path by path (`simulate` does so)",))
    if columns is None:
        columns = columns_of(scenario)
    means = np.array([job_type.mean_service for job_type in scenario.types])
    region = locate(rates * means, columns)
    if region.supportable is False:
        return Bound(
            math.inf, "unstable", ("the load is outside the capacity region, so queues grow without bound",)
        )
    if scenario.period is not None:
        return Bound(0.0, "none", ("rates change over time, and no bound is known for that",))
    moments = workload_moments(scenario, rates)
    found = []
    pools = pools_of(rates, columns)
    for pool in pools:
        bounds, here = [NOTHING], np.where(pool, rates, 0.0)
        if markovian(scenario, here):
            bounds += [by_count(here, means, columns), by_type(here, means, columns)]
        if moments is not None:
            bounds.append(by_workload(moments.within(pool), columns, region.prices))
        best = max(bounds, key=lambda bound: bound.mean_queue)
        if len(pools) > 1 and best is not NOTHING:
            names = [scenario.types[j].name for j in np.flatnonzero(pool)]
            of = f"of {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}: "
            best = replace(best, assumptions=(of + best.assumptions[0], *best.assumptions[1:]))
        found.append(best)
    return _added(found)


def pools_of(rates: Vector, columns: Columns) -> list[NDArray[np.bool_]]:
    """Return the types that arrive, sorted into pools (one mask each): no server can hold types of two pools."""
    busy = rates > 0
    left = [(columns.pricings[c].space.counts > 0) & busy for c in columns.classes]
    pools = []
    while left:
        pool, grown = left.pop(), True
        while grown:
            touching = [held for held in left if (held & pool).any()]
            left = [held for held in left if not (held & pool).any()]
            pool, grown = np.logical_or.reduce([pool, *touching]), bool(touching)
        if pool.any():
            pools.append(pool)
    return pools


def _added(found: list[Bound]) -> Bound:
    """Return the bound on the queues of all pools together."""
    useful = [bound for bound in found if bound.mean_queue > 0]
    if len(useful) < 2:
        return max(found, key=lambda bound: bound.mean_queue, default=NOTHING)
    return Bound(
        sum(bound.mean_queue for bound in useful),
        " + ".join(dict.fromkeys(bound.kind for bound in useful)),
        tuple(dict.fromkeys(text for bound in useful for text in bound.assumptions)),
    )


def changes_of(scenario: Scenario) -> str:
    """Return why the cluster changes during a run, or nothing."""
    if any(event.action == "join" for event in scenario.cluster.events):
        return "servers join during the run, so the capacity is not that of the start"
    if any(event.action == "fail" for event in scenario.cluster.events) or any(
        server.failures is not None for server in scenario.cluster.servers
    ):
        return "servers fail during the run, so jobs may be lost or served twice"
    return ""


def markovian(scenario: Scenario, rates: Vector) -> bool:
    """Return whether all jobs arrive as a Poisson process and have exponential service times."""
    busy = np.flatnonzero(rates > 0)
    return all(
        is_poisson(arrival_law(scenario, j)) and is_exponential(service_law(scenario, j)) for j in busy.tolist()
    )


def by_count(rates: Vector, means: Vector, columns: Columns) -> Bound:
    """(a) for all types together; Poisson arrivals and exponential services taken for granted."""
    busy = rates > 0
    if not np.allclose(means[busy], means[busy][0], rtol=1e-12, atol=0):
        return NOTHING
    n = math.floor(total_value(columns.pricings, columns.counts.tolist(), busy.astype(np.float64)) + 1e-6)
    return Bound(
        mean_queue(n, float(rates @ means)),
        "erlang-c",
        (f"Poisson arrivals, equal exponential service times, at most {n} jobs in service at once", SIZE_BLIND),
    )


def by_type(rates: Vector, means: Vector, columns: Columns) -> Bound:
    """(a) for each type alone, added up; Poisson arrivals and exponential services taken for granted."""
    most = sum(int(columns.counts[c]) * columns.pricings[c].space.counts for c in columns.classes)
    total = sum(
        mean_queue(int(n), float(a)) for n, a in zip(np.atleast_1d(most), rates * means, strict=True) if a > 0
    )
    return Bound(
        total, "erlang-c-by-type", ("Poisson arrivals and exponential service times, each type alone", SIZE_BLIND)
    )


@dataclass(frozen=True)
class WorkloadMoments:
    """What bound (b) needs of the laws: nu E[B^2] = sum_ij w_i requests_ij w_j, a quadratic form in the prices."""

    rho: Vector
    means: Vector
    residual: Vector
    """lambda_j E[S_j^2] / 2, the remaining service of the type-j jobs in service"""
    requests: Vector
    """shape (J, J)"""

    def within(self, pool: NDArray[np.bool_]) -> WorkloadMoments:
        """Return the moments of the types of a pool alone."""
        return WorkloadMoments(
            self.rho * pool, self.means, self.residual * pool, self.requests * np.outer(pool, pool)
        )


def workload_moments(scenario: Scenario, rates: Vector) -> WorkloadMoments | None:
    """Return the moments, or None where arrivals are not (batch) Poisson or a service time has no second moment."""
    means = np.array([job_type.mean_service for job_type in scenario.types])
    second = np.array([second_moment(service_law(scenario, j), float(m)) for j, m in enumerate(means)])
    busy = rates > 0
    if not np.isfinite(second[busy]).all():
        return None
    second[~busy] = 0.0
    arrivals = scenario.workload.arrivals
    if isinstance(arrivals, BatchArrivals):
        scale = float(rates.sum() / effective_rates(scenario).sum())
        requests = np.zeros((len(means), len(means)))
        for batch, v in zip(arrivals.batches, batch_vectors(scenario, arrivals), strict=True):
            spread = np.diag(v * np.maximum(0.0, second - means**2))
            requests += arrivals.rate * scale * batch.probability * (np.outer(v * means, v * means) + spread)
    elif all(is_poisson(arrival_law(scenario, j)) for j in np.flatnonzero(busy).tolist()):
        requests = np.diag(rates * second)
    else:
        return None
    return WorkloadMoments(rates * means, means, rates * second / 2, requests)


def workload_bound(prices: Vector, moments: WorkloadMoments, columns: Columns) -> float:
    """(b) at these prices: a true lower bound on E[Q], if perhaps a poor (or negative) one."""
    unit = float(np.max(prices * moments.means))
    if unit <= 0:
        return 0.0
    spare = total_value(columns.pricings, columns.counts.tolist(), prices) - float(prices @ moments.rho)
    if spare <= 0:
        return 0.0  # rounding, at the very boundary
    work = float(prices @ moments.requests @ prices) / (2 * spare)
    return (work - float(prices @ moments.residual)) / unit


def by_workload(moments: WorkloadMoments, columns: Columns, bottleneck: Vector) -> Bound:
    """(b), maximised over prices: from several starts, then price by price with shrinking steps."""
    busy = moments.rho > 0
    starts = [bottleneck, 1 / moments.means]
    if len(busy) <= 20:
        starts += list(np.eye(len(busy))[busy])
    for c in columns.classes:
        space = columns.pricings[c].space
        if space.demand is not None and space.capacity is not None:
            # worth something only where the class may hold the type: a pool of servers apart has prices of its own
            starts += [np.where(space.counts > 0, space.demand[:, r], 0.0) for r in range(len(space.capacity))]
    starts = [np.where(busy, start, 0.0) for start in starts if (start[busy] > 0).any()]
    left = max(EVALUATIONS, 2 * len(starts))

    def value(prices: Vector) -> float:
        return workload_bound(prices, moments, columns)

    scored = [(value(start / max(1e-300, float(start.max()))), i) for i, start in enumerate(starts)]
    left -= len(starts)
    best, at = max(scored)
    prices = starts[at] / float(starts[at].max())
    step = 2.0
    while step > 1.01 and left > 0:
        improved = False
        for j in np.flatnonzero(busy):
            for factor in (step, 1 / step):
                trial = prices.copy()
                trial[j] = trial[j] * factor if trial[j] > 0 else (step - 1) * 0.1
                here = value(trial)
                left -= 1
                if here > best:
                    best, prices, improved = here, trial / float(trial.max()), True
        if not improved:
            step = math.sqrt(step)
    assumption = "(batch) Poisson arrivals, service times with a second moment"
    return Bound(max(0.0, best), "workload", (assumption, SIZE_BLIND), prices)

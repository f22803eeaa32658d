"""The observed load: what has arrived in the last hour, where that lies in the capacity region of the servers that are up, and what is proven of the policy.

For type j: lambda_j is the number of arrivals over the length of the window, 1/mu_j the mean service time of jobs that
ended in it, and rho_j = lambda_j / mu_j. Running jobs count with their age in the mean service time: 1/mu_j =
(durations of ended jobs + ages of running jobs) / ended jobs. Otherwise types whose long jobs have not ended would be
underestimated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from slotwise.errors import SlotwiseError
from slotwise.live.store.protocol import Store
from slotwise.model import Cluster, JobType, Scenario
from slotwise.model.scenario import PolicyChoice
from slotwise.region.region import locate
from slotwise.scheduling import Policy
from slotwise.theory.guarantee import guarantee
from slotwise.theory.load import columns_of, scaled_rates

WINDOW_SECONDS = 3600.0  # of which the load is observed
LEAST_SECONDS = 60.0  # a rate over a shorter time says little
LEAST_ENDED = 3  # ended jobs of a type before its mean service time counts as known


class Seen(NamedTuple):
    """One type in the window."""

    arrivals: int
    ended: int
    service: float | None
    """mean service time in seconds; None while too few jobs have ended"""
    wait: float | None
    """mean wait in seconds of the jobs that were placed"""


class Load(NamedTuple):
    """Where the observed load lies."""

    window: float
    seen: dict[str, Seen]
    intensity: float | None
    """1 is the most that any policy can carry; None: not known yet"""
    headroom: float | None
    """by which share the load may grow before no policy can carry it; negative: it is outside"""
    outside: bool
    share: float | None
    """the intensity up to which the policy is proven to be stable; None: nothing is proven"""
    verdict: str
    why: str


def seen(store: Store, now: float, window: float = WINDOW_SECONDS) -> tuple[float, dict[str, Seen]]:
    """Return the length of the window (shorter while the store is young) and what was seen of each type."""
    first = store.ask("SELECT min(submitted) FROM job")[0][0]
    since = max(now - window, now if first is None else first)
    rows = store.ask(
        "SELECT type, count(CASE WHEN submitted >= ? THEN 1 END), count(CASE WHEN ended >= ? AND started IS NOT NULL THEN 1 END),"
        " sum(CASE WHEN started IS NOT NULL THEN coalesce(ended, ?) - started END),"
        " count(CASE WHEN placed >= ? THEN 1 END), sum(CASE WHEN placed >= ? THEN placed - submitted END)"
        " FROM job WHERE ended IS NULL OR ended >= ? GROUP BY type",
        [since, since, now, since, since, since],
    )
    found = {}
    for name, arrivals, ended, busy, placed, waited in rows:
        service = float(busy) / ended if ended >= LEAST_ENDED and busy else None
        found[name] = Seen(int(arrivals), int(ended), service, float(waited) / placed if placed else None)
    return now - since, found


def observe(
    store: Store, cluster: Cluster, types: Sequence[JobType], policy: Policy, up: Counter[str], now: float
) -> Load:
    """Return where the load lies, for the servers that are up: `up` counts them by class."""
    window, found = seen(store, now)
    unknown = Load(window, found, None, None, False, None, "unknown", "")
    if window < LEAST_SECONDS:
        return unknown._replace(why="the service has seen jobs for less than a minute")
    arriving = {name: one for name, one in found.items() if one.arrivals}
    unmeasured = sorted(name for name, one in arriving.items() if one.service is None)
    if unmeasured:
        return unknown._replace(why=f"too few jobs have ended of type {', '.join(unmeasured[:3])}")
    loaded = [
        one.model_copy(
            update={
                "rate": arriving[one.name].arrivals / window,
                "mean_service": max(1e-6, arriving[one.name].service or 0.0),
            }
        )
        for one in types
        if one.name in arriving
    ]
    classes = [one.model_copy(update={"count": up[one.name]}) for one in cluster.servers if up[one.name]]
    if not loaded or not classes:
        return unknown._replace(why="no job has arrived in the last hour" if not loaded else "no server is up")
    try:
        scenario = Scenario(
            name="observed",
            cluster=cluster.model_copy(update={"servers": tuple(classes), "events": ()}),
            types=tuple(loaded),
            policy=PolicyChoice(name=policy.called),
        )
        rates = scaled_rates(scenario)
        region = locate(rates * [one.mean_service for one in loaded], columns_of(scenario))
        proven = guarantee(scenario, rates, region, policy)
    except SlotwiseError as error:
        return unknown._replace(why=str(error))
    intensity = float(region.intensity)
    return Load(
        window,
        found,
        intensity if math.isfinite(intensity) else None,
        1.0 / intensity - 1.0 if math.isfinite(intensity) and intensity > 0 else None,
        region.supportable is False,
        proven.share,
        proven.verdict.value,
        proven.why,
    )

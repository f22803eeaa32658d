"""All that theory says about a scenario, in one record: what `slotwise capacity` shows."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slotwise._version import __version__
from slotwise.display.notebook import to_pandas
from slotwise.model import Overrides, Scenario, changed, load_scenario
from slotwise.region.pricing import Vector
from slotwise.region.region import Headroom, Region, headroom_by_type, locate
from slotwise.theory.bounds import Bound, best_lower_bound
from slotwise.theory.guarantee import Guarantee, guarantees
from slotwise.theory.load import actual_load, columns_of, scaled_rates, with_load
from slotwise.theory.peak import Peak, peak_of

if TYPE_CHECKING:
    import pandas
    import polars as pl

    from slotwise.display.drawing import Picture


@dataclass(frozen=True, repr=False)
class Capacity:
    """Where a load lies, what limits it, how much more fits, and which policies are proven to carry it."""

    scenario: Scenario
    rates: Vector
    region: Region
    headroom: list[Headroom]
    guarantees: list[Guarantee]
    bound: Bound
    peak: Peak | None = None
    """of rates that rise and fall: the intensity when it is highest (`region` has the mean)"""
    actual: dict[str, float] | None = None
    """of a trace: share of each resource that is asked for, before jobs are rounded up to their types"""

    @property
    def answer(self) -> list[str]:
        """Can it be carried, what limits it, what is proven, what else fits: one sentence a line."""
        from slotwise.theory.answer import answer  # which speaks of this class

        return answer(self)

    def by_type(self) -> pl.DataFrame:
        """Return a row for each type: arrivals, load, its share of the bottleneck, and how many more fit alone."""
        from slotwise.theory import showing

        return showing.by_type(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return `by_type` for pandas."""
        return to_pandas(self.by_type())

    def plot(self) -> Picture:
        """Draw how full each resource is, and how full it can be."""
        from slotwise.theory import showing

        return showing.plot(self)

    def _repr_html_(self) -> str:
        from slotwise.theory import showing

        return showing.html(self)

    def __str__(self) -> str:
        return "\n".join([self.scenario.name, *self.answer])

    def __repr__(self) -> str:
        return f"<Capacity of {self.scenario.name}: {self.answer[0]}>"

    def holders(self, j: int) -> list[str]:
        """Return the server classes that can hold type j: it fits, and they meet its requirements."""
        classes = zip(self.scenario.cluster.servers, self.region.columns.pricings, strict=True)
        return [server.name for server, pricing in classes if pricing.space.most(j) > 0]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for programs, with null for infinite numbers."""
        names = [job_type.name for job_type in self.scenario.types]
        region = self.region
        return {
            "scenario": self.scenario.name,
            "version": __version__,
            **self.scenario.units,
            "intensity": finite(region.intensity),
            "intensity_limits": [finite(region.lower), finite(region.intensity)],
            "exact": region.exact,
            "supportable": region.supportable,
            "headroom": finite(region.headroom),
            "peak": self.peak.as_dict() if self.peak is not None else None,
            "trace": self.scenario.workload.trace,
            "actual_load": self.actual,
            "types": {
                name: {
                    "rate": float(self.rates[j]),
                    "load": float(region.rho[j]),
                    "requires": {key: list(values) for key, values in job_type.requires.items()},
                    "servers": self.holders(j),
                    "price": float(region.prices[j]),
                    "share_of_bottleneck": float(region.prices[j] * region.rho[j]),
                    "headroom": {
                        "load": room.more,
                        "load_limit": room.limit,
                        "rate": room.more / job_type.mean_service,
                    },
                }
                for j, (name, job_type, room) in enumerate(
                    zip(names, self.scenario.types, self.headroom, strict=True)
                )
            },
            "witness": [
                {
                    "servers": server.name,
                    "count": server.count,
                    "mix": [
                        {
                            "share": float(share),
                            "configuration": {name: int(k) for name, k in zip(names, row, strict=True) if k},
                        }
                        for row, share in zip(mix.configurations, mix.shares, strict=True)
                    ],
                }
                for server, mix in zip(self.scenario.cluster.servers, region.witness, strict=False)
            ],
            "guarantees": [asdict(one) for one in self.guarantees],
            "lower_bound": {
                "mean_queue": finite(self.bound.mean_queue),
                "kind": self.bound.kind,
                "assumptions": list(self.bound.assumptions),
            },
        }


def assess(scenario: Scenario) -> Capacity:
    """Assess everything in one pass over the cluster's configurations."""
    scenario = with_load(scenario)
    columns = columns_of(scenario)
    rates = scaled_rates(scenario, columns)
    region = locate(rates * [job_type.mean_service for job_type in scenario.types], columns)
    return Capacity(
        scenario=scenario,
        rates=rates,
        region=region,
        headroom=headroom_by_type(region),
        guarantees=guarantees(scenario, rates, region),
        bound=best_lower_bound(scenario, rates, columns),
        peak=peak_of(scenario, rates, columns) if np.isfinite(region.intensity) else None,
        actual=actual_load(scenario) if scenario.workload.trace is not None else None,
    )


def capacity(scenario: str | Path | Scenario, overrides: Overrides = ()) -> Capacity:
    """Assess a scenario, given as a path, a shipped name or a `Scenario`."""
    if isinstance(scenario, Scenario):
        return assess(changed(scenario, overrides) if overrides else scenario)
    return assess(load_scenario(scenario, overrides))


def finite(value: float) -> float | None:
    """Return the value, or None if JSON has no number for it."""
    return float(value) if math.isfinite(value) else None

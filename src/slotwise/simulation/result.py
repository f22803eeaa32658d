"""The result of several replications of one policy: figures with their uncertainty, as an object, a table, a data frame, JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from slotwise.errors import InputError
from slotwise.looks.notebook import to_pandas
from slotwise.model import Scenario
from slotwise.simulation import showing
from slotwise.simulation.drift import STRETCHES, Drift, stable
from slotwise.simulation.histogram import EDGES, quantiles
from slotwise.simulation.jobrecord import Rows, job_frame, job_trace
from slotwise.simulation.measurements import PROBABILITIES, Measurements, add_up, wait_figures
from slotwise.simulation.statistics import Interval, batch_means, paired_difference, student_interval
from slotwise.theory.bounds import Bound

if TYPE_CHECKING:
    import pandas
    import polars as pl  # slow to import; the methods that make data frames do it themselves

    from slotwise.looks.drawing import Picture
    from slotwise.workloads.traces import Trace


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What a policy did on a scenario, over all replications."""

    scenario: Scenario
    policy: str
    type_names: tuple[str, ...]
    runs: tuple[Measurements, ...]
    offered: float
    """sum rho_j: the mean number of jobs in service of every stable run"""
    bound: Bound
    """no policy that does not know service times can have a smaller mean queue"""

    @cached_property
    def mean_queue(self) -> Interval:
        """Time-averaged number of waiting jobs; the interval comes from the replications, or from batches of one."""
        if len(self.runs) == 1:
            run = self.runs[0]
            kept = run.series[run.series[:, 0] >= run.series[-1, 0] - run.measured, 1] if len(run.series) else []
            if len(kept) >= 64:
                inner = batch_means(kept).interval
                if inner.low is not None and inner.high is not None:
                    half = (inner.high - inner.low) / 2
                    return Interval(run.mean_queue, run.mean_queue - half, run.mean_queue + half)
        return student_interval([run.mean_queue for run in self.runs])

    @cached_property
    def mean_queue_by_type(self) -> dict[str, Interval]:
        """The same for each type."""
        return {
            name: student_interval([float(run.mean_queue_by_type[j]) for run in self.runs])
            for j, name in enumerate(self.type_names)
        }

    @cached_property
    def mean_wait(self) -> Interval:
        """Mean time from arrival to start."""
        return student_interval([run.mean_wait for run in self.runs])

    @cached_property
    def wait(self) -> dict[str, float | None]:
        """mean, p50, p95, p99 and max over the jobs of all replications."""
        sums = add_up(np.concatenate([run.wait_sums for run in self.runs]))
        return wait_figures(sums, sum((run.wait_bins.sum(axis=0) for run in self.runs), np.zeros(1, np.int64)))

    @cached_property
    def wait_by_type(self) -> dict[str, dict[str, float | None]]:
        """The same for each type."""
        return {
            name: wait_figures(
                add_up(np.stack([run.wait_sums[j] for run in self.runs])),
                sum((run.wait_bins[j] for run in self.runs), np.zeros(1, np.int64)),
            )
            for j, name in enumerate(self.type_names)
        }

    @cached_property
    def slowdown(self) -> dict[str, float | None]:
        """(wait + service) / service; in the mean very short jobs count as 1 % of the mean service time."""
        bins = sum((run.slowdown_bins for run in self.runs), np.zeros(1, np.int64))
        values = quantiles(bins, EDGES, list(PROBABILITIES.values()))
        return {"mean": self._mean("slowdown_mean"), **dict(zip(PROBABILITIES, values, strict=True))}

    @cached_property
    def utilisation(self) -> dict[str, float]:
        """Share of each resource that jobs really used."""
        means = np.mean([run.utilisation for run in self.runs], axis=0)
        return dict(zip(self.scenario.cluster.resources, map(float, means), strict=True))

    @cached_property
    def fragmentation(self) -> dict[str, float | None]:
        """Share of each resource that was free while somebody waited; None where nobody ever did."""
        rows = np.array([run.idle_while_waiting for run in self.runs])
        means = [
            float(np.mean(column[~np.isnan(column)])) if (~np.isnan(column)).any() else None for column in rows.T
        ]
        return dict(zip(self.scenario.cluster.resources, means, strict=True))

    @cached_property
    def drift(self) -> Drift:
        """The statistical verdict on whether the queue grows without bound; a very short run shows no growth."""
        if min(len(run.series) for run in self.runs) < STRETCHES:
            return Drift(True, 0.0, 1.0, 0.0, True)
        steps = [float(run.series[1, 0] - run.series[0, 0]) for run in self.runs]
        # a step doubles with the length of a run, so runs that differ a little may differ by a factor of two
        verdict = stable(
            [run.queue_series[:: round(max(steps) / step)] for run, step in zip(self.runs, steps, strict=True)]
        )
        return verdict._replace(slope=verdict.slope / max(steps))

    @property
    def stable(self) -> bool:
        """Whether no growth without bound was found."""
        return bool(self.drift.stable)

    @property
    def in_service(self) -> float:
        """Mean number of running jobs; `offered` where the run is stable and long (Little)."""
        return self._mean("in_service")

    @property
    def events_per_second(self) -> float:
        """Speed of the simulator, per core: the median over the replications, of which the first may have compiled."""
        return float(np.median([run.events / run.seconds for run in self.runs]))

    def _mean(self, name: str) -> float:
        return float(np.mean([getattr(run, name) for run in self.runs]))

    def as_dict(self) -> dict[str, Any]:
        """The object that `slotwise simulate --json` prints for this policy."""
        return {
            "policy": self.policy,
            "replications": len(self.runs),
            "events": self.runs[0].events,
            "events_per_second": self.events_per_second,
            "mean_queue": {
                "mean": self.mean_queue.mean,
                "ci95": [self.mean_queue.low, self.mean_queue.high],
                "runs": [run.mean_queue for run in self.runs],
            },
            "mean_queue_by_type": {
                name: {"mean": interval.mean, "ci95": [interval.low, interval.high]}
                for name, interval in self.mean_queue_by_type.items()
            },
            "wait": {**self.wait, "ci95": [self.mean_wait.low, self.mean_wait.high]},
            "wait_by_type": self.wait_by_type,
            "slowdown": self.slowdown,
            "utilisation": self.utilisation,
            "fragmentation": self.fragmentation,
            "in_service": self.in_service,
            "offered": self.offered,
            "stalled_fraction": self._mean("stalled_fraction"),
            "stalls": round(self._mean("stalls")),
            "resets": round(self._mean("resets")),
            "overtakes": round(self._mean("overtakes")),
            "lost_jobs": round(self._mean("lost_jobs")),
            "lost_work": self._mean("lost_work"),
            "stable": self.stable,
            "drift": {"per_unit_time": self.drift.slope, "p_value": self.drift.p_value},
            "final_queue": [int(run.final_queue.sum()) for run in self.runs],
            "lower_bound": {"mean_queue": self.bound.mean_queue, "kind": self.bound.kind},
            "solver": self.runs[0].solver,
        }

    def series(self) -> pl.DataFrame:
        """The sampled time series of every replication."""
        import polars as pl

        frames = []
        for run in self.runs:
            columns = {"replication": np.full(len(run.series), run.replication), "time": run.series[:, 0]}
            columns |= {"queue": run.series[:, 1], "running": run.series[:, 2], "stalled": run.series[:, 3]}
            columns |= {f"queue.{name}": run.series[:, 4 + j] for j, name in enumerate(self.type_names)}
            frames.append(pl.DataFrame(columns))
        return pl.concat(frames)

    def jobs(self, replication: int = 0) -> pl.DataFrame:
        """Every job of a replication that was run with `record_jobs`: arrival, start, end, server, type, duration. `start` and
        `server` are null of who still waits, `end` of who has not finished."""
        return job_frame(self._recorded(replication), self.type_names)

    def trace(self, replication: int = 0) -> Trace:
        """The same jobs as a trace, for `slotwise trace` and for other scenarios."""
        return job_trace(self._recorded(replication), self.scenario.cluster.resources, self.scenario.name)

    def _recorded(self, replication: int) -> Rows:
        for run in self.runs:
            if run.replication == replication:
                if run.jobs is None:
                    raise InputError("no jobs were recorded", where="jobs", remedy="simulate with record_jobs=True")
                return run.jobs
        raise InputError(f"there is no replication {replication}", where="replication", remedy="they count from 0")

    def frame(self) -> pl.DataFrame:
        """A row for each replication."""
        import polars as pl

        rows = []
        for run in self.runs:
            waits = wait_figures(add_up(run.wait_sums), run.wait_bins.sum(axis=0))
            row: dict[str, Any] = {"policy": self.policy, "replication": run.replication, "events": run.events}
            row |= {"mean_queue": run.mean_queue, "in_service": run.in_service}
            row |= {f"wait_{name}": value for name, value in waits.items()}
            row |= {f"queue.{name}": float(run.mean_queue_by_type[j]) for j, name in enumerate(self.type_names)}
            row |= {
                f"utilisation.{name}": float(run.utilisation[r])
                for r, name in enumerate(self.scenario.cluster.resources)
            }
            row |= {"stalled_fraction": run.stalled_fraction, "stalls": run.stalls, "resets": run.resets}
            rows.append(row | {"overtakes": run.overtakes, "lost_jobs": run.lost_jobs})
        return pl.DataFrame(rows)

    # -- for notebooks: see `showing` ---------------------------------------------------------------------------

    def by_type(self) -> pl.DataFrame:
        """A row for each type: mean queue with its interval, and waits."""
        return showing.by_type([self])

    def to_pandas(self) -> pandas.DataFrame:
        """`frame` for pandas."""
        return to_pandas(self.frame())

    def plot(self) -> Picture:
        """The queue over time, and how many jobs wait how long."""
        return showing.plot_result(self)

    def _repr_html_(self) -> str:
        return showing.html([self])

    def __repr__(self) -> str:
        return f"<Result: {self}>"

    def __str__(self) -> str:
        low, high = self.mean_queue.low, self.mean_queue.high
        band = f" [{low:.4g}, {high:.4g}]" if low is not None and high is not None else ""
        verdict = "stable" if self.stable else "NOT STABLE (the queue grows)"
        p95 = self.wait["p95"]
        return (
            f"{self.policy} on {self.scenario.name}: mean queue {self.mean_queue.mean:.4g}{band}, "
            f"mean wait {self.wait['mean'] or 0:.4g}, p95 wait {p95 if p95 is not None else 0:.4g}, {verdict}"
        )


@dataclass(frozen=True, repr=False)
class Comparison:
    """The same workload through several policies."""

    results: tuple[Result, ...]

    def difference(self, first: str, second: str) -> Interval:
        """Mean queue of the first policy less that of the second, paired by replication (common random numbers)."""
        by_name = {result.policy: result for result in self.results}
        one, other = by_name[first], by_name[second]
        return paired_difference([run.mean_queue for run in one.runs], [run.mean_queue for run in other.runs])

    @property
    def best(self) -> Result:
        """The stable policy with the least mean queue, or the least of all where none is stable."""
        among = [result for result in self.results if result.stable] or list(self.results)
        return min(among, key=lambda result: result.mean_queue.mean)

    def frame(self) -> pl.DataFrame:
        """A row for each policy and replication."""
        import polars as pl

        return pl.concat([result.frame() for result in self.results], how="diagonal")

    def __getitem__(self, policy: str) -> Result:
        for result in self.results:
            if result.policy == policy:
                return result
        known = ", ".join(result.policy for result in self.results)
        raise InputError(f"no policy {policy!r} was compared", remedy=f"there are: {known}")

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def by_type(self) -> pl.DataFrame:
        """A row for each policy and type."""
        return showing.by_type(self.results)

    def to_pandas(self) -> pandas.DataFrame:
        """`frame` for pandas."""
        return to_pandas(self.frame())

    def plot(self) -> Picture:
        """Mean queues with their intervals, and the tails of the waits."""
        return showing.plot_comparison(self)

    def _repr_html_(self) -> str:
        return showing.html(self.results)

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.results)} policies>\n{self}"

    def __str__(self) -> str:
        return "\n".join(map(str, self.results))


def as_json(scenario: Scenario, results: Sequence[Result], version: str) -> dict[str, Any]:
    """The object that `slotwise simulate --json` prints; infinite and missing figures are null."""
    whole = {
        "scenario": scenario.name,
        "seed": scenario.run.seed,
        "version": version,
        "results": [result.as_dict() for result in results],
    }
    return dict(_finite(whole))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""The result of several replications of one policy: figures with their uncertainty, as an object, a table, a data frame, JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from slotwise.display.notebook import to_pandas
from slotwise.display.numbers import finite
from slotwise.errors import InputError
from slotwise.model import JobType, Scenario, with_unit
from slotwise.simulation import showing
from slotwise.simulation.judge.drift import Drift, Stability
from slotwise.simulation.judge.intervals import FEW, UNSEEN, mean_interval, quantile_interval
from slotwise.simulation.judge.judging import Judgement, judge
from slotwise.simulation.judge.statistics import Interval, batch_means, paired_difference
from slotwise.simulation.measure.histogram import EDGES, quantiles
from slotwise.simulation.measure.jobrecord import Rows, job_frame, job_trace
from slotwise.simulation.measure.measurements import PROBABILITIES, Measurements, add_up, wait_figures
from slotwise.simulation.measure.periods import QueueOverPeriod, queue_over_period, without_rhythm
from slotwise.simulation.run.choice import Choice
from slotwise.theory.bounds import Bound

if TYPE_CHECKING:
    import pandas
    import polars as pl  # slow to import; the methods that make data frames do it themselves

    from slotwise.display.drawing import Picture
    from slotwise.region.ray import Columns
    from slotwise.workloads.jobs import Jobs
    from slotwise.workloads.traces import Trace


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What a policy did on a scenario, over all replications."""

    scenario: Scenario
    choice: Choice
    types: tuple[JobType, ...]
    """of the jobs; a trace's are made from it"""
    runs: tuple[Measurements, ...]
    offered: float
    """sum rho_j: the mean number of jobs in service of every stable run"""
    bound: Bound
    """no policy that does not know service times can have a smaller mean queue"""
    typed: str = ""
    """of a trace: how many types its jobs have, and what rounding up to them wastes"""
    estimated: bool = False
    """whether the policy was told users' estimates of how long each job runs"""
    source: Jobs | None = None
    """where the jobs came from: kept, so that no trace is read again to describe the runs"""
    columns: Columns | None = None
    """the cluster as the linear program of its capacity saw it before the runs"""

    @property
    def policy(self) -> str:
        """Its name."""
        return self.choice.name

    @cached_property
    def type_names(self) -> tuple[str, ...]:
        """In the order of all arrays by type."""
        return tuple(job_type.name for job_type in self.types)

    @cached_property
    def mean_queue(self) -> Interval:
        """Time-averaged number of waiting jobs; the interval comes from the replications, or from batches of one."""
        if len(self.runs) == 1:
            run = self.runs[0]
            kept = run.series[run.series[:, 0] >= run.ended - run.measured, 1]
            if len(kept) >= 64 and kept.any():
                inner = batch_means(kept).interval
                if inner.half_width is not None and run.mean_queue > 0:
                    factor = math.exp(min(700.0, inner.half_width / inner.mean))
                    return Interval(run.mean_queue, run.mean_queue / factor, run.mean_queue * factor)
        return self._seen(mean_interval([run.mean_queue for run in self.runs]))

    def _seen(self, found: Interval) -> Interval:
        """Widen the interval if few jobs ever waited: runs then tell little about the rare long waits. The upper
        end is what the runs could have missed: as many waits as such a number seen allows (Poisson), each of a
        service time; or what theory says."""
        waited = sum(int(run.wait_bins[:, 1:].sum() + run.waiting_bins.sum()) for run in self.runs)
        if waited >= FEW or found.high is None or self.scenario.workload.trace is not None:
            return found
        service = self.offered / max(sum(job_type.rate or 0.0 for job_type in self.types), 1e-300)
        most = waited + 2 * math.sqrt(waited) + UNSEEN
        missed = most * service / max(sum(run.measured for run in self.runs), 1e-300)
        least = self.bound.mean_queue if found.mean <= 0 and math.isfinite(self.bound.mean_queue) else 0.0
        return found._replace(high=max(found.high, missed, least))

    @cached_property
    def queue_over_period(self) -> QueueOverPeriod | None:
        """Where rates rise and fall: the mean queue over their period; None where they do not."""
        return queue_over_period(self.runs, self.scenario.period)

    @cached_property
    def mean_queue_by_type(self) -> dict[str, Interval]:
        """The same for each type."""
        return {
            name: mean_interval([float(run.mean_queue_by_type[j]) for run in self.runs])
            for j, name in enumerate(self.type_names)
        }

    @cached_property
    def mean_wait(self) -> Interval:
        """Mean time from arrival to start; for a job that still waits, a lower bound of it."""
        return mean_interval([0.0 if math.isnan(run.mean_wait) else run.mean_wait for run in self.runs])

    @cached_property
    def wait(self) -> dict[str, float | None]:
        """mean, p50, p95, p99 and max over the jobs of all replications that came after the warm-up, including jobs
        that still wait."""
        return wait_figures(
            add_up(np.concatenate([run.wait_sums for run in self.runs])),
            np.sum([run.wait_bins.sum(axis=0) for run in self.runs], axis=0),
            np.sum([run.waiting_bins.sum(axis=0) for run in self.runs], axis=0),
        )

    @cached_property
    def wait_by_type(self) -> dict[str, dict[str, float | None]]:
        """The same for each type, and `starved`: the longest wait over the mean wait."""
        found = {}
        for j, name in enumerate(self.type_names):
            figures = wait_figures(
                add_up(np.stack([run.wait_sums[j] for run in self.runs])),
                np.sum([run.wait_bins[j] for run in self.runs], axis=0),
                np.sum([run.waiting_bins[j] for run in self.runs], axis=0),
            )
            found[name] = figures | {"starved": _starved(figures)}
        return found

    def wait_interval(self, quantile: str = "p95", of_type: str | None = None) -> Interval:
        """Return p50, p95 or p99 of the waits, with its 95 % interval: of all jobs, or of one type."""
        j = None if of_type is None else self.type_names.index(of_type)
        figure = (self.wait if of_type is None else self.wait_by_type[of_type])[quantile]
        low, high = quantile_interval(
            [run.wait_bins.sum(axis=0) if j is None else run.wait_bins[j] for run in self.runs],
            [run.waiting_bins.sum(axis=0) if j is None else run.waiting_bins[j] for run in self.runs],
            PROBABILITIES[quantile],
        )
        return Interval(math.nan if figure is None else figure, low, high)

    @property
    def worst_type(self) -> str | None:
        """The type with the longest mean wait; None if no job waited."""
        means = {name: figures["mean"] or 0.0 for name, figures in self.wait_by_type.items()}
        worst = max(means, key=lambda name: means[name], default=None)
        return worst if worst is not None and means[worst] > 0 else None

    @cached_property
    def still_waiting(self) -> dict[str, int]:
        """How many of each type came after the warm-up and had not started when the runs ended; all replications together."""
        counts = np.sum([run.waiting_bins.sum(axis=1) for run in self.runs], axis=0)
        return dict(zip(self.type_names, map(int, counts), strict=True))

    @cached_property
    def slowdown(self) -> dict[str, float | None]:
        """(wait + service) / service; in the mean very short jobs count as 1 % of the mean service time."""
        bins = np.sum([run.slowdown_bins for run in self.runs], axis=0)
        values = quantiles(bins, EDGES, list(PROBABILITIES.values()))
        shown = [None if value is None else 1.0 + value for value in values]
        return {"mean": self._mean("slowdown_mean"), **dict(zip(PROBABILITIES, shown, strict=True))}

    @cached_property
    def utilisation(self) -> dict[str, float]:
        """Share of each resource that jobs really used."""
        means = np.mean([run.utilisation for run in self.runs], axis=0)
        return dict(zip(self.scenario.cluster.resources, map(float, means), strict=True))

    @cached_property
    def fragmentation(self) -> dict[str, float | None]:
        """Share of each resource that was free while a job waited; None if no job ever did."""
        rows = np.array([run.idle_while_waiting for run in self.runs])
        means = [
            float(np.mean(column[~np.isnan(column)])) if (~np.isnan(column)).any() else None for column in rows.T
        ]
        return dict(zip(self.scenario.cluster.resources, means, strict=True))

    @cached_property
    def judgement(self) -> Judgement:
        """The verdict on whether the queues stay bounded, and why."""
        found = judge(
            without_rhythm(self.runs, self.scenario.period),
            self.types,
            impossible=self.bound.kind == "unstable",
            is_trace=self.scenario.workload.trace is not None,
            time_unit=self.scenario.time_unit,
        )
        if found.verdict is Stability.GROWS and self.bound.kind != "unstable" and self.certified:
            why = f"{found.why} in these runs, although {self.policy} is proven to keep it bounded at this load"
            return Judgement(found.verdict, why, found.drift)
        return found

    @property
    def verdict(self) -> Stability:
        """stable, grows, too short, or never starts."""
        return self.judgement.verdict

    @property
    def why(self) -> str:
        """What the verdict rests on."""
        return self.judgement.why

    @property
    def drift(self) -> Drift:
        """How the queue of all jobs moved."""
        return self.judgement.drift

    @property
    def stable(self) -> bool:
        """The queues stay bounded, as far as these runs tell."""
        return self.verdict is Stability.STABLE

    @property
    def grows(self) -> bool:
        """They do not."""
        return self.verdict.unbounded

    @cached_property
    def certified(self) -> bool:
        """Whether a theorem says that this policy keeps the queues bounded at this load."""
        from slotwise.theory.guarantee import Verdict, guarantee
        from slotwise.theory.load import rates_and_region

        scenario = self.scenario
        if scenario.workload.trace is not None:
            return False
        rates, region = rates_and_region(scenario, self.columns)
        found = guarantee(scenario, rates, region, self.choice.make())
        return found.verdict is Verdict.CERTIFIED

    @property
    def stalled_fraction(self) -> float:
        """Mean share of the servers that were stalled."""
        return self._mean("stalled_fraction")

    @property
    def in_service(self) -> float:
        """Mean number of running jobs; `offered` where the run is stable and long (Little)."""
        return self._mean("in_service")

    @cached_property
    def use_of_tenants(self) -> dict[str, float]:
        """With shares: what each tenant has used of what all have used. The use of a tenant is its dominant share, by the demands of its types."""
        shares, cluster = self.scenario.shares, self.scenario.cluster
        if shares is None or not shares.tenants:
            return {}
        total = [
            sum(float(c.capacity[r]) * c.count for c in cluster.servers) for r in range(len(cluster.resources))
        ]
        taken = {name: np.zeros(len(total)) for name in shares.names}
        running = np.mean([run.in_service_by_type for run in self.runs], axis=0)
        for job_type, jobs in zip(self.types, running.tolist(), strict=True):
            taken[shares.tenant_of(job_type)] += jobs * np.array(job_type.demand, np.float64)
        used = {name: float((row / np.maximum(total, 1e-300)).max()) for name, row in taken.items()}
        return {name: one / max(sum(used.values()), 1e-300) for name, one in used.items() if one > 0}

    @property
    def events_per_second(self) -> float:
        """Speed of the simulator, per core: the median over the replications, of which the first may have compiled."""
        return float(np.median([run.events / run.seconds for run in self.runs]))

    @property
    def setup_seconds(self) -> float:
        """What it took to set up one run, of the processor: the median, as the first may have compiled."""
        return float(np.median([run.setup for run in self.runs]))

    def _mean(self, name: str) -> float:
        return float(np.mean([getattr(run, name) for run in self.runs]))

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `slotwise simulate --json` prints for this policy."""
        p95 = self.wait_interval("p95")
        return {
            "policy": self.policy,
            "replications": len(self.runs),
            "events": self.runs[0].events,
            "events_per_second": self.events_per_second,
            "setup_seconds": self.setup_seconds,
            "mean_queue": {
                "mean": self.mean_queue.mean,
                "ci95": [self.mean_queue.low, self.mean_queue.high],
                "runs": [run.mean_queue for run in self.runs],
            },
            "mean_queue_by_type": {
                name: {"mean": interval.mean, "ci95": [interval.low, interval.high]}
                for name, interval in self.mean_queue_by_type.items()
            },
            "queue_over_period": self.queue_over_period.as_dict() if self.queue_over_period else None,
            "wait": {**self.wait, "ci95": [self.mean_wait.low, self.mean_wait.high], "p95_ci95": list(p95[1:])},
            "wait_by_type": self.wait_by_type,
            "worst_type": self.worst_type,
            "still_waiting": self.still_waiting,
            "slowdown": self.slowdown,
            "utilisation": self.utilisation,
            "fragmentation": self.fragmentation,
            "in_service": self.in_service,
            "offered": self.offered,
            **({"use_of_tenants": self.use_of_tenants} if self.use_of_tenants else {}),
            "stalled_fraction": self.stalled_fraction,
            "stalls": round(self._mean("stalls")),
            "resets": round(self._mean("resets")),
            "overtakes": round(self._mean("overtakes")),
            "lost_jobs": round(self._mean("lost_jobs")),
            "lost_work": self._mean("lost_work"),
            "verdict": str(self.verdict),
            "why": self.why,
            "certified": self.certified,
            "stable": None if self.verdict is Stability.TOO_SHORT else self.stable,
            "drift": {"per_unit_time": self.drift.slope, "wander": self.drift.wander, "growth": self.drift.growth},
            "simulated_time": self._mean("ended"),
            "final_queue": [int(run.final_queue.sum()) for run in self.runs],
            "lower_bound": {"mean_queue": self.bound.mean_queue, "kind": self.bound.kind},
            "solver": self.runs[0].solver,
        }

    def series(self) -> pl.DataFrame:
        """Return the sampled time series of every replication."""
        import polars as pl

        frames = []
        for run in self.runs:
            columns = {"replication": np.full(len(run.series), run.replication), "time": run.series[:, 0]}
            columns |= {"queue": run.series[:, 1], "running": run.series[:, 2], "stalled": run.series[:, 3]}
            columns |= {f"queue.{name}": run.series[:, 4 + j] for j, name in enumerate(self.type_names)}
            frames.append(pl.DataFrame(columns))
        return pl.concat(frames)

    def jobs(self, replication: int = 0) -> pl.DataFrame:
        """Return every job of a replication that was run with `record_jobs`: arrival, start, end, server, type,
        duration. `start` and `server` are null for a waiting job, `end` for a job that has not completed."""
        return job_frame(self._recorded(replication), self.type_names)

    def trace(self, replication: int = 0) -> Trace:
        """Return the same jobs as a trace, for `slotwise trace` and for other scenarios."""
        return job_trace(self._recorded(replication), self.scenario.cluster.resources, self.scenario.name)

    def _recorded(self, replication: int) -> Rows:
        for run in self.runs:
            if run.replication == replication:
                if run.jobs is None:
                    raise InputError("no jobs were recorded", where="jobs", remedy="simulate with record_jobs=True")
                return run.jobs
        raise InputError(f"there is no replication {replication}", where="replication", remedy="they count from 0")

    def frame(self) -> pl.DataFrame:
        """Return a row for each replication."""
        import polars as pl

        rows = []
        for run in self.runs:
            waits = wait_figures(add_up(run.wait_sums), run.wait_bins.sum(axis=0), run.waiting_bins.sum(axis=0))
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
        """Return a row for each type: mean queue with its interval, and waits."""
        return showing.by_type([self])

    def to_pandas(self) -> pandas.DataFrame:
        """Return `frame` for pandas."""
        return to_pandas(self.frame())

    def plot(self) -> Picture:
        """Draw the queue over time, and how many jobs wait how long."""
        return showing.plot_result(self)

    def _repr_html_(self) -> str:
        return showing.html([self])

    def __repr__(self) -> str:
        return f"<Result: {self}>"

    def __str__(self) -> str:
        low, high = self.mean_queue.low, self.mean_queue.high
        band = f" [{low:.4g}, {high:.4g}]" if low is not None and high is not None else ""
        unit = self.scenario.time_unit
        mean, p95 = (with_unit(f"{self.wait[key] or 0:.4g}", unit) for key in ("mean", "p95"))
        return (
            f"{self.policy} on {self.scenario.name}: mean queue {self.mean_queue.mean:.4g}{band}, "
            f"mean wait {mean}, p95 wait {p95}, {self.verdict}"
        )


def paired_queues(one: Result, other: Result) -> Interval:
    """Return the mean queue of the first less that of the second, paired by replication. A policy whose queue grows
    may have been run less often."""
    both = min(len(one.runs), len(other.runs))
    return paired_difference(
        [run.mean_queue for run in one.runs[:both]], [run.mean_queue for run in other.runs[:both]]
    )


@dataclass(frozen=True, repr=False)
class Comparison:
    """The same workload through several policies."""

    results: tuple[Result, ...]

    def difference(self, first: str, second: str) -> Interval:
        """Return the mean queue of the first policy less that of the second, paired by replication (common random
        numbers)."""
        by_name = {result.policy: result for result in self.results}
        return paired_queues(by_name[first], by_name[second])

    @property
    def best(self) -> Result:
        """The policy with the least mean queue: of those whose queue is stable, else of those whose queue was not found to grow."""
        results = list(self.results)
        among = [r for r in results if r.stable] or [r for r in results if not r.grows] or results
        return min(among, key=lambda result: result.mean_queue.mean)

    def frame(self) -> pl.DataFrame:
        """Return a row for each policy and replication."""
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
        """Return a row for each policy and type."""
        return showing.by_type(self.results)

    def to_pandas(self) -> pandas.DataFrame:
        """Return `frame` for pandas."""
        return to_pandas(self.frame())

    def plot(self) -> Picture:
        """Draw mean queues with their intervals, and the tails of the waits."""
        return showing.plot_comparison(self)

    def _repr_html_(self) -> str:
        return showing.html(self.results)

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.results)} policies>\n{self}"

    def __str__(self) -> str:
        return "\n".join(map(str, self.results))


def _starved(figures: dict[str, float | None]) -> float | None:
    mean, longest = figures["mean"], figures["max"]
    return longest / mean if mean and longest is not None else None


def as_json(scenario: Scenario, results: Sequence[Result], version: str) -> dict[str, Any]:
    """Return the object that `slotwise simulate --json` prints; infinite and missing figures are null."""
    whole = {
        "scenario": scenario.name,
        "seed": scenario.run.seed,
        "version": version,
        **scenario.units,
        "results": [result.as_dict() for result in results],
    }
    return dict(finite(whole))

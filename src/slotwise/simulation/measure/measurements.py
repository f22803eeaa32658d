"""What one replication measured, as plain numbers that can be sent between threads, processes and machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.core.store import Store
from slotwise.simulation.measure.histogram import censored_mean, censored_quantiles
from slotwise.simulation.measure.meter import COUNT, FIRST_COLUMNS, LARGEST, ROW_TYPE, SUM, MeterStore
from slotwise.simulation.run.agenda import AgendaStore

PROBABILITIES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, eq=False)
class Measurements:
    """One replication after its warm-up; times in the scenario's unit."""

    policy: str
    replication: int
    events: int
    arrivals: int
    completions: int
    ticks: int
    seconds: float
    """time the run took on this machine; it and `setup` are the only figures that differ between runs with one seed"""
    setup: float
    """time that the processor took before it, to make the servers and the tables of the policy"""
    measured: float
    """how long the measured part was, in simulated time"""
    ended: float
    """when it ended, in simulated time"""
    mean_queue: float
    mean_queue_by_type: NDArray[np.float64]
    in_service: float
    in_service_by_type: NDArray[np.float64]
    utilisation: NDArray[np.float64]
    idle_while_waiting: NDArray[np.float64]
    """fragmentation: share of each resource that was free while a job waited; nan if no job did"""
    stalled_fraction: float
    stalls: int
    resets: int
    overtakes: int
    lost_jobs: int
    lost_work: float
    wait_sums: NDArray[np.float64]
    wait_bins: NDArray[np.int64]
    waiting_bins: NDArray[np.int64]
    """of each type, how long those have waited who came after the warm-up and had not started when the run ended"""
    slowdown_mean: float
    slowdown_bins: NDArray[np.int64]
    final_queue: NDArray[np.int64]
    final_running: int
    series: NDArray[np.float64]
    """rows of time, waiting, running, stalled, then the queue of each type, from time 0"""
    drew: bool
    """whether the policy drew random numbers; if not, its seed made no difference"""
    solver: str
    """which packing solver the policy used, in words; empty where it uses none"""
    jobs: NDArray[np.float64] | None = None
    """where asked for, a row for each job that came: see `slotwise.simulation.measure.jobrecord`"""

    @property
    def mean_wait(self) -> float:
        """Over all jobs that arrived after the warm-up, including jobs that still wait; nan without any."""
        return mean_wait(add_up(self.wait_sums), self.wait_bins.sum(axis=0), self.waiting_bins.sum(axis=0))

    @property
    def queue_series(self) -> NDArray[np.float64]:
        """The total queue at equally spaced times."""
        return self.series[:, 1]

    def same_as(self, other: Measurements) -> bool:
        """Return whether every figure but the time it took is equal to the last bit."""
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            if name in ("seconds", "setup"):
                continue
            if isinstance(mine, np.ndarray):
                if not np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f"):
                    return False
            elif mine != theirs and not (mine != mine and theirs != theirs):
                return False
        return True


def mean_wait(sums: NDArray[np.float64], bins: NDArray[np.int64], waiting: NDArray[np.int64]) -> float:
    """Return the mean wait of started jobs and of waiting jobs, the latter by a lower bound; nan without any."""
    if waiting.any():
        return censored_mean(bins, waiting, float(sums[LARGEST]))
    return float(sums[SUM] / sums[COUNT]) if sums[COUNT] else float("nan")


def wait_figures(
    sums: NDArray[np.float64], bins: NDArray[np.int64], waiting: NDArray[np.int64]
) -> dict[str, float | None]:
    """Return mean, p50, p95, p99 and max from sums (rows may be added up) and histograms. `waiting` is the
    histogram of jobs that have not started. Infinite: so many jobs wait that the figure is not known yet. None:
    no job arrived."""
    values = censored_quantiles(bins, waiting, list(PROBABILITIES.values()), largest=float(sums[LARGEST]))
    mean = mean_wait(sums, bins, waiting)
    figures: dict[str, float | None] = {"mean": None if np.isnan(mean) else mean}
    figures |= dict(zip(PROBABILITIES, values, strict=True))
    figures["max"] = float(sums[LARGEST]) if sums[COUNT] or waiting.any() else None
    return figures


def add_up(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add up rows of `wait_sums`: counts and sums add, the largest stays the largest."""
    total = sums.sum(axis=0)
    total[LARGEST] = sums[:, LARGEST].max()
    return np.asarray(total)


def read(
    store: Store,
    agenda: AgendaStore,
    meters: MeterStore,
    policy: str,
    replication: int,
    taken: tuple[float, float],
    drew: bool,
    demands: Sequence[NDArray[np.int64]] = (),
) -> Measurements:
    """Read the figures of a finished run. `taken` are the seconds of the run and of its setup. `demands` are the
    demands of recorded jobs, if these are not their types' demands."""
    s: Any = store.state
    now, happened = float(agenda.record.now), agenda.record
    m, a = meters.record, meters.arrays
    measured = float(now - m.measured_from)
    share = 1.0 / measured if measured > 0 else float("nan")
    capacity = a["area_capacity"]
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = capacity.sum(axis=0)
        used = np.where(whole > 0, a["area_used"].sum(axis=0) / whole, 0.0)
        idle = 1.0 - np.where(capacity[1] > 0, a["area_used"][1] / capacity[1], np.nan)
    started = a["wait_sums"][:, COUNT].sum()
    return Measurements(
        policy=policy,
        replication=replication,
        events=int(happened.events),
        arrivals=int(happened.arrivals),
        completions=int(happened.completions),
        ticks=int(happened.ticks),
        seconds=taken[0],
        setup=taken[1],
        measured=measured,
        ended=now,
        mean_queue=float(a["queue_area"].sum() * share),
        mean_queue_by_type=a["queue_area"] * share,
        in_service=float(a["area_running"].sum() * share),
        in_service_by_type=a["area_running"].sum(axis=0) * share,
        utilisation=used,
        idle_while_waiting=idle,
        stalled_fraction=float(m.area_stalled / m.area_servers) if m.area_servers > 0 else 0.0,
        stalls=int(s.stalls - m.stalls_before),
        resets=int(s.resets - m.resets_before),
        overtakes=int(m.overtakes),
        lost_jobs=int(m.lost),
        lost_work=float(m.lost_work),
        wait_sums=a["wait_sums"].copy(),
        wait_bins=a["wait_bins"].copy(),
        waiting_bins=meters.waiting_bins(),
        slowdown_mean=1.0 + float(m.slowdown_sum / started) if started else float("nan"),
        slowdown_bins=a["slowdown_bins"].copy(),
        final_queue=store.arrays["queue_length"].copy(),
        final_running=int(s.n_running),
        series=a["samples"][: int(m.n_samples), : FIRST_COLUMNS + int(s.n_types)].copy(),
        drew=drew,
        solver=store.solvers[0].reason if store.solvers else "",
        jobs=_recorded(store, meters, demands) if m.recording else None,
    )


def _recorded(store: Store, meters: MeterStore, demands: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return the rows of all jobs that came, and what each asked for, in the units of the scenario."""
    rows = meters.arrays["rows"][: int(meters.record.n_rows)]
    asked = np.concatenate(demands)[: len(rows)] if demands else store.sizes.demand[rows[:, ROW_TYPE].astype(int)]
    return np.hstack([rows, asked / 10.0 ** np.array(store.sizes.digits)])

"""Answers from a followed service: when jobs start, what if, which free capacity is unusable. One result is shared by all who ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from slotwise.errors import InputError
from slotwise.foresee.change import ClusterChange
from slotwise.foresee.correction import BANDS, band_of, curves_of, mixed
from slotwise.foresee.ensemble import Ensemble, Outlook, ensemble
from slotwise.foresee.fragments import advice
from slotwise.foresee.history import F8, I8
from slotwise.foresee.recent import RecentWaits
from slotwise.foresee.tracking import Tracker
from slotwise.foresee.whatif import what_if
from slotwise.live.demands import find_type
from slotwise.live.forecast.follower import Follower
from slotwise.live.forecast.records import Records
from slotwise.live.store.protocol import Store
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Submit
from slotwise.scheduling.situation import Situation

RUNS = 32  # runs ahead; their quantiles move by about 1 / RUNS
BUDGET = 1.2  # seconds for the runs of one refresh
FRESH = 2.0  # seconds for which a result is used even if the state has moved
# A result is used for this many times the time that it took. So constant questions take at most a quarter of a CPU from decisions and jobs. On a busy machine,
# where a look ahead takes longer than callers wait, the next caller gets its result.
REST = 3.0
STALE = 60.0  # seconds after which a result is made anew although the state has not moved
FEWEST = 10  # jobs that must have completed before anything is said
AGES = (600.0, 3600.0, 4 * 3600.0, 24 * 3600.0)  # seconds waited after which a further forecast of a job is kept
PROBE = "forecast"
DEAREST = 100_000  # waiting jobs above which nothing is said
NAMES = ("p10", "p50", "p90")


@dataclass
class Sight:
    """One look ahead."""

    situation: Situation
    outlook: Outlook | None
    reason: str | None = None
    ahead: Ensemble | None = None
    curves: F8 = field(default_factory=lambda: np.zeros((0, 0)))
    """the forecasts before correction, by waiting job"""
    quantiles: F8 = field(default_factory=lambda: np.zeros((3, 0)))
    medians: F8 = field(default_factory=lambda: np.zeros(0))
    place: dict[Hashable, int] = field(default_factory=dict)
    made: float = 0.0
    """when it was begun, by a clock that only measures how long ago"""
    seconds: float = 0.0
    """that it took"""
    seq: int = 0


class Foreseer:
    """A follower with what it has foreseen."""

    def __init__(
        self, store: Store, records: Path | None = None, *, clock: Callable[[], float] = time.time, runs: int = RUNS
    ) -> None:
        self._records = Records(records)
        self.tracker: Tracker = self._records.tracker()
        self._clock, self._runs = clock, runs
        self.follower = Follower(store, started=self._started, dropped=self._dropped)
        self._kept: dict[Hashable, int] = {}
        self._sight: Sight | None = None
        self.refreshed = 0
        self.follower.catch_up()
        self._settle()

    # -- outcomes -------------------------------------------------------------------------------------------------

    def _started(self, job: Hashable, when: float) -> None:
        self.tracker.started(job, when)
        if self.follower.waited(job, when) == 0.0:
            self.tracker.at_once += 1
        self._records.started(job, when)  # type: ignore[arg-type]
        self._kept.pop(job, None)

    def _dropped(self, job: Hashable, when: float) -> None:
        self.tracker.dropped(job)
        self._records.started(job, -1.0)  # type: ignore[arg-type]
        self._kept.pop(job, None)

    def _settle(self) -> None:
        """Outcomes of forecasts whose jobs started while nothing followed the journal."""
        waiting = set(self.follower.core.situation().waiting.job)
        for job in self.tracker.open_jobs():
            if job not in waiting:
                kept = self.follower.store.job(job)  # type: ignore[arg-type]
                if kept is not None and kept.placed is not None:
                    self._started(job, kept.placed)
                else:
                    self._dropped(job, 0.0)

    # -- looking ahead --------------------------------------------------------------------------------------------

    def sight(self, *, fresh: bool = False) -> Sight:
        """Return the newest look ahead; make a new one where the state has moved and the last is not fresh."""
        age = time.monotonic() - self._sight.made if self._sight is not None else float("inf")
        if self._sight is not None and age < max(FRESH, (1.0 + REST) * self._sight.seconds) and not fresh:
            return self._sight
        self.follower.catch_up()
        if self._sight is None or self._sight.seq != self.follower.seq or age > STALE:
            self._sight = self._look()
            self._sight.seconds = time.monotonic() - self._sight.made
        return self._sight

    def is_behind(self) -> bool:
        """Return whether the journal has gone on since the last look ahead."""
        last = self.follower.store.last_entry()
        return self._sight is None or (last is not None and last.seq != self._sight.seq)

    def _situation(self) -> Situation:
        situation = self.follower.core.situation()
        return replace(situation, now=max(situation.now, self._clock()))

    def _look(self) -> Sight:
        situation = self._situation()
        self.tracker.advance(situation.now)
        made = Sight(situation, None, made=time.monotonic(), seq=self.follower.seq)
        self.refreshed += 1
        n = len(situation.waiting.job)
        if n > DEAREST:
            made.reason = f"not known: {n:,} jobs wait, and forecasts are made for at most {DEAREST:,}"
            return made
        made.outlook, made.reason = self._outlook(situation)
        if made.outlook is None:
            self.tracker.unanswered += n
            return made
        made.ahead = ensemble(made.outlook, self._runs, 1 + self.follower.seq, budget=BUDGET)
        kinds = [situation.types[j].name for j in situation.waiting.type]
        made.medians = np.median(made.ahead.starts, axis=0) if n else np.zeros(0)
        made.curves = self._curves(made.outlook, made.ahead.starts)
        made.quantiles = self._corrected(made.curves, kinds, made.medians)
        made.place = {job: at for at, job in enumerate(situation.waiting.job)}
        self._keep(made, kinds)
        return made

    def _outlook(
        self,
        situation: Situation,
        owners: Mapping[Hashable, int] | None = None,
        limits: Mapping[Hashable, float] | None = None,
    ) -> tuple[Outlook | None, str | None]:
        """Return what runs ahead begin with, or why nothing can be said. `owners` and `limits` are those of jobs that the service does not have."""
        if all(status == "absent" for status in situation.servers.status):
            return None, "not known: no server is up"
        known = self.follower.owners() | dict(owners or {})
        found = Outlook(situation, self.follower.history(), owners=known, limits=limits)
        done = found.services.n_exact
        if done < FEWEST:
            return None, f"not known yet: {done} jobs have completed, and forecasts begin with {FEWEST}"
        return found, None

    def _curves(self, outlook: Outlook, starts: F8, which: I8 | None = None) -> F8:
        """Return the forecasts before correction of waiting jobs: those at these positions, or all."""
        submitted = np.array(outlook.situation.waiting.submitted, np.float64)
        rows = np.arange(len(submitted)) if which is None else which
        age = outlook.situation.now - submitted[rows]
        return mixed(curves_of(starts), RecentWaits(outlook.history).curves(outlook.history_type[rows], age))

    def _corrected(self, curves: F8, kinds: list[str], medians: F8) -> F8:
        if not kinds:
            return np.zeros((3, 0))
        return self.tracker.correction(self._situation().now).quantiles(curves, kinds, medians)

    def _keep(self, sight: Sight, kinds: list[str]) -> None:
        """Keep the forecasts of jobs that have none yet, or that have come of age since, so that their outcome is measured."""
        now, waiting, rows = sight.situation.now, sight.situation.waiting, []
        assert sight.ahead is not None
        stages = [1 + sum(now - came >= age for age in AGES) for came in waiting.submitted]
        new = [at for at, job in enumerate(waiting.job) if self._kept.get(job, 0) < stages[at]]
        for at in new:
            job = waiting.job[at]
            self._kept[job] = stages[at]
            levels = [float(x) for x in sight.quantiles[:, at]]
            median = float(sight.medians[at])
            curve = sight.curves[at].copy()  # a view would keep those of all waiting jobs
            self.tracker.add(job, now, levels, kinds[at], median, curve)
            rows.append((job, now, kinds[at], min(median, 1e18), *map(_finite, levels), curve.tobytes()))
        self._records.made(rows)
        self._records.keep(self.tracker)

    # -- answers --------------------------------------------------------------------------------------------------

    def forecast(self, job: int) -> dict[str, Any]:
        """Return when a waiting job starts."""
        sight = self.sight()
        at = sight.place.get(job)
        if at is None and sight.reason is None:
            sight = self.sight(fresh=True)  # it may have come since
            at = sight.place.get(job)
        kind = self.follower.type_of(job)
        reason, state = sight.reason, "waiting"
        if job not in set(sight.situation.waiting.job):
            kept = self.follower.store.job(job)
            if kept is None:
                raise InputError(f"there is no job {job}")
            state = kept.state
            reason = f"it does not wait, its state is {state}"
        return {"job": job, "type": kind, "state": state} | self._form(
            sight, None if at is None else sight.quantiles[:, at], _median(sight, at), reason
        )

    def _form(self, sight: Sight, levels: F8 | None, median: float | None, reason: str | None) -> dict[str, Any]:
        values = [None] * 3 if levels is None else [_finite(float(x)) for x in levels]
        if levels is not None and values[2] is None and reason is None:
            reason = "may start later than forecasts reach"
        band = None if median is None else band_of(median)
        coverage = self.tracker.coverage(band=band)
        if coverage.of < 20:
            coverage = self.tracker.coverage()
        now = sight.situation.now
        return dict(zip(NAMES, values, strict=True)) | {
            "coverage": coverage.coverage,
            "of": coverage.of,
            "as_of": now,
            "start_at": None if values[1] is None else now + values[1],
            "reason": reason,
        }

    def forecasts(
        self, job_type: str | None = None, limit: int = 1000, tenant: str | None = None
    ) -> dict[str, Any]:
        """Return the forecasts of all waiting jobs, of queues, and of the ends of running jobs; with `tenant`, only of the jobs of this tenant, and of all queues by type."""
        sight = self.sight()
        situation, waiting = sight.situation, sight.situation.waiting
        kinds = [situation.types[j].name for j in waiting.type]
        tenants = self._tenants(waiting.job)
        jobs = [
            {"job": job, "type": kinds[at]} | _levels(sight.quantiles[:, at])
            for job, at in sight.place.items()
            if job_type in (None, kinds[at]) and tenant in (None, tenants[at])
        ]
        running = []
        if sight.ahead is not None:
            ends = (
                np.quantile(sight.ahead.ends, (0.1, 0.5, 0.9), axis=0) if sight.ahead.running else np.zeros((3, 0))
            )
            servers, held_by = situation.servers.name, self._tenants(sight.ahead.running)
            running = [
                {"job": job, "server": servers[situation.running.server[at]]} | _levels(ends[:, at])
                for at, job in enumerate(sight.ahead.running)
                if tenant in (None, held_by[at])
            ]
        return {
            "as_of": situation.now,
            "age": round(time.monotonic() - sight.made, 3),
            "refreshed": self.refreshed,
            "runs": 0 if sight.ahead is None else len(sight.ahead.starts),
            "seconds": 0.0 if sight.ahead is None else round(sight.ahead.seconds, 3),
            "jobs": jobs[:limit],
            "queues": self._last_starts(sight, "type", kinds),
            "tenants": [
                row for row in self._last_starts(sight, "tenant", tenants) if tenant in (None, row["tenant"])
            ],
            "running": running[:limit],
            "coverage": self.tracker.summary(),
            "reason": sight.reason,
        }

    @staticmethod
    def _last_starts(sight: Sight, word: str, groups: list[str]) -> list[dict[str, Any]]:
        """Return when the last waiting job of each group starts: the latest of their quantiles, because jobs of one queue start late together."""
        rows = []
        for name in dict.fromkeys(groups):
            own = [at for at, group in enumerate(groups) if group == name]
            last = dict.fromkeys(NAMES)
            if sight.ahead is not None:
                last = _levels(sight.quantiles[:, own].max(axis=1))
            rows.append({word: name, "waiting": len(own)} | last)
        return rows

    def coverage(self) -> dict[str, Any]:
        """Return how often 80 % intervals held."""
        self.follower.catch_up()
        self.tracker.advance(self._clock())
        return self.tracker.summary() | {"bands": list(BANDS)}

    def of_needs(
        self,
        needs: Mapping[str, float] | None = None,
        requires: Mapping[str, Any] | None = None,
        job_type: str | None = None,
        limit: float | None = None,
        tenant: str | None = None,
    ) -> dict[str, Any]:
        """Return when a job that is not submitted yet would start."""
        self.follower.catch_up()
        situation = self._situation()
        core = Scheduler.from_situation(situation)
        demand = None
        if job_type is None:
            fitting = find_type(needs or {"cpu": 1.0}, requires or {}, core.cluster, core.types)
            if fitting.made:
                core = Scheduler.from_situation(situation, types=[*core.types, fitting.type])
            job_type = fitting.type.name
            sizes = dict(zip(core.cluster.resources, map(float, fitting.type.demand), strict=True))
            if needs:
                demand = {name: repr(min(float(amount), sizes[name])) for name, amount in needs.items()}
        if core.policy.needs_durations and limit is None:
            raise InputError("is missing", where="time", remedy=f"policy {core.policy.label} needs to know it")
        outcome = core.apply(Submit(PROBE, job_type, situation.now, demand, limit))
        bare = Sight(situation, None)
        if any(placement.job == PROBE for placement in outcome.placements):
            return {"type": job_type, "state": "new"} | self._form(bare, np.zeros(3), 0.0, None)
        probed = core.situation()
        owners: dict[Hashable, int] = {PROBE: self.follower.tenants.get(tenant or "", -1)}
        outlook, reason = self._outlook(probed, owners, None if limit is None else {PROBE: limit})
        if outlook is None:
            self.tracker.unanswered += 1
            return {"type": job_type, "state": "new"} | self._form(bare, None, None, reason)
        watched = np.array([probed.waiting.job.index(PROBE)])
        made = ensemble(outlook, self._runs, 1 + self.follower.seq, budget=BUDGET, watched=watched)
        starts = made.starts[:, watched]
        median = float(np.median(starts))
        curves = self._curves(outlook, starts, watched)
        levels = self._corrected(curves, [job_type], np.array([median]))[:, 0]
        return {"type": job_type, "state": "new"} | self._form(bare, levels, median, None)

    def what_if(self, change: ClusterChange, hours: float) -> dict[str, Any]:
        """Return the next hours as they are and as they would be."""
        self.follower.catch_up()
        outlook, reason = self._outlook(self._situation())
        if outlook is None:
            return {"now": None, "then": None, "reason": reason}
        tenants = {number: name for name, number in self.follower.tenants.items()}
        return what_if(outlook, change, hours=hours, tenants=tenants, budget=4 * BUDGET, seed=1 + self.follower.seq)

    def _tenants(self, jobs: list[Any]) -> list[str]:
        """Return the tenant of each job; "" if it is not known."""
        owners, names = self.follower.owners(), {number: name for name, number in self.follower.tenants.items()}
        return [names.get(owners.get(job, -1), "") for job in jobs]

    def advice(self, tenant: str | None = None) -> dict[str, Any]:
        """Return which free capacity is unusable; with `tenant`, only the jobs of this tenant are named."""
        sight = self.sight()
        if sight.outlook is None or sight.ahead is None:
            return {"as_of": sight.situation.now, "servers": [], "drains": [], "reason": sight.reason}
        found = advice(sight.outlook, sight.ahead.ends)
        for row in found["servers"] if tenant is not None else ():
            row["jobs"] = [
                job for job, of in zip(row["jobs"], self._tenants(row["jobs"]), strict=True) if of == tenant
            ]
        return found


def _median(sight: Sight, at: int | None) -> float | None:
    return None if at is None else float(sight.medians[at])


def _finite(value: float) -> float | None:
    return round(value, 3) if np.isfinite(value) else None


def _levels(values: F8) -> dict[str, float | None]:
    return {name: _finite(float(x)) for name, x in zip(NAMES, values, strict=True)}

"""A log through the scheduler, event by event, with a stop wherever a forecast is asked for."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasts.logs import Log
from slotwise.foresee.history import History
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Complete, Fail, Join, Outcome, Submit
from slotwise.scheduling.situation import Situation

F8 = NDArray[np.float64]
AGES = (0.0, 600.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
WARM = 0.3  # share of the log before the first forecast
RECENT = 200  # waits that the quantiles of recent waits look at
STARTS = 50  # starts over which throughput is measured


@dataclass
class Origin:
    """A moment at which a forecast for one waiting job is asked for."""

    now: float
    job: int
    age: float
    situation: Situation | None
    features: list[float]
    position: int
    throughput: float
    """starts per second"""
    recent: list[float]
    """what was left of recent waits of the type (or of all) that were longer than the age"""


@dataclass
class Replayed:
    """The log as it went."""

    log: Log
    started: F8
    """the first start of each job"""
    last_started: F8
    ended: F8
    at_once: int = 0
    waited: int = 0
    origins: list[Origin] = field(default_factory=list)
    """those with a situation are forecast; all have features, to learn from"""

    def history(self) -> History:
        """Return what happened, as the forecaster sees it through `until`."""
        log = self.log
        return History(
            tuple(one.name for one in log.types), log.arrival, self.last_started, self.ended,
            np.ones(len(log.arrival), np.bool_), log.type, log.owner, log.limit, log.demand,
        )  # fmt: skip


class Replay:
    """One pass."""

    def __init__(self, log: Log, policy: str = "guarded") -> None:
        self.log = log
        digits = max(log.digits)
        self.core = Scheduler(log.cluster, log.types, policy, digits=digits)
        self.names = [one.name for one in log.types]
        n = len(log.arrival)
        self.done = Replayed(log, np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan))
        self._first = self.done.started
        self._attempt = np.zeros(n, np.int64)
        self._ends: list[tuple[float, int, int]] = []
        self._asks: list[tuple[float, int, float]] = []
        self._waiting: list[int] = []
        self._by_type = [0] * len(log.types)
        self._waits: list[deque[float]] = [deque(maxlen=RECENT) for _ in log.types]
        self._all_waits: deque[float] = deque(maxlen=RECENT)
        self._starts: deque[float] = deque(maxlen=STARTS)
        scarce = log.demand / np.array(
            [max(float(c.capacity[r]) for c in log.cluster.servers) for r in range(log.demand.shape[1])]
        )
        self._share = scarce.max(axis=1)
        self._work_waiting = self._used = 0.0
        self._ended: deque[float] = deque(maxlen=RECENT)

    def run(self, targets: int) -> Replayed:
        """Replay; forecasts are asked for `targets` jobs, evenly over the jobs that wait after the warm-up, at each age."""
        log = self.log
        n = len(log.arrival)
        expected = 0.5 * (1 - WARM) * n  # about half of the jobs wait
        every = max(1, int(expected / targets))
        seen = 0
        events = list(log.events)
        for i in range(n):
            now = float(log.arrival[i])
            self._until(now, events)
            demand = {r: repr(float(x)) for r, x in zip(log.cluster.resources, log.demand[i], strict=True)}
            told = None if np.isnan(log.limit[i]) else float(log.limit[i])
            self._waiting.append(i)
            self._by_type[log.type[i]] += 1
            self._work_waiting += self._work(i)
            self._note(self.core.apply(Submit(i, self.names[log.type[i]], now, demand, told)), now)
            if i >= WARM / 2 * n and np.isnan(self._first[i]):
                seen += 1
                wanted = i >= WARM * n and seen % every == 0
                for age in AGES:
                    heapq.heappush(self._asks, (now + age, i, age if wanted else -1.0 - age))
            if i >= WARM * n:
                if np.isnan(self._first[i]):
                    self.done.waited += 1
                else:
                    self.done.at_once += 1
        self._until(np.inf, events)
        return self.done

    def _until(self, now: float, events: list[tuple[float, str, str]]) -> None:
        while True:
            end = self._ends[0][0] if self._ends else np.inf
            ask = self._asks[0][0] if self._asks else np.inf
            event = events[0][0] if events else np.inf
            first = min(end, ask, event)
            if not first <= now or first == np.inf:
                return
            if first == end:
                _, job, attempt = heapq.heappop(self._ends)
                if self._attempt[job] == attempt:
                    self._used -= float(self._share[job])
                    self.done.ended[job] = end
                    self._ended.append(float(self.log.duration[job]))
                    self._note(self.core.apply(Complete(job, end, attempt + 1)), end)
            elif first == event:
                self._happen(*events.pop(0))
            else:
                when, job, age = heapq.heappop(self._asks)
                if np.isnan(self._first[job]):
                    self._ask(when, job, age)

    def _happen(self, at: float, what: str, name: str) -> None:
        if what == "policy":
            self.core = Scheduler.from_situation(replace(self.core.situation(), now=at), policy=name)
            self._note(self.core.opening, at)
        elif what == "fail" and name in self.core.servers:
            lost = self.core.apply(Fail(name, at))
            for job in lost.requeued:
                self._attempt[job] += 1  # type: ignore[call-overload]
                self._used -= float(self._share[job])
            self._note(lost, at)
        elif what == "join" and name not in self.core.servers:
            self._note(self.core.apply(Join(name, "server", at)), at)

    def _note(self, outcome: Outcome, now: float) -> None:
        for placement in outcome.placements:
            job: int = placement.job  # type: ignore[assignment]
            self._used += float(self._share[job])
            self.done.last_started[job] = now
            heapq.heappush(self._ends, (now + float(self.log.duration[job]), job, int(self._attempt[job])))
            if np.isnan(self._first[job]):
                self._first[job] = now
                self._waiting.pop(bisect_left(self._waiting, job))
                self._by_type[self.log.type[job]] -= 1
                self._work_waiting -= self._work(job)
                wait = now - float(self.log.arrival[job])
                if wait > 0:
                    self._waits[self.log.type[job]].append(wait)
                    self._all_waits.append(wait)
                self._starts.append(now)

    def _work(self, job: int) -> float:
        limit = self.log.limit[job]
        return float(self._share[job]) * (3600.0 if np.isnan(limit) else float(limit))

    def _ask(self, now: float, job: int, age: float) -> None:
        wanted, age = age >= 0, age if age >= 0 else -1.0 - age
        position = bisect_left(self._waiting, job) + 1
        kind = int(self.log.type[job])
        rate = len(self._starts) / max(1.0, now - self._starts[0]) if self._starts else np.nan
        own = [w - age for w in self._waits[kind] if w > age]
        recent = own if len(own) >= 10 else [w - age for w in self._all_waits if w > age]
        situation = None
        if wanted:
            situation = replace(self.core.situation(), now=now)
        hour = 2 * np.pi * (now % self.log.day) / self.log.day
        limit = float(self.log.limit[job])
        features = [
            float(kind), float(self._share[job]), limit, age, float(position), float(len(self._waiting)),
            float(self._by_type[kind]), self._work_waiting, self._used, rate, float(np.sin(hour)), float(np.cos(hour)),
            float(np.mean(self._waits[kind])) if self._waits[kind] else np.nan,
            float(np.median(self._all_waits)) if self._all_waits else np.nan,
            float(np.mean(self._ended)) if self._ended else np.nan,
            float(self._work(job)),
        ]  # fmt: skip
        self.done.origins.append(
            Origin(now, job, age, situation, features, position, rate, recent if wanted else [])
        )


def actual(replayed: Replayed, origins: Sequence[Origin]) -> F8:
    """Return how long after each origin its job started."""
    return np.array([replayed.started[one.job] - one.now for one in origins])

"""The core and the history of a service, followed through its journal: nothing is asked of the service itself.

The newest checkpoint and the rows after it give a core that is equal to the service's; the table of jobs gives the history. Later rows keep both up to date.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from slotwise.errors import SlotwiseError
from slotwise.foresee.history import History
from slotwise.live.replay import EPOCH, core_of, rows, step
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import DONE, FAILED, Job, Query
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Outcome

KEPT = 50_000  # newest jobs of the history
WITH_LIMITS = 20_000  # newest jobs whose time limits are read at the start
SUBMITTED, STARTED, ENDED, COMPLETED, TYPE, OWNER, LIMIT, DEMAND = range(8)
NEVER = math.nan

Heard = Callable[[Hashable, float], None]


class NotKnownYet(SlotwiseError):  # noqa: N818
    """Nothing can be said yet; the text says why."""


class Follower:
    """A core that is behind the service by what has happened since the last `catch_up`."""

    def __init__(self, store: Store, *, started: Heard | None = None, dropped: Heard | None = None) -> None:
        """`started` and `dropped` are told of jobs that start, and of jobs that will not start, while the journal is followed."""
        self.store = store
        self._started, self._dropped = started, dropped
        self.tenants: dict[str, int] = {}
        self.types: dict[str, int] = {}
        self._jobs: dict[int, list[Any]] = {}
        self._nameless: set[int] = set()
        self.core, self.seq = self._load()
        self._read_jobs()
        self._following = True

    _following = False

    def _load(self) -> tuple[Scheduler, int]:
        checkpoint = self.store.checkpoint()
        if checkpoint is None:
            raise NotKnownYet("not known yet: the store has no situation")
        return core_of(checkpoint), checkpoint.seq

    def catch_up(self) -> int:
        """Follow the journal to its end; return how many rows there were."""
        before = self.seq
        for entry in rows(self.store, self.seq):
            if entry.event.startswith(EPOCH):
                self.core, self.seq = self._load()
                self._read_jobs()
                break
            self.core, outcome = step(self.core, entry)
            self.seq = entry.seq
            self._hear(json.loads(entry.event), entry.time, json.loads(entry.placements), outcome)
        self._learn_tenants()
        return self.seq - before

    # -- the history ----------------------------------------------------------------------------------------------

    def _read_jobs(self) -> None:
        """Read the newest jobs from the table of jobs."""
        found = self.store.jobs(Query(limit=KEPT))[::-1]
        recent = [job.id for job in found[-WITH_LIMITS:]]
        bodies = {number: body for number, (_, body) in self.store.specs(recent).items()}
        for job in found:
            self._jobs[job.id] = self._row(job, bodies.get(job.id))
        self._nameless.clear()

    def _row(self, job: Job, body: str | None) -> list[Any]:
        spec = json.loads(body) if body else {}
        limit = spec.get("time") or spec.get("duration") or NEVER
        started = NEVER if job.placed is None else job.placed
        ended = NEVER if job.ended is None or job.placed is None else job.ended
        return [
            job.submitted, started, ended, job.state in (DONE, FAILED), self._type(job.type), self._owner(job.tenant),
            float(limit), spec.get("needs") or None,
        ]  # fmt: skip

    def _type(self, name: str) -> int:
        return self.types.setdefault(name, len(self.types))

    def _owner(self, tenant: str) -> int:
        return self.tenants.setdefault(tenant, len(self.tenants))

    def _learn_tenants(self) -> None:
        """Read the tenants of jobs that the journal has told of: the journal does not keep them."""
        names = sorted(self._nameless)
        for at in range(0, len(names), 500):
            for job in self.store.jobs(Query(ids=tuple(names[at : at + 500]), limit=500)):
                if job.id in self._jobs:
                    self._jobs[job.id][OWNER] = self._owner(job.tenant)
        self._nameless.clear()

    def _hear(self, row: dict[str, Any], now: float, placements: list[list[Any]], outcome: Outcome | None) -> None:
        kind, job = row["event"], row.get("job")
        if kind == "submit":
            self._jobs[job] = [  # type: ignore[index]
                now, NEVER, NEVER, False, self._type(row["type"]), -1, float(row.get("duration") or NEVER),
                {name: float(x) for name, x in row["demand"].items()} if "demand" in row else None,
            ]  # fmt: skip
            self._nameless.add(job)  # type: ignore[arg-type]
            if len(self._jobs) > KEPT + KEPT // 4:
                for old in sorted(self._jobs)[: len(self._jobs) - KEPT]:
                    del self._jobs[old]
        elif kind in ("complete", "stop") and job in self._jobs:
            self._jobs[job][ENDED], self._jobs[job][COMPLETED] = now, kind == "complete"
        elif kind == "cancel" and self._dropped is not None:
            self._dropped(job, now)
        back = [job] if kind == "requeue" else list(outcome.requeued) if outcome is not None else []
        for one in back:
            if one in self._jobs:
                self._jobs[one][STARTED] = NEVER
        for number, _, attempt in placements:
            if number in self._jobs:
                self._jobs[number][STARTED] = now
            if self._started is not None and attempt == 1:
                self._started(number, now)

    def history(self) -> History:
        """Return what was observed, as the library takes it."""
        numbers = sorted(self._jobs)[-KEPT:]
        table = [self._jobs[number] for number in numbers]
        columns = list(zip(*table, strict=True)) if table else [()] * 8
        resources = self.core.cluster.resources
        demand = None
        if any(columns[DEMAND]):
            sizes = {one.name: [float(x) for x in one.demand] for one in self.core.types}
            names = list(self.types)
            demand = np.array([
                _demand(own, resources, sizes.get(names[kind], [0.0] * len(resources)))
                for own, kind in zip(columns[DEMAND], columns[TYPE], strict=True)
            ])  # fmt: skip
        numbers_of = [np.array(columns[at], np.float64) for at in (SUBMITTED, STARTED, ENDED, LIMIT)]
        order = np.argsort(numbers_of[0], kind="stable")
        submitted, started, ended, limit = (column[order] for column in numbers_of)
        return History(
            tuple(self.types) or ("none",),
            submitted,
            started,
            ended,
            np.array(columns[COMPLETED], np.bool_)[order] & ~np.isnan(ended),
            np.array(columns[TYPE], np.int64)[order],
            np.array(columns[OWNER], np.int64)[order],
            limit,
            None if demand is None else demand[order],
        )

    def owners(self) -> dict[Hashable, int]:
        """Return the numbers of tenants of the jobs that are kept."""
        return {number: row[OWNER] for number, row in self._jobs.items()}

    def waited(self, job: Hashable, until: float) -> float | None:
        """Return how long a job has waited, if it is known."""
        row = self._jobs.get(job)  # type: ignore[call-overload]
        return None if row is None else until - float(row[SUBMITTED])

    def type_of(self, job: int) -> str | None:
        """Return the type of a job, if it is known."""
        row = self._jobs.get(job)
        return None if row is None else list(self.types)[row[TYPE]]


def _demand(own: dict[str, float] | None, resources: tuple[str, ...], size: list[float]) -> list[float]:
    return size if not own else [float(own.get(name, size[r])) for r, name in enumerate(resources)]

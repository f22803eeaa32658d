"""Run a situation forward with given durations and arrivals, many times, until the jobs that wait in it have started.

The memory of a run is laid out once. Before each run it is set back to the situation, which takes a copy of some arrays; laying it out takes a hundred times as long.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import natural
from slotwise.model import Cluster, Run, Scenario, integers
from slotwise.scheduling.situation import Situation
from slotwise.simulation.measure.meter import ROW_ARRIVAL, ROW_DURATION, ROW_END, ROW_START, ROW_TYPE
from slotwise.simulation.run import ahead, takeup
from slotwise.simulation.run.agenda import DURATION, LEAF, Agenda, ends, stays
from slotwise.simulation.run.ends import put
from slotwise.simulation.run.replication import Prepared, StoppedError, Task, drive_on, pieces_of, prepare
from slotwise.workloads.jobs import Jobs
from slotwise.workloads.source import Chunk

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
PIECE = 256  # arrivals between two looks at whether all jobs have started; a look costs as much as 200 arrivals


@dataclass(frozen=True, eq=False)
class Coming:
    """Jobs that arrive: time from the situation's `now`, type, duration; demand in the situation's units."""

    time: F8
    type: I8
    duration: F8
    demand: I8 | None = None
    estimate: F8 | None = None
    row: I8 | None = None
    """where each comes from, for the caller"""


@dataclass(frozen=True, eq=False)
class Course:
    """What happened to each job: first the jobs of the situation, waiting ones before running ones, then arrivals in order."""

    arrival: F8
    start: F8
    """NaN: still waiting at the end of the run"""
    end: F8
    type: I8
    duration: F8
    until: float
    """where the run ended"""


class Forward:
    """A situation from which many runs begin, all with its own policy."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        start = takeup.relative(situation)
        self._n_waiting = len(start.waiting.job)
        self._n_jobs = start.n_jobs
        order = np.argsort(np.array([*start.waiting.submitted, *start.running.submitted]), kind="stable")
        self._row_of = np.empty(self._n_jobs, np.int64)
        self._row_of[order] = np.arange(self._n_jobs)
        self._started = np.array(start.running.started, np.float64)
        task = _task_of(start)
        ahead.compile_pieces(pieces_of(task))
        self._ready = prepare(task)
        self._rewind = _Rewind(self._ready)

    def run(
        self, durations: F8, coming: Coming, until: float, *, watched: I8 | None = None, to_the_end: bool = False
    ) -> Course:
        """Run until the watched ones (default: all) of the jobs that wait in the situation have started, at most until the time `until`; with `to_the_end`
        always until then. `durations` are those of the situation's jobs, waiting ones first."""
        self._rewind()
        n, W, row_of = self._n_jobs, self._n_waiting, self._row_of
        ready = self._ready._replace(source=_Pieces(coming))
        agenda, meters = ready.agenda, ready.meters
        agenda.record.limit_time = until
        agenda.arrays["stays"][:n, DURATION] = durations
        meters.arrays["rows"][row_of, ROW_DURATION] = durations
        change_ends(agenda.record, W, np.maximum(0.0, self._started + durations[W:]))
        waiting = row_of[:W] if watched is None else row_of[watched]

        def all_started() -> bool:
            return not np.isnan(meters.arrays["rows"][waiting, ROW_START]).any()

        with suppress(StoppedError):  # all that was asked for is known
            drive_on(ready, None, None if to_the_end else all_started)
        rows: Any = meters.arrays["rows"][: meters.record.n_rows]
        rows = rows[np.concatenate([row_of, np.arange(n, len(rows))])]
        return Course(
            rows[:, ROW_ARRIVAL],
            rows[:, ROW_START],
            rows[:, ROW_END],
            rows[:, ROW_TYPE].astype(np.int64),
            rows[:, ROW_DURATION],
            float(agenda.record.now),
        )


def _task_of(start: Situation) -> Task:
    """Return a run from a situation, whose times are relative, in which nothing arrives."""
    counts = [0] * len(start.classes)
    for c, status in zip(start.servers.server_class, start.servers.status, strict=True):
        counts[c] += status != "absent"
    servers = tuple(
        one.model_copy(update={"count": n, "failures": None}) for one, n in zip(start.classes, counts, strict=True)
    )
    cluster = Cluster(resources=tuple(start.resources), servers=servers)
    types = tuple(start.types)
    # what arrives is given to each run; a scenario wants to be told a rate
    rated = tuple(one if one.rate is not None else one.model_copy(update={"rate": 1.0}) for one in types)
    run = Run(until=1.0, warmup=0.0, replications=1)
    scenario = Scenario(name="forward", cluster=cluster, types=rated, run=run, shares=start.shares)
    nothing = Coming(np.zeros(0), np.zeros(0, np.int64), np.zeros(0))
    jobs = Jobs(
        types=types,
        sizes=integers(cluster, types, start.digits),
        rates=np.array([one.rate or 0.0 for one in types]),
        mean_service=np.array([one.mean_service for one in types]),
        open=lambda seed: _Pieces(nothing),
        alike=False,
        has_estimates=True,
    )
    durations = np.full(start.n_jobs, np.inf)
    return Task(
        scenario, jobs, takeup.choice_of(start), warmup=0.0, record_jobs=True, start=start, durations=durations
    )


@kernel
def change_ends(a: Agenda, first: int, when: F8) -> None:
    """Let the running jobs from number `first` on end at these times."""
    for n in range(len(when)):
        i = natural(first + n)
        put(ends(a), a.root, a.leaves + int(stays(a)[i, LEAF]), i, when[n])


class _Rewind:
    """The memory of a run as it was: called, it puts everything back. Arrays that have grown since are replaced by those that were there."""

    def __init__(self, ready: Prepared) -> None:
        store, agenda, meters = ready.store, ready.agenda, ready.meters
        self._tables = [store.arrays, *store.more_arrays(), agenda.arrays, meters.arrays]
        self._before = [{name: (array, array.copy()) for name, array in table.items()} for table in self._tables]
        self._records = [(memory, memory.copy()) for memory in (store.record, agenda.memory, meters.memory)]

    def __call__(self) -> None:
        for table, before in zip(self._tables, self._before, strict=True):
            for name, (array, values) in before.items():
                array[...] = values
                table[name] = array
        for memory, values in self._records:
            memory[...] = values


class _Pieces:
    """A source that gives few jobs at a time, so that the run can be ended soon after all have started."""

    def __init__(self, coming: Coming) -> None:
        self._coming, self._at = coming, 0

    def next(self, at_most: int, to_come: int = 0) -> Chunk:
        """Return the next jobs; after the last, one that never comes, so that the run goes on until its time."""
        if self._at == len(self._coming.time):
            return Chunk(np.full(1, np.inf), np.zeros(1, np.int64), np.zeros(1), None)
        c, here = self._coming, slice(self._at, self._at + min(PIECE, at_most))
        self._at = min(self._at + min(PIECE, at_most), len(c.time))
        return Chunk(
            c.time[here],
            c.type[here],
            c.duration[here],
            None if c.demand is None else c.demand[here],
            None if c.estimate is None else c.estimate[here],
        )

"""Jobs from events: SUBMIT, SCHEDULE, then an end, of one task, with nothing between.

Sort the events by task and, within a task, in their order of time. A job is then three rows in a run. With the event
codes e, an end at row i is a job when e[i-2] = SUBMIT, e[i-1] = SCHEDULE and all three rows are of one task. It arrives
at the SUBMIT, its duration is the end minus the SCHEDULE, and it asks for what the SUBMIT says.

Events come in blocks in the order of time. Tasks that are still open at the end of a block, with at most two rows each,
wait for the next block. Nothing else is kept, so memory grows with the open tasks and not with the trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Intake

# STOP is any end but FINISH: evicted, failed, killed, lost. An UPDATE neither begins nor ends anything.
SUBMIT, SCHEDULE, FINISH, STOP, UPDATE = 0, 1, 2, 3, 4

MICROS = 1e6  # in a second; dividing by it rounds once, multiplying by 1e-6 twice
INDEX_BITS = 20
LEAST_ROWS = 300_000  # held before they are sorted: sorting each block would take longer

# What `LifeCycles.feed` wants; times are integers in microseconds.
COLUMNS = ["time", "job", "task", "event", "tenant", "priority", "cpu", "memory", "file", "line"]


class LifeCycles:
    """Turns blocks of events into tables of jobs."""

    def __init__(self, intake: Intake, paths: Sequence[Path]) -> None:
        self.intake = intake
        self.paths = paths
        self.open: pl.DataFrame | None = None
        self.last_time = 0
        self.held: list[pl.DataFrame] = []
        self.held_rows = 0

    def feed(self, events: pl.DataFrame) -> pl.DataFrame:
        """Take a block of events (columns `COLUMNS`, in the order of time); the jobs that are known to have ended.

        Blocks are gathered until they outweigh the open tasks, which are sorted anew each time: so the work stays
        in proportion to the events however many tasks are open.
        """
        if events.height:
            self.last_time = int(events["time"][-1])
            self.held.append(events.select(COLUMNS))
            self.held_rows += events.height
        waiting = self.open.height if self.open is not None else 0
        return self._sort_out() if self.held_rows >= max(LEAST_ROWS, 2 * waiting) else _no_jobs()

    def _sort_out(self) -> pl.DataFrame:
        """Return the jobs that end in the gathered events."""
        if not self.held:
            return _no_jobs()
        events = pl.concat([*([self.open] if self.open is not None else []), *self.held], rechunk=True)
        self.held, self.held_rows = [], 0
        key, event = self._key(events), events["event"].to_numpy()
        order = np.argsort(key, kind="stable")
        order = order[event[order] != UPDATE]
        key, event = key[order], event[order]
        same = np.zeros(len(key), dtype=np.bool_)
        same[1:] = key[1:] == key[:-1]
        before = np.full(len(key), -1, dtype=event.dtype)
        before[1:][same[1:]] = event[:-1][same[1:]]
        # The rows where SCHEDULE follows SUBMIT, and those whose row before is such a one.
        started = (event == SCHEDULE) & (before == SUBMIT)
        ended = np.zeros_like(started)
        ended[1:] = (event[1:] >= FINISH) & started[:-1] & same[1:]
        self._count(event, before, started, ended)

        last = np.ones_like(same)
        last[:-1] = ~same[1:]
        waiting = last & (event == SUBMIT)
        running = np.flatnonzero(last & started)
        carried = np.concatenate([np.flatnonzero(waiting), running, running - 1])
        self.open = events[np.sort(order[carried])]

        ends = np.flatnonzero(ended & ((event == FINISH) | self.intake.keep))
        return self._jobs(events, order[ends - 2], order[ends - 1], order[ends])

    def close(self) -> Iterator[pl.DataFrame]:
        """Yield the jobs of the last events, and the jobs that still run then: censored ones if these are kept."""
        yield self._sort_out()
        events, self.open = self.open, None
        if events is None or not events.height:
            return
        order = np.argsort(self._key(events), kind="stable")
        event = events["event"].to_numpy()[order]
        starts = np.flatnonzero(event == SCHEDULE)
        left_out = self.intake.left_out
        left_out["tasks still waiting at the end"] += int(np.count_nonzero(event == SUBMIT)) - len(starts)
        if not self.intake.keep:
            left_out["tasks still running at the end"] += len(starts)
            return
        yield self._jobs(events, order[starts - 1], order[starts], None)

    def _key(self, events: pl.DataFrame) -> NDArray[np.int64]:
        job, task = events["job"].to_numpy(), events["task"].to_numpy()
        if job.min() < 0 or job.max() >= 1 << (63 - INDEX_BITS) or task.min() < 0 or task.max() >= 1 << INDEX_BITS:
            row = events.row(0, named=True)
            raise InputError(
                f"job ids up to 2^{63 - INDEX_BITS} and task indices up to 2^{INDEX_BITS} are read, not beyond",
                where=str(self.paths[row["file"]]),
            )
        key: NDArray[np.int64] = (job << INDEX_BITS) | task
        return key

    def _count(
        self,
        event: NDArray[np.int8],
        before: NDArray[np.int8],
        started: NDArray[np.bool_],
        ended: NDArray[np.bool_],
    ) -> None:
        """Count the events that make no job. Every event is in exactly one life cycle or one count."""
        ends = event >= FINISH
        found = {
            "events of tasks ended before they were scheduled": ends & (before == SUBMIT),
            "events of tasks that began before the trace": (ends & ~ended & (before != SUBMIT))
            | ((event == SCHEDULE) & ~started),
            "tasks submitted again with no end between": (event == SUBMIT)
            & ((before == SUBMIT) | (before == SCHEDULE)),
        }
        if not self.intake.keep:
            found["tasks interrupted (evicted, failed, killed, lost)"] = ended & (event == STOP)
        for reason, rows in found.items():
            if count := int(np.count_nonzero(rows)):
                self.intake.left_out[reason] += count

    def _jobs(
        self,
        events: pl.DataFrame,
        submit: NDArray[np.int64],
        schedule: NDArray[np.int64],
        end: NDArray[np.int64] | None,
    ) -> pl.DataFrame:
        jobs = events[submit].with_columns(
            start=events["time"].gather(schedule),
            end=events["time"].gather(end) if end is not None else pl.lit(self.last_time),
            censored=(events["event"].gather(end) != FINISH) if end is not None else pl.lit(True),
            end_file=events["file"].gather(end if end is not None else schedule),
            end_line=events["line"].gather(end if end is not None else schedule),
        )
        jobs = self.intake.leave_out(jobs, pl.col("time") == 0, "tasks submitted before the trace began")
        jobs = self.intake.leave_out(
            jobs, pl.col("cpu").is_null() | pl.col("memory").is_null(), "tasks with no demand recorded"
        )
        late = jobs.with_columns(file="end_file", line="end_line")
        jobs = self.intake.bad.screen(late, pl.col("end") < pl.col("start"), "finish before start", self.paths)
        return jobs.select(
            arrival=pl.col("time") / MICROS,
            # A run within one tick of the clock is taken as half a tick.
            duration=pl.max_horizontal((pl.col("end") - pl.col("start")) / MICROS, pl.lit(0.5 / MICROS)),
            **{"demand.cpu": pl.col("cpu"), "demand.memory": pl.col("memory")},
            batch=pl.col("job"),
            tenant=pl.col("tenant"),
            priority=pl.col("priority").cast(pl.Int32),
            censored=pl.col("censored"),
            id=pl.format("{}-{}", "job", "task"),
        )


def _no_jobs() -> pl.DataFrame:
    return pl.DataFrame(
        schema={
            "arrival": pl.Float64,
            "duration": pl.Float64,
            "demand.cpu": pl.Float64,
            "demand.memory": pl.Float64,
            "batch": pl.Int64,
            "tenant": pl.String,
            "priority": pl.Int32,
            "censored": pl.Boolean,
            "id": pl.String,
        }
    )

"""What a run measures, streamed: one record of sums and array addresses. What will happen stands in `agenda`.

Queue figures are time averages after the warm-up; waits are those of jobs that arrived after it. Nothing grows with the number
of finished jobs: waits go into log-spaced histograms, the time series into a buffer whose step doubles when it
is full. Only the record of single jobs, where it is asked for, grows with them.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import float_rows, floats, int_rows, ints
from slotwise.core.records import RecordStore, dtype_of
from slotwise.simulation.measure.histogram import BINS

SAMPLES = 1024  # of the queues in a run, at most; then every second one is dropped
FIRST_COLUMNS = 4  # of `samples`: time, waiting, running, stalled; then the queue of each type
NEVER = 2**62
NOTED = 128  # so many waits are counted in their histograms together
FIRST_ROWS = 4096  # of the record of jobs; then twice as many each time


class Meter:
    """What the record holds."""

    # the time series
    next_sample: float
    sample_every: float
    n_samples: int
    # since the warm-up
    warm: int
    measured_from: float
    added_until: float  # until when the areas are added up
    jobs_wait: int  # since then
    stalled: int  # servers, since then
    area_stalled: float
    span_quiet: float  # time since the servers last changed during which no job waited
    span_waiting: float  # and during which some job did
    servers_now: int  # servers that are there, draining ones included
    area_servers: float
    stalls_before: int
    resets_before: int
    overtakes: int
    slowdown_sum: float
    slowdown_floor: float
    lost: int  # jobs that a failing server threw back
    lost_work: float
    n_noted: int  # waits that are not in their histograms yet
    n_still: int  # jobs that came after the warm-up and still wait when the run ends
    oldest: int  # the job that has waited longest, -1: not known
    oldest_born: int  # its sequence number
    # the record of single jobs
    recording: int
    n_rows: int
    max_rows: int  # NEVER where nothing is recorded
    # sizes and addresses
    n_types: int
    n_resources: int
    max_jobs: int
    at_area_running: int
    at_shift: int
    at_area_used: int
    at_area_capacity: int
    at_capacity_now: int
    at_queue_area: int
    at_wait_sums: int
    at_wait_bins: int
    at_noted: int
    at_at_once: int
    at_still_waiting: int
    at_slowdown_bins: int
    at_samples: int
    at_row_of: int
    at_rows: int


DTYPE = dtype_of(Meter)
RECORD = numba.from_dtype(DTYPE)

COUNT, SUM, SQUARES, LARGEST = 0, 1, 2, 3  # columns of `wait_sums`
ROW_ARRIVAL, ROW_TYPE, ROW_DURATION, ROW_START, ROW_SERVER, ROW_END = 0, 1, 2, 3, 4, 5  # columns of `rows`
ROW_COLUMNS = 6


@kernel
def area_running(m: Meter) -> NDArray[np.float64]:
    """(2, J): integral of the running jobs of each type, over the times without and with a waiting job."""
    return float_rows(m.at_area_running, 2, m.n_types)


@kernel
def shift(m: Meter) -> NDArray[np.float64]:
    """(J,): sum of the times since `added_until` at which jobs of a type started, less those at which they ended."""
    return floats(m.at_shift, m.n_types)


@kernel
def area_used(m: Meter) -> NDArray[np.float64]:
    """(2, R): integral of what running jobs take, over the times without and with a waiting job."""
    return float_rows(m.at_area_used, 2, m.n_resources)


@kernel
def area_capacity(m: Meter) -> NDArray[np.float64]:
    """(2, R): integral of the capacity of the servers that are there, likewise; see `measuring.add_up_capacity`."""
    return float_rows(m.at_area_capacity, 2, m.n_resources)


@kernel
def capacity_now(m: Meter) -> NDArray[np.float64]:
    """(R,): capacity of the servers that are there, draining ones included."""
    return floats(m.at_capacity_now, m.n_resources)


@kernel
def queue_area(m: Meter) -> NDArray[np.float64]:
    """(J,): integral of Q_j, as the sum of what each job waited."""
    return floats(m.at_queue_area, m.n_types)


@kernel
def wait_sums(m: Meter) -> NDArray[np.float64]:
    """(J, 4): COUNT, SUM, SQUARES, LARGEST of the waits of each type."""
    return float_rows(m.at_wait_sums, m.n_types, 4)


@kernel
def wait_bins(m: Meter) -> NDArray[np.int64]:
    """(J, BINS): histogram of the waits of each type."""
    return int_rows(m.at_wait_bins, m.n_types, BINS)


@kernel
def all_wait_bins(m: Meter) -> NDArray[np.int64]:
    """(J BINS,): the same, one type after the other."""
    return ints(m.at_wait_bins, m.n_types * BINS)


@kernel
def at_once(m: Meter) -> NDArray[np.int64]:
    """(J,): how many of each type did not wait. `finish` writes them into the histograms, which are too large to be at hand."""
    return ints(m.at_at_once, m.n_types)


@kernel
def noted(m: Meter) -> NDArray[np.int64]:
    """(NOTED,): the first n_noted are places in `all_wait_bins` of waits that are still to be counted there."""
    return ints(m.at_noted, NOTED)


@kernel
def still_waiting(m: Meter) -> NDArray[np.int64]:
    """(N,): the first n_still are of jobs that came after the warm-up and still wait when the run ends: places in `all_wait_bins` by how long they have waited."""
    return ints(m.at_still_waiting, m.max_jobs)


@kernel
def slowdown_bins(m: Meter) -> NDArray[np.int64]:
    """(BINS,): histogram of wait / service, the slowdown less 1."""
    return ints(m.at_slowdown_bins, BINS)


@kernel
def samples(m: Meter) -> NDArray[np.float64]:
    """(SAMPLES, 4 + J)."""
    return float_rows(m.at_samples, SAMPLES, FIRST_COLUMNS + m.n_types)


@kernel
def row_of(m: Meter) -> NDArray[np.int64]:
    """(N,): the row of each job that is there, where jobs are recorded."""
    return ints(m.at_row_of, m.max_jobs)


@kernel
def rows(m: Meter) -> NDArray[np.float64]:
    """(max_rows, 6): arrival, type, duration, last start, its server, end of each job that came; nan: not yet."""
    return float_rows(m.at_rows, m.max_rows, ROW_COLUMNS)


class MeterStore(RecordStore):
    """The meter of a run in which nothing has been measured yet."""

    def __init__(self, n_types: int, n_resources: int, max_jobs: int, *, record_jobs: bool = False) -> None:
        super().__init__(DTYPE)
        m, J, R = self.record, n_types, n_resources
        m.n_types, m.n_resources = J, R
        self.put("area_running", np.zeros((2, J)))
        self.put("shift", np.zeros(J))
        self.put("area_used", np.zeros((2, R)))
        self.put("area_capacity", np.zeros((2, R)))
        self.put("capacity_now", np.zeros(R))
        self.put("queue_area", np.zeros(J))
        self.put("wait_sums", np.zeros((J, 4)))
        self.put("wait_bins", np.zeros((J, BINS), np.int64))
        self.put("at_once", np.zeros(J, np.int64))
        self.put("noted", np.zeros(NOTED, np.int64))
        self.put("slowdown_bins", np.zeros(BINS, np.int64))
        self.put("samples", np.zeros((SAMPLES, FIRST_COLUMNS + J)))
        m.recording, m.max_rows, m.oldest = record_jobs, NEVER, -1
        self.grow(max_jobs)
        if record_jobs:
            self.more_rows()

    def grow(self, max_jobs: int) -> None:
        """Make room for job numbers up to max_jobs."""
        self.record.max_jobs = max_jobs
        self.put("still_waiting", np.zeros(max_jobs, np.int64))
        if self.record.recording:
            self.lengthen("row_of", np.zeros(max_jobs, np.int64))

    def waiting_bins(self) -> NDArray[np.int64]:
        """(J, BINS): histogram of how long those have waited who came after the warm-up and still wait when the run ends. They are few, and it is large:
        it is made when all is over."""
        found = np.zeros((self.record.n_types, BINS), np.int64)
        np.add.at(found.reshape(-1), self.arrays["still_waiting"][: self.record.n_still], 1)
        return found

    def more_rows(self) -> None:
        """Make room for more recorded jobs."""
        first = "rows" not in self.arrays
        self.record.max_rows = FIRST_ROWS if first else 2 * self.record.max_rows
        self.lengthen("rows", np.full((self.record.max_rows, ROW_COLUMNS), np.nan))

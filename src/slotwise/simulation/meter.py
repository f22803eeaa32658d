"""What a run measures, streamed: one record of sums and array addresses, as the scheduling state is one.

Queue figures are time averages after the warm-up; waits are those of jobs that arrived after it. Nothing grows with the number
of finished jobs: waits go into log-spaced histograms, the time series into a buffer whose step doubles when it
is full.
"""

from __future__ import annotations

from typing import Any, cast

import numba
import numpy as np
from numpy.typing import NDArray

from slotwise._kernel import kernel
from slotwise.scheduling.memory import float_rows, floats, int_rows, ints
from slotwise.simulation.ends import grown, room
from slotwise.simulation.histogram import BINS

SAMPLES = 1024
FIRST_COLUMNS = 4
"""of `samples`: time, waiting, running, stalled; then the queue of each type"""


class Meter:
    """What the record holds."""

    # the clock
    now: float
    next_tick: float
    next_sample: float
    sample_every: float
    n_samples: int
    # limits, -1 or infinity where there is none
    limit_events: int
    limit_jobs: int
    limit_time: float
    warm_events: int
    warm_jobs: int
    warm_time: float
    # where we are in the columns of jobs and of server events
    at_job: int
    n_jobs: int
    # the tree of ends, see `slotwise.simulation.ends`
    leaves: int
    root: int
    n_leaves: int  # leaves that were ever used
    n_spare: int  # of them, those that hold no job
    # counters
    events: int
    arrivals: int
    completions: int
    ticks: int
    lost: int  # jobs that a failing server threw back
    # since the warm-up
    warm: int
    measured_from: float
    settled: float  # until when the areas are added up
    somebody_waits: int  # since then
    stalled: int  # servers, since then
    area_stalled: float
    span_quiet: float  # time since the servers last changed during which nobody waited
    span_waiting: float  # and during which somebody did
    servers_now: int  # servers that are there, draining ones included
    area_servers: float
    stalls_before: int
    resets_before: int
    events_before: int
    overtakes: int
    slowdown_sum: float
    slowdown_floor: float
    lost_work: float
    # sizes and addresses
    n_types: int
    n_resources: int
    max_jobs: int
    at_stays: int
    at_ends: int
    at_spare: int
    at_area_running: int
    at_shift: int
    at_area_used: int
    at_area_capacity: int
    at_capacity_now: int
    at_queue_area: int
    at_wait_sums: int
    at_wait_bins: int
    at_slowdown_bins: int
    at_samples: int


DTYPE = np.dtype(
    (np.record, [(name, "f8" if kind == "float" else "i8") for name, kind in Meter.__annotations__.items()])
)
RECORD = numba.from_dtype(DTYPE)

COUNT, SUM, SQUARES, LARGEST = 0, 1, 2, 3  # columns of `wait_sums`
ARRIVAL, DURATION, LEAF = 0, 1, 2  # columns of `stays`
STAY_COLUMNS = 4


@kernel
def stays(m: Meter) -> NDArray[np.float64]:
    """(N, 4): when each job arrived (less than 0: when a failing server threw it back, at minus this), how long it runs, and
    where in the tree of ends it stands while it does."""
    return float_rows(m.at_stays, m.max_jobs, STAY_COLUMNS)


@kernel
def ends(m: Meter) -> NDArray[np.float64]:
    """(2 leaves, 2): when running jobs end; see `slotwise.simulation.ends`."""
    return float_rows(m.at_ends, 2 * m.leaves, 2)


@kernel
def spare(m: Meter) -> NDArray[np.int64]:
    """(leaves,): the first n_spare are leaves of the tree that were used before and are free."""
    return ints(m.at_spare, m.leaves)


@kernel
def area_running(m: Meter) -> NDArray[np.float64]:
    """(2, J): integral of the running jobs of each type, over the times when nobody waited, and when somebody did."""
    return float_rows(m.at_area_running, 2, m.n_types)


@kernel
def shift(m: Meter) -> NDArray[np.float64]:
    """(J,): sum of the times since `settled` at which jobs of a type started, less those at which they ended."""
    return floats(m.at_shift, m.n_types)


@kernel
def area_used(m: Meter) -> NDArray[np.float64]:
    """(2, R): integral of what running jobs take, over the times when nobody waited, and when somebody did."""
    return float_rows(m.at_area_used, 2, m.n_resources)


@kernel
def area_capacity(m: Meter) -> NDArray[np.float64]:
    """(2, R): integral of the capacity of the servers that are there, likewise; see `settle_capacity` of the loop."""
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
def slowdown_bins(m: Meter) -> NDArray[np.int64]:
    """(BINS,): histogram of (wait + service) / service."""
    return ints(m.at_slowdown_bins, BINS)


@kernel
def samples(m: Meter) -> NDArray[np.float64]:
    """(SAMPLES, 4 + J)."""
    return float_rows(m.at_samples, SAMPLES, FIRST_COLUMNS + m.n_types)


class MeterStore:
    """The arrays behind a meter."""

    def __init__(self, n_types: int, n_resources: int, max_jobs: int) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.record = np.zeros(1, DTYPE)
        self.meter: Any = cast(Any, self.record[0])
        m = self.meter
        m.n_types, m.n_resources = n_types, n_resources
        m.limit_events = m.limit_jobs = -1
        m.limit_time = m.next_tick = np.inf
        J, R = n_types, n_resources
        self._put("area_running", np.zeros((2, J)))
        self._put("shift", np.zeros(J))
        self._put("area_used", np.zeros((2, R)))
        self._put("area_capacity", np.zeros((2, R)))
        self._put("capacity_now", np.zeros(R))
        self._put("queue_area", np.zeros(J))
        self._put("wait_sums", np.zeros((J, 4)))
        self._put("wait_bins", np.zeros((J, BINS), np.int64))
        self._put("slowdown_bins", np.zeros(BINS, np.int64))
        self._put("samples", np.zeros((SAMPLES, FIRST_COLUMNS + J)))
        self.grow(max_jobs)

    def grow(self, max_jobs: int) -> None:
        """Make room for job numbers up to max_jobs."""
        tree = self.arrays.get("ends")
        self._put("ends", room(max_jobs) if tree is None else grown(tree, max_jobs))
        leaves = len(self.arrays["ends"]) // 2
        self.meter.root = self.meter.root * leaves // self.meter.leaves if tree is not None else leaves
        self.meter.leaves = leaves
        self._lengthen("stays", np.zeros((max_jobs, STAY_COLUMNS)))
        self._lengthen("spare", np.zeros(leaves, np.int64))
        self.meter.max_jobs = max_jobs

    def _lengthen(self, name: str, larger: NDArray[Any]) -> None:
        old = self.arrays.get(name)
        if old is not None:
            larger[: len(old)] = old
        self._put(name, larger)

    def _put(self, name: str, values: NDArray[Any]) -> None:
        self.arrays[name] = values
        setattr(self.meter, f"at_{name}", values.ctypes.data)

"""Sources of jobs: what arrives, in columns, chunk by chunk and in order of time.

A job is (time, type, duration) and, from a trace, its actual demand. Its service time belongs to the job: it is
drawn with it, whatever a policy does with the job later. The stream is a function of the seed, the laws and the
rates: neither the policy, nor the servers, nor the sizes of the chunks that are asked for change a bit of it. So
two policies, or two sizes of a cluster, meet the same jobs (common random numbers).

Below the seed, type j draws its gaps from the stream (0, j), its service times from (1, j); what the types share
(the modulating chain, the requests of batch arrivals) comes from (2,). With another rate the same unit draws are
stretched, so neighbouring intensities are compared on kindred streams as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.model.laws import BatchArrivals, Poisson
from slotwise.model.scenario import Scenario
from slotwise.workloads.laws import (
    Sampler,
    batch_vectors,
    child,
    effective_rates,
    generator,
    sampler,
    service_law,
)
from slotwise.workloads.merge import merge
from slotwise.workloads.processes import ArrivalProcess, Renewal, processes
from slotwise.workloads.timechange import changing, rhythms_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GAPS, SERVICE, SHARED = range(3)
# arrivals of the busiest type that are drawn at a time: NumPy's overhead is spread thin, the cache holds them
MOST_BLOCK = 8192
MOST_BUFFERED = 1 << 18  # arrivals of all types that are drawn ahead, about
FIRST_BLOCK = 64  # arrivals of the busiest type that are drawn at first: a short run draws little
# Factor by which a block grows if the number of arrivals is not known: few calls are made for many types.
GROWTH = 4


@dataclass(frozen=True, slots=True)
class Chunk:
    """Jobs in order of time, equal instants in the order of their coming."""

    time: Floats
    job_type: Ints
    duration: Floats
    demand: Ints | None
    """actual demands in the trace's integer units, shape (n, R); None: what the type demands"""
    estimate: Floats | None = None
    """how long their users expect them to run; None without estimates"""

    def __len__(self) -> int:
        return len(self.time)


class JobSource(Protocol):
    """A stream of jobs."""

    def next(self, at_most: int, to_come: int = 0) -> Chunk:
        """Return the next jobs, 1 to `at_most` of them; an empty chunk means that no job will ever come again. The
        caller will ask for about `to_come` jobs, these included (0: not known). That says how far to draw ahead, and
        changes no job."""


def open_source(scenario: Scenario, rates: Floats, seed: SeedSequence) -> JobSource:
    """Return the stream of jobs under the scenario's laws, type j at `rates[j]` per unit time.

    The same seed gives the same stream, however often it is opened. With batch arrivals `rates` must be the
    scenario's own rates (`effective_rates`) times one factor, which then scales the rate of the requests.
    """
    if scenario.workload.trace is not None:
        raise InputError("a trace is not drawn from laws", where="workload.trace", remedy="use TraceSource")
    rates = np.asarray(rates, dtype=np.float64)
    if rates.shape != (len(scenario.types),) or not (np.isfinite(rates).all() and (rates >= 0).all()):
        raise InputError("not one finite rate of 0 or more for each type", where="rates")
    service = [
        _scaled(sampler(service_law(scenario, j), child(seed, SERVICE, j)), job_type.mean_service)
        for j, job_type in enumerate(scenario.types)
    ]
    if isinstance(scenario.workload.arrivals, BatchArrivals):
        return _batch_source(scenario, scenario.workload.arrivals, rates, service, seed)
    arrivals = processes(
        [job_type.arrivals for job_type in scenario.types],
        scenario.workload.arrivals,
        rates,
        [child(seed, GAPS, j) for j in range(len(rates))],
        child(seed, SHARED),
    )
    return MergedSource(changing(arrivals, rhythms_of(scenario)), service, rates)


def _scaled(draw: Sampler, mean: float) -> Sampler:
    def scaled(n: int) -> Floats:
        values = draw(n)
        values *= mean
        return values

    return scaled


class MergedSource:
    """One arrival process for each type, merged in time; of equal instants the lower type is first."""

    def __init__(self, arrivals: list[ArrivalProcess | None], service: list[Sampler], rates: Floats) -> None:
        self._arrivals = arrivals
        self._service = service
        # Rows are refilled about equally often, so that no row is drawn far ahead of the rest.
        most = min(MOST_BLOCK, max(FIRST_BLOCK, MOST_BUFFERED // len(rates)))
        share = rates / rates.max() if rates.any() else rates
        self._largest = np.maximum(1, np.ceil(most * share)).astype(np.int64)
        self._first = np.maximum(1, np.ceil(FIRST_BLOCK * share)).astype(np.int64)
        self._part = share / max(1.0, share.sum())
        self._size = self._first.copy()
        self._position = np.zeros(len(rates), dtype=np.int64)
        self._times = np.full((len(rates), most), np.inf)
        self._durations = np.zeros((len(rates), most))
        for row in range(len(rates)):
            self._refill(row)

    def next(self, at_most: int, to_come: int = 0) -> Chunk:
        """Return the next `at_most` jobs; none where all rates are 0."""
        _check(at_most)
        time, job_type, duration = np.empty(at_most), np.empty(at_most, dtype=np.int64), np.empty(at_most)
        filled = 0
        while True:
            filled = merge(
                self._times,
                self._durations,
                self._position,
                self._size,
                time,
                job_type,
                duration,
                filled,
            )
            empty = np.flatnonzero(self._position == self._size)
            for row in empty.tolist():
                self._size[row] = self._block(row, max(1, to_come - filled) if to_come else 0)
                self._refill(row)
            if filled == at_most or len(empty) == 0:
                return Chunk(time[:filled], job_type[:filled], duration[:filled], None)

    def _block(self, row: int, to_come: int) -> int:
        """Return how many arrivals of this type to draw next. Of N jobs that come, N p are expected to be of a type
        with the share p, and N p + 2 sqrt(N p) are seldom too few. So a run draws little that it does not use. It also
        needs few calls, which matters with many types: a call costs as much as hundreds of draws."""
        if to_come == 0:
            return int(min(GROWTH * self._size[row], self._largest[row]))
        mean = to_come * self._part[row]
        return int(min(max(self._first[row], mean + 2.0 * mean**0.5), self._largest[row]))

    def _refill(self, row: int) -> None:
        process = self._arrivals[row]
        if process is not None:
            n = int(self._size[row])
            self._times[row, :n] = process.next(n)
            self._durations[row, :n] = self._service[row](n)
        self._position[row] = 0


def _batch_source(
    scenario: Scenario, law: BatchArrivals, rates: Floats, service: list[Sampler], seed: SeedSequence
) -> JobSource:
    for j, job_type in enumerate(scenario.types):
        if job_type.arrivals is not None:
            raise InputError(
                "an arrival law beside batch arrivals",
                where=f"types[{j}] ({job_type.name}).arrivals",
                remedy="remove it: the batches say how many jobs arrive",
            )
    unscaled = effective_rates(scenario)
    scale = float(rates.sum() / unscaled.sum())
    if not np.allclose(rates, scale * unscaled, rtol=1e-9, atol=0):
        raise InputError(
            "not the rates of the batches times one factor", where="rates", remedy="scale effective_rates(scenario)"
        )
    if scale == 0:
        return TraceSource(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0))
    steady = Renewal(sampler(Poisson(), child(seed, SHARED, 0)), law.rate * scale)
    (requests,) = changing([steady], rhythms_of(scenario)[:1])
    assert requests is not None
    probabilities = np.array([batch.probability for batch in law.batches])
    return BatchSource(requests, probabilities, batch_vectors(scenario, law), service, generator(seed, SHARED, 1))


class BatchSource:
    """Poisson requests, each with a vector of jobs at one instant, in the order of their types (section 5.2)."""

    def __init__(
        self,
        requests: ArrivalProcess,
        probabilities: Floats,
        vectors: Ints,
        service: list[Sampler],
        choice: np.random.Generator,
    ) -> None:
        self._requests = requests
        self._upto = np.cumsum(probabilities)[:-1]
        self._service = service
        self._choice = choice
        # The types of batch b are _types[_start[b]:_start[b + 1]].
        self._types = np.concatenate([np.repeat(np.arange(vectors.shape[1]), vector) for vector in vectors])
        self._count = vectors.sum(axis=1)
        self._start = np.concatenate(([0], np.cumsum(self._count)))
        # A batch may be large, so that a block has about as many jobs as elsewhere.
        self._largest = max(1, int(MOST_BLOCK / max(1.0, float(self._count.mean()))))
        self._block = min(FIRST_BLOCK, self._largest)
        self._ready = Chunk(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0), None)
        self._position = 0

    def next(self, at_most: int, to_come: int = 0) -> Chunk:
        """Return the next 1 to `at_most` jobs; a chunk may end within a batch."""
        _check(at_most)
        while self._position == len(self._ready):
            self._ready = self._draw(self._block)
            self._position = 0
            self._block = min(2 * self._block, self._largest)
        here = slice(self._position, self._position + at_most)
        self._position = min(self._position + at_most, len(self._ready))
        return Chunk(self._ready.time[here], self._ready.job_type[here], self._ready.duration[here], None)

    def _draw(self, n: int) -> Chunk:
        times = self._requests.next(n)
        batch = np.searchsorted(self._upto, self._choice.random(n), side="right")
        count = self._count[batch]
        request = np.repeat(np.arange(n), count)
        within = np.arange(len(request)) - np.repeat(np.cumsum(count) - count, count)
        job_type = self._types[self._start[batch[request]] + within]
        duration = np.empty(len(request))
        for j, draw in enumerate(self._service):
            mine = np.flatnonzero(job_type == j)
            duration[mine] = draw(len(mine))
        return Chunk(times[request], job_type, duration, None)


class TraceSource:
    """Jobs that are there in columns: time (ascending), type, duration and, where known, actual demand and estimated duration."""

    def __init__(
        self,
        time: Floats,
        job_type: Ints,
        duration: Floats,
        demand: Ints | None = None,
        estimate: Floats | None = None,
    ) -> None:
        n = len(time)
        if len(job_type) != n or len(duration) != n or (demand is not None and len(demand) != n):
            raise InputError("columns of different lengths", where="trace", remedy="give one row for each job")
        if n and not (np.isfinite(time).all() and (np.diff(time) >= 0).all()):
            raise InputError("times that do not ascend", where="trace", remedy="sort the jobs by time")
        if n and not (np.isfinite(duration).all() and (duration >= 0).all()):
            raise InputError("a duration that is negative or not finite", where="trace", remedy="drop such jobs")
        self._jobs = Chunk(
            np.ascontiguousarray(time, dtype=np.float64),
            np.ascontiguousarray(job_type, dtype=np.int64),
            np.ascontiguousarray(duration, dtype=np.float64),
            None if demand is None else np.ascontiguousarray(demand, dtype=np.int64),
            None if estimate is None else np.ascontiguousarray(estimate, dtype=np.float64),
        )
        self._position = 0

    def next(self, at_most: int, to_come: int = 0) -> Chunk:
        """Return the next `at_most` jobs, fewer at the end, then none."""
        _check(at_most)
        here = slice(self._position, self._position + at_most)
        self._position = min(self._position + at_most, len(self._jobs))
        jobs = self._jobs
        demand = None if jobs.demand is None else jobs.demand[here]
        estimate = None if jobs.estimate is None else jobs.estimate[here]
        return Chunk(jobs.time[here], jobs.job_type[here], jobs.duration[here], demand, estimate)


def _check(at_most: int) -> None:
    if at_most < 1:
        raise ValueError(f"{at_most} jobs were asked for; ask for 1 or more")

"""Bound (c): shortest remaining processing time on one fast server.

Give each job i the work w_i S_i, where prices w are such that all that the servers can hold at once is worth W at most.
While a job is served its work falls at rate w_i, so under any policy total work falls at rate W at most. The policy is
then one schedule for a single machine of speed W that may preempt and share. Of all such schedules, SRPT has the fewest
jobs in the system at every instant (Schrage 1968). So, path by path, for every policy, clairvoyant or not,

    N(t) >= N_srpt(t),   and with N = Q + jobs in service,
    integral of Q  >=  integral of N_srpt  -  sum_i min(S_i, end - a_i),

as no job is in service for longer than it takes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.errors import InputError

F8 = NDArray[np.float64]


@kernel
def _sift_up(heap: F8, size: int) -> None:
    child = size - 1
    while child > 0:
        parent = (child - 1) // 2
        if heap[parent] <= heap[child]:
            break
        heap[parent], heap[child] = heap[child], heap[parent]
        child = parent


@kernel
def _sift_down(heap: F8, size: int) -> None:
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[parent] <= heap[child]:
            break
        heap[parent], heap[child] = heap[child], heap[parent]
        parent = child


@kernel
def srpt_area(arrival: F8, work: F8, speed: float, start: float, end: float) -> float:
    """Return the integral over [start, end] of the number in system under SRPT. Arrivals are in order of time."""
    heap = np.empty(len(arrival))
    size = 0
    now = 0.0
    area = 0.0
    i = 0
    while now < end:
        upto = end
        if i < len(arrival) and arrival[i] < end:
            upto = arrival[i]
        while now < upto:
            leave = upto
            done = False
            if size > 0 and now + heap[0] / speed <= upto:
                leave = now + heap[0] / speed
                done = True
            area += size * max(0.0, leave - max(now, start))
            if done:
                size -= 1
                heap[0] = heap[size]
                _sift_down(heap, size)
            elif size > 0:
                heap[0] -= (leave - now) * speed
            now = leave
            if size == 0:
                now = upto
        if i < len(arrival) and arrival[i] < end:
            if work[i] > 0.0:  # a job that costs nothing at these prices is gone at once
                heap[size] = work[i]
                size += 1
                _sift_up(heap, size)
            i += 1
        else:
            break
    return area


def srpt_mean_queue(arrival: F8, service: F8, price: F8, speed: float, *, end: float, start: float = 0.0) -> float:
    """Return a lower bound on the mean number waiting during [start, end], for this very sequence of jobs.

    `price` is w of each job; `speed` is W, at least the most that all servers together can hold at those prices.
    """
    if not (len(arrival) == len(service) == len(price)) or (np.diff(arrival) < 0).any():
        raise InputError(
            "are not jobs in order of arrival", where="jobs", remedy="give equal lengths, sorted by arrival"
        )
    if not (speed > 0 and 0 <= start < end):
        raise InputError(
            f"speed {speed}, from {start} to {end}", where="SRPT bound", remedy="use speed > 0 and 0 <= start < end"
        )
    area = srpt_area(arrival, price * service, speed, start, end)
    in_service = np.minimum(service, np.maximum(0.0, end - np.maximum(arrival, start))).sum()
    return max(0.0, (area - float(in_service)) / (end - start))

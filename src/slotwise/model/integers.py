"""The integer view of a cluster and its types, which everything below the model's surface computes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotwise.model.labels import matches
from slotwise.model.scenario import Cluster, JobType
from slotwise.model.sizes import digits_behind_point, scaled


@dataclass(frozen=True)
class Integers:
    """Sizes as integers: resource r in units of 10^-digits[r]."""

    demand: NDArray[np.int64]
    """w_j, shape (J, R)"""
    capacity: NDArray[np.int64]
    """one row for each server class, shape (C, R)"""
    digits: tuple[int, ...]
    allowed: NDArray[np.bool_] | None = None
    """whether the labels of class c meet the requirements of type j, shape (C, J); None: there are none"""


def integers(cluster: Cluster, types: Sequence[JobType], least_digits: int | Sequence[int] = 0) -> Integers:
    """Return the exact integer sizes. `least_digits`, one number or one for each resource, keeps digits for actual
    demands that are finer than the types."""
    R = len(cluster.resources)
    least = [least_digits] * R if isinstance(least_digits, int) else least_digits
    digits = tuple(
        max(
            least[r],
            digits_behind_point(
                [server.capacity[r] for server in cluster.servers] + [job_type.demand[r] for job_type in types]
            ),
        )
        for r in range(R)
    )
    return Integers(
        demand=scaled([job_type.demand for job_type in types], digits, where="types"),
        capacity=scaled([server.capacity for server in cluster.servers], digits, where="cluster.servers"),
        digits=digits,
        allowed=np.array(
            [[matches(job_type.requires, server.labels) for job_type in types] for server in cluster.servers],
            np.bool_,
        ),
    )

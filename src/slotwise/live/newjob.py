"""A job that was checked and is to be submitted, and what the core is told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.live.demands import checked, exact
from slotwise.live.retries import Retry
from slotwise.model import Cluster, JobType


class NewJob(NamedTuple):
    """A job that was checked and is to be submitted."""

    tenant: str
    type: str | None
    needs: Mapping[str, float]
    requires: Mapping[str, Sequence[str]]
    name: str = ""
    key: str | None = None
    duration: float | None = None
    body: str = "{}"
    array: Sequence[int] | None = None
    at_once: int | None = None
    """of an array: so many jobs may be active at the same time; None: all"""
    part_of: int | None = None
    """the array to which these jobs are added; None: they are an array of their own"""
    after: Sequence[After] = ()
    retry: Retry | None = None
    limit: float | None = None
    """time limit in seconds"""
    deadline: float | None = None
    """when the job is to have ended, in seconds since 1970"""


class After(NamedTuple):
    """A dependency of a job."""

    kind: str
    """see `slotwise.live.after`"""
    other: int
    """a job, or an array"""
    at_index: int | None = None
    """only the job of the array with this index"""
    is_place: bool = False
    """`other` is no number yet but a place in the same request"""


def how_many(jobs: Sequence[NewJob]) -> int:
    """With all jobs of arrays."""
    return sum(1 if job.array is None else len(job.array) for job in jobs)


def wish_of(job: NewJob) -> Any:
    """A key: jobs with equal ones are of one type and ask for the same."""
    return (
        f"{job.type} {job.needs} {job.requires} {job.tenant}"
        if job.needs or job.requires
        else (job.type, job.tenant)
    )


def own_demand(job: NewJob, type_: JobType, cluster: Cluster) -> dict[str, str] | None:
    """Return what the core charges a job where it is less than the type's size; None where it is the type's size.

    A job that names a type takes what the type takes, except of resources that the job names. A job without a type takes what it requests.
    """
    size = dict(zip(cluster.resources, type_.demand, strict=True))
    asked: Mapping[str, Decimal] = dict(zip(cluster.resources, exact(job.needs, cluster), strict=True))
    if job.type is not None:
        asked = checked(job.needs, cluster)
        for resource, amount in asked.items():
            if amount > size[resource]:
                raise InputError(
                    f"asks for {amount:f} of {resource}",
                    where="needs",
                    remedy=f"type {type_.name!r} has {size[resource]}; ask for at most that, or give no type",
                )
    return {resource: f"{amount:f}" for resource, amount in asked.items() if amount != size[resource]} or None

"""Submitting ended jobs once more, as new jobs: the same command, requests and retries; each job of an array keeps its index."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import Field

from slotwise.errors import InputError
from slotwise.live.after import EACH, ONE
from slotwise.live.api.common import LARGEST_NUMBER, House, RefusedRequest
from slotwise.live.api.making import new_job
from slotwise.live.api.models import Model
from slotwise.live.auth import Caller
from slotwise.live.newjob import After, NewJob
from slotwise.live.spec import AT_ONCE, JOBS, JobSpec, plain
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import DONE, DependencyRow, Job, Query

MOST = 10_000  # jobs of one request
ASKED_AT_ONCE = 500  # numbers in one question to the store
Number = Annotated[int, Field(ge=1, lt=LARGEST_NUMBER)]


class Resubmitting(Model):
    """Which jobs to submit once more."""

    ids: list[Number] = Field(min_length=1, max_length=MOST, description="jobs, or whole arrays by their numbers")
    dependants: bool = Field(
        False, description="also jobs that wait for them, directly or not, and were cancelled because of them"
    )


class Resubmitted(Model):
    """The new jobs: by the number of the old job."""

    ids: list[int]
    by_old: dict[int, int]


class Again(NamedTuple):
    """New jobs, and the old numbers of each."""

    jobs: list[NewJob]
    old: list[list[int]]

    def numbered(self, ids: list[int]) -> Resubmitted:
        """Return the answer for the numbers of the new jobs."""
        return Resubmitted(ids=ids, by_old=dict(zip([one for some in self.old for one in some], ids, strict=True)))


def new_again(house: House, what: Resubmitting, caller: Caller) -> Again:
    """Return the new jobs, each behind those that it waits for. A job of an array is part of a new array with the chosen indices."""
    store = house.service.store
    chosen = named_jobs(store, what.ids, caller)
    if what.dependants:
        add_dependants(store, chosen)
    if len(chosen) > MOST:
        raise InputError(f"{len(chosen):,} jobs", where="ids", remedy=f"resubmit at most {MOST:,} at once")
    for job in chosen.values():
        if job.ended is None:
            raise RefusedRequest(409, f"job {job.id} has not ended: {job.state}")
    groups: dict[int, list[Job]] = {}
    for number in sorted(chosen):
        groups.setdefault(chosen[number].array_id or number, []).append(chosen[number])
    bodies = {
        number: plain(body) for number, (_, body) in store.specs([some[0].id for some in groups.values()]).items()
    }
    needs: dict[int, list[DependencyRow]] = {}
    for need in store.needs(of=list(groups)):
        needs.setdefault(need.job, []).append(need)
    places = {first: at for at, first in enumerate(groups)}  # a job's number is above those of what it waits for
    jobs = []
    for first, some in groups.items():
        body = bodies[some[0].id]
        owner = (
            caller._replace(user=body.get("user")) if caller.may("operate") else caller
        )  # never with more rights
        spec = request_of(some, body)
        after = [one for need in needs.get(first, []) for one in again(need, places, chosen)]
        jobs.append(new_job(spec, owner, house.times)._replace(after=list(dict.fromkeys(after))))
    return Again(jobs, [[job.id for job in some] for some in groups.values()])


def named_jobs(store: Store, numbers: list[int], caller: Caller) -> dict[int, Job]:
    """Return the jobs of these numbers; of an array, those that are not done, or all if all are done."""
    found: dict[int, Job] = {}
    for number in dict.fromkeys(numbers):
        job = store.job(number)
        if job is None or not caller.sees(job.tenant):
            raise RefusedRequest(404, f"there is no job {number}")
        if job.array_id == number:
            members = store.jobs(Query(array_id=number, limit=MOST + 1, ascending=True))
            found |= {one.id: one for one in [one for one in members if one.state != DONE] or members}
        else:
            found[number] = job
    return found


def add_dependants(store: Store, chosen: dict[int, Job]) -> None:
    """Add the jobs that were cancelled because of the chosen ones, and because of those."""
    fresh = list(chosen.values())
    while fresh:
        on = sorted({number for job in fresh for number in (job.id, job.array_id) if number is not None})
        firsts = sorted({need.job for need in store.needs(on=on)})
        fresh = []
        for at in range(0, len(firsts), ASKED_AT_ONCE):
            piece = firsts[at : at + ASKED_AT_ONCE]
            members = store.jobs(Query(ids=tuple(piece), limit=ASKED_AT_ONCE))
            for array in {one.array_id for one in members if one.array_id is not None}:
                members += store.jobs(Query(array_id=array, limit=MOST, ascending=True))
            for job in members:
                if job.id not in chosen and (job.reason or "").startswith("never starts"):
                    chosen[job.id] = job
                    fresh.append(job)


def request_of(some: list[Job], spec: dict[str, Any]) -> JobSpec:
    """Return what was submitted, for the chosen jobs of an array."""
    at_once = spec.pop(AT_ONCE, None)
    for name in (JOBS, "user", "after", "deadline"):  # a deadline of long ago cannot be met
        spec.pop(name, None)
    spec |= {"name": some[0].name, "tenant": some[0].tenant}
    if some[0].array_id is not None:
        spec["array"] = ",".join(str(job.array_index) for job in some) + (f"%{at_once}" if at_once else "")
    return spec  # type: ignore[return-value]


def again(need: DependencyRow, places: dict[int, int], chosen: dict[int, Job]) -> list[After]:
    """Return a dependency among the new jobs; on a job that is not submitted once more, none: it was fulfilled, or is given up."""
    kind = need.kind.removeprefix(ONE)
    if need.kind == kind and need.other in places:
        return [After(kind, places[need.other], is_place=True)]
    other = chosen.get(need.other)
    if other is None:
        return []
    return [After(kind.removeprefix(EACH), places[other.array_id or other.id], other.array_index, is_place=True)]

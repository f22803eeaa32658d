"""Cancelling many jobs with one request."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from pydantic import Field, StringConstraints

from slotwise.errors import InputError
from slotwise.live.api.common import LARGEST_NUMBER, House, RefusedRequest, done
from slotwise.live.api.models import Model
from slotwise.live.auth import EVERYONE, Caller
from slotwise.live.ledger import Ledger, has_ended
from slotwise.live.spec import Short
from slotwise.live.store.records import HELD, PLACED, RUNNING, WAITING, Job
from slotwise.live.store.records import Query as JobQuery

MOST = 1_000_000  # jobs of one request
ASKED_AT_ONCE = 500  # numbers in one question to the store
ENDED_AT_ONCE = 500  # jobs in one request to the loop: other requests get their turn between
LIVE = (HELD, WAITING, PLACED, RUNNING)
Name = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Number = Annotated[int, Field(ge=0, lt=LARGEST_NUMBER)]


class Cancelling(Model):
    """Which jobs to cancel: those that meet all conditions. Without `ids`, only jobs that have not ended."""

    ids: list[Number] = Field([], max_length=MOST, description="by number")
    array: Number | None = Field(None, description="jobs of this array")
    state: list[Short] = Field([], max_length=len(LIVE), description=f"of: {', '.join(LIVE)}")
    name: Name | None = None
    tenant: Short | None = None
    type: Short | None = None
    all: bool = Field(False, description="every job that has not ended and that the caller may see")
    dry_run: bool = Field(False, description="cancel nothing; tell what would be")


class Cancelled(Model):
    """What was cancelled, and why other jobs were not, by number."""

    cancelled: list[int]
    errors: dict[str, str]


def check(what: Cancelling, caller: Caller) -> JobQuery:
    """Return the question for the jobs that are meant, without their numbers."""
    for state in what.state:
        if state not in LIVE:
            raise InputError(
                f"a job that is {state!r} cannot be cancelled", where="state", remedy=f"use: {', '.join(LIVE)}"
            )
    conditions = (what.array, what.name, what.tenant, what.type, what.state or None)
    if not what.ids and not what.all and all(one is None for one in conditions):
        raise InputError("no job is named", where="cancel", remedy="give ids, a condition, or all")
    if caller.tenant != EVERYONE and what.tenant not in (None, caller.tenant):
        raise RefusedRequest(403, f"this token is for the jobs of tenant {caller.tenant!r} only")
    tenant = what.tenant if caller.tenant == EVERYONE else caller.tenant
    return JobQuery(tuple(what.state), tenant, what.type, None, what.array, what.name, limit=MOST, ascending=True)


async def cancel_jobs(house: House, what: Cancelling, caller: Caller) -> Cancelled:
    """Cancel the jobs that are meant; go on after an error."""
    asked = check(what, caller)
    store, loop = house.service.store, house.service.loop
    errors: dict[int, str] = {}
    found: list[Job] = []
    if what.ids:
        numbers = list(dict.fromkeys(what.ids))
        for at in range(0, len(numbers), ASKED_AT_ONCE):
            found += await asyncio.to_thread(
                store.jobs, asked._replace(ids=tuple(numbers[at : at + ASKED_AT_ONCE]))
            )
        there = {job.id for job in found}
        meets = " that meets the conditions" if asked.states or asked.name or asked.type or asked.array_id else ""
        errors = {number: f"there is no job {number}{meets}" for number in numbers if number not in there}
        errors |= {job.id: f"job {job.id} has ended: {job.state}" for job in found if job.state not in LIVE}
    else:
        found = await asyncio.to_thread(store.jobs, asked._replace(states=asked.states or LIVE))
    chosen = [job.id for job in found if job.state in LIVE]
    if not what.dry_run:
        for at in range(0, len(chosen), ENDED_AT_ONCE):
            piece = chosen[at : at + ENDED_AT_ONCE]
            errors |= await done(loop.ask(partial(end_all, piece), len(piece)))
    if (
        what.array is not None
        and not found
        and not await asyncio.to_thread(store.jobs, JobQuery(array_id=what.array, tenant=asked.tenant, limit=1))
    ):
        errors[what.array] = f"there is no array {what.array}"
    cancelled = [number for number in chosen if number not in errors]
    if not what.ids:  # jobs that meet a condition and have just ended are no error
        errors = {number: said for number, said in errors.items() if said != has_ended(number)}
    return Cancelled(cancelled=cancelled, errors={str(number): said for number, said in errors.items()})


def end_all(numbers: list[int], ledger: Ledger, now: float) -> dict[int, str]:
    """End these jobs; why some were not."""
    errors: dict[int, str] = {}
    for number in sorted(
        numbers, key=lambda one: one not in ledger.holds
    ):  # held jobs first: none shall take a place
        try:
            ledger.end(number, now)
        except InputError as error:
            errors[number] = str(error)
    return errors

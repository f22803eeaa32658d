"""What the ledger has to know of a submission, made from what a caller sent."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from slotwise.errors import InputError
from slotwise.live.after import EACH, element, in_order
from slotwise.live.api.gate import RefusedRequest
from slotwise.live.auth import EVERYONE, Caller, check_account
from slotwise.live.durations import in_words
from slotwise.live.newjob import After, NewJob, how_many
from slotwise.live.pieces import is_large
from slotwise.live.retries import Retry
from slotwise.live.spec import AT_ONCE, CONFINED, JOBS, JobSpec, at_once, body_of, indices
from slotwise.live.time_limits import TimeLimits

NONE: dict[str, Any] = {}
OPERATOR = "operator"  # the tenant of jobs that operators submit without naming one


def tenant_of(caller: Caller, named: str | None) -> str:
    """Whose job it will be."""
    if caller.tenant == EVERYONE:
        return named or OPERATOR
    if named not in (None, caller.tenant):
        raise RefusedRequest(403, f"this token submits for tenant {caller.tenant!r} only")
    return caller.tenant


def user_of(caller: Caller, named: str | None) -> str | None:
    """Return the account that executes the job: the caller's, or the one that an operator names."""
    if named is None:
        return caller.user
    if named != caller.user:
        if not caller.may("operate"):
            raise RefusedRequest(403, "only an operator names the user who executes a job")
        check_account(named)
    return named


def new_job(spec: JobSpec, caller: Caller, times: TimeLimits, places: Mapping[str, int] = NONE) -> NewJob:
    """Return what the ledger has to know of a submission. The user and the time limit that apply are written into what is kept of it."""
    tenant = tenant_of(caller, spec.get("tenant"))
    user = user_of(caller, spec.get("user"))
    if user is not None:
        spec = {**spec, "user": user}
    if not caller.may("operate"):
        spec = {**spec, CONFINED: True}  # type: ignore[misc]
    if "domain" in spec.get("vm", NONE) and not caller.may("operate"):
        raise RefusedRequest(
            403, "only an operator submits a template of a domain: it may name any device and file of a host"
        )
    limit = times.of(tenant, spec.get("time"))
    if limit is not None:
        spec = {**spec, "time": limit}
    array = spec.get("array")
    limited = None if array is None else at_once(array)
    numbers = None if array is None else indices(array)
    if limited is not None:
        spec = {**spec, AT_ONCE: limited}  # type: ignore[misc]
    elif numbers is not None and is_large(numbers, None):
        spec = {**spec, JOBS: len(numbers)}  # type: ignore[misc]
    check_warning(spec, limit)
    deadline = checked_deadline(spec, limit)
    kept = body_of(spec)
    expected = [one for one in (spec.get("duration"), limit) if one is not None]
    return NewJob(
        tenant,
        spec.get("type"),
        spec.get("needs", NONE),
        spec.get("requires", NONE),
        spec.get("name", ""),
        spec.get("key"),
        min(expected, default=None),
        kept,
        numbers,
        limited,
        after=dependencies(spec.get("after", NONE), places),
        retry=Retry.of(spec),
        limit=limit,
        deadline=deadline,
    )


def check_warning(spec: JobSpec, limit: float | None) -> None:
    """Raise InputError if the warning of a job would never come, or would be due before the job starts."""
    warning = spec.get("warn")
    if warning is None:
        return
    if limit is None:
        raise InputError("needs a time limit", where="warn", remedy="add --time: the signal is sent before its end")
    if warning["before"] > limit:
        raise InputError(
            f"comes {in_words(warning['before'])} before a time limit of {in_words(limit)}",
            where="warn",
            remedy="name a shorter time than the limit",
        )


def checked_deadline(spec: JobSpec, limit: float | None) -> float | None:
    """Return the deadline of a submission. Raise InputError if it cannot be met, whatever the cluster does."""
    deadline: float | None = spec.get("deadline")
    if deadline is None:
        return None
    takes: float | None = limit if limit is not None else spec.get("duration")
    if takes is None:
        raise InputError(
            "needs a time limit or an expected duration",
            where="deadline",
            remedy="add --time: the job has to start that long before",
        )
    late = time.time() + takes - deadline
    if late > 0:
        raise InputError(
            f"cannot be met: a job that takes {in_words(takes)} and starts now ends {in_words(late)} after it",
            where="deadline",
            remedy="give a later deadline, or a shorter time limit",
        )
    return deadline


def dependencies(after: Mapping[Any, Sequence[Any]], places: Mapping[str, int]) -> list[After]:
    """Return what a submission says of other jobs. `places` are the names of jobs of the same request."""
    found = []
    for kind, ids in after.items():
        for one in ids:
            place = None if isinstance(one, int) else element(one)
            if isinstance(one, int):
                found.append(After(kind, one))
            elif place is not None:
                if kind.startswith(EACH):
                    raise InputError(f"{one!r} is one job", where=f"after.{kind}", remedy="name the whole array")
                found.append(After(kind, *place))
            else:
                found.append(After(kind, places[one], is_place=True))
    return list(dict.fromkeys(found))


def new_jobs(specs: Sequence[JobSpec], caller: Caller, times: TimeLimits) -> tuple[list[NewJob], list[int]]:
    """Return the jobs of a request, each behind the jobs that it names, and the place that each has in the request."""
    order = in_order(specs)
    places = {specs[place].get("name", ""): at for at, place in enumerate(order)}
    jobs = []
    for place in order:
        try:
            jobs.append(new_job(specs[place], caller, times, places))
        except InputError as error:
            raise error if len(specs) == 1 else InputError(f"[{place}].{error}") from None
    return jobs, order


def in_request_order(jobs: Sequence[NewJob], order: Sequence[int], ids: Sequence[int]) -> list[int]:
    """Return the numbers of jobs in the order of the request."""
    pieces: list[Sequence[int]] = [()] * len(jobs)
    at = 0
    for job, place in zip(jobs, order, strict=True):
        many = how_many([job])
        pieces[place] = ids[at : at + many]
        at += many
    return [number for piece in pieces for number in piece]

"""Jobs: submit, list, show, cancel, stop, explain, and what they wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse, Response

from slotwise.errors import InputError
from slotwise.live.api.cancelling import Cancelled, Cancelling, cancel_jobs
from slotwise.live.api.common import LARGEST_NUMBER, House, Number, Reader, Refusal, Submitter, done
from slotwise.live.api.models import Explained, JobDetail, JobPage, JobView, Submitted
from slotwise.live.api.submissions import BULK, ONE, off_the_loop, read_many, read_one
from slotwise.live.auth import EVERYONE, Caller, check_account
from slotwise.live.ledger import Ledger, NewJob, how_many
from slotwise.live.loop import KeyConflictError
from slotwise.live.spec import AT_ONCE, MAX_ARRAY, JobSpec, at_once, body_of, indices, plain
from slotwise.live.store.records import ORDERS, STATES
from slotwise.live.store.records import Query as JobQuery
from slotwise.live.time_limits import TimeLimits

PAGE = 10_000
PIECE = 1 << 20
SPEC: dict[str, Any] = ONE.json_schema(ref_template="#/components/schemas/{model}")
NONE: dict[str, Any] = {}
OPERATOR = "operator"
"""the tenant of jobs that operators submit without naming one"""


def body_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what the description of a route says of a body that its handler reads itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def tenant_of(caller: Caller, named: str | None) -> str:
    """Whose job it will be."""
    if caller.tenant == EVERYONE:
        return named or OPERATOR
    if named not in (None, caller.tenant):
        raise Refusal(403, f"this token submits for tenant {caller.tenant!r} only")
    return caller.tenant


def user_of(caller: Caller, named: str | None) -> str | None:
    """Return the account that executes the job: the caller's, or the one that an operator names."""
    if named is None:
        return caller.user
    if named != caller.user:
        if not caller.may("operate"):
            raise Refusal(403, "only an operator names the user who executes a job")
        check_account(named)
    return named


def new_job(spec: JobSpec, caller: Caller, times: TimeLimits) -> NewJob:
    """Return what the ledger has to know of a submission. The user and the time limit that apply are written into what is kept of it."""
    tenant = tenant_of(caller, spec.get("tenant"))
    user = user_of(caller, spec.get("user"))
    if user is not None:
        spec = {**spec, "user": user}
    limit = times.of(tenant, spec.get("time"))
    if limit is not None:
        spec = {**spec, "time": limit}
    array = spec.get("array")
    limited = None if array is None else at_once(array)
    kept = body_of(spec if limited is None else {**spec, AT_ONCE: limited})  # type: ignore[misc]
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
        None if array is None else indices(array),
        limited,
    )


def explained(ledger: Ledger, number: int, now: float) -> str:
    """Return why a job waits or runs, or that it is being stopped."""
    if number in ledger.throttles:
        most = ledger.throttles.at_once(number)
        return f"job {number} waits: at most {most} jobs of its array are active at the same time, and {most} are"
    live = ledger.live.get(number)
    if live is not None and live.stop_asked:
        return f"job {number} is being stopped on server {live.server}: it was asked to end, and its end is not known yet"
    return f"job {ledger.core.explain(number)}"


def query_of(
    caller: Caller,
    state: Sequence[str],
    type_: str | None,
    server: str | None,
    array: int | None,
    name: str | None,
    tenant: str | None,
    ids: Sequence[int],
    since: float | None,
) -> JobQuery:
    """Return the question for jobs that meet all conditions and that the caller may see."""
    for one in state:
        if one not in STATES:
            raise InputError(f"no state is called {one!r}", where="state", remedy=f"use: {', '.join(STATES)}")
    if any(not 0 <= one < LARGEST_NUMBER for one in ids):
        raise InputError("is no number of a job", where="id", remedy="use numbers that submissions gave")
    if caller.tenant != EVERYONE:
        if tenant not in (None, caller.tenant):
            raise Refusal(403, "this token sees the jobs of its own tenant only")
        tenant = caller.tenant
    return JobQuery(tuple(state), tenant, type_, server, array, name, tuple(ids), since=since)


def routes(house: House) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
    service, loop, store = house.service, house.service.loop, house.service.store

    async def take(request: Request, read: Callable[[bytes], list[JobSpec]], caller: Caller) -> Response:
        def new_jobs(body: bytes) -> list[NewJob]:
            return [new_job(spec, caller, house.times) for spec in read(body)]

        house.check_engine("submit")
        new = await off_the_loop(new_jobs, await request.body())
        if how_many(new) > MAX_ARRAY:
            raise InputError(f"{how_many(new):,} jobs", where="array", remedy=f"send at most {MAX_ARRAY:,} at once")
        if not await asyncio.to_thread(house.limits.room, caller, how_many(new)):
            raise Refusal(429, f"more than {house.limits.waiting:,} jobs of {caller.tenant!r} would wait", 10.0)
        try:
            ids = await done(loop.submit(new))
        except KeyConflictError as error:
            raise Refusal(409, str(error)) from None
        text = Submitted.model_construct(
            id=ids[0], ids=ids
        ).model_dump_json()  # there may be 10,000: nobody checks them again
        return Response(text, 201, media_type="application/json")

    async def act_on(number: int, caller: Caller, act: Callable[[Ledger, float], None]) -> JobView:
        await house.job(number, caller)
        try:
            await done(loop.ask(act))
        except InputError as error:
            raise Refusal(409, str(error)) from None
        return JobView.of(await house.job(number, caller))

    @router.post("", status_code=201, response_model=Submitted, openapi_extra=body_schema(SPEC))
    async def submit(request: Request, caller: Submitter) -> Response:
        """Submit a job, or an array of them. It is durable when the answer comes."""
        return await take(request, read_one, caller)

    @router.post(
        "/bulk",
        status_code=201,
        response_model=Submitted,
        openapi_extra=body_schema({"type": "array", "items": SPEC, "minItems": 1, "maxItems": BULK}),
    )
    async def submit_many(request: Request, caller: Submitter) -> Response:
        """Submit many jobs, all or none."""
        return await take(request, read_many, caller)

    @router.get("")
    async def jobs(
        caller: Reader,
        state: Annotated[list[str], Query(max_length=10)] = [],  # noqa: B006
        type: str | None = None,  # noqa: A002
        server: str | None = None,
        array: Number | None = None,
        name: str | None = None,
        tenant: str | None = None,
        id: Annotated[list[int], Query(max_length=1000)] = [],  # noqa: A002, B006
        after: Number | None = None,
        limit: Annotated[int, Query(ge=1, le=PAGE)] = 100,
        oldest_first: bool = False,
        since: float | None = None,
        sort: str = "id",
        skip: Number = 0,
        search: Annotated[str | None, Query(max_length=200, description="a part of the name, or a number")] = None,
    ) -> JobPage:
        """Jobs, newest first; all conditions hold. `next` is the `after` of the next page.

        With `sort` other than id, the largest come first, and pages are counted by `skip`."""
        if sort not in ORDERS:
            raise InputError(f"{sort!r} is no order", where="sort", remedy=f"use one of: {', '.join(ORDERS)}")
        asked = query_of(caller, state, type, server, array, name, tenant, id, since)._replace(
            after=after, limit=limit, ascending=oldest_first, order=sort, skip=skip, search=search
        )
        found = await asyncio.to_thread(store.jobs, asked)
        return JobPage.model_construct(
            jobs=[JobView.of(job) for job in found], next=found[-1].id if len(found) == limit else None
        )

    @router.get("/counts")
    async def counts(
        caller: Reader,
        state: Annotated[list[str], Query(max_length=10)] = [],  # noqa: B006
        type: str | None = None,  # noqa: A002
        server: str | None = None,
        array: Number | None = None,
        name: str | None = None,
        tenant: str | None = None,
        since: float | None = None,
    ) -> dict[str, int]:
        """How many jobs there are in each state."""
        asked = query_of(caller, state, type, server, array, name, tenant, (), since)
        found = await asyncio.to_thread(store.counts_of, asked)
        return {one: found.get(one, 0) for one in asked.states or STATES}

    @router.post("/cancel")
    async def cancel_many(what: Cancelling, caller: Submitter) -> Cancelled:
        """Cancel jobs: waiting ones are withdrawn, placed and running ones are stopped. An error of one job stops no other."""
        house.check_engine("cancel")
        return await cancel_jobs(house, what, caller)

    @router.get("/{number}")
    async def job(number: int, caller: Reader) -> JobDetail:
        """One job, with what it executes."""
        found = await house.job(number, caller)
        specs = await asyncio.to_thread(store.specs, [found.id])
        return JobDetail.of_spec(found, plain(specs[found.id][1]) if found.id in specs else {})

    @router.get("/{number}/output", response_class=PlainTextResponse)
    async def output(
        number: int, caller: Reader, offset: Number = 0, attempt: Number | None = None
    ) -> PlainTextResponse:
        """A piece of what a job wrote, from an offset on; the header X-Next-Offset says where the next begins."""
        found = await house.job(number, caller)
        which = attempt if attempt is not None else found.attempt
        piece = await asyncio.to_thread(service.engine.output, found.id, which, offset, PIECE)
        data, after = piece if piece is not None else (b"", offset)
        headers = {"X-Next-Offset": str(after), "X-State": found.state}
        if found.server is not None:
            headers["X-Server"] = quote(found.server)
        return PlainTextResponse(data, headers=headers)

    @router.post("/{number}/cancel")
    async def cancel(number: int, caller: Submitter) -> JobView:
        """Withdraw a waiting job."""
        house.check_engine("cancel")
        return await act_on(number, caller, lambda ledger, now: ledger.cancel(number, now))

    @router.post("/{number}/stop")
    async def stop(number: int, caller: Submitter) -> JobView:
        """End a running job: it is asked to (SIGTERM), and killed after a while."""
        house.check_engine("stop")
        return await act_on(number, caller, lambda ledger, now: ledger.stop(number, now))

    @router.get("/{number}/explain")
    async def explain(number: int, caller: Reader) -> Explained:
        """Why the job runs or waits."""
        found = await house.job(number, caller)
        if found.ended is None:
            try:
                return Explained(text=await done(loop.ask(lambda ledger, now: explained(ledger, number, now))))
            except InputError:  # it has just ended
                found = await house.job(number, caller)
        how = f", {found.reason}" if found.reason else ""
        return Explained(text=f"job {number} has ended: {found.state}{how}")

    return router

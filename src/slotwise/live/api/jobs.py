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
from slotwise.live.api.common import LARGEST_NUMBER, House, Number, Reader, RefusedRequest, Submitter, done
from slotwise.live.api.following import follow
from slotwise.live.api.making import in_request_order, new_jobs
from slotwise.live.api.models import ConsolePlace, Explained, JobDetail, JobPage, JobView, Submitted
from slotwise.live.api.resubmitting import Resubmitted, Resubmitting, new_again
from slotwise.live.api.slots import KeyedSlots, NoSlotError
from slotwise.live.api.submissions import BULK, ONE, off_the_loop, read_many, read_one
from slotwise.live.auth import EVERYONE, Caller
from slotwise.live.engines.protocol import Machines
from slotwise.live.explaining import explained
from slotwise.live.ledger import Ledger
from slotwise.live.loop import KeyConflictError
from slotwise.live.newjob import NewJob, how_many
from slotwise.live.pieces import PIECE as PIECE_OF_ARRAY
from slotwise.live.spec import MAX_ARRAY, JobSpec, check_work, plain
from slotwise.live.store.records import ORDERS, RUNNING, STATES
from slotwise.live.store.records import Query as JobQuery

PAGE = 10_000  # jobs in one answer
PIECE = 1 << 20
LARGE_WAITING = 100  # submissions of more than a piece that wait for another one of their tenant
SPEC: dict[str, Any] = ONE.json_schema(ref_template="#/components/schemas/{model}")


def body_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what the description of a route says of a body that its handler reads itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


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
            raise RefusedRequest(403, "this token sees the jobs of its own tenant only")
        tenant = caller.tenant
    return JobQuery(tuple(state), tenant, type_, server, array, name, tuple(ids), since=since)


def routes(house: House) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
    service, loop, store = house.service, house.service.loop, house.service.store

    large = KeyedSlots(1, LARGE_WAITING)  # one of each tenant, so that submissions of other tenants come in between

    async def take(request: Request, read: Callable[[bytes], list[JobSpec]], caller: Caller) -> Response:
        def made(body: bytes) -> tuple[list[NewJob], list[int]]:
            machines = isinstance(service.engine, Machines)
            specs = []
            for n, spec in enumerate(read(body)):
                try:
                    specs.append(check_work(spec, machines=machines))
                except InputError as error:
                    if read is read_one:
                        raise
                    raise InputError(error.what, where=f"[{n}].{error.where}", remedy=error.remedy) from None
            return new_jobs(specs, caller, house.times)

        house.check_engine("submit")
        new, order = await off_the_loop(made, await request.body())
        if how_many(new) > MAX_ARRAY:
            raise InputError(f"{how_many(new):,} jobs", where="array", remedy=f"send at most {MAX_ARRAY:,} at once")
        if len(new) > 1 and how_many(new) > BULK:
            raise InputError(f"{how_many(new):,} jobs", where="array", remedy="send large arrays one by one")
        if not house.limits.fits(caller, how_many(new)) and not await asyncio.to_thread(
            house.limits.room, caller, how_many(new)
        ):
            raise RefusedRequest(
                429, f"more than {house.limits.waiting:,} jobs of {caller.tenant!r} would wait", 10.0
            )
        with_deadline = any(job.deadline is not None for job in new)
        if with_deadline:
            await follow(service)
        try:
            if how_many(new) > PIECE_OF_ARRAY:
                async with large.one(new[0].tenant):
                    ids = await done(loop.submit(new))
            else:
                ids = await done(loop.submit(new))
        except KeyConflictError as error:
            raise RefusedRequest(409, str(error)) from None
        except NoSlotError as error:
            raise RefusedRequest(429, str(error), 1.0) from None
        if order != list(range(len(order))):
            ids = in_request_order(new, order, ids)
        late = await done(loop.ask(lambda ledger, now: ledger.late(ids, now))) if with_deadline else []
        # without validation: there may be 100,000 numbers, all of them our own
        told = Submitted.model_construct(id=ids[0], ids=ids, warnings=late)
        text = (
            told.model_dump_json() if len(ids) <= PIECE_OF_ARRAY else await asyncio.to_thread(told.model_dump_json)
        )
        return Response(text, 201, media_type="application/json")

    async def act_on(number: int, caller: Caller, act: Callable[[Ledger, float], None]) -> JobView:
        await house.job(number, caller)
        try:
            await done(loop.ask(act))
        except InputError as error:
            raise RefusedRequest(409, str(error)) from None
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
        needs = await asyncio.to_thread(lambda: store.needs(of=[found.array_id or found.id]))
        return JobDetail.of_spec(found, plain(specs[found.id][1]) if found.id in specs else {}, needs)

    @router.get("/{number}/output", response_class=PlainTextResponse)
    async def output(
        number: int, caller: Reader, offset: Number = 0, attempt: Number | None = None
    ) -> PlainTextResponse:
        """A piece of what a job wrote, from an offset on; the header X-Next-Offset says where the next begins."""
        found = await house.job(number, caller)
        which = attempt if attempt is not None else found.attempt
        if which > found.attempt:
            raise RefusedRequest(404, f"job {number} has no attempt {which}: attempts so far are {found.attempt}")
        piece = await asyncio.to_thread(service.engine.output, found.id, which, offset, PIECE)
        data, after = piece if piece is not None else (b"", offset)
        headers = {"X-Next-Offset": str(after), "X-State": found.state, "X-Attempt": str(found.attempt)}
        if found.server is not None:
            headers["X-Server"] = quote(found.server)
        return PlainTextResponse(data, headers=headers)

    @router.post("/resubmit", status_code=201)
    async def resubmit(what: Resubmitting, caller: Submitter) -> Resubmitted:
        """Submit jobs that have ended once more, as new jobs. Jobs among them wait for each other as before."""
        house.check_engine("submit")
        again = await asyncio.to_thread(new_again, house, what, caller)
        if not house.limits.fits(caller, how_many(again.jobs)) and not await asyncio.to_thread(
            house.limits.room, caller, how_many(again.jobs)
        ):
            raise RefusedRequest(
                429, f"more than {house.limits.waiting:,} jobs of {caller.tenant!r} would wait", 10.0
            )
        return again.numbered(await done(loop.submit(again.jobs)))

    @router.get("/{number}/console")
    async def console(number: int, caller: Submitter) -> ConsolePlace:
        """Where the console of a virtual machine is that runs."""
        found = await house.job(number, caller)
        engine = service.engine
        place = engine.console(found.id, found.attempt) if isinstance(engine, Machines) else None
        if found.state != RUNNING or place is None:
            raise RefusedRequest(409, f"job {number} has no console now: it is no virtual machine that runs")
        return ConsolePlace(uri=place[0], domain=place[1])

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
        code = "" if found.exit_code is None or found.state == "done" else f", exit code {found.exit_code}"
        how = code + (f", {found.reason}" if found.reason else "")
        return Explained(text=f"job {number} has ended: {found.state}{how}")

    return router

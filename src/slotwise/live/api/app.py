"""The API over a running service. Handlers check and translate; what happens, happens in the loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from typing import Annotated, TypeVar

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from prometheus_client import generate_latest
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from slotwise._version import __version__
from slotwise.errors import InputError
from slotwise.live import metrics
from slotwise.live.api.gate import LOOPBACK, Gate
from slotwise.live.api.models import (
    Change,
    ClusterView,
    Drain,
    Explained,
    JobPage,
    JobView,
    MadeToken,
    NewServer,
    NewToken,
    Problem,
    ServerView,
    Submitted,
    TokenView,
)
from slotwise.live.auth import EVERYONE, Caller, Guard
from slotwise.live.engines.protocol import ServerUp
from slotwise.live.inbox import FullError
from slotwise.live.ledger import Ledger, NewJob
from slotwise.live.loop import NotReadyError
from slotwise.live.restart import Setup
from slotwise.live.service import Service
from slotwise.live.spec import JobSpec, indices
from slotwise.live.store.records import STATES, Job, StoreError
from slotwise.live.store.records import Query as JobQuery
from slotwise.model import JobType, ServerClass

T = TypeVar("T")
BULK = 10_000
PAGE = 10_000
PIECE = 1 << 20
Number = Annotated[int, Query(ge=0, le=2**53)]


class Refusal(Exception):  # noqa: N818
    """An answer that is no."""

    def __init__(self, status: int, detail: str) -> None:
        self.status, self.detail = status, detail


def problem(status: int, title: str, detail: str, **headers: str) -> JSONResponse:
    """An error in the form of RFC 9457."""
    return JSONResponse(
        {"type": "about:blank", "title": title, "status": status, "detail": detail},
        status,
        headers=headers,
        media_type="application/problem+json",
    )


class News:
    """Wakes those who follow the journal; the loop calls `tell` from its own thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None

    def tell(self, _seq: int) -> None:
        """There are new rows."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, timeout: float) -> None:
        """Until there are new rows, or the timeout."""
        self._loop = asyncio.get_running_loop()
        if self._event is None:
            self._event = asyncio.Event()
        try:
            await asyncio.wait_for(self._event.wait(), timeout)
        except TimeoutError:
            return


def new_job(spec: JobSpec, tenant: str) -> NewJob:
    """What the ledger wants to know of a submission."""
    needs = spec.needs
    if spec.type is None and not needs:
        needs = {"cpu": 1.0}
    return NewJob(
        tenant,
        spec.type,
        needs,
        spec.requires,
        spec.name,
        spec.key,
        spec.duration,
        spec.body(),
        None if spec.array is None else indices(spec.array),
    )


def caller_with(role: str) -> Callable[[Request], Caller]:
    """A dependency: who asks, if the role is enough."""

    def check(request: Request) -> Caller:
        guard: Guard = request.app.state.guard
        caller = guard.caller(request.headers.get("authorization"))
        if caller is None:
            raise Refusal(401, "no valid token; send Authorization: Bearer ...")
        if not caller.may(role):
            raise Refusal(403, f"a token of role {caller.role} may not do this; it needs {role}")
        return caller

    return check


Reader = Annotated[Caller, Depends(caller_with("read"))]
Submitter = Annotated[Caller, Depends(caller_with("submit"))]
Operator = Annotated[Caller, Depends(caller_with("operate"))]


def make_app(service: Service, guard: Guard, hosts: Iterable[str] = LOOPBACK) -> FastAPI:
    """The application."""
    app = FastAPI(
        title="Slotwise",
        version=__version__,
        description="Jobs that are not interrupted, on unlike servers: submit, watch, operate.",
        responses={
            code: {"model": Problem, "content": {"application/problem+json": {}}}
            for code in (400, 401, 403, 404, 409, 422, 503)
        },
    )
    loop, store, news = service.loop, service.store, News()
    loop.on_commit = news.tell
    app.state.guard = guard

    # -- shared by handlers -------------------------------------------------------------------------------------

    async def own(number: int, caller: Caller) -> Job:
        job = await asyncio.to_thread(store.job, number) if 0 <= number < 2**53 else None
        if job is None or not caller.sees(job.tenant):
            raise Refusal(404, f"there is no job {number}")
        return job

    async def done(future: Future[T]) -> T:
        return await asyncio.wrap_future(future)

    # -- errors -------------------------------------------------------------------------------------------------

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> JSONResponse:
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        return problem(error.status, "refused", error.detail, **headers)

    @app.exception_handler(InputError)
    async def wrong(_: Request, error: InputError) -> JSONResponse:
        return problem(400, "bad input", str(error))

    @app.exception_handler(NotReadyError)
    @app.exception_handler(FullError)
    @app.exception_handler(StoreError)
    async def not_now(_: Request, error: Exception) -> JSONResponse:
        return problem(503, "not ready", str(error), **{"Retry-After": "1"})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body")
        return problem(422, "bad input", f"{place}: {first['msg']}" if place else str(first["msg"]))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, "refused", str(error.detail), **(error.headers or {}))

    # -- jobs ---------------------------------------------------------------------------------------------------

    def tenant_of(caller: Caller) -> str:
        return "operator" if caller.tenant == EVERYONE else caller.tenant

    @app.post("/v1/jobs", status_code=201)
    async def submit(spec: JobSpec, caller: Submitter) -> Submitted:
        """Submit a job, or an array of them. It is durable when the answer comes."""
        ids = await done(loop.submit([new_job(spec, tenant_of(caller))]))
        return Submitted.model_construct(id=ids[0], ids=ids)

    @app.post("/v1/jobs/bulk", status_code=201)
    async def submit_many(specs: list[JobSpec], caller: Submitter) -> Submitted:
        """Submit many jobs, all or none."""
        if not specs or len(specs) > BULK:
            raise InputError(f"{len(specs):,} jobs", where="jobs", remedy=f"send 1 to {BULK:,} at once")
        tenant = tenant_of(caller)
        ids = await done(loop.submit([new_job(spec, tenant) for spec in specs]))
        return Submitted.model_construct(id=ids[0], ids=ids)

    @app.get("/v1/jobs")
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
    ) -> JobPage:
        """Jobs, newest first; all conditions hold. `next` is the `after` of the next page."""
        for one in state:
            if one not in STATES:
                raise InputError(f"no state is called {one!r}", where="state", remedy=f"use: {', '.join(STATES)}")
        if any(not 0 <= one < 2**53 for one in id):
            raise InputError("is no number of a job", where="id", remedy="use numbers that submissions gave")
        if caller.tenant != EVERYONE:
            if tenant not in (None, caller.tenant):
                raise Refusal(403, "this token sees the jobs of its own tenant only")
            tenant = caller.tenant
        asked = JobQuery(tuple(state), tenant, type, server, array, name, tuple(id), after, limit, oldest_first)
        found = await asyncio.to_thread(store.jobs, asked)
        return JobPage.model_construct(
            jobs=[JobView.of(job) for job in found], next=found[-1].id if len(found) == limit else None
        )

    @app.get("/v1/jobs/{number}")
    async def job(number: int, caller: Reader) -> JobView:
        """One job."""
        return JobView.of(await own(number, caller))

    @app.get("/v1/jobs/{number}/output", response_class=PlainTextResponse)
    async def output(
        number: int, caller: Reader, offset: Number = 0, attempt: Number | None = None
    ) -> PlainTextResponse:
        """A piece of what a job wrote, from an offset on; the header X-Next-Offset says where the next begins."""
        found = await own(number, caller)
        which = attempt if attempt is not None else found.attempt
        piece = await asyncio.to_thread(service.engine.output, found.id, which, offset, PIECE)
        data, after = piece if piece is not None else (b"", offset)
        return PlainTextResponse(data, headers={"X-Next-Offset": str(after), "X-State": found.state})

    @app.post("/v1/jobs/{number}/cancel")
    async def cancel(number: int, caller: Submitter) -> JobView:
        """Withdraw a waiting job."""
        return await act_on(number, caller, lambda ledger, now: ledger.cancel(number, now))

    @app.post("/v1/jobs/{number}/stop")
    async def stop(number: int, caller: Submitter) -> JobView:
        """End a running job: it is asked to (SIGTERM), and killed after a while."""
        return await act_on(number, caller, lambda ledger, now: ledger.stop(number, now))

    async def act_on(number: int, caller: Caller, act: Callable[[Ledger, float], None]) -> JobView:
        await own(number, caller)
        try:
            await done(loop.ask(act))
        except InputError as error:
            raise Refusal(409, str(error)) from None
        return JobView.of(await own(number, caller))

    @app.get("/v1/jobs/{number}/explain")
    async def explain(number: int, caller: Reader) -> Explained:
        """Why the job runs or waits."""
        found = await own(number, caller)
        if found.ended is not None:
            return Explained(
                text=f"job {number} has ended: {found.state}" + (f", {found.reason}" if found.reason else "")
            )
        why = await done(loop.ask(lambda ledger, _: str(ledger.core.explain(number))))
        return Explained(text=why)

    # -- servers and cluster ------------------------------------------------------------------------------------

    @app.get("/v1/servers")
    async def servers(caller: Reader) -> list[ServerView]:
        """All servers."""
        return [ServerView.of(server) for server in await asyncio.to_thread(store.servers)]

    @app.post("/v1/servers", status_code=201)
    async def add_server(new: NewServer, caller: Operator) -> ServerView:
        """Add a server, where the engine can use it."""
        if new.name in loop.ledger.servers and loop.ledger.servers[new.name].status != "lost":
            raise Refusal(409, f"server {new.name!r} is here already")

        def act(ledger: Ledger, now: float) -> None:
            known = {one.name for one in ledger.core.cluster.servers}
            if new.server_class is not None and new.server_class not in known and not new.capacity:
                raise InputError(
                    f"no class is called {new.server_class!r}",
                    where="server_class",
                    remedy="give a capacity with it",
                )
            for name in new.capacity:
                if name not in ledger.core.cluster.resources:
                    raise InputError(f"no resource is called {name!r}", where="capacity")
            if new.server_class is None and not any(new.capacity.values()):
                raise InputError("is empty", where="capacity", remedy="give a capacity or a class")
            ledger.server_up(ServerUp(new.name, new.capacity, new.labels, new.server_class or ""), now)

        await done(loop.ask(act))
        return await server_view(new.name)

    async def server_view(name: str) -> ServerView:
        found = loop.ledger.servers.get(name)
        if found is None:
            raise Refusal(404, f"there is no server {name!r}")
        return ServerView.of(found)

    async def act_on_server(name: str, act: Callable[[Ledger, float], None]) -> None:
        await server_view(name)
        try:
            await done(loop.ask(act))
        except InputError as error:
            raise Refusal(409, str(error)) from None

    @app.post("/v1/servers/{name}/drain")
    async def drain(name: str, caller: Operator, why: Drain | None = None) -> ServerView:
        """The server takes no more jobs; those on it go on."""
        reason = (why or Drain.model_construct(reason="asked for")).reason
        await act_on_server(name, lambda ledger, now: ledger.drain(name, now, reason))
        return await server_view(name)

    @app.post("/v1/servers/{name}/resume")
    async def resume(name: str, caller: Operator) -> ServerView:
        """A draining server takes jobs again."""
        await act_on_server(name, lambda ledger, now: ledger.resume(name, now))
        return await server_view(name)

    @app.delete("/v1/servers/{name}", status_code=204)
    async def remove(name: str, caller: Operator) -> None:
        """Forget a server that holds no jobs."""
        await act_on_server(name, lambda ledger, now: ledger.remove(name, now))

    @app.get("/v1/servers/{name}/explain")
    async def explain_server(name: str, caller: Reader) -> Explained:
        """What the server does, and why."""
        await server_view(name)
        return Explained(text=await done(loop.ask(lambda ledger, _: str(ledger.core.explain_server(name)))))

    @app.get("/v1/cluster")
    async def cluster(caller: Reader) -> ClusterView:
        """Types, classes, policy, and how much waits."""
        return await done(loop.ask(lambda ledger, _: cluster_view(ledger, service.engine.name)))

    @app.patch("/v1/cluster")
    async def change(what: Change, caller: Operator) -> ClusterView:
        """Another policy, other types or classes, while jobs run."""

        def act(ledger: Ledger, now: float) -> ClusterView:
            try:
                ledger.change(
                    now,
                    types=None if what.types is None else [JobType.model_validate(one) for one in what.types],
                    classes=None
                    if what.classes is None
                    else [ServerClass.model_validate(one) for one in what.classes],
                    policy=what.policy,
                    options=what.options,
                )
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                raise InputError(first["msg"], where=".".join(map(str, first["loc"]))) from None
            return cluster_view(ledger, service.engine.name)

        if what.policy is not None:  # compile it here, and not in the loop, where everybody would wait
            core = loop.ledger.core
            await asyncio.to_thread(Setup(core.cluster, core.types, what.policy, dict(what.options or {})).warm)
        return await done(loop.ask(act))

    # -- tokens -------------------------------------------------------------------------------------------------

    @app.post("/v1/tokens", status_code=201)
    async def create_token(new: NewToken, caller: Operator) -> MadeToken:
        """Make a token; its secret is shown this once."""
        token, secret = await asyncio.to_thread(guard.create, new.role, new.tenant)
        return MadeToken(id=token.id, role=token.role, tenant=token.tenant, token=secret)

    @app.get("/v1/tokens")
    async def tokens(caller: Operator) -> list[TokenView]:
        """All tokens, without their secrets."""
        found = await asyncio.to_thread(store.tokens)
        return [TokenView(id=one.id, role=one.role, tenant=one.tenant, created=one.created) for one in found]

    @app.delete("/v1/tokens/{identity}", status_code=204)
    async def revoke_token(identity: str, caller: Operator) -> None:
        """Take a token back, at once."""
        if not await asyncio.to_thread(guard.revoke, identity):
            raise Refusal(404, f"there is no token {identity!r}")

    # -- events and health --------------------------------------------------------------------------------------

    @app.get("/v1/events")
    async def events(
        request: Request, caller: Reader, after: Number | None = None, follow: bool = True
    ) -> StreamingResponse:
        """The journal as server-sent events, from a row on (`after`, or Last-Event-ID), and on as it grows."""
        resumed = request.headers.get("last-event-id", "")
        first = int(resumed) if resumed.isdigit() and len(resumed) < 17 else after
        seq = loop.ledger.seq if first is None else first
        return StreamingResponse(rows_from(seq, caller, follow), media_type="text/event-stream")

    async def rows_from(seq: int, caller: Caller, follow: bool) -> AsyncIterator[str]:
        while True:
            entries = await asyncio.to_thread(store.entries, seq, limit=1000)
            parsed = [(entry, json.loads(entry.event)) for entry in entries]
            if caller.tenant != EVERYONE:
                numbers = tuple({row["job"] for _, row in parsed if "job" in row})
                mine = await asyncio.to_thread(own_numbers, numbers, caller.tenant)
                parsed = [(entry, row) for entry, row in parsed if row.get("job") in mine]
            for entry, row in parsed:
                data = {**row, "placements": json.loads(entry.placements) if caller.tenant == EVERYONE else []}
                if entry.note is not None:
                    data["note"] = json.loads(entry.note)
                yield f"id: {entry.seq}\nevent: {row['event']}\ndata: {json.dumps(data)}\n\n"
            if entries:
                seq = entries[-1].seq
            elif not follow or loop.ended.is_set():
                return
            else:
                yield ": waiting\n\n"
                await news.wait(15.0)

    def own_numbers(numbers: tuple[int, ...], tenant: str) -> set[int]:
        found: set[int] = set()
        for at in range(0, len(numbers), 500):
            found.update(
                job.id for job in store.jobs(JobQuery(ids=numbers[at : at + 500], tenant=tenant, limit=500))
            )
        return found

    @app.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        """The process is there."""
        return "ok\n"

    @app.get("/readyz", response_class=PlainTextResponse)
    async def readyz() -> PlainTextResponse:
        """Whether requests are taken."""
        trouble = loop.trouble
        return PlainTextResponse(
            "ready\n" if trouble is None else f"not ready: {trouble}\n", 200 if trouble is None else 503
        )

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics(caller: Reader) -> PlainTextResponse:
        """For Prometheus."""
        if loop.trouble is None:
            await asyncio.to_thread(await done(loop.ask(metrics.measure)))
        metrics.INBOX.set(len(loop.inbox))
        metrics.READY.set(loop.trouble is None)
        return PlainTextResponse(generate_latest(metrics.REGISTRY), media_type="text/plain; version=0.0.4")

    app.add_middleware(Gate, hosts=list(hosts))
    return app


def cluster_view(ledger: Ledger, engine: str) -> ClusterView:
    """What the core knows of the cluster."""
    core = ledger.core
    return ClusterView(
        resources=list(core.cluster.resources),
        types=[one.model_dump(mode="json", exclude_defaults=True) for one in core.types],
        classes=[one.model_dump(mode="json", exclude_defaults=True) for one in core.cluster.servers],
        policy=core.policy.label,
        options=core.policy.options.model_dump(mode="json"),
        engine=engine,
        waiting=core.waiting,
        live=len(ledger.live),
        fault=ledger.fault,
    )

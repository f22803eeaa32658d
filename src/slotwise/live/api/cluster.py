"""The cluster: its servers, types, classes and policy, which can all change while jobs run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import APIRouter
from pydantic import ValidationError

from slotwise.errors import InputError
from slotwise.live.api.common import House, Operator, Reader, RefusedRequest, done
from slotwise.live.api.models import (
    Change,
    ClusterView,
    Drain,
    Explained,
    NewServer,
    PolicyView,
    ServerView,
    shown_status,
)
from slotwise.live.api.words import mistake_of
from slotwise.live.engines.protocol import ServerUp
from slotwise.live.ledger import Ledger
from slotwise.live.restart import Setup
from slotwise.model import JobType, ServerClass
from slotwise.policies import POLICIES


@contextmanager
def said_plainly() -> Iterator[None]:
    """Return what a model finds wrong, in one line."""
    try:
        yield
    except ValidationError as error:
        raise mistake_of(error.errors(include_url=False)[0]) from None


def add(new: NewServer, ledger: Ledger, now: float) -> None:
    """Let a server join, if its class is known."""
    known = {one.name for one in ledger.core.cluster.servers}
    if new.server_class is not None and new.server_class not in known and not new.capacity:
        raise InputError(
            f"no class is called {new.server_class!r}", where="server_class", remedy="give a capacity with it"
        )
    for name in new.capacity:
        if name not in ledger.core.cluster.resources:
            raise InputError(f"no resource is called {name!r}", where="capacity")
    if new.server_class is None and not any(new.capacity.values()):
        raise InputError("is empty", where="capacity", remedy="give a capacity or a class")
    ledger.server_up(ServerUp(new.name, new.capacity, new.labels, new.server_class or ""), now)


def view(ledger: Ledger, engine: str) -> ClusterView:
    """Return what the core knows of the cluster."""
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


def routes(house: House) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/v1", tags=["cluster"])
    service, loop, store = house.service, house.service.loop, house.service.store

    def shown(name: str) -> ServerView:
        found = loop.ledger.servers.get(name)
        if found is None:
            raise RefusedRequest(404, f"there is no server {name!r}")
        return shown_status(found, store.jobs_by_server().get(name, 0))

    async def act_on(name: str, act: Callable[[Ledger, float], None]) -> None:
        shown(name)
        try:
            await done(loop.ask(act))
        except InputError as error:
            raise RefusedRequest(409, str(error)) from None

    @router.get("/servers")
    async def servers(caller: Reader) -> list[ServerView]:
        """All servers."""
        found, busy = await asyncio.to_thread(lambda: (store.servers(), store.jobs_by_server()))
        return [shown_status(server, busy.get(server.name, 0)) for server in found]

    @router.post("/servers", status_code=201)
    async def add_server(new: NewServer, caller: Operator) -> ServerView:
        """Add a server, where the engine can use it."""
        if new.name in loop.ledger.servers and loop.ledger.servers[new.name].status != "lost":
            raise RefusedRequest(409, f"server {new.name!r} is here already")
        await done(loop.ask(lambda ledger, now: add(new, ledger, now)))
        return shown(new.name)

    @router.get("/servers/{name}")
    async def server(name: str, caller: Reader) -> ServerView:
        """One server."""
        return shown(name)

    @router.post("/servers/{name}/drain")
    async def drain(name: str, caller: Operator, why: Drain | None = None) -> ServerView:
        """The server takes no more jobs; those on it go on."""
        reason = (why or Drain.model_construct(reason="asked for")).reason
        await act_on(name, lambda ledger, now: ledger.drain(name, now, reason))
        return shown(name)

    @router.post("/servers/{name}/resume")
    async def resume(name: str, caller: Operator) -> ServerView:
        """A draining server takes jobs again."""
        await act_on(name, lambda ledger, now: ledger.resume(name, now))
        return shown(name)

    @router.delete("/servers/{name}", status_code=204)
    async def remove(name: str, caller: Operator) -> None:
        """Forget a server that holds no jobs."""
        await act_on(name, lambda ledger, now: ledger.remove(name, now))

    @router.get("/servers/{name}/explain")
    async def explain_server(name: str, caller: Reader) -> Explained:
        """What the server does, and why."""
        shown(name)
        return Explained(text=await done(loop.ask(lambda ledger, _: f"server {ledger.core.explain_server(name)}")))

    @router.get("/cluster")
    async def cluster(caller: Reader) -> ClusterView:
        """Types, classes, policy, and how much waits."""
        return await done(loop.ask(lambda ledger, _: view(ledger, service.engine.name)))

    @router.get("/policies")
    async def policies(caller: Reader) -> list[PolicyView]:
        """The policies that the service can use."""

        def listed() -> list[PolicyView]:
            return [PolicyView(name=one.name, summary=one.summary) for one in POLICIES.values()]

        return await asyncio.to_thread(listed)

    @router.patch("/cluster")
    async def change(what: Change, caller: Operator) -> ClusterView:
        """Another policy, other types or classes, while jobs run."""
        with said_plainly():
            types = None if what.types is None else [JobType.model_validate(one) for one in what.types]
            classes = None if what.classes is None else [ServerClass.model_validate(one) for one in what.classes]

        def act(ledger: Ledger, now: float) -> ClusterView:
            with said_plainly():
                ledger.change(now, types=types, classes=classes, policy=what.policy, options=what.options)
            return view(ledger, service.engine.name)

        if what.policy is not None:  # compile it here: the loop would delay every request
            core = loop.ledger.core
            await asyncio.to_thread(Setup(core.cluster, core.types, what.policy, dict(what.options or {})).warm)
        return await done(loop.ask(act))

    return router

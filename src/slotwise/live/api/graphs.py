"""The graph of jobs that wait for each other, around one of them."""

from __future__ import annotations

import asyncio
from collections import Counter

from fastapi import APIRouter

from slotwise.live.after import ONE
from slotwise.live.api.common import House, Reader
from slotwise.live.api.models import Model
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Job, Query

MOST = 10_000  # nodes of one graph
PIECE = 500  # numbers in one question to the store


class GraphNode(Model):
    """A job, or a whole array by the number of its first job."""

    id: int
    name: str
    states: dict[str, int]


class GraphEdge(Model):
    """`after` waits for `before`."""

    before: int
    after: int
    kind: str


class Graph(Model):
    """Jobs, and what they wait for."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    complete: bool


def graph_around(store: Store, job: Job) -> Graph:
    """Return all jobs and arrays that are connected with a job by dependencies, at most MOST."""
    nodes: dict[int, GraphNode] = {}
    node_of: dict[int, int] = {}
    edges: dict[tuple[int, int, str], None] = {}
    fresh = [job.array_id or job.id]
    while fresh and len(nodes) < MOST:
        for node, numbers in read_nodes(store, fresh):
            nodes[node.id] = node
            node_of |= dict.fromkeys(numbers, node.id)
        numbers = sorted(number for number, node in node_of.items() if node in set(fresh))
        rows = {*store.needs(of=fresh), *store.needs(on=numbers)}
        unknown = sorted({number for row in rows for number in (row.job, row.other)} - node_of.keys())
        fresh = []
        for at in range(0, len(unknown), PIECE):
            for one in store.jobs(Query(ids=tuple(unknown[at : at + PIECE]), limit=PIECE)):
                node_of[one.id] = one.array_id or one.id
                fresh.append(node_of[one.id])
        fresh = sorted(set(fresh) - nodes.keys())
        for row in rows:
            if row.other in node_of and row.job in node_of:
                edges[node_of[row.other], node_of[row.job], row.kind.removeprefix(ONE)] = None
    there = [edge for edge in edges if edge[0] in nodes and edge[1] in nodes]
    return Graph(
        nodes=sorted(nodes.values(), key=lambda one: one.id),
        edges=[GraphEdge(before=before, after=after, kind=kind) for before, after, kind in sorted(there)],
        complete=not fresh,
    )


def read_nodes(store: Store, firsts: list[int]) -> list[tuple[GraphNode, list[int]]]:
    """Return the node of each job or array, with the numbers of its jobs."""
    found = []
    for at in range(0, len(firsts), PIECE):
        for job in store.jobs(Query(ids=tuple(firsts[at : at + PIECE]), limit=PIECE)):
            members = store.members(job.id) if job.array_id is not None else None
            states = Counter([job.state] if members is None else [one.state for one in members])
            numbers = [job.id] if members is None else [one.id for one in members]
            found.append((GraphNode(id=job.id, name=job.name, states=dict(sorted(states.items()))), numbers))
    return found


def routes(house: House) -> APIRouter:
    """Return the route."""
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

    @router.get("/{number}/graph")
    async def graph(number: int, caller: Reader) -> Graph:
        """The jobs that a job waits for and that wait for it, directly or not; an array is one node."""
        found = await house.job(number, caller)
        return await asyncio.to_thread(graph_around, house.service.store, found)

    return router

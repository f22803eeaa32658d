"""The core and the naive Algorithm 1 and M14 make the same placements, event for event, on thousands of random runs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from instances import ALL_EVENTS, Events, perform, random_instance, still_waiting
from naive import NaiveSlots, beta_of, maximal_configurations

from slotwise.compiler.kernel import JIT
from slotwise.core.indexes.weights import best_configuration
from slotwise.core.state import COUNT
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.policies.paper.slots import beta
from slotwise.scheduling import (
    Cancel,
    Complete,
    Drain,
    Event,
    Join,
    Remove,
    Requeue,
    Resume,
    Scheduler,
    Stop,
    Submit,
    make_policy,
)

pytestmark = pytest.mark.core

RUNS, LENGTH = (110, 60) if JIT else (12, 50)

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("algorithm1", {}),
    ("algorithm1", {"ties": "first"}),
    ("algorithm1", {"beta": 0.9}),
    ("algorithm1", {"beta": 0.7, "ties": "first", "reduce_stalls": False}),
    ("algorithm1", {"beta": 0.95, "stall_cap": 0.5, "spread": "cap"}),
    ("algorithm1", {"b": 0.98, "p": 0.9, "spread": "linear-cap", "stall_cap": 0.6}),
    ("algorithm1", {"b": 0.98, "p": 1.0, "spread": "linear-cap", "stall_cap": 1.0}),
    ("algorithm1", {"p": 0.5, "z": 0.1, "spread": "off"}),
    ("algorithm1", {"p": 0.5, "z": 0.1, "spread": "cap", "stall_cap": 0.3, "reduce_stalls": False}),
    ("algorithm1", {"faithful": True, "beta": 0.9}),
    ("algorithm1", {"faithful": True, "p": 0.9, "reduce_stalls": False, "ties": "first"}),
    ("algorithm1", {"faithful": True, "p": 0.9, "spread": "off"}),
    ("algorithm1", {"solver": "hull", "beta": 0.9}),
    ("algorithm1", {"solver": "greedy", "beta": 0.9}),
    ("m14", {}),
    ("m14", {"ties": "first"}),
    ("m14", {"weights": "log"}),
    ("m14", {"weights": "log", "solver": "hull"}),
    ("m14", {"queues": "own"}),
    ("m14", {"queues": "own", "weights": "log", "ties": "first"}),
]


def label(variant: tuple[str, dict[str, Any]]) -> str:
    name, options = variant
    return " ".join([name, *(f"{key}={value}" for key, value in options.items())])


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_the_core_places_as_the_naive_one_does(variant: tuple[str, dict[str, Any]]) -> None:
    name, options = variant
    policy = make_policy(name, **({"solver": "enumerate"} | options))
    stalls = 0
    for seed in range(RUNS):
        stalls += same(policy, seed)
    if name == "algorithm1" and not set(options) <= {"ties"}:
        assert stalls > RUNS / 20, "the runs prove nothing about stalling"


def same(policy: Any, seed: int) -> int:
    rng = random.Random(f"{policy.name} {seed}")
    instance = random_instance(rng)
    scheduler = Scheduler(instance.cluster, instance.types, policy, seed=seed)
    demand = [t.demand for t in instance.types]
    if policy.solver == "enumerate":
        candidates = {c.name: maximal_configurations(demand, c.capacity) for c in instance.cluster.servers}
    else:
        names = [c.name for c in instance.cluster.servers]
        tables = [solver.table.tolist() for solver in scheduler._store.solvers]
        candidates = {n: [tuple(k) for k in table] for n, table in zip(names, tables, strict=True)}
    naive = naive_of(policy, candidates, len(demand), seed)
    numbers = {}
    for c in instance.cluster.servers:
        for n in range(c.count):
            numbers[f"{c.name}-{n}"] = len(numbers)
            naive.join(numbers[f"{c.name}-{n}"], c.name)
    weights = ALL_EVENTS | {"submit": rng.choice([40, 55]), "join": rng.choice([1, 4])}
    events, type_number = Events(rng, instance, weights=weights), {t.name: j for j, t in enumerate(instance.types)}
    waiting: list[Any] = []
    for _ in range(LENGTH):
        event = events.next(scheduler, waiting)
        placements, requeued = perform(scheduler, event)
        numbers |= scheduler._servers
        expected = naive_step(naive, event, type_number, numbers)
        assert [(job, numbers[server]) for job, server in placements] == expected, f"seed {seed}: {event}"
        waiting = still_waiting(waiting, event, placements, requeued)
    return int(scheduler._state.stalls)


def naive_of(policy: Any, candidates: Any, n_types: int, seed: int) -> NaiveSlots:
    o = policy.options
    if policy.name == "algorithm1":
        return NaiveSlots(
            candidates,
            n_types,
            seed=seed,
            beta=beta_of(o),
            ties=o.ties,
            reduce_stalls=o.reduce_stalls,
            faithful=o.faithful,
        )
    return NaiveSlots(
        candidates,
        n_types,
        seed=seed,
        beta=None,
        ties=o.ties,
        log_weights=o.weights == "log",
        own_queues=o.queues == "own",
    )


def naive_step(naive: NaiveSlots, event: Event, types: dict[str, int], numbers: dict[Any, int]) -> Any:
    match event:
        case Submit(job, name):
            return naive.submit(job, types[name])
        case Complete(job) | Stop(job):
            return naive.complete(job)
        case Requeue(job):
            return naive.requeue(job)
        case Cancel(job):
            return naive.cancel(job)
        case Join(server, name):
            return naive.join(numbers[server], name)
        case Remove(server) if numbers[server] not in naive.servers:
            return []  # it had failed
        case Drain(server) if naive.servers[numbers[server]].state == "draining":
            return []
        case Resume(server) if naive.servers[numbers[server]].state != "draining":
            return []
    return getattr(naive, type(event).__name__.lower())(numbers[event.server])


def twins(**options: Any) -> Scheduler:
    """Two types of one size on a server for three: with equal queues all four configurations are tied."""
    server = ServerClass(name="s", count=1, capacity=(6,))
    types = [JobType(name=name, demand=(2,)) for name in "ab"]
    return Scheduler(Cluster(resources=("r",), servers=(server,)), types, "algorithm1", **options)


@pytest.mark.parametrize("solver", ["enumerate", "dp"])
def test_among_ties_a_server_prefers_what_contains_its_jobs(solver: str) -> None:
    scheduler = twins(solver=solver)
    arrays = scheduler._store.arrays
    for n in range(20):
        scheduler.submit(n, "ab"[n % 2])
    arrays["weight"][:] = 5.0  # all is tied, whatever runs
    for held, containing in [((2, 1), {(2, 1)}), ((0, 2), {(0, 3), (1, 2)}), ((1, 0), {(3, 0), (2, 1), (1, 2)})]:
        scheduler._store.running[0], arrays["servers"][0, COUNT] = held, sum(held)
        seen = set()
        for _ in range(80):
            assert best_configuration(scheduler._state, 0) == 15.0
            seen.add(tuple(arrays["choice"][0].tolist()))
        assert seen <= containing
        assert seen == containing or solver == "dp", "each of them is taken at times"


@pytest.mark.parametrize("options", [o for n, o in VARIANTS if n == "algorithm1"], ids=str)
def test_beta_is_what_the_definition_says(options: dict[str, Any]) -> None:
    scheduler = twins(**options)
    state, right = scheduler._state, beta_of(scheduler.policy.options)
    for waiting in (0, 1, 7, 400, 4095, 4096, 100_000):
        for servers in (1, 7, 10, 1000):
            for stalled in {0, 1, servers // 10, servers * 6 // 10, servers}:
                state.n_waiting, state.n_stalled, state.n_servers = waiting, stalled, servers
                assert beta(state) == pytest.approx(right(waiting, stalled, servers), rel=1e-12, abs=1e-15)

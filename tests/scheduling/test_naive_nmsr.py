"""The core and the naive nMSR make the same placements; the mix carries the load; the clock gives each configuration its share."""

from __future__ import annotations

import random
from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np
import pytest
from instances import ALL_EVENTS, Events, perform, random_instance, still_waiting
from naive_nmsr import NaiveNmsr

import slotwise
from slotwise.compiler.kernel import JIT
from slotwise.model import Cluster, JobType, ServerClass, load_scenario
from slotwise.policies.rivals.nmsr_mix import step_cost
from slotwise.scheduling import (
    Cancel,
    Complete,
    Drain,
    Event,
    Fail,
    Join,
    Remove,
    Requeue,
    Resume,
    Scheduler,
    Stop,
    Submit,
    Tick,
    make_policy,
)

pytestmark = pytest.mark.core

RUNS, LENGTH = (60, 90) if JIT else (6, 60)


@pytest.mark.parametrize("pack_by", ["actual", "type"])
@pytest.mark.parametrize("fill", [True, False], ids=["fill", "slots"])
def test_the_core_places_as_the_naive_one_does(fill: bool, pack_by: str) -> None:
    drained = sum(same(make_policy("nmsr", fill=fill, pack_by=pack_by), seed) for seed in range(RUNS))
    assert drained > RUNS or not JIT, "the runs prove nothing about servers that drain"


def same(policy: Any, seed: int) -> int:
    rng = random.Random(f"{policy.options.fill} {seed}")
    instance = random_instance(rng)
    instance.types = [t.model_copy(update={"rate": rng.choice([0.0, 1.0, 3.0])}) for t in instance.types]
    scheduler = Scheduler(instance.cluster, instance.types, policy, seed=seed, digits=2)
    sizes, mix = scheduler.sizes, policy.mix
    naive = NaiveNmsr(
        sizes.demand.tolist(),
        sizes.capacity.tolist(),
        mix.rows.tolist(),
        mix.owner.tolist(),
        mix.low.tolist(),
        mix.high.tolist(),
        fill=policy.options.fill,
        actual=policy.actual,
    )
    numbers = dict(scheduler._servers)
    for server, number in numbers.items():
        naive.join(number, classes_of(scheduler)[str(server).rpartition("-")[0]])
    weights = ALL_EVENTS | {"submit": rng.choice([40, 55]), "tick": 15}
    events, waiting = Events(rng, instance, weights=weights), []
    for _ in range(LENGTH):
        event = events.next(scheduler, waiting)
        placements, requeued = perform(scheduler, event)
        numbers |= scheduler._servers
        placed = [(job, numbers[server]) for job, server in placements]
        naive.begin(placed)
        tell(naive, scheduler, event, numbers)
        assert placed == naive.placed, f"seed {seed}: {event}"
        assert scheduler._state.n_stalled == sum(naive.servers[n].drains for n in naive.present())
        waiting = still_waiting(waiting, event, placements, requeued)
    return int(scheduler._state.stalls)


def classes_of(scheduler: Scheduler) -> dict[str, int]:
    return {server.name: c for c, server in enumerate(scheduler.cluster.servers)}


def tell(naive: NaiveNmsr, scheduler: Scheduler, event: Event, numbers: dict[Any, int]) -> None:
    match event:
        case Submit(job, name, _, demand):
            j = next(j for j, t in enumerate(scheduler.types) if t.name == name)
            naive.submit(job, j, in_integers(scheduler, demand) if demand else scheduler.sizes.demand[j].tolist())
        case Complete(job) | Stop(job):
            naive.complete(job)
        case Requeue(job):
            naive.requeue(job)
        case Cancel(job):
            naive.cancel(job)
        case Join(server, name):
            naive.join(numbers[server], classes_of(scheduler)[name])
        case Drain(server):
            naive.drain(numbers[server])
        case Resume(server) if not naive.servers[numbers[server]].present:
            naive.resume(numbers[server])
        case Fail(server):
            naive.fail(numbers[server])
        case Tick():
            naive.tick()
        case Remove(server):
            naive.servers.pop(numbers[server], None)
        case Resume():
            pass


def in_integers(scheduler: Scheduler, demand: Any) -> list[int]:
    return [
        int((Decimal(demand[name]) * 10**digits).to_integral_value(ROUND_CEILING))
        for name, digits in zip(scheduler.cluster.resources, scheduler.sizes.digits, strict=True)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_the_mix_carries_the_load(seed: int) -> None:
    rng = random.Random(seed)
    instance = random_instance(rng)
    types = [t.model_copy(update={"rate": rng.choice([0.5, 1.0, 3.0])}) for t in instance.types]
    policy = make_policy("nmsr")
    scheduler = Scheduler(instance.cluster, types, policy)
    mix, counts = policy.mix, np.maximum([c.count for c in instance.cluster.servers], 1)
    carried = ((mix.high - mix.low) * counts[mix.owner]) @ mix.rows
    load = np.array([t.rate * t.mean_service for t in types])
    assert (carried >= load / mix.intensity * (1 - 1e-9)).all()
    assert (mix.rows @ scheduler.sizes.demand <= scheduler.sizes.capacity[mix.owner]).all()


def test_each_configuration_is_held_for_its_share_of_a_round() -> None:
    """Three servers of 6 with demands 4 and 1, idle: over a round the slots that stand open are as the mix says."""
    cluster = Cluster(resources=("r",), servers=(ServerClass(name="s", count=3, capacity=(6,)),))
    types = [JobType(name="large", demand=(4,), rate=0.5), JobType(name="small", demand=(1,), rate=4.0)]
    policy = make_policy("nmsr", cycle=10.0)
    scheduler = Scheduler(cluster, types, policy)
    slots = np.zeros(2)
    time = 0.0
    for _ in range(50):
        stays = 1.0 / scheduler.tick_rate  # on average
        slots += stays * scheduler._store.configuration[:3].sum(axis=0)
        time += stays
        scheduler.tick()
        if time == pytest.approx(100.0):
            break
    assert time == pytest.approx(100.0), "ten rounds"
    mix = policy.mix
    assert slots / time == pytest.approx(3 * (mix.high - mix.low) @ mix.rows)


def test_whole_numbers_of_servers_never_change() -> None:
    """Demands 5 and 2 on servers of 10, half of the servers for each: no clock is needed."""
    types = [JobType(name="a", demand=(5,), rate=1.0), JobType(name="b", demand=(2,), rate=2.5)]
    for count, ticks in ((20, False), (21, True)):
        cluster = Cluster(resources=("r",), servers=(ServerClass(name="s", count=count, capacity=(10,)),))
        assert (Scheduler(cluster, types, "nmsr").tick_rate > 0) == ticks


def test_what_a_step_costs() -> None:
    ten, one = np.array([10, 0]), np.array([0, 1])
    assert step_cost(ten, one, np.ones(2)) == pytest.approx(sum(1 / n for n in range(1, 11)) - 1)
    assert step_cost(one, ten, np.ones(2)) == 0.0, "the one job works until it ends"
    assert step_cost(np.array([1, 1]), np.array([2, 1]), np.ones(2)) == 0.0


@pytest.mark.skipif(not JIT, reason="too slow without the compiler")
@pytest.mark.parametrize("fill", [True, False], ids=["fill", "slots"])
@pytest.mark.parametrize("name", ["example1", "best-fit-trap", "table1"])
def test_stable_where_it_must_be(name: str, fill: bool) -> None:
    """At .8 of the region, also where best-fit's or M14's queue grows without bound."""
    scenario = load_scenario(name, ["workload.intensity=0.8", "run.events=200000", "run.replications=2"])
    result = slotwise.simulate(scenario, policy="nmsr", fill=fill)
    assert result.stable
    assert result.mean_queue.mean < 60

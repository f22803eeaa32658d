"""The core and the naive `guarded` agree on every placement, event for event, on hundreds of random runs."""

from __future__ import annotations

import math
import random
from typing import Any, TypeVar

import numpy as np
import pytest
from instances import ALL_EVENTS, Events, perform, random_instance, still_waiting
from naive import beta_of, maximal_configurations
from naive_guarded import NaiveGuarded

from slotwise.compiler.kernel import JIT
from slotwise.core.state import MODE, STALLED, gain
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.policies.guarded import drains, floors, gains, memory, usable
from slotwise.scheduling import Drain, Join, Remove, Resume, Scheduler, Submit, make_policy

pytestmark = pytest.mark.core

N = TypeVar("N", bound=NaiveGuarded)
RUNS, LENGTH = (40, 60) if JIT else (7, 50)


@pytest.mark.parametrize("actual", [0.0, 0.5], ids=["as types", "less than types"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta": 0.95},
        {"beta": 0.9, "stall_cap": 0.5, "size_exponent": 1.0},
        {"p": 0.9, "b": 0.98, "stall_cap": 1.0, "tightness": 2.0},
        {"beta": 0.97, "stall_cap": 1.0, "persistence": 0.2},
        {"beta": 0.97, "stall_cap": 1.0, "floor": 4.0, "standing": 4.0},
        {"floor": 4.0, "standing": 2.0},
        {"patience": 0.02},
        {"patience": 0.02, "beta": 0.9, "stall_cap": 0.5},
        {"overdue": 0.1, "drain_share": 0.5},
        {"overdue": 0.1, "drain_share": 0.5, "drain_limit": 0.5},
        {"beta": 0.9, "flood": 0.02},
    ],
    ids=str,
)
def test_the_core_places_as_the_naive_one_does(options: dict[str, Any], actual: float) -> None:
    policy = make_policy("guarded", **({"solver": "enumerate"} | options))
    runs = [same(policy, seed, actual) for seed in range(RUNS)]
    assert sum(run.turns for run in runs) > RUNS / 20 or not {"beta", "b"} & options.keys(), "no turns"
    few = "floor" in options and not JIT  # without the compiler the runs are too few to meet all of these
    assert sum(run.estimates for run in runs) > RUNS / 20 or few, "nothing about how long jobs run"
    if "persistence" in options:
        assert sum(run.given_up for run in runs) > RUNS / 20, "nothing is given up"
    if "patience" in options:
        assert sum(run.drained for run in runs) > RUNS / 20, "nothing drains"
    if "overdue" in options:
        assert sum(run.drained for run in runs) > RUNS / 20, "nothing drains for a job that is overdue"
        assert sum(run.overdue_first for run in runs) > RUNS / 20, "nobody goes first who is overdue"
    if "drain_limit" in options:
        assert sum(run.hopeless for run in runs) > RUNS / 20, "no drain is given up"
    if "flood" in options:
        assert sum(run.floods for run in runs) > 0 or not JIT, "no flood"
    if JIT:
        assert sum(run.past_heads for run in runs) > RUNS / 20 or not actual, "nobody overtakes"
        assert sum(run.lasted for run in runs) > 0 or actual or "floor" in options, (
            "no long job goes where numbers are low"
        )
        assert sum(run.went_on for run in runs) > 0 or "overdue" in options, "no server goes on with a type"
    if "floor" in options and not few:
        assert sum(run.went_first for run in runs) > RUNS / 20, "nobody goes first"
        assert sum(run.ever_kept for run in runs) > 0, "no slot is kept"
        assert sum(run.slots_taken for run in runs) > 0 or "beta" in options or actual, "no slot is taken"


def beside(kind: type[N], scheduler: Scheduler, seed: int) -> tuple[N, dict[str, int], dict[str, int]]:
    """The naive one for the same cluster; and the numbers of classes and types."""
    sizes, options = scheduler.sizes, scheduler.policy.options
    demand, capacity = list(map(tuple, sizes.demand.tolist())), list(map(tuple, sizes.capacity.tolist()))
    candidates = [maximal_configurations(demand, c) for c in capacity]
    naive = kind(capacity, demand, candidates, beta_of(options), options, seed)
    kinds = {c.name: n for n, c in enumerate(scheduler.cluster.servers)}
    for c in scheduler.cluster.servers:
        for _ in range(c.count):
            naive.join(len(naive.servers), kinds[c.name])
    return naive, kinds, {t.name: j for j, t in enumerate(scheduler.types)}


def same(policy: Any, seed: int, actual: float) -> NaiveGuarded:
    rng = random.Random(f"guarded {seed}")
    instance = random_instance(rng)
    scheduler = Scheduler(instance.cluster, instance.types, policy, seed=seed)
    naive, kinds, types = beside(NaiveGuarded, scheduler, seed)
    # the first estimate of how long jobs run is due much sooner than in real runs, which are longer
    scheduler._store.arrays["policy_ints"][memory.NEXT_ESTIMATE] = naive.next_estimate = 16
    weights = ALL_EVENTS | {"submit": rng.choice([40, 55]), "join": rng.choice([1, 4])}
    seldom = 0.25 if policy.options.floor > 1.0 else 1.0
    events = Events(rng, instance, actual=actual, weights=weights, seldom=seldom)
    waiting: list[Any] = []
    for _ in range(LENGTH):
        numbers = dict(scheduler._servers)
        event = events.next(scheduler, waiting)
        placements, requeued = perform(scheduler, event)
        numbers |= scheduler._servers
        modes = scheduler._store.arrays["servers"]
        naive.core_turns = lambda number, modes=modes: bool(modes[number, MODE] == STALLED)
        naive.told = [(job, numbers[server]) for job, server in placements]
        naive_step(naive, event, scheduler, kinds, types, numbers)
        assert naive.told == [], f"seed {seed}: {event} starts less"
        assert naive.turns == scheduler._state.stalls, f"seed {seed}: {event}"
        turning = {n for n, server in naive.servers.items() if server.state == "turns"}
        assert turning == set(np.flatnonzero(modes[:, MODE] == STALLED)), f"seed {seed}: {event}"
        drained = {j: int(number) - 1 for j, number in enumerate(drains.drains(scheduler._state)) if number}
        assert drained == {server.goal: n for n, server in naive.servers.items() if server.goal >= 0}
        kept = {j: int(number) - 1 for j, number in enumerate(floors.holders(scheduler._state)) if number}
        assert kept == naive.kept, f"seed {seed}: {event}"
        waiting = still_waiting(waiting, event, placements, requeued)
    return naive


def naive_step(naive: NaiveGuarded, event: Any, scheduler: Scheduler, kinds: Any, types: Any, numbers: Any) -> None:
    match event:
        case Submit(job, name, _, demand, duration):
            asked = naive.demand[types[name]]
            if demand is not None:
                digits = scheduler.sizes.digits
                asked = tuple(math.ceil(x * 10**d) for x, d in zip(demand.values(), digits, strict=True))
            if duration is not None:
                naive.duration[job] = duration
            naive.submit(job, types[name], asked)
        case Join(server, name):
            naive.join(numbers[server], kinds[name])
        case Resume(server) if naive.servers[numbers[server]].state != "drains":
            return
        case Drain(server) if naive.servers[numbers[server]].state == "drains":
            return
        case Remove(server) if numbers[server] not in naive.servers:
            return  # it had failed
        case _:
            subject = event.job if hasattr(event, "job") else numbers[event.server]
            getattr(naive, type(event).__name__.lower())(subject)


@pytest.mark.parametrize("scarcity", [1.0, 4.0])
def test_resources_are_priced_by_their_use(scarcity: float) -> None:
    server = ServerClass(name="s", count=2, capacity=(10, 40))
    types = [JobType(name="a", demand=(4, 5)), JobType(name="b", demand=(1, 5))]
    cluster = Cluster(resources=("cpu", "memory"), servers=(server,))
    scheduler = Scheduler(cluster, types, "guarded", scarcity=scarcity)
    state = scheduler._state
    scheduler.submit("a", "a")
    scheduler.submit("b", "b")
    assert usable.resource_prices(state).tolist() == [1.0, 1.0]
    for n in range(1000):  # a and b run all the time, another b comes and goes
        scheduler.submit(n, "b")
        scheduler.complete(n)
    use = np.array([5 / 20, 10 / 80])
    share = (use[1] / use[0]) ** scarcity
    expected = max(1.0, math.floor(16 * share + 0.5)) / 16
    assert usable.resource_prices(state).tolist() == [1.0, expected]
    usable.set_prices(state)
    assert usable.prices(state) == pytest.approx([0.4 + expected / 8, 0.1 + expected / 8])


def test_types_that_run_longer_count_less() -> None:
    server = ServerClass(name="s", count=1, capacity=(100,))
    types = [JobType(name=name, demand=(1,)) for name in ("short", "long", "rare")]
    scheduler = Scheduler(Cluster(resources=("cpu",), servers=(server,)), types, "guarded")
    before = gain(scheduler._state).copy()
    for n in range(20):
        scheduler.submit(("long", n), "long")
    for n in range(140):  # a short job runs for one step, beside it twenty that run for twenty steps
        scheduler.submit(n, "short")
        scheduler.complete(("long", n))
        scheduler.submit(("long", n + 20), "long")
        scheduler.complete(n)
    # Of the 276 arrivals until 256 jobs had ended every 16th looked round; all but the first, which found 15 long ones, were those
    # of a long job, and found a short one and 19 long ones.
    D, N = np.array([128, 128, 0]), np.array([16, 15 + 16 * 19, 0])
    mean = N.sum() / D.sum()
    expected = np.sqrt(2.0 ** np.round(np.log2(mean / ((N + 10 * mean) / (D + 10)))))
    assert expected.tolist() == pytest.approx([math.sqrt(8), math.sqrt(0.5), 1.0])
    assert gains.paces(scheduler._state) == pytest.approx(expected)
    assert gain(scheduler._state) == pytest.approx(before * expected)
    assert gains.paces(scheduler._state)[2] == 1.0  # nobody has seen any of these


def test_what_is_long_ago_counts_less_and_long_queues_change_no_gains() -> None:
    server = ServerClass(name="s", count=1, capacity=(2,))
    types = [JobType(name=name, demand=(1,)) for name in ("a", "b")]
    scheduler = Scheduler(Cluster(resources=("cpu",), servers=(server,)), types, "guarded")
    state, whole = scheduler._state, scheduler._store.arrays["policy_ints"]
    scheduler.submit(0, "a")
    for n in range(1, 1 + gains.LONG + 3):  # two run, and one more waits than may
        scheduler.submit(n, "b")
    for n, learnt in enumerate([False, True]):
        whole[memory.ENDED], whole[memory.NEXT_ESTIMATE] = gains.WINDOW - 1, gains.WINDOW
        gains.ended(state)[:] = [100.0, gains.WINDOW - 101.0]
        gains.counted(state)[:] = [4000.0, 4000.0]
        scheduler.complete(n)
        assert gains.paces(state).tolist() == ([1 / 32, math.sqrt(2)] if learnt else [1.0, 1.0])
        assert gains.counted(state).tolist() == [2000.0, 2000.0]
        assert gains.ended(state).sum() == whole[memory.ENDED] == gains.WINDOW // 2
        assert whole[memory.NEXT_ESTIMATE] == gains.WINDOW
        for other in range(gains.LONG - 2, gains.LONG + 4 if not learnt else 0):
            scheduler.cancel(other)

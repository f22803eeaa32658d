"""guarded: the core against a naive second implementation, the rules of its proof after every event, and loads that it must carry."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from instances import ALL_EVENTS, Events, perform, random_instance, still_waiting
from naive_guarded import AGE, NaiveGuarded, weights_of
from naive_shares import NaiveShares

from slotwise.compiler.kernel import JIT
from slotwise.core.sharing import ACTIVE, CORRECTION, COUNTED, FACTOR, PATIENT, USE, advance
from slotwise.core.state import MODE
from slotwise.errors import InputError
from slotwise.model import Group, JobType, Shares, Tenant, parse_scenario
from slotwise.policies import make_policy
from slotwise.policies.guarded import Guarded, memory, placement, sizes
from slotwise.policies.guarded.memory import SHARES
from slotwise.policies.guarded.rules import KEEPING, TURNING
from slotwise.policies.guarded.services import WINDOW, count_completion
from slotwise.scheduling import Join, Scheduler, Submit
from slotwise.simulation.simulate import simulate
from slotwise.theory import region_of, scaled_rates
from slotwise.theory.guarantee import Verdict, guarantee

pytestmark = pytest.mark.core

FLAT = Shares(
    half_life=5.0, strength=4.0, tenants=(Tenant(name="a", share=3), Tenant(name="b", share=1), Tenant(name="c"))
)
GROUPED = Shares(
    half_life=20.0,
    bound=100.0,
    others=0.5,
    groups=(Group(name="g", share=2), Group(name="h")),
    tenants=(Tenant(name="a", group="g"), Tenant(name="b", group="g", share=3), Tenant(name="c", group="h")),
)

RUNS, LENGTH = (40, 120) if JIT else (6, 80)
KNOWN = {"requeue": 0, "drain": 0, "resume": 0, "remove": 0, "fail": 0}  # events that the naive one leaves out

TRAP = {
    "cluster": {"resources": ["units"], "servers": [{"name": "server", "count": 20, "capacity": [10]}]},
    "types": [
        {"name": "five", "demand": [5], "rate": 2.0, "mean_service": 1.0},
        {"name": "two", "demand": [2], "rate": 5.0, "mean_service": 1.0},
    ],
    "workload": {"intensity": 0.95},
}
MIXED = {
    "cluster": {"resources": ["u"], "servers": [{"name": "s", "count": 3, "capacity": [7]}]},
    "types": [
        {"name": "t7", "demand": [7], "rate": 0.198229, "mean_service": 4.0815},
        {"name": "t2", "demand": [2], "rate": 1.52225, "mean_service": 0.0277876},
        {"name": "t1", "demand": [1], "rate": 0.188515, "mean_service": 6.64081},
    ],
    "workload": {"intensity": 0.96},
}


@pytest.mark.parametrize("actual", [0.0, 0.5], ids=["as types", "less than types"])
@pytest.mark.parametrize(
    "options", [{}, {"margin": 0.1}, {"margin": 0.3, "tightness": 0.0}, {"margin": 0.5, "tightness": 5.0}], ids=str
)
def test_the_core_decides_as_the_naive_one_does(options: dict[str, Any], actual: float) -> None:
    runs = [same(options, seed, actual) for seed in range(RUNS)]
    assert sum(run.turns for run in runs) > RUNS / 20 or not options, "no server turns"
    assert sum(run.overtaken for run in runs) > 0 or not actual, "no smaller job overtakes"
    assert sum(run.goes_on for run in runs) > 0 or not options or not JIT, "no server goes on with its target"
    assert sum(run.waits_checked for run in runs) > RUNS, "the bound on waits is never looked at"


def test_the_weights_are_the_gradient_of_the_lyapunov_function() -> None:
    """Steps 5 and 6 of the proof: with queue j made of the arrivals within its age, dV/dq_j = S_j w_j."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        types = int(rng.integers(1, 6))
        p, q, service, g = rng.dirichlet(np.ones(types)), *rng.uniform(0.1, 5.0, (3, types))

        def lyapunov(q: Any, p: Any = p, uses: Any = service * g) -> float:  # values of this round
            return float(uses @ (q**2 * (1.0 + AGE / p))) / 2

        weights = weights_of(g.tolist(), 0.0, q.tolist(), (q / p).tolist())
        for j in range(types):
            step = np.eye(types)[j] * 1e-5
            slope = (lyapunov(q + step) - lyapunov(q - step)) / 2e-5
            assert slope == pytest.approx(service[j] * weights[j], rel=1e-6)


def same(options: dict[str, Any], seed: int, actual: float, shares: Shares | None = None) -> NaiveGuarded:
    rng = random.Random(f"guarded {seed}")
    instance = random_instance(rng)
    if shares is not None:
        instance.types = of_tenants(instance.types, shares, rng)
    policy = make_policy("guarded", solver="enumerate", **options)
    scheduler = Scheduler(instance.cluster, instance.types, policy, seed=seed, shares=shares)
    store, o = scheduler._store, policy.options
    sizes = scheduler.sizes
    naive = NaiveGuarded(
        list(map(tuple, sizes.capacity.tolist())), list(map(tuple, sizes.demand.tolist())), o.margin, o.tightness
    )
    core_sizes = store.values_of(memory.SIZES).tolist()
    assert naive.size == pytest.approx(core_sizes)
    naive.size = core_sizes  # to the last digit: types of equal weight stay in the order of sizes
    if shares is not None:
        naive.shares = NaiveShares(shares, instance.types)
    kinds = {c.name: n for n, c in enumerate(instance.cluster.servers)}
    types = {t.name: j for j, t in enumerate(instance.types)}
    for c in instance.cluster.servers:
        for _ in range(c.count):
            naive.join(len(naive.servers), kinds[c.name])
    naive.core_target = lambda n: (
        tuple(store.configuration[n].tolist()) if store.arrays["servers"][n, MODE] == TURNING else None
    )
    naive.core_kept = lambda n: (
        tuple(store.configuration[n].tolist()) if store.arrays["servers"][n, MODE] == KEEPING else None
    )
    naive.core_turns = lambda: int(scheduler._state.stalls)
    events = Events(rng, instance, actual=actual, weights=ALL_EVENTS | KNOWN | {"submit": rng.choice([36, 45])})
    waiting: list[Any] = []
    for _ in range(LENGTH):
        event = events.next(scheduler, waiting)
        naive.passes(event.now)
        placements, requeued = perform(scheduler, event)
        check_factors(naive, scheduler)
        naive.told = [(job, scheduler._servers[server]) for job, server in placements]
        match event:
            case Submit(job, name, _, demand):
                asked = naive.demand[types[name]]
                if demand is not None:
                    digits = scheduler.sizes.digits
                    asked = tuple(math.ceil(x * 10**d) for x, d in zip(demand.values(), digits, strict=True))
                naive.submit(job, types[name], asked)
            case Join(server, name):
                naive.join(scheduler._servers[server], kinds[name])
            case _:
                getattr(naive, type(event).__name__.lower())(event.job)
        assert naive.told == [], f"seed {seed}: {event} starts less"
        turning = {n for n, server in naive.servers.items() if server.target is not None}
        assert turning == set(np.flatnonzero(store.arrays["servers"][:, MODE] == TURNING)), f"seed {seed}: {event}"
        check_rules(naive)
        waiting = still_waiting(waiting, event, placements, requeued)
    return naive


@pytest.mark.parametrize("options", [{}, {"margin": 0.1}, {"margin": 0.3, "tightness": 0.0}], ids=str)
@pytest.mark.parametrize("shares", [FLAT, GROUPED], ids=["tenants", "groups"])
def test_with_shares_the_core_decides_as_the_naive_one_does(options: dict[str, Any], shares: Shares) -> None:
    runs = [same(options, seed, 0.5, shares) for seed in range(RUNS // 2)]
    unlike = [run.shares for run in runs if run.shares is not None and len(set(run.shares.factor.values())) > 1]
    assert len(unlike) > len(runs) / 4, "no factor changes"


def test_factors_rest_while_a_very_long_queue_is_worked_off() -> None:
    """Step A of docs/theory/shares.md: with ten times PATIENT waiting jobs, use moves a hundred times more slowly, and present use counts a hundredth."""
    moved, present = [], []
    for waiting in (0, 10 * int(PATIENT)):
        scheduler = Scheduler.from_scenario(parse_scenario({"name": "x", **TRAP}))
        scheduler = Scheduler(scheduler.cluster, scheduler.types, shares=FLAT)
        scheduler.submit("job", "five", now=0.0)
        scheduler._state.n_waiting, scheduler._state.now = waiting, 0.001
        advance(scheduler._state)
        row = scheduler._store.arrays["tenants"][-1]
        moved.append(float(row[USE]))
        present.append(float(row[COUNTED] - row[USE]))
    assert moved[0] == pytest.approx(100 * moved[1], rel=1e-3)
    assert present[0] == pytest.approx(100 * present[1], rel=1e-3)


@pytest.mark.parametrize(("waiting", "kept"), [(0, 0.5), (3 * int(WINDOW), 1.0)])
def test_service_times_are_learnt_from_more_jobs_while_a_very_long_queue_is_worked_off(
    waiting: int, kept: float
) -> None:
    """Step A of docs/theory/shares.md needs it: old completions count half after WINDOW completions, or as many as jobs wait."""
    scheduler = Scheduler.from_scenario(parse_scenario({"name": "x", **TRAP}))
    numbers = scheduler._store.arrays["policy_floats"]
    numbers[memory.ALL_COMPLETED], numbers[memory.ALL_JOB_TIME] = WINDOW - 1, 1000.0
    scheduler._state.n_waiting = waiting
    count_completion(scheduler._state, 0)
    assert numbers[memory.ALL_JOB_TIME] == 1000.0 * kept
    assert numbers[memory.ALL_COMPLETED] == WINDOW * kept


def test_jobs_that_arrive_at_one_moment_do_not_fill_the_counts_of_running_jobs() -> None:
    """Else a type that runs at that moment, and seldom later, seems to have a very long service time."""
    scheduler = Scheduler.from_scenario(parse_scenario({"name": "x", **TRAP}))
    for job in range(5_000):
        scheduler.submit(job, "five" if job % 2 else "two", now=0.0)
    running = len(scheduler.running)
    for job in range(5_000, 10_000):
        scheduler.submit(job, "five", now=2.0)
    numbers = scheduler._store.arrays["policy_floats"]
    assert numbers[memory.ALL_JOB_TIME] == 2.0 * running


def test_a_type_of_several_tenants_is_as_large_as_that_of_one() -> None:
    scenario = parse_scenario({"name": "trap", **TRAP})
    twins = [
        one.model_copy(update={"name": f"{one.name} {n}", "tenant": str(n)})
        for n in range(6)
        for one in scenario.types
    ]
    one, many = (
        Scheduler(scenario.cluster, types)._store.values_of(memory.SIZES) for types in (scenario.types, twins)
    )
    assert many.tolist() == 6 * one.tolist()


def of_tenants(types: list[JobType], shares: Shares, rng: random.Random) -> list[JobType]:
    """Give each type a tenant, which may not be listed, and a priority; and let each tenant have a twin of the first type."""
    names = [*(one.name for one in shares.tenants), "stranger", None]
    more = [types[0].model_copy(update={"name": f"twin {one.name}", "tenant": one.name}) for one in shares.tenants]
    owned = [
        one.model_copy(update={"tenant": rng.choice(names), "priority": rng.choice([0.25, 1.0, 1.0, 3.0])})
        for one in types
    ]
    return [*owned, *more[:2]]


def check_factors(naive: NaiveGuarded, scheduler: Scheduler) -> None:
    """Uses and factors are those of the core. The core's are taken over, to the last digit."""
    if naive.shares is None:
        return
    store, naive_ones = scheduler._store, naive.shares
    for t, name in enumerate(store.tenants):
        row = store.arrays["tenants"][t]
        for column, values in (
            (USE, naive_ones.use),
            (ACTIVE, naive_ones.active),
            (CORRECTION, naive_ones.correction),
            (FACTOR, naive_ones.factor),
        ):
            assert values[name] == pytest.approx(row[column], rel=1e-6, abs=1e-9), name
            values[name] = float(row[column])


def check_rules(naive: NaiveGuarded) -> None:
    """What the proof uses after every event: R1, and turns that only go on while they must."""
    for number, server in naive.servers.items():
        room = naive.free(number)
        if server.target is None:
            assert not any(naive.fits(job, room) for line in naive.lines for job in line), (
                "R1: a job that fits waits"
            )
        else:
            assert server.jobs, "R1: an empty server turns"
            assert any(a > b for a, b in zip(naive.held(number), server.target, strict=True)), "a turn is over"
            for j, line in enumerate(naive.lines):
                assert not (line and naive.has_open_slot(number, j)), "a job waits that the target has room for"


def most_usable(room: list[int], demand: Any, size: Any) -> float:
    """V(F) by trying every configuration."""
    ranges = [range(min(room[r] // w[r] for r in range(len(room)) if w[r] > 0) + 1) for w in demand]
    return max(
        float(np.dot(x, size))
        for x in itertools.product(*ranges)
        if all(np.dot(x, demand[:, r]) <= room[r] for r in range(len(room)))
    )


def test_usable_capacity_is_what_brute_force_finds() -> None:
    types = [
        {"name": n, "demand": d, "rate": 1.0, "mean_service": 1.0}
        for n, d in (("a", [8, 5]), ("b", [3, 4]), ("c", [1, 2]))
    ]
    servers = [{"name": "big", "count": 2, "capacity": [12, 20]}, {"name": "small", "count": 3, "capacity": [7, 9]}]
    scenario = parse_scenario(
        {"name": "x", "cluster": {"resources": ["cpu", "memory"], "servers": servers}, "types": types}
    )
    scheduler = Scheduler(scenario.cluster, scenario.types, "guarded")
    state, demand, size = scheduler._state, scheduler.sizes.demand, scheduler._store.values_of(SHARES)
    rng = np.random.default_rng(3)
    for _ in range(60):
        room = rng.integers(0, scheduler.sizes.capacity.max(axis=0) + 1)
        found = placement.usable(state, 0, room)
        assert found == pytest.approx(most_usable(room.tolist(), demand, size))
        assert placement.usable(state, 0, room) == found  # remembered


def test_sizes_are_those_of_brute_force_by_lists_and_by_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    for few in (0, 10**9):
        monkeypatch.setattr(sizes, "FEW_SEARCHES", few)
        for _ in range(12):
            capacity, demand = rng.integers(4, 9, (2, 2)), rng.integers(1, 5, (3, 2))
            found = sizes.effective_sizes(capacity, demand, np.ones((2, 3), np.bool_))
            share = demand @ (1.0 / (2 * capacity.max(axis=0)))
            whole = [most_usable(room.tolist(), demand, share) for room in capacity]
            for j, w in enumerate(demand):
                lost = [
                    whole[c] - most_usable((room - w).tolist(), demand, share)
                    for c, room in enumerate(capacity)
                    if (w <= room).all()
                ]
                assert found[j] == pytest.approx(min(lost) / max(whole) if lost else sizes.LEAST)


def test_a_job_goes_where_it_spoils_least() -> None:
    """Beside a job of 5 a job of 2 leaves 3, of which 1 is useless: it goes to an empty server, where best fit would not."""
    scenario = parse_scenario({"name": "trap", **TRAP})
    scheduler = Scheduler(scenario.cluster, scenario.types, "guarded")
    (first,) = scheduler.submit("five", "five")
    (second,) = scheduler.submit("two", "two")
    (third,) = scheduler.submit("another two", "two")
    assert first.server != second.server
    assert third.server == second.server


# -- loads


def stable(what: dict[str, Any], events: int, at_most: float) -> None:
    scenario = parse_scenario({"name": "x", **what, "run": {"events": events, "replications": 1, "seed": 1}})
    assert simulate(scenario, "guarded", workers=1).mean_queue.mean < at_most


@pytest.mark.skipif(not JIT, reason="too slow without the compiler")
def test_the_best_fit_trap_and_unlike_service_times() -> None:
    """Best-fit has 700 and more waiting on the first at this length, and the policy before this one 7,739 on the second."""
    stable(TRAP, 400_000, 60.0)
    stable(MIXED, 1_500_000, 600.0)


@pytest.mark.skipif(not JIT, reason="too slow without the compiler")
def test_a_backlog_of_jobs_below_their_types_goes_away() -> None:
    """A burst of 3,000 jobs, most of them smaller than their types, on small and large servers at a load of about 0.75: all have started in the end."""
    servers = [{"name": "large", "count": 1, "capacity": [10]}, {"name": "small", "count": 3, "capacity": [4]}]
    types = [
        {"name": "a", "demand": [4], "rate": 1.0, "mean_service": 1.0},
        {"name": "b", "demand": [3], "rate": 1.0, "mean_service": 1.0},
    ]
    scenario = parse_scenario({"name": "x", "cluster": {"resources": ["u"], "servers": servers}, "types": types})
    scheduler = Scheduler(scenario.cluster, scenario.types, "guarded", seed=1)
    rng = np.random.default_rng(1)
    n = 0
    for n in range(3000):
        scheduler.submit(n, "ab"[n % 2], demand={"u": int(rng.integers(2, 4))})
    waiting = [int(scheduler._state.n_waiting)]
    for _ in range(20_000):
        running = list(scheduler.running)
        if rng.random() < 0.4:
            n += 1
            scheduler.submit(n, "ab"[n % 2], demand={"u": int(rng.integers(2, 4))})
        elif running:
            job = running[int(rng.integers(len(running)))]
            scheduler.complete(job, attempt=scheduler.attempt(job))
        waiting.append(int(scheduler._state.n_waiting))
        if waiting[-1] == 0:
            break
    assert waiting[-1] < 50 < waiting[0]


@pytest.mark.skipif(not JIT, reason="too slow without the compiler")
def test_a_pool_does_not_feel_the_load_of_another() -> None:
    """Two disjoint pools: the waits of A stay the same, within 5 %, when B goes from half its capacity to more than all of it."""

    def wait_of_a(rate_of_b: float) -> float:
        document = {
            "name": "pools",
            "cluster": {
                "resources": ["u"],
                "servers": [
                    {"name": "A", "count": 20, "capacity": [10], "labels": {"pool": "a"}},
                    {"name": "B", "count": 20, "capacity": [10], "labels": {"pool": "b"}},
                ],
            },
            "types": [
                {"name": "a5", "demand": [5], "rate": 18.0, "mean_service": 1.0, "requires": {"pool": ["a"]}},
                {"name": "a2", "demand": [2], "rate": 45.0, "mean_service": 1.0, "requires": {"pool": ["a"]}},
                {
                    "name": "b5",
                    "demand": [5],
                    "rate": 20.0 * rate_of_b,
                    "mean_service": 1.0,
                    "requires": {"pool": ["b"]},
                },
                {
                    "name": "b2",
                    "demand": [2],
                    "rate": 50.0 * rate_of_b,
                    "mean_service": 1.0,
                    "requires": {"pool": ["b"]},
                },
            ],
            "run": {"until": 16000.0, "replications": 1, "seed": 1},
        }
        found = simulate(parse_scenario(document), "guarded", workers=1)
        return sum(found.mean_queue_by_type[name].mean for name in ("a5", "a2"))

    assert wait_of_a(1.3) == pytest.approx(wait_of_a(0.5), rel=0.05)


# -- what is proven


def verdict(policy: Any, what: dict[str, Any] = TRAP) -> Verdict:
    scenario = parse_scenario({"name": "x", **what})
    rates = scaled_rates(scenario)
    return guarantee(scenario, rates, region_of(scenario), policy).verdict


def test_the_whole_region_is_proven() -> None:
    assert verdict(make_policy("guarded")) is Verdict.CERTIFIED
    assert verdict(make_policy("guarded"), MIXED) is Verdict.CERTIFIED


def test_that_no_search_is_cut_off_is_an_assumption() -> None:
    assert verdict(make_policy("guarded", solver="search")) is Verdict.ASSUMED


def test_nothing_is_proven_with_durations() -> None:
    assert verdict(make_policy("guarded", durations="exact")) is Verdict.NOT_CERTIFIED


def test_a_subclass_with_other_hooks_has_no_proof() -> None:
    class Idle(Guarded):
        arrive = complete = staticmethod(lambda s, a, b: None)

    assert verdict(Idle()) is Verdict.NOT_CERTIFIED


@pytest.mark.parametrize(
    "options", [{"margin": 1e300}, {"margin": 1e-300}, {"tightness": 1e300}, {"size_exponent": 1.0}]
)
def test_options_that_would_break_the_proof_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError):
        make_policy("guarded", **options)

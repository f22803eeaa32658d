"""guarded: usable room against brute force, what the proof rests on event by event, and how long its queues are."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slotwise.core.state import CLASS, COUNT, MODE, SERVER, STALLED, STATUS, TYPE, gain, offset
from slotwise.model import Cluster, JobType, Scenario, ServerClass, load_scenario, parse_scenario
from slotwise.policies import make_policy
from slotwise.policies.guarded import drains, floors, memory, usable
from slotwise.scheduling.scheduler import Scheduler
from slotwise.simulation.judge.drift import Stability, drift
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task, replicate
from slotwise.simulation.run.workload import jobs_of
from slotwise.theory import region_of, scaled_rates
from slotwise.theory.guarantee import Verdict, guarantee

TRAP = {
    "cluster": {"resources": ["units"], "servers": [{"name": "server", "count": 20, "capacity": [10]}]},
    "types": [
        {"name": "five", "demand": [5], "rate": 2.0, "mean_service": 1.0},
        {"name": "two", "demand": [2], "rate": 5.0, "mean_service": 1.0},
    ],
    "workload": {"intensity": 0.95},
}
UNLIKE = {
    "cluster": {
        "resources": ["cpu", "memory"],
        "servers": [
            {"name": "big", "count": 2, "capacity": [12, 20]},
            {"name": "small", "count": 3, "capacity": [7, 9]},
        ],
    },
    "types": [
        {"name": "a", "demand": [8, 5], "rate": 1.0, "mean_service": 1.0},
        {"name": "b", "demand": [3, 4], "rate": 3.0, "mean_service": 1.0},
        {"name": "c", "demand": [1, 2], "rate": 4.0, "mean_service": 1.0},
    ],
    "workload": {"intensity": 0.9},
}


def most_usable(room: list[int], demand: Any, price: Any) -> float:
    """V(room) by trying every configuration."""
    ranges = [range(min(room[r] // w[r] for r in range(len(room)) if w[r] > 0) + 1) for w in demand]
    return max(
        float(np.dot(x, price))
        for x in itertools.product(*ranges)
        if all(np.dot(x, demand[:, r]) <= room[r] for r in range(len(room)))
    )


@pytest.mark.parametrize("what", [TRAP, UNLIKE])
def test_usable_room_is_what_brute_force_finds(what: dict[str, Any]) -> None:
    scenario = parse_scenario({"name": "x", **what})
    scheduler = Scheduler(scenario.cluster, scenario.types, "guarded")
    state, demand = scheduler._state, scheduler.sizes.demand
    usable.set_prices(state)
    price = usable.prices(state).copy()
    rng = np.random.default_rng(3)
    for _ in range(60):
        room = rng.integers(0, scheduler.sizes.capacity.max(axis=0) + 1)
        found = usable.usable(state, 0, room)
        assert found == pytest.approx(most_usable(room.tolist(), demand, price))
        assert usable.usable(state, 0, room) == found  # remembered
        for j, w in enumerate(demand):
            if (w <= room).all():
                assert usable.spoilt(state, 0, room, j, w) >= -1e-12


def test_with_many_types_usable_room_is_between_a_filling_and_its_price() -> None:
    """Where the search is not finished the bound counts: at least what any filling is worth, at most the price of the room."""
    rng = np.random.default_rng(5)
    types = [
        {"name": f"t{n}", "demand": rng.integers(1, 9, 3).tolist(), "rate": 1.0, "mean_service": 1.0}
        for n in range(40)
    ]
    servers = [{"name": "s", "count": 2, "capacity": [64, 48, 80]}]
    what = {"cluster": {"resources": ["a", "b", "c"], "servers": servers}, "types": types}
    scenario = parse_scenario({"name": "x", **what})
    scheduler = Scheduler(scenario.cluster, scenario.types, "guarded")
    state, demand = scheduler._state, scheduler.sizes.demand
    usable.set_prices(state)
    price, exact = usable.prices(state).copy(), 0
    for _ in range(40):
        room = rng.integers(0, [65, 49, 81])
        found, filled = usable.usable(state, 0, room), 0.0
        for _ in range(20):
            rest, worth = room.copy(), 0.0
            for j in rng.permutation(len(demand)):
                while (demand[j] <= rest).all():
                    rest, worth = rest - demand[j], worth + price[j]
            filled = max(filled, worth)
        worth_of_room = float(room @ usable.unit_prices(state))
        assert filled - 1e-9 <= found <= worth_of_room + 1e-9
        exact += found < worth_of_room - 1e-6
    assert 0 < exact < 40


def test_a_two_spoils_a_unit_beside_a_five_and_none_beside_twos() -> None:
    scenario = parse_scenario({"name": "trap", **TRAP})
    scheduler = Scheduler(scenario.cluster, scenario.types, "guarded")
    state = scheduler._state  # it lasts as long as its scheduler
    assert usable.spoilt(state, 0, np.array([5]), 1, np.array([2])) == pytest.approx(0.1)
    assert usable.spoilt(state, 0, np.array([4]), 1, np.array([2])) == pytest.approx(0.0)
    (first,) = scheduler.submit("five", "five")
    (second,) = scheduler.submit("two", "two")
    assert first.server != second.server  # best-fit would put it beside the five


def test_a_type_that_few_servers_can_hold_weighs_more() -> None:
    scenario = parse_scenario({"name": "unlike", **UNLIKE})
    scheduler = Scheduler(scenario.cluster, scenario.types, "guarded", size_exponent=1.25)
    state = scheduler._state
    usable.set_prices(state)
    room = {"big": 2 * (1.0 + 1.0), "small": 3 * (7 / 12 + 9 / 20)}
    scarce = (room["big"] + room["small"]) / room["big"]
    prices = np.array([8 / 12 + 5 / 20, 3 / 12 + 4 / 20, 1 / 12 + 2 / 20])
    assert usable.prices(state) == pytest.approx(prices)
    assert offset(state) == pytest.approx(40 * prices * [scarce, 1.0, 1.0])
    slots = np.array([2 * 1, 2 * 4 + 3 * 2, 2 * 10 + 3 * 4])
    assert gain(state) == pytest.approx((5 / slots) ** 1.25)


class Watched:
    """Drives a scheduler with random events and checks, after each, what docs/theory/guarded.md says."""

    def __init__(self, what: dict[str, Any], seed: int, *, less: bool = False, **options: Any) -> None:
        scenario = parse_scenario({"name": "watched", **what})
        self.scheduler = Scheduler(scenario.cluster, scenario.types, "guarded", seed=seed, **options)
        self.rng = np.random.default_rng(seed)
        self.less, self.jobs, self.turns, self.filled = less, 0, 0, 0
        self.floors, self.kept = "floor" in options, 0
        self.weights = np.array([t.rate for t in scenario.types])
        self.started: list[int] = []

    def content(self) -> Any:
        return np.array(self.scheduler._store.running, dtype=np.int64)

    def waiting(self) -> Any:
        return self.scheduler._store.arrays["queue_length"].copy()

    def run(self, events: int, load: float) -> None:
        for _ in range(events):
            running = list(self.scheduler.running)
            if not running or self.rng.random() < load:
                self.submit()
            else:
                self.complete(running[int(self.rng.integers(len(running)))])
            self.check()

    def submit(self) -> None:
        scheduler = self.scheduler
        j = int(self.rng.choice(len(self.weights), p=self.weights / self.weights.sum()))
        job_type, demand = scheduler.types[j], None
        if self.less:
            demand = {
                name: int(self.rng.integers(1, int(job_type.demand[r]) + 1))
                for r, name in enumerate(scheduler.cluster.resources)
            }
        self.jobs += 1
        scheduler.submit(self.jobs, job_type.name, demand=demand)

    def complete(self, job: Any) -> None:
        scheduler, store = self.scheduler, self.scheduler._store
        server = int(store.arrays["jobs"][scheduler._jobs[job], SERVER])
        j = int(store.arrays["jobs"][scheduler._jobs[job], TYPE])
        before, queue = self.content(), self.waiting()
        packed = store.arrays["servers"][server, MODE] != STALLED
        scheduler.complete(job, attempt=scheduler.attempt(job))
        if packed and queue.sum() and store.arrays["servers"][server, MODE] != STALLED:
            self.weigh(server, j, before[server], queue)

    def weigh(self, server: int, j: int, before: Any, queue: Any) -> None:
        """A refill lowers the weight by c (p_max + V_max) at most (inequality 3), where nobody goes first."""
        state, store = self.scheduler._state, self.scheduler._store
        price, c = usable.prices(state), float(store.arrays["policy_floats"][memory.BASE])
        weight = gain(state) * queue + c * price
        room = store.sizes.capacity[store.arrays["servers"][server, 0]]
        allowed = c * (price.max() + usable.usable(state, 0, room))
        if not self.less and not self.floors:
            assert weight @ self.content()[server] >= weight @ before - allowed - 1e-9
        self.filled += 1

    def account(self) -> None:
        """What is free, what runs and what is kept for others make up the server; only a packing one with jobs keeps any."""
        store = self.scheduler._store
        rows, kept = store.arrays["servers"], np.zeros_like(self.content())
        for j, holder in enumerate(floors.holders(self.scheduler._state)):
            if holder:
                assert (rows[holder - 1, STATUS], rows[holder - 1, MODE] == STALLED) == (1, False)
                assert rows[holder - 1, COUNT] > 0
                assert self.waiting()[j] == 0
                kept[holder - 1, j] = 1
        self.kept += int(kept.sum())
        taken = kept @ store.sizes.demand
        for job, server in self.scheduler.running.items():
            taken[self.scheduler._servers[server]] += store.arrays["job_demand"][self.scheduler._jobs[job]]
        present = rows[:, STATUS] == 1
        assert (store.arrays["free"] + taken == store.sizes.capacity[rows[:, CLASS]])[present].all()

    def check(self) -> None:
        scheduler, store = self.scheduler, self.scheduler._store
        rows, free = store.arrays["servers"], store.arrays["free"]
        assert (free[: len(scheduler.servers)] >= 0).all()
        present = rows[:, STATUS] == 1
        turning = present & (rows[:, MODE] == STALLED)
        assert int(turning.sum()) == scheduler._state.n_stalled
        self.turns = int(scheduler._state.stalls)
        held, slots = self.content(), np.array(store.configuration, dtype=np.int64)
        self.account()
        # a turning server holds something outside its slots; a packing one has none
        assert (held[turning] > slots[turning]).any(axis=1).all()
        assert not slots[present & ~turning].any()
        # no head of line fits a packing server, nor an open slot
        for j, waits in enumerate(self.waiting()):
            if not waits:
                continue
            i = int(store.arrays["queues"][j, 1])
            size = store.arrays["job_demand"][i]
            room = (free >= size).all(axis=1)
            assert not (room & present & ~turning).any()
            typed = (free >= store.sizes.demand[j]).all(axis=1)
            assert not (typed & turning & (held[:, j] < slots[:, j])).any()


@pytest.mark.parametrize("what", [TRAP, UNLIKE])
@pytest.mark.parametrize("less", [False, True])
def test_every_event_keeps_what_the_proof_rests_on(what: dict[str, Any], less: bool) -> None:
    for options in ({}, {"beta": 0.97, "stall_cap": 0.3}):
        watched = Watched(what, 11, less=less, **options)
        watched.run(250, 0.9)  # queues build up, then drain
        watched.run(350, 0.45)
        assert watched.filled > 20
        if options and not less:
            assert watched.turns > 0


@pytest.mark.parametrize("less", [False, True])
def test_slots_that_are_kept_are_accounted_for(less: bool) -> None:
    seldom = [{**kind, "rate": rate} for kind, rate in zip(UNLIKE["types"], (2.0, 9.0, 0.5), strict=True)]
    watched = Watched(UNLIKE | {"types": seldom}, 12, less=less, floor=1.0, standing=4.0)
    watched.run(150, 0.9)
    for _ in range(6):
        watched.run(40, 0.6)
        watched.run(40, 0.42)
    assert watched.kept > 0


def test_a_turning_server_starts_nothing_outside_its_slots_and_ends() -> None:
    watched = Watched(TRAP, 5, beta=0.97, stall_cap=1.0)
    watched.run(200, 0.9)
    store = watched.scheduler._store
    turned = set()
    for _ in range(400):
        rows = store.arrays["servers"]
        turning = np.flatnonzero((rows[:, MODE] == STALLED) & (rows[:, STATUS] == 1))
        held, slots = watched.content(), np.array(store.configuration)
        watched.run(1, 0.5)
        for server in turning:
            if store.arrays["servers"][server, MODE] == STALLED:
                assert (np.array(store.configuration)[server] == slots[server]).all()  # the target is fixed
                after = watched.content()[server]
                assert (after <= np.maximum(held[server], slots[server])).all()
            else:
                turned.add(int(server))
    assert turned
    assert watched.scheduler._state.resets >= len(turned)


@pytest.mark.parametrize("options", [{}, {"floor": 4.0, "standing": 4.0}], ids=str)
def test_servers_come_and_go_while_others_turn(options: dict[str, float]) -> None:
    watched = Watched(UNLIKE, 8, beta=0.97, stall_cap=1.0, **options)
    scheduler = watched.scheduler
    for n in range(12):
        watched.run(40, 0.6)
        name = scheduler.servers[int(watched.rng.integers(len(scheduler.servers)))]
        if n % 3 == 0:
            scheduler.fail_server(name)
        elif n % 3 == 1:
            scheduler.drain_server(name)
        scheduler.add_server(f"new-{n}", "big" if n % 2 else "small")
        watched.check()
    rows = scheduler._store.arrays["servers"]
    present = np.flatnonzero(rows[:, STATUS] == 1)
    most = scheduler._store.arrays["most"][rows[present, 0]].sum(axis=0)
    assert gain(scheduler._state) == pytest.approx(len(present) / most)


def test_with_very_long_queues_jobs_count_as_their_types() -> None:
    scenario = parse_scenario({"name": "trap", **TRAP, "cluster": {**TRAP["cluster"]}})
    one = scenario.cluster.model_copy(
        update={"servers": (scenario.cluster.servers[0].model_copy(update={"count": 1}),)}
    )
    scheduler = Scheduler(one, scenario.types, "guarded")
    for n in range(1200):
        scheduler.submit(n, "five", demand={"units": 1})
    assert len(scheduler.running) == 10  # packed by what they ask for
    for _ in range(30):
        scheduler.complete(next(iter(scheduler.running)))
    assert len(scheduler.running) == 2  # fives, as the certified region has them
    while len(scheduler._jobs) > 900:
        scheduler.complete(next(iter(scheduler.running)))
    assert len(scheduler.running) == 10


def figures(scenario: Scenario, policy: str, events: int, **options: Any) -> Any:
    run = scenario.run.model_copy(update={"events": events, "replications": 1})
    scenario = scenario.model_copy(update={"run": run})
    return replicate(Task(scenario, jobs_of(scenario), Choice(policy, options)))


def test_queues_are_short_where_best_fit_fails_and_where_it_is_best() -> None:
    trap = parse_scenario({"name": "trap", **TRAP})
    mine, other = figures(trap, "guarded", 150_000), figures(trap, "best-fit", 150_000)
    assert drift([mine.queue_series]).stability() is not Stability.GROWS
    assert mine.mean_queue < 0.5 * other.mean_queue
    easy = load_scenario("table1")
    mine, other = figures(easy, "guarded", 100_000), figures(easy, "best-fit", 100_000)
    assert mine.mean_queue < 1.1 * other.mean_queue + 0.05
    example = load_scenario("example1")
    mine, other = figures(example, "guarded", 100_000), figures(example, "algorithm1", 100_000)
    assert mine.mean_queue < 0.5 * other.mean_queue


def test_the_guarantee_is_that_of_algorithm_1() -> None:
    for intensity, verdict in ((0.85, Verdict.CERTIFIED), (0.95, Verdict.NOT_CERTIFIED)):  # by b = 0.9
        scenario = parse_scenario({"name": "trap", **TRAP, "workload": {"intensity": intensity}})
        rates = scaled_rates(scenario)
        region = region_of(scenario)
        found = guarantee(scenario, rates, region, make_policy("guarded", b=0.9))
        assert found.verdict is verdict
        assert found.share == pytest.approx(0.9)
        whole = guarantee(scenario, rates, region, make_policy("guarded"))
        assert whole.verdict is Verdict.CERTIFIED
        assert whole.share == 1.0
        more = guarantee(scenario, rates, region, make_policy("guarded", b=0.97))
        assert more.verdict is Verdict.CERTIFIED


def test_the_kernels_give_the_same_in_plain_python() -> None:
    program = (
        "from slotwise.model import parse_scenario\n"
        "from slotwise.simulation.run.choice import Choice\n"
        "from slotwise.simulation.run.replication import Task, replicate\n"
        "from slotwise.simulation.run.workload import jobs_of\n"
        f"scenario = parse_scenario({{'name': 'x', **{UNLIKE!r}, 'run': {{'events': 1200, 'replications': 1}}}})\n"
        "found = replicate(Task(scenario, jobs_of(scenario), Choice('guarded', {'beta': 0.9, 'stall_cap': 0.3})))\n"
        "print(repr(found.mean_queue), found.stalls, found.resets, found.final_queue.tolist())\n"
    )
    path = os.pathsep.join([str(Path(__file__).resolve().parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": path, "NUMBA_DISABLE_JIT": off},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for off in ("0", "1")
    ]
    assert outputs[0] == outputs[1]
    assert int(outputs[0].split()[1]) > 0  # servers did turn


@pytest.mark.parametrize("solver", ["dp", "greedy-fill", "approximate"])
def test_solvers_without_a_table_leave_the_filling_alone(solver: str) -> None:
    """Their scratch once was where the filling is kept, so that a server was told to start jobs it had no room for."""
    watched = Watched(UNLIKE, 21, less=True, solver=solver, beta=0.97, stall_cap=0.5)
    watched.run(300, 0.8)
    assert watched.turns > 0
    assert watched.filled > 20


def test_a_turn_that_waits_for_a_very_long_job_is_given_up() -> None:
    """One job of 5 never ends. Twos queue up behind it, so the server turns to five twos, in vain."""
    what = {**TRAP, "cluster": {**TRAP["cluster"], "servers": [{"name": "server", "count": 1, "capacity": [10]}]}}
    scenario = parse_scenario({"name": "x", **what})
    scheduler = Scheduler(scenario.cluster, scenario.types, "guarded", beta=0.97, persistence=2.0)
    scheduler.submit("forever", "five")
    ends: list[int] = []
    for n in range(30):
        scheduler.submit(n, "two")
    for n in range(30, 630):
        scheduler.submit(n, "two")
        ending = [job for job in scheduler.running if job != "forever"]
        if ending:
            scheduler.complete(ending[0])
        ends += [n] * (int(scheduler._state.resets) - len(ends))
    assert len(ends) >= 4
    # each try is twice as patient as the one before it
    assert all(1.5 * a < b < 2.5 * a for a, b in itertools.pairwise(np.diff(ends)))


def test_the_length_of_a_drain_is_a_harmonic_number() -> None:
    exact = np.cumsum(1.0 / np.arange(1, 501))
    assert max(abs(drains.harmonic(k) - exact[k - 1]) for k in range(1, 501)) < 0.01


def test_nobody_starts_on_the_last_server_while_it_drains() -> None:
    """Its reservation goes with it, also when room appears there and somebody else gives up."""
    one = Cluster(resources=("units",), servers=(ServerClass(name="server", count=1, capacity=(10,)),))
    types = [JobType(name=f"t{n}", demand=(n,)) for n in (6, 5, 4, 1)]
    s = Scheduler(one, types, "guarded", durations="exact")
    s.submit("six", "t6", duration=10.0, now=0.0)
    s.submit("four", "t4", duration=20.0, now=0.0)
    s.submit("reserved", "t5", duration=1.0, now=0.0)
    for n in range(6):  # beside the reserved job there will be room for one of these
        s.submit(f"small{n}", "t1", duration=50.0, now=1.0)
    assert "keeps room for reserved" in str(s.explain_server("server-0"))
    s.drain_server("server-0", now=2.0)
    assert s.complete("six", now=3.0) == []
    assert s.cancel("small0", now=4.0) == []
    assert set(s.running) == {"four"}

"""A scheduler that is cut anywhere, written as JSON, rebuilt and continued decides as the one that was not cut."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from instances import ALL_EVENTS, Events, Instance, perform, random_instance, still_waiting
from ledger import Ledger
from variants import VARIANTS, label, looks_at_all

from slotwise.compiler.kernel import JIT
from slotwise.errors import InputError
from slotwise.model import Cluster, Group, JobType, ServerClass, Shares, Tenant
from slotwise.scheduling import (
    POLICIES,
    Complete,
    Drain,
    Fail,
    Join,
    Outcome,
    Policy,
    Scheduler,
    Situation,
    StaleReportError,
    Submit,
    as_dict,
    from_dict,
    make_policy,
)
from slotwise.scheduling.api import (
    FitOptions,
    Memory,
    State,
    float_field,
    int_field,
    need,
    policy_ints,
    set_need,
    start,
    takes,
)

pytestmark = pytest.mark.core

RUNS, LENGTH = (3, 70) if JIT else (1, 30)
FIXTURE, DRAINS, FLOODS, MARGIN, SIZES, AGES, OVERDUE, NEWEST = (
    Path(__file__).parent / f"situation-v1{name}.json"
    for name in ("", "-drains", "-floods", "-margin", "-sizes", "-ages", "-overdue", "-clock")
)


def rebuilt(scheduler: Scheduler, **changes: Any) -> Scheduler:
    return Scheduler.from_situation(Situation.from_json(scheduler.situation().to_json()), **changes)


SHARES = Shares(
    half_life=3.0,
    groups=(Group(name="g", share=2),),
    tenants=(Tenant(name="a", share=3, group="g"), Tenant(name="b", group="g"), Tenant(name="c")),
)


def test_shares_are_cut_like_everything_else() -> None:
    """Uses, activities and corrections are in the situation: a scheduler that was rebuilt from it decides alike."""
    for seed in range(2 * RUNS):
        rng = random.Random(f"shares {seed}")
        instance = random_instance(rng)
        tenants = ("a", "b", "c", "nobody", None)
        instance.types = [
            one.model_copy(update={"tenant": tenants[at % 5], "priority": 2.0})
            for at, one in enumerate(instance.types)
        ]
        whole = Scheduler(instance.cluster, instance.types, seed=seed, shares=SHARES)
        events = Events(rng, instance, weights=ALL_EVENTS | {"submit": 55})
        cut, waiting = rebuilt(whole), []
        for n in range(LENGTH):
            if rng.random() < 0.3:
                cut = rebuilt(cut)
            event = events.next(whole, waiting)
            outcome = whole.apply(event)
            assert cut.apply(event) == outcome, f"seed {seed}, event {n}: {event}"
            waiting = still_waiting(waiting, event, [p[:2] for p in outcome.placements], list(outcome.requeued))
        assert cut.situation() == whole.situation(), f"seed {seed}"
        assert any(use > 0 for use, _, _ in (whole.situation().use or {}).values()), (
            f"seed {seed}: nothing was used"
        )


def test_shares_change_and_go_and_tenants_keep_their_use() -> None:
    cluster = Cluster(resources=("cpu",), servers=(ServerClass(name="s", count=1, capacity=(Decimal(4),)),))
    types = [JobType(name=name, demand=(Decimal(1),), tenant=name) for name in ("a", "b")]
    scheduler = Scheduler(cluster, types, shares=SHARES)
    scheduler.submit("first", "a", now=1.0)
    scheduler.submit("second", "b", now=5.0)
    use = scheduler.situation().use
    assert use is not None
    assert use["a"][0] == pytest.approx(0.25 * (1 - 0.5 ** (4 / 3)))
    other = Shares(half_life=1.0, tenants=(Tenant(name="a", share=9),))
    changed = rebuilt(scheduler, shares=other).situation()
    assert changed.shares == other
    assert changed.use is not None
    assert set(changed.use) == {"a", "others"}
    assert changed.use["a"] == use["a"]
    gone = rebuilt(scheduler, shares=Shares(half_life=1.0)).situation()
    assert gone.shares is None
    assert "shares" not in gone.to_dict()
    with pytest.raises(InputError, match="best-fit cannot honour shares"):
        rebuilt(scheduler, policy="best-fit")


def start_of(variant: tuple[str, dict[str, Any]], seed: int) -> tuple[random.Random, Instance, Scheduler, Events]:
    name, options = variant
    rng = random.Random(f"cut {name} {seed}")
    alone = name in ("vqs", "vqs-bf")
    instance = random_instance(rng, n_resources=1 if alone else None, alike=alone)
    policy = make_policy(name, **options)
    scheduler = Scheduler(instance.cluster, instance.types, policy, seed=seed, digits=rng.choice([0, 2]))
    weights = ALL_EVENTS | {"submit": rng.choice([45, 60]), "join": 4, "tick": 60 if scheduler.tick_rate > 0 else 0}
    return rng, instance, scheduler, Events(rng, instance, weights=weights, durations=policy.needs_durations)


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_cut_anywhere_it_goes_on_as_if_it_had_not_been(variant: tuple[str, dict[str, Any]]) -> None:
    for seed in range(RUNS):
        rng, instance, whole, events = start_of(variant, seed)
        alone = variant[0] in ("vqs", "vqs-bf")
        cut, waiting = rebuilt(whole), []
        for n in range(LENGTH):
            if n % 25 == 20:  # both are rebuilt: with a type, or a server class, more
                changes = grown(instance, rng, n, alone=alone)
                whole, cut = rebuilt(whole, **changes), rebuilt(cut, **changes)
                assert whole.opening == cut.opening == Outcome()
            elif rng.random() < 0.3:
                cut = rebuilt(cut)
            event = from_dict(json.loads(json.dumps(as_dict(events.next(whole, waiting)))))
            outcome = whole.apply(event)
            assert cut.apply(event) == outcome, f"seed {seed}, event {n}: {event}"
            waiting = still_waiting(waiting, event, [p[:2] for p in outcome.placements], list(outcome.requeued))
        assert cut.situation() == whole.situation(), f"seed {seed}"


def grown(instance: Instance, rng: random.Random, n: int, *, alone: bool) -> dict[str, Any]:
    """A type more, finer than any before, or a class more; the instance, from which events are drawn, knows it too."""
    if rng.random() < 0.5 or alone:
        demand = tuple(size / 2 for size in instance.types[0].demand)
        instance.types.append(JobType(name=f"new{n}", demand=demand, mean_service=1.5))
        return {"types": list(instance.types)}
    server = instance.cluster.servers[0]
    larger = ServerClass(name=f"new{n}", count=0, capacity=tuple(2 * size for size in server.capacity))
    instance.cluster = instance.cluster.model_copy(update={"servers": (*instance.cluster.servers, larger)})
    return {"classes": list(instance.cluster.servers)}


def test_past_the_room_of_the_first_tables() -> None:
    """More servers than the first 64, ties between many of them, and a cut in the middle."""
    for name in ("best-fit", "worst-fit", "random-fit", "tetris", "g16", "guarded", "myopic-maxweight", "m14"):
        cluster = Cluster(resources=("r",), servers=(ServerClass(name="s", count=60, capacity=(4,)),))
        whole = Scheduler(cluster, [JobType(name="a", demand=(2,)), JobType(name="b", demand=(1,))], name)
        cut, rng = rebuilt(whole), random.Random(name)
        for n in range(120):
            happens = [Join(f"more{n}", "s", n)] if n < 20 else []
            happens.append(Submit(n, rng.choice("ab"), n))
            if whole.running and n % 3 == 2:
                happens.append(Complete(rng.choice(list(whole.running)), n))
            for event in happens:
                assert whole.apply(event) == cut.apply(event), f"{name}: {event}"
            if n in (19, 70):
                cut = rebuilt(cut)
        assert whole._state.max_servers > 64


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_many_that_are_alike_arrive_as_one_by_one(variant: tuple[str, dict[str, Any]]) -> None:
    rng, instance, single, events = start_of(variant, 9)
    together, number = rebuilt(single), 0
    for n in range(30 if JIT else 8):
        now = float(n)
        for kind in rng.sample([one.name for one in instance.types], k=min(2, len(instance.types))):
            known = events.durations or rng.random() < 0.2
            more: dict[str, Any] = {"duration": 2.0 if known else None}
            arrive = together.arrivals(kind, now, **more)
            for _ in range(
                rng.choice([1, 3, 60 if JIT else 6])
            ):  # in the end more than there was room for at first
                number += 1
                assert arrive(number) == single.apply(Submit(number, kind, now, **more))
        with pytest.raises(InputError, match="is here already"):
            arrive(number)
        for job in rng.sample(list(single.running), k=len(single.running) // 2):
            ended = Complete(job, now + 0.5)
            assert together.apply(ended) == single.apply(ended)
    assert together.situation() == single.situation()
    with pytest.raises(InputError, match="type"):
        together.arrivals("nobody", 99.0)(number + 1)
    together.apply(Submit(number + 1, kind, 99.0, **more))
    with pytest.raises(InputError, match="goes back"):
        arrive(number + 2)


@pytest.mark.parametrize("seed", range(12 if JIT else 3))
def test_another_policy_takes_over_while_jobs_run(seed: int) -> None:
    """Nothing is lost, moved or overfilled; the new policy is as work-conserving as if it had always been there."""
    rng = random.Random(f"take over {seed}")
    instance = random_instance(rng)
    names = [name for name in POLICIES if name not in ("vqs", "vqs-bf")]
    scheduler = Scheduler(instance.cluster, instance.types, rng.choice(names), seed=seed, digits=2)
    events = Events(rng, instance, durations=True, weights=ALL_EVENTS | {"submit": 60, "tick": 20})
    waiting: list[Any] = []
    ledger = None
    for n in range(80):
        if n % 20 == 10:
            policy = make_policy(rng.choice(names))
            situation = scheduler.situation()
            scheduler = Scheduler.from_situation(situation, policy=policy)
            assert scheduler.opening.fault is None
            actual = policy.actual
            ledger = books(instance, situation, scheduler, actual=actual)
            for placement in scheduler.opening.placements:
                ledger.place(placement[:2])
            ledger.agree(scheduler)
            waiting = ledger.waiting()
        event = events.next(scheduler, waiting)
        placements, requeued = perform(scheduler, event)
        waiting = still_waiting(waiting, event, placements, requeued)
        if ledger is not None:
            ledger.hear(event, requeued)
            for placement in placements:
                ledger.place(placement)
            ledger.agree(scheduler)


def books(instance: Instance, situation: Situation, scheduler: Scheduler, *, actual: bool) -> Ledger:
    """A ledger that begins with a situation."""
    in_order = not looks_at_all(scheduler.policy)
    ledger = Ledger(instance, digits=scheduler.sizes.digits, actual=actual, in_order=in_order)
    names, servers = [t.name for t in situation.types], situation.servers
    kinds = [situation.classes[c].name for c in servers.server_class]
    by_status = {
        status: {n: k for n, k, s in zip(servers.name, kinds, servers.status, strict=True) if s == status}
        for status in ("present", "draining")
    }
    ledger.open, ledger.closed = by_status["present"], by_status["draining"]
    for table in (situation.waiting, situation.running):
        for at in sorted(range(len(table.job)), key=table.sequence.__getitem__):
            job, name = table.job[at], names[table.type[at]]
            ledger.type_of[job], ledger.age[job] = name, table.sequence[at]
            own = table.demand[at] if actual and table.demand else None
            size = (
                [n * unit for n, unit in zip(own, ledger.units, strict=True)] if own else ledger.types[name].demand
            )
            ledger.size[job] = tuple(size)
            if table is situation.waiting:
                ledger.queue[name].append(job)
            else:
                ledger.on[job] = servers.name[table.server[at]]
    return ledger


# -- what was found by running the code -------------------------------------------------------------------------------


def one_server(policy: str | Policy = "best-fit", count: int = 1, **options: Any) -> Scheduler:
    cluster = Cluster(resources=("r",), servers=(ServerClass(name="s", count=count, capacity=(4,)),))
    return Scheduler(cluster, [JobType(name="a", demand=(2,)), JobType(name="b", demand=(1,))], policy, **options)


def test_a_late_report_of_an_earlier_attempt_is_refused() -> None:
    scheduler = one_server(count=2)
    assert scheduler.submit("x", "a", now=1.0) == [("x", "s-1", 1)]
    assert scheduler.fail_server("s-1", now=2.0).placements == (("x", "s-0", 2),)
    with pytest.raises(InputError, match="job 'x' was placed 2 times; say which of them the report is about"):
        scheduler.complete("x", now=3.0)
    with pytest.raises(StaleReportError, match="of attempt 1 of job 'x', which is not its last; ignore it"):
        scheduler.complete("x", now=3.0, attempt=1)
    assert scheduler.attempt("x") == 2
    scheduler = rebuilt(scheduler)
    with pytest.raises(StaleReportError):
        scheduler.complete("x", now=3.0, attempt=1)
    assert scheduler.complete("x", now=3.0, attempt=2) == []


def test_time_never_goes_back() -> None:
    scheduler = one_server()
    scheduler.submit("x", "a", now=5.0)
    with pytest.raises(InputError, match="now: goes back from 5.0 to 4.0; give events in the order of their times"):
        scheduler.complete("x", now=4.0)
    with pytest.raises(InputError, match="now: goes back from 5.0 to nan"):
        scheduler.apply(Complete("x", float("nan")))
    assert scheduler.complete("x") == []
    assert scheduler.now == 5.0


def test_what_was_decided_before_a_fault_is_told() -> None:
    class Faulty(Policy):
        name = "faulty"

        @staticmethod
        def arrive(s: State, j: int, i: int) -> None:
            start(s, j, 0)
            raise ValueError("no more")

    scheduler = one_server(Faulty())
    outcome = scheduler.apply(Submit("x", "a", 1.0))
    assert outcome.placements == (("x", "s-0", 1),)
    assert isinstance(outcome.fault, ValueError)
    with pytest.raises(ValueError, match="no more") as caught:
        scheduler.submit("y", "a", now=2.0)
    assert caught.value.__notes__ == ["before that, 'y' was started on 's-0'"]
    assert scheduler.running == {"x": "s-0", "y": "s-0"}
    assert scheduler.apply(Complete("x", 3.0)) == Outcome()


def test_a_busy_server_that_was_drained_comes_back_with_its_jobs() -> None:
    for name in POLICIES:
        scheduler = one_server(name)
        duration = {"duration": 5.0}
        scheduler.submit("x", "b", now=0.0, **duration)
        while scheduler.tick_rate > 0 and not scheduler.running:
            scheduler.tick(now=0.0)
        scheduler.drain_server("s-0", now=1.0)
        assert scheduler.submit("y", "b", now=2.0, **duration) == []
        scheduler.resume_server("s-0", now=3.0)
        while scheduler.tick_rate > 0 and len(scheduler.running) < 2:
            scheduler.tick(now=3.0)
        assert scheduler.running["x"] == "s-0"
        if name not in ("algorithm1", "m14", "vqs"):  # these keep to their slots until the server is empty
            assert scheduler.running == {"x": "s-0", "y": "s-0"}, name


def test_a_stopped_job_teaches_nothing() -> None:
    """A thousand stops change nothing of what `guarded` has learnt; a thousand completions do."""
    for end, learns in (("stop", False), ("complete", True)):
        scheduler = one_server("guarded")
        before = scheduler.situation().policy.learnt
        for n in range(300):
            scheduler.submit(n, "b")
            getattr(scheduler, end)(n)
        after = scheduler.situation().policy.learnt
        assert (after["completed_jobs"] != before["completed_jobs"]) == learns
        assert (after["all_completed_jobs"] > 0) == learns


def test_a_refused_placement_waits_again_in_front() -> None:
    scheduler = one_server("fifo")
    for n in range(4):
        scheduler.submit(n, "a")
    scheduler.drain_server("s-0")
    outcome = scheduler.apply(from_dict({"event": "requeue", "job": 1, "now": 1.0}))
    assert outcome == Outcome((), (1,), None)
    assert scheduler.add_server("t", "s") == [(1, "t", 2), (2, "t", 1)]


# -- the format -------------------------------------------------------------------------------------------------------


def the_fixture() -> Scheduler:
    """Whatever the format has: labels, own demands, durations, attempts, a drained and a failed server, what was learnt."""
    classes = (
        ServerClass(name="cpu", count=2, capacity=("8", "16.5")),
        ServerClass(name="gpu", count=1, capacity=("4", "32"), labels={"gpu": "a100"}),
    )
    types = [
        JobType(name="web", demand=("2", "4.5")),
        JobType(name="train", demand=("1", "8"), mean_service=3.0, requires={"gpu": ["a100"]}),
    ]
    scheduler = Scheduler(Cluster(resources=("cpu", "memory"), servers=classes), types, "guarded", margin=1.5)
    for n in range(12):
        demand = {"memory": "3.5"} if n % 4 == 1 else None
        duration = 5.0 + n if n % 3 == 0 else None
        scheduler.apply(Submit(f"job-{n}", "train" if n % 3 == 2 else "web", n, demand, duration))
    scheduler.complete("job-0", now=13.0)
    scheduler.apply(Fail("cpu-1", 14.0))
    scheduler.apply(Join("cpu-7", "cpu", 15.0))
    scheduler.apply(Drain("cpu-7", 16.0))
    return scheduler


@pytest.mark.parametrize(
    "file", [FIXTURE, DRAINS, FLOODS, MARGIN, SIZES, AGES, OVERDUE, NEWEST], ids=lambda file: file.stem
)
def test_a_situation_of_an_earlier_version_is_read(file: Path) -> None:
    """Files that were written once and are never written anew. What the policy has learnt to remember since begins as in a new scheduler."""
    text = file.read_text()
    situation = Situation.from_json(text)
    assert situation.version == 1
    scheduler = Scheduler.from_situation(situation)
    known = json.loads(text)
    assert sorted(scheduler.running) == sorted(known["running"]["job"])
    assert sum(scheduler.waiting.values()) == len(known["waiting"]["job"])
    now = scheduler.situation()
    assert now.policy.learnt.items() >= situation.policy.learnt.items()
    assert replace(now, policy=replace(now.policy, learnt=situation.policy.learnt)) == situation
    assert scheduler.attempt("job-3") == the_fixture().attempt("job-3")


def test_what_is_written_today_is_what_the_newest_fixture_has() -> None:
    """As long as this is version 1 and no policy remembers more; a later one has a fixture of its own beside it."""
    assert json.loads(the_fixture().situation().to_json()) == json.loads(NEWEST.read_text())


def damage(**changes: Any) -> dict[str, Any]:
    """The fixture with some values changed, by dotted keys; `...` takes one away."""
    values = json.loads(FIXTURE.read_text())
    for path, value in changes.items():
        *way, last = path.split("__")
        part = values
        for step in way:
            part = part[step]
        if value is ...:
            del part[last]
        else:
            part[last] = value
    return values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "has format version 2; this Slotwise knows versions up to 1"),
        ({"version": "1"}, "situation.version: is damaged"),
        ({"format": "something else"}, "is not a situation"),
        ({"weather": 1}, "unknown field 'weather'"),
        ({"policy__mood": 1}, "situation.policy: unknown field 'mood'"),
        ({"now": ...}, "has no now"),
        ({"now": None}, "situation.now: is damaged; it should be a number"),
        ({"waiting__type": ...}, "situation.waiting: has no type"),
        ({"waiting__type": [0]}, "is damaged; it should be as long as the other columns"),
        ({"running__server": [99] * 9}, "situation.running.server: is damaged; it should be below 4 everywhere"),
        (
            {"servers__status": ["present", "gone", "present", "present"]},
            "it should be one of absent, present, draining",
        ),
        (
            {"servers__name": ["a", "a", "b", "c"]},
            "situation.servers.name: is damaged; it should be without doubles",
        ),
        ({"servers__number": [3, 2, 1, 0]}, "in rising order"),
        ({"policy__random": [1, 2, 3]}, "four random words"),
        ({"policy__learnt": {"completed_jobs": 5}}, "situation.learnt.completed_jobs of guarded: cannot be read"),
        ({"policy__learnt": {"dreams": 5}}, "situation.learnt.dreams of guarded: cannot be read; guarded keeps: "),
        ({"types": []}, "situation.types: is damaged; it should be a list that is not empty"),
        ({"types": [{"name": "web"}]}, "situation.types: is damaged; it should be right in demand: Field required"),
        ({"policy__name": "guardd"}, "did you mean guarded?"),
    ],
    ids=str,
)
def test_what_is_damaged_unknown_or_from_the_future_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Scheduler.from_situation(Situation.from_dict(damage(**changes)))
    assert message in str(caught.value)


def test_half_a_text_is_refused() -> None:
    text = FIXTURE.read_text()
    with pytest.raises(InputError, match="situation: is damaged: .*; give the whole text"):
        Situation.from_json(text[: len(text) // 2])
    with pytest.raises(InputError, match="situation: is not a situation"):
        Situation.from_json("[]")


def test_names_that_no_text_can_hold_are_refused_when_written_only() -> None:
    scheduler = one_server()
    scheduler.submit(("a", 1), "a")
    assert Scheduler.from_situation(scheduler.situation()).running == {("a", 1): "s-0"}
    with pytest.raises(InputError, match="is neither a text nor a whole number"):
        scheduler.situation().to_json()


def test_types_and_classes_are_known_by_name() -> None:
    scheduler = one_server()
    scheduler.submit("x", "a")
    scheduler.submit("y", "b")
    situation = scheduler.situation()
    renamed = [t.model_copy(update={"name": t.name + "2"}) for t in situation.types]
    with pytest.raises(InputError, match="has jobs of the type 'a', which is not there any more; keep it"):
        Scheduler.from_situation(situation, types=renamed)
    other = [ServerClass(name="t", count=0, capacity=(4,))]
    with pytest.raises(InputError, match="has servers of the server class 's', which is not there any more"):
        Scheduler.from_situation(situation, classes=other)
    with pytest.raises(InputError, match="server 's-0' holds more than its class has room for"):
        Scheduler.from_situation(situation, classes=[ServerClass(name="s", count=0, capacity=(2,))])
    swapped = Scheduler.from_situation(situation, types=situation.types[::-1])
    assert swapped.complete("x") == []
    assert swapped.waiting == {"b": 0, "a": 0}


def test_a_clairvoyant_policy_takes_over_only_jobs_with_durations() -> None:
    scheduler = one_server()
    scheduler.submit("x", "a", duration=3.0, now=1.0)
    easy = rebuilt(scheduler, policy="easy-backfill")
    assert rebuilt(easy, policy="best-fit").situation().running.duration == [3.0]
    scheduler.submit("y", "a", now=2.0)
    with pytest.raises(InputError, match="job 'y' has no duration; easy-backfill is clairvoyant"):
        rebuilt(scheduler, policy="easy-backfill")


def test_demands_are_kept_for_a_policy_that_packs_by_them() -> None:
    """Under a policy that packs by type they wait, and come back when another one takes over."""
    scheduler = one_server("algorithm1")
    for n in range(4):
        scheduler.submit(n, "a", demand={"r": 1})
    assert len(scheduler.running) == 2
    scheduler = rebuilt(rebuilt(scheduler), policy="best-fit")
    assert scheduler.opening.placements == ((2, "s-0", 1), (3, "s-0", 1))


# -- a policy of one's own --------------------------------------------------------------------------------------------

MEMORY = Memory()
SEEN = MEMORY.count("seen")
SCORES = MEMORY.numbers("scores", per="type")
LAST = MEMORY.servers("last", per="type")


def learn(s: State, j: int, i: int) -> None:
    """Every second time the server that took the type last is tried first."""
    policy_ints(s)[SEEN] += 1
    float_field(s, SCORES)[j] += 0.1
    set_need(s, j)
    last = int_field(s, LAST)[j] - 1
    begin = last if policy_ints(s)[SEEN] % 2 == 0 and last >= 0 else 0
    for n in range(s.n_places):
        server = (begin + n) % s.n_places
        if takes(s, server, need(s)):
            start(s, j, server)
            int_field(s, LAST)[j] = server + 1
            return


class Learner(Policy):
    name = "learner"
    Options = FitOptions
    memory = MEMORY
    arrive = staticmethod(learn)


def test_the_memory_of_ones_own_policy_is_kept_by_name() -> None:
    whole = one_server(Learner(), count=3)
    cut = one_server(Learner(), count=3)
    for n in range(12):
        event = Submit(n, "ab"[n % 2], float(n))
        assert whole.apply(event) == cut.apply(event)
        if whole.running and n % 3 == 0:
            job = next(iter(whole.running))
            assert whole.complete(job) == cut.complete(job)
        cut = Scheduler.from_situation(Situation.from_json(cut.situation().to_json()), policy=Learner())
        assert cut.opening == Outcome()
    learnt = cut.situation().policy.learnt
    assert learnt == whole.situation().policy.learnt
    assert learnt["seen"] == 12
    assert learnt["scores"] == pytest.approx({"a": 0.6, "b": 0.6})
    assert set(learnt["last"]) == {"a", "b"}
    with pytest.raises(InputError, match="no policy is called 'learner'"):
        rebuilt(cut)


def test_a_memory_has_each_name_once() -> None:
    memory = Memory(MEMORY)
    with pytest.raises(ValueError, match="has a field 'seen' already"):
        memory.numbers("seen", per="type")


def test_a_situation_can_be_changed_as_data() -> None:
    """Jobs of a waiting table, for instance: plain lists, put together anew."""
    scheduler = one_server()
    for n in range(5):
        scheduler.submit(n, "a")
    situation = scheduler.situation()
    waiting = situation.waiting
    fewer = replace(
        waiting,
        job=waiting.job[1:],
        type=waiting.type[1:],
        sequence=waiting.sequence[1:],
        submitted=waiting.submitted[1:],
    )
    scheduler = Scheduler.from_situation(replace(situation, waiting=fewer))
    assert scheduler.complete(0) == [(3, "s-0", 1)]

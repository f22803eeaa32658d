"""Every reason is reached by a real situation, its figures are right, and it reads as a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from slotwise.errors import InputError
from slotwise.model import Cluster, JobType, ServerClass, Shares, Tenant
from slotwise.scheduling import POLICIES, Because, Explanation, Policy, Reason, Scheduler

pytestmark = pytest.mark.core

SEEN: set[Reason] = set()


def cluster(**counts: int) -> Cluster:
    capacity = {"small": (4, 4), "large": (10, "8.5")}
    servers = tuple(ServerClass(name=name, count=n, capacity=capacity[name]) for name, n in counts.items())
    return Cluster(resources=("cpu", "memory"), servers=servers)


WEB = JobType(name="web", demand=(2, "2.5"))
DATABASE = JobType(name="database", demand=(6, "4"))


def scheduler(policy: str | Policy = "best-fit", **options: Any) -> Scheduler:
    return Scheduler(cluster(small=1, large=1), [WEB, DATABASE], policy, **options)


def why(explanation: Explanation) -> Because:
    """The last reason: the one that says what is in the way."""
    SEEN.update(explanation.reasons)
    return explanation.because[-1]


def test_runs() -> None:
    s = scheduler()
    s.submit("a", "web")
    because = why(s.explain("a"))
    assert (because.reason, because.figures) == (Reason.RUNS, {"server": "small-0"})
    assert str(s.explain("a")) == "a runs on server small-0"


def test_no_room_behind_and_first() -> None:
    s = scheduler()
    for n in range(4):
        s.submit(f"d{n}", "database")
    first, third = s.explain("d1"), s.explain("d3")
    assert first.reasons == (Reason.FIRST, Reason.NO_ROOM)
    assert third.reasons == (Reason.BEHIND, Reason.NO_ROOM)
    assert third.because[0].figures == {"ahead": 2}
    figures = why(first).figures
    assert figures["demand"] == {"cpu": 6.0, "memory": 4.0}
    # small lacks 2 of its 4 cpu; large, where 4 and 4.5 are free, lacks 2 of 10
    assert figures["nearest"] == "large-0"
    assert figures["free"] == {"cpu": 4.0, "memory": 4.5}
    why(third)
    assert str(third) == (
        "d3 waits behind 2 of its type; no server has enough free: 6 cpu, 4 memory asked, "
        "the nearest is server large-0 with 4 cpu, 4.5 memory free"
    )


def test_no_room_by_the_actual_demand() -> None:
    s = scheduler()
    s.submit("big", "database")
    s.submit("less", "database", demand={"cpu": 5})
    assert why(s.explain("less")).figures["demand"] == {"cpu": 5.0, "memory": 4.0}


def test_fits_no_server_and_no_servers() -> None:
    s = scheduler()
    s.submit("d", "database")
    s.fail_server("large-0")
    because = why(s.explain("d"))
    assert (because.reason, because.figures) == (Reason.FITS_NO_SERVER, {"demand": {"cpu": 6.0, "memory": 4.0}})
    assert str(because) == "is larger than every present server: 6 cpu, 4 memory"
    s.drain_server("small-0")
    because = why(s.explain("d"))
    assert (because.reason, because.figures) == (Reason.NO_SERVERS, {})
    assert str(because) == "there are no servers that take jobs"


def test_a_smaller_actual_demand_may_fit_where_its_type_does_not() -> None:
    s = scheduler()
    s.drain_server("large-0")
    s.submit("w", "web")
    s.submit("d", "database", demand={"cpu": 4, "memory": 4})
    assert why(s.explain("d")).reason == Reason.NO_ROOM


def test_blocked() -> None:
    s = scheduler("fifo")
    s.submit("d1", "database")
    s.submit("d2", "database")
    s.submit("w", "web")
    because = why(s.explain("w"))
    assert (because.reason, because.figures) == (Reason.BLOCKED, {"first": "d2"})
    assert str(because) == "the job before it in line, d2, must start first"
    assert why(s.explain("d2")).reason == Reason.NO_ROOM


def test_reserved() -> None:
    s = Scheduler(cluster(large=1), [WEB, DATABASE], "easy-backfill")
    s.submit("w0", "web", duration=10.0, now=0.0)
    s.submit("w1", "web", duration=10.0, now=0.0)
    s.submit("d", "database", duration=5.0, now=1.0)  # 3.5 memory is free, it asks for 4: reserved at time 10
    s.submit("w2", "web", duration=30.0, now=1.0)  # leaves enough beside d then
    s.submit("w3", "web", duration=30.0, demand={"memory": 1}, now=1.0)  # just so: 10 - 6 - 2 - 2 cpu are left
    assert sorted(s.running) == ["w0", "w1", "w2", "w3"]
    s.submit("w4", "web", duration=30.0, demand={"cpu": 1, "memory": 0}, now=1.0)  # would fit now, but delay d
    because = why(s.explain("w4"))
    assert why(s.explain("d")).reason == Reason.NO_ROOM
    assert (because.reason, because.figures) == (Reason.RESERVED, {"first": "d", "server": "large-0"})
    assert str(because) == "room on server large-0 is reserved for d"
    server = why(s.explain_server("large-0"))
    assert (server.reason, server.figures) == (Reason.RESERVED_FOR, {"first": "d", "at": 10.0})


def test_not_sampled() -> None:
    s = scheduler("g16", alpha=2.0)
    s.submit("a", "web")
    because = why(s.explain("a"))
    # clocks: 2 (1 + 1) for web, 2 (1 + 0) for database
    assert (because.reason, because.figures) == (Reason.NOT_SAMPLED, {"rate": 6.0})
    assert str(because) == "no tick of its queue has found a server with room yet (rate 6)"


def example1(**options: Any) -> Scheduler:
    """Capacity 6, demands 4 and 1: a server with one large and two small slots that stalls when many small ones wait."""
    one = Cluster(resources=("units",), servers=(ServerClass(name="server", count=1, capacity=(6,)),))
    types = [JobType(name="large", demand=(4,)), JobType(name="small", demand=(1,))]
    return Scheduler(one, types, "algorithm1", **options)


def test_no_slot_and_active() -> None:
    s = example1(beta=0.5)
    s.submit("l0", "large")
    for n in range(5):
        s.submit(f"s{n}", "small")
    assert len(s.running) == 3
    because = why(s.explain("s2"))
    assert (because.reason, because.figures) == (Reason.NO_SLOT, {"taken": 2, "stalled": 0, "servers": 1})
    assert (
        str(because) == "no active server has an empty slot of its type: 2 slots are taken, 0 of 1 servers stalled"
    )
    active = why(s.explain_server("server-0"))
    assert active.reason == Reason.ACTIVE
    assert active.figures == {
        "configuration": {"large": 1, "small": 2},
        "holding": {"large": 1, "small": 2},
        "beta": 0.5,
        "weight": 2 * 3.0,  # three small ones wait
        "best": 6 * 3.0,
    }
    assert str(s.explain_server("server-0")) == (
        "server-0 is active with slots 1 large, 2 small, jobs 1 large, 2 small; weight 6 of the best 18"
    )


def test_stalled() -> None:
    s = example1(beta=0.5)
    s.submit("l0", "large")
    for n in range(5):
        s.submit(f"s{n}", "small")
    s.complete("s0")  # 2 x 3 < 0.5 x 6 x 3, and the large job does not fit beside six small ones
    because = why(s.explain_server("server-0"))
    assert because.reason == Reason.STALLED
    assert because.figures == {"weight": 6.0, "beta": 0.5, "best": 18.0, "holding": {"large": 1, "small": 1}}
    assert str(because) == "is stalled because weight 6 < 0.500 x 18, and holds 1 large, 1 small"
    waits = why(s.explain("s2"))
    # the stalled server's slots are not on offer: no slots are taken by small jobs
    assert waits.figures == {"taken": 0, "stalled": 1, "servers": 1}


def guarded(capacity: int, sizes: dict[str, int]) -> Scheduler:
    """One server that turns as soon as another configuration is a little heavier."""
    one = Cluster(resources=("units",), servers=(ServerClass(name="server", count=1, capacity=(capacity,)),))
    types = [JobType(name=name, demand=(size,)) for name, size in sizes.items()]
    made = Scheduler(one, types, "guarded", margin=0.1, tightness=0.0)
    largest = max(sizes, key=lambda name: sizes[name])
    fit = capacity // sizes[largest]
    # until it knows how quickly jobs complete, no server turns
    for n in range(50):
        made.submit(f"before {n}", largest, now=float(n))
        if n > fit:
            made.complete(f"before {n - fit - 1}", now=float(n))
    for n in range(50 - fit - 1, 50):
        made.complete(f"before {n}", now=50.0)
    return made


def test_turns() -> None:
    s = guarded(10, {"five": 5, "two": 2})
    s.submit("f0", "five")
    s.submit("f1", "five")
    for n in range(8):
        s.submit(f"t{n}", "two")
    s.complete("f0")  # beside a five there is room for two twos; five would weigh more
    because = why(s.explain_server("server-0"))
    assert because.reason == Reason.TURNS
    assert because.figures["configuration"] == {"two": 5}
    assert because.figures["holding"] == {"five": 1, "two": 2}
    assert because.figures["weight"] < because.figures["best"] - because.figures["margin"]
    assert str(because).startswith("turns to 5 two because weight ")
    assert str(because).endswith(", starts only jobs within that, and holds 1 five, 2 two")


def test_turned_away() -> None:
    s = guarded(11, {"nine": 9, "two": 2})
    for n in range(5):
        s.submit(f"t{n}", "two")
    for n in range(8):
        s.submit(f"n{n}", "nine")
    s.complete("t0")
    assert s.explain_server("server-0").reasons == (Reason.TURNS,)
    s.submit("small", "two")  # three units are free, but the one slot for a two is taken
    because = why(s.explain("small"))
    assert (because.reason, because.figures) == (Reason.TURNED_AWAY, {"turning": 1})
    assert (
        str(because) == "1 servers have room for it, but they turn to configurations with no free slot of its type"
    )


def test_own_queue() -> None:
    s = Scheduler(cluster(large=2), [WEB, DATABASE], "m14", queues="own", ties="first")
    for n in range(5):
        s.submit(f"d{n}", "database")
    because = why(s.explain("d4"))
    assert because.reason == Reason.OWN_QUEUE
    assert because.figures == {"server": "large-0", "slots": 1, "taken": 1}
    assert str(because) == "it has joined the queue of server large-0, where 1 of 1 slots of its type are taken"


def test_empty_and_packs() -> None:
    assert why(example1().explain_server("server-0")) == Because(Reason.EMPTY)
    s = scheduler()
    s.submit("d", "database")
    because = why(s.explain_server("large-0"))
    assert because.figures == {"holding": {"database": 1}, "free": {"cpu": 4.0, "memory": 4.5}}
    assert str(s.explain_server("large-0")) == "large-0 holds 1 database, 4 cpu, 4.5 memory free"
    assert str(why(s.explain_server("small-0"))) == "holds nothing, 4 cpu, 4 memory free"
    assert because.reason == Reason.PACKS


def test_draining_and_drained() -> None:
    s = scheduler()
    s.submit("d", "database")
    s.drain_server("large-0")
    because = why(s.explain_server("large-0"))
    assert (because.reason, because.figures) == (Reason.DRAINING, {"holding": {"database": 1}})
    assert str(because) == "takes no more jobs and holds 1 database"
    s.complete("d")
    assert why(s.explain_server("large-0")) == Because(Reason.DRAINED)
    assert str(s.explain_server("large-0")) == "large-0 takes no more jobs and is empty: it can be removed"


def test_undecided() -> None:
    class Lazy(Policy):
        name = "lazy"

    s = scheduler(Lazy())
    s.submit("a", "web")
    assert why(s.explain("a")) == Because(Reason.UNDECIDED)
    assert str(s.explain("a")) == "a is the first of its type in line; the policy has not started it"


def test_requires() -> None:
    classes = (
        ServerClass(name="plain", count=1, capacity=(4,)),
        ServerClass(name="gpu", count=1, capacity=(4,), labels={"gpu": "a100"}),
    )
    types = [JobType(name="train", demand=(2,), requires={"gpu": ["a100", "h100"]})]
    for policy in POLICIES:
        if policy not in ("vqs", "vqs-bf"):
            s = Scheduler(Cluster(resources=("cpu",), servers=classes), types, policy)
            s.drain_server("gpu-0", now=0.0)
            assert s.submit("a", "train", duration=1.0, now=0.0) == []
            because = why(s.explain("a"))
            assert (because.reason, because.figures) == (Reason.REQUIRES, {"type": "train"})
    assert str(because) == "requires labels that no present server has: type train"


def test_a_server_that_swaps() -> None:
    types = [JobType(name="small", demand=(1,)), JobType(name="large", demand=(3,))]
    one = Cluster(resources=("cpu",), servers=(ServerClass(name="pool", count=1, capacity=(3,)),))
    s = Scheduler(one, types, "quickswap")
    s.submit("a", "small")
    s.submit("b", "large")  # no small job waits, so the server swaps for it
    assert s.submit("c", "small") == []
    because = why(s.explain("c"))
    assert (because.reason, because.figures) == (Reason.SWAPS_FIRST, {"server": "pool-0", "type": "large"})
    because = why(s.explain_server("pool-0"))
    assert (because.reason, because.figures) == (Reason.SWAPS, {"type": "large", "holding": {"small": 1}})
    assert [p.job for p in s.complete("a")] == ["b"]


def test_a_server_with_slots_by_the_clock() -> None:
    types = [JobType(name="small", demand=(1,)), JobType(name="large", demand=(3,))]
    one = Cluster(resources=("cpu",), servers=(ServerClass(name="pool", count=1, capacity=(3,)),))
    s = Scheduler(one, types, "nmsr", fill=False)
    kind, other, slots = (
        ("small", "large", 3) if "small" in str(s.explain_server("pool-0")) else ("large", "small", 1)
    )
    assert s.submit("a", other) == []
    assert why(s.explain("a")).reason == Reason.NO_SLOT
    assert [p.job for p in s.submit("b", kind)] == ["b"]
    because = why(s.explain_server("pool-0"))
    assert (because.reason, because.figures) == (
        Reason.HAS_SLOTS,
        {"configuration": {kind: slots}, "holding": {kind: 1}},
    )
    s.tick()
    assert [p.job for p in s.complete("b")] == ["a"]


def test_gone() -> None:
    s = scheduler()
    s.fail_server("small-0")
    assert why(s.explain_server("small-0")).reason == Reason.GONE
    assert str(s.explain_server("small-0")) == "small-0 has failed and is not there"
    assert s.servers == ["large-0"]


def test_holds() -> None:
    """A policy of one's own that goes by slots, and says nothing about its servers."""

    class Bare(Policy):
        name = "bare"
        keeps = frozenset()

    s = scheduler(Bare())
    assert str(s.explain_server("small-0")) == "small-0 holds nothing"
    assert why(s.explain_server("small-0")).reason == Reason.HOLDS


def test_a_clairvoyant_policy_of_ones_own_explains_itself() -> None:
    """The output does not take it for another policy that knows durations."""

    class Seer(Policy):
        name = "seer"
        needs_durations = True

    s = scheduler(Seer())
    s.submit("a", "web", duration=1.0, now=0.0)
    s.submit("b", "web", duration=1.0, now=0.0)
    assert why(s.explain("b")).reason == Reason.UNDECIDED


def test_names_that_nobody_has() -> None:
    s = scheduler()
    s.submit("a", "web")
    with pytest.raises(InputError, match="no job is called 'b'; there are: a"):
        s.explain("b")
    with pytest.raises(InputError, match="no server is called 'huge-0'; there are: small-0, large-0"):
        s.explain_server("huge-0")


def test_explaining_changes_nothing() -> None:
    s, t = example1(), example1()
    for n in range(30):
        job_type = "large" if n % 5 == 0 else "small"
        assert s.submit(n, job_type) == t.submit(n, job_type)
        s.explain(n)
        s.explain_server("server-0")
        if n % 3 == 0:
            done = next(iter(s.running))
            assert s.complete(done) == t.complete(done)
    assert s.situation() == t.situation()
    for name in ("stalls", "resets"):
        assert getattr(s._state, name) == getattr(t._state, name)


def test_explain_says_that_a_tenant_is_above_its_share() -> None:
    one = Cluster(resources=("cpu",), servers=(ServerClass(name="s", count=1, capacity=(1,)),))
    types = [JobType(name=name, demand=(1,), tenant=name) for name in ("a", "b")]
    shares = Shares(half_life=1.0, tenants=(Tenant(name="a"), Tenant(name="b")))
    s = Scheduler(one, types, shares=shares)
    for now, (job, tenant) in enumerate((("first", "a"), ("second", "a"), ("third", "b"), ("fourth", "a"))):
        s.submit(job, tenant, now=float(now))
    assert why(s.explain("second")).reason == Reason.ABOVE_SHARE
    assert "tenant a has had 100% of what all tenants have used" in str(s.explain("second"))
    assert "above its share" not in str(s.explain("third"))


def test_every_reason_was_seen() -> None:
    """The tests above reach all of them (this one means something when all of them have run)."""
    for test in [test for name, test in globals().items() if name.startswith("test_")]:
        if test is not test_every_reason_was_seen:
            test()
    assert set(Reason) == SEEN

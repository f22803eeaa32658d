"""Where `guarded` puts jobs: holes, servers that would become empty, servers that others need; and what it does in a flood."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from slotwise.core.state import gain
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.policies.guarded import gains, memory, usable
from slotwise.scheduling import Scheduler

pytestmark = pytest.mark.core


def cluster(*servers: ServerClass) -> Cluster:
    return Cluster(resources=("units",), servers=servers)


def where(scheduler: Scheduler, job: Any, kind: str) -> str | None:
    """The server on which a new job starts."""
    for placement in scheduler.submit(job, kind):
        if placement.job == job:
            return placement.server
    return None


def tens(count: int = 2, **sizes: int) -> Scheduler:
    """Servers of 10, with types of these sizes."""
    types = [JobType(name=name, demand=(size,)) for name, size in sizes.items()]
    return Scheduler(cluster(ServerClass(name="s", count=count, capacity=(10,))), types, "guarded")


def test_a_small_job_leaves_a_hole_to_those_who_fill_it() -> None:
    scheduler = tens(five=5, two=2)
    full = where(scheduler, "five", "five")
    assert where(scheduler, "two", "two") != full  # best-fit would put it beside the five


def test_while_a_larger_job_waits_small_ones_go_together() -> None:
    scheduler = tens(ten=10, five=5, two=2)
    first = where(scheduler, "five", "five")
    other = where(scheduler, "two", "two")
    assert first != other
    assert where(scheduler, "ten", "ten") is None
    assert where(scheduler, "another two", "two") == first  # the other may become empty


def with_paces(scheduler: Scheduler, *paces: float) -> None:
    """As if jobs of the types had been seen to run so much faster than the mean."""
    gains.paces(scheduler._state)[:] = np.sqrt(paces)
    gains.set_gains(scheduler._state)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_long_jobs_go_to_low_numbers_where_short_ones_need_whole_servers(order: tuple[int, ...]) -> None:
    scheduler = tens(3, ten=10, one=1, other=1)
    with_paces(scheduler, 4.0, 1.0, 2.0)
    assert gains.lasting(scheduler._state).tolist() == [0, 1, 0]
    on = {where(scheduler, n, "ten"): n for n in order}
    for n in order:
        scheduler.complete(n)
    assert on[where(scheduler, "short", "other")] == order[-1]  # of empty servers the one that became so last
    scheduler.complete("short")
    assert where(scheduler, "long", "one") == "s-0"
    with_paces(scheduler, 2.0, 1.0, 1.0)
    assert gains.lasting(scheduler._state).tolist() == [0, 0, 0]


def test_jobs_that_leave_room_beside_them_need_no_empty_server() -> None:
    scheduler = tens(3, eight=8, one=1)
    with_paces(scheduler, 4.0, 1.0)
    assert gains.lasting(scheduler._state).tolist() == [0, 0]


def test_room_that_only_rare_jobs_could_use_is_used() -> None:
    scheduler = tens(five=5, two=2)
    state = scheduler._state
    gains.common(state)[:] = [0.25, 1.0]
    scheduler._store.arrays["policy_ints"][memory.STALE] = 1
    full = where(scheduler, "five", "five")
    assert where(scheduler, "two", "two") == full
    assert usable.hoped(state) == pytest.approx([0.125, 0.2])


def test_how_common_a_type_is_follows_from_its_jobs_and_the_room_that_they_use() -> None:
    scheduler = tens(1, eight=8, one=1, two=2)
    state, whole = scheduler._state, scheduler._store.arrays["policy_ints"]
    gains.counted(state)[:] = [40.0, 50.0, 1.0]  # of the room these use 40, 5 and 1/5
    gains.ended(state)[:] = [40.0, 50.0, 1.0]
    whole[memory.ENDED] = whole[memory.NEXT_ESTIMATE] = 91
    scheduler.submit("x", "one")
    scheduler.complete("x")
    share = np.array([40 / 45.2, 50 / 91, 1 / 91])
    assert gains.common(state) == pytest.approx(np.minimum(1.0, np.ceil(4 * 3 * share / 0.3) / 4))
    assert gains.common(state).tolist() == [1.0, 1.0, 0.25]


def test_who_may_run_anywhere_leaves_sought_servers_to_others() -> None:
    plain = ServerClass(name="plain", count=2, capacity=(10,))
    special = ServerClass(name="special", count=1, capacity=(10,), labels={"gpu": "yes"})
    types = [
        JobType(name="any", demand=(2,)),
        JobType(name="picky", demand=(3,), requires={"gpu": "yes"}),
    ]
    scheduler = Scheduler(cluster(special, plain), types, "guarded")
    assert where(scheduler, "picky", "picky") == "special-0"
    for n in range(10):  # the best fit is beside the picky job
        assert where(scheduler, n, "any") != "special-0"
    assert where(scheduler, 10, "any") == "special-0"  # there is no other room


def flood(scheduler: Scheduler, waiting: int) -> None:
    """Let so many more jobs of each type wait, many more than run."""
    for n in range(waiting):
        for one in scheduler.types:
            scheduler.submit((one.name, n), one.name)


def test_in_a_flood_all_jobs_count_the_same_until_it_is_over() -> None:
    scheduler = tens(five=5, one=1)
    flood(scheduler, 200)
    assert gain(scheduler._state) == pytest.approx([1.0, 1.0])
    for one in scheduler.types:
        for n in range(200):
            if (one.name, n) not in scheduler.running:
                scheduler.cancel((one.name, n))
    for n in range(gains.EVERY):  # one of these looks round
        scheduler.submit(n, "one")
    assert gain(scheduler._state) == pytest.approx([2 / 4, 2 / 20])


def test_where_a_type_takes_whole_servers_size_counts_in_a_flood_too() -> None:
    scheduler = tens(ten=10, one=1)
    flood(scheduler, 200)
    assert gain(scheduler._state) == pytest.approx([2 / 2, 2 / 20])


def test_with_very_long_queues_gains_stay_as_they_are() -> None:
    waiting = 1 + 2 * gains.LONG  # more than LONG for each server
    types = [JobType(name="five", demand=(5,)), JobType(name="one", demand=(1,))]
    server = ServerClass(name="s", count=2, capacity=(10,))
    scheduler = Scheduler(cluster(server), types, "guarded", flood=(waiting + 1) / gains.FEW)
    flood(scheduler, waiting)
    assert sum(scheduler.waiting.values()) > 1.5 * waiting
    assert gain(scheduler._state) == pytest.approx([2 / 4, 2 / 20])

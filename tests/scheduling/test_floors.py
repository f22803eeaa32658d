"""Floors of `guarded`: who goes first, whose slot stands open, and when neither is so."""

from __future__ import annotations

from typing import Any

import pytest

from slotwise.model import Cluster, JobType, ServerClass
from slotwise.policies.guarded import floors, gains
from slotwise.scheduling.scheduler import Scheduler

pytestmark = pytest.mark.core


def overloaded(servers: int = 100, waiting: int = 300, **options: Any) -> Scheduler:
    """Five jobs of a common type on every server, many more waiting; one of the rare type has come and gone."""
    one = ServerClass(name="server", count=servers, capacity=(10,))
    demands = {"common": 2, "rare": 2, "whole": 10}
    types = [JobType(name=name, demand=(demand,)) for name, demand in demands.items()]
    scheduler = Scheduler(Cluster(resources=("units",), servers=(one,)), types, "guarded", **options)
    scheduler.submit("seen", "rare")
    scheduler.complete("seen")
    for n in range(5 * servers + waiting):
        scheduler.submit(n, "common")
    return scheduler


def end_one(scheduler: Scheduler, server: str) -> list[str]:
    """A common job of the server ends; the types of those that start."""
    job = next(job for job, on in scheduler.running.items() if on == server and isinstance(job, int))
    return ["common" if isinstance(p.job, int) else "rare" for p in scheduler.complete(job)]


def kept(scheduler: Scheduler) -> list[int]:
    """The servers that keep a slot for common, rare and whole; -1 where none does."""
    return [int(holder) - 1 for holder in floors.holders(scheduler._state)]


@pytest.mark.parametrize(("floor", "starts"), [(0.1, "rare"), (0.0, "common")])
def test_a_rare_type_goes_first_where_room_appears(floor: float, starts: str) -> None:
    scheduler = overloaded(floor=floor, standing=0.0)
    assert scheduler.submit("r", "rare") == []
    assert end_one(scheduler, "server-3") == [starts]


def test_it_goes_first_only_up_to_its_floor() -> None:
    scheduler = overloaded(standing=0.0)
    for n in range(20):
        scheduler.submit(f"r{n}", "rare")
    started = [end_one(scheduler, f"server-{n}") for n in range(20)]
    # 500 of them fill the cluster; a tenth of that shared by three types is 16.7
    assert started == 16 * [["rare"]] + 4 * [["common"]]


def test_a_slot_stands_open_for_a_rare_type_and_is_kept_anew() -> None:
    scheduler = overloaded()
    for n in (7, 8):
        assert end_one(scheduler, f"server-{n}") == []
        assert kept(scheduler) == [-1, n, -1]
        assert end_one(scheduler, "server-50") == ["common"]  # one slot is enough
        (placed,) = scheduler.submit(f"r{n}", "rare")
        assert placed.server == f"server-{n}"
        assert kept(scheduler) == [-1, -1, -1]


@pytest.mark.parametrize("options", [{"standing": 0.0}, {"floor": 0.0}, {"standing": 0.005}], ids=str)
def test_no_slot_stands_open_that_costs_too_much(options: dict[str, float]) -> None:
    scheduler = overloaded(**options)
    assert end_one(scheduler, "server-7") == ["common"]


def test_no_slot_stands_open_for_a_type_that_never_comes() -> None:
    scheduler = overloaded()
    gains.ended(scheduler._state)[1] = 0.0
    assert end_one(scheduler, "server-7") == ["common"]


def test_short_jobs_of_which_many_come_do_not_go_first_though_few_run() -> None:
    scheduler = overloaded(standing=0.0)
    for n in range(100):
        scheduler.submit(f"r{n}", "rare")
    assert end_one(scheduler, "server-3") == ["common"]  # 101 of 901 have come, and 3 / 10 of a third are 90


def test_an_empty_server_keeps_no_slot() -> None:
    scheduler = overloaded(waiting=1)
    end_one(scheduler, "server-7")
    assert kept(scheduler)[1] == 7
    scheduler.cancel(500)
    for _ in range(4):
        end_one(scheduler, "server-7")
    assert kept(scheduler) == [-1, -1, -1]
    (placed,) = scheduler.submit("w", "whole")
    assert placed.server == "server-7"


def test_an_empty_server_takes_what_weighs_most() -> None:
    scheduler = overloaded(servers=1, waiting=0, floor=2.0, standing=0.0)
    for n in range(40):
        scheduler.submit(f"w{n}", "whole")
    for n in range(4):
        end_one(scheduler, "server-0")
        scheduler.submit(f"r{n}", "rare")
    last = next(job for job in scheduler.running if isinstance(job, int))
    while len(scheduler.running) > 1:
        scheduler.complete(next(job for job in scheduler.running if job != last))
    assert [p.job for p in scheduler.complete(last)] == ["w0"]


def test_with_very_long_queues_nobody_goes_first_and_no_slot_stands_open() -> None:
    scheduler = overloaded(servers=1, waiting=999, floor=2.0, standing=2.0)
    assert end_one(scheduler, "server-0") == []
    assert kept(scheduler)[1] == 0
    for n in range(3):
        scheduler.submit(f"more {n}", "whole")
    assert end_one(scheduler, "server-0") == ["common", "common"]
    assert kept(scheduler) == [-1, -1, -1]
    scheduler.submit("r", "rare")
    assert end_one(scheduler, "server-0") == ["common"]


@pytest.mark.parametrize("how", ["drain_server", "fail_server"])
def test_a_server_that_goes_keeps_no_slot(how: str) -> None:
    scheduler = overloaded()
    end_one(scheduler, "server-7")
    getattr(scheduler, how)("server-7")
    assert kept(scheduler) == [-1, -1, -1]
    end_one(scheduler, "server-9")
    assert kept(scheduler)[1] == 9


def test_a_smaller_job_leaves_the_rest_of_its_slot_to_others() -> None:
    scheduler = overloaded(waiting=0)
    scheduler.submit("small", "common", demand={"units": 1})
    scheduler.submit("next", "common")
    assert end_one(scheduler, "server-7") == []  # the two units are kept for the rare type, though jobs wait
    assert kept(scheduler)[1] == 7
    placed = scheduler.submit("r", "rare", demand={"units": 1})
    assert [(p.job, p.server) for p in placed] == [("r", "server-7"), ("small", "server-7")]

"""Lists of array indices, and arrays of which only some jobs are active at the same time, also after a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from house import SETUP, SLOW, House

from slotwise.live.engines.protocol import ServerUp
from slotwise.live.engines.simulated import SimulatedEngine
from slotwise.live.newjob import NewJob
from slotwise.live.replay import replay
from slotwise.live.service import Service
from slotwise.live.spec import at_once, indices
from slotwise.live.store import open_store


def test_lists_of_indices() -> None:
    assert list(indices("1,3,5-9%4")) == [1, 3, 5, 6, 7, 8, 9]
    assert (at_once("1,3,5-9%4"), at_once("1-3")) == (4, None)
    for wrong in ("1,", "1,1", "3-1", "1-5%0", "1-5%x", "1-3%", "", "1-200000"):
        with pytest.raises(ValueError):  # noqa: PT011
            indices(wrong)


def states(house: House, array: int) -> Counter[str]:
    listed = house.call("GET", "/v1/jobs", params={"array": array, "limit": 1000}).json()["jobs"]
    return Counter("active" if job["state"] in ("placed", "running") else job["state"] for job in listed)


def test_only_some_jobs_of_an_array_are_active(tmp_path: Path) -> None:
    house = House(tmp_path)  # a server of 4 CPUs
    try:
        array = house.submit(duration=SLOW, array="1,3,5-9%2")
        assert states(house, array) == {"active": 2, "held": 5}
        other = house.submit(duration=SLOW)
        house.until_placed(other)  # held jobs do not stand before it
        text = house.call("GET", f"/v1/jobs/{array + 2}/explain").json()["text"]
        assert "at most 2 jobs of its array" in text
        house.call("POST", f"/v1/jobs/{array}/stop")
        house.until_placed(array + 2)
        while states(house, array)["cancelled"] == 0:
            pass
        assert states(house, array) == {"active": 2, "held": 4, "cancelled": 1}
        assert house.call("POST", f"/v1/jobs/{array + 3}/cancel").json()["state"] == "cancelled"
        done = house.call("POST", "/v1/jobs/cancel", json={"array": array}).json()
        assert (len(done["cancelled"]), done["errors"]) == (5, {})
        while states(house, array)["active"]:
            pass
        assert states(house, array) == {"cancelled": 7}
        assert (
            max(
                job["attempt"]
                for job in house.call("GET", "/v1/jobs", params={"array": array}).json()["jobs"]
                if job["id"] > array + 2
            )
            == 0
        )
        short = house.submit(array="1-20%1")
        while states(house, short)["done"] < 20:
            pass
        assert replay(house.service.store).differences == []
    finally:
        house.service.close()


def test_held_jobs_are_held_after_a_restart(tmp_path: Path) -> None:
    def service() -> Service:
        servers = [ServerUp("s", {"cpu": 4, "memory": 1000}, server_class="a")]
        engine = SimulatedEngine(servers, lambda job, attempt, spec: SLOW, world=tmp_path / "world")
        return Service(open_store(f"sqlite:///{tmp_path}/x.db"), engine, SETUP)

    first = service()
    new = NewJob("t", "one", {}, {}, body='{"argv":["x"],"type":"one","at_once":2}', array=range(1, 6), at_once=2)
    numbers = first.loop.submit([new]).result()
    first.close()
    second = service()
    try:
        assert [number in second.loop.ledger.holds for number in numbers] == [False, False, True, True, True]
        second.loop.ask(lambda ledger, now: ledger.end(numbers[0], now)).result()
        while second.store.job(numbers[2]).server is None:  # type: ignore[union-attr]
            pass
        assert [number in second.loop.ledger.holds for number in numbers[2:]] == [False, True, True]
    finally:
        second.close()

"""Cancelling many jobs, counting and sorting them, and the status page, over the API on the simulated engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from house import SLOW, House
from processes import PATIENCE

from slotwise.live.explaining import explained
from slotwise.live.ledger import Ledger


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("cancelling"))
    yield made
    made.service.close()


@pytest.fixture
def busy(house: House) -> Iterator[list[int]]:
    """Four jobs run for long; nothing else is left from the test before."""
    running = [house.submit(duration=SLOW, name="long") for _ in range(4)]
    for number in running:
        house.until_placed(number)
    yield running
    assert cancel(house, all=True)["errors"] == {}
    while sum(
        house.call("GET", "/v1/jobs/counts", params={"state": ["waiting", "placed", "running"]}).json().values()
    ):
        pass


def cancel(house: House, role: str = "operate", **what: Any) -> dict[str, Any]:
    answer = house.call("POST", "/v1/jobs/cancel", role, json=what)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def state(house: House, number: int) -> str:
    return str(house.call("GET", f"/v1/jobs/{number}").json()["state"])


def test_an_array_that_is_not_there(house: House, busy: list[int]) -> None:
    """A number that names no array is an error; an array none of whose jobs can be cancelled is none."""
    for number in (busy[0], 999_999):
        assert cancel(house, array=number) == {
            "cancelled": [],
            "errors": {str(number): f"there is no array {number}"},
        }
    array = house.submit(duration=SLOW, array="1-3")
    assert len(cancel(house, array=array)["cancelled"]) == 3
    assert cancel(house, array=array) == {"cancelled": [], "errors": {}}


def test_waiting_and_running_ended_and_unknown(house: House, busy: list[int]) -> None:
    waiting = house.submit(duration=SLOW)
    gone = house.submit(duration=SLOW)
    assert cancel(house, ids=[gone])["cancelled"] == [gone]
    shown = cancel(house, ids=[waiting, busy[0], gone, 999_999], dry_run=True)
    assert state(house, waiting) == "waiting"
    done = cancel(house, ids=[waiting, busy[0], gone, 999_999])
    assert done == shown == {
        "cancelled": [busy[0], waiting],
        "errors": {str(gone): f"job {gone} has ended: cancelled", "999999": "there is no job 999999"},
    }  # fmt: skip
    assert state(house, waiting) == "cancelled"
    while state(house, busy[0]) in ("placed", "running"):
        pass
    assert state(house, busy[0]) == "cancelled"


def test_by_conditions(house: House, busy: list[int]) -> None:
    array = house.submit(duration=SLOW, array="1-30", name="many")
    other = house.submit(duration=SLOW, name="other")
    assert cancel(house, array=array, state=["running"])["cancelled"] == []
    assert cancel(house, name="many", state=["waiting"], dry_run=True)["cancelled"] == list(
        range(array, array + 30)
    )
    assert cancel(house, array=array)["cancelled"] == list(range(array, array + 30))
    assert cancel(house, name="many")["cancelled"] == []
    assert cancel(house, state=["waiting"])["cancelled"] == [other]


def test_tenants_cancel_their_own(house: House, busy: list[int]) -> None:
    mine = house.submit("submit", duration=SLOW)
    theirs = house.submit("operate", duration=SLOW, tenant="else")
    done = cancel(house, "submit", ids=[theirs])
    assert done == {"cancelled": [], "errors": {str(theirs): f"there is no job {theirs}"}}
    assert mine in cancel(house, "submit", all=True)["cancelled"]
    assert state(house, theirs) in ("waiting", "placed", "running")
    assert house.call("POST", "/v1/jobs/cancel", "submit", json={"tenant": "else"}).status_code == 403
    assert house.call("POST", "/v1/jobs/cancel", "read", json={"all": True}).status_code == 403
    assert cancel(house, tenant="else")["cancelled"] == [theirs]


def test_three_thousand_take_few_rounds_of_the_loop(house: House, busy: list[int]) -> None:
    """One request: six commits, not 3,000."""
    array = house.submit(duration=SLOW, array="1-3000")
    commits: list[int] = []
    told, house.service.loop.on_commit = house.service.loop.on_commit, commits.append
    try:
        assert len(cancel(house, array=array)["cancelled"]) == 3000
    finally:
        house.service.loop.on_commit = told
    assert len(commits) <= 12  # ends of other jobs may be told between


@pytest.mark.parametrize("what", [{}, {"state": ["done"]}, {"ids": [-1]}, {"nonsense": 1}])
def test_what_cannot_be_meant_is_refused(house: House, what: dict[str, Any]) -> None:
    assert house.call("POST", "/v1/jobs/cancel", json=what).status_code in (400, 422)


def test_messages_name_jobs_that_have_ended(house: House, busy: list[int]) -> None:
    gone = house.submit(duration=SLOW)
    cancel(house, ids=[gone])
    for what in ("cancel", "stop"):
        answer = house.call("POST", f"/v1/jobs/{gone}/{what}")
        assert (answer.status_code, answer.json()["detail"]) == (409, f"job {gone} has ended")


def test_a_job_that_is_being_stopped(house: House, busy: list[int]) -> None:
    """In one turn of the loop: the engine cannot answer in between."""

    def stop(ledger: Ledger, now: float) -> str:
        ledger.stop(busy[1], now)
        return explained(ledger, busy[1], now)

    text = house.service.loop.ask(stop).result(PATIENCE)
    assert text.startswith(f"job {busy[1]} is being stopped on server s: ")


def test_counts_since_and_order(house: House, busy: list[int]) -> None:
    later = house.call("GET", f"/v1/jobs/{house.submit(duration=SLOW, name='aaa')}").json()
    counted = house.call("GET", "/v1/jobs/counts", params={"since": later["submitted"]}).json()
    assert (counted["waiting"], sum(counted.values())) == (1, 1)
    listed = [
        job["name"]
        for skip in (0, 2)
        for job in house.call(
            "GET", "/v1/jobs", params={"sort": "name", "oldest_first": True, "limit": 2, "skip": skip, "state": ["waiting", "running", "placed"]}
        ).json()["jobs"]
    ]  # fmt: skip
    assert listed == ["aaa", "long", "long", "long"]
    assert house.call("GET", "/v1/jobs", params={"sort": "mood"}).status_code == 400


def test_status(house: House, busy: list[int]) -> None:
    house.submit("operate", duration=SLOW, tenant="physics")
    found = house.call("GET", "/v1/status").json()
    assert [(one["name"], one["status"], one["jobs"]) for one in found["servers"]] == [("s", "up", 4)]
    assert (found["jobs"]["waiting"], found["jobs"]["running"] + found["jobs"]["placed"]) == (1, 4)
    assert found["resources"]["cpu"] == {"used": 4, "capacity": 4}
    assert {one["tenant"]: one["waiting"] for one in found["tenants"]}["physics"] == 1
    (queue,) = [one for one in found["queues"] if one["waiting"]]
    assert (queue["waiting"], queue["running"], queue["oldest"] >= 0) == (1, 4, True)
    assert found["trouble"] == []
    assert house.call("GET", "/v1/status", "submit").json()["tenants"] == [
        one for one in found["tenants"] if one["tenant"] not in ("physics", "operator")
    ]


def test_a_draining_server_without_jobs_is_drained(house: House, busy: list[int]) -> None:
    assert house.call("POST", "/v1/servers/s/drain", json={"reason": "disk"}).json()["status"] == "draining"
    waiting = house.submit(duration=SLOW)
    assert "takes no jobs: disk" in house.call("GET", "/v1/status").json()["trouble"][0]
    cancel(house, ids=busy)
    while (found := house.call("GET", "/v1/servers").json())[0]["jobs"]:
        pass
    assert found[0]["status"] == "drained"
    assert "no server that takes jobs can hold one" in house.call("GET", "/v1/status").json()["trouble"][1]
    assert house.call("POST", "/v1/servers/s/resume").json()["status"] == "up"
    house.until_placed(waiting)

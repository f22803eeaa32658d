"""The API: what it takes, what it gives, who may do what; and the commands against a real `slotwise serve`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from house import SLOW, House
from processes import PATIENCE, Process

from slotwise.live import Client
from slotwise.live.serving import listen


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.service.close()


def test_a_job_from_submission_to_its_end(house: House) -> None:
    number = house.submit(name="first")
    while (job := house.call("GET", f"/v1/jobs/{number}").json())["state"] != "done":
        assert job["state"] in ("waiting", "placed", "running")
    assert job["exit_code"] == 0
    assert job["submitted"] <= job["placed"] <= job["ended"]
    assert "has ended" in house.call("GET", f"/v1/jobs/{number}/explain").json()["text"]
    assert house.call("GET", f"/v1/jobs/{number}/output").text == ""


def test_wait_cancel_stop_and_explain(house: House) -> None:
    running = [house.submit(duration=SLOW) for _ in range(4)]
    for number in running:
        house.until_placed(number)
    waiting = house.submit(duration=SLOW)
    assert "cpu" in house.call("GET", f"/v1/jobs/{waiting}/explain").json()["text"]
    assert house.call("POST", f"/v1/jobs/{waiting}/stop").status_code == 409
    assert house.call("POST", f"/v1/jobs/{waiting}/cancel").json()["state"] == "cancelled"
    assert house.call("POST", f"/v1/jobs/{waiting}/cancel").status_code == 409
    for number in running:
        assert house.call("POST", f"/v1/jobs/{number}/cancel").status_code == 409
        assert house.call("POST", f"/v1/jobs/{number}/stop").status_code == 200
    for number in running:
        while house.call("GET", f"/v1/jobs/{number}").json()["state"] != "cancelled":
            pass
    assert house.call("GET", "/v1/jobs/999999").status_code == 404


def test_bulk_arrays_keys_and_pages(house: House) -> None:
    answer = house.call("POST", "/v1/jobs/bulk", json=[{"argv": ["x"], "name": "bulk"}] * 1000)
    assert len(answer.json()["ids"]) == 1000
    seen: list[int] = []
    after = None
    while True:
        asked = {"name": "bulk", "limit": 300} | ({} if after is None else {"after": after})
        page = house.call("GET", "/v1/jobs", params=asked).json()
        seen += [job["id"] for job in page["jobs"]]
        after = page["next"]
        if after is None:
            break
    assert seen == sorted(answer.json()["ids"], reverse=True)
    first = house.submit(array="1-9:2", key="again")
    assert house.submit(array="1-9:2", key="again") == first
    array = house.call("GET", "/v1/jobs", params={"array": first, "oldest_first": True}).json()["jobs"]
    assert [job["array_index"] for job in array] == [1, 3, 5, 7, 9]
    assert house.call("POST", "/v1/jobs/bulk", json=[]).status_code == 400
    wrong = house.call("POST", "/v1/jobs/bulk", json=[{"argv": ["x"]}, {"argv": ["x"], "needs": {"cpu": 99}}])
    assert wrong.status_code == 400
    assert "no server can hold" in wrong.json()["detail"]


def test_servers_and_changes(house: House) -> None:
    assert house.call("POST", "/v1/servers", json={"name": "t", "server_class": "a"}).status_code == 201
    assert house.call("POST", "/v1/servers", json={"name": "t", "server_class": "a"}).status_code == 409
    assert house.call("POST", "/v1/servers/t/drain", json={"reason": "disk"}).json()["reason"] == "disk"
    assert house.call("POST", "/v1/servers/t/resume").json()["status"] == "up"
    assert "t" in house.call("GET", "/v1/servers/t/explain").json()["text"]
    while house.call("DELETE", "/v1/servers/t").status_code == 409:  # jobs of the tests before may be on it
        house.call("POST", "/v1/servers/t/drain")
    assert house.call("DELETE", "/v1/servers/t").status_code == 404
    before = house.call("GET", "/v1/cluster").json()
    changed = house.call("PATCH", "/v1/cluster", json={"policy": "best-fit"}).json()
    assert (before["policy"], changed["policy"]) == ("best-fit", "best-fit")
    assert house.call("PATCH", "/v1/cluster", json={"policy": "none"}).status_code == 400
    types = [*changed["types"], {"name": "two", "demand": ["2", "0"]}]
    assert house.call("PATCH", "/v1/cluster", json={"types": types}).json()["types"][-1]["name"] == "two"
    house.submit(type="two")
    assert house.call("PATCH", "/v1/cluster", json={"types": [{"name": "two"}]}).status_code == 400


def test_events_can_be_resumed(house: House) -> None:
    house.submit()
    whole = house.call("GET", "/v1/events", params={"after": 0, "follow": False}).text
    numbers = [int(one) for one in re.findall(r"^id: (\d+)\nevent", whole, re.M)]
    assert numbers == list(range(1, numbers[-1] + 1))
    rest = house.call(
        "GET", "/v1/events", params={"follow": False}, headers={"Last-Event-ID": str(numbers[-3])}
    ).text
    assert re.findall(r"^id: (\d+)\nevent", rest, re.M)[:2] == [str(numbers[-2]), str(numbers[-1])]


def test_metrics_and_health(house: House) -> None:
    assert house.call("GET", "/healthz", None).text == "ok\n"
    assert house.call("GET", "/readyz", None).text == "ready\n"
    text = house.call("GET", "/metrics").text
    for name in (
        "slotwise_decision_seconds_bucket",
        "slotwise_commit_seconds",
        "slotwise_wait_seconds",
        "slotwise_ready 1.0",
    ):
        assert name in text
    house.service.loop.trouble = "the disk is full"
    try:
        assert house.call("GET", "/readyz", None).status_code == 503
        refused = house.call("POST", "/v1/jobs", json={"argv": ["x"]})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers["content-type"] == "application/problem+json"
    finally:
        house.service.loop.trouble = None


def test_answers_are_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off for connections of sockets that name their protocol; with it answers wait for 40 ms."""
    with closing(listen("127.0.0.1", 0)) as sock:
        assert sock.proto == socket.IPPROTO_TCP


# -- a real process -----------------------------------------------------------------------------------------------------------


CLUSTER = """
[cluster]
resources = ["cpu", "memory"]
servers = [{ name = "part", count = 8, capacity = [1, 1000] }]
[[types]]
name = "one"
demand = [1, 0]
[policy]
name = "best-fit"
"""


def test_real_commands_with_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Process]
) -> None:
    """Many short commands on this machine cut into eight servers: every exit code right, output kept, with two restarts."""
    count = int(os.environ.get("SLOTWISE_COMMANDS", "40"))
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    process = serve(tmp_path, "cluster.toml", "--engine", "local")
    jobs = [
        {"argv": ["sh", "-c", f"echo job {n}; echo {n} >> ran; exit {n % 7}"], "type": "one", "cwd": str(tmp_path)}
        for n in range(count)
    ]
    with Client(process.address) as client:
        numbers = [handle.id for handle in client.submit_many(jobs)]
    for how in (signal.SIGKILL, signal.SIGTERM):
        process.end(how)
        process.start()
    with Client(process.address) as client:
        ended = {job.id: job for job in client.as_completed(numbers, timeout=PATIENCE)}
        assert {number: ended[number].exit_code for number in numbers} == {
            number: n % 7 for n, number in enumerate(numbers)
        }
        for n in range(0, count, 10):
            assert b"".join(client.output(numbers[n])) == f"job {n}\n".encode()
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(count))
    assert process.end() == 0
    done = process.command("replay", "--json")
    assert json.loads(done.stdout)["differences"] == []

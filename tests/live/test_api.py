"""The API: what it takes, what it gives, who may do what; and the commands against a real `slotwise serve`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import Process

from slotwise.live.api.app import make_app
from slotwise.live.auth import Guard, keep_own_token, token_file
from slotwise.live.client import AsyncClient, Client, ServiceError, find_address
from slotwise.live.engines.protocol import ServerUp
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.restart import Setup
from slotwise.live.service import Service
from slotwise.live.store import open_store
from slotwise.model import Cluster, JobType, ServerClass

SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=1, capacity=("4", "1000")),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1", "0")),),  # type: ignore[arg-type]
    policy="best-fit",
)
SLOW = 1000.0


class House:
    """A service with its application and a token for each role."""

    def __init__(self, folder: Path, name: str = "x") -> None:
        engine = SimulatedEngine(
            [ServerUp("s", {"cpu": 4, "memory": 1000}, server_class="a")], exponential(1, 0.001)
        )
        self.service = Service(open_store(f"sqlite:///{folder}/{name}.db"), engine, SETUP)
        self.guard = Guard(self.service.store)
        self.app = make_app(self.service, self.guard)
        self.tokens = {role: self.guard.create(role)[1] for role in ("read", "submit", "operate")}
        self.http = TestClient(self.app, base_url="http://127.0.0.1:8700", raise_server_exceptions=False)

    def call(self, method: str, path: str, role: str | None = "operate", **options: Any) -> httpx.Response:
        headers = options.pop("headers", {})
        if role is not None:
            headers = {"Authorization": f"Bearer {self.tokens.get(role, role)}", **headers}
        return self.http.request(method, path, headers=headers, **options)

    def submit(self, role: str = "submit", **spec: Any) -> int:
        answer = self.call("POST", "/v1/jobs", role, json={"argv": ["x"], **spec})
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])


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
    numbers = [int(one) for one in re.findall(r"^id: (\d+)$", whole, re.M)]
    assert numbers == list(range(1, numbers[-1] + 1))
    rest = house.call(
        "GET", "/v1/events", params={"follow": False}, headers={"Last-Event-ID": str(numbers[-3])}
    ).text
    assert re.findall(r"^id: (\d+)$", rest, re.M)[:2] == [str(numbers[-2]), str(numbers[-1])]


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


NEEDS = {
    ("POST", "/v1/jobs"): "submit",
    ("POST", "/v1/jobs/bulk"): "submit",
    ("GET", "/v1/jobs"): "read",
    ("GET", "/v1/jobs/{number}"): "read",
    ("GET", "/v1/jobs/{number}/output"): "read",
    ("GET", "/v1/jobs/{number}/explain"): "read",
    ("POST", "/v1/jobs/{number}/cancel"): "submit",
    ("POST", "/v1/jobs/{number}/stop"): "submit",
    ("GET", "/v1/servers"): "read",
    ("POST", "/v1/servers"): "operate",
    ("POST", "/v1/servers/{name}/drain"): "operate",
    ("POST", "/v1/servers/{name}/resume"): "operate",
    ("DELETE", "/v1/servers/{name}"): "operate",
    ("GET", "/v1/servers/{name}/explain"): "read",
    ("GET", "/v1/cluster"): "read",
    ("PATCH", "/v1/cluster"): "operate",
    ("POST", "/v1/tokens"): "operate",
    ("GET", "/v1/tokens"): "operate",
    ("DELETE", "/v1/tokens/{identity}"): "operate",
    ("GET", "/v1/events"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/jobs"): {"argv": ["x"]},
    ("POST", "/v1/jobs/bulk"): [{"argv": ["x"]}],
    ("POST", "/v1/servers"): {"name": "none", "server_class": "none"},
    ("PATCH", "/v1/cluster"): {},
    ("POST", "/v1/tokens"): {"role": "read"},
}


def test_who_may_do_what(house: House) -> None:
    """The whole matrix: every route with every role, without a token, and with wrong ones."""
    routes = {
        (method.upper(), path) for path, methods in house.app.openapi()["paths"].items() for method in methods
    }
    assert routes == set(NEEDS)
    roles = ["read", "submit", "operate"]
    for (method, path), needed in NEEDS.items():
        filled = path.format(number=1, name="none", identity="none")
        if path == "/v1/events":
            filled += "?follow=false"
        body = BODIES.get((method, path))
        for role in (None, "sw_x_y", "sw_none", "", "Basic x", *roles):
            status = house.call(method, filled, role, json=body).status_code
            if needed is None:
                assert status == 200
            elif role not in roles:
                assert status == 401, (method, path, role)
            elif roles.index(role) < roles.index(needed):
                assert status == 403, (method, path, role)
            else:
                assert status not in (401, 403), (method, path, role)


def test_foreign_hosts_and_origins_are_refused(house: House) -> None:
    for path in ("/v1/jobs", "/healthz"):
        for host in ("evil.example", "evil.example:8700", "127.0.0.1.evil.example", ""):
            assert house.call("GET", path, headers={"Host": host}).status_code == 421, host
        for origin in ("http://evil.example", "null", "https://127.0.0.1.evil.example"):
            assert house.call("GET", path, headers={"Origin": origin}).status_code == 403, origin
        for host in ("127.0.0.1:8700", "localhost", "[::1]:8700"):
            assert house.call("GET", path, headers={"Host": host, "Origin": f"http://{host}"}).status_code == 200


def test_requests_that_are_too_large_are_refused(house: House) -> None:
    assert house.call("POST", "/v1/jobs", headers={"Content-Length": str(10**9)}, content=b"x").status_code == 413


def test_tenants_see_their_own_jobs(house: House) -> None:
    one, two = house.guard.create("submit", "physics")[1], house.guard.create("submit", "biology")[1]
    number = house.submit(one, duration=SLOW)
    for path in (f"/v1/jobs/{number}", f"/v1/jobs/{number}/explain", f"/v1/jobs/{number}/output"):
        assert house.call("GET", path, one).status_code == 200
        assert house.call("GET", path, two).status_code == 404
    for verb in ("cancel", "stop"):
        assert house.call("POST", f"/v1/jobs/{number}/{verb}", two).status_code == 404
    assert [job["id"] for job in house.call("GET", "/v1/jobs", one).json()["jobs"]] == [number]
    assert house.call("GET", "/v1/jobs", two).json()["jobs"] == []
    assert house.call("GET", "/v1/jobs", two, params={"tenant": "physics"}).status_code == 403
    shown = house.call("GET", "/v1/events", two, params={"after": 0, "follow": False}).text
    assert "data" not in shown
    assert f'"job": {number}' in house.call("GET", "/v1/events", one, params={"after": 0, "follow": False}).text
    assert house.call("POST", f"/v1/jobs/{number}/stop", one).status_code == 200


def test_tokens_are_taken_back_at_once_and_never_shown(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = house.call("POST", "/v1/tokens", json={"role": "submit", "tenant": "t"}).json()
    assert house.call("GET", "/v1/jobs", made["token"]).status_code == 200
    secret = made["token"].split("_", 2)[2]
    assert secret not in house.call("GET", "/v1/tokens").text
    assert not any(secret in str(row) for row in house.service.store.dump())
    assert house.call("DELETE", f"/v1/tokens/{made['id']}").status_code == 204
    assert house.call("GET", "/v1/jobs", made["token"]).status_code == 401
    assert secret not in caplog.text
    assert house.call("POST", "/v1/tokens", json={"role": "king"}).status_code == 400


def test_the_first_token_lies_in_a_file_of_its_user(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = keep_own_token(house.guard, "127.0.0.1", 8700)
    assert path == token_file("127.0.0.1", 8700)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    text = path.read_text()
    keep_own_token(house.guard, "127.0.0.1", 8700)
    assert path.read_text() == text  # the one that is there still holds
    assert find_address("http://127.0.0.1:8700").token == text.strip()
    assert find_address("http://10.0.0.1:8700").token is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["argv", "type", "needs", "env", "cwd", "name", "labels", "requires", "key", "duration", "on_loss", "array", "open_files", "x"])  # fmt: skip


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(
    body=st.dictionaries(keys, json_values, max_size=6), command=st.booleans(), route=st.sampled_from(sorted(NEEDS))
)
def test_no_input_makes_a_server_error(
    house: House, body: dict[str, Any], command: bool, route: tuple[str, str]
) -> None:
    method, path = route
    if command:
        body = {"argv": ["x"], "duration": 0, **body}
    for filled in (
        path.format(number=1, name="none", identity="none"),
        path.format(number="-1", name="%00", identity="x"),
    ):
        content = json.dumps([body] if "bulk" in path else body)
        query = {"follow": False} if path == "/v1/events" else {}
        answer = house.call(
            method, filled, content=content, params=query, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code < 500, (route, body, answer.text)


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


def test_real_commands_with_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short commands on this machine cut into eight servers: every exit code right, output kept, with two restarts."""
    count = int(os.environ.get("SLOTWISE_COMMANDS", "40"))
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    process = Process(tmp_path, "cluster.toml", "--engine", "local")
    process.start()
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
        ended = {job.id: job for job in client.as_completed(numbers, timeout=120)}
        assert {number: ended[number].exit_code for number in numbers} == {
            number: n % 7 for n, number in enumerate(numbers)
        }
        for n in range(0, count, 10):
            assert b"".join(client.output(numbers[n])) == f"job {n}\n".encode()
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(count))

    guide = (Path(__file__).parents[2] / "docs/guides/serve.md").read_text()
    lines = re.findall(r"^\$ slotwise (.*)$", guide, re.M)
    assert lines[0] == "serve --local"
    for line in lines[1:]:
        ran = process.command(*shlex.split(line))
        assert ran.returncode == 0, (line, ran.stderr)

    # the contract of the command line, against the same process
    assert json.loads(process.command("submit", "--json", "--", "true").stdout).keys() == {"id"}
    shown = json.loads(process.command("jobs", "--json", "--limit", "1").stdout)
    for key in ("id", "state", "type", "server", "attempt", "exit_code", "submitted", "started", "ended"):
        assert key in shown[0]
    waited = process.command("submit", "--wait", "--", "sh", "-c", "echo hello; exit 3")
    assert (waited.returncode, waited.stdout) == (3, "hello\n")
    refused = process.command("submit", "--needs", "cpu=5", "--", "true")
    assert refused.returncode == 1
    assert "no server can hold" in refused.stderr

    async def side_by_side() -> list[int | None]:
        async with AsyncClient(process.address) as client:
            made = await client.submit_many([{"argv": ["true"]}, {"argv": ["false"]}])
            return [job.exit_code for job in sorted(await client.wait(made))]

    assert asyncio.run(side_by_side()) == [0, 1]
    with pytest.raises(ServiceError, match="token"), Client(process.address, token="sw_a_b") as stranger:
        stranger.job(1)
    assert process.end() == 0
    done = process.command("replay", "--json")
    assert json.loads(done.stdout)["differences"] == []
    os.kill(int((tmp_path / "slotwise.files" / "local" / "lock").read_text()), signal.SIGKILL)

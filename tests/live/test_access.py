"""Who may do what: every route with every role, without a token, from elsewhere; what tenants see; how much they may ask for."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from house import SLOW, House

from slotwise.live.addresses import find_address, token_file
from slotwise.live.api.limits import Limits
from slotwise.live.auth import Caller, keep_own_token
from slotwise.live.store import open_store
from slotwise.live.store.backup import restore, save


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    nothing = {"reason": "no forecast is made here", "jobs": [], "running": [], "queues": []}
    made.service.forecasts.ask = lambda *_, **__: dict(nothing)  # type: ignore[method-assign]
    yield made
    made.service.close()


# The role that each route needs; None: the route is open.
NEEDS = {
    ("POST", "/v1/jobs"): "submit",
    ("POST", "/v1/jobs/bulk"): "submit",
    ("POST", "/v1/jobs/cancel"): "submit",
    ("GET", "/v1/jobs"): "read",
    ("GET", "/v1/jobs/counts"): "read",
    ("GET", "/v1/status"): "read",
    ("GET", "/v1/jobs/{number}"): "read",
    ("GET", "/v1/jobs/{number}/output"): "read",
    ("GET", "/v1/jobs/{number}/explain"): "read",
    ("POST", "/v1/jobs/{number}/cancel"): "submit",
    ("POST", "/v1/jobs/{number}/stop"): "submit",
    ("GET", "/v1/servers"): "read",
    ("POST", "/v1/servers"): "operate",
    ("GET", "/v1/servers/{name}"): "read",
    ("POST", "/v1/servers/{name}/drain"): "operate",
    ("POST", "/v1/servers/{name}/resume"): "operate",
    ("DELETE", "/v1/servers/{name}"): "operate",
    ("GET", "/v1/servers/{name}/explain"): "read",
    ("GET", "/v1/cluster"): "read",
    ("PATCH", "/v1/cluster"): "operate",
    ("POST", "/v1/cluster/plan"): "operate",
    ("POST", "/v1/cluster/apply"): "operate",
    ("GET", "/v1/cluster/toml"): "read",
    ("POST", "/v1/tokens"): "operate",
    ("GET", "/v1/tokens"): "operate",
    ("DELETE", "/v1/tokens/{identity}"): "operate",
    ("GET", "/v1/events"): "read",
    ("GET", "/v1/policies"): "read",
    ("GET", "/v1/forecast/{number}"): "read",
    ("POST", "/v1/forecast"): "read",
    ("GET", "/v1/forecasts"): "read",
    ("GET", "/v1/forecast-coverage"): "read",
    ("POST", "/v1/whatif"): "read",
    ("GET", "/v1/advice"): "read",
    ("GET", "/v1/board"): "read",
    ("GET", "/v1/board/changes"): "read",
    ("GET", "/v1/alarms"): "read",
    ("GET", "/v1/queues/history"): "read",
    ("GET", "/v1/timeline"): "read",
    ("GET", "/v1/usage"): "read",
    ("GET", "/v1/hooks"): "operate",
    ("GET", "/v1/maintenance"): "read",
    ("POST", "/v1/maintenance"): "operate",
    ("DELETE", "/v1/maintenance/{number}"): "operate",
    ("POST", "/v1/hooks/{name}/test"): "operate",
    ("GET", "/v1/journal"): "read",
    ("GET", "/v1/jobs/{number}/history"): "read",
    ("GET", "/v1/jobs/{number}/refusals"): "read",
    ("GET", "/v1/jobs/{number}/console"): "submit",
    ("GET", "/v1/jobs/{number}/graph"): "read",
    ("POST", "/v1/jobs/resubmit"): "submit",
    ("POST", "/v1/login-codes"): "read",
    ("GET", "/v1/me"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/openapi.json"): None,
}
# What tokens of one tenant may not see.
OF_ALL = {"/metrics"}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/jobs"): {"argv": ["x"]},
    ("POST", "/v1/jobs/bulk"): [{"argv": ["x"]}],
    ("POST", "/v1/jobs/cancel"): {"ids": []},
    ("POST", "/v1/jobs/resubmit"): {"ids": [1]},
    ("POST", "/v1/servers"): {"name": "none", "server_class": "none"},
    ("PATCH", "/v1/cluster"): {},
    ("POST", "/v1/forecast"): {},
    ("POST", "/v1/whatif"): {},
    ("POST", "/v1/cluster/plan"): {},
    ("POST", "/v1/cluster/apply"): {},
    ("POST", "/v1/tokens"): {"role": "read"},
}


def filled(path: str) -> str:
    """A route with something in its places."""
    asked = {"/v1/events": "?follow=false", "/v1/board/changes": "?follow=false", "/v1/timeline": "?server=s"}
    return path.format(number=1, name="none", identity="none") + asked.get(path, "")


def test_every_route_has_an_entry(house: House) -> None:
    described = {
        (method.upper(), path) for path, methods in house.app.openapi()["paths"].items() for method in methods
    }
    assert described | {("GET", "/openapi.json")} == set(NEEDS)
    for hidden in ("/docs", "/redoc"):  # pages that would load scripts from elsewhere
        assert house.call("GET", hidden).status_code == 404


@pytest.fixture(scope="module")
def sessions(house: House) -> dict[str, str]:
    """The cookie of a browser session for each role."""
    cookies = {}
    for role in house.tokens:
        path = house.call("POST", "/v1/login-codes", role).json()["path"]
        cookies[role] = house.http.get(path, follow_redirects=False).headers["set-cookie"].partition(";")[0]
        house.http.cookies.clear()
    return cookies


# What a browser adds to a request of a page of elsewhere, even if that page could send the cookie and the header of the dashboard.
FOREIGN: list[dict[str, str]] = [
    {"Origin": "http://127.0.0.1:9999", "Sec-Fetch-Site": "same-site"},  # a page at another port of this machine
    {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Origin": "null"},
]


@pytest.mark.parametrize("route", [route for route in NEEDS if NEEDS[route] is not None], ids=" ".join)
def test_a_session_in_a_browser_may_do_what_its_role_may(
    house: House, sessions: dict[str, str], route: tuple[str, str]
) -> None:
    (method, path), needed = route, NEEDS[route]
    roles = ["read", "submit", "operate"]
    own = {"X-Slotwise": "1", "Origin": "http://127.0.0.1:8700", "Sec-Fetch-Site": "same-origin"}

    def status(role: str, **headers: str) -> int:
        sent = {"Cookie": sessions[role], **headers}
        return house.call(method, filled(path), None, json=BODIES.get(route), headers=sent).status_code

    for role in roles:
        lesser = roles.index(role) < roles.index(needed or "read") or (role == "submit" and path in OF_ALL)
        assert (status(role, **own) == 403) == lesser, role
    for foreign in FOREIGN:
        assert status("operate", **{"X-Slotwise": "1", **foreign}) in (401, 403), foreign
    if method != "GET":
        assert status("operate") == 401, "without the header that other origins cannot send"


@pytest.fixture(scope="module")
def revoked(house: House) -> str:
    """The secret of a token of role `operate` that was revoked."""
    token, secret = house.guard.create("operate")
    assert house.call("GET", "/v1/tokens", secret).status_code == 200
    house.guard.revoke(token.id)
    return secret


@pytest.fixture(scope="module")
def restored(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A service on a store that was restored from a backup of `house`, in which its tokens were valid."""
    folder = tmp_path_factory.mktemp("restored")
    save(house.service.store, folder / "backup.gz")
    store = open_store(f"sqlite:///{folder}/x.db")
    store.become_writer()
    restore(store, folder / "backup.gz")
    store.close()
    made = House(folder)
    yield made
    made.service.close()


@pytest.mark.parametrize("route", [route for route in NEEDS if NEEDS[route] is not None], ids=" ".join)
def test_no_token_of_a_restored_backup_is_valid(house: House, restored: House, route: tuple[str, str]) -> None:
    """Tokens of the restored service are valid there only."""
    (method, path), body = route, BODIES.get(route)
    for role in house.tokens:
        assert restored.call(method, filled(path), house.tokens[role], json=body).status_code == 401, role
        assert house.call(method, filled(path), restored.tokens[role], json=body).status_code == 401, role
    assert restored.call(method, filled(path), "operate", json=body).status_code not in (401, 403)


@pytest.mark.parametrize("route", NEEDS, ids=" ".join)
def test_who_may_do_what(house: House, revoked: str, route: tuple[str, str]) -> None:
    """Every role, no token, and wrong ones; then the best token from a page of elsewhere."""
    (method, path), needed = route, NEEDS[route]
    roles = ["read", "submit", "operate"]
    body = BODIES.get(route)
    for role in (None, "sw_x_y", "sw_none", "", "Basic x", revoked, *roles):
        status = house.call(method, filled(path), role, json=body).status_code
        if needed is None:
            assert status == 200
        elif role not in roles:
            assert status == 401, role
        elif roles.index(role) < roles.index(needed) or (role == "submit" and path in OF_ALL):
            assert status == 403, role
        else:
            assert status not in (401, 403), role
    for host in ("evil.example", "evil.example:8700", "127.0.0.1.evil.example", ""):
        assert house.call(method, filled(path), headers={"Host": host}, json=body).status_code == 421, host
    for origin in ("http://evil.example", "null", "https://127.0.0.1.evil.example", "http://localhost.evil:8700"):
        assert house.call(method, filled(path), headers={"Origin": origin}, json=body).status_code == 403, origin
    for host in ("127.0.0.1:8700", "localhost", "[::1]:8700"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert house.call(method, filled(path), headers=headers, json=body).status_code not in (403, 421), host


def test_requests_that_are_too_large_are_refused(house: House) -> None:
    assert house.call("POST", "/v1/jobs", headers={"Content-Length": str(10**9)}, content=b"x").status_code == 413


def test_tenants_see_their_own_jobs(house: House) -> None:
    one, two = house.guard.create("submit", "physics")[1], house.guard.create("submit", "biology")[1]
    number = house.submit(one, duration=SLOW)
    house.until_placed(number)
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


def test_a_tenant_asks_for_its_own_share_only(house: House) -> None:
    physics = house.guard.create("read", "physics")[1]
    for share, status in (
        ({"physics": 0.5}, 200),
        ({"biology": 0.5}, 403),
        ({"physics": 0.5, "biology": 0.1}, 403),
    ):
        assert house.call("POST", "/v1/whatif", physics, json={"share": share}).status_code == status
    assert house.call("POST", "/v1/whatif", json={"share": {"biology": 0.5}}).status_code == 200
    for part in (0.0, 1.0, -1.0):
        assert house.call("POST", "/v1/whatif", json={"share": {"physics": part}}).status_code == 422


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


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_of_this_machine_has_no_token(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = keep_own_token(house.guard, "127.0.0.1", 8701)
    for folder in (path.parent, *path.parents):  # so that the file alone has to hold
        if folder.is_relative_to(tmp_path.parents[1]):
            folder.chmod(0o755)
    seen = subprocess.run(
        ["cat", str(path)], user=65534, group=65534, extra_groups=[], capture_output=True, check=False
    )
    assert (seen.returncode, seen.stdout) == (1, b"")


def test_a_chunked_request_that_is_too_large_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length is not announced, so that it is counted."""
    pieces = (b"x" * 1_000_000 for _ in range(65))
    answer = house.call("POST", "/v1/jobs", content=pieces, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_operator_submits_for_a_tenant_and_nobody_else_does(house: House) -> None:
    number = house.submit("operate", tenant="chemistry", duration=SLOW)
    assert house.call("GET", f"/v1/jobs/{number}").json()["tenant"] == "chemistry"
    chemist, physicist = house.guard.create("submit", "chemistry")[1], house.guard.create("submit", "physics")[1]
    assert house.call("GET", f"/v1/jobs/{number}", chemist).status_code == 200
    for tenant, status in (("chemistry", 201), ("physics", 403)):
        body = {"argv": ["x"], "tenant": tenant}
        assert house.call("POST", "/v1/jobs", chemist, json=body).status_code == status
        assert house.call("POST", "/v1/jobs/bulk", chemist, json=[body]).status_code == status
    assert house.call("GET", f"/v1/jobs/{number}", physicist).status_code == 404


def test_secrets_in_the_environment_are_not_shown(house: House) -> None:
    number = house.submit(env={"PASSWORD": "hunter2"}, duration=0)
    for path in (f"/v1/jobs/{number}", "/v1/jobs", "/v1/events?after=0&follow=false", f"/v1/jobs/{number}/explain"):
        assert "hunter2" not in house.call("GET", path).text
    assert house.call("GET", f"/v1/jobs/{number}").json()["env"] == ["PASSWORD"]


def test_too_many_requests(tmp_path: Path) -> None:
    now = 0.0
    limits = Limits(lambda tenant: 0, rate=10.0, clock=lambda: now)
    ann, bob, chief = Caller("1", "submit", "t"), Caller("2", "read", "*"), Caller("3", "operate", "*")
    assert [limits.knock(ann) for _ in range(20)] == [0.0] * 20
    assert limits.knock(ann) == pytest.approx(0.1)
    assert limits.knock(bob) == 0.0
    assert not any(limits.knock(chief) for _ in range(1000))
    now = 1.0
    assert [limits.knock(ann) for _ in range(10)] == [0.0] * 10
    assert limits.knock(ann) > 0


def test_too_many_waiting_jobs(tmp_path: Path) -> None:
    house = House(tmp_path, waiting=5, rate=20.0, clock=lambda: 0.0)  # it stands still
    try:
        ann, bob = (house.guard.create("submit", name)[1] for name in ("ann", "bob"))
        first = [house.submit(ann, duration=SLOW) for _ in range(4)]  # they run, so that they do not count for long
        waiting = [house.submit(ann, duration=SLOW) for _ in range(5)]
        refused = house.call("POST", "/v1/jobs", ann, json={"argv": ["x"]})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        assert "5 jobs" in refused.json()["detail"]
        assert house.call("POST", "/v1/jobs", bob, json={"argv": ["x"], "array": "1-6"}).status_code == 429
        house.submit(bob, duration=SLOW, array="1-5")
        house.submit("operate", duration=SLOW)
        house.call("POST", f"/v1/jobs/{waiting[0]}/cancel", ann)
        house.submit(ann, duration=SLOW)
        assert len(first) == 4
        answers = [house.call("GET", "/v1/servers", ann) for _ in range(60)]
        assert answers[-1].status_code == 429
        assert answers[-1].headers["retry-after"] == "1"
    finally:
        house.service.close()

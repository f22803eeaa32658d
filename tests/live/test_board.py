"""The board and the past: what dashboards are told agrees with what happened; sessions of browsers let in whom they should."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from house import SLOW, House

from slotwise.live.board import Board, copy
from slotwise.live.dashboard.sessions import (
    CODE_SECONDS,
    MOST_CODES,
    SESSION_SECONDS,
    Sessions,
    cookie_name,
    keep_key,
)
from slotwise.live.store import history


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.service.close()


@pytest.fixture(scope="module")
def jobs(house: House) -> list[int]:
    """Four jobs that run for long, and two that wait."""
    numbers = [house.submit(duration=SLOW, name=f"Job {n} 100%_!") for n in range(6)]
    for number in numbers[:4]:
        house.until_placed(number)
    return numbers


def board_of(house: House) -> Board:
    return house.service.loop.ask(copy).result().board()


def test_the_board_says_what_runs_and_waits(house: House, jobs: list[int]) -> None:
    full = house.call("GET", "/v1/board").json()
    assert full["names"] == ["s"]
    assert full["servers"] == [[0, 4, [4, 0], [0, 0]]]
    waiting, running, oldest = full["queues"]["one"]
    assert (waiting, running) == (2, 4)
    assert oldest == house.call("GET", f"/v1/jobs/{jobs[4]}").json()["submitted"]
    assert full["seq"] == house.service.loop.ledger.seq


def applied(board: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """What a browser makes of a change."""
    rows = list(board["servers"])
    for at, *row in delta.get("servers", []):
        rows[at] = row
    names = board["names"] + [row[0] for row in delta.get("added", [])]
    rows += [row[2:] for row in delta.get("added", [])]
    kept = {name: delta[name] for name in ("seq", "now", "live", "fault", "reasons") if name in delta}
    return {
        **board,
        "names": names,
        "servers": rows,
        "queues": {**board["queues"], **delta.get("queues", {})},
        **kept,
    }


def test_changes_lead_from_one_board_to_the_next(tmp_path: Path) -> None:
    house = House(tmp_path)
    for _ in range(6):
        house.submit(duration=SLOW)
    before = board_of(house)
    house.call("POST", "/v1/servers", json={"name": "later", "server_class": "a"})
    house.call("POST", "/v1/servers/s/drain", json={"reason": "to see"})
    for _ in range(3):
        house.submit(duration=SLOW)
    after = board_of(house)
    delta = after.since(before)
    assert delta is not None
    made = applied(before.full(), delta)
    whole = after.full()
    for name in ("seq", "names", "servers", "queues", "reasons", "live"):
        assert made[name] == whole[name], name
    assert whole["servers"][0][0] == whole["statuses"].index("draining")
    house.call("PATCH", "/v1/cluster", json={"policy": "first-fit"})
    assert board_of(house).since(after) is None, "another policy: only the whole board can say it"
    house.service.close()


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_the_stream_begins_with_the_whole_board_where_changes_are_not_kept(house: House, jobs: list[int]) -> None:
    ((kind, whole),) = events(house.call("GET", "/v1/board/changes?follow=false&after=1").text)
    assert kind == "full"
    assert whole["names"][0] == "s"
    again = events(house.call("GET", f"/v1/board/changes?follow=false&after={whole['seq']}").text)
    assert {kind for kind, _ in again} <= {"delta"}
    seq = whole["seq"]
    for _, delta in again:
        assert delta["after"] == seq, "no change is missing or told twice"
        seq = delta["seq"]


def test_a_request_whose_client_has_gone_does_not_end_the_loop(house: House) -> None:
    loop = house.service.loop
    inside, on = threading.Event(), threading.Event()

    def busy(*_: object) -> None:
        inside.set()
        on.wait(60)

    first = loop.ask(busy)
    inside.wait(60)
    done: list[int] = []
    dropped = loop.ask(lambda *_: done.append(1))
    assert dropped.cancel()
    assert not first.cancel(), "what has begun is answered"
    on.set()
    assert loop.ask(lambda *_: "on").result(60) == "on"
    assert not done
    assert house.call("GET", "/readyz").status_code == 200


def test_history_agrees_with_the_jobs(house: House, jobs: list[int]) -> None:
    store, now = house.service.store, house.service.loop.clock.now() + 1
    (series,) = history.queues(store, since=now - 3600, until=now, points=7)
    counts = store.counts()
    assert series.length[-1] == counts["waiting"]
    assert sum(series.arrivals) == sum(counts.values())
    placed = [job for job in store.jobs(history_query(1000)) if job.placed is not None]
    assert sum(series.starts) == len(placed)
    means = [w * n for w, n in zip(series.wait, series.starts, strict=True) if w is not None]
    assert sum(means) == pytest.approx(sum(job.placed - job.submitted for job in placed))  # type: ignore[operator]
    cut = placed[len(placed) // 2].submitted  # a window that begins in the middle counts what was there before
    (part,) = history.queues(store, since=cut, until=now, points=3)
    assert part.length[-1] == counts["waiting"]
    by = history.queues(store, since=now - 3600, until=now, points=2, by="tenant")
    assert sum(one.length[-1] for one in by) == counts["waiting"]
    assert history.queues(store, since=now - 3600, until=now, points=2, tenant="nobody") == []


def history_query(limit: int) -> Any:
    from slotwise.live.store.records import Query

    return Query(limit=limit)


def test_timeline_journal_and_the_rows_of_a_job(house: House, jobs: list[int]) -> None:
    spans = house.call("GET", "/v1/timeline", params={"server": "s"}).json()
    assert spans["complete"]
    assert {span["job"] for span in spans["spans"]} >= set(jobs[:4])
    page = house.call("GET", "/v1/journal", params={"limit": 5}).json()
    numbers = [row["seq"] for row in page["rows"]]
    assert numbers == list(range(page["last"], page["last"] - 5, -1))
    older = house.call("GET", "/v1/journal", params={"before": numbers[-1], "limit": 2}).json()
    assert [row["seq"] for row in older["rows"]] == [numbers[-1] - 1, numbers[-1] - 2]
    newer = house.call("GET", "/v1/journal", params={"after": numbers[1]}).json()
    assert [row["seq"] for row in newer["rows"]] == numbers[:1]
    rows = house.call("GET", f"/v1/jobs/{jobs[0]}/history").json()
    assert [row["event"]["event"] for row in rows] == ["submit", "started"]
    assert rows[0]["placements"] == [[jobs[0], "s", 1]]
    wrong = house.call("GET", "/v1/queues/history", params={"since": 10, "until": 5})
    assert wrong.status_code == 400
    assert "since" in wrong.json()["detail"]


def test_kinds_of_rows_are_searched_in_bounded_pieces(
    house: House, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    house.call("POST", "/v1/servers/s/drain", json={"reason": "dust"})
    house.call("POST", "/v1/servers/s/resume")
    everything = house.call("GET", "/v1/journal", params={"limit": 1000}).json()["rows"]
    changes = {"join", "drain", "resume", "remove", "fail", "change", "epoch"}
    expected = {
        "all": [row["seq"] for row in everything],
        "starts": [row["seq"] for row in everything if row["placements"]],
        "changes": [row["seq"] for row in everything if row["event"]["event"] in changes],
        "trouble": [],
    }
    assert expected["starts"]
    assert len(expected["changes"]) >= 3
    monkeypatch.setattr(history, "SCANNED", 3)
    for kind, numbers in expected.items():
        found: list[int] = []
        before: int | None = None
        while True:
            asked = {"kind": kind, "limit": 2} | ({} if before is None else {"before": before})
            page = house.call("GET", "/v1/journal", params=asked).json()
            found += [row["seq"] for row in page["rows"]]
            before = page["next"]
            if before is None:
                break
        assert found == numbers, kind


def test_queues_begin_with_the_store(house: House, jobs: list[int]) -> None:
    now = house.service.loop.clock.now()
    found = house.call("GET", "/v1/queues/history", params={"points": 10}).json()
    assert now - 600 < found["since"] <= now, "an hour was asked for; the store is seconds old"
    assert found["series"][0]["length"][-1] == house.service.store.counts()["waiting"]


def test_refusals_name_what_is_short(house: House, jobs: list[int]) -> None:
    found = house.call("GET", f"/v1/jobs/{jobs[5]}/refusals").json()
    (first, *_) = [one for one in found["servers"] if one["server"] == "s"]
    assert first["lacks"] == {"cpu": 1.0}
    assert first["free"]["cpu"] == 0
    assert sum(found["counts"].values()) == len(house.call("GET", "/v1/board").json()["names"])
    nothing = {"state": "running", "demand": {}, "counts": {}, "servers": []}
    assert house.call("GET", f"/v1/jobs/{jobs[0]}/refusals").json() == nothing, "a job that runs is not refused"


def test_usage_by_tenant_and_who_sees_it(house: House, jobs: list[int]) -> None:
    everything = house.call("GET", "/v1/usage").json()
    (row,) = [row for row in everything["rows"] if row["group"]["tenant"] == jobs_tenant(house, jobs)]
    assert row["started"] >= 4
    assert row["hours"]["cpu"] > 0
    assert everything["complete"]
    assert everything["keep_days"] == 30
    other = house.guard.create("submit", "elsewhere")[1]
    assert house.call("GET", "/v1/usage", other).json()["rows"] == []
    assert house.call("GET", "/v1/usage?tenant=elsewhere").json()["rows"] == []
    assert house.call("GET", f"/v1/usage?tenant={jobs_tenant(house, jobs)}", other).status_code == 403
    assert house.call("GET", "/v1/usage?since=5").json()["complete"] is False
    total = house.call("GET", "/v1/usage?by=,").json()["rows"]
    assert [one["group"] for one in total] == [{}]
    for wrong in ("by=colour", "since=2000&until=1000", "since=1e10"):
        assert house.call("GET", f"/v1/usage?{wrong}").status_code == 400


def jobs_tenant(house: House, jobs: list[int]) -> str:
    return str(house.call("GET", f"/v1/jobs/{jobs[0]}").json()["tenant"])


@pytest.mark.parametrize(
    ("text", "found"), [("100%_!", 6), ("job 3", 1), ("100x_!", 0), ("100%__", 0), ("%", 6), ("'; --", 0)]
)
def test_search_takes_text_as_it_is(house: House, jobs: list[int], text: str, found: int) -> None:
    answer = house.call("GET", "/v1/jobs", params={"search": text, "limit": 1000}).json()
    assert len(answer["jobs"]) == found


def test_a_number_finds_its_job(house: House, jobs: list[int]) -> None:
    answer = house.call("GET", "/v1/jobs", params={"search": str(jobs[2])}).json()
    assert jobs[2] in [job["id"] for job in answer["jobs"]]


def test_tenants_see_rows_of_their_own_jobs(house: House, jobs: list[int]) -> None:
    mine, other = house.guard.create("submit", "geology")[1], house.guard.create("submit", "botany")[1]
    number = house.submit(mine, name="rock")
    for path in ("history", "refusals"):
        assert house.call("GET", f"/v1/jobs/{number}/{path}", other).status_code == 404
    rows = house.call("GET", "/v1/journal", mine, params={"limit": 1000}).json()["rows"]
    assert {row["event"].get("job", number) for row in rows} == {number}
    assert {placement[0] for row in rows for placement in row["placements"]} <= {number}
    assert house.call("GET", "/v1/journal", other, params={"limit": 1000}).json()["rows"] == []
    assert house.call("GET", "/v1/queues/history", other).json()["series"] == []
    assert house.call("GET", "/v1/timeline", other, params={"server": "s"}).json()["spans"] == []


# -- sessions ---------------------------------------------------------------------------------------------------


class Hands:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


HOST = {"host": "127.0.0.1:8700"}


def cookie(value: str) -> dict[str, str]:
    return {**HOST, "cookie": f"other=1; {cookie_name(HOST['host'])}={value}"}


def test_a_code_opens_one_session_that_ends(house: House) -> None:
    hands = Hands()
    sessions = Sessions(house.guard, b"k" * 32, hands)
    caller = house.guard.caller(f"Bearer {house.tokens['submit']}")
    assert caller is not None
    code, _ = sessions.code(caller)
    value = sessions.redeem(code)
    assert value is not None
    assert sessions.redeem(code) is None, "a code works once"
    assert sessions.redeem("") is None
    assert sessions.caller("GET", cookie(value)) == caller
    assert Sessions(house.guard, b"k" * 32, hands).caller("GET", cookie(value)) == caller, "after a restart, too"
    assert Sessions(house.guard, b"l" * 32, hands).caller("GET", cookie(value)) is None
    late, _ = sessions.code(caller)
    hands.now += CODE_SECONDS + 1
    assert sessions.redeem(late) is None
    hands.now += SESSION_SECONDS
    assert sessions.caller("GET", cookie(value)) is None


def test_a_caller_that_asks_for_many_codes_voids_only_its_own(house: House) -> None:
    hands = Hands()
    sessions = Sessions(house.guard, b"k" * 32, hands)
    own = house.guard.caller(f"Bearer {house.tokens['operate']}")
    hostile = house.guard.caller(f"Bearer {house.tokens['read']}")
    assert own is not None
    assert hostile is not None
    code, _ = sessions.code(own)
    many = [sessions.code(hostile)[0] for _ in range(2000)]
    assert len(sessions._codes) <= 1 + MOST_CODES
    assert [sessions.redeem(one) is not None for one in (many[0], many[-1], code)] == [False, True, True]
    hands.now += CODE_SECONDS + 1
    sessions.code(own)
    assert len(sessions._codes) == 1, "expired codes take no memory"


def test_a_session_cannot_be_changed_or_outlive_its_token(house: House) -> None:
    sessions = Sessions(house.guard)
    token, secret = house.guard.create("operate")
    caller = house.guard.caller(f"Bearer {secret}")
    assert caller is not None
    value = sessions.redeem(sessions.code(caller)[0])
    assert value is not None
    for at in range(len(value)):
        other = value[:at] + ("A" if value[at] != "A" else "B") + value[at + 1 :]
        assert sessions.caller("GET", cookie(other)) is None, at
    for wrong in ("", "....", "a.b.c.d", "\x00", value[:-1], f"{value}=", "é.1.2.3"):
        assert sessions.caller("GET", cookie(wrong)) is None
    assert sessions.caller("GET", cookie(value)) == caller
    sessions.end(cookie(value))
    assert sessions.caller("GET", cookie(value)) is None
    again = sessions.redeem(sessions.code(caller)[0])
    assert again is not None
    house.guard.revoke(token.id)
    assert sessions.caller("GET", cookie(again)) is None


ELSEWHERE = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},  # a page at another port of this machine
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
]


def logged_in(house: House, role: str = "operate") -> str:
    house.http.cookies.clear()
    path = house.call("POST", "/v1/login-codes", role).json()["path"]
    answer = house.http.get(path, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    set_cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in set_cookie
    assert "samesite=strict" in set_cookie
    value = answer.cookies[cookie_name(HOST["host"])]
    house.http.cookies.clear()
    return str(value)


def test_no_page_of_elsewhere_acts_with_a_session(house: House) -> None:
    sent = {"Cookie": f"{cookie_name(HOST['host'])}={logged_in(house)}"}
    path, body = "/v1/servers/s/drain", {"reason": "a page of elsewhere"}

    def post(headers: dict[str, str]) -> int:
        return int(house.http.post(path, headers={**sent, **headers}, json=body).status_code)

    assert post({}) == 401, "without the header that other origins cannot send"
    for headers in ELSEWHERE:
        assert post({"X-Slotwise": "1", **headers}) in (401, 403), headers
        status = house.http.get("/v1/jobs", headers={**sent, **headers}).status_code
        assert status in (401, 403), headers
    assert board_of(house).reasons.get("s") != "a page of elsewhere"
    own = {"X-Slotwise": "1", "Origin": "http://127.0.0.1:8700", "Sec-Fetch-Site": "same-origin"}
    assert post(own) == 200
    assert house.call("POST", "/v1/servers/s/resume").status_code == 200
    assert house.http.post("/logout", headers={**sent, "Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert house.http.post("/logout", headers={**sent, "X-Slotwise": "1"}).status_code == 204
    assert post(own) == 401


def test_a_session_has_the_role_of_its_token(house: House, jobs: list[int]) -> None:
    for role, status in (("read", 403), ("submit", 403), ("operate", 200)):
        headers = {"Cookie": f"{cookie_name(HOST['host'])}={logged_in(house, role)}", "X-Slotwise": "1"}
        me = house.http.get("/v1/me", headers=headers).json()
        assert (me["role"], me["offers"]) == (role, ["forecasts", "whatif", "advice"])
        assert house.http.post("/v1/servers/s/resume", headers=headers).status_code == status
    assert house.http.get("/login?code=wrong", follow_redirects=False).headers["location"] == "/#/login?wrong"
    framed = house.http.get("/login?code=x", headers={"Sec-Fetch-Dest": "iframe"}, follow_redirects=False)
    assert framed.status_code == 403


def test_pages_are_small_and_strict(house: House) -> None:
    page = house.http.get("/", headers={"Accept-Encoding": "identity"})
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert house.http.get("/assets/app.js", headers={"If-None-Match": "x"}).status_code == 200
    tag = house.http.get("/assets/app.js").headers["etag"]
    assert house.http.get("/assets/app.js", headers={"If-None-Match": tag}).status_code == 304
    for name in ("../__init__.py", "..%2fpages.py", "/etc/passwd", "vendor", "", "app.js.map"):
        assert house.http.get(f"/assets/{name}").status_code == 404, name


def test_the_key_is_kept_and_is_for_its_user_only(tmp_path: Path) -> None:
    key = keep_key(tmp_path / "key")
    assert keep_key(tmp_path / "key") == key
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0


def test_large_boards_are_packed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotwise.live.api.board.LARGE", 10)
    packed = house.call("GET", "/v1/board", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    plain = house.call("GET", "/v1/board", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert len(gzip.compress(plain.content)) < len(plain.content)

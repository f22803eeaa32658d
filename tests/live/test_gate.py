"""What stands before the handlers: who asks is known before a body is read; sizes, numbers at the same time, streams, headers."""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from house import Exchange, House

from slotwise.live.api import connections, gate
from slotwise.live.api.limits import Limits, Streams
from slotwise.live.api.slots import KeyedSlots, NoSlotError
from slotwise.live.api.submissions import INLINE, off_the_loop, read_json, read_many
from slotwise.live.auth import Caller


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.service.close()


def test_no_body_is_read_before_the_caller_is_known(house: House) -> None:
    async def run() -> None:
        huge = {"content-length": "63000000", "content-type": "application/json"}
        for path in ("/v1/jobs", "/v1/jobs/bulk", "/v1/tokens", "/none"):
            for headers in (huge, {"transfer-encoding": "chunked"}, {"content-length": "2"}):
                one = Exchange(house.app, "POST", path, "sw_x_y", body=[b"[{},"] * 9, headers=headers)
                await one.ended()
                assert (one.status, one.read, one.headers["connection"]) == (401, 0, "close")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("role", "path", "size", "status"),
    [
        ("read", "/v1/jobs", 64_001, 413), ("read", "/v1/jobs/bulk", 64_001, 413), ("submit", "/v1/jobs", 8_000_001, 413),
        ("submit", "/v1/jobs/bulk", 32_000_001, 413), ("operate", "/v1/tokens", 1_000_001, 413), ("read", "/v1/jobs", 100, 403),
    ],
)  # fmt: skip
def test_sizes_of_bodies(house: House, role: str, path: str, size: int, status: int) -> None:
    async def run() -> None:
        told = Exchange(
            house.app, "POST", path, house.tokens[role], body=[b" " * 100], headers={"content-length": str(size)}
        )
        await told.ended()
        assert told.status == status
        if status == 413:
            assert told.read == 0
            pieces = [b" " * 50_000] * (size // 50_000 + 50)
            counted = Exchange(
                house.app, "POST", path, house.tokens[role], body=pieces, headers={"transfer-encoding": "chunked"}
            )
            await counted.ended()
            assert counted.status == 413
            assert counted.read <= size + 50_000

    asyncio.run(run())


def test_a_body_that_does_not_come_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.0)

    async def run() -> None:
        one = Exchange(house.app, "POST", "/v1/jobs", house.tokens["submit"], headers={"content-length": "10"})
        await one.ended()
        assert one.status == 408

    asyncio.run(run())


def test_refusals_come_after_a_pause(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many refused requests take little time of the service. Other answers come at once."""
    monkeypatch.setattr(house.limits, "pause", 0.05)
    for method, path, role, status in (
        ("GET", "/v1/jobs", None, 401), ("POST", "/v1/jobs/bulk", "sw_x_y", 401), ("GET", "/metrics", "submit", 403),
        ("POST", "/v1/jobs/bulk", "submit", 400),
    ):  # fmt: skip
        began = time.monotonic()
        content = b"[]" if method == "POST" else None
        assert house.call(method, path, role, content=content).status_code == status
        assert time.monotonic() - began >= 0.05
    monkeypatch.setattr(house.limits, "pause", 1e9)
    assert house.call("GET", "/v1/jobs", "submit").status_code == 200
    assert house.call("POST", "/v1/jobs", "operate", json={}).status_code == 400


def test_refusals_of_one_token_follow_one_another() -> None:
    """Many connections of one token get no more refusals a second than one connection. None waits longer than five seconds."""
    limits = Limits(lambda tenant: 0, pause=0.2, clock=lambda: 100.0)
    assert [round(limits.refused("a"), 3) for _ in range(3)] == [0.2, 0.4, 0.6]
    assert limits.refused("b") == pytest.approx(0.2)
    assert max(limits.refused("a") for _ in range(100)) == 5.0


def test_a_tenant_rests_after_a_large_body_that_was_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "REST", 1e9)
    tokens = [house.guard.create("submit", tenant)[1] for tenant in ("one", "other")]
    bad = [b"[" + b" " * 100_000 + b"{}]"]
    headers = {"content-length": str(len(bad[0]))}

    async def run() -> None:
        refused = Exchange(house.app, "POST", "/v1/jobs/bulk", tokens[0], body=bad, headers=headers)
        await refused.next()
        assert refused.status == 400
        again = Exchange(house.app, "POST", "/v1/jobs/bulk", tokens[0], body=bad, headers=headers)
        small = Exchange(house.app, "POST", "/v1/jobs", tokens[0], body=[b"{}"], headers={"content-length": "2"})
        await small.ended()
        other = Exchange(house.app, "POST", "/v1/jobs/bulk", tokens[1], body=bad, headers=headers)
        await other.next()
        assert (again.read, small.status, other.status) == (0, 400, 400)
        for one in (refused, again, other):
            one.task.cancel()
            await asyncio.gather(one.task, return_exceptions=True)

    asyncio.run(run())


def test_slow_questions_of_one_token_hold_up_no_other(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty comparisons that take long: they need no thread that submissions and lists of other callers need."""
    release, asked = threading.Event(), queue.SimpleQueue[str]()

    def slow(kind: str, **_: object) -> dict[str, str]:
        asked.put(kind)
        release.wait()
        return {"reason": "done"}

    monkeypatch.setattr(house.service.forecasts, "ask", slow, raising=False)
    hostile, other = (house.guard.create("submit", tenant)[1] for tenant in ("slow", "quick"))
    body, headers = b'{"hours": 1}', {"content-length": "12", "content-type": "application/json"}

    async def run() -> None:
        many = [
            Exchange(house.app, "POST", "/v1/whatif", hostile, body=[body], headers=headers)
            if n % 2
            else Exchange(house.app, "GET", "/v1/advice", hostile)
            for n in range(30)
        ]
        while asked.empty():
            await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
        for path in ("/v1/jobs", "/v1/servers"):
            one = Exchange(house.app, "GET", path, other)
            await one.ended()
            assert one.status == 200
        job = Exchange(
            house.app, "POST", "/v1/jobs", other, body=[b'{"argv":["x"]}'], headers={"content-length": "14"}
        )
        await job.ended()
        assert job.status == 201
        assert asked.qsize() == 1, "one question of a token at a time"
        release.set()
        await asyncio.gather(*(one.ended() for one in many))
        assert {one.status for one in many} == {200}

    asyncio.run(run())


def test_counting_waiting_jobs_of_one_tenant_holds_up_no_other() -> None:
    """The event loop asks for limits, so it must not wait for a count that takes long."""
    counting, release = threading.Event(), threading.Event()

    def count(tenant: str) -> int:
        counting.set()
        release.wait()
        return 99

    limits = Limits(count, waiting=100)
    ann, bob = (Caller(name, "submit", name) for name in ("ann", "bob"))
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(limits.room(ann, 1))) for _ in range(3)]
    for thread in threads:
        thread.start()
    counting.wait()
    assert limits.knock(ann) == 0.0
    assert not limits.fits(bob, 1), "the store knows better"
    release.set()
    for thread in threads:
        thread.join()
    assert found == [True] * 3
    assert limits.room(ann, 1)
    assert not limits.room(ann, 2)


def test_many_small_values_are_refused_before_they_are_read(house: House) -> None:
    many = house.call("POST", "/v1/jobs/bulk", "submit", content=b"[" + b"1," * 300_001 + b"1]")
    assert (many.status_code, many.json()["detail"].partition(";")[0]) == (
        413,
        "the request has more than 300,000 values",
    )
    few = house.call("POST", "/v1/jobs/bulk", "submit", content=b"[" + b"{}," * 60_000 + b"{}]")
    assert (few.status_code, few.json()["detail"].partition(";")[0]) == (
        413,
        "the request has more than 60,000 objects",
    )
    assert house.call("POST", "/v1/jobs/bulk", "submit", content=b"[" * 100_000).status_code == 422
    mistakes = json.dumps([{}] * 10_000).encode()
    assert (
        house.call("POST", "/v1/jobs/bulk", "submit", content=mistakes).json()["detail"]
        == "[0].argv: is missing; send the command and its arguments as a list"
    )


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"argv": ["x"], "needs": {"cpu": 1, "cpu": 2}}', "cpu: is named twice; send each key once"),
        (b'{"argv": ["x"], "argv": ["y"]}', "argv: is named twice; send each key once"),
        (b'{"argv": ["x"], "needs": {"cpu": -1}}', "needs.cpu: is -1; send at least 0"),
        (b'{"argv": ["x"], "needs": {"cpu": "two"}}', "needs.cpu: is 'two'; send a number"),
        (b'{"argv": "echo hi"}', "argv: is 'echo hi'; send a list"),
        (b'{"argv": []}', "argv: is empty; send at least 1"),
        (b"[]", "the body: is a list; send an object"),
        (b'{"argv": ["x"], "shell": 1}', "shell: is unknown; see /openapi.json for what can be sent"),
        (b'{"argv": ["x"], "cwd": "."}', "cwd: '.' is relative; send an absolute path"),
        (b'{"argv": ["x"], "on_loss": "ask"}', "on_loss: is 'ask'; send one of: 'fail' or 'requeue'"),
        (b'{"argv": ["x"], "name": "a\\u0007b"}', "name: 'a\\x07b' has characters that are not allowed; leave control characters out"),
        (b"{", "the body is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b'{"argv": ["x"], "duration": NaN}', "the body is not JSON: NaN is no number"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_words_of_our_own(house: House, body: bytes, detail: str) -> None:
    answer = house.call("POST", "/v1/jobs", "submit", content=body)
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)


def test_large_bodies_are_read_without_the_event_loop() -> None:
    """Other requests are answered while a large body is read: its objects are made one by one, in a thread."""
    seen = []

    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen.append(len(pairs))
        return dict(pairs)

    assert len(read_many(json.dumps([{"argv": ["x"]}] * 10_000).encode())) == 10_000
    assert read_json(b"[1, 2]") == [1, 2]
    json.loads(b'[{"a": 1}, {}]', object_pairs_hook=hook)
    assert seen == [1, 0], "each object calls Python, so that other threads get their turn"

    async def threads() -> list[bool]:
        here = threading.get_ident()
        bodies = (bytes(INLINE), bytes(INLINE + 1), b'{"array": "1-9"}')
        return [await off_the_loop(lambda _: threading.get_ident(), body) == here for body in bodies]

    assert asyncio.run(threads()) == [True, False, False]


def test_slots_are_given_in_order_and_not_without_end() -> None:
    async def run() -> None:
        slots, order = KeyedSlots(2, 1), []
        ends = [asyncio.Event() for _ in range(3)]

        async def use(n: int) -> None:
            async with slots.one("a"):
                order.append(n)
                await ends[n].wait()

        tasks = [asyncio.create_task(use(n)) for n in range(3)]
        while len(order) < 2:
            await asyncio.sleep(0)
        with pytest.raises(NoSlotError):
            async with slots.one("a"):
                pass
        async with slots.one("b"):
            assert order == [0, 1]
        ends[1].set()
        await tasks[1]
        while len(order) < 3:
            await asyncio.sleep(0)
        ends[0].set()
        ends[2].set()
        await asyncio.gather(*tasks)
        assert not slots._slots, "nothing is kept for keys without requests"

    asyncio.run(run())


def test_answers_tell_browsers_to_be_careful(house: House) -> None:
    for path, role in (("/healthz", None), ("/v1/jobs", "read"), ("/v1/jobs", None), ("/none", None)):
        headers = house.call("GET", path, role).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["cache-control"] == "no-store"


def test_pages_of_other_ports_and_schemes_are_other_sites(house: House) -> None:
    def status(host: str, origin: str) -> int:
        return house.call("GET", "/v1/jobs", headers={"Host": host, "Origin": origin}).status_code

    assert status("127.0.0.1:8700", "http://127.0.0.1:8700") == 200
    assert status("localhost", "http://localhost:80") == 200
    for origin in (
        "http://127.0.0.1:9999", "http://127.0.0.1", "https://127.0.0.1:8700", "http://localhost:8700", "127.0.0.1:8700", "null",
        "http://127.0.0.1:8700/x", "http://x@127.0.0.1:8700", "http://127.0.0.1:99999", "file://127.0.0.1:8700",
    ):  # fmt: skip
        assert status("127.0.0.1:8700", origin) == 403, origin


def test_why_the_service_is_not_ready_is_not_told_to_everybody(house: House) -> None:
    house.service.loop.trouble = "the store cannot be written: /secret/path"
    try:
        answer = house.call("GET", "/readyz", None)
    finally:
        house.service.loop.trouble = None
    assert (answer.status_code, answer.text) == (503, "not ready\n")


def test_a_key_stands_for_one_content(house: House) -> None:
    def submit(**job: Any) -> tuple[int, Any]:
        answer = house.call("POST", "/v1/jobs", "submit", json={"argv": ["x"], "key": "k1", **job})
        return answer.status_code, answer.json().get("id", answer.json().get("detail"))

    status, number = submit()
    assert (status, submit()) == (201, (201, number))
    for other in ({"argv": ["y"]}, {"name": "n"}, {"needs": {"cpu": 2}}, {"array": "1-2"}):
        status, detail = submit(**other)
        assert status == 409
        assert f"was used for another submission, job {number}" in detail
    job = {"argv": ["x"], "key": "k2"}
    both = house.call("POST", "/v1/jobs/bulk", "submit", json=[job, job])
    assert len(set(both.json()["ids"])) == 1
    job["key"] = "k3"
    assert house.call("POST", "/v1/jobs/bulk", "submit", json=[job, {**job, "argv": ["y"]}]).status_code == 409


# -- streams -------------------------------------------------------------------------------------------------------


def test_a_stream_ends_when_its_token_is_revoked(house: House) -> None:
    async def run() -> None:
        token, secret = house.guard.create("read")
        other = house.guard.create("read")[1]
        ends, stays = (Exchange(house.app, "GET", "/v1/events", one) for one in (secret, other))
        for one in (ends, stays):
            await one.until(b": waiting")
        await asyncio.to_thread(house.guard.revoke, token.id)
        await ends.ended()
        number = await asyncio.to_thread(house.submit)
        await stays.until(f'"job": {number}'.encode())
        assert not any(f'"job": {number}'.encode() in piece for piece in ends._said._queue)  # type: ignore[attr-defined]
        await stays.hang_up()

    asyncio.run(run())


def test_a_stream_of_the_board_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    house = House(tmp_path)  # of its own: the board belongs to one event loop

    async def run() -> None:
        token, secret = house.guard.create("read")
        ends, stays = (
            Exchange(house.app, "GET", "/v1/board/changes", one) for one in (secret, house.guard.create("read")[1])
        )
        for one in (ends, stays):
            await one.until(b"event: full")
        await asyncio.to_thread(house.guard.revoke, token.id)
        while not ends._said.empty():
            await ends.next()  # what was told before
        await asyncio.to_thread(house.submit)
        await stays.until(b"event: delta")
        await ends.ended()
        assert not any(b"delta" in piece for piece in ends._said._queue)  # type: ignore[attr-defined]
        await stays.hang_up()

    asyncio.run(run())
    house.service.close()


def test_streams_of_the_board_count_among_those_of_a_token(tmp_path: Path) -> None:
    house = House(tmp_path)
    asked = "/v1/board/changes?follow=false"
    assert house.call("GET", asked, "read").status_code == 200
    with ExitStack() as opened:
        caller = house.guard.caller(f"Bearer {house.tokens['read']}")
        assert caller is not None
        for _ in range(20):
            opened.enter_context(house.app.state.house.streams.one(caller))
        assert house.call("GET", asked, "read").status_code == 429
        assert house.call("GET", asked, "submit").status_code == 200
    house.service.close()


def test_streams_of_one_token_share_their_pace() -> None:
    """Each of 21 streams sends a page every 0.5 s, all at the same moments, so that a page is read once for all. One stream does not wait."""
    streams = Streams()
    caller, other = Caller("t", "read", "a"), Caller("u", "read", "a")
    with ExitStack() as opened:
        for one in (other, *(caller for _ in range(21))):
            opened.enter_context(streams.one(one))
        moments = [round(now + streams.rest(caller, now), 6) for now in (7.01, 7.05, 7.49, 7.51)]
        assert moments == [7.5, 7.5, 7.5, 8.0]
        assert streams.rest(other, 7.003) == streams.rest(caller._replace(role="operate"), 7.003) == 0.0


def test_one_token_has_a_limit_on_streams(house: House) -> None:
    async def run() -> None:
        secret, other = house.guard.create("read")[1], house.guard.create("read")[1]
        opened = [Exchange(house.app, "GET", "/v1/events", secret) for _ in range(20)]
        for one in opened:
            await one.until(b": waiting")
        more = Exchange(house.app, "GET", "/v1/events", secret)
        await more.ended()
        assert (more.status, more.headers["retry-after"]) == (429, "10")
        another = Exchange(house.app, "GET", "/v1/events", other)
        await another.until(b": waiting")
        await opened[0].hang_up()
        again = Exchange(house.app, "GET", "/v1/events", secret)
        await again.until(b": waiting")
        for one in (*opened[1:], another, again):
            await one.hang_up()
        assert not house.app.state.house.streams._open

    asyncio.run(run())


def test_a_page_of_the_journal_is_one_piece_and_is_read_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that goes in the middle of a thousand rows caused a line in the log for each of them."""
    house.call("POST", "/v1/jobs/bulk", json=[{"argv": ["x"]}] * 300)
    store, asked = house.service.store, []
    entries = store.entries
    monkeypatch.setattr(store, "entries", lambda seq, limit: asked.append(seq) or entries(seq, limit=limit))

    async def run() -> None:
        streams = [Exchange(house.app, "GET", "/v1/events?after=0", house.tokens["read"]) for _ in range(9)]
        for one in streams:
            assert (await one.until(b"event: ")).count(b"\nevent: ") >= 300
        for one in streams:
            await one.hang_up()

    asyncio.run(run())
    assert asked.count(0) == 1


# -- connections ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT"])
def test_a_connection_that_sends_no_request_is_closed(
    house: House, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.01)

    async def run() -> None:
        config = uvicorn.Config(house.app, http=connections.PeerConnection, log_config=None, timeout_keep_alive=600)
        config.load()
        state = uvicorn.server.ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: connections.PeerConnection(config, state, {}), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(said)
        await reader.read()  # until the end
        writer.close()
        server.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_the_kernel_notices_peers_that_are_gone() -> None:
    with socket.socket() as sock:
        connections.notice_lost_peers(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000

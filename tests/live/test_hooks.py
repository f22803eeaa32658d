"""Hooks: what is told, to whom, signed, in order and at least once, also across restarts; only the file of the operator says where to."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import queue
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from house import SETUP, NoForecasts
from processes import PATIENCE

from slotwise.errors import InputError
from slotwise.live.engines.protocol import ServerUp
from slotwise.live.engines.simulated import SimulatedEngine
from slotwise.live.hooks import delivering
from slotwise.live.hooks.definition import Hook, hooks_of, read_hooks
from slotwise.live.hooks.delivering import HookDelivery
from slotwise.live.hooks.events import EVENTS, of_entry
from slotwise.live.newjob import NewJob
from slotwise.live.service import Service
from slotwise.live.store import open_store
from slotwise.live.store.records import Entry

SECRET = "0123456789abcdef0123456789abcdef"


class Receiver:
    """A web server that answers as a test says and keeps what it was sent."""

    def __init__(self) -> None:
        self.got: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        self.answers: list[int] = []
        """what the next requests are answered; then 200"""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.answers.pop(0) if outer.answers else 200
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{outer.url}elsewhere")
                self.end_headers()
                outer.got.put(({**dict(self.headers), "path": self.path, "status": str(status)}, body))

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next(self) -> tuple[dict[str, str], dict[str, Any]]:
        headers, body = self.got.get(timeout=PATIENCE)
        stamp = headers["Slotwise-Timestamp"]
        expected = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
        assert headers["Slotwise-Signature"] == f"v1={expected}"
        told = json.loads(body)
        assert headers["Slotwise-Delivery"] == told["id"]
        assert headers["Slotwise-Event"] == told["event"]
        return headers, told


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr(delivering, "FIRST_BACKOFF", 0.001)
    monkeypatch.setattr(delivering, "LONGEST_BACKOFF", 0.002)
    monkeypatch.setattr(delivering, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(delivering, "SAVE_SECONDS", 0.0)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "hook.secret"
    path.touch(0o600)
    path.write_text(SECRET + "\n")
    return path


class Cluster:
    """A service with hooks; the jobs on its simulated engine run until they are stopped, or fail at once."""

    def __init__(self, url: str, hooks: list[Hook]) -> None:
        engine = SimulatedEngine(
            [ServerUp("s", {"cpu": 4, "memory": 1000}, server_class="a")],
            lambda job, attempt, spec: float(spec.get("seconds", 0.001)),
        )
        self.service = Service(open_store(url), engine, SETUP, hooks=hooks)
        self.service.forecasts = NoForecasts()  # type: ignore[assignment]

    def submit(self, **spec: Any) -> int:
        job = NewJob(spec.pop("tenant", "t"), "one", {}, {}, name=spec.get("name", ""), body=json.dumps(spec))
        (number,) = self.service.loop.submit([job]).result(PATIENCE)
        return int(number)


def make(folder: Path, receiver: Receiver, on: list[str], **more: Any) -> Cluster:
    table = {"name": "chat", "on": on, "url": receiver.url, "secret_file": "hook.secret", **more}
    return Cluster(f"sqlite:///{folder}/x.db", hooks_of({"hooks": [table]}, f"{folder}/x.toml"))


def test_events_are_told_in_order_and_signed(tmp_path: Path, receiver: Receiver, secret: Path, soon: None) -> None:
    cluster = make(tmp_path, receiver, ["job.started", "job.done"])
    numbers = [cluster.submit(name=f"n{n}", labels={"run": "7"}) for n in range(5)]
    told = [receiver.next()[1] for _ in range(10)]
    assert [one["seq"] for one in told] == sorted(one["seq"] for one in told)
    done = [one["job"] for one in told if one["event"] == "job.done"]
    assert sorted(job["id"] for job in done) == numbers
    assert {(job["state"], job["labels"]["run"], job["tenant"]) for job in done} == {("done", "7", "t")}
    assert len({one["id"] for one in told}) == 10
    (view,) = cluster.service.hooks.views()
    assert (view["name"], view["target"]) == ("chat", receiver.url + "...")
    cluster.service.close()


def test_what_does_not_arrive_is_tried_again_and_order_is_kept(
    tmp_path: Path, receiver: Receiver, secret: Path, soon: None
) -> None:
    receiver.answers = [500, 503, 429, 200]
    cluster = make(tmp_path, receiver, ["job.done"])
    for n in range(3):
        cluster.submit(name=f"n{n}")
    got = [receiver.next() for _ in range(6)]
    assert [headers["status"] for headers, _ in got] == ["500", "503", "429", "200", "200", "200"]
    assert len({told["id"] for _, told in got[:4]}) == 1
    assert len({told["id"] for _, told in got}) == 3
    cluster.service.close()


def test_a_refused_event_is_given_up_and_no_redirect_is_followed(
    tmp_path: Path, receiver: Receiver, secret: Path, soon: None, until: Callable[..., None]
) -> None:
    receiver.answers = [302] * delivering.REFUSALS
    cluster = make(tmp_path, receiver, ["job.done"])
    cluster.submit()
    cluster.submit()
    got = [receiver.next() for _ in range(delivering.REFUSALS + 1)]
    assert {headers["path"] for headers, _ in got} == {"/"}
    assert len({told["id"] for _, told in got[:-1]}) == 1
    until(cluster.service.loop, lambda: cluster.service.hooks.views()[0]["delivered"])
    (view,) = cluster.service.hooks.views()
    assert view["given_up"] == 1
    assert view["failures"][0]["error"] == "answers 302: redirects are not followed"
    assert cluster.service.hooks.troubles() == [
        "hook chat gave up 1 events in the last 24 h: answers 302: redirects are not followed"
    ]
    cluster.service.close()


def test_a_restart_loses_no_event_and_invents_none(
    tmp_path: Path, receiver: Receiver, secret: Path, soon: None, until: Callable[..., None]
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    first = make(tmp_path, receiver, ["job.done"])
    first.submit()
    before = receiver.next()[1]
    first.service.close()
    silent = Cluster(url, [])  # without hooks: what happens now is told later
    number = silent.submit()
    until(silent.service.loop, lambda: silent.service.store.job(number).state == "done")  # type: ignore[union-attr]
    silent.service.close()
    third = make(tmp_path, receiver, ["job.done"])
    told = receiver.next()[1]
    if told["id"] == before["id"]:  # at least once: the position may not have been kept
        told = receiver.next()[1]
    assert (told["job"]["id"], told["event"]) == (number, "job.done")
    third.service.close()


def test_a_crash_repeats_events_with_the_same_identity(
    tmp_path: Path, receiver: Receiver, secret: Path, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        delivering.HookThread, "_save", lambda self, after: None
    )  # no position was kept before the crash
    first = make(tmp_path, receiver, ["job.done"])
    first.submit()
    with_position = delivering.state_of(None, 0)
    first.service.loop.ask(
        lambda ledger, now: ledger.batch.hooks.update(chat=json.dumps(delivering.asdict(with_position)))
    ).result(PATIENCE)
    before = receiver.next()[1]
    first.service.close()
    second = make(tmp_path, receiver, ["job.done"])
    assert receiver.next()[1] == before
    second.service.close()


def test_a_new_hook_is_not_told_of_the_past(
    tmp_path: Path, receiver: Receiver, secret: Path, soon: None, until: Callable[..., None]
) -> None:
    silent = Cluster(f"sqlite:///{tmp_path}/x.db", [])
    old = silent.submit()
    until(silent.service.loop, lambda: silent.service.store.job(old).state == "done")  # type: ignore[union-attr]
    silent.service.close()
    cluster = make(tmp_path, receiver, ["job.*"])
    number = cluster.submit()
    assert receiver.next()[1]["job"]["id"] == number
    cluster.service.close()


def test_only_one_tenant_is_told(tmp_path: Path, receiver: Receiver, secret: Path, soon: None) -> None:
    cluster = make(tmp_path, receiver, ["job.done", "server.*"], tenant="b")
    for tenant in "aabab":
        cluster.submit(tenant=tenant)
    assert [receiver.next()[1]["job"]["tenant"] for _ in range(2)] == ["b", "b"]
    cluster.service.close()


def test_commands_get_the_event_and_little_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soon: None, until: Callable[..., None]
) -> None:
    monkeypatch.setenv("SLOTWISE_TOKEN", "a secret")
    script = "import os, sys; open('told', 'a').write(sys.stdin.read() + '\\n' + repr(dict(os.environ)) + '\\n'); sys.exit(len(open('told').readlines()) < 4 and 'not yet')"
    monkeypatch.chdir(tmp_path)
    table = {"on": ["job.done"], "command": [sys.executable, "-c", script]}
    cluster = Cluster(f"sqlite:///{tmp_path}/x.db", hooks_of({"hooks": [table]}, "x.toml"))
    number = cluster.submit()
    until(cluster.service.loop, lambda: cluster.service.hooks.views()[0]["delivered"])
    (view,) = cluster.service.hooks.views()
    assert (view["name"], view["target"], view["recent"][0]["tries"]) == ("hook-1", sys.executable, 2)
    lines = (tmp_path / "told").read_text().splitlines()
    assert json.loads(lines[0]) == json.loads(lines[2])
    assert json.loads(lines[0])["job"]["id"] == number
    assert "SLOTWISE_EVENT" in lines[1]
    assert "a secret" not in lines[1]
    cluster.service.close()


def test_a_command_or_an_answer_that_never_ends(tmp_path: Path, secret: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        slow = {"name": "slow", "on": ["job.done"], "url": url, "secret_file": "hook.secret", "timeout": 0.3}
        stuck = {"name": "stuck", "on": ["job.done"], "command": ["sh", "-c", "sleep 1000 & wait"], "timeout": 0.3}
        loud = {"name": "loud", "on": ["job.done"], "command": ["sh", "-c", "echo broken >&2; exit 3"]}
        cluster = Cluster(
            f"sqlite:///{tmp_path}/x.db", hooks_of({"hooks": [slow, stuck, loud]}, f"{tmp_path}/x.toml")
        )
        assert cluster.service.hooks.test("slow") == "timed out"
        assert cluster.service.hooks.test("stuck") == "timed out"
        assert cluster.service.hooks.test("loud") == "exit code 3: broken"
        cluster.service.close()
        Slow.over.set()
        server.shutdown()


class Slow(http.server.BaseHTTPRequestHandler):
    """Answers with a byte now and then, so that no single wait is long."""

    over = threading.Event()

    def do_POST(self) -> None:
        while not self.over.wait(0.05):
            try:
                self.wfile.write(b"H")
            except OSError:
                return

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def entry(event: dict[str, Any], note: dict[str, Any] | None = None) -> Entry:
    return Entry(5, 1.0, json.dumps(event), "[]", None if note is None else json.dumps(note))


@pytest.mark.parametrize(
    ("event", "note", "names"),
    [
        ({"event": "complete", "job": 1, "now": 1}, {"state": "done", "exit_code": 0}, ["job.done"]),
        ({"event": "complete", "job": 1, "now": 1}, {"state": "failed", "exit_code": 3}, ["job.failed"]),
        ({"event": "complete", "job": 1, "now": 1}, {"state": "failed", "retry": 1, "due": 2}, ["job.retried"]),
        ({"event": "stop", "job": 1, "now": 1}, {"state": "lost", "reason": "x"}, ["job.lost"]),
        ({"event": "stop", "job": 1, "now": 1}, {"state": "cancelled"}, ["job.cancelled"]),
        ({"event": "dropped", "job": 1, "now": 1, "state": "cancelled"}, None, ["job.cancelled"]),
        ({"event": "cancel", "job": 1, "now": 1}, None, ["job.cancelled"]),
        ({"event": "requeue", "job": 1, "now": 1}, {"reason": "x"}, ["job.requeued"]),
        ({"event": "fail", "server": "s", "now": 1}, {"reason": "x"}, ["server.lost"]),
        ({"event": "submit", "job": 1, "now": 1}, {"fault": "x"}, ["policy.failed"]),
        ({"event": "submit", "job": 1, "now": 1}, None, []),
        ({"event": "held", "job": 1, "jobs": 3, "now": 1}, None, []),
    ],
)
def test_rows_and_their_events(event: dict[str, Any], note: dict[str, Any] | None, names: list[str]) -> None:
    found = of_entry(entry(event, note))
    assert [one.name for one in found] == names
    for one in found:
        rows = EVENTS[one.name]
        assert event["event"] in rows or one.name == "policy.failed", "a search for the event must find its row"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"on": ["job.done"]}, "needs url or command; give one of them"),
        ({"on": ["job.finished"], "command": ["x"]}, "on: 'job.finished' is no event; use: job.started, job.done"),
        ({"on": [], "command": ["x"]}, "on: List should have at least 1 item"),
        ({"on": ["job.done"], "url": "http://h/"}, "has no secret_file; requests are signed"),
        (
            {"on": ["job.done"], "url": "file:///etc/passwd", "secret_file": "hook.secret"},
            "is no URL of http or https",
        ),
        (
            {"on": ["job.done"], "url": "http://user:pw@h/", "secret_file": "hook.secret"},
            "is no URL of http or https",
        ),
        ({"on": ["job.done"], "url": "http://h:99999/", "secret_file": "hook.secret"}, "url: Port out of range"),
        (
            {"on": ["job.done"], "url": "http://h/\r\nX: 1", "secret_file": "hook.secret"},
            "is no URL of http or https",
        ),
        ({"on": ["job.done"], "url": "http://h/", "secret_file": "absent"}, "cannot be read: No such file"),
        ({"on": ["job.done"], "url": "http://h/", "secret_file": "short"}, "has 5 bytes; use at least 16"),
        ({"on": ["job.done"], "command": ["x"], "when": 1}, "when: Extra inputs are not permitted"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, secret: Path, table: dict[str, Any], message: str) -> None:
    (tmp_path / "short").write_text("short")
    with pytest.raises(InputError) as told:
        hooks_of({"hooks": [table]}, f"{tmp_path}/x.toml")
    assert message in str(told.value)


def test_the_file(tmp_path: Path, secret: Path) -> None:
    file = tmp_path / "hooks.toml"
    text = '[[hooks]]\non = ["server.*"]\nurl = "https://h/a?b=c"\nsecret_file = "hook.secret"\n'
    file.write_text(text)
    (hook,) = read_hooks(str(file))
    assert hook.events == {name for name in EVENTS if name.startswith("server.")}
    assert hook.target == "https://h/..."
    secret.chmod(0o644)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o644
    with pytest.raises(InputError, match="can be read by other users"):
        read_hooks(str(file))
    file.write_text(text * 2 + 'name = "x"\n')
    secret.chmod(0o600)
    assert [one.name for one in read_hooks(str(file))] == ["hook-1", "x"]
    file.write_text((text + 'name = "x"\n') * 2)
    with pytest.raises(InputError, match="two hooks are called 'x'"):
        read_hooks(str(file))


def test_nobody_is_told_where_there_are_no_hooks(tmp_path: Path) -> None:
    cluster = Cluster(f"sqlite:///{tmp_path}/x.db", [])
    assert isinstance(cluster.service.hooks, HookDelivery)
    assert cluster.service.hooks.views() == []
    assert cluster.service.hooks.troubles() == []
    cluster.service.close()

"""The way in: Unix sockets whose users the kernel names, and a client that gives its token to the service only."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from house import Exchange, House
from processes import Process

from slotwise.errors import InputError
from slotwise.live import Client, addresses, listeners, unix_sockets
from slotwise.live.addresses import Address, find_address, socket_file
from slotwise.live.auth import account_name
from slotwise.live.engines.environment import told
from slotwise.live.engines.protocol import Start
from slotwise.live.transport import ServiceError, Transport

ME = account_name(os.geteuid())


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.service.close()


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any service."""
    for name in ("SLOTWISE_SERVER", "SLOTWISE_TOKEN", "SLOTWISE_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(addresses, "SYSTEM", tmp_path / "none")
    (tmp_path / "state" / "slotwise").mkdir(parents=True)
    (tmp_path / "config" / "slotwise").mkdir(parents=True)
    return tmp_path / "state" / "slotwise"


class Listener:
    """A program that has taken a port, and what it was sent."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.heard = b""
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                peer = self._socket.accept()[0]
            except OSError:
                return
            with peer:
                self.heard += peer.recv(65536)

    def close(self) -> bytes:
        """End it; what it was sent."""
        with socket.create_connection(("127.0.0.1", self.port)):  # what was sent before this was heard
            pass
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        return self.heard


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    if made._thread.is_alive():
        made.close()


# -- where a token goes -------------------------------------------------------------------------------------------------


def test_url_and_token_come_from_one_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config/slotwise/profiles.toml").write_text('[lab]\nserver = "https://lab"\ntoken = "sw_lab"\n')
    monkeypatch.setenv("SLOTWISE_SERVER", "https://other")
    monkeypatch.setenv("SLOTWISE_TOKEN", "sw_other")
    assert find_address() == ("https://other", "sw_other")
    assert find_address(profile="lab") == ("https://lab", "sw_lab")
    assert find_address("https://third") == ("https://third", None)
    assert find_address("https://third", "sw_third") == ("https://third", "sw_third")
    assert find_address("https://other/") == ("https://other", "sw_other")
    with pytest.raises(InputError, match="leave one of them out"):
        find_address("https://third", profile="lab")
    monkeypatch.setenv("SLOTWISE_PROFILE", "lab")
    assert find_address() == ("https://lab", "sw_lab")
    assert find_address("https://third") == ("https://third", None)


def test_no_token_is_sent_in_clear_to_another_host() -> None:
    with pytest.raises(InputError, match="in clear"):
        find_address("http://lab:8700", "sw_x")
    assert find_address("http://lab:8700") == ("http://lab:8700", None)
    assert find_address("http://127.0.0.1:9", "sw_x") == ("http://127.0.0.1:9", "sw_x")
    with pytest.raises(ServiceError, match="in clear"):  # whichever account made the address
        Transport(Address("http://10.0.0.1:8700", "sw_x")).call("GET", "/")


def test_a_port_that_another_user_has_taken_gets_no_token(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listeners.listeners(listener.port) == {os.geteuid()}
    with pytest.raises(ServiceError):  # it is no service, but one of our own: it is asked
        Transport(Address(f"http://127.0.0.1:{listener.port}", "sw_secret")).call("GET", "/")
    monkeypatch.setattr(listeners, "trusted", lambda: {4242})
    for make in (
        lambda client: client.call("GET", "/v1/jobs"),
        lambda client: list(client.lines("/v1/events")),
    ):
        with pytest.raises(ServiceError, match=f"a program of user {os.geteuid()} listens"):
            make(Transport(Address(f"http://127.0.0.1:{listener.port}", "sw_stolen")))
    heard = listener.close()
    assert b"sw_secret" in heard
    assert b"sw_stolen" not in heard


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as another user")
def test_a_port_of_a_real_other_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(listeners.VARIABLE, raising=False)
    os.seteuid(65534)
    try:
        taken = socket.create_server(("127.0.0.1", 0))
    finally:
        os.seteuid(0)
    with taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match="a program of user 65534 listens"):
            Transport(Address(f"http://127.0.0.1:{port}", "sw_x")).call("GET", "/")
        with taken.accept()[0] as peer:
            assert peer.recv(9) == b""
        monkeypatch.setenv(listeners.VARIABLE, account_name(65534))
        assert listeners.stranger(port) is None


def test_no_proxy_sees_what_goes_to_this_machine(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{listener.port}")
    meant = Listener()
    with Client(f"http://127.0.0.1:{meant.port}", "sw_secret") as client, pytest.raises(ServiceError):
        client.job(1)
    assert b"sw_secret" in meant.close()
    assert listener.close() == b""


# -- sockets ------------------------------------------------------------------------------------------------------------


def test_the_socket_of_a_service_is_found_and_needs_no_token(own_state: Path) -> None:
    assert find_address() == ("http://127.0.0.1:8700", None)
    (own_state / "token-127.0.0.1-8700").write_text("sw_mine\n")
    assert find_address() == ("http://127.0.0.1:8700", "sw_mine")
    with unix_sockets.listen(socket_file("localhost", 8700), for_all=False):
        path = own_state / "socket-127.0.0.1-8700"
        assert find_address() == find_address("http://localhost:8700") == (f"unix://{path}", None)
        assert find_address(token="sw_x") == ("http://127.0.0.1:8700", "sw_x")
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_socket_is_replaced_only_if_nobody_listens(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90) / ("y" * 90) / "socket"
    for path in (tmp_path / "socket", long):
        first = unix_sockets.listen(path, for_all=True)
        assert path.stat().st_mode & 0o777 == 0o666
        first.listen()
        unix_sockets.connect(path, 5).close()
        with pytest.raises(InputError, match="another service listens"):
            unix_sockets.listen(path, for_all=True)
        first.close()
        unix_sockets.listen(path, for_all=True).close()


def asked(
    house: House, method: str, path: str, peer: int | None, body: object = None, **headers: str
) -> tuple[int, str]:
    async def run() -> tuple[int, str]:
        data = json.dumps(body).encode() if body is not None else b""
        one = Exchange(
            house.app,
            method,
            path,
            body=[data],
            state={"peer": peer},
            headers={"content-length": str(len(data)), **headers},
        )
        await one.ended()
        assert one.status is not None
        return one.status, (await one.next()).decode()

    return asyncio.run(run())


def test_who_comes_through_the_socket(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"argv": ["x"]}
    status, text = asked(house, "POST", "/v1/jobs", os.geteuid(), job)
    assert status == 201
    number = json.loads(text)["id"]
    kept = house.service.store.specs([number])[number]
    assert (kept[0].tenant, json.loads(kept[1])["user"]) == ("operator", ME)
    assert asked(house, "GET", "/v1/tokens", os.geteuid())[0] == 200
    stranger = 54321
    for peers, statuses in ((None, (401, 401, 401)), ("read", (200, 403, 403)), ("submit", (200, 201, 403))):
        monkeypatch.setattr(house.guard, "peers", peers)
        assert asked(house, "GET", "/v1/jobs", stranger)[0] == statuses[0]
        assert asked(house, "POST", "/v1/jobs", stranger, job)[0] == statuses[1]
        assert asked(house, "GET", "/v1/tokens", stranger)[0] == statuses[2]
    mine = json.loads(asked(house, "GET", "/v1/jobs", stranger)[1])["jobs"]
    assert {one["tenant"] for one in mine} == {"54321"}
    kept = house.service.store.specs([mine[0]["id"]])[mine[0]["id"]]
    assert json.loads(kept[1])["user"] == "54321"
    assert asked(house, "GET", f"/v1/jobs/{number}", stranger)[0] == 404
    assert asked(house, "POST", "/v1/jobs", stranger, {**job, "user": "root"})[0] == 403
    assert asked(house, "POST", "/v1/jobs", os.geteuid(), {**job, "user": "no such user"})[0] == 400


def test_no_header_makes_a_user(house: House) -> None:
    for name in ("x-forwarded-for", "forwarded", "x-real-ip", "x-peer", "x-remote-user"):
        assert asked(house, "GET", "/v1/jobs", None, **{name: "0"})[0] == 401


def test_a_token_names_the_account_of_its_jobs(house: House) -> None:
    made = house.call("POST", "/v1/tokens", json={"role": "submit", "tenant": "t", "user": ME}).json()
    assert made["user"] == ME
    number = house.submit(made["token"])
    assert json.loads(house.service.store.specs([number])[number][1])["user"] == ME
    assert house.call("POST", "/v1/tokens", json={"role": "read", "user": "no such user"}).status_code == 400


def test_a_real_service_is_reached_through_its_socket(
    tmp_path: Path, serve: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = serve(tmp_path, "--local")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Client(process.address) as client:
        assert client.address.url.startswith("unix:///")
        assert client.address.token is None
        job = client.submit(["true"])
        assert job.result(60).state == "done"
        link = process.command("open", "--print").stdout.strip()
        assert link.startswith(f"{process.address}/login?code=")
        assert httpx.get(f"{process.address}/v1/me").status_code == 401
        with httpx.Client(follow_redirects=True) as browser:
            assert browser.get(link).url.path == "/"
            assert (
                browser.get(f"{process.address}/v1/me").json()["role"]
                == client.call("GET", "/v1/me").json()["role"]
            )
    assert process.end() == 0
    assert not list((tmp_path / "state").rglob("socket-*")), "a socket goes with its service"


@pytest.mark.parametrize("argv", ["echo hi", b"echo hi"])
def test_a_text_is_no_command(argv: object) -> None:
    """A text is a sequence of letters, so it would be a command with an argument for each letter."""
    with pytest.raises(InputError, match="is one text; give a list"):
        Client("http://127.0.0.1:9").submit(argv)  # type: ignore[arg-type]


def test_nothing_is_no_command() -> None:
    with pytest.raises(InputError, match="None is no command; give a list"):
        Client("http://127.0.0.1:9").submit(None)  # type: ignore[arg-type]


def test_a_job_can_reach_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job is told leaves the address of the service alone, which it may have got with --env."""
    told_to_it = told(Start(8, 2, "node1", {"array_index": 3, "array_id": 6}, {}))
    assert told_to_it == {
        "SLOTWISE_JOB_ID": "8", "SLOTWISE_ATTEMPT": "2", "SLOTWISE_SERVER_NAME": "node1",
        "SLOTWISE_ARRAY_INDEX": "3", "SLOTWISE_ARRAY_ID": "6",
    }  # fmt: skip
    monkeypatch.setenv("SLOTWISE_SERVER", "https://lab.example")
    for name, value in told_to_it.items():
        monkeypatch.setenv(name, value)
    assert find_address().url == "https://lab.example"

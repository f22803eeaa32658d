"""The client's HTTP: any form of a body, kept connections, Unix sockets, and answers that are no HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slotwise.errors import InputError
from slotwise.live.addresses import Address, find_address
from slotwise.live.transport import ServiceError, Transport, with_query

Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve scripted answers: each connection gives its answers, one for each request, and ends."""
    made: list[tuple[socket.socket, threading.Thread]] = []

    def start(*connections: list[bytes], unix: bool = False) -> str:
        listening = socket.socket(socket.AF_UNIX if unix else socket.AF_INET, socket.SOCK_STREAM)
        listening.bind(str(tmp_path / "socket") if unix else ("127.0.0.1", 0))
        listening.listen(8)

        def run() -> None:
            for answers in connections:
                try:
                    peer, _ = listening.accept()
                except OSError:  # closed at the end of the test
                    return
                with peer:
                    for answer in answers:
                        requests.append(peer.recv(1 << 16))
                        peer.sendall(answer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        made.append((listening, thread))
        return f"unix://{tmp_path}/socket" if unix else f"http://127.0.0.1:{listening.getsockname()[1]}"

    requests: list[bytes] = []
    start.requests = requests  # type: ignore[attr-defined]
    yield start
    for listening, thread in made:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


@pytest.mark.parametrize(
    "sent",
    [
        answer(b'{"a": 1}', "Content-Length: 8"),
        answer(b'3;x=y\r\n{"a\r\n5\r\n": 1}\r\n0\r\nTrailer: x\r\n\r\n', "Transfer-Encoding: chunked"),
        answer(b'{"a": 1}', "Connection: close"),
    ],
)
@pytest.mark.parametrize("unix", [False, True])
def test_every_form_of_a_body(serve: Serve, sent: bytes, unix: bool) -> None:
    transport = Transport(Address(serve([sent], unix=unix), "secret"))
    assert transport.call("POST", "/x", params={"a": [1, 2], "b": None, "c": True}, json={}).json() == {"a": 1}
    first, *headers = serve.requests[0].decode().split("\r\n")  # type: ignore[attr-defined]
    assert first == "POST /x?a=1&a=2&c=true HTTP/1.1"
    assert {"Authorization: Bearer secret", "Content-Length: 2"} <= set(headers)
    transport.close()


def test_a_connection_is_kept_and_opened_again_when_the_service_has_closed_it(serve: Serve) -> None:
    one = answer(b"1", "Content-Length: 1")
    transport = Transport(Address(serve([one, one], [one]), None))
    assert [transport.call("GET", "/").content for _ in range(3)] == [b"1"] * 3
    transport.close()


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (answer(b'{"detail": "no such job"}', "Content-Length: 25", status="404 Not Found"), 404, "no such job"),
        (answer(b"bad gateway", "Content-Length: 11", status="502 Bad Gateway"), 502, "bad gateway"),
        (answer(b"", "Content-Length: 0", status="401 Unauthorized"), 401, "Unauthorized; set SLOTWISE_TOKEN"),
        (b"SSH-2.0-OpenSSH\r\n", 0, "no service answers"),
        (answer(b"12", "Content-Length: 3"), 0, "ended early"),
        (answer(b"zz\r\n", "Transfer-Encoding: chunked"), 0, "chunk"),
        (b"", 0, "ended early"),
    ],
)
def test_errors_are_told(serve: Serve, sent: bytes, status: int, said: str) -> None:
    transport = Transport(Address(serve([sent]), None))
    with pytest.raises(ServiceError, match=said) as error:
        transport.call("GET", "/")
    assert (error.value.status, error.value.passing) == (status, status == 0)
    transport.close()


def test_lines_are_streamed(serve: Serve) -> None:
    body = b"6\r\nid: 7\n\r\n8\r\ndata: {}\r\n1\r\n\n\r\n0\r\n\r\n"
    transport = Transport(Address(serve([answer(body, "Transfer-Encoding: chunked")]), None))
    assert list(transport.lines("/v1/events", {"follow": False})) == ["id: 7", "data: {}"]


def test_a_header_cannot_be_broken() -> None:
    assert with_query("/x", {"name": "a b\r\nHost: c"}) == "/x?name=a+b%0D%0AHost%3A+c"
    with pytest.raises(InputError, match="is no address"):
        find_address("localhost:8700")

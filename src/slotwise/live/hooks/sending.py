"""One delivery: a signed request to a URL, or a command with the event on its standard input."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from contextlib import suppress

from slotwise._version import __version__
from slotwise.errors import InputError, SlotwiseError
from slotwise.live.hooks.definition import Hook

LONGEST_ANSWER = 1000  # bytes of an answer that are read
SAID = 300  # bytes of what a command writes to standard error that are kept
PASSING = (408, 425, 429)  # of the answers 400 to 499 those that another try may change
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")  # of the environment, for commands


class DeliveryError(SlotwiseError):
    """An event was not delivered. `is_refused`: the receiver does not want this event, so many more tries are no use."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused


def signature(secret: bytes, timestamp: int, body: bytes) -> str:
    """Return the signature of a request: HMAC-SHA256 of the timestamp, a full stop and the body.

    >>> signature(b"a secret of the operator", 1700000000, b"{}")[:19]
    'v1=f88c1d7bc4c6e0a4'
    """
    return "v1=" + hmac.new(secret, f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def deliver(hook: Hook, identity: str, event: str, body: bytes) -> None:
    """Deliver an event. Raise DeliveryError if it did not arrive."""
    try:
        if hook.url is not None:
            request(hook, identity, event, body)
        else:
            execute(hook, identity, event, body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        said = str(error) or type(error).__name__
        raise DeliveryError("timed out" if isinstance(error, TimeoutError) else said) from None
    except InputError as error:
        raise DeliveryError(str(error)) from None


def request(hook: Hook, identity: str, event: str, body: bytes) -> None:
    """Send a request. No proxy is used, and no redirect is followed: only the operator's file says where events go."""
    assert hook.url is not None
    stamp = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"slotwise/{__version__}",
        "Slotwise-Delivery": identity,
        "Slotwise-Event": event,
        "Slotwise-Timestamp": str(stamp),
        "Slotwise-Signature": signature(hook.secret(), stamp, body),
        "Connection": "close",
    }
    host = hook.url.hostname or ""
    connection: http.client.HTTPConnection
    if hook.url.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, hook.url.port, timeout=hook.timeout, context=context)
    else:
        connection = http.client.HTTPConnection(host, hook.url.port, timeout=hook.timeout)
    path = (hook.url.path or "/") + (f"?{hook.url.query}" if hook.url.query else "")
    is_late = threading.Event()

    def hang_up() -> None:
        """End a request whose answer comes byte by byte: the timeout of a socket holds for each byte."""
        is_late.set()
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(hook.timeout, hang_up)
    timer.daemon = True
    timer.start()
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read(LONGEST_ANSWER)
    except (OSError, http.client.HTTPException):
        if is_late.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
        connection.close()
    if 300 <= answer.status < 400:
        raise DeliveryError(f"answers {answer.status}: redirects are not followed", is_refused=True)
    if not 200 <= answer.status < 300:
        is_refused = 400 <= answer.status < 500 and answer.status not in PASSING
        raise DeliveryError(f"answers {answer.status} {answer.reason}", is_refused=is_refused)


def execute(hook: Hook, identity: str, event: str, body: bytes) -> None:
    """Run the command, with nothing of the service's environment that it does not need. All of it ends with the timeout."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {"SLOTWISE_EVENT": event, "SLOTWISE_DELIVERY": identity}
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            hook.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            start_new_session=True,
        ) as process:
            try:
                process.communicate(body, timeout=hook.timeout)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise TimeoutError from None
        if process.returncode:
            size = errors.seek(0, os.SEEK_END)
            errors.seek(max(0, size - SAID))
            said = " ".join(errors.read().decode("utf-8", "replace").split())
            how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
            raise DeliveryError(f"{how}: {said}" if said else how)

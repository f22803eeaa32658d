"""Sessions of browsers: a one-time code opens one, a signed cookie carries it.

A caller with a token asks for a code; the browser that shows the code gets a cookie with the rights of that token. The cookie names the token, says
when it expires, and is signed with a key that lies in a file of the service. A session ends when it expires, when its user logs out, or
when its token is revoked. It survives a restart of the service.

A page of another origin must not act with the cookie. Three things prevent it. The cookie is SameSite=Strict. A request
that the browser marks as started by another origin is refused, even if the origin differs in the port only. A request
that may change anything must carry the header `X-Slotwise`, which other origins cannot send without permission.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import NamedTuple

from slotwise.live.auth import Caller, Guard

CODE_SECONDS = 300.0  # a code is typed or clicked at once; five minutes leave time to copy it to another machine
SESSION_SECONDS = 12 * 3600.0  # a working day
MOST_CODES = 10  # that wait, for each token: a caller who asks for many voids only its own
SAFE = ("GET", "HEAD", "OPTIONS")


class Code(NamedTuple):
    """A code that was given out: for which token, and until when it holds."""

    token: str
    expires: float


def cookie_name(host: str) -> str:
    """Return the name of the cookie for a Host header. Browsers share cookies between ports, so the name has the port in it."""
    port = host.rpartition(":")[2]
    return f"slotwise-{port}" if port.isdecimal() else "slotwise"


def keep_key(path: Path) -> bytes:
    """Return the signing key in a file that only this user can read; make it if it is not there."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) < 32:
        key = secrets.token_bytes(32)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(key)
        unfinished.replace(path)
    return key


class Sessions:
    """Codes that wait to be used, and the check of cookies."""

    def __init__(self, guard: Guard, key: bytes | None = None, clock: Callable[[], float] = time.time) -> None:
        self._guard, self._clock = guard, clock
        self._key = key or secrets.token_bytes(32)
        self._codes: dict[str, Code] = {}
        self._ended: dict[str, float] = {}
        """sessions that were logged out, until they would have expired"""
        self._lock = threading.Lock()

    def code(self, caller: Caller) -> tuple[str, float]:
        """Return a new one-time code with the rights of the caller, and when it expires."""
        secret, expires = secrets.token_urlsafe(24), self._clock() + CODE_SECONDS
        with self._lock:
            now = self._clock()
            self._codes = {one: code for one, code in self._codes.items() if code.expires >= now}
            own = [one for one, code in self._codes.items() if code.token == caller.token]
            for one in own[: max(0, len(own) - MOST_CODES + 1)]:
                del self._codes[one]
            self._codes[_digest(secret)] = Code(caller.token, expires)
        return secret, expires

    def redeem(self, code: str) -> str | None:
        """Return the value of a session cookie for a code; None if the code is unknown, used or expired."""
        with self._lock:
            found = self._codes.pop(_digest(code), None)
        if found is None or found.expires < self._clock() or self._guard.by_id(found.token) is None:
            return None
        return self._sign(f"{found.token}.{self._clock() + SESSION_SECONDS:.0f}.{secrets.token_hex(8)}")

    def caller(self, method: str, headers: Mapping[str, str]) -> Caller | None:
        """Return the caller whose session cookie a request carries; None if there is none, or if another page sends it."""
        value = self._cookie(headers)
        if value is None or not self.comes_from_here(method, headers):
            return None
        token, expires, _ = value.split(".")[:3]
        if float(expires) < self._clock() or _digest(value) in self._ended:
            return None
        return self._guard.by_id(token)

    def comes_from_here(self, method: str, headers: Mapping[str, str]) -> bool:
        """Return whether a request was sent by a page of this service, or typed by the user."""
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        if origin is not None and origin.partition("//")[2].lower() != headers.get("host", "").lower():
            return False
        return method in SAFE or "x-slotwise" in headers

    def end(self, headers: Mapping[str, str]) -> None:
        """Log out the session of a request."""
        value = self._cookie(headers)
        if value is not None:
            now = self._clock()
            with self._lock:
                self._ended = {one: until for one, until in self._ended.items() if until > now}
                self._ended[_digest(value)] = float(value.split(".")[1])

    def _cookie(self, headers: Mapping[str, str]) -> str | None:
        """The cookie of a request, if the signature is right."""
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(cookie_name(headers.get("host", "")))
        except CookieError:
            return None
        value = "" if morsel is None else morsel.value
        payload, _, _ = value.rpartition(".")
        if payload.count(".") != 2 or not value.isascii() or not hmac.compare_digest(value, self._sign(payload)):
            return None
        return value

    def _sign(self, payload: str) -> str:
        mac = hmac.new(self._key, f"session {payload}".encode(), hashlib.sha256).digest()
        return f"{payload}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

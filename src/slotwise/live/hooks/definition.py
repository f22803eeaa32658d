"""Hooks as the operator writes them: [[hooks]] of the cluster file, or of a file of their own. No request to the API can add or change one."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slotwise.errors import InputError
from slotwise.live.hooks.events import EVENTS
from slotwise.model.reader import parse_toml

REMEDY = "see docs/guides/hooks.md"
LEAST_SECRET = 16  # bytes: a shorter secret can be guessed
LONGEST_TIMEOUT = 300.0  # seconds


class Definition(BaseModel):
    """A table of [[hooks]]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,50}$")] | None = None
    on: Annotated[list[str], Field(min_length=1)]
    url: str | None = None
    command: Annotated[list[str], Field(min_length=1)] | None = None
    secret_file: str | None = None
    tenant: str | None = None
    timeout: Annotated[float, Field(gt=0, le=LONGEST_TIMEOUT)] = 10.0


class Hook(NamedTuple):
    """A hook, checked."""

    name: str
    events: frozenset[str]
    url: SplitResult | None
    command: Sequence[str]
    secret_file: Path | None
    tenant: str | None
    """only events of jobs of this tenant; None: all events"""
    timeout: float
    """seconds that one delivery may take"""

    @property
    def target(self) -> str:
        """Where events go, as it may be shown: the path of a URL and the arguments of a command may hold secrets."""
        if self.url is None:
            return self.command[0]
        return f"{self.url.scheme}://{self.url.hostname}" + (f":{self.url.port}" if self.url.port else "") + "/..."

    def secret(self) -> bytes:
        """Return the secret. It is read for each delivery, so it can be changed while the service runs."""
        if self.secret_file is None:
            return b""
        try:
            found = self.secret_file.read_bytes().strip()
        except OSError as error:
            raise InputError(
                f"cannot be read: {error.strerror}", where=str(self.secret_file), remedy="hooks are signed with it"
            ) from None
        if len(found) < LEAST_SECRET:
            raise InputError(
                f"has {len(found)} bytes",
                where=str(self.secret_file),
                remedy=f"use at least {LEAST_SECRET}: openssl rand -hex 32",
            )
        return found


def read_hooks(source: str) -> list[Hook]:
    """Return the hooks of a file. Raise InputError if one of them is wrong."""
    try:
        text = Path(source).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=source, remedy=REMEDY) from None
    return hooks_of(parse_toml(text, where=source), source)


def hooks_of(tables: dict[str, Any], source: str) -> list[Hook]:
    """Return the hooks of the tables of a file."""
    given = tables.get("hooks", [])
    if not isinstance(given, list):
        raise InputError("is no list of tables", where=f"{source}: hooks", remedy="write [[hooks]]")
    found: list[Hook] = []
    for n, table in enumerate(given, 1):
        where = f"{source}: hooks[{n}]"
        try:
            definition = Definition.model_validate(table)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise InputError(f"{place}: {first['msg']}", where=where, remedy=REMEDY) from None
        hook = checked(definition, n, where, Path(source).parent)
        if any(one.name == hook.name for one in found):
            raise InputError(f"two hooks are called {hook.name!r}", where=where, remedy="name each hook once")
        found.append(hook)
    return found


def checked(one: Definition, number: int, where: str, folder: Path) -> Hook:
    """Return a hook that can be used. Relative files are looked for in the folder of the hook's file."""
    if (one.url is None) == (one.command is None):
        raise InputError("needs url or command", where=where, remedy="give one of them")
    events: set[str] = set()
    for pattern in one.on:
        some = [name for name in EVENTS if fnmatchcase(name, pattern)]
        if not some:
            raise InputError(f"on: {pattern!r} is no event", where=where, remedy=f"use: {', '.join(EVENTS)}")
        events.update(some)
    url = None if one.url is None else checked_url(one.url, where)
    if url is not None and one.secret_file is None:
        raise InputError(
            "has no secret_file", where=where, remedy="requests are signed: openssl rand -hex 32 > hook.secret"
        )
    if one.command is not None and one.secret_file is not None:
        raise InputError("secret_file is for url", where=where, remedy="leave it out")
    secret = None if one.secret_file is None else folder / one.secret_file
    hook = Hook(
        one.name or f"hook-{number}", frozenset(events), url, one.command or (), secret, one.tenant, one.timeout
    )
    hook.secret()
    if secret is not None and stat.S_IMODE(os.stat(secret).st_mode) & 0o077:
        raise InputError("can be read by other users", where=str(secret), remedy=f"chmod 600 {secret}")
    return hook


def checked_url(text: str, where: str) -> SplitResult:
    """Return the parts of a URL."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise InputError(f"url: {error}", where=where, remedy="write https://host/path") from None
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or not is_plain:
        raise InputError("url: is no URL of http or https", where=where, remedy="write https://host/path")
    return parts

"""Who may do what: tokens with roles. The secret is shown once; the store keeps its hash."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path
from typing import NamedTuple

from slotwise.errors import InputError
from slotwise.live.addresses import token_file
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Token

ROLES = ("read", "submit", "operate")
"""each may do what those before it may"""
EVERYONE = "*"
"""the tenant of tokens that see all jobs"""


class Caller(NamedTuple):
    """Who asks."""

    token: str
    role: str
    tenant: str

    def may(self, role: str) -> bool:
        """Whether the role is enough."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, tenant: str) -> bool:
        """Whether jobs of this tenant are the caller's business."""
        return self.tenant in (EVERYONE, tenant)


def digest(secret: str) -> str:
    """What is kept. Secrets are long and random, so that no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_token(role: str, tenant: str | None = None) -> tuple[Token, str]:
    """A token to keep, and its secret to show."""
    if role not in ROLES:
        raise InputError(f"no role is called {role!r}", where="role", remedy=f"use one of: {', '.join(ROLES)}")
    identity = secrets.token_hex(6)
    if tenant is None:
        tenant = identity if role == "submit" else EVERYONE
    if not tenant or len(tenant) > 100 or not tenant.isprintable():
        raise InputError(f"{tenant!r} is no name of a tenant", where="tenant", remedy="use a short, printable one")
    if role == "operate":
        tenant = EVERYONE
    secret = secrets.token_urlsafe(32)
    return Token(identity, role, tenant, digest(secret), time.time()), f"sw_{identity}_{secret}"


class Guard:
    """Knows the tokens of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._tokens: dict[str, Token] = {}
        self.reload()

    def reload(self) -> None:
        """Read them again."""
        self._tokens = {token.id: token for token in self.store.tokens()}

    def caller(self, header: str | None) -> Caller | None:
        """Whose `Authorization: Bearer ...` this is; None: nobody's."""
        scheme, _, given = (header or "").partition(" ")
        parts = given.strip().split("_", 2)
        if scheme.lower() != "bearer" or len(parts) != 3 or parts[0] != "sw":
            return None
        token = self._tokens.get(parts[1])
        expected = token.digest if token is not None else digest("")
        same = hmac.compare_digest(expected, digest(parts[2]))
        return Caller(token.id, token.role, token.tenant) if same and token is not None else None

    def by_id(self, identity: str) -> Caller | None:
        """Return the caller of a token by its name; None if there is no such token."""
        token = self._tokens.get(identity)
        return None if token is None else Caller(token.id, token.role, token.tenant)

    def create(self, role: str, tenant: str | None = None) -> tuple[Token, str]:
        """A new token."""
        token, secret = new_token(role, tenant)
        self.store.add_token(token)
        self.reload()
        return token, secret

    def revoke(self, identity: str) -> bool:
        """Take one back; at once."""
        dropped = self.store.drop_token(identity)
        self.reload()
        return dropped


def keep_own_token(guard: Guard, host: str, port: int) -> Path:
    """A token for whoever started the service, in a file that only this user can read; the one that is there, if it still holds."""
    path = token_file(host, port)
    try:
        known = guard.caller(f"Bearer {path.read_text().strip()}")
    except OSError:
        known = None
    if known is None:
        _, secret = guard.create("operate")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secret + "\n")
        unfinished.replace(path)
    return path

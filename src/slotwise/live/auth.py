"""Who may do what: tokens with roles, and users of this machine. The secret of a token is shown once; the store keeps its hash."""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
import secrets
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from slotwise.errors import InputError
from slotwise.live.addresses import token_file
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Token

# Each role may do what the roles before it may do.
ROLES = ("read", "submit", "operate")
# The tenant of tokens that see all jobs.
EVERYONE = "*"
# Prefix of the identity of a caller through the Unix socket; the number of the user follows.
PEER = "uid:"


class Caller(NamedTuple):
    """Who asks."""

    token: str
    role: str
    tenant: str
    user: str | None = None
    """the account that executes the caller's jobs, where the service may change users"""

    def may(self, role: str) -> bool:
        """Return whether the role is enough."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, tenant: str) -> bool:
        """Return whether the caller may see jobs of this tenant."""
        return self.tenant in (EVERYONE, tenant)


@lru_cache(1000)
def account_name(uid: int) -> str:
    """Return the name of an account, or its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def check_account(name: str) -> None:
    """Refuse an account that this machine does not have."""
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise InputError(
            f"no account of this machine is called {name!r}", where="user", remedy="see `getent passwd`"
        ) from None


def digest(secret: str) -> str:
    """What is kept. Secrets are long and random, so that no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_token(role: str, tenant: str | None = None, user: str | None = None) -> tuple[Token, str]:
    """Return a token to keep, and its secret to show."""
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
    return Token(identity, role, tenant, digest(secret), time.time(), user), f"sw_{identity}_{secret}"


class Guard:
    """Who may do what: the tokens of a store, and the users of this machine who come through the Unix socket.

    The user of the service and root operate. `peers` is the role of all other users; None: they are refused.
    """

    def __init__(self, store: Store, peers: str | None = None) -> None:
        self.store, self.peers = store, peers
        self.on_revoke: Callable[[], None] = lambda: None
        """called after a token was revoked"""
        self._tokens: dict[str, Token] = {}
        self.reload()

    def reload(self) -> None:
        """Read them again."""
        self._tokens = {token.id: token for token in self.store.tokens()}

    def caller(self, header: str | None) -> Caller | None:
        """Return the caller of an `Authorization: Bearer ...` header, or None if the token is not valid."""
        scheme, _, given = (header or "").partition(" ")
        parts = given.strip().split("_", 2)
        if scheme.lower() != "bearer" or len(parts) != 3 or parts[0] != "sw":
            return None
        token = self._tokens.get(parts[1])
        expected = token.digest if token is not None else digest("")
        same = hmac.compare_digest(expected, digest(parts[2]))
        return Caller(token.id, token.role, token.tenant, token.user) if same and token is not None else None

    def by_id(self, identity: str) -> Caller | None:
        """Return the caller of a token, or of a user of this machine, by the identity; None if it does not hold any more."""
        if identity.startswith(PEER):
            return self.peer(int(identity.removeprefix(PEER)))
        token = self._tokens.get(identity)
        return None if token is None else Caller(token.id, token.role, token.tenant, token.user)

    def peer(self, uid: int) -> Caller | None:
        """Return who a user of this machine is, or None if the user may not come in."""
        name = account_name(uid)
        if uid in (0, os.geteuid()):
            return Caller(f"{PEER}{uid}", "operate", EVERYONE, name)
        return None if self.peers is None else Caller(f"{PEER}{uid}", self.peers, name, name)

    def holds(self, caller: Caller) -> bool:
        """Return whether the caller may still come in: a token may have been revoked since it was shown."""
        return self.by_id(caller.token) is not None

    def create(self, role: str, tenant: str | None = None, user: str | None = None) -> tuple[Token, str]:
        """Make a token; return it with its secret."""
        token, secret = new_token(role, tenant, user)
        self.store.add_token(token)
        self.reload()
        return token, secret

    def revoke(self, identity: str) -> bool:
        """Revoke a token at once; return whether there was one."""
        dropped = self.store.drop_token(identity)
        self.reload()
        self.on_revoke()
        return dropped


def keep_own_token(guard: Guard, host: str, port: int) -> Path:
    """Return the file with the operator token of the user who started the service, which only this user can read. Reuse
    the token in the file if it is still valid."""
    path = token_file(host, port)
    try:
        known = guard.caller(f"Bearer {path.read_text().strip()}")
    except OSError:
        known = None
    if known is None:
        _, secret = guard.create("operate", user=account_name(os.geteuid()))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secret + "\n")
        unfinished.replace(path)
    return path

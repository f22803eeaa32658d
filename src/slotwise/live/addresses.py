"""Where the service is and how to be let in: arguments, environment, profile, then the service on this machine.

Standard library only: every command of the client imports this module.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from slotwise.errors import InputError
from slotwise.live.unix_sockets import SYSTEM, is_confined

DEFAULT = "http://127.0.0.1:8700"
SCHEMES = ("http://", "https://", "unix:///")
HERE = ("localhost", "::1", "0.0.0.0", "::")  # other names of this machine


class Address(NamedTuple):
    """The URL of a service (`http://`, `https://` or `unix:///PATH`) and the token for it."""

    url: str
    token: str | None


def state_folder() -> Path:
    """Return the folder for what the programs of this user keep: tokens, and by default the store."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "slotwise"


def token_file(host: str, port: int) -> Path:
    """Return the file in which a service on this machine leaves the token of the user who started it."""
    if host in HERE:
        host = "127.0.0.1"
    return state_folder() / f"token-{host.replace(':', '_')}-{port}"


def socket_file(host: str, port: int) -> Path:
    """Return the Unix socket of a service on this machine that listens on this port, too."""
    return token_file(host, port).with_name(token_file(host, port).name.replace("token-", "socket-", 1))


def config_file() -> Path:
    """Return the file of profiles."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "slotwise" / "profiles.toml"


def read_profile(name: str) -> dict[str, Any]:
    """Return the table of a profile: `server` and `token`, both optional."""
    import tomllib

    path = config_file()
    try:
        kept = tomllib.loads(path.read_text())[name]
    except FileNotFoundError:
        raise InputError(
            "no such file", where=str(path), remedy=f"write [{name}] with server and token in it"
        ) from None
    except KeyError:
        raise InputError(f"has no profile {name!r}", where=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is no TOML: {error}", where=str(path)) from None
    if not isinstance(kept, dict) or any(not isinstance(kept.get(key, ""), str) for key in ("server", "token")):
        raise InputError(
            "is no profile", where=f"{path}: {name}", remedy="write server and token as text in quotes"
        )
    return kept


def find_address(server: str | None = None, token: str | None = None, profile: str | None = None) -> Address:
    """Return the address to use. URL and token come from one source: arguments, else a profile, else the environment, else this machine.

    A service on this machine is reached through its Unix socket, without a token, where there is one and no token is named.
    """
    if profile is None and server is None:
        profile = os.environ.get("SLOTWISE_PROFILE")
    elif profile is not None and server is not None:
        raise InputError("is given beside a profile", where="--server", remedy="leave one of them out")
    kept: dict[str, str | None] = {}
    if profile is not None:
        kept = read_profile(profile)
    elif server is None or server.rstrip("/") == os.environ.get("SLOTWISE_SERVER", server).rstrip("/"):
        kept = {name: os.environ.get(f"SLOTWISE_{name.upper()}") for name in ("server", "token")}
    url, token = (server or kept.get("server") or "").rstrip("/"), token or kept.get("token") or None
    if not url:
        found = next(
            (path for path in (socket_file("127.0.0.1", 8700), SYSTEM) if token is None and path.is_socket()), None
        )
        if found is not None:
            return at_socket(found, token_file("127.0.0.1", 8700))
        url = DEFAULT
    if not url.startswith(SCHEMES):
        raise InputError(f"{url!r} is no address", where="--server", remedy=f"write it like {DEFAULT}")
    if url.startswith("unix:"):
        return Address(url, token)
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise InputError(
            f"{url!r} has no valid port", where="--server", remedy=f"write it like {DEFAULT}"
        ) from None
    if token is None and is_here(host):
        if parts.scheme == "http" and socket_file(host, port).is_socket():
            return at_socket(socket_file(host, port), token_file(host, port))
        try:
            token = token_file(host, port).read_text().strip()
        except OSError:
            token = None
    if token is not None and parts.scheme == "http" and not is_here(host):
        raise InputError(
            f"a token would be sent to {host} in clear",
            where="--server",
            remedy="use https://, or a tunnel (ssh -L)",
        )
    return Address(url, token)


def at_socket(path: Path, token: Path) -> Address:
    """Return the address of a service's socket. A process that may be a confined job is not known by its user there, and shows a token if it can."""
    secret = None
    if path != SYSTEM and is_confined():
        with suppress(OSError):
            secret = token.read_text().strip()
    return Address(f"unix://{quote(str(path))}", secret)


def is_here(host: str) -> bool:
    """Return whether a name is one of this machine for its own programs."""
    return host in HERE or host.startswith("127.")

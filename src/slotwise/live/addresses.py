"""Where the service is and how to be let in: arguments, environment, profile, then the service on this machine.

Standard library only: every command of the client imports this module.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from slotwise.errors import InputError

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
    """Return the address to use. Arguments come first, then the environment, then the profile, then this machine."""
    profile = profile or os.environ.get("SLOTWISE_PROFILE")
    kept = read_profile(profile) if profile is not None else {}
    url = (server or os.environ.get("SLOTWISE_SERVER") or kept.get("server") or DEFAULT).rstrip("/")
    if not url.startswith(SCHEMES):
        raise InputError(f"{url!r} is no address", where="--server", remedy=f"write it like {DEFAULT}")
    found = token or os.environ.get("SLOTWISE_TOKEN") or kept.get("token")
    if found is None and not url.startswith("unix:"):
        parts = urlsplit(url)
        try:
            found = token_file(parts.hostname or "", parts.port or 80).read_text().strip()
        except OSError:
            found = None
    return Address(url, found)

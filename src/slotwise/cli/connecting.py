"""What the commands that talk to a service share: the connection, and the options for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slotwise.cli.light import Argument, Option, whole
from slotwise.live.client import Client

CONNECTION = (
    Option("server", "--server", "the service (default: SLOTWISE_SERVER, then the service on this machine)", "URL"),
    Option("profile", "--profile", "server and token from ~/.config/slotwise/profiles.toml", "NAME"),
    Option("as_json", "--json", "print JSON on standard output"),
)
ID = Argument("number", "ID", "the number of a job", whole)


@contextmanager
def connected(server: str | None, profile: str | None) -> Iterator[Client]:
    """Yield a client of the service and close it at the end."""
    with Client(server, profile=profile) as client:
        yield client

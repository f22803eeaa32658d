"""What the commands that talk to a service share: the connection, and the options for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slotwise.cli.light import Argument, Option, whole
from slotwise.errors import SlotwiseError
from slotwise.live.after import element
from slotwise.live.client import Client

CONNECTION = (
    Option("server", "--server", "the service (default: SLOTWISE_SERVER, then the service on this machine)", "URL"),
    Option("profile", "--profile", "server and token from ~/.config/slotwise/profiles.toml", "NAME"),
    Option("as_json", "--json", "print JSON on standard output"),
)


def job_id(text: str) -> int | str:
    """Read the number of a job, or a job of an array by its index, as in 7_1."""
    if element(text) is not None:
        return text
    try:
        return whole(text)
    except ValueError:
        raise ValueError("is no number of a job; write it like 7, or like 7_1 for index 1 of array 7") from None


ID = Argument("number", "ID", "the number of a job; 7_1 is index 1 of array 7", job_id)


@contextmanager
def connected(server: str | None, profile: str | None) -> Iterator[Client]:
    """Yield a client of the service and close it at the end."""
    with Client(server, profile=profile) as client:
        yield client


def number_of(client: Client, one: int | str) -> int:
    """Return the number of a job that `job_id` has read."""
    pair = element(one) if isinstance(one, str) else None
    if pair is None:
        return int(one)
    array, index = pair
    for job in client.jobs(array=array, oldest_first=True):
        if job.array_index == index:
            return job.id
    raise SlotwiseError(f"there is no array {array} with a job of index {index}")

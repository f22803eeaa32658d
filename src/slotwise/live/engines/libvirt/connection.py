"""What the engine asks of one host, in its own words. `binding` does it with libvirt; tests have a host in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from slotwise.errors import SlotwiseError

# virDomainState and virDomainShutoffReason: these numbers are part of libvirt's stable interface.
PAUSED, SHUTOFF, CRASHED_STATE = 3, 5, 6
BY_GUEST, DESTROYED, CRASHED, MIGRATED, SAVED, FAILED = 1, 2, 3, 4, 5, 6


class HostError(SlotwiseError):
    """The host did not do it."""


class GoneError(HostError):
    """There is no connection: whether it was done is not known."""


class MissingError(HostError):
    """There is no such domain, volume or network."""


class StorageFullError(HostError):
    """The storage of the host is full."""


class WrongError(HostError):
    """No host would do it: the request itself is wrong."""


class Size(NamedTuple):
    """What a host has, or a domain holds."""

    cpu: float
    memory: float
    """MB"""


class Found(NamedTuple):
    """What a host says of itself."""

    size: Size
    labels: Mapping[str, str]


class SeenDomain(NamedTuple):
    """A domain of a host, as a look at all of them shows it."""

    name: str
    uuid: str
    state: int
    reason: int

    @property
    def has_ended(self) -> bool:
        """Whether it does not run. A domain that its host has saved is resumed from its file: it has not ended."""
        return self.state == CRASHED_STATE or (self.state == SHUTOFF and self.reason != SAVED)


class Image(NamedTuple):
    """A volume that can be the base of a disk."""

    path: str
    format: str
    capacity: int
    """bytes, as the guest sees it"""


class Connection(Protocol):
    """A host. Each method raises GoneError if the connection is lost, and another HostError if the host refuses."""

    def look(self) -> Found:
        """Return what the host has."""

    def domains(self) -> list[SeenDomain]:
        """Return all domains, of whomever they are."""

    def size(self, uuid: str) -> Size:
        """Return what a domain holds while it runs."""

    def mark(self, uuid: str) -> str | None:
        """Return our metadata of a domain; None if there is no such domain, or it has none."""

    def set_mark(self, uuid: str, mark: str) -> None:
        """Write our metadata of a domain, so that it is kept after the domain has ended."""

    def define(self, xml: str) -> None:
        """Define a persistent domain, or define it anew."""

    def create(self, uuid: str) -> None:
        """Start a domain paused, so that its guest has executed nothing yet; a domain that is started stays as it is."""

    def resume(self, uuid: str) -> None:
        """Let a paused domain go on."""

    def shutdown(self, uuid: str) -> None:
        """Press the power button."""

    def destroy(self, uuid: str) -> None:
        """Pull the plug; a domain that does not run stays as it is."""

    def undefine(self, uuid: str) -> None:
        """Forget a domain that does not run."""

    def free(self) -> float:
        """Return the free space of the pool in MB."""

    def image(self, name: str) -> Image:
        """Return a base image of the pool; MissingError if there is none."""

    def volumes(self) -> list[str]:
        """Return the names of all volumes of the pool."""

    def make_volume(self, name: str, size: int, base: Image | None = None) -> str:
        """Make a volume, or find the one that is there, and return its path. With a base it is an overlay in qcow2, else raw."""

    def write_volume(self, name: str, data: bytes) -> None:
        """Write the beginning of a volume."""

    def read_volume(self, name: str, offset: int, limit: int) -> tuple[bytes, int]:
        """Return a piece of a raw volume, and its size now."""

    def drop_volume(self, name: str) -> None:
        """Delete a volume, if it is there."""

    def alive(self) -> bool:
        """Return whether the connection holds, as far as is known without a request."""

    def close(self) -> None:
        """Let go."""


# Opens a connection: URI, pool, and what is called from any thread when something may have changed.
Open = Callable[[str, str, Callable[[], None]], Connection]

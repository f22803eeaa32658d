"""The table `[libvirt]` of a cluster file: which hosts there are, what is kept back on them, and how far they are over-committed."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slotwise.errors import InputError
from slotwise.live.engines.libvirt.connection import Size
from slotwise.model.reader import parse_toml

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MEMORY_RESERVE = (
    1024.0  # MB for the host itself: its kernel, libvirtd, and what QEMU takes beside the guest's memory
)


class HostsPart(BaseModel):
    """A table in which no other key is accepted."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Amounts(HostsPart):
    """CPUs, and megabytes of memory."""

    cpu: Amount = 0.0
    memory: Amount = 0.0


class Host(HostsPart):
    """A host."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]
    uri: Annotated[str, Field(min_length=1)]
    reserve: Amounts = Amounts(memory=MEMORY_RESERVE)
    capacity: Amounts | None = None
    """use so much of the host and no more, instead of what it reports"""
    labels: dict[str, str] = {}


class Hosts(HostsPart):
    """All hosts and what holds for each of them."""

    hosts: Annotated[tuple[Host, ...], Field(min_length=1)]
    pool: str = "default"
    """the storage pool of each host that has the base images and gets overlays, seeds and consoles"""
    domain_type: str = "kvm"
    cpu_overcommit: Annotated[float, Field(ge=1, le=64)] = 1.0
    memory_overcommit: Annotated[float, Field(ge=1, le=4)] = 1.0
    lost_after: Annotated[float, Field(gt=0)] = 600.0
    """seconds without a connection after which a host counts as lost, with its virtual machines"""
    disk_reserve: Amount = 1000.0
    """MB; a host whose pool has less free takes no more jobs"""

    def capacity(self, host: Host, found: Size) -> Size:
        """Return what jobs may use of a host that has this size, before domains of others are taken off."""
        if host.capacity is not None:
            return Size(host.capacity.cpu, host.capacity.memory)
        return Size(
            max(0.0, found.cpu - host.reserve.cpu) * self.cpu_overcommit,
            max(0.0, found.memory - host.reserve.memory) * self.memory_overcommit,
        )

    def consequences(self) -> list[str]:
        """Return what over-commit means, for the log."""
        found = []
        if self.cpu_overcommit > 1:
            found.append(
                f"CPUs are over-committed {self.cpu_overcommit:g} times: virtual machines slow each other down when all are busy"
            )
        if self.memory_overcommit > 1:
            found.append(
                f"memory is over-committed {self.memory_overcommit:g} times: without enough swap, a host whose guests use their "
                "memory kills one of them, which ends as crashed"
            )
        return found


REMEDY = "write [libvirt] with [[libvirt.hosts]], each with name and uri (docs/guides/libvirt.md)"


SYSTEM_SOCKET = Path("/run/libvirt/libvirt-sock")
KVM = Path("/dev/kvm")


def this_host() -> Hosts:
    """Return the host that libvirt's own tools use on this machine: LIBVIRT_DEFAULT_URI, else that of the system, else that of the user."""
    shared = os.geteuid() == 0 or os.access(SYSTEM_SOCKET, os.W_OK)
    uri = os.environ.get("LIBVIRT_DEFAULT_URI") or ("qemu:///system" if shared else "qemu:///session")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100] or "host"
    kind = "kvm" if shared or os.access(KVM, os.W_OK) else "qemu"
    return Hosts(hosts=(Host(name=name, uri=uri),), domain_type=kind)


def read_hosts(source: str | None) -> tuple[Hosts, dict[str, Any]]:
    """Return the hosts of a cluster file, and its other tables: the policy and the types. Without a file, return this machine's host."""
    if source is None:
        return this_host(), {}
    try:
        text = Path(source).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=source, remedy=REMEDY) from None
    tables: dict[str, Any] = parse_toml(text, where=source)
    if "libvirt" not in tables:
        raise InputError("has no table [libvirt]", where=source, remedy=REMEDY)
    if "cluster" in tables:
        raise InputError(
            "has the table [cluster]", where=source, remedy="leave it out: capacities come from the hosts"
        )
    return checked_hosts(tables.pop("libvirt"), source), tables


def checked_hosts(table: Any, source: str) -> Hosts:
    """Return the table [libvirt], checked."""
    try:
        found = Hosts.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, ("libvirt", *first["loc"])))
        raise InputError(f"{place}: {first['msg']}", where=source, remedy=REMEDY) from None
    for key in ("name", "uri"):
        values = [getattr(one, key) for one in found.hosts]
        twice = next((one for one in values if values.count(one) > 1), None)
        if twice is not None:
            raise InputError(f"two hosts have the {key} {twice!r}", where=source, remedy="name each host once")
    return found

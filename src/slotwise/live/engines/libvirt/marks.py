"""Identity of a virtual machine on its host: name, UUID and our metadata, which say of which store, job and attempt it is."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from slotwise.live.engines.protocol import Attempt

SPACE = "https://slotwise.invalid/libvirt/1"  # the XML namespace of our metadata; nothing is fetched from there
PREFIX = "slotwise"
SHORT = 8  # characters of a store's identity in names
ET.register_namespace(PREFIX, SPACE)


class Mark(NamedTuple):
    """What a domain says of the attempt that it is."""

    job: int
    attempt: int
    cpu: float
    memory: float
    """MB"""
    time: float | None
    """time limit in seconds"""
    grace: float
    """seconds between the power button and the plug"""
    begun: float | None = None
    """when its guest was let go, in seconds since 1970; None: it has executed nothing"""
    asked: float | None = None
    """when it was first asked to shut down; the next service knows from this why it has ended"""
    pulled: float | None = None
    """when its plug was first pulled; libvirtd, if it is killed at that moment, takes the machine for crashed"""

    @property
    def key(self) -> Attempt:
        """Job and attempt."""
        return self.job, self.attempt

    def xml(self) -> str:
        """Return it as an element without a namespace, which libvirt adds."""
        values = {name: repr(value) for name, value in self._asdict().items() if value is not None}
        return ET.tostring(ET.Element("job", values), encoding="unicode")


def read_mark(text: str | None) -> Mark | None:
    """Return what a domain says; None if it says nothing."""
    if text is None:
        return None
    found = ET.fromstring(text)
    limit, *times = (found.get(name) for name in ("time", "begun", "asked", "pulled"))
    return Mark(
        int(found.get("job", "0")),
        int(found.get("attempt", "0")),
        float(found.get("cpu", "0")),
        float(found.get("memory", "0")),
        None if limit is None else float(limit),
        float(found.get("grace", "0")),
        *(None if at is None else float(at) for at in times),
    )


def uuid_of(store: str, key: Attempt) -> str:
    """Return the domain's UUID: always the same, so that a second definition is the same domain."""
    return str(uuid5(NAMESPACE_URL, f"{SPACE}/{store}/{key[0]}/{key[1]}"))


def name_of(store: str, key: Attempt) -> str:
    """Return the domain's name, also the beginning of its volumes' names."""
    return f"{PREFIX}-{store[:SHORT]}-{key[0]}-{key[1]}"


def key_of(store: str, name: str) -> Attempt | None:
    """Return job and attempt of a name, of a domain or volume; None if the name is not one of this store's."""
    match = re.match(rf"{PREFIX}-{re.escape(store[:SHORT])}-(\d+)-(\d+)(?:\.|$)", name)
    return None if match is None else (int(match[1]), int(match[2]))


def is_ours(store: str, name: str, uuid: str) -> Attempt | None:
    """Return job and attempt of a domain; None if it is not of this store, whatever it is called."""
    key = key_of(store, name)
    return key if key is not None and UUID(uuid) == UUID(uuid_of(store, key)) else None


# The right to start domains on a host: a domain that is never started carries the epoch of the newest service.


def fence_uuid(store: str) -> str:
    """Return the UUID of the domain that carries the epoch."""
    return str(uuid5(NAMESPACE_URL, f"{SPACE}/{store}/service"))


def fence_xml(store: str, epoch: int, kind: str) -> str:
    """Return the domain that carries the epoch."""
    root = ET.Element("domain", type=kind)
    ET.SubElement(root, "name").text = f"{PREFIX}-{store[:SHORT]}-service"
    ET.SubElement(root, "uuid").text = fence_uuid(store)
    ET.SubElement(
        root, "description"
    ).text = "Never started: it carries the number of the newest Slotwise service, so that an older one starts nothing any more."
    ET.SubElement(root, "memory", unit="KiB").text = "1024"
    ET.SubElement(root, "vcpu").text = "1"
    ET.SubElement(ET.SubElement(root, "os"), "type").text = "hvm"
    ET.SubElement(ET.SubElement(root, "metadata"), f"{{{SPACE}}}service", epoch=str(epoch))
    return ET.tostring(root, encoding="unicode")


def epoch_of(text: str | None) -> int:
    """Return the epoch that a host carries; 0 if it carries none."""
    return 0 if text is None else int(ET.fromstring(text).get("epoch", "0"))

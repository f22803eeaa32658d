"""A host of libvirt in memory, for tests of the engine: it can lose its connection at any call, refuse, fill up and restart."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable

from slotwise.live.engines.libvirt.connection import (
    BY_GUEST,
    DESTROYED,
    PAUSED,
    SHUTOFF,
    Found,
    GoneError,
    HostError,
    Image,
    MissingError,
    SeenDomain,
    Size,
    StorageFullError,
)
from slotwise.live.engines.libvirt.marks import SPACE

RUNNING = 1


class Domain:
    """A domain."""

    def __init__(self, xml: str) -> None:
        self.xml = ET.fromstring(xml)
        self.name, self.uuid = self.xml.findtext("name") or "", self.xml.findtext("uuid") or ""
        self.state, self.reason = SHUTOFF, 0
        self.mark: str | None = None
        for one in self.xml.iterfind("metadata/*"):
            if one.tag.startswith(f"{{{SPACE}}}"):
                self.mark = ET.tostring(ET.Element("x", one.attrib), encoding="unicode")

    def end(self, reason: int) -> None:
        self.state, self.reason = SHUTOFF, reason


class FakeHost:
    """What stays while connections come and go."""

    def __init__(self, cpu: float = 4, memory: float = 4000) -> None:
        self.size = Size(cpu, memory)
        self.all: dict[str, Domain] = {}
        self.volumes: dict[str, bytes] = {"image": b"i" * 1024}
        self.runs: Counter[str] = Counter()
        """how often each guest was let go"""
        self.up = True
        self.cut: Callable[[str], bool] = lambda call: False
        """whether the connection is lost just before a call"""
        self.cut_after: Callable[[str], bool] = lambda call: False
        """whether it is lost just after a call, which is carried out"""
        self.refuses: dict[str, HostError] = {}
        self.free = 1e6
        self.wakes: list[Callable[[], None]] = []
        self.calls: list[str] = []

    def open(self, uri: str, pool: str, wake: Callable[[], None]) -> FakeConnection:
        """As `Open`."""
        if not self.up:
            raise GoneError("connection refused")
        self.wakes = [wake]
        return FakeConnection(self)

    def wake(self) -> None:
        """Send an event."""
        for one in self.wakes:
            one()

    def named(self, part: str) -> Domain:
        """Return the domain with this end of its name."""
        return next(one for one in self.all.values() if one.name.endswith(part))

    def power_off(self, part: str, text: bytes = b"") -> None:
        """Let a guest write to its console and power off."""
        one = self.named(part)
        self.volumes[f"{one.name}.log"] += text
        one.end(BY_GUEST)
        self.wake()

    def restart(self) -> None:
        """Restart libvirtd: it does not know any more why domains have ended."""
        for one in self.all.values():
            if one.state == SHUTOFF:
                one.reason = 0


class FakeConnection:
    """See `Connection`."""

    def __init__(self, host: FakeHost) -> None:
        self.host, self.dead = host, False

    def __getattribute__(self, name: str) -> object:
        found = object.__getattribute__(self, name)
        if name in ("host", "dead", "alive", "close") or not callable(found):
            return found

        def call(*values: object) -> object:
            host = self.host
            host.calls.append(name)
            if self.dead or not host.up or host.cut(name):
                self.dead = True
                raise GoneError(f"connection lost before {name}")
            if name in host.refuses:
                raise host.refuses[name]
            result = found(*values)
            if host.cut_after(name):
                self.dead = True
                raise GoneError(f"connection lost after {name}")
            return result

        return call

    def _domain(self, uuid: str) -> Domain:
        if uuid not in self.host.all:
            raise MissingError(f"no domain {uuid}")
        return self.host.all[uuid]

    def look(self) -> Found:
        return Found(self.host.size, {"arch": "x86_64"})

    def domains(self) -> list[SeenDomain]:
        return [SeenDomain(one.name, one.uuid, one.state, one.reason) for one in self.host.all.values()]

    def size(self, uuid: str) -> Size:
        one = self._domain(uuid).xml
        return Size(float(one.findtext("vcpu") or 0), float(one.findtext("memory") or 0) * 1024 / 1e6)

    def mark(self, uuid: str) -> str | None:
        return self.host.all[uuid].mark if uuid in self.host.all else None

    def set_mark(self, uuid: str, mark: str) -> None:
        self._domain(uuid).mark = mark

    def define(self, xml: str) -> None:
        made = Domain(xml)
        taken = [one for one in self.host.all.values() if one.name == made.name and one.uuid != made.uuid]
        if taken:
            raise HostError(f"domain {made.name!r} already exists with uuid {taken[0].uuid}")
        self.host.all[made.uuid] = made

    def create(self, uuid: str) -> None:
        one = self._domain(uuid)
        if one.state == SHUTOFF:
            one.state = PAUSED

    def resume(self, uuid: str) -> None:
        one = self._domain(uuid)
        assert one.state == PAUSED
        one.state = RUNNING
        self.host.runs[uuid] += 1

    def shutdown(self, uuid: str) -> None:
        self._domain(uuid)

    def destroy(self, uuid: str) -> None:
        one = self._domain(uuid)
        if one.state != SHUTOFF:
            one.end(DESTROYED)

    def undefine(self, uuid: str) -> None:
        if uuid in self.host.all:
            assert self.host.all[uuid].state == SHUTOFF
            del self.host.all[uuid]

    def free(self) -> float:
        return self.host.free

    def image(self, name: str) -> Image:
        if name not in self.host.volumes:
            raise MissingError(name)
        return Image(f"/pool/{name}", "raw", 1024)

    def volumes(self) -> list[str]:
        return list(self.host.volumes)

    def make_volume(self, name: str, size: int, base: Image | None = None) -> str:
        if self.host.free <= 0:
            raise StorageFullError("No space left on device")
        self.host.volumes.setdefault(name, b"")
        return f"/pool/{name}"

    def write_volume(self, name: str, data: bytes) -> None:
        self.host.volumes[name] = data

    def read_volume(self, name: str, offset: int, limit: int) -> tuple[bytes, int]:
        if name not in self.host.volumes:
            raise MissingError(name)
        data = self.host.volumes[name]
        return data[offset : offset + limit], len(data)

    def drop_volume(self, name: str) -> None:
        self.host.volumes.pop(name, None)

    def alive(self) -> bool:
        return not self.dead and self.host.up

    def close(self) -> None:
        self.dead = True

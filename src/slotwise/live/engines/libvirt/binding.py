"""Connections by the library libvirt, which is imported only here."""

from __future__ import annotations

import logging
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from slotwise.errors import InputError
from slotwise.live.engines.libvirt.connection import (
    Connection,
    Found,
    GoneError,
    HostError,
    Image,
    MissingError,
    SeenDomain,
    Size,
    StorageFullError,
    WrongError,
)
from slotwise.live.engines.libvirt.marks import PREFIX, SPACE

log = logging.getLogger(__name__)
KEEPALIVE = 2, 3  # seconds between two questions, and how many may stay unanswered
REFRESH_SECONDS = 60.0  # between two refreshes of a pool: in between libvirt counts its own volumes only, not what else fills the disk
MB, KIB = 1e6, 1024
PIECE = 1 << 16  # bytes of one message of a stream
_events = threading.Lock()
_running = False


def library() -> Any:
    """Return the module libvirt."""
    try:
        import libvirt
    except ImportError as error:
        raise InputError(
            f"needs the module libvirt: {error}",
            where="--engine libvirt",
            remedy="pip install 'slotwise[libvirt]' (it is built with Debian's libvirt-dev), or apt-get install python3-libvirt",
        ) from None
    return libvirt


def start_events() -> None:
    """Run libvirt's event loop, which serves keep-alive messages and events of all connections. It cannot be ended."""
    global _running
    virt = library()
    with _events:
        if _running:
            return
        _running = True
        virt.virEventRegisterDefaultImpl()
        virt.registerErrorHandler(
            lambda context, error: None, None
        )  # errors are raised; they need not be printed, too

    def run() -> None:
        while True:
            try:
                virt.virEventRunDefaultImpl()
            except virt.libvirtError as error:
                log.error("libvirt's event loop: %s", error)

    threading.Thread(target=run, name="slotwise-libvirt-events", daemon=True).start()


def connect(uri: str, pool: str, wake: Callable[[], None]) -> Connection:
    """Open a connection."""
    start_events()
    with translated():
        return LibvirtConnection(library().open(uri), pool, wake)


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of libvirt as errors of ours."""
    virt = library()
    try:
        yield
    except virt.libvirtError as error:
        raise kind_of(error)(text_of(error)) from None


def text_of(error: Any) -> str:
    """Return what libvirt says, in one line."""
    return " ".join(str(error.get_error_message() or error).split())


def kind_of(error: Any) -> type[HostError]:
    """Return which error of ours it is."""
    virt, code, domain = library(), error.get_error_code(), error.get_error_domain()
    text = str(error).lower()
    if code in (virt.VIR_ERR_NO_DOMAIN, virt.VIR_ERR_NO_STORAGE_VOL, virt.VIR_ERR_NO_DOMAIN_METADATA):
        return MissingError
    gone = (virt.VIR_ERR_RPC, virt.VIR_ERR_NO_CONNECT, virt.VIR_ERR_INVALID_CONN, virt.VIR_ERR_AUTH_FAILED)
    if code in gone or domain == virt.VIR_FROM_RPC or "client socket is closed" in text:
        return GoneError
    if "no space left" in text or "disk quota exceeded" in text:
        return StorageFullError
    wrong = (
        virt.VIR_ERR_XML_ERROR, virt.VIR_ERR_XML_DETAIL, virt.VIR_ERR_CONFIG_UNSUPPORTED, virt.VIR_ERR_NO_NETWORK,
        virt.VIR_ERR_OS_TYPE, virt.VIR_ERR_XML_INVALID_SCHEMA,
    )  # fmt: skip
    return WrongError if code in wrong else HostError


class LibvirtConnection:
    """See `Connection`."""

    def __init__(self, connection: Any, pool: str, wake: Callable[[], None]) -> None:
        self._conn, self._pool_name, self._virt = connection, pool, library()
        self._closed = False
        self._next_refresh = 0.0
        try:
            connection.setKeepAlive(*KEEPALIVE)
        except self._virt.libvirtError as error:
            log.debug("no keep-alive: %s", error)  # a driver in this process needs none

        def on_close(*_: Any) -> None:
            self._closed = True
            wake()

        connection.registerCloseCallback(on_close, None)
        self._event = connection.domainEventRegisterAny(
            None, self._virt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lambda *_: wake(), None
        )

    # -- the host and its domains -------------------------------------------------------------------------------

    def look(self) -> Found:
        with translated():
            _, megabytes, cpus, *_ = self._conn.getInfo()
            root = ET.fromstring(self._conn.getCapabilities())
        memory = ordinary_memory(root)
        labels = {
            name: found
            for name, path in (("arch", "host/cpu/arch"), ("cpu-model", "host/cpu/model"))
            if (found := root.findtext(path))
        }
        return Found(Size(float(cpus), megabytes * KIB * KIB / MB if memory is None else memory), labels)

    def domains(self) -> list[SeenDomain]:
        with translated():
            rows = self._conn.getAllDomainStats(self._virt.VIR_DOMAIN_STATS_STATE)
            return [
                SeenDomain(one.name(), one.UUIDString(), stats.get("state.state", 0), stats.get("state.reason", 0))
                for one, stats in rows
            ]

    def size(self, uuid: str) -> Size:
        with translated():
            _, kibibytes, _, cpus, _ = self._domain(uuid).info()
        return Size(float(cpus), kibibytes * KIB / MB)

    def mark(self, uuid: str) -> str | None:
        kind, flags = self._virt.VIR_DOMAIN_METADATA_ELEMENT, self._virt.VIR_DOMAIN_AFFECT_CONFIG
        try:
            with translated():
                return str(self._domain(uuid).metadata(kind, SPACE, flags))
        except MissingError:
            return None

    def set_mark(self, uuid: str, mark: str) -> None:
        kind, flags = self._virt.VIR_DOMAIN_METADATA_ELEMENT, self._virt.VIR_DOMAIN_AFFECT_CONFIG
        with translated():
            self._domain(uuid).setMetadata(kind, mark, PREFIX, SPACE, flags)

    def define(self, xml: str) -> None:
        with translated():
            self._conn.defineXML(xml)

    def create(self, uuid: str) -> None:
        with translated():
            domain = self._domain(uuid)
            if not domain.isActive():
                domain.createWithFlags(self._virt.VIR_DOMAIN_START_PAUSED)

    def resume(self, uuid: str) -> None:
        with translated():
            self._domain(uuid).resume()

    def shutdown(self, uuid: str) -> None:
        with translated():
            self._domain(uuid).shutdown()

    def destroy(self, uuid: str) -> None:
        with translated():
            domain = self._domain(uuid)
            try:
                domain.destroy()
            except self._virt.libvirtError as error:
                if error.get_error_code() != self._virt.VIR_ERR_OPERATION_INVALID:  # it does not run
                    raise

    def undefine(self, uuid: str) -> None:
        flags = self._virt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | self._virt.VIR_DOMAIN_UNDEFINE_NVRAM
        with suppress(MissingError), translated():
            self._domain(uuid).undefineFlags(flags)

    def _domain(self, uuid: str) -> Any:
        return self._conn.lookupByUUIDString(uuid)

    # -- storage ------------------------------------------------------------------------------------------------

    def _pool(self) -> Any:
        try:
            pool = self._conn.storagePoolLookupByName(self._pool_name)
        except self._virt.libvirtError as error:
            if error.get_error_code() != self._virt.VIR_ERR_NO_STORAGE_POOL:
                raise
            raise HostError(f"the host has no storage pool {self._pool_name!r}") from None
        if not pool.isActive():
            pool.create()
        return pool

    def free(self) -> float:
        with translated():
            pool = self._pool()
            if time.monotonic() >= self._next_refresh:
                self._next_refresh = time.monotonic() + REFRESH_SECONDS
                with suppress(
                    self._virt.libvirtError
                ):  # refused while a volume is written; the next look tries again
                    pool.refresh()
            return float(pool.info()[3]) / MB

    def image(self, name: str) -> Image:
        with translated():
            volume = self._find(name, refresh=True)
            root = ET.fromstring(volume.XMLDesc())
        form = root.find("target/format")
        return Image(
            root.findtext("target/path") or name,
            "raw" if form is None else form.get("type", "raw"),
            int(root.findtext("capacity") or 0),
        )

    def _find(self, name: str, *, refresh: bool = False) -> Any:
        """Return a volume; with `refresh`, look at the folder if the pool does not know it: it may have come since."""
        pool = self._pool()
        try:
            return pool.storageVolLookupByName(name)
        except self._virt.libvirtError as error:
            if not refresh or error.get_error_code() != self._virt.VIR_ERR_NO_STORAGE_VOL:
                raise
        pool.refresh()
        return pool.storageVolLookupByName(name)

    def volumes(self) -> list[str]:
        with translated():
            return [str(name) for name in self._pool().listVolumes()]

    def make_volume(self, name: str, size: int, base: Image | None = None) -> str:
        root = ET.Element("volume")
        ET.SubElement(root, "name").text = name
        ET.SubElement(root, "capacity", unit="bytes").text = str(size)
        ET.SubElement(root, "allocation").text = "0"
        target = ET.SubElement(root, "target")
        ET.SubElement(target, "format", type="raw" if base is None else "qcow2")
        if base is not None:
            backing = ET.SubElement(root, "backingStore")
            ET.SubElement(backing, "path").text = base.path
            ET.SubElement(backing, "format", type=base.format)
        with translated():
            try:
                volume = self._pool().createXML(ET.tostring(root, encoding="unicode"))
            except self._virt.libvirtError as error:
                if error.get_error_code() != self._virt.VIR_ERR_STORAGE_VOL_EXIST:
                    raise
                volume = self._find(name)
            return str(volume.path())

    def write_volume(self, name: str, data: bytes) -> None:
        with translated():
            stream = self._conn.newStream()
            try:
                self._find(name).upload(stream, 0, len(data))
                for at in range(0, len(data), PIECE):
                    stream.send(data[at : at + PIECE])
                stream.finish()
            except BaseException:
                with suppress(self._virt.libvirtError):
                    stream.abort()
                raise

    def read_volume(self, name: str, offset: int, limit: int) -> tuple[bytes, int]:
        with translated():
            volume = self._find(name)
            size = int(volume.info()[1])
            length = min(limit, size - offset)
            if length <= 0:
                return b"", size
            stream, pieces = self._conn.newStream(), []
            try:
                volume.download(stream, offset, length)
                while piece := stream.recv(PIECE):
                    pieces.append(piece)
                stream.finish()
            except BaseException:
                with suppress(self._virt.libvirtError):
                    stream.abort()
                raise
        return b"".join(pieces), size

    def drop_volume(self, name: str) -> None:
        with suppress(MissingError), translated():
            self._find(name).delete()

    # -- the connection itself ----------------------------------------------------------------------------------

    def alive(self) -> bool:
        return not self._closed

    def close(self) -> None:
        with suppress(self._virt.libvirtError):
            self._conn.domainEventDeregisterAny(self._event)
        with suppress(self._virt.libvirtError):
            self._conn.unregisterCloseCallback()
        with suppress(self._virt.libvirtError):
            self._conn.close()


def ordinary_memory(capabilities: ET.Element) -> float | None:
    """Return the memory in MB that is not set apart as huge pages, where the host tells: guests without huge pages cannot use those."""
    found = [
        (int(page.get("size", "0")), int(page.text or 0))
        for page in capabilities.iterfind("host/topology/cells/cell/pages")
    ]
    if not found:
        return None
    smallest = min(size for size, _ in found)
    return sum(size * count for size, count in found if size == smallest) * KIB / MB

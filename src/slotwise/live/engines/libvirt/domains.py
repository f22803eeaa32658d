"""A virtual machine as libvirt describes it: XML from a start and, if there is one, the user's template."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from math import floor
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.live.engines.libvirt.marks import SPACE, Mark, name_of, uuid_of
from slotwise.live.engines.protocol import Start

MB, KIB = 1e6, 1024
GRACE_SECONDS = 10.0  # between the power button and the plug, as between SIGTERM and SIGKILL for processes
UNITS = {
    "b": 1,
    "bytes": 1,
    "KB": 1e3,
    "k": KIB,
    "KiB": KIB,
    "MB": 1e6,
    "M": KIB**2,
    "MiB": KIB**2,
    "GB": 1e9,
    "G": KIB**3,
    "GiB": KIB**3,
}


class Paths(NamedTuple):
    """Where the parts of a virtual machine are on its host."""

    console: str
    disk: str
    seed: str | None


def vm_of(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a spec says of its virtual machine."""
    found: Mapping[str, Any] = spec.get("vm") or {}
    return found


def mark_for(start: Start) -> Mark:
    """Return the mark of a start. Raise InputError if its size cannot be that of a virtual machine."""
    cpu, memory = start.demand.get("cpu", 0.0), start.demand.get("memory", 0.0)
    if cpu != int(cpu) or cpu < 1:
        raise InputError(f"{cpu:g} CPUs", where="needs", remedy="a virtual machine has whole CPUs, at least one")
    if memory < 1:
        raise InputError(f"{memory:g} MB of memory", where="needs", remedy="ask for memory, such as memory=2G")
    grace = start.spec.get("grace")
    return Mark(
        start.job,
        start.attempt,
        cpu,
        memory,
        start.spec.get("time"),
        float(GRACE_SECONDS if grace is None else grace),
    )


def check_template(text: str) -> ET.Element:
    """Return a domain's XML as a tree. Raise InputError if it is none, or if it would hold more than is charged."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise InputError(
            f"is no XML: {error}", where="vm.domain", remedy="`virsh dumpxml` shows an example"
        ) from None
    if root.tag != "domain":
        raise InputError(f"is a <{root.tag}>", where="vm.domain", remedy="write a <domain>")
    if root.find("devices/memory") is not None:
        raise InputError("has <memory> devices", where="vm.domain", remedy="ask for all memory with --needs")
    return root


def check_numa(root: ET.Element, kibibytes: int) -> None:
    """Raise InputError if NUMA cells do not sum to the memory that is charged: libvirt would take their sum instead."""
    cells = root.findall("cpu/numa/cell")
    total = sum(float(one.get("memory", "0")) * UNITS.get(one.get("unit", "KiB"), KIB) / KIB for one in cells)
    if cells and total != kibibytes:
        raise InputError(
            f"NUMA cells with {total:g} KiB in all",
            where="vm.domain",
            remedy=f"the job's memory is {kibibytes} KiB: let the cells sum to it",
        )


def domain_xml(start: Start, store: str, mark: Mark, kind: str, paths: Paths) -> str:
    """Return the domain of a start. Size, identity, console and disks are ours; all else comes from the template, if there is one."""
    vm = vm_of(start.spec)
    root = check_template(vm["domain"]) if vm.get("domain") else ET.Element("domain")
    root.set("type", kind)
    _only(root, "name", name_of(store, mark.key))
    _only(root, "uuid", uuid_of(store, mark.key))
    # QEMU rounds up to whole MiB; rounded down here, so that a host never holds more than was charged
    kibibytes = max(1, floor(mark.memory * MB / KIB**2)) * KIB
    check_numa(root, kibibytes)
    for tag in ("currentMemory", "maxMemory", "vcpus"):
        _drop(root, tag)
    _only(root, "memory", str(kibibytes), unit="KiB")
    vcpu = root.find("vcpu")
    pinned = {} if vcpu is None else {name: value for name, value in vcpu.attrib.items() if name != "current"}
    _only(root, "vcpu", str(int(mark.cpu)), **pinned)
    metadata = _have(root, "metadata")
    _only(metadata, f"{{{SPACE}}}job", None, **ET.fromstring(mark.xml()).attrib)
    if root.find("os") is None:
        ET.SubElement(_have(root, "os"), "type").text = "hvm"
    if root.find("features") is None:
        ET.SubElement(_have(root, "features"), "acpi")  # the power button
    _only(root, "on_poweroff", "destroy")
    _only(root, "on_crash", "destroy")
    devices = _have(root, "devices")
    for tag in ("serial", "console"):
        _drop(devices, tag)
    serial = ET.SubElement(devices, "serial", type="pty")
    ET.SubElement(serial, "log", file=paths.console, append="on")
    _add_disk(devices, paths.disk, "qcow2", "vda")
    if paths.seed is not None:
        _add_disk(devices, paths.seed, "raw", "vdb")
    if vm.get("network"):
        interface = ET.SubElement(devices, "interface", type="network")
        ET.SubElement(interface, "source", network=str(vm["network"]))
        ET.SubElement(interface, "model", type="virtio")
    return ET.tostring(root, encoding="unicode")


def _add_disk(devices: ET.Element, path: str, form: str, target: str) -> None:
    """Add a volume of the host as a disk."""
    disk = ET.SubElement(devices, "disk", type="file", device="disk")
    ET.SubElement(disk, "driver", name="qemu", type=form)
    ET.SubElement(disk, "source", file=path)
    ET.SubElement(disk, "target", dev=target, bus="virtio")
    if form == "raw":
        ET.SubElement(disk, "readonly")


def _have(parent: ET.Element, tag: str) -> ET.Element:
    """Return the child with this tag, made if it is missing."""
    found = parent.find(tag)
    return ET.SubElement(parent, tag) if found is None else found


def _drop(parent: ET.Element, tag: str) -> None:
    for one in parent.findall(tag):
        parent.remove(one)


def _only(parent: ET.Element, tag: str, text: str | None, **attributes: str) -> None:
    """Make the only child with this tag."""
    _drop(parent, tag)
    ET.SubElement(parent, tag, attributes).text = text

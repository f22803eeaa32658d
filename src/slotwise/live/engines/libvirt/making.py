"""The parts of a virtual machine on its host: an overlay as its disk, the seed of cloud-init, the console, and the domain."""

from __future__ import annotations

from slotwise.errors import InputError
from slotwise.live.engines.libvirt.connection import Connection, MissingError
from slotwise.live.engines.libvirt.domains import Paths, domain_xml, mark_for, vm_of
from slotwise.live.engines.libvirt.marks import PREFIX, Mark, name_of
from slotwise.live.engines.libvirt.seed import seed
from slotwise.live.engines.protocol import Attempt, Start

DISK, SEED, CONSOLE = ".qcow2", ".iso", ".log"  # ends of the volumes' names
MB = 1_000_000


def make_machine(connection: Connection, start: Start, store: str, kind: str) -> Mark:
    """Make all parts and define the domain. All of it may be there already, from a try that was cut off."""
    mark, vm, name = mark_for(start), vm_of(start.spec), name_of(store, (start.job, start.attempt))
    wanted = str(vm.get("image", ""))
    if wanted.startswith(f"{PREFIX}-"):
        raise InputError(f"{wanted!r} belongs to a job", where="vm.image", remedy="use an image of the pool")
    try:
        base = connection.image(wanted)
    except MissingError:
        raise MissingError(f"the pool has no image {wanted!r}") from None
    size = base.capacity
    if vm.get("disk"):
        size = int(vm["disk"] * MB) // 512 * 512
        if size < base.capacity:
            raise InputError(
                f"{vm['disk']:g} MB is less than the image",
                where="vm.disk",
                remedy=f"it has {base.capacity / MB:.0f} MB",
            )
    disk = connection.make_volume(name + DISK, size, base)
    seed_path = None
    if vm.get("user_data") is not None:
        data = seed(name, vm["user_data"])
        seed_path = connection.make_volume(name + SEED, len(data))
        connection.write_volume(name + SEED, data)
    console = connection.make_volume(name + CONSOLE, 0)
    connection.define(domain_xml(start, store, mark, kind, Paths(console, disk, seed_path)))
    return mark


def drop_parts(connection: Connection, store: str, key: Attempt) -> None:
    """Delete the volumes of an attempt."""
    for end in (DISK, SEED, CONSOLE):
        connection.drop_volume(name_of(store, key) + end)

"""The engine `libvirt`: each host of the cluster file is a server, each job a virtual machine.

A virtual machine is a persistent domain whose UUID follows from store, job and attempt. It is defined, started paused, marked as begun and only
then let go. So after any crash the host itself says whether a guest has executed anything: no attempt runs twice, and none is forgotten. A domain
is removed from its host after its end is in the journal. Nothing is ever migrated or interrupted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from slotwise.errors import InputError
from slotwise.live.classes import wanted_kind
from slotwise.live.engines.libvirt.connection import Open
from slotwise.live.engines.libvirt.consoles import Consoles
from slotwise.live.engines.libvirt.hosts import Hosts
from slotwise.live.engines.libvirt.marks import name_of
from slotwise.live.engines.libvirt.worker import Worker
from slotwise.live.engines.protocol import Attempt, Known, ServerUp, Start, Tell
from slotwise.model import Cluster, ServerClass

log = logging.getLogger(__name__)
RESOURCES = ("cpu", "memory")
CONNECT_SECONDS = 10.0  # how long a start of the service waits for hosts; those that answer later join later
NO_HOST = {"cpu": 1.0, "memory": 1024.0}  # stands for the servers of a cluster of which no host has answered yet


class LibvirtEngine:
    """See `Engine`. `store` is the store's identity."""

    name = "libvirt"

    def __init__(self, folder: Path, hosts: Hosts, store: str, *, connect: Open | None = None) -> None:
        if connect is None:
            from slotwise.live.engines.libvirt.binding import connect as by_libvirt
            from slotwise.live.engines.libvirt.binding import library

            library()
            connect = by_libvirt
        self.hosts, self.store = hosts, store
        self.consoles = Consoles(folder / "consoles")
        self._workers = {one.name: Worker(one, hosts, store, self.consoles, connect) for one in hosts.hosts}
        self._where: dict[Attempt, str] = {}
        self._lock = threading.Lock()
        for text in hosts.consequences():
            log.warning("%s", text)

    def cluster(self) -> Cluster:
        """Return the cluster that a new service begins with: the kinds of hosts that answer now."""
        looking = [
            Worker(one.host, self.hosts, self.store, self.consoles, one._open) for one in self._workers.values()
        ]
        try:
            self._wait_for(looking)
            ups = [up for one in looking if (up := one.up()) is not None]
        finally:
            for one in looking:
                one.close()
        if not ups:
            troubles = "; ".join(f"{one.host.name}: {one.trouble}" for one in looking)
            log.warning("no host answers yet: %s", troubles)
        usable = [one for one in ups if all(one.capacity.values())] or [ServerUp("none", NO_HOST)]
        kinds = {wanted_kind(one, RESOURCES): None for one in usable}
        classes = tuple(
            ServerClass(name=f"class-{n}", count=1, capacity=capacity, labels=dict(labels))
            for n, (capacity, labels) in enumerate(kinds, start=1)
        )
        return Cluster(resources=RESOURCES, servers=classes)

    # -- the protocol -------------------------------------------------------------------------------------------

    def open(self, tell: Tell, epoch: int) -> None:
        self.consoles.open()
        for one in self._workers.values():
            one.tell, one.epoch = tell, epoch
        self._wait_for(list(self._workers.values()))

    @staticmethod
    def _wait_for(workers: Sequence[Worker]) -> None:
        """Start workers, and wait a while for their first connections."""
        for one in workers:
            one.begin()
        deadline = time.monotonic() + CONNECT_SECONDS
        for one in workers:
            one.first.wait(max(0.0, deadline - time.monotonic()))

    def servers(self) -> list[ServerUp]:
        found = []
        for one in self._workers.values():
            up = one.up()
            one.tell_from_now_on()
            if up is not None:
                found.append(up)
        return found

    def start(self, starts: Sequence[Start]) -> None:
        for start in starts:
            with self._lock:
                self._where.pop((start.job, start.attempt - 1), None)  # which was refused
                self._where[start.job, start.attempt] = start.server
            self._workers[start.server].start(start)

    def stop(self, job: int, attempt: int) -> None:
        worker = self._worker((job, attempt))
        if worker is not None:
            worker.stop((job, attempt))

    def known(self, attempts: Sequence[tuple[int, int, str]]) -> dict[Attempt, Known]:
        on: dict[str, list[Attempt]] = {name: [] for name in self._workers}
        for job, attempt, server in attempts:
            if server not in on:
                raise InputError(
                    f"job {job} runs on host {server!r}, which the cluster file does not name",
                    where="libvirt.hosts",
                    remedy="name it until its jobs have ended; `slotwise drain` keeps new jobs away",
                )
            on[server].append((job, attempt))
            self._where[job, attempt] = server
        found: dict[Attempt, Known] = {}
        for name, keys in on.items():
            found |= self._workers[name].take_up(keys)
        return found

    def settled(self, attempts: Sequence[Attempt]) -> None:
        for key in attempts:
            worker = self._worker(key)
            if worker is not None:
                worker.settle(key)
            with self._lock:
                self._where.pop(key, None)

    def output(self, job: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int] | None:
        worker = self._worker((job, attempt))
        if worker is not None:
            worker.output((job, attempt))
        return self.consoles.read((job, attempt), offset, limit)

    def console(self, job: int, attempt: int) -> tuple[str, str] | None:
        """Return the host's URI and the domain's name of an attempt that runs; None if it does not."""
        worker = self._worker((job, attempt))
        return None if worker is None else (worker.host.uri, name_of(self.store, (job, attempt)))

    def troubles(self) -> list[str]:
        """Return which hosts cannot be reached, and why: a host that never answered is no server yet."""
        away = [one for one in self._workers.values() if one.connection is None]
        return [f"host {one.host.name} cannot be reached: {one.trouble}" for one in away]

    def close(self) -> None:
        for one in self._workers.values():
            one.close()

    def _worker(self, key: Attempt) -> Worker | None:
        with self._lock:
            return self._workers.get(self._where.get(key, ""))

"""Hosts of libvirt that tools/system/with-libvirt has started: their daemons and virtual machines can be killed and counted from outside.

What runs where is read from the processes of QEMU, not from libvirt and not with the code of the engine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from processes import PATIENCE, gone

SAMPLE_SECONDS = 0.1  # between two counts of what runs; a machine of these tests runs for a second at least


class Machine(NamedTuple):
    """A process of QEMU."""

    pid: int
    host: str
    name: str
    cpu: int
    memory: int
    """MiB"""


class RealHosts:
    """All hosts; they are called host1, host2 and so on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = sorted(one.name for one in folder.glob("host*"))

    def uri(self, host: str) -> str:
        """Return the connection URI of a host."""
        return (self.folder / host / "uri").read_text().strip()

    def virsh(self, host: str, *argv: str, check: bool = True) -> str:
        """Return what virsh prints."""
        ran = subprocess.run(
            ["virsh", "-q", "-c", self.uri(host), *argv], check=False, capture_output=True, text=True
        )
        assert not check or ran.returncode == 0, (host, argv, ran.stderr)
        return ran.stdout

    def make_pools(self, images: Mapping[str, bytes]) -> None:
        """Make the pool `default` on each host, with these images."""
        for host in self.names:
            place = self.folder / host / "images"
            for name, data in images.items():
                (place / name).write_bytes(data)
            self.virsh(host, "pool-define-as", "default", "dir", "--target", str(place))
            self.virsh(host, "pool-start", "default")

    def clean_up(self) -> None:
        """Leave all hosts up, without machines, domains and pools."""
        for host in self.names:
            for one in self.machines():
                if one.host == host:
                    os.kill(one.pid, signal.SIGKILL)
            self.start(host)
            for name in self.virsh(host, "list", "--all", "--name").split():
                self.virsh(host, "destroy", name, check=False)
                self.virsh(host, "undefine", name)
            self.virsh(host, "pool-destroy", "default", check=False)
            self.virsh(host, "pool-undefine", "default", check=False)
            for file in (self.folder / host / "images").iterdir():
                file.unlink()

    # -- daemons ------------------------------------------------------------------------------------------------

    def daemon(self, host: str) -> int:
        """Return the process of libvirtd."""
        return int((self.folder / host / "pid").read_text())

    def kill_daemon(self, host: str) -> None:
        """Kill libvirtd; its machines go on."""
        number = self.daemon(host)
        os.kill(number, signal.SIGKILL)
        self._until_gone(number)

    def lose(self, host: str) -> None:
        """Kill libvirtd and all machines of a host, as a power cut does."""
        self.kill_daemon(host)
        for one in self.machines():
            if one.host == host:
                os.kill(one.pid, signal.SIGKILL)
                self._until_gone(one.pid)

    def start(self, host: str) -> None:
        """Start libvirtd if it does not run, and wait until it answers."""
        if not self._answers(host):
            subprocess.run([self.folder / host / "start"], check=True)
        deadline = time.monotonic() + PATIENCE
        while not self._answers(host):
            assert time.monotonic() < deadline, (self.folder / host / "log").read_text()[-2000:]
            time.sleep(0.05)

    def _answers(self, host: str) -> bool:
        argv = ["virsh", "-q", "-c", self.uri(host), "version"]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    @staticmethod
    def _until_gone(number: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while not gone(number):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    # -- machines -----------------------------------------------------------------------------------------------

    def machines(self) -> list[Machine]:
        """Return what runs now on all hosts."""
        return list(self._machines())

    def _machines(self) -> Iterator[Machine]:
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                text = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if "qemu-system" not in text[:200] or str(self.folder) not in text:
                continue
            host = re.search(re.escape(str(self.folder)) + r"/(host\d+)/", text)
            name = re.search(r"-name guest=([^, ]+)", text)
            cpu, memory = re.search(r"-smp (\d+)", text), re.search(r"-m (\d+)", text)
            if host and name and cpu and memory and not gone(int(entry.name)):
                yield Machine(int(entry.name), host[1], name[1], int(cpu[1]), int(memory[1]))


class Census:
    """A count of all machines, again and again in a thread: the most that each host held, and where each machine ran."""

    def __init__(self, hosts: RealHosts) -> None:
        self.hosts = hosts
        self.most: dict[str, tuple[int, int]] = dict.fromkeys(hosts.names, (0, 0))
        self.places: dict[str, set[tuple[str, int]]] = defaultdict(set)
        """by name of the machine: host and process of each time that it was started"""
        self.counts = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._count()
            self._ending.wait(SAMPLE_SECONDS)

    def _count(self) -> None:
        held = dict.fromkeys(self.hosts.names, (0, 0))
        for one in self.hosts.machines():
            cpu, memory = held[one.host]
            held[one.host] = cpu + one.cpu, memory + one.memory
            self.places[one.name].add((one.host, one.pid))
        for name, (cpu, memory) in held.items():
            self.most[name] = max(self.most[name][0], cpu), max(self.most[name][1], memory)
        self.counts += 1

    def close(self) -> None:
        """End the thread."""
        self._ending.set()
        self._thread.join()

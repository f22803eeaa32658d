"""This machine: how many CPUs, how much memory, which GPUs; and how they are shared out among servers on it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from math import floor
from pathlib import Path
from typing import NamedTuple

from slotwise.live.engines.protocol import ServerUp

MEGABYTE = 1_000_000  # bytes
# Share of the memory that is left to the system.
KEPT_MEMORY = 0.05


class Pool(NamedTuple):
    """What the jobs of one server may use, by number."""

    cpus: list[int]
    gpus: list[int]
    memory_unit: int
    """bytes in one unit of the resource `memory`"""


class Machine(NamedTuple):
    """What is there."""

    cpus: tuple[int, ...]
    memory: int
    """in bytes"""
    gpus: tuple[int, ...]

    @classmethod
    def found(cls) -> Machine:
        """What this process may use of the machine that it runs on."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            try:
                memory = min(memory, int(Path(limit).read_text()))
            except (OSError, ValueError):
                continue  # there is none of this kind, or it is "max"
        gpus = sorted(
            int(match[1])
            for path in Path("/dev").glob("nvidia[0-9]*")
            if (match := re.fullmatch(r"nvidia(\d+)", path.name))
        )
        return cls(tuple(sorted(os.sched_getaffinity(0))), memory, tuple(gpus))

    def capacity(self) -> dict[str, float]:
        """As a server: whole CPUs, megabytes, GPUs if there are any."""
        found: dict[str, float] = {
            "cpu": len(self.cpus),
            "memory": floor(self.memory * (1 - KEPT_MEMORY) / MEGABYTE),
        }
        return found | ({"gpu": len(self.gpus)} if self.gpus else {})

    def pools(self, servers: Mapping[str, ServerUp]) -> dict[str, Pool]:
        """CPUs and GPUs of each server: its own where there are enough for all, otherwise none is tied to any."""
        shares: dict[str, dict[str, list[int]]] = {name: {} for name in servers}
        for kind, numbers in (("cpu", self.cpus), ("gpu", self.gpus)):
            wanted = {name: floor(server.capacity.get(kind, 0)) for name, server in servers.items()}
            enough = sum(wanted.values()) <= len(numbers)
            at = 0
            for name, count in wanted.items():
                shares[name][kind] = list(numbers[at : at + count]) if enough else []
                at += count
        return {name: Pool(share["cpu"], share["gpu"], MEGABYTE) for name, share in shares.items()}

"""Which version made a report, from which seed, on which machine, and how long it took.

Kept in a file of its own: all other data of a report depend on the seed only.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from slotwise._version import __version__
from slotwise.display.numbers import as_json

PACKAGES = ("numpy", "numba", "scipy", "polars", "matplotlib")


@dataclass(frozen=True)
class Manifest:
    """Facts of one run."""

    command: str
    seed: int
    seconds: Mapping[str, float]
    """what took how long"""
    settings: Mapping[str, str] = field(default_factory=dict)
    version: str = __version__
    finished: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    python: str = field(default_factory=platform.python_version)
    packages: Mapping[str, str] = field(
        default_factory=lambda: {name: importlib.metadata.version(name) for name in PACKAGES}
    )
    system: str = field(default_factory=lambda: f"{platform.system()} {platform.release()}")
    machine: str = field(default_factory=platform.machine)
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    processor: str = field(default_factory=lambda: _processor())
    memory_gb: float | None = field(default_factory=lambda: _memory())

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(as_json(asdict(self)) + "\n", "utf-8")

    def rows(self) -> list[tuple[str, str]]:
        """For people."""
        whole = sum(self.seconds.values())
        memory = f", {self.memory_gb:.0f} GB of memory" if self.memory_gb else ""
        return [
            ("command", self.command),
            ("version", f"slotwise {self.version}"),
            ("seed", str(self.seed)),
            *self.settings.items(),
            ("finished", self.finished),
            ("time taken", f"{whole:.0f} s (" + ", ".join(f"{k} {v:.1f} s" for k, v in self.seconds.items()) + ")"),
            ("machine", f"{self.processor or self.machine}, {self.cores} cores{memory}, {self.system}"),
            ("Python", self.python + ", " + ", ".join(f"{k} {v}" for k, v in self.packages.items())),
        ]


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.is_file():
        for line in facts.read_text("utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _memory() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (ValueError, OSError, AttributeError):
        return None  # not every system tells

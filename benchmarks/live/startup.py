"""Start-up of the client: commands beside `python -c pass`, in turns, and submissions a second from a shell loop.

The goal is on processor time, which on an idle machine is nearly the time that a user waits; on a busy one the wait says little.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.live.running import served

TURNS = 15
LOOP = 40  # submissions of the shell loop
GOAL = 0.15  # seconds


def processor() -> float:
    """Return the processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(command: Sequence[str]) -> tuple[float, float]:
    """Return processor time and wall time of one run of a command, which must succeed."""
    began, used = time.perf_counter(), processor()
    subprocess.run(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
    return processor() - used, time.perf_counter() - began


def run() -> list[dict[str, Any]]:
    """Measure; medians over turns in which every command runs once."""
    slotwise = [sys.executable, "-m", "slotwise"]
    with tempfile.TemporaryDirectory() as name, served(Path(name), "--local") as client:
        where = ["--server", client.address.url]
        number = str(client.submit(["true"]).id)
        client.wait([int(number)])
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "slotwise --help": [*slotwise, "--help"],
            "slotwise submit": [*slotwise, "submit", *where, "--", "true"],
            "slotwise jobs": [*slotwise, "jobs", *where],
            "slotwise job": [*slotwise, "job", number, *where],
            "slotwise logs": [*slotwise, "logs", number, *where],
            "slotwise status": [*slotwise, "status", *where],
            "slotwise cancel": [*slotwise, "cancel", "--name", "none", *where],
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(TURNS):
            for name, command in commands.items():
                found[name].append(seconds(command))
        line = " ".join([*slotwise, "submit", *where, "--", "true"])
        _, looped = seconds(["sh", "-c", f"for i in $(seq {LOOP}); do {line} || exit 1; done"])

    def median(name: str, at: int) -> float:
        return statistics.median(pair[at] for pair in found[name])

    rows: list[dict[str, Any]] = []
    for name in found:
        value, waited = median(name, 0), median(name, 1)
        ratio = value / median("python -c pass", 0)
        detail = f"{ratio:.1f} x python -c pass; {waited:.3f} s on the clock"
        row: dict[str, Any] = {"name": f"start-up: {name}", "value": value, "unit": "s", "detail": detail}
        if name != "python -c pass":
            row |= {"goal": f"under {GOAL} s", "met": value < GOAL}
        rows.append(row)
    rows.append(
        {
            "name": "submissions from a shell loop",
            "value": LOOP / looped,
            "unit": "1/s",
            "detail": f"{LOOP} in turn, each a process and durable",
        }
    )
    return rows

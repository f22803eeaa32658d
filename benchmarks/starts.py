"""What comes before the first event: compiling, importing, setting up; and what it costs when servers come and go.

First runs are made in a fresh copy of the package with nothing compiled. An installed package has the bytecode of all
modules, so the bytecode is made beforehand. `python -m benchmarks starts` prints the rows.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import slotwise
from benchmarks.simulator import row, timed
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task, prepare
from slotwise.simulation.run.workload import jobs_of

FIRST = {"algorithm1": 7.5, "guarded": 13.0}  # seconds on two idle cores: half of what it was
SMALL = 0.8
SETUP = 0.5
SERVER_EVENT = 5.0
SERVERS = 1_000
TURNS = 5

IMPORTS = """
import slotwise.simulation.run.parts, slotwise.cli.simulate
from numba.core.registry import cpu_target
cpu_target.target_context.refresh()
"""


def first_runs() -> list[dict[str, Any]]:
    """`slotwise simulate example1` where nothing is compiled, and then where everything is."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "slotwise"
        shutil.copytree(
            Path(slotwise.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__", "*.nb[ic]")
        )
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        for name in ("NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        subprocess.run([sys.executable, "-c", IMPORTS], env=environment, check=True)

        def start(policy: str) -> tuple[float, float]:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "slotwise", "simulate", "example1", "-p", policy]
            command += ["--set", "run.events=20000"]
            done, seconds = timed(lambda: subprocess.run(command, env=environment, check=True, capture_output=True))
            assert policy.encode() in done.stdout
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        for policy, goal in FIRST.items():
            for compiled in copy.rglob("*.nb[ic]"):
                compiled.unlink()
            cold, cold_cpu = start(policy)
            warm, warm_cpu = min(start(policy) for _ in range(TURNS))
            rows += [
                row(f"first run: {policy}", cold, "s", f"{cold_cpu:.1f} s of CPU; compiles", goal, False),
                row(f"small run: {policy}", warm, "s", f"{warm_cpu:.2f} s of CPU; compiled before", SMALL, False),
            ]
    return rows


def setup() -> list[dict[str, Any]]:
    """From a scenario of 100,000 servers to the first event."""
    rows = []
    for policy in FIRST:
        scenario = slotwise.load_scenario("table1", ["cluster.servers.standard.count=100000"])
        task = Task(scenario, jobs_of(scenario), Choice(policy))
        prepare(task)
        seconds = min(timed(lambda task=task: prepare(task))[1] for _ in range(TURNS))
        rows.append(row(f"setup: {policy}, 100,000 servers", seconds, "s", "", SETUP, False))
    return rows


def server_events() -> list[dict[str, Any]]:
    """A server that fails, or is repaired, in the simulator; that drains and takes jobs again, from Python."""
    rows = []
    failures = "cluster.servers.standard.failures={mean_time_between=1,mean_repair=0.1}"
    settings = [f"cluster.servers.standard.count={SERVERS}", "run.events=100000", "run.replications=1", failures]
    few = ["workload.intensity=0.001"]  # jobs: nearly all events are of servers
    for policy in (*FIRST, "best-fit"):
        runs = [
            slotwise.simulate("table1", policy, overrides=settings + few, workers=1).runs[0] for _ in range(TURNS)
        ]
        spent = 1e6 * min(run.seconds / run.events for run in runs)
        rows.append(
            row(f"server event: {policy}, simulated", spent, "us", f"{SERVERS:,} servers", SERVER_EVENT, False)
        )
        scheduler = slotwise.Scheduler.from_scenario(
            slotwise.load_scenario("table1", [settings[0], f"policy.name={policy}"])
        )
        servers = [f"standard-{n}" for n in range(200)]
        best = float("inf")
        for _ in range(TURNS):
            begun = time.perf_counter()
            for server in servers:
                scheduler.drain_server(server)
                scheduler.resume_server(server)
            best = min(best, (time.perf_counter() - begun) / (2 * len(servers)))
        rows.append(
            row(
                f"server event: {policy}, from Python",
                1e6 * best,
                "us",
                f"{SERVERS:,} servers",
                SERVER_EVENT,
                False,
            )
        )
    return rows


def run() -> list[dict[str, Any]]:
    """Rows of {name, value, unit, detail, goal, met}."""
    return [*first_runs(), *setup(), *server_events()]

"""The same stream of jobs under Slurm's own backfill and under `guarded` above Slurm, waits side by side.

    python -m benchmarks.slurm [--jobs 120] [--load 0.85] [--seed 1]

Four nodes of 2, 2, 4 and 8 CPUs (tools/system/with-slurm), jobs of 1, 2 and 4 CPUs that sleep for an exponential time and arrive at random. A job writes down when its
command begins, so that both are measured in the same way: the wait is from its arrival, before `sbatch` or the request is made, to that moment. Slurm itself needs up to a
second to start a job, and about 30 ms of CPU, in both cases. All jobs have the same time limit, since Slurm's limits are in minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SIZES = ((1, 100, 0.5), (2, 1000, 0.3), (4, 3000, 0.2))  # CPUs, megabytes, share of the jobs
CPUS = 16
MEAN_SECONDS = 4.0
QUANTILES = (0.5, 0.95)


class Arrival(NamedTuple):
    """A job of the stream."""

    at: float
    cpus: int
    memory: int
    seconds: float


def stream(jobs: int, load: float, seed: int) -> list[Arrival]:
    """Poisson arrivals that would keep this share of the CPUs busy."""
    chance = random.Random(seed)
    each = sum(cpus * share for cpus, _, share in SIZES) * MEAN_SECONDS
    rate, now, made = load * CPUS / each, 0.0, []
    for _ in range(jobs):
        now += chance.expovariate(rate)
        cpus, memory, _ = chance.choices(SIZES, [share for _, _, share in SIZES])[0]
        made.append(Arrival(now, cpus, memory, chance.expovariate(1 / MEAN_SECONDS)))
    return made


def play(arrivals: list[Arrival], folder: Path, submit: Callable[[int, Arrival], None]) -> list[float]:
    """Submit each job when it arrives; the waits."""
    began = time.time()
    for number, one in enumerate(arrivals):
        time.sleep(max(0.0, began + one.at - time.time()))
        submit(number, one)
    deadline = time.monotonic() + 600
    while len(list(folder.glob("*.began"))) < len(arrivals):
        if time.monotonic() > deadline:
            sys.exit("benchmarks.slurm: jobs have not started in ten minutes")
        time.sleep(0.5)
    return [float((folder / f"{n}.began").read_text()) - began - one.at for n, one in enumerate(arrivals)]


def script(folder: Path, number: int, one: Arrival) -> str:
    """What a job does."""
    return f"date +%s.%N > {folder}/{number}.new && mv {folder}/{number}.new {folder}/{number}.began; sleep {one.seconds:.3f}"


def by_backfill(arrivals: list[Arrival], folder: Path) -> list[float]:
    """Every job straight to Slurm."""

    def submit(number: int, one: Arrival) -> None:
        text = f"#!/bin/sh\n{script(folder, number, one)}\n"
        options = ["-p", "main", "-c", str(one.cpus), f"--mem={one.memory}M", "--time=2", "-o", "/dev/null"]
        subprocess.run(["sbatch", *options], input=text, text=True, check=True, stdout=subprocess.DEVNULL)

    return play(arrivals, folder, submit)


def by_slotwise(arrivals: list[Arrival], folder: Path) -> list[float]:
    """Every job to `slotwise serve`, which places it."""
    from slotwise.live import Client

    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    os.environ["XDG_STATE_HOME"] = environment["XDG_STATE_HOME"]
    command = [sys.executable, "-m", "slotwise", "serve", "--engine", "slurm", "--partition", "main", "--port", "0"]
    service = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        line = service.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit("benchmarks.slurm: the service did not start")
        with Client(line.split()[-1]) as client:
            return play(
                arrivals,
                folder,
                lambda number, one: client.submit(
                    ["sh", "-c", script(folder, number, one)],
                    needs={"cpu": one.cpus, "memory": one.memory},
                    cwd=str(folder),
                ),
            )
    finally:
        service.terminate()
        service.wait()


WAYS = {"backfill": by_backfill, "guarded": by_slotwise}


def quantile(values: list[float], share: float) -> float:
    """The smallest value that so many are at or below."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def row(name: str, waits: list[float]) -> str:
    """One line of the table."""
    mean = sum(waits) / len(waits)
    return f"{name:24}{len(waits):>6}{mean:>9.2f}" + "".join(
        f"{quantile(waits, q):>9.2f}" for q in (*QUANTILES, 1.0)
    )


def main() -> None:
    """Both ways, one after the other, each with a Slurm of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    arrivals = stream(options.jobs, options.load, options.seed)
    if options.inside:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            print(json.dumps(WAYS[options.inside](arrivals, Path(folder))))
        return
    print(f"{options.jobs} jobs, {options.load:.0%} of {CPUS} CPUs, seed {options.seed}; waits in seconds")
    print(f"{'':24}{'jobs':>6}{'mean':>9}{'p50':>9}{'p95':>9}{'max':>9}")
    for way in WAYS:
        scheduler = "backfill" if way == "backfill" else "builtin"
        done = subprocess.run(
            [str(ROOT / "tools/system/with-slurm"), sys.executable, "-m", "benchmarks.slurm", *sys.argv[1:], "--inside", way],
            cwd=ROOT, env={**os.environ, "SLOTWISE_SLURM_SCHEDULER": scheduler}, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        waits = json.loads(done.stdout.splitlines()[-1])
        print(row(f"{way}, all", waits))
        for cpus, _, _ in SIZES:
            print(
                row(f"  {cpus} CPU", [wait for wait, one in zip(waits, arrivals, strict=True) if one.cpus == cpus])
            )


if __name__ == "__main__":
    main()

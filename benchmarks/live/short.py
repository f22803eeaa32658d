"""Short jobs: `/bin/true` again and again on two cores, through the service, durable; beside HyperQueue and `xargs -P 2`, in turns.

The service commits every submission, placement and end to SQLite, synced, before it acts on it, and keeps each job's
output. HyperQueue has one worker of two cores and no journal. xargs only starts processes. With two jobs at a time, no
more than two can share a sync of the disk. So the service is also run with its files in memory, which tells what the
disk costs; the time of a sync is printed, too.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.live.running import served

TURNS = 3
MEMORY = Path("/dev/shm")
HYPERQUEUE = """
import sys, tempfile, time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client = cluster.client()
    def run(count):
        job = Job()
        for _ in range(count):
            job.program(["/bin/true"])
        client.wait_for_jobs([client.submit(job)])
    run(10)
    began = time.perf_counter()
    run(int(sys.argv[1]))
    print(time.perf_counter() - began)
"""


def of_hyperqueue(python: Path, jobs: int) -> float:
    """Jobs a second."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, "-c", HYPERQUEUE, str(jobs)], cwd=folder, check=True, capture_output=True, text=True
        )
    return jobs / float(done.stdout.split()[-1])


def of_xargs(jobs: int) -> float:
    """Jobs a second."""
    began = time.perf_counter()
    text = "x\n" * jobs
    subprocess.run(["xargs", "-P", "2", "-n", "1", "/bin/true"], input=text, text=True, check=True)
    return jobs / (time.perf_counter() - began)


def sync_seconds(times: int = 50) -> float:
    """How long the disk takes to make a small write durable."""
    took = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(times):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def of_slotwise(jobs: int, where: Path | None = None) -> float:
    """Jobs a second, from the submission to the end of the last."""
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder = Path(name)
        (folder / "two.toml").write_text(
            '[cluster]\nresources = ["cpu"]\nservers = [{ name = "this", count = 1, capacity = [2] }]\n'
        )
        with served(folder, str(folder / "two.toml"), "--engine", "local") as client:

            def run(count: int) -> None:
                handles = client.submit_many([{"argv": ["/bin/true"]}] * count)
                while client.job(handles[-1].id).ended is None:
                    time.sleep(0.05)
                ended = client.wait(handles)  # the last one may end before the one beside it
                wrong = [job for job in ended if job.exit_code != 0]
                assert (len(ended), wrong) == (count, []), (len(ended), wrong[:3])

            run(10)
            began = time.perf_counter()
            run(jobs)
            return jobs / (time.perf_counter() - began)


def hyperqueue_python() -> Path:
    """A Python that has HyperQueue; it is installed into an environment of its own, as it is needed nowhere else."""
    folder = Path("build") / "hyperqueue"
    python = folder.absolute() / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "hyperqueue"], check=True)
        (folder / "ready").touch()
    return python


def run(jobs: int = 2000, turns: int = TURNS) -> list[dict[str, Any]]:
    """Rows of name, value, unit, detail."""
    python = hyperqueue_python()
    found: dict[str, list[float]] = {"slotwise": [], "slotwise, files in memory": [], "hyperqueue": [], "xargs": []}
    syncs = []
    for _ in range(turns):
        syncs.append(sync_seconds())
        found["slotwise"].append(of_slotwise(jobs))
        found["slotwise, files in memory"].append(of_slotwise(jobs, MEMORY if MEMORY.is_dir() else None))
        found["hyperqueue"].append(of_hyperqueue(python, jobs))
        found["xargs"].append(of_xargs(jobs))
    ratio = statistics.median(a / b for a, b in zip(found["slotwise"], found["hyperqueue"], strict=True))
    load = f"load {os.getloadavg()[0]:.1f}; a sync of the disk {statistics.median(syncs) * 1000:.1f} ms"
    rows: list[dict[str, Any]] = [
        {
            "name": f"short jobs: {name}",
            "value": statistics.median(rates),
            "unit": "jobs/s",
            "detail": f"{jobs:,} x /bin/true on two cores, {turns} turns: {', '.join(f'{rate:.0f}' for rate in rates)}; {load}",
        }
        for name, rates in found.items()
    ]
    rows[0] |= {"goal": "at least HyperQueue's", "met": ratio >= 1.0}
    rows.append(
        {
            "name": "short jobs: slotwise to hyperqueue",
            "value": ratio,
            "unit": "times",
            "detail": "median of the turns",
        }
    )
    return rows

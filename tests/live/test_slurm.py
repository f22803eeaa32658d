"""Against a real slurmctld with four slurmd (`make test-system`): both ways in, with restarts of everything in the middle."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slotwise.live.engines.slurm import SlurmEngine
from slotwise.live.ledger import NewJob
from slotwise.live.replay import replay
from slotwise.live.service import Service
from slotwise.live.settings import cluster_from, setup_of
from slotwise.live.store import ENDED, Query, open_store
from slotwise.live.store.records import Job

pytestmark = pytest.mark.system
JOBS = int(os.environ.get("SLOTWISE_SLURM_JOBS", "300"))
POLICY = os.environ.get("SLOTWISE_SLURM_POLICY", "best-fit")
SLURM = Path(os.environ.get("SLOTWISE_TEST_SLURM", "/nonexistent"))


def service(folder: Path) -> Service:
    engine = SlurmEngine(folder / "slurm", partition="watched", submit_to="main")
    setup = setup_of(cluster_from(engine.servers()), None)._replace(policy=POLICY)
    return Service(open_store(f"sqlite:///{folder}/store.db"), engine, setup)


def command(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def until(condition: Callable[[], Any], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, command("squeue", "-t", "all") + command("sinfo", "-N", "-l")
        time.sleep(0.2)


def ended(running: Service) -> list[Job]:
    return running.store.jobs(Query(states=ENDED, limit=10_000))


def restart(what: str, start: list[str]) -> None:
    """Kill a daemon of Slurm and start it again."""
    number = int((SLURM / f"{what}.pid").read_text())
    os.kill(number, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{number}").exists() or ") Z " in Path(f"/proc/{number}/stat").read_text(), 20)
    subprocess.run(start, check=True)


def test_jobs_both_ways_in(tmp_path: Path) -> None:
    """Every exit code right, none run twice, with restarts of the service, of a slurmd and of slurmctld."""
    tmp_path.chmod(0o755)
    chance = random.Random(4)
    running = service(tmp_path)
    script = "echo $SLOTWISE_JOB_ID >> ran; sleep 0.$((SLOTWISE_JOB_ID % 4)); exit $((SLOTWISE_JOB_ID % 5))"
    body = json.dumps({"argv": ["sh", "-c", script], "cwd": str(tmp_path), "on_loss": "requeue"})
    sizes = [{"cpu": 1.0, "memory": 100.0}, {"cpu": 2.0, "memory": 1000.0}, {"cpu": 4.0, "memory": 3000.0}]
    half = JOBS // 2
    for at in range(0, half, 50):
        new = [NewJob("t", None, chance.choice(sizes), {}, body=body) for _ in range(min(50, half - at))]
        running.loop.submit(new).result(30)
    held: dict[str, int] = {}
    for n in range(JOBS - half):
        number = command(
            "sbatch", "--parsable", "-H", "-p", "watched", "-c", str(1 + n % 2), "--mem=100M", "-D", str(tmp_path),
            "-o", "/dev/null", "--wrap", f"echo h{n} >> ran; exit {n % 5}",
        ).strip()  # fmt: skip
        held[number] = n % 5
    until(lambda: len(ended(running)) > JOBS // 6, 120)
    running.close()
    running = service(tmp_path)
    until(lambda: len(ended(running)) > JOBS // 3, 120)
    restart("slurmd-node2", ["slurmd", "-N", "node2", "-f", os.environ["SLURM_CONF"]])
    until(lambda: len(ended(running)) > JOBS // 2, 200)
    restart("slurmctld", ["slurmctld", "-f", os.environ["SLURM_CONF"]])
    running.close()
    running = service(tmp_path)

    def all_ended() -> bool:
        for line in command("sinfo", "-h", "-N", "-o", "%N %T").splitlines():
            node, state = line.split()
            if "drain" in state:  # Slurm drains a node of which the controller has lost a job
                subprocess.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], check=False)
        return len(ended(running)) == JOBS

    until(all_ended, 400)
    jobs = ended(running)
    by_key = {job.key: job for job in jobs}
    states = Counter(job.state for job in jobs)
    print(states)
    for job in jobs:
        if job.key is None and job.state != "lost":
            assert job.exit_code == job.id % 5, job
    for number, code in held.items():
        job = by_key[f"slurm-{number}"]
        if job.state in ("done", "failed"):
            assert job.exit_code == code, job
    ran = Counter((tmp_path / "ran").read_text().split())
    twice = {name for name, count in ran.items() if count > 1}
    assert {name for name in twice if not name.startswith("h")} <= {str(job.id) for job in jobs if job.attempt > 1}
    assert states["lost"] + states["cancelled"] <= JOBS // 20
    running.close()
    again = open_store(f"sqlite:///{tmp_path}/store.db")
    assert replay(again).differences == []
    again.close()


def test_stop_drain_and_withdraw(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    running = service(tmp_path)
    try:
        body = json.dumps({"argv": ["sleep", "300"], "cwd": "/"})
        (number,) = running.loop.submit([NewJob("t", None, {"cpu": 8.0}, {}, body=body)]).result(30)
        until(lambda: running.store.job(number).state == "running", 60)  # type: ignore[union-attr]
        held = command("sbatch", "--parsable", "-H", "-p", "watched", "-c", "8", "--wrap", "true").strip()
        until(lambda: running.store.job_by_key("slurm", f"slurm-{held}"), 30)
        command("scancel", held)
        until(lambda: running.store.job_by_key("slurm", f"slurm-{held}").state == "cancelled", 30)  # type: ignore[union-attr]
        running.loop.ask(lambda ledger, now: ledger.stop(number, now)).result(10)
        until(lambda: running.store.job(number).state == "cancelled", 60)  # type: ignore[union-attr]
        command("scontrol", "update", "NodeName=node4", "State=DRAIN", "Reason=test")
        until(lambda: running.loop.ledger.servers["node4"].status == "draining", 30)
        command("scontrol", "update", "NodeName=node4", "State=RESUME")
        until(lambda: running.loop.ledger.servers["node4"].status == "up", 30)
    finally:
        running.close()

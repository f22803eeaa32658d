"""Against a real slurmctld with four slurmd of unlike sizes (`make test-system`): both ways in, and everything that can go away does."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Process, gone

from slotwise.live.client import Client
from slotwise.live.client import Job as Shown
from slotwise.live.engines.slurm import SlurmEngine
from slotwise.live.newjob import NewJob
from slotwise.live.service import Service
from slotwise.live.settings import cluster_from, setup_of
from slotwise.live.store import Query, open_store
from slotwise.live.store.records import Job

pytestmark = pytest.mark.system
JOBS = int(os.environ.get("SLOTWISE_SLURM_JOBS", "60"))
SLURM = Path(os.environ.get("SLOTWISE_TEST_SLURM", "/nonexistent"))
RECORDS = SLURM / "records"
NODES = ("node1", "node2", "node3", "node4")
# Daemons that this test has killed.
killed: list[str] = []


def command(*argv: str, text: str | None = None) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, input=text).stdout


def until(condition: Callable[[], Any]) -> None:
    """Wait for something that must come; on a slow machine it may take long."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, command("squeue", "-t", "all") + command("sinfo", "-N", "-l")
        time.sleep(0.1)


def kill(what: str) -> None:
    """Kill a daemon of Slurm."""
    killed.append(what)
    number = int((SLURM / f"{what}.pid").read_text())
    os.kill(number, signal.SIGKILL)
    until(lambda: gone(number))


def begin(what: str) -> None:
    """Start it again."""
    options = ["-N", what.removeprefix("slurmd-")] if what.startswith("slurmd-") else []
    subprocess.run([what.split("-")[0], *options, "-f", os.environ["SLURM_CONF"]], check=True)


def heal() -> bool:
    """What an administrator does: Slurm drains a node of which the controller has lost a job, or that was away."""
    healthy = True
    for line in command("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines():
        node, state = line.split()
        if "drain" in state or state == "down":
            subprocess.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], check=False)
        healthy &= state in ("idle", "mixed", "allocated", "completing")
    return healthy


def saved() -> None:
    """Wait until the controller has written down what it knows now: if it is killed before, it forgets jobs that are
    kept nowhere else."""
    now = time.time()
    pass_numbers(1)  # without a change it would write nothing
    until(lambda: (SLURM / "state" / "job_state").stat().st_mtime > now)


def pass_numbers(count: int) -> None:
    """Take so many numbers for jobs and give them back."""
    numbers = [sbatch("-p", "main", "--hold") for _ in range(count)]
    subprocess.run(["scancel", *numbers], check=True)


def answers() -> bool:
    return subprocess.run(["sinfo"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder; and a Slurm that is whole and has nothing to do, before and after."""
    tmp_path.chmod(0o755)
    yield tmp_path
    until(answers)
    subprocess.run(["scancel", "-u", str(os.getuid())], check=True)
    until(lambda: not command("squeue", "-h"))
    if "slurmctld" in killed:
        # it gives numbers again, and a node refuses a job whose number it has just seen
        pass_numbers(JOBS + 40)
    killed.clear()
    until(heal)


def service(folder: Path, **options: Any) -> Service:
    engine = SlurmEngine(folder / "slurm", partition="watched", records=RECORDS, **options)
    setup = setup_of(cluster_from(engine.shape()), None)._replace(policy="best-fit")
    return Service(open_store(f"sqlite:///{folder}/store.db"), engine, setup)


@pytest.fixture
def running(folder: Path) -> Iterator[Service]:
    made = service(folder)
    yield made
    made.close()


def submit(running: Service, script: str, cwd: Path | str = "/", cpu: float = 1.0, **spec: Any) -> int:
    body = json.dumps({"argv": ["sh", "-c", script], "cwd": str(cwd), **spec})
    return int(running.loop.submit([NewJob("t", None, {"cpu": cpu}, {}, body=body)]).result(PATIENCE)[0])


def sbatch(*options: str, script: str = "#!/bin/sh\ntrue\n") -> str:
    """A user's own job: it is held by the site's plugin."""
    return command("sbatch", "--parsable", "-p", "watched", "-o", "/dev/null", *options, text=script).strip()


def own(running: Service, number: str) -> Job | None:
    """What the service knows of a user's job; of the newest, if the number was given twice."""
    newest = running.store.jobs(Query(limit=1000))
    return next((one for one in newest if (one.key or "").startswith(f"slurm-{number}-")), None)


def job(running: Service, number: int) -> Job:
    found = running.store.job(number)
    assert found is not None
    return found


def test_jobs_both_ways_in(folder: Path, serve: Callable[..., Process]) -> None:
    """Every exit code right, none run twice, with restarts of the service, of a slurmd and of slurmctld in the middle."""
    chance = random.Random(4)
    process = serve(folder, "--engine", "slurm", "--partition", "watched", "--records", str(RECORDS))
    script = "echo $SLOTWISE_JOB_ID >> ran; sleep 0.$((SLOTWISE_JOB_ID % 4)); exit $((SLOTWISE_JOB_ID % 5))"
    sizes: list[dict[str, float]] = [
        {"cpu": 1, "memory": 100},
        {"cpu": 2, "memory": 1000},
        {"cpu": 4, "memory": 3000},
    ]
    half = JOBS // 2
    with Client(process.address, token=own_token(process)) as client:
        mine = client.submit_many(
            [{"argv": ["sh", "-c", script], "cwd": str(folder), "needs": chance.choice(sizes)} for _ in range(half)]
        )
    held: dict[str, int] = {}
    for n in range(half, JOBS):
        text = f"#!/bin/sh\necho h{n} >> ran\nsleep 0.{n % 3}\nexit {n % 5}\n"
        held[sbatch("-c", str(1 + n % 2), "--mem=100M", "-D", str(folder), script=text)] = n % 5

    def ended() -> list[Shown]:
        with Client(process.address, token=own_token(process)) as client:
            return list(client.jobs(state=["done", "failed", "cancelled", "lost"]))

    until(lambda: len(ended()) > JOBS // 6)
    process.end(signal.SIGKILL)
    process.start()
    until(lambda: len(ended()) > JOBS // 3)
    kill("slurmd-node2")
    begin("slurmd-node2")
    until(lambda: len(ended()) > JOBS // 2)
    saved()
    kill("slurmctld")
    process.end(signal.SIGTERM)
    begin("slurmctld")
    process.start()
    until(lambda: heal() and len(ended()) == JOBS)
    shown = ended()
    ran = Counter((folder / "ran").read_text().split())
    assert [name for name, count in ran.items() if count > 1] == []
    assert len(ran) == JOBS
    numbers = {handle.id for handle in mine}
    assert {one.id: one.exit_code for one in shown if one.id in numbers} == {
        number: number % 5 for number in numbers
    }
    users = {one.key.split("-")[1]: one.exit_code for one in shown if one.key is not None}
    assert users == held
    assert process.end() == 0
    found = json.loads(process.command("replay", "--json").stdout)
    assert found["differences"] == []


def own_token(process: Process) -> str:
    (path,) = (Path(process.environment["XDG_STATE_HOME"]) / "slotwise").glob(
        f"token-*-{process.address.split(':')[-1]}"
    )
    return path.read_text().strip()


def test_stop_drain_and_withdraw(running: Service, folder: Path) -> None:
    # Slurm signals all processes, one after the other: the shell must not end by itself when what it waits for has gone
    script = "trap 'exit 3' TERM; touch ready; while :; do sleep 0.05; done"
    number = submit(running, script, folder, cpu=8.0)
    until(lambda: job(running, number).state == "running" and (folder / "ready").exists())
    held = sbatch("-c", "8")
    until(lambda: own(running, held))
    command("scancel", held)
    until(lambda: own(running, held).state == "cancelled")  # type: ignore[union-attr]
    running.loop.ask(lambda ledger, now: ledger.stop(number, now)).result(PATIENCE)
    until(lambda: job(running, number).state == "cancelled")
    assert job(running, number).exit_code == 3  # what the command made of the signal
    command("scontrol", "update", "NodeName=node4", "State=DRAIN", "Reason=test")
    until(lambda: running.loop.ledger.servers["node4"].status == "draining")
    assert "test" in (running.loop.ledger.servers["node4"].reason or "")
    command("scontrol", "update", "NodeName=node4", "State=RESUME")
    until(lambda: running.loop.ledger.servers["node4"].status == "up")


def test_users_jobs_of_all_kinds(running: Service, folder: Path) -> None:
    array = sbatch("--array=1-3", "-c", "1", "--mem-per-cpu=50M", script="#!/bin/sh\nexit $SLURM_ARRAY_TASK_ID\n")
    python = sbatch("--mem=50M", script="#!/usr/bin/env python3\nraise SystemExit(6)\n")
    killed = sbatch("--mem=50M", script="#!/bin/sh\nkill -9 $$\n")
    greedy = sbatch(script="#!/bin/sh\nexit 2\n")  # asks for no memory, which is all of it to Slurm
    fast = sbatch("--mem=50M", "-C", "fast", script="#!/bin/sh\nexit 1\n")
    wide = sbatch("-N", "2", "--mem=50M")
    expected = {f"{array}_{n}": n for n in (1, 2, 3)} | {python: 6, killed: -9, greedy: 2, fast: 1}
    until(lambda: all((one := own(running, number)) and one.ended for number in expected))
    found = {number: own(running, number) for number in expected}
    assert {number: one.exit_code for number, one in found.items() if one} == expected
    assert found[fast].server == "node3"  # type: ignore[union-attr]
    assert own(running, wide) is None


def test_a_placement_has_a_deadline(folder: Path) -> None:
    """Another user's job holds the node: the placement is taken back, and the job runs when the node is free."""
    others = command("sbatch", "--parsable", "-p", "main", "-w", "node4", "-c", "8", "--mem=100M", "-o", "/dev/null",
                     text="#!/bin/sh\nsleep 600\n").strip()  # fmt: skip
    until(lambda: "RUNNING" in command("squeue", "-h", "-j", others, "-o", "%T"))
    running = service(folder, deadline=1.0)
    try:
        number = submit(running, "echo ran >> ran", folder, cpu=8.0)
        held = sbatch("-c", "8", "--mem=50M", "-D", str(folder), script="#!/bin/sh\necho held >> ran\n")
        until(
            lambda: job(running, number).attempt >= 2 or running.loop.ledger.servers["node4"].status == "draining"
        )
        command("scancel", others)
        running.loop.engine.deadline = 60.0  # type: ignore[attr-defined]
        until(lambda: command("squeue", "-h", "-w", "node4", "-t", "R") == "")
        if running.loop.ledger.servers["node4"].status == "draining":  # it has refused too often
            running.loop.ask(lambda ledger, now: ledger.resume("node4", now)).result(PATIENCE)
        until(lambda: job(running, number).state == "done" and (own(running, held) or job(running, number)).ended)
        assert own(running, held).state == "done"  # type: ignore[union-attr]
    finally:
        running.close()
    assert sorted((folder / "ran").read_text().split()) == ["held", "ran"]


def test_a_lost_node(running: Service, folder: Path) -> None:
    """What ran there is lost, or runs elsewhere if its user said so; the node comes back by itself."""
    fail = submit(running, "sleep 600", cpu=4.0)
    again = submit(running, "echo $SLOTWISE_ATTEMPT >> ran; [ $SLOTWISE_ATTEMPT = 2 ] || sleep 600", folder, cpu=4.0,
                   on_loss="requeue")  # fmt: skip
    third = submit(running, "sleep 600", cpu=4.0)
    until(lambda: all(job(running, number).state == "running" for number in (fail, again, third)))
    until(lambda: (folder / "ran").exists())
    lost = {job(running, number).server for number in (fail, again)}
    for node in lost:
        kill(f"slurmd-{node}")
    until(lambda: job(running, fail).state == "lost" and job(running, again).state in ("placed", "waiting"))
    for node in lost:
        begin(f"slurmd-{node}")
    until(lambda: heal() and job(running, again).state == "done")
    assert job(running, again).attempt == 2
    assert (folder / "ran").read_text().split() == ["1", "2"]
    until(lambda: all(running.loop.ledger.servers[node].status == "up" for node in NODES))
    running.loop.ask(lambda ledger, now: ledger.stop(third, now) if third in ledger.live else None).result(PATIENCE)


def test_the_controller_is_away(folder: Path) -> None:
    """The service starts all the same, waits, and goes on when it is back; nothing is assumed meanwhile."""
    running = service(folder)
    number = submit(running, "sleep 4; exit 9")
    until(lambda: job(running, number).state == "running")
    kill("slurmctld")
    later = submit(running, "exit 4")
    running.close()
    made: list[Service] = []
    thread = threading.Thread(target=lambda: made.append(service(folder)))
    thread.start()
    try:
        thread.join(2.0)
        assert not made
        begin("slurmctld")
        thread.join(PATIENCE)
        until(lambda: heal() and job(made[0], later).ended and job(made[0], number).ended)
        assert (job(made[0], later).exit_code, job(made[0], number).exit_code) == (4, 9)
    finally:
        thread.join()
        made[0].close()


def test_a_controller_that_forgets(folder: Path) -> None:
    """Killed right after jobs ran, it comes back from a state in which they wait, and its numbers are given again: nothing that keeps records runs twice, and nothing
    is started twice by us."""
    running = service(folder)
    mine = submit(running, "echo mine >> ran; exit 7", folder)
    python = f"#!/usr/bin/env python3\nopen('{folder}/ran', 'a').write('python\\n')\nraise SystemExit(5)\n"
    shell = "#!/bin/sh\necho shell >> ran\nexit 6\n"
    held = [sbatch("--mem=50M", "-D", str(folder), script=text) for text in (python, shell)]
    ran = folder / "ran"
    until(lambda: ran.exists() and len(ran.read_text().split()) == 3)
    kill("slurmctld")
    before = [one for number in held if (one := own(running, number)) is not None]
    users = [one.id for one in before]
    running.close()
    begin("slurmctld")
    until(answers)
    running = service(folder, deadline=5.0)
    try:
        new = sbatch("--mem=50M", "-D", str(folder), script="#!/bin/sh\necho new >> ran\nexit 8\n")
        until(lambda: heal() and all(job(running, number).ended for number in (mine, *users)))
        until(
            lambda: (one := own(running, new)) and one.id not in users and one.ended
        )  # its number may be an old one
        assert job(running, mine).exit_code == 7
        assert job(running, users[0]).state == "lost" or job(running, users[0]).exit_code == 5
        assert job(running, users[1]).exit_code == 6
        names = ["mine", "new", "python", "shell"]
        if f"Could not launch job {new} " in "".join(path.read_text() for path in (SLURM / "log").glob("slurmd-*")):
            # its number was another's a moment ago, so that its node refused it, and Slurm has cancelled it
            assert own(running, new).state == "cancelled"  # type: ignore[union-attr]
            names.remove("new")
        else:
            assert own(running, new).exit_code == 8  # type: ignore[union-attr]
        # Slurm itself may execute what keeps no records once more, if it comes back from a state in which it was released; we do not
        assert [job(running, one.id).attempt for one in before] == [one.attempt for one in before]
        assert sorted({*ran.read_text().split()}) == names
        assert {name for name, count in Counter(ran.read_text().split()).items() if count > 1} <= {"python"}
    finally:
        running.close()


def test_the_guide(folder: Path, serve: Callable[..., Process]) -> None:
    """Every command of docs/guides/slurm.md, in its order."""
    text = (Path(__file__).parents[2] / "docs/guides/slurm.md").read_text()
    first, *others = [
        shlex.split(line.replace("/shared/slotwise-records", str(RECORDS)))
        for line in re.findall(r"^\$ (.*)$", text, re.M)
    ]
    assert first[:2] == ["slotwise", "serve"]
    process = serve(folder, *first[2:])
    for program, *argv in others:
        ran = process.command(*argv) if program == "slotwise" else subprocess.run([program, *argv], check=False)
        assert ran.returncode == 0, (argv, ran.stderr)
    with Client(process.address, token=own_token(process)) as client:
        until(lambda: len(list(client.jobs(state=["done", "failed"]))) == 3)
        assert sorted(one.exit_code or 0 for one in client.jobs()) == [0, 0, 3]
        assert all(one.server == "node3" for one in client.jobs() if "fast" in one.type)

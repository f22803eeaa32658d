"""The service killed at random moments under load: no job lost, none executed twice, order kept, every replay exact.

The processes are forked from this one, so that a round takes a fraction of a second, and are killed with SIGKILL. `make soak` runs many rounds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import PATIENCE, kill_supervisor

from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.protocol import Engine, ServerUp
from slotwise.live.engines.simulated import SimulatedEngine, deeds, exponential
from slotwise.live.ledger import Ledger, NewJob
from slotwise.live.loop import Loop
from slotwise.live.replay import replay, rows
from slotwise.live.restart import Setup
from slotwise.live.retention import Retention
from slotwise.live.service import Service
from slotwise.live.store import ENDED, Query, open_store
from slotwise.live.store.protocol import Store
from slotwise.model import Cluster, JobType, ServerClass

ROUNDS = int(os.environ.get("SLOTWISE_CRASHES", "15"))
SERVERS = [ServerUp(f"a-{n}", {"cpu": 4, "memory": 1000}, server_class="a") for n in range(4)]
SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=4, capacity=("4", "1000")),)),  # type: ignore[arg-type]
    (JobType(name="small", demand=("1", "0")), JobType(name="large", demand=("3", "500"))),  # type: ignore[arg-type]
    policy=os.environ.get(
        "SLOTWISE_CRASH_POLICY", "best-fit"
    ),  # quick to compile; `make soak` takes the default policy
)


def simulated(folder: Path) -> Engine:
    return SimulatedEngine(SERVERS, exponential(1, 0.003), world=folder / "world")


def real(folder: Path) -> Engine:
    return LocalEngine(folder / "engine", {one.name: one for one in SERVERS})


def service(url: str, engine: Engine) -> Service:
    store = open_store(url)
    return Service(store, engine, SETUP, retention=Retention(every=400), standby=True)


def live(url: str, engine: Callable[[Path], Engine], folder: Path, told: int, seed: int, argv: list[str]) -> None:
    """What the child does until it is killed: submit, cancel, drain, stop, and tell what was acknowledged."""
    chance = random.Random(seed)
    loop = service(url, engine(folder)).loop
    mine: list[int] = []
    body = json.dumps({"argv": argv, "cwd": str(folder)})
    while True:
        kind, number = chance.random(), chance.choice(mine or [0])
        if kind < 0.7 and sum(loop.ledger.core.waiting.values()) < 60:
            job_type, needs = chance.choice([("small", {}), ("large", {}), (None, {"cpu": 2.0})])
            tenant = str(job_type)  # who asks for the same
            new = [NewJob(tenant, job_type, needs, {}, body=body) for _ in range(chance.choice([1, 1, 8]))]
            mine = loop.submit(new).result()
            os.write(told, f"{' '.join(map(str, mine))}\n".encode())
        elif kind < 0.8 and mine:
            ask(loop, lambda ledger, now, job=number: ledger.cancel(job, now))
        elif kind < 0.85 and mine:
            ask(loop, lambda ledger, now, job=number: ledger.stop(job, now))
        elif kind < 0.9:
            name = chance.choice(SERVERS).name
            ask(loop, lambda ledger, now, name=name: ledger.drain(name, now))
            ask(loop, lambda ledger, now, name=name: ledger.resume(name, now))
        else:
            ask(loop, lambda ledger, now: None)


def ask(loop: Loop, act: Callable[..., Any]) -> None:
    """A request that may be refused."""
    future = loop.ask(act)
    assert future.exception() is None or "job" in str(future.exception()), future.exception()


def crash(
    url: str, engine: Callable[[Path], Engine], folder: Path, chance: random.Random, argv: list[str]
) -> list[int]:
    """One life of the service, ended by SIGKILL; the jobs that were acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            live(url, engine, folder, writing, chance.randrange(10**9), argv)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(17)
    os.close(writing)
    with open(reading) as told:
        lines = [told.readline() for _ in range(chance.choice([0, 1, 1, 3, 10]))]
        for _ in range(chance.randrange(20_000)):
            pass  # another moment each time
        os.kill(child, signal.SIGKILL)
        lines += told.readlines()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the service ended by itself"
    return [int(job) for line in lines if line.endswith("\n") for job in line.split()]


def left_over(ledger: Ledger, now: float) -> int:
    """How many jobs have not ended; asked in the loop, between two events."""
    return len(ledger.live) + sum(ledger.core.waiting.values())


def finish(url: str, engine: Engine) -> Store:
    """One life more, in which everything comes to its end."""
    last = service(url, engine)
    deadline = time.monotonic() + PATIENCE
    while last.loop.ask(left_over).result(PATIENCE):
        assert time.monotonic() < deadline, "jobs are left over"
        for server in SERVERS:
            last.loop.ask(lambda ledger, now, name=server.name: ledger.resume(name, now)).result()
    last.close()
    return open_store(url)


def check(store: Store, acknowledged: list[int]) -> None:
    """Nothing lost, order kept, replay exact."""
    jobs = {job.id: job for job in store.jobs(Query(limit=10**9))}
    assert set(acknowledged) <= set(jobs)
    assert {job.state for job in jobs.values()} <= set(ENDED) - {"lost"}
    assert all(job.attempt <= 1 for job in jobs.values())
    order: dict[tuple[str, str], list[int]] = {}
    for entry in rows(store, 0):
        for job, _, _ in json.loads(entry.placements):
            order.setdefault((jobs[job].type, jobs[job].tenant), []).append(job)
    for (
        kind,
        started,
    ) in order.items():  # policies may prefer a smaller job of a type, never a later one of the same size
        assert started == sorted(started), f"{kind}: one overtook another"
    found = replay(store)
    assert found.differences == []
    assert found.rows == store.last_entry().seq  # type: ignore[union-attr]
    assert found.checkpoints > 0


def test_killed_with_the_simulated_engine(store_url: str, tmp_path: Path) -> None:
    chance = random.Random(18)
    SETUP.warm()  # before the first fork
    acknowledged: list[int] = []
    for _ in range(ROUNDS):
        acknowledged += crash(store_url, simulated, tmp_path, chance, ["x"])
    store = finish(store_url, simulated(tmp_path))
    check(store, acknowledged)
    jobs = store.jobs(Query(limit=10**9))
    starts = Counter(deed.job for deed in deeds(tmp_path / "world") if deed.server)
    assert max(starts.values()) == 1, "executed twice"
    assert set(starts) == {job.id for job in jobs if job.attempt}
    assert len(acknowledged) > 5 * ROUNDS
    store.close()


def test_killed_with_real_processes(store_url: str, tmp_path: Path) -> None:
    chance = random.Random(81)
    SETUP.warm()
    acknowledged: list[int] = []
    script = ["sh", "-c", "echo $SLOTWISE_JOB_ID >> ran; exit $((SLOTWISE_JOB_ID % 3))"]
    for _ in range(max(3, ROUNDS // 5)):
        acknowledged += crash(store_url, real, tmp_path, chance, script)
    store = finish(store_url, real(tmp_path))
    check(store, acknowledged)
    ran = Counter(map(int, (tmp_path / "ran").read_text().split()))
    assert max(ran.values()) == 1, "executed twice"
    for job in store.jobs(Query(limit=10**9)):
        if job.state in ("done", "failed"):
            assert job.exit_code == job.id % 3
            assert ran[job.id] == 1
    store.close()
    kill_supervisor(tmp_path / "engine")

"""The service killed at random moments under load: no job lost, none executed twice, order kept, every replay exact. In between
cluster files are applied, many jobs cancelled at once, backups taken, and the service moves to a restored store; time limits end jobs.

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from conftest import new_database
from processes import PATIENCE, kill_supervisor

from slotwise.errors import InputError
from slotwise.live.changes.plan import make_plan
from slotwise.live.changes.target import Target
from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.protocol import Engine, ServerUp
from slotwise.live.engines.simulated import SimulatedEngine, deeds, exponential
from slotwise.live.ledger import Ledger, NewJob
from slotwise.live.loop import Loop
from slotwise.live.replay import replay, rows
from slotwise.live.restart import Setup
from slotwise.live.retention import Retention
from slotwise.live.service import Service
from slotwise.live.settings import servers_of
from slotwise.live.store import ENDED, Query, open_store
from slotwise.live.store.backup import restore, save
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


LIMITED = "limited"
"""the name of jobs that sleep until their time limit ends them"""
MOVES = 20  # lives of the service between two moves to a restored store


def variant(count: int, capacity: tuple[str, str], small: str, policy: str) -> Target:
    """A cluster file that an operator may apply; each job fits in each."""
    classes = (ServerClass(name="a", count=count, capacity=capacity),)  # type: ignore[arg-type]
    types = tuple(
        one.model_copy(update={"demand": (Decimal(small), Decimal(0))}) if one.name == "small" else one
        for one in SETUP.types
    )
    cluster = Cluster(resources=("cpu", "memory"), servers=classes)
    return Target.of_setup(Setup(cluster, types, policy), servers_of(cluster))


TARGETS = [
    variant(4, ("4", "1000"), "1", SETUP.policy),
    variant(5, ("4", "1000"), "1", SETUP.policy),
    variant(3, ("4", "1000"), "2", SETUP.policy),
    variant(2, ("3", "500"), "1", SETUP.policy),
    variant(4, ("6", "2000"), "1.5", "first-fit"),
]


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
    limited = json.dumps({"argv": ["sleep", "1000"], "cwd": "/", "time": 0.2, "grace": 0.1})
    while True:
        kind, number = chance.random(), chance.choice(mine or [0])
        if kind < 0.7 and sum(loop.ledger.core.waiting.values()) < 60:
            job_type, needs = chance.choice([("small", {}), ("large", {}), (None, {"cpu": 2.0})])
            tenant = str(job_type)  # who asks for the same
            new = [NewJob(tenant, job_type, needs, {}, body=body) for _ in range(chance.choice([1, 1, 8]))]
            if argv != ["x"] and chance.random() < 0.1:
                new = [NewJob(LIMITED, job_type, needs, {}, name=LIMITED, body=limited)]
            mine = loop.submit(new).result()
            os.write(told, f"{' '.join(map(str, mine))}\n".encode())
        elif kind < 0.8 and mine:
            ask(loop, lambda ledger, now, job=number: ledger.cancel(job, now))
        elif kind < 0.85 and mine:
            ask(loop, lambda ledger, now, job=number: ledger.stop(job, now))
        elif kind < 0.88:
            name = chance.choice(SERVERS).name
            ask(loop, lambda ledger, now, name=name: ledger.drain(name, now))
            ask(loop, lambda ledger, now, name=name: ledger.resume(name, now))
        elif kind < 0.92:
            target = chance.choice(TARGETS)
            ask(loop, lambda ledger, now, target=target: apply(ledger, target, now))
        elif kind < 0.94:
            ask(loop, lambda ledger, now, jobs=tuple(mine): end_all(ledger, jobs, now))
        elif kind < 0.95:
            save(loop.store, folder / "backup.gz")
        else:
            ask(loop, lambda ledger, now: None)


def ask(loop: Loop, act: Callable[..., Any]) -> None:
    """A request that may be refused."""
    future = loop.ask(act)
    refused = str(future.exception())
    assert future.exception() is None or "job" in refused or "server" in refused, future.exception()


def apply(ledger: Ledger, target: Target, now: float) -> None:
    """Apply a cluster file."""
    ledger.apply(make_plan(ledger.what_runs(), target, now), now)


def end_all(ledger: Ledger, jobs: Sequence[int], now: float) -> None:
    """Cancel many jobs at once, those that have ended left out."""
    for job in jobs:
        with suppress(InputError):
            ledger.end(job, now)


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
        ask(last.loop, lambda ledger, now: apply(ledger, TARGETS[0], now))
        for name in list(last.loop.ledger.servers):
            ask(last.loop, lambda ledger, now, name=name: ledger.resume(name, now))
    last.close()
    return open_store(url)


def move(url: str, engine: Engine, folder: Path, new_store: Callable[[], str]) -> str:
    """Back a store up when its jobs have ended, and go on with a restored one; its address."""
    old = finish(url, engine)
    rows = save(old, folder / "move.gz")
    before = old.jobs(Query(limit=10**9))
    old.close()
    moved = new_store()
    new = open_store(moved)
    new.become_writer()
    assert restore(new, folder / "move.gz", tokens=True) == rows
    assert new.jobs(Query(limit=10**9)) == before
    new.close()
    return moved


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


def another(store_url: str, tmp_path: Path, number: int) -> str:
    """The address of one more store of the same kind."""
    return f"sqlite:///{tmp_path}/store{number}.db" if store_url.startswith("sqlite") else new_database()


def test_killed_with_the_simulated_engine(store_url: str, tmp_path: Path) -> None:
    chance = random.Random(18)
    SETUP.warm()  # before the first fork
    Setup(SETUP.cluster, SETUP.types, "first-fit").warm()
    acknowledged: list[int] = []
    url, starts = store_url, Counter[int]()
    folder = tmp_path / "0"
    folder.mkdir()
    for n in range(ROUNDS):
        if n % MOVES == MOVES // 2:
            url = move(url, simulated(folder), folder, lambda n=n: another(store_url, tmp_path, n))  # type: ignore[misc]
            starts.update(deed.job for deed in deeds(folder / "world") if deed.server)
            folder = tmp_path / f"{n}"
            folder.mkdir()
        acknowledged += crash(url, simulated, folder, chance, ["x"])
    store = finish(url, simulated(folder))
    check(store, acknowledged)
    jobs = store.jobs(Query(limit=10**9))
    starts.update(deed.job for deed in deeds(folder / "world") if deed.server)
    assert max(starts.values()) == 1, "executed twice"
    assert set(starts) == {job.id for job in jobs if job.attempt}
    assert len(acknowledged) > 5 * ROUNDS
    store.close()


def test_killed_with_real_processes(store_url: str, tmp_path: Path) -> None:
    chance = random.Random(81)
    SETUP.warm()
    Setup(SETUP.cluster, SETUP.types, "first-fit").warm()
    acknowledged: list[int] = []
    script = ["sh", "-c", "echo $SLOTWISE_JOB_ID >> ran; exit $((SLOTWISE_JOB_ID % 3))"]
    for _ in range(max(3, ROUNDS // 5)):
        acknowledged += crash(store_url, real, tmp_path, chance, script)
    store = finish(store_url, real(tmp_path))
    check(store, acknowledged)
    ran = Counter(map(int, (tmp_path / "ran").read_text().split()))
    assert max(ran.values()) == 1, "executed twice"
    for job in store.jobs(Query(limit=10**9)):
        if job.name == LIMITED:
            assert job.state == "cancelled" or (job.state == "failed" and "time" in (job.reason or ""))
        elif job.state in ("done", "failed"):
            assert job.exit_code == job.id % 3
            assert ran[job.id] == 1
    store.close()
    kill_supervisor(tmp_path / "engine")

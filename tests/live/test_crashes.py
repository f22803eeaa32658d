"""The service killed at random moments under load: no job lost, none executed twice, order kept, every replay exact. In between
cluster files are applied, maintenance is planned, servers are reserved for deadlines, many jobs cancelled at once, backups taken, and the service moves to a restored store; time limits end jobs.

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
from slotwise.live.ledger import Ledger
from slotwise.live.loop import Loop
from slotwise.live.newjob import After, NewJob
from slotwise.live.replay import replay, rows
from slotwise.live.restart import Setup
from slotwise.live.retention import Retention
from slotwise.live.retries import Retry
from slotwise.live.service import Service
from slotwise.live.settings import servers_of
from slotwise.live.store import ENDED, Query, open_store
from slotwise.live.store.backup import restore, save
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Job, Window
from slotwise.live.windows import jobs_of, learnt_of
from slotwise.model import Cluster, JobType, Quota, ServerClass

ROUNDS = int(os.environ.get("SLOTWISE_CRASHES", "15"))
SERVERS = [ServerUp(f"a-{n}", {"cpu": 4, "memory": 1000}, server_class="a") for n in range(4)]
SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=4, capacity=("4", "1000")),)),  # type: ignore[arg-type]
    (JobType(name="small", demand=("1", "0")), JobType(name="large", demand=("3", "500"))),  # type: ignore[arg-type]
    policy=os.environ.get(
        "SLOTWISE_CRASH_POLICY", "best-fit"
    ),  # quick to compile; `make soak` takes the default policy
)


# Name of the jobs that sleep until their time limit ends them.
LIMITED = "limited"
GRAPH = "graph"  # the tenant and name of jobs that wait for each other, and are executed again if they fail
RETRY = Retry(2, 0.01)
MOVES = 20  # lives of the service between two moves to a restored store


def variant(count: int, capacity: tuple[str, str], small: str, policy: str, quota: str | None = None) -> Target:
    """A cluster file that an operator may apply; each job fits in each."""
    classes = (ServerClass(name="a", count=count, capacity=capacity),)  # type: ignore[arg-type]
    types = tuple(
        one.model_copy(update={"demand": (Decimal(small), Decimal(0))}) if one.name == "small" else one
        for one in SETUP.types
    )
    cluster = Cluster(resources=("cpu", "memory"), servers=classes)
    quotas = () if quota is None else (Quota(tenant=GRAPH, active={"cpu": Decimal(quota)}),)
    return Target.of_setup(Setup(cluster, types, policy, quotas=quotas), servers_of(cluster))


TARGETS = [
    variant(4, ("4", "1000"), "1", SETUP.policy),
    variant(5, ("4", "1000"), "1", SETUP.policy, quota="2"),
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
    graph = [job.id for job in loop.store.jobs(Query(tenant=GRAPH, limit=30))]
    limited = json.dumps({"argv": ["sleep", "1000"], "cwd": "/", "time": 0.2, "grace": 0.1})
    while True:
        kind, number = chance.random(), chance.choice(mine or [0])
        if kind < 0.7 and sum(loop.ledger.core.waiting.values()) + len(loop.ledger.holds) < 80:
            job_type, needs = chance.choice([("small", {}), ("large", {}), (None, {"cpu": 2.0})])
            tenant = str(job_type)  # who asks for the same
            new = [NewJob(tenant, job_type, needs, {}, body=body) for _ in range(chance.choice([1, 1, 8]))]
            if argv != ["x"] and chance.random() < 0.1:
                new = [NewJob(LIMITED, job_type, needs, {}, name=LIMITED, body=limited)]
            if chance.random() < 0.35:
                new = [part_of_graph(chance, graph, argv, str(folder), loop.clock.now())]
            mine = loop.submit(new).result()
            if new[0].name == GRAPH:
                graph += mine
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
        elif kind < 0.97:
            plan_window(loop, chance)
        elif kind < 0.98:
            save(loop.store, folder / "backup.gz")
        else:
            ask(loop, lambda ledger, now: None)


def plan_window(loop: Loop, chance: random.Random) -> None:
    """Plan maintenance of a server, or a reservation, that begins in a moment, or end a window that there is."""
    now, name = loop.clock.now(), chance.choice(SERVERS).name
    begin = now + chance.choice([0.0, 0.02, 0.1])
    window = Window(0, name, begin, begin + chance.choice([0.01, 0.05]), "test", chance.choice([0.001, 0.05]))
    window = window._replace(tenant=chance.choice(["", GRAPH]))
    ask(loop, lambda ledger, now: ledger.follow_jobs())
    known, learnt = jobs_of(loop.store), learnt_of(loop.store)
    ask(loop, lambda ledger, now: (ledger.know(known, learnt), ledger.plan(window, now)))
    if chance.random() < 0.3:
        ask(loop, lambda ledger, now: ledger.cancel_window(min(ledger.windows, default=0), now))


def part_of_graph(chance: random.Random, graph: Sequence[int], argv: list[str], cwd: str, now: float) -> NewJob:
    """A job or a throttled array that may wait for others, and is executed again if it fails; with argv `x`, its exit code is chosen here."""
    kinds = chance.choices(["ok", "ok", "any", "failed"], k=chance.choice([0, 1, 2]) if graph else 0)
    after = list(dict.fromkeys(After(kind, chance.choice(graph[-30:])) for kind in kinds))
    spec: dict[str, Any] = {"argv": argv, "cwd": cwd, "type": "small", "retry": 2, "backoff": 0.01}
    spec["exit_code"] = chance.choice([0, 0, 0, 1])
    array = range(1, 5) if chance.random() < 0.2 else None
    at_once = 2 if array is not None else None
    if chance.random() < 0.4:
        spec |= {"duration": 0.005, "deadline": now + chance.choice([0.01, 0.05, 0.2])}
    body = json.dumps(spec | ({"at_once": 2} if array is not None else {}))
    takes, deadline = spec.get("duration"), spec.get("deadline")
    return NewJob(
        GRAPH,
        "small",
        {},
        {},
        GRAPH,
        None,
        takes,
        body,
        array,
        at_once,
        after=after,
        retry=RETRY,
        deadline=deadline,
    )


def ask(loop: Loop, act: Callable[..., Any]) -> None:
    """A request that may be refused."""
    future = loop.ask(act)
    refused = str(future.exception())
    assert future.exception() is None or any(word in refused for word in ("job", "server", "window")), (
        future.exception()
    )


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
    return len(ledger.live) + sum(ledger.core.waiting.values()) + len(ledger.holds)


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


def check_backup(store: Store, path: Path, new_store: Callable[[], str]) -> None:
    """A backup that was written while jobs came and ended is the store of one moment: its journal is a beginning of the store's, and replays."""
    if not path.exists():  # no life lasted until one was whole
        return
    copy = open_store(new_store())
    copy.become_writer()
    restore(copy, path, tokens=True)
    assert replay(copy).differences == []
    beginning = list(rows(copy, 0))
    assert beginning == [row for row, _ in zip(rows(store, 0), beginning, strict=False)]
    copy.close()
    path.unlink()


def move(url: str, engine: Engine, folder: Path, new_store: Callable[[], str]) -> str:
    """Back a store up when its jobs have ended, and go on with a restored one; its address."""
    old = finish(url, engine)
    check_backup(old, folder / "backup.gz", new_store)
    saved = save(old, folder / "move.gz")
    before = old.jobs(Query(limit=10**9))
    old.close()
    moved = new_store()
    new = open_store(moved)
    new.become_writer()
    assert restore(new, folder / "move.gz", tokens=True) == saved
    assert new.jobs(Query(limit=10**9)) == before
    new.close()
    return moved


def check(store: Store, acknowledged: list[int]) -> None:
    """Nothing lost, order kept, replay exact."""
    jobs = {job.id: job for job in store.jobs(Query(limit=10**9))}
    assert set(acknowledged) <= set(jobs)
    assert {job.state for job in jobs.values()} <= set(ENDED) - {"lost"}
    assert all(job.attempt <= (1 + RETRY.times if job.name == GRAPH else 1) for job in jobs.values())
    order: dict[tuple[str, str], list[int]] = {}
    for entry in rows(store, 0):
        for job, _, _ in json.loads(entry.placements):
            if jobs[job].name != GRAPH:
                order.setdefault((jobs[job].type, jobs[job].tenant), []).append(job)
    for (
        kind,
        started,
    ) in order.items():  # policies may prefer a smaller job of a type, never a later one of the same size
        assert started == sorted(started), f"{kind}: one overtook another"
    check_history(store, jobs)
    found = replay(store)
    assert found.differences == []
    assert found.rows == store.last_entry().seq  # type: ignore[union-attr]
    assert found.checkpoints > 0


def check_history(store: Store, jobs: dict[int, Job]) -> None:
    """Each attempt is placed and ended once, a retry follows a failure only, and each job starts when what it waits for has ended as it asked."""
    begun: dict[int, int] = {}
    over: dict[int, int] = {}
    attempts: dict[int, list[int]] = {}
    failures = Counter[int]()
    placed: dict[tuple[int, int], float] = {}
    for entry in rows(store, 0):
        event, note = json.loads(entry.event), json.loads(entry.note or "{}")
        if event["event"] in ("complete", "stop", "cancel", "dropped") and "held" not in note:
            job = event["job"]
            assert job not in over, f"job {job} has ended twice"
            assert event.get("attempt", len(attempts.get(job, []))) == len(attempts.get(job, []))
            if "retry" in note:
                failures[job] += 1
                assert (note["retry"], note["state"]) == (failures[job], "failed")
            else:
                over[job] = entry.seq
        for job, _, attempt in json.loads(entry.placements):
            assert job not in over
            begun.setdefault(job, entry.seq)
            attempts.setdefault(job, []).append(attempt)
            placed[job, attempt] = entry.time
    check_attempts(store, jobs, placed)
    for number, job in jobs.items():
        assert attempts.get(number, []) == list(range(1, job.attempt + 1))
        assert (job.retries, number in over) == (failures[number], True)
        assert job.attempt in (job.retries, job.retries + 1), "an attempt without a reason"
    for need in store.needs(of=list(jobs)):
        others = [one for one in jobs.values() if need.other in (one.id, one.array_id)]
        good = all(one.state == "done" for one in others)
        for job in jobs.values():
            if need.job in (job.id, job.array_id) and job.attempt:
                assert begun[job.id] > max(over[one.id] for one in others), f"job {job.id} began too soon"
                assert need.kind == "any" or good == (need.kind == "ok")


def check_attempts(store: Store, jobs: dict[int, Job], placed: dict[tuple[int, int], float]) -> None:
    """What accounting reads, the rows of jobs and of attempts before the last one, are the placements of the journal."""
    rows = store.ask("SELECT job, number, placed, ended FROM attempt")
    found = {(int(job), int(number)): float(at) for job, number, at, _ in rows}
    assert len(found) == len(rows), "an attempt is there twice"
    assert all(begun <= ended for _, _, begun, ended in rows)
    last = {(job.id, job.attempt): job.placed for job in jobs.values() if job.placed is not None}
    assert not last.keys() & found.keys(), "an attempt would count twice"
    assert found | last == placed
    assert {one.state for one in store.windows()} <= {"over", "cancelled", "planned"}


def another(store_url: str, tmp_path: Path) -> str:
    """The address of one more store of the same kind."""
    name = f"store{len(list(tmp_path.glob('*.db')))}.db"
    return f"sqlite:///{tmp_path}/{name}" if store_url.startswith("sqlite") else new_database()


def outputs_of(folder: Path) -> dict[tuple[int, int], str]:
    """What the jobs of a folder have written, by job and attempt."""
    found = {}
    for path in (folder / "engine" / "output").glob("*/*"):
        job, attempt = map(int, path.name.split("."))
        found[job, attempt] = path.read_text()
    return found


def test_killed_with_the_simulated_engine(store_url: str, tmp_path: Path) -> None:
    chance = random.Random(18)
    SETUP.warm()  # before the first fork
    Setup(SETUP.cluster, SETUP.types, "first-fit").warm()
    acknowledged: list[int] = []
    url, starts = store_url, Counter[tuple[int, int]]()
    folder = tmp_path / "0"
    folder.mkdir()
    for n in range(ROUNDS):
        if n % MOVES == MOVES // 2:
            url = move(url, simulated(folder), folder, lambda: another(store_url, tmp_path))
            starts.update((deed.job, deed.attempt) for deed in deeds(folder / "world") if deed.server)
            folder = tmp_path / f"{n}"
            folder.mkdir()
        acknowledged += crash(url, simulated, folder, chance, ["x"])
    store = finish(url, simulated(folder))
    check(store, acknowledged)
    jobs = store.jobs(Query(limit=10**9))
    starts.update((deed.job, deed.attempt) for deed in deeds(folder / "world") if deed.server)
    assert max(starts.values()) == 1, "executed twice"
    assert set(starts) == {(job.id, attempt) for job in jobs for attempt in range(1, job.attempt + 1)}
    assert len(acknowledged) > 3 * ROUNDS
    store.close()


def test_killed_with_real_processes(store_url: str, tmp_path: Path) -> None:
    chance = random.Random(81)
    SETUP.warm()
    Setup(SETUP.cluster, SETUP.types, "first-fit").warm()
    acknowledged: list[int] = []
    script = [
        "sh",
        "-c",
        "echo $SLOTWISE_JOB_ID.$SLOTWISE_ATTEMPT | tee -a ran; exit $(((SLOTWISE_JOB_ID + SLOTWISE_ATTEMPT - 1) % 3))",
    ]
    url, folder, outputs = store_url, tmp_path, dict[tuple[int, int], str]()
    for n in range(max(3, ROUNDS // 5)):
        if n % MOVES == MOVES // 2:
            url = move(url, real(folder), folder, lambda: another(store_url, tmp_path))
            outputs |= outputs_of(folder)
            kill_supervisor(folder / "engine")
            folder = tmp_path / f"{n}"
            folder.mkdir()
        acknowledged += crash(url, real, folder, chance, script)
    store = finish(url, real(folder))
    check(store, acknowledged)
    outputs |= outputs_of(folder)
    assert all(text in ("", f"{job}.{attempt}\n") for (job, attempt), text in outputs.items()), (
        "outputs are mixed up"
    )
    ran = Counter(line for path in tmp_path.glob("**/ran") for line in path.read_text().split())
    assert max(ran.values()) == 1, "executed twice"
    assert set(ran) <= {f"{job}.{attempt}" for (job, attempt), text in outputs.items() if text}
    for job in store.jobs(Query(limit=10**9)):
        if job.name == LIMITED:
            assert job.state == "cancelled" or (job.state == "failed" and "time" in (job.reason or ""))
        elif job.state in ("done", "failed"):
            assert job.exit_code == (job.id + job.attempt - 1) % 3
            assert all(ran[f"{job.id}.{attempt}"] == 1 for attempt in range(1, job.attempt + 1))
    store.close()
    kill_supervisor(folder / "engine")

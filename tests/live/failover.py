"""Two services on one PostgreSQL, each through a proxy that cuts, delays and heals, and clients that submit with and without keys.

`make failover SCHEDULES=10000` runs random schedules; one is a list of steps drawn from a seed. The steps of half of them are single ones: a
submission, or a change of one proxy. The other half also has steps in which a standby takes over from a writer that holds a job. After each
schedule, with everything healed:
- a job whose number a client was told is in the store under that number, with the client's content;
- a job with a key is there once, whatever its client had to repeat; one without a key at most once;
- a job that was refused at once is not there;
- every execution is of a recorded placement, with that job's content, and none happened twice;
- the journal replays.

`--defect` puts the unfenced look at the store back by which a repeated commit took another service's rows for its own. `--single` runs
schedules of single steps only.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import selectors
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

from slotwise.errors import SlotwiseError
from slotwise.live import loop as loop_module
from slotwise.live.engines.protocol import ServerUp, Start
from slotwise.live.engines.simulated import SimulatedEngine, deeds, exponential
from slotwise.live.loop import Loop
from slotwise.live.newjob import NewJob
from slotwise.live.replay import replay
from slotwise.live.restart import Setup
from slotwise.live.service import Service
from slotwise.live.store import Batch, Query, postgres
from slotwise.live.store.postgres import PostgresStore
from slotwise.model import Cluster, JobType, ServerClass

SERVERS = [ServerUp("s", {"cpu": 1000}, server_class="a")]
PORT = 5432
# seconds; short beside those of a real service, so that a schedule takes less than one
LEASE, GRACE, BEAT, LOOK, RETRY = 0.3, 0.15, 0.08, 0.03, 0.02
OVERTAKEN = 3.0  # seconds within which a standby usually takes over and commits, also on a busy machine
PATIENCE = 120.0  # seconds after which a schedule that has been healed counts as stuck
OPEN, HELD, HALF, CUT = "open", "held", "half", "cut"


class QuickSetup(Setup):
    """A setup that has been compiled already."""

    def warm(self) -> None:
        """Do nothing: the first schedule has done it."""


SETUP = QuickSetup(
    Cluster(resources=("cpu",), servers=(ServerClass(name="a", count=1, capacity=("1000",)),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1",)),),  # type: ignore[arg-type]
    policy="best-fit",
)


class Pipe:
    """One connection through a proxy; `late` holds what the client said and the server has not heard."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends: dict[socket.socket, socket.socket] = {client: server, server: client}
        self.client, self.server = client, server
        self.unsent: dict[socket.socket, bytes] = {client: b"", server: b""}
        self.orphaned = False
        """the client has been cut off, but what it said is still on its way"""


class Proxy(threading.Thread):
    """Forwards connections to PostgreSQL. `set` changes how: open, held (nothing passes), half (no answers pass), cut."""

    def __init__(self, folder: Path, target: str) -> None:
        super().__init__(daemon=True)
        folder.mkdir()
        self._target, self._mode = target, OPEN
        self._selector = selectors.DefaultSelector()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(folder / f".s.PGSQL.{PORT}"))
        self._listening.listen(50)
        self._wake, self._woken = socket.socketpair()
        for one in (self._listening, self._woken):
            self._selector.register(one, selectors.EVENT_READ)
        self._pipes: list[Pipe] = []
        self._orders: list[tuple[str, bool]] = []
        self._ending = False
        self.start()

    def set(self, mode: str, *, late: bool = False) -> None:
        """Change the mode. With `late`, a cut leaves what clients have said on its way; it arrives when the proxy is open again."""
        self._orders.append((mode, late))
        self._wake.send(b"x")

    def close(self) -> None:
        self._ending = True
        self._wake.send(b"x")
        self.join()
        for one in (self._wake, self._woken):
            one.close()

    def run(self) -> None:
        while not self._ending:
            for key, _ in self._selector.select(1.0):
                if key.data is not None and key.data not in self._pipes:
                    continue  # dropped while others were served
                if key.fileobj is self._listening:
                    self._accept()
                elif key.fileobj is self._woken:
                    self._woken.recv(1000)
                else:
                    self._read(key.data, key.fileobj)  # type: ignore[arg-type]
            while self._orders:
                self._change(*self._orders.pop(0))
        for pipe in list(self._pipes):
            self._drop(pipe)
        self._listening.close()
        self._selector.close()

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        if self._mode == CUT:
            client.close()
            return
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.connect(self._target)
        except OSError:  # PostgreSQL has too much to do
            client.close()
            server.close()
            return
        pipe = Pipe(client, server)
        self._pipes.append(pipe)
        for one in (client, server):
            self._selector.register(one, selectors.EVENT_READ, pipe)

    def _read(self, pipe: Pipe, source: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._drop(pipe)
            return
        pipe.unsent[pipe.ends[source]] += data
        self._flush(pipe)

    def _flush(self, pipe: Pipe) -> None:
        for to in (pipe.server, pipe.client):
            passes = self._mode == OPEN or (self._mode == HALF and to is pipe.server)
            if pipe.orphaned and to is pipe.client:
                pipe.unsent[to] = b""
            elif passes and pipe.unsent[to]:
                try:
                    to.sendall(pipe.unsent[to])
                except OSError:
                    self._drop(pipe)
                    return
                pipe.unsent[to] = b""
        if pipe.orphaned and self._mode == OPEN:
            self._drop(pipe)  # all has arrived; the server finds that its client has gone

    def _change(self, mode: str, late: bool) -> None:
        self._mode = mode
        for pipe in list(self._pipes):
            if mode != CUT:
                self._flush(pipe)
            elif not late:
                self._drop(pipe)
            elif not pipe.orphaned:
                pipe.orphaned = True
                self._selector.unregister(pipe.client)
                pipe.client.close()

    def _drop(self, pipe: Pipe) -> None:
        if pipe in self._pipes:
            self._pipes.remove(pipe)
            for one in (pipe.client, pipe.server):
                if one.fileno() >= 0:  # a client that was cut off late is closed already
                    self._selector.unregister(one)
                    one.close()


class WatchedEngine(SimulatedEngine):
    """An engine that remembers what it was told to start, and with which content."""

    def __init__(self, world: Path, told: list[tuple[int, int, str]], pause: Callable[[], None]) -> None:
        super().__init__(SERVERS, exponential(1, 0.01), world=world)
        self._told, self._pause = told, pause

    def start(self, starts: Any) -> None:
        one: Start
        for one in starts:
            self._told.append((one.job, one.attempt, one.spec["argv"][0]))
        self._pause()  # after the look at the fence: the engine itself has to refuse what comes too late
        super().start(starts)


class Node(threading.Thread):
    """A service that begins again as a standby whenever it has ended."""

    def __init__(self, run: Run, number: int) -> None:
        super().__init__(daemon=True)
        self._run, self.number = run, number
        self.loop: Loop | None = None
        self._store: PostgresStore | None = None
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        while not self._run.ending.is_set():
            try:
                self._serve()
            except SlotwiseError:  # the store is not there, or another was quicker: as a process manager would do
                self._run.ending.wait(LOOK)
            except BaseException as error:
                self.failure = error
                raise

    def _serve(self) -> None:
        store = self._store = PostgresStore(self._run.address(self.number))
        service = None
        try:
            if self._run.ending.is_set():
                return
            engine = WatchedEngine(self._run.folder / "world", self._run.told, self._run.pause)
            service = Service(store, engine, SETUP, standby=True)
            service.loop.on_commit = lambda seq: self._run.pause()
            self.loop = service.loop
            while not service.loop.ended.wait(LOOK) and not self._run.ending.is_set():
                pass
        finally:
            self.loop = None
            if service is not None:
                service.close()
            store.close()

    def interrupt(self) -> None:
        """End the wait of a standby."""
        store = self._store
        if store is not None:
            store._closing.set()


class Asked(NamedTuple):
    """What a client asked for and was told."""

    name: str
    key: str | None
    numbers: list[int] | None
    """None: an error, after which the job may or may not be there"""
    refused: bool = False
    """every try was refused at once: the job is not there"""


class Run:
    """One schedule."""

    def __init__(self, seed: int, postgres_address: str, *, single: bool = False) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self._single = single or seed % 2 == 0
        self.folder = Path(tempfile.mkdtemp(prefix="failover"))
        self.ending = threading.Event()
        self.told: list[tuple[int, int, str]] = []
        self.asked: list[Asked] = []
        self._parts = conninfo_to_dict(postgres_address)
        self.schema = f"s{os.getpid()}_{seed}"
        with self._direct() as connection:
            connection.execute(f"CREATE SCHEMA {self.schema}")
        PostgresStore(self._url(str(self._parts["host"]))).close()
        target = f"{self._parts['host']}/.s.PGSQL.{self._parts.get('port', PORT)}"
        self.proxies = [Proxy(self.folder / f"proxy{n}", target) for n in range(2)]
        self.nodes = [Node(self, n) for n in range(2)]

    def _direct(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self._parts["host"]),
            user=str(self._parts["user"]),
            dbname=str(self._parts["dbname"]),
            autocommit=True,
        )

    def _url(self, host: str) -> str:
        path = f"-csearch_path%3D{self.schema}"
        return f"postgresql://{self._parts['user']}@/{self._parts['dbname']}?host={host}&port={PORT}&options={path}"

    def address(self, number: int) -> str:
        return self._url(str(self.folder / f"proxy{number}"))

    def pause(self) -> None:
        """Hold a service up now and then, between what it has committed and what it does about it."""
        if random.random() < 0.2:
            time.sleep(random.choice((0.005, 0.05, LEASE)))

    # -- the schedule -------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Carry the steps out; then heal, and wait for what clients with keys still want."""
        with ThreadPoolExecutor(12) as clients:
            pending = []
            for n in range(self.chance.randrange(6, 16) if self._single else self.chance.randrange(4, 12)):
                kind = self.chance.random()
                node = self.chance.randrange(2)

                def submit(name: str, node: int) -> None:
                    key = f"k{name}" if self.chance.random() < 0.5 else None
                    pending.append(clients.submit(self._ask, name, key, node))

                if self._single:
                    if kind < 0.6:
                        submit(f"j{n}", node)
                    else:
                        self._disturb(self.proxies[node])
                    time.sleep(self.chance.choice((0.0, 0.02, 0.1, LEASE, 2 * LEASE)))
                    continue
                if kind < 0.45:
                    submit(f"j{n}", node)
                elif kind < 0.75:
                    self._disturb(self.proxies[node])
                else:  # the writer is cut off with a job that it has just taken; the other may take over and write, too
                    node = next((one.number for one in self.nodes if one.loop is not None), node)
                    if kind < 0.85:
                        self.proxies[node].set(self.chance.choice((HELD, HALF, CUT)))
                        submit(f"j{n}", node)
                        time.sleep(self.chance.choice((GRACE, LEASE, 2 * LEASE)))
                        submit(f"o{n}", 1 - node)
                        time.sleep(self.chance.choice((0.02, 0.1)))
                    else:
                        self.proxies[node].set(CUT)
                        self.proxies[1 - node].set(OPEN)
                        pending.append(clients.submit(self._ask, f"j{n}", None, node))
                        pending.extend(self._overtake(clients, n, 1 - node))
                    self.proxies[node].set(OPEN)
                time.sleep(self.chance.choice((0.0, 0.005, 0.02, 0.1, LEASE)))
            self.heal()
            deadline = time.monotonic() + PATIENCE
            self.asked = [one.result(max(0.1, deadline - time.monotonic())) for one in pending]

    def _overtake(self, clients: ThreadPoolExecutor, n: int, node: int) -> list[Future[Asked]]:
        """Let a standby take over and commit jobs while the writer still holds one that it could not commit.

        Chance alone hardly ever meets this order: the writer's retry must come after commits of the other service.
        """
        deadline = time.monotonic() + OVERTAKEN
        while self.nodes[node].loop is None and time.monotonic() < deadline:
            self.ending.wait(LOOK)
        asked = [clients.submit(self._ask, f"o{n}.{one}", None, node) for one in range(self.chance.randrange(1, 4))]
        wait(asked, max(0.0, deadline - time.monotonic()))
        return asked

    def _disturb(self, proxy: Proxy) -> None:
        what = self.chance.choice((OPEN, OPEN, HELD, HALF, CUT, "half, then cut", "held, then cut late"))
        if what == "half, then cut":  # commits come through whose answers do not
            proxy.set(HALF)
            time.sleep(self.chance.choice((0.01, 0.05, GRACE)))
            proxy.set(CUT)
        elif what == "held, then cut late":  # what was said arrives when the client has long gone
            proxy.set(HELD)
            time.sleep(self.chance.choice((0.01, 0.05, GRACE)))
            proxy.set(CUT, late=True)
        else:
            proxy.set(what)

    def _ask(self, name: str, key: str | None, node: int) -> Asked:
        """Submit one job. A client with a key repeats it anywhere until it has an answer; one without tries once where a service is."""
        job = NewJob("t", "one", {}, {}, name=name, key=key, body=json.dumps({"argv": [name]}))
        taken, tries = False, 0
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            loop = self.nodes[(node + tries) % 2].loop
            tries += 1
            try:
                if loop is None:
                    raise SlotwiseError("no service there")
                asked = loop.submit([job])
            except SlotwiseError:
                if key is None and self.chance.random() < 0.05:
                    return Asked(name, key, None, refused=True)
                self.ending.wait(LOOK)
                continue
            taken = True
            try:
                return Asked(name, key, asked.result(PATIENCE if key is None else 1.0))
            except (SlotwiseError, Late):
                if key is None:
                    return Asked(name, key, None)
        return Asked(name, key, None, refused=not taken)

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.set(OPEN)

    # -- the checks ---------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """What does not hold."""
        store = PostgresStore(self._url(str(self._parts["host"])))
        try:
            return self._compare(store)
        finally:
            store.close()

    def _compare(self, store: PostgresStore) -> list[str]:
        wrong: list[str] = []
        jobs = {job.id: job for job in store.jobs(Query(limit=10_000))}
        contents = {n: json.loads(body)["argv"][0] for n, (_, body) in store.specs(list(jobs)).items()}
        there = Counter(job.name for job in jobs.values())
        for one in self.asked:
            if one.numbers is not None:
                (number,) = one.numbers
                if number not in jobs or (jobs[number].name, contents[number]) != (one.name, one.name):
                    wrong.append(f"{one.name} was acknowledged as job {number}, which is {jobs.get(number)}")
            elif one.key is not None:
                wrong.append(f"{one.name} has a key and got no answer")
            if there[one.name] > 1 or (one.refused and there[one.name]):
                wrong.append(f"{one.name} is there {there[one.name]} times; {one}")
        placed = {
            (job, attempt)
            for entry in store.entries(0, limit=10**6)
            for job, _, attempt in json.loads(entry.placements)
        }
        starts = [deed for deed in deeds(self.folder / "world") if deed.server]
        done = Counter((deed.job, deed.attempt) for deed in starts)
        wrong += [
            f"job {job} attempt {attempt} was executed {n} times" for (job, attempt), n in done.items() if n > 1
        ]
        wrong += [
            f"job {job} attempt {attempt} was executed and not placed"
            for job, attempt in done
            if (job, attempt) not in placed
        ]
        for job, attempt, content in self.told:
            if contents.get(job) != content:
                wrong.append(
                    f"the engine was told to start {content} as job {job} attempt {attempt}, which is {contents.get(job)}"
                )
        wrong += [f"the journal does not replay: {one}" for one in replay(store).differences]  # type: ignore[arg-type]
        return wrong

    def close(self) -> None:
        self.heal()
        self.ending.set()
        for node in self.nodes:
            node.interrupt()
            node.join(PATIENCE)
        stuck = [node.number for node in self.nodes if node.is_alive()]
        for proxy in self.proxies:
            proxy.close()
        with self._direct() as connection:
            connection.execute(f"DROP SCHEMA {self.schema} CASCADE")
        shutil.rmtree(self.folder)
        if stuck:
            raise AssertionError(f"services {stuck} do not end")
        for node in self.nodes:
            if node.failure is not None:
                raise node.failure


def run_schedule(seed: int, address: str, *, single: bool = False) -> list[str]:
    """Run one schedule; what did not hold."""
    run = Run(seed, address, single=single)
    try:
        run.play()
        run.ending.set()
        for node in run.nodes:
            node.interrupt()
            node.join(PATIENCE)
        return run.check()
    finally:
        run.close()


def quicken() -> None:
    """Shorten leases and retries."""
    postgres.LEASE, postgres.GRACE, postgres.BEAT, postgres.TRY_SECONDS = LEASE, GRACE, BEAT, LOOK
    loop_module.RETRY_SECONDS = RETRY


def put_defect_back() -> None:
    """A repeated commit looks without a fence whether there are as many rows as it would have written."""
    real = PostgresStore.commit

    def commit(self: PostgresStore, batch: Batch) -> None:
        if batch.number is not None and batch.entries:
            last = self.last_entry()
            if last is not None and last.seq >= batch.entries[-1].seq:
                return
        real(self, batch)

    PostgresStore.commit = commit  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--defect", action="store_true")
    parser.add_argument("--single", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    quicken()
    if given.defect:
        put_defect_back()
    address = os.environ["SLOTWISE_TEST_POSTGRES"]
    Setup(*SETUP).warm()
    with psycopg.connect(address, autocommit=True) as connection:  # the server itself is not killed
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    began, done, bad = time.monotonic(), 0, 0
    with ThreadPoolExecutor(given.at_once) as pool:
        seeds = range(given.seed, given.seed + given.schedules)
        for seed, wrong in zip(
            seeds, pool.map(lambda seed: run_schedule(seed, address, single=given.single), seeds), strict=True
        ):
            done, bad = done + 1, bad + bool(wrong)
            for one in wrong:
                print(f"schedule {seed}: {one}", flush=True)
            if done % 100 == 0:
                print(f"{done} schedules, {bad} with a violation, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{done} schedules, {bad} with a violation, {time.monotonic() - began:.0f} s")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

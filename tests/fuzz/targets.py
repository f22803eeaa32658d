"""What reads bytes that the service did not write itself, or wrote before a disk damaged them: one target for each.

A target takes bytes and returns None. The bytes may be refused by an InputError or a StoreError of one line; any other exception is a
finding. Some targets compare as well: what a supervisor takes over from a damaged log, it writes down so that the next one reads the same.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import re
import select
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from slotwise.errors import SlotwiseError
from slotwise.live.engines.kubernetes import access
from slotwise.live.engines.libvirt.hosts import read_hosts
from slotwise.live.engines.protocol import ServerUp
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.engines.supervisor import claims, processes, rounds, talking
from slotwise.live.newjob import NewJob
from slotwise.live.replay import core_of, replay
from slotwise.live.restart import Setup, load
from slotwise.live.service import Service
from slotwise.live.settings import parse_cluster, setup_of
from slotwise.live.store import open_store
from slotwise.live.store.backup import restore, save
from slotwise.live.store.records import Checkpoint
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling.compact import packed

PLACE = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a disk would be synced thousands of times
BOOT = "the-boot-of-this-machine"
SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=1, capacity=("4", "1000")),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1", "0")),),  # type: ignore[arg-type]
    policy="best-fit",
)


@contextmanager
def refusing() -> Iterator[None]:
    """Let input be refused, in one line."""
    try:
        yield
    except SlotwiseError as error:
        if "\n" in str(error):
            raise AssertionError("a message of several lines") from error


def no_signal(pid: int, number: int) -> None:
    """Stand in for kill and killpg, which refuse the same numbers: a log that makes no sense must not reach a process of this machine."""
    if ctypes.c_int(pid).value != pid:
        raise OverflowError("signed integer is greater than maximum")
    assert pid > 1, f"a signal to {pid}, which is more than one group"
    raise ProcessLookupError


@contextmanager
def harmless() -> Iterator[None]:
    """Run a supervisor's code without starting or signalling a process."""

    def start(self: processes.Processes, wanted: dict[str, Any]) -> Any:
        raise processes.CannotExecuteError(FileNotFoundError(2, "no processes here"))

    with (
        mock.patch.object(os, "kill", no_signal),
        mock.patch.object(os, "killpg", no_signal),
        mock.patch.object(processes.Processes, "start", start),
        mock.patch.object(claims, "boot", return_value=BOOT),
    ):
        yield


@cache
def folder() -> Path:
    """Return a folder for the files of this process."""
    return Path(tempfile.mkdtemp(prefix="slotwise-fuzz", dir=PLACE))


# -- the supervisor -------------------------------------------------------------------------------------------------


def kept(log: claims.Claims) -> tuple[Any, ...]:
    """Return what a supervisor that begins with a log knows."""
    return log.ended, log.claimed, log.limits, log.epoch, log.highest


def supervisor_log(data: bytes) -> None:
    """A supervisor begins with any log, and writes what it takes from it so that the next one reads the same."""
    (folder() / "log").write_bytes(data)
    with harmless():
        first = rounds.Supervisor(str(folder()))
        second = claims.Claims(str(folder()))
        before = kept(second)
        os.close(second._file)
        again = claims.Claims(str(folder()))
        assert not again.damaged, again.damaged
        assert kept(again) == before
        first._look(1e18)
        first._deadlines.enforce(first._processes.running, first._adopted, 1e18)
        processes.living_jobs(str(folder()))
    os.close(first._claims._file)
    os.close(again._file)


def supervisor_socket(data: bytes) -> None:
    """A supervisor does or refuses what it is told, in any pieces, and goes on."""
    (folder() / "log").unlink(missing_ok=True)
    ours, theirs = socket.socketpair()
    with harmless(), ours, select.epoll() as epoll:
        one = rounds.Supervisor(str(folder()))
        theirs.setblocking(False)
        epoll.register(theirs.fileno(), select.EPOLLIN)
        talk = talking.Talk(epoll, 0)
        talk._newcomer = theirs
        for piece in data.split(b"\0"):
            ours.sendall(piece[:60_000])
            messages = talk.receive()
            if talk.epoch > one._claims.epoch:
                one._claims.begin_epoch(talk.epoch)
            one._round(messages, talk, 0.0)
            ours.setblocking(False)
            for line in talking.read(ours)[0].splitlines():
                json.loads(line)
            ours.setblocking(True)
            if not talk:
                break
        talk.hang_up()
        talk._send_away()
        os.close(one._claims._file)


# -- the store ------------------------------------------------------------------------------------------------------


@cache
def sample() -> Path:
    """Return a store with a journal of jobs that ran, ended and wait."""
    path = folder() / "sample.db"
    engine = SimulatedEngine([ServerUp("s", {"cpu": 4, "memory": 1000}, server_class="a")], exponential(1, 1e9))
    service = Service(open_store(f"sqlite:///{path}"), engine, SETUP)
    jobs = [NewJob("t", "one", {}, {}, name=f"j{n}", duration=1.0, body='{"argv": ["x"]}') for n in range(6)]
    numbers = service.loop.submit(jobs).result(60)
    service.loop.ask(lambda ledger, now: ledger.cancel(numbers[-1], now)).result(60)
    service.loop.retention.checkpoint = lambda *_: None  # type: ignore[method-assign, assignment]
    service.close()
    return path


@cache
def empty() -> Path:
    """Return a store without rows."""
    path = folder() / "empty.db"
    open_store(f"sqlite:///{path}").close()
    return path


@contextmanager
def copy_of(path: Path) -> Iterator[Any]:
    """Open a copy of a store."""
    copied = folder() / "copy.db"
    for suffix in ("", "-wal", "-shm"):
        copied.with_name(copied.name + suffix).unlink(missing_ok=True)
    shutil.copy(path, copied)
    store = open_store(f"sqlite:///{copied}")
    try:
        yield store
    finally:
        store.close()


def read_back(store: Any) -> None:
    """Read a store as `serve` and `replay` do."""
    for read in (lambda: load(store, SETUP), lambda: replay(store)):
        with refusing():
            read()


def backup(data: bytes) -> None:
    """A backup is restored whole or refused; what was restored can be read, or its damage is told. Not compressed here, so as to be changed."""
    path = folder() / "backup"
    path.write_bytes(data if data.startswith(b"\x1f\x8b") else gzip.compress(data, 1))
    with copy_of(empty()) as store:
        store.become_writer()
        with refusing():
            restore(store, path, policy_code=data.endswith(b"\n\n"))
            read_back(store)
            for job in store.jobs(store_query()):
                json.dumps(job)


def store_query() -> Any:
    """Return a query for all jobs."""
    from slotwise.live.store import Query

    return Query(limit=100)


def journal(data: bytes) -> None:
    """Rows of a journal (an event, a tab, its placements) are read again, or the damaged one is named."""
    with copy_of(sample()) as store:
        with sqlite3.connect(folder() / "copy.db") as connection:
            connection.execute("DELETE FROM journal")
            for seq, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
                event, _, placements = line.partition("\t")
                connection.execute("INSERT INTO journal VALUES (?, 0.0, ?, ?, NULL)", (seq, event, placements))
        connection.close()
        read_back(store)


def checkpoint(data: bytes) -> None:
    """A situation is taken up, or refused: compiled code reads its numbers, which it does not check again."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return
    with refusing():
        core = core_of(Checkpoint(0, 0.0, 1, packed(values) if is_finite(values) else data.decode()))
        core.situation()


def is_finite(values: Any) -> bool:
    """Return whether values can be written as JSON."""
    try:
        json.dumps(values, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict)


# -- files of people ------------------------------------------------------------------------------------------------


def cluster_file(data: bytes) -> None:
    """A cluster file begins a service, or is refused."""
    text = data.decode("utf-8", "replace")
    if re.search(r"\d{6}", text):
        return  # millions of servers are allowed and take their time
    with refusing():
        scenario = parse_cluster(text, where="fuzzed.toml")
        setup_of(scenario.cluster, scenario).core()


def hosts_file(data: bytes) -> None:
    """A file of libvirt's hosts is read, or refused."""
    path = folder() / "hosts.toml"
    path.write_bytes(data)
    with refusing():
        read_hosts(str(path))


def kubeconfig(data: bytes) -> None:
    """A kubeconfig is read, or refused."""
    path = folder() / "kubeconfig"
    path.write_bytes(data)
    with refusing():
        access.from_file(path, None)


Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {
    one.__name__: one
    for one in (
        supervisor_log,
        supervisor_socket,
        backup,
        journal,
        checkpoint,
        cluster_file,
        hosts_file,
        kubeconfig,
    )
}


def write_samples(corpus: Path) -> None:
    """Write the part of the corpus that is made from a store: a backup, a journal and a checkpoint."""
    with copy_of(sample()) as store:
        save(store, folder() / "saved")
        rows = [f"{one.event}\t{one.placements}" for one in store.entries(0)]
        found = store.checkpoint()
        assert found is not None
        files = {
            "backup/a-store": gzip.decompress((folder() / "saved").read_bytes()),
            "journal/a-journal": "\n".join(rows).encode(),
            "checkpoint/a-situation": found.body.encode(),
        }
    for name, data in files.items():
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_bytes(data)
